"""Set a notebook up, observe what it was asked for, and close it with a result; a person's cells call the package itself."""

from __future__ import annotations

import ast
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.api import Lake, connect
from icekit.diagnose.findings import Findings, Severity, Thresholds
from icekit.errors import EXIT_UNHEALTHY, IcekitError, ParameterError, nearest
from icekit.facts.collect import Collector
from icekit.facts.model import TableFacts
from icekit.saving import Result, slug
from icekit.show.explorer import SWITCH, has_front_end

if TYPE_CHECKING:
    from icekit.compact import Calibration, Policy
    from icekit.tune.merge import Review
    from icekit.tune.write_mode import WriteModeChoice


# --- Begin a notebook: readable errors, known parameters, checked values


GATES = ("never", *(severity.name.lower() for severity in Severity if severity > Severity.INFO))


def begin(cell_globals: Mapping[str, Any]) -> None:
    """Make errors readable, and refuse parameters that the notebook does not have.

    The parameters that it has are what the cells before papermill's assign: papermill puts the values that it was given after the cell
    tagged ``parameters``, and itself only warns about an unknown one. Raises
    :class:`~icekit.errors.ParameterError` with the nearest known name.
    """
    _plain_errors()
    cells = list(cell_globals.get("In", ()))
    given = next((place for place in reversed(range(len(cells))) if cells[place].lstrip().startswith("# Parameters")), None)
    if given is not None:
        check_names(_assigned(cells[given]), [name for cell in cells[:given] for name in _assigned(cell)])
        if not has_front_end():
            # papermill runs it with parameters: nobody is there to move a slider.
            os.environ.setdefault(SWITCH, "off")
    # A notebook that is opened in notebooks/ or notebooks/lessons/ and one that is run from the root find the same lake.
    if "ICEKIT_LAKE" not in os.environ and not Path("lake").exists():
        above = next((folder for folder in (Path("../lake"), Path("../../lake")) if folder.is_dir()), None)
        if above is not None:
            os.environ["ICEKIT_LAKE"] = str(above.resolve())


def check_names(given: Sequence[str], known: Sequence[str]) -> None:
    """Refuse a parameter name that is not known."""
    for name in given:
        if name not in known:
            raise ParameterError(
                f"There is no parameter {name!r}{nearest(name, known, count=1) or '; there are ' + ', '.join(known) + '.'}"
            )


def limits(thresholds: Mapping[str, float] | None, fail_on: str = "never") -> Thresholds:
    """The default thresholds with some changed; checks the gate's name too."""
    check_gate(fail_on)
    require("thresholds", thresholds or {}, dict, "a mapping (with papermill: -y 'thresholds: {snapshots: 50}')")
    return Thresholds().with_changes(**dict(thresholds or {}))


def check_gate(fail_on: str) -> None:
    """Refuse a gate that is not one of never, warning, critical."""
    if fail_on not in GATES:
        raise ParameterError(f"fail_on is {fail_on!r}{nearest(fail_on, GATES, count=1) or '; use ' + ', '.join(GATES) + '.'}")


def gated(worst: Severity | None, fail_on: str) -> bool:
    """Tell whether a severity fails a gate."""
    check_gate(fail_on)
    return fail_on != "never" and worst is not None and worst >= Severity[fail_on.upper()]


def require(name: str, value: object, kind: type | tuple[type, ...], wanted: str) -> None:
    """Refuse a parameter of another kind: papermill's -r makes a text of everything."""
    if not isinstance(value, kind):
        raise ParameterError(f"Parameter {name} must be {wanted}, not {value!r}.")


def _assigned(cell: str) -> list[str]:
    """Names that a cell assigns at its top level."""
    return [
        target.id
        for statement in ast.parse(cell).body
        for target in (
            statement.targets if isinstance(statement, ast.Assign) else [statement.target] if isinstance(statement, ast.AnnAssign) else []
        )
        if isinstance(target, ast.Name)
    ]


def _plain_errors() -> None:
    """In IPython, show an IcekitError as its sentence; ``ICEKIT_DEBUG`` keeps the stack trace."""
    if "IPython" not in sys.modules or os.environ.get("ICEKIT_DEBUG"):
        return
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    if shell is not None:
        shell.set_custom_exc((IcekitError,), _one_sentence)


def _one_sentence(shell: Any, kind: type[IcekitError], error: IcekitError, _trace: object, **_offset: object) -> list[str]:
    """Show an error without its stack, in colour as IPython shows errors."""
    said = [f"\x1b[31m{kind.__name__}\x1b[0m: {error}"]
    shell._showtraceback(kind, error, said)
    return said


# --- Ask what a notebook's parameters ask for; an empty text or a zero stands for what was not asked


def connected(catalog: str) -> Lake:
    """The catalog that a notebook's parameter names; an empty text is the embedded lake."""
    require("catalog", catalog, str, "a text")
    return connect(catalog or None)


def observe(
    catalog: str,
    table: str,
    thresholds: Thresholds,
    *,
    ref: str | int = "",
    filter_columns: Sequence[str] = (),
    collector: Collector = "auto",
    storage: bool = False,
    facts_file: str = "",
) -> tuple[Lake, TableFacts]:
    """Connect and observe, or take facts that a report has collected for several tables at once."""
    given = {"catalog": catalog, "table": table, "collector": collector, "facts_file": facts_file}
    for name, value in given.items():
        require(name, value, str, "a text")
    require("storage", storage, bool, "true or false (with papermill: -p, or a parameters file)")
    require("filter_columns", filter_columns, (list, tuple), "a list (with papermill: -y 'filter_columns: [a, b]')")
    lake = connect(catalog or None)
    if facts_file:
        from icekit.diagnose.document import load_facts

        return lake, load_facts(Path(facts_file))
    facts = lake.observe(
        table,
        ref=ref or None,
        collector=collector,
        size_ratios=thresholds.size_ratios,
        filter_columns=list(filter_columns) or None,
        storage=storage,
    )
    return lake, facts


def policy(given: Mapping[str, Any]) -> Policy:
    """The policy that a notebook's parameters set; raises ParameterError for what it cannot take."""
    from icekit.compact.model import Policy

    require("policy", given, dict, "a mapping (with papermill: -y 'policy: {scope: major}')")
    return Policy.of(given)


def calibration(lake: Lake, ledger: str = "") -> Calibration:
    """How near the predictions in the ledger came, over all tables."""
    from icekit.compact import calibration as compared
    from icekit.compact.ledger import opened

    with opened(ledger, lake) as book:
        return compared(book.outcomes())


def erased(lake: Lake, table: str, predicate: str) -> Any:
    """Where rows of a predicate can still be read, or a sentence that nobody asked."""
    if not predicate:
        return "No predicate was given: whose rows must be gone was not asked."
    from icekit.prove import prove_erased

    return prove_erased(lake, table, predicate)


def stock(lake: Lake, table: str, executor: str, limit: int) -> Any:
    """A stock rewrite on such an executor's heap, or a sentence that none was asked for or can be run."""
    from icekit.compact.equality_deletes import stock_rewrite

    require("stock_limit", limit, int, "a number of seconds (with papermill: -p)")
    if not limit or not executor:
        return "No stock rewrite was run: stock_limit is 0, or no executor is given."
    try:
        return stock_rewrite(lake, table, executor, limit_seconds=limit)
    except ParameterError as problem:
        return f"No stock rewrite was run: {problem}"


def read_now(lake: Lake, table: str, wanted: bool) -> Any:
    """The rows of a table with its equality deletes resolved on a clone, or a sentence that nobody asked."""
    require("read_now", wanted, bool, "true or false (with papermill: -p, or a parameters file)")
    if not wanted:
        return "The table was not read: read_now is false."
    from icekit.resolve.convert import resolved

    started = time.monotonic()
    # Not lake.read_resolved: a kernel may be ended without a word, and would leave the clone behind.
    with resolved(lake, lake.identifier(table), say=print) as rows:
        return f"{rows.count():,} rows, {len(rows.columns)} columns, resolved and counted in {time.monotonic() - started:.0f} s"


def review(catalog: str, sql: str, sql_file: str = "", *, prove: bool = False) -> Review:
    """Review the MERGE that a notebook's parameters name: a text, or a file that holds it."""
    for name, value in {"catalog": catalog, "sql": sql, "sql_file": sql_file}.items():
        require(name, value, str, "a text")
    require("prove", prove, bool, "true or false (with papermill: -p, or a parameters file)")
    if sql_file:
        from icekit.tune.statement import read_file

        sql = read_file(sql_file)
    return connect(catalog or None).review_merge(sql, prove=prove)


def try_write_modes(lake: Lake, table: str, **options: Any) -> WriteModeChoice:
    """Choose a write mode by a notebook's parameters: an empty text, or a zero where it means nothing, stands for the default."""
    unset = {"share", "file_share", "reads_per_commit", "reads_per_day", "compact_every"}
    given = {name: value for name, value in options.items() if value != "" and not (name in unset and value == 0)}
    return lake.choose_write_mode(table, **given)


# --- End a notebook: write what was asked to be written, then apply the gate


_NOTHING = "Nothing was written: no output folder was given."


class Unhealthy(IcekitError):
    """The gate that ``fail_on`` sets; everything has been written by then."""

    exit_status = EXIT_UNHEALTHY


def finish(facts: TableFacts, findings: Findings, thresholds: Thresholds, *, output: str = "", fail_on: str = "never") -> str:
    """Write the JSON document if a folder is given, then apply the gate.

    Raises :class:`Unhealthy` when a finding is as grave as ``fail_on`` or graver.
    """
    said = _NOTHING
    if output:
        from icekit.diagnose.document import write

        path = write(facts, findings, thresholds, Path(output) / f"{slug(facts.name)}.json")
        said = f"Facts and findings are in {path}."
    if gated(findings.worst, fail_on):
        grave = [f.name for f in findings if gated(f.severity, fail_on)]
        raise Unhealthy(f"{facts.name} is unhealthy by fail_on={fail_on}: {', '.join(grave)}. {said}")
    return said


def conclude(result: Result, *, output: str = "") -> str:
    """Write a result's JSON document if a folder is given, then fail the run if the result is a failure.

    Raises :class:`Unhealthy`, after all is written.
    """
    said = f"All of it is in {result.write_into(Path(output))}." if output else _NOTHING
    if result.failure:
        raise Unhealthy(f"{result.failure} {said}")
    return said


def html(text: str) -> Any:
    """Show HTML as a cell's result."""
    from IPython.display import HTML

    return HTML(text)  # type: ignore[no-untyped-call]
