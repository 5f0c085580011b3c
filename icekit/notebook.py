"""What the notebooks' set-up and closing cells call; a person's cells call the package itself."""

from __future__ import annotations

import ast
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.catalog import Lake, connect
from icekit.errors import EXIT_UNHEALTHY, IcekitError, ParameterError, nearest
from icekit.facts.collect import Collector
from icekit.facts.model import TableFacts
from icekit.findings import Findings, Severity, Thresholds

if TYPE_CHECKING:
    from icekit.compact import Calibration, Outcome, Policy
    from icekit.tune.merge import Review
    from icekit.tune.write_mode import WriteModeChoice

GATES = ("never", *(severity.name.lower() for severity in Severity if severity > Severity.INFO))


class Unhealthy(IcekitError):
    """The gate that ``fail_on`` sets; everything has been written by then."""

    exit_status = EXIT_UNHEALTHY


def begin(parameters: Mapping[str, Any], known: Sequence[str]) -> None:
    """Make errors readable, and refuse parameters that the notebook does not have.

    ``parameters`` are the cell's globals, ``known`` the names of the parameters cell.
    papermill itself only warns about an unknown one. Raises
    :class:`~icekit.errors.ParameterError` with the nearest known name.
    """
    _plain_errors()
    for cell in reversed(list(parameters.get("In", ()))):
        if cell.lstrip().startswith("# Parameters"):
            check_names(_assigned(cell), known)
            break
    # A notebook that is opened in notebooks/ and one that is run from the root find the same lake.
    if "ICEKIT_LAKE" not in os.environ and not Path("lake").exists() and Path("../lake").is_dir():
        os.environ["ICEKIT_LAKE"] = str(Path("../lake").resolve())


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
    _require("thresholds", thresholds or {}, dict, "a mapping (with papermill: -y 'thresholds: {snapshots: 50}')")
    return Thresholds().with_changes(**dict(thresholds or {}))


def _require(name: str, value: object, kind: type | tuple[type, ...], wanted: str) -> None:
    """Refuse a parameter of another kind: papermill's -r makes a text of everything."""
    if not isinstance(value, kind):
        raise ParameterError(f"Parameter {name} must be {wanted}, not {value!r}.")


def check_gate(fail_on: str) -> None:
    """Refuse a gate that is not one of never, warning, critical."""
    if fail_on not in GATES:
        raise ParameterError(f"fail_on is {fail_on!r}{nearest(fail_on, GATES, count=1) or '; use ' + ', '.join(GATES) + '.'}")


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
        _require(name, value, str, "a text")
    _require("storage", storage, bool, "true or false (with papermill: -p, or a parameters file)")
    _require("filter_columns", filter_columns, (list, tuple), "a list (with papermill: -y 'filter_columns: [a, b]')")
    lake = connect(catalog or None)
    if facts_file:
        from icekit.report.document import load_facts

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


def finish(facts: TableFacts, findings: Findings, thresholds: Thresholds, *, output: str = "", fail_on: str = "never") -> str:
    """Write the JSON document if a folder is given, then apply the gate.

    Raises :class:`Unhealthy` when a finding is as grave as ``fail_on`` or graver.
    """
    said = "Nothing was written: no output folder was given."
    if output:
        from icekit.report.document import write

        path = write(facts, findings, thresholds, Path(output) / f"{slug(facts.name)}.json")
        said = f"Facts and findings are in {path}."
    if gated(findings.worst, fail_on):
        grave = [f.name for f in findings if gated(f.severity, fail_on)]
        raise Unhealthy(f"{facts.name} is unhealthy by fail_on={fail_on}: {', '.join(grave)}. {said}")
    return said


def policy(given: Mapping[str, Any]) -> Policy:
    """The policy that a notebook's parameters set; raises ParameterError for what it cannot take."""
    from icekit.compact.policy import Policy

    _require("policy", given, dict, "a mapping (with papermill: -y 'policy: {scope: major}')")
    return Policy.of(given)


def sampled(text: str) -> int | None:
    """How many partitions of a commit are proved: None for all (``full``), 0 for ``none``, or their number."""
    if str(text) in {"full", "none"}:
        return None if text == "full" else 0
    if str(text).isdecimal() and int(text) > 0:
        return int(text)
    raise ParameterError(f"prove is {text!r}; use full, none, or the number of partitions of each commit.")


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

    _require("stock_limit", limit, int, "a number of seconds (with papermill: -p)")
    if not limit or not executor:
        return "No stock rewrite was run: stock_limit is 0, or no executor is given."
    try:
        return stock_rewrite(lake, table, executor, limit_seconds=limit)
    except ParameterError as problem:
        return f"No stock rewrite was run: {problem}"


def read_now(lake: Lake, table: str, wanted: bool) -> Any:
    """The rows of a table with its equality deletes resolved on a clone, or a sentence that nobody asked."""
    _require("read_now", wanted, bool, "true or false (with papermill: -p, or a parameters file)")
    if not wanted:
        return "The table was not read: read_now is false."
    from icekit.resolve.reading import resolved

    started = time.monotonic()
    # Not lake.read_resolved: a kernel may be ended without a word, and would leave the clone behind.
    with resolved(lake, lake.identifier(table), say=print) as rows:
        return f"{rows.count():,} rows, {len(rows.columns)} columns, resolved and counted in {time.monotonic() - started:.0f} s"


def review(catalog: str, sql: str, sql_file: str = "", *, prove: bool = False) -> Review:
    """Review the MERGE that a notebook's parameters name: a text, or a file that holds it."""
    for name, value in {"catalog": catalog, "sql": sql, "sql_file": sql_file}.items():
        _require(name, value, str, "a text")
    _require("prove", prove, bool, "true or false (with papermill: -p, or a parameters file)")
    if sql_file:
        from icekit.tune.statement import read_file

        sql = read_file(sql_file)
    return connect(catalog or None).review_merge(sql, prove=prove)


def finish_review(review: Review, *, output: str = "") -> str:
    """Write a review's JSON document if a folder is given, then fail the run if a trial left other rows.

    Raises :class:`Unhealthy`, after all is written.
    """
    said = "Nothing was written: no output folder was given."
    if output:
        from icekit.tune.merge.document import write_into

        said = f"The review is in {write_into(review, Path(output))}."
    if not review.is_proved:
        raise Unhealthy(f"The statement and what is offered could not be shown to leave the same rows. {said}")
    return said


def finish_plan(outcome: Outcome, *, output: str = "") -> str:
    """Write a plan's JSON document if a folder is given, then fail the run if something is left or not proved.

    Raises :class:`Unhealthy`, after all is written.
    """
    said = "Nothing was written: no output folder was given."
    if output:
        from icekit.compact.document import named, write

        said = f"The plan and its outcome are in {write(outcome, Path(output) / named(outcome.plan))}."
    if outcome.exit_status:
        raise Unhealthy(f"{outcome.plan.name}: {outcome.status}. {said}")
    return said


def try_write_modes(lake: Lake, table: str, **options: Any) -> WriteModeChoice:
    """Choose a write mode by a notebook's parameters: an empty text, or a zero where it means nothing, stands for the default."""
    unset = {"share", "file_share", "reads_per_commit", "reads_per_day", "compact_every"}
    given = {name: value for name, value in options.items() if value != "" and not (name in unset and value == 0)}
    return lake.choose_write_mode(table, **given)


def finish_write_mode(choice: WriteModeChoice, *, output: str = "") -> str:
    """Write a choice's JSON document if a folder is given."""
    if not output:
        return "Nothing was written: no output folder was given."
    from icekit.tune.write_mode.document import write

    return f"The answer is in {write(choice, Path(output) / f'{slug(choice.name)}.write-mode.json')}."


def gated(worst: Severity | None, fail_on: str) -> bool:
    """Tell whether a severity fails a gate."""
    check_gate(fail_on)
    return fail_on != "never" and worst is not None and worst >= Severity[fail_on.upper()]


def slug(name: str) -> str:
    """A file name for a table: its own where that is safe, distinct otherwise."""
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    if safe == name and len(safe) < 120:
        return safe
    import hashlib

    return f"{safe[:100]}-{hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:8]}"


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


def html(text: str) -> Any:
    """Show HTML as a cell's result."""
    from IPython.display import HTML

    return HTML(text)  # type: ignore[no-untyped-call]
