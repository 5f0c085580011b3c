"""Set up a notebook from its parameters, observe its table, and end it with a result; the cells in between call the package itself."""

from __future__ import annotations

import ast
import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.answer.grid import TEXT, Grid
from icekit.api import Lake, connect
from icekit.diagnose.findings import Findings, Severity, Thresholds
from icekit.errors import EXIT_UNHEALTHY, IcekitError, ParameterError, nearest
from icekit.facts.collect import Collector
from icekit.facts.model import TableFacts
from icekit.saving import Result, slug
from icekit.show.explorer import SWITCH, has_front_end

if TYPE_CHECKING:
    from icekit.compact import Policy
    from icekit.tune.answer import Answer


# --- Declare what a notebook can be set to, besides the few parameters in its own cell


#: Each with its default and what it does. A notebook's ``more`` changes them, and so does papermill by their names.
SETTINGS: Mapping[str, tuple[Any, str]] = {
    "batch_bytes": ("", 'disk that one batch may spill to, for example "200 GB"; empty: half of what is free'),
    "branch": ("", "a branch; empty: the table itself"),
    "budget_bytes": ("20 GB", "stop the trial before it writes more than this"),
    "budget_seconds": (900.0, "stop the trial after this time"),
    "collector": ("auto", "what reads the metadata: auto, spark, or local (no JVM)"),
    "compact_every": (0, "commits between two compactions; 0: as in the history, or else the number that costs least"),
    "event_log": ("", "a Spark event log, or a folder of them, in which queries are looked up"),
    "facts_file": ("", "facts saved by an earlier run; empty: observe the table"),
    "fail_on": ("never", "never, warning or critical: which findings fail the run, after everything is written"),
    "file_share": (0.0, "share of the files that a clustered commit touches; 0: as in the history"),
    "filter_columns": ([], "columns that queries filter by; empty: the table property icekit.filter-columns"),
    "history": ("", "where the table's health is kept over time: table (icekit.health), or a SQLite file; empty: nowhere"),
    "ledger": ("", "the file that runs are recorded in; empty: the default file"),
    "max_sort_columns": (4, "try sort orders of up to this many columns"),
    "output": ("", "folder for the JSON document; empty: none is written"),
    "procedures": ([], 'procedures that may be planned, for example ["remove_orphan_files"]; empty: all but that one'),
    "prove": (
        "checked",
        "check each rewrite or conversion before its commit (checked), compare all changed partitions (full) or so many after it, or none",
    ),
    "read_filter": ("", "SQL predicate of the reads; empty: full scans"),
    "read_now": (True, "resolve the deletes on a zero-copy clone and count the rows"),
    "reads_per_day": (0.0, "scans of the table in a day, divided by the commits a day of the history; used where reads_per_commit is 0"),
    "ref": ("", "branch, tag or snapshot id; empty: the current snapshot"),
    "resume": (False, "with execute: continue the unfinished run on the table"),
    "sample_bytes": ("1 GB", "data files to sample, or rows to write in a trial"),
    "scan_reports": ("", "a file of Iceberg scan reports (JSON) to take filters from"),
    "share": (0.01, "share of the rows that a commit changes; 0: as in the history"),
    "spread": ("scattered", "where the changed rows are: scattered over all files, or clustered in some; empty: as in the history"),
    "storage": (False, "also look for orphan files, which lists the storage; removing them needs it"),
    "thresholds": ({}, 'thresholds to change, for example {"snapshots": 50}'),
    "trial": (True, "try the plan on a zero-copy clone first, and predict from the result"),
    "window": ({}, 'partitions to take, by their own time, for example {"since": "2026-01-01", "skip_last": "6 hours"}'),
}

#: Which of them a notebook has; its ``more`` line names the same.
MORE: Mapping[str, tuple[str, ...]] = {
    "01_diagnose": ("storage", "collector", "history", "facts_file", "output", "fail_on"),
    "02_compact": ("ref", "window", "thresholds", "filter_columns", "trial", "resume", "prove", "ledger", "output"),
    "03_maintain": ("storage", "procedures", "thresholds", "filter_columns", "resume", "prove", "ledger", "output"),
    "04_equality_deletes": ("branch", "read_now", "batch_bytes", "resume", "prove", "ledger", "output"),
    "05_choose_write_mode": (
        *("share", "spread", "file_share", "reads_per_day", "event_log", "read_filter", "compact_every"),
        *("budget_seconds", "budget_bytes", "output"),
    ),
    "06_review_merge": (),
    "07_tune_file_sizes": ("budget_seconds", "budget_bytes", "output"),
    "08_tune_metrics_columns": ("scan_reports", "sample_bytes", "budget_seconds", "budget_bytes", "output"),
    "09_tune_layout": ("scan_reports", "max_sort_columns", "sample_bytes", "budget_seconds", "budget_bytes", "output"),
    "10_tune_planning": ("event_log", "scan_reports", "budget_seconds", "budget_bytes", "output"),
}

_KINDS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "str": (str, "a string"),
    "dict": (dict, "a mapping (with papermill: -y '{name}: {{key: value}}')"),
    "list": ((list, tuple), "a list (with papermill: -y '{name}: [a, b]')"),
    "bool": (bool, "true or false (with papermill: -p, or a parameters file)"),
    "int": (int, "a whole number (with papermill: -p)"),
    "float": ((int, float), "a number (with papermill: -p)"),
}


class NotebookSettings(Mapping[str, Any]):
    """A notebook's rarely changed settings: ``settings.storage`` is the value in force; shown, they are a table with what each does."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._values:
            raise AttributeError(f"There is no setting {name!r}{nearest(name, self._values, count=1)}")
        return self._values[name]

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def only(self, *names: str) -> dict[str, Any]:
        """Some of them, by name, to pass on."""
        return {name: self._values[name] for name in names}

    def grid(self) -> Grid:
        """Each setting with its value, its default and what it does."""
        columns = {"setting": TEXT, "value": TEXT, "default": TEXT, "help": TEXT("what it does")}
        rows = [(name, repr(value), repr(SETTINGS[name][0]), SETTINGS[name][1]) for name, value in self.items()]
        return Grid(
            "Rarely changed settings; set them in more, for example more = {name: value}:",
            columns,
            rows,
            if_empty="This notebook has no other settings.",
        )

    def __repr__(self) -> str:
        return str(self.grid())

    def _repr_html_(self) -> str:
        return self.grid()._repr_html_()


# --- Begin a notebook: readable errors, known parameters, checked values


GATES = ("never", *(severity.name.lower() for severity in Severity if severity > Severity.INFO))


def begin(cell_globals: Mapping[str, Any], notebook: str = "") -> NotebookSettings:
    """Make errors readable, check a notebook's parameters, and give its settings.

    ``notebook`` is its name in :data:`MORE`. A setting has its default unless ``more`` holds another value, and papermill wins over
    both: it puts the values that it was given, as variables, into a cell after the one tagged ``parameters``, and itself only warns about
    an unknown one. Raises :class:`~icekit.errors.ParameterError` for a name that the notebook does not have, with the nearest known,
    and for a value of another kind than the declared one.
    """
    _plain_errors()
    cells = list(cell_globals.get("In", ()))
    given = next((place for place in reversed(range(len(cells))) if cells[place].lstrip().startswith("# Parameters")), None)
    names = MORE.get(notebook, ())
    if given is not None:
        check_names(_assigned(cells[given]), [*(name for cell in cells[:given] for name in _assigned(cell)), *names])
        if not has_front_end():
            # papermill runs it with parameters: nobody is there to move a slider.
            os.environ.setdefault(SWITCH, "off")
    _find_lake()
    declared = _annotated(cells[:given])
    for name, kind in declared.items():
        if name in cell_globals:
            require(name, cell_globals[name], kind)
    more = cell_globals.get("more", {})
    require("more", more, "dict")
    if of_its_own := [name for name in more if name in declared]:
        raise ParameterError(f"{of_its_own[0]} has a line of its own above more; set it there.")
    check_names(list(more), names)
    changed = {**more, **{name: cell_globals[name] for name in names if name in cell_globals}}
    for name, value in changed.items():
        require(name, value, type(SETTINGS[name][0]).__name__)
    return NotebookSettings({name: changed.get(name, SETTINGS[name][0]) for name in names})


def _find_lake() -> None:
    """See that a notebook opened in notebooks/ or notebooks/lessons/ and one that is run from the root find the same lake."""
    if "ICEKIT_LAKE" not in os.environ and not Path("lake").exists():
        above = next((folder for folder in (Path("../lake"), Path("../../lake")) if folder.is_dir()), None)
        if above is not None:
            os.environ["ICEKIT_LAKE"] = str(above.resolve())


def check_names(given: Sequence[str], known: Sequence[str]) -> None:
    """Refuse a parameter name that is not known."""
    for name in given:
        if name not in known:
            others = f"; the parameters are {', '.join(known)}." if known else " in this notebook."
            raise ParameterError(f"There is no parameter {name!r}{nearest(name, known, count=1) or others}")


def require(name: str, value: object, kind: str) -> None:
    """Refuse a parameter whose value is not of the declared kind: papermill's -r makes a text of everything."""
    types, wanted = _KINDS.get(kind, (object, ""))
    if not isinstance(value, types) or (isinstance(value, bool) and kind in ("int", "float")):
        raise ParameterError(f"Parameter {name} must be {wanted.format(name=name)}, not {value!r}.")


def limits(thresholds: Mapping[str, float] | None, fail_on: str = "never") -> Thresholds:
    """The default thresholds with some changed; also checks the gate's name."""
    check_gate(fail_on)
    require("thresholds", thresholds or {}, "dict")
    return Thresholds().with_changes(**dict(thresholds or {}))


def check_gate(fail_on: str) -> None:
    """Refuse a gate that is not one of never, warning, critical."""
    if fail_on not in GATES:
        raise ParameterError(f"fail_on is {fail_on!r}{nearest(fail_on, GATES, count=1) or '; use ' + ', '.join(GATES) + '.'}")


def gated(worst: Severity | None, fail_on: str) -> bool:
    """Tell whether findings of this severity fail the gate."""
    check_gate(fail_on)
    return fail_on != "never" and worst is not None and worst >= Severity[fail_on.upper()]


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


def _annotated(cells: Sequence[str]) -> dict[str, str]:
    """The names that the last cell with annotated assignments declares, each with its kind; no other cell of a notebook annotates."""
    for cell in reversed(cells):
        with contextlib.suppress(SyntaxError):  # a cell that somebody has mistyped
            statements = [statement for statement in ast.parse(cell).body if isinstance(statement, ast.AnnAssign)]
            if statements:
                return {ast.unparse(statement.target): ast.unparse(statement.annotation) for statement in statements}
    return {}


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
    lines = [f"\x1b[31m{kind.__name__}\x1b[0m: {error}"]
    shell._showtraceback(kind, error, lines)
    return lines


# --- Call the package with a notebook's parameters; an empty text or a zero means that something was not asked for


def connected(catalog: str) -> Lake:
    """Connect to the catalog of this name; an empty text is the embedded lake."""
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
    """Connect and observe, or load facts that a report has already collected."""
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
    """The compaction policy from a notebook's parameters; raises ParameterError for unknown names and values."""
    from icekit.compact.model import Policy

    require("policy", given, "dict")
    return Policy.of(given)


def read_now(lake: Lake, table: str, wanted: bool) -> Any:
    """Count the rows of a table with its equality deletes resolved on a clone, or say that this was not asked for."""
    if not wanted:
        return "The table was not read: read_now is false."
    from icekit.resolve.convert import resolved

    started = time.monotonic()
    # Not lake.read_resolved: a kernel that is killed would leave the clone behind.
    with resolved(lake, lake.identifier(table), say=print) as rows:
        return f"{rows.count():,} rows, {len(rows.columns)} columns, resolved and counted in {time.monotonic() - started:.0f} s"


def review(catalog: str, sql: str, sql_file: str = "", *, prove: bool = False) -> Answer:
    """Review a MERGE, given as text or as a file."""
    if sql_file:
        from icekit.tune.statement import read_file

        sql = read_file(sql_file)
    return connect(catalog or None).review_merge(sql, prove=prove)


# --- End a notebook: write the document if a folder is given, then apply the gate


_NOTHING = "Nothing was written, because no output folder was given."


class Unhealthy(IcekitError):
    """The table fails the gate that ``fail_on`` sets; raised after everything is written."""

    exit_status = EXIT_UNHEALTHY


def finish(facts: TableFacts, findings: Findings, thresholds: Thresholds, *, output: str = "", fail_on: str = "never") -> str:
    """Write the JSON document if a folder is given, then apply the gate.

    Raises :class:`Unhealthy` when a finding is as serious as ``fail_on`` or more.
    """
    written = _NOTHING
    if output:
        from icekit.diagnose.document import write

        path = write(facts, findings, thresholds, Path(output) / f"{slug(facts.name)}.json")
        written = f"Facts and findings are in {path}."
    if gated(findings.worst, fail_on):
        names = [f.name for f in findings if gated(f.severity, fail_on)]
        raise Unhealthy(f"{facts.name} is unhealthy according to fail_on={fail_on}: {', '.join(names)}. {written}")
    return written


def conclude(result: Result, *, output: str = "") -> str:
    """Write a result's JSON document if a folder is given, then fail the run if the result is a failure.

    Raises :class:`Unhealthy` after everything is written.
    """
    written = f"The result is in {result.write_into(Path(output))}." if output else _NOTHING
    if result.failure:
        raise Unhealthy(f"{result.failure} {written}")
    return written


def html(text: str) -> Any:
    """Show HTML as a cell's result."""
    from IPython.display import HTML

    return HTML(text)  # type: ignore[no-untyped-call]
