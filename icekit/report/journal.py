"""Hold what a report was asked and what became of each table, and keep it so that an interrupted run can go on."""

from __future__ import annotations

import datetime as dt
import json
import os
import secrets as random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from icekit.compact.candidates import Savings
from icekit.diagnose.document import ReportedHealth, read
from icekit.errors import EXIT_CRASHED, EXIT_HEALTHY, EXIT_MISCONFIGURED, EXIT_UNHEALTHY, ParameterError, require_seconds
from icekit.facts.collect import Collector
from icekit.history.store import Health
from icekit.saving import naming, write_text
from icekit.secrets import mask_data

#: Tables observed at once: each mostly waits for its catalog and storage, or for Spark.
JOBS = 4
#: Notebooks at once: each is a Python process that draws on one core.
KERNELS = min(4, os.cpu_count() or 1)

#: What became of a table, most serious first; the last four are what its findings say.
STATUSES = ("crashed", "timed out", "misconfigured", "critical", "warning", "info", "healthy")
#: Those of a table that could be judged.
JUDGED = frozenset(STATUSES[3:])


@dataclass(frozen=True, slots=True)
class Options:
    """How a report is made; the defaults are the notebook's.

    ``history`` is where health is kept over time: empty for nowhere, ``table`` for the Iceberg
    table ``icekit.health`` of the catalog, else a SQLite file. ``timeout_seconds`` is for one table,
    from its first byte to its page (None: no limit). ``jobs`` tables are observed at once.
    ``resume`` goes on with the run that was interrupted in ``output``. ``fresh_kernels`` starts a
    kernel for each notebook, as papermill does by itself.
    """

    catalog: str = ""
    ref: str = ""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    filter_columns: Sequence[str] = ()
    collector: Collector = "auto"
    storage: bool = False
    fail_on: str = "never"
    output: Path = Path("reports")
    history: str = ""
    timeout_seconds: float | None = None
    jobs: int = JOBS
    resume: bool = False
    fresh_kernels: bool = False

    def __post_init__(self) -> None:
        if self.timeout_seconds is not None:
            require_seconds("The timeout of a table", self.timeout_seconds)
        if self.jobs < 1:
            raise ParameterError(f"The number of jobs must be 1 or more, not {self.jobs}.")


@dataclass(frozen=True, slots=True)
class Row:
    """One table of a run: what became of it, and where its page is.

    ``wins`` and ``health`` are None where the table could not be read. ``seconds`` are the table's own work, and
    ``stages`` those of ``observe``, ``notebook`` and ``page``: waiting for a free thread, a kernel or Spark to start is in neither.
    """

    table: str
    status: str
    seconds: float
    outcome: ReportedHealth | None = None
    page: str | None = None
    error: str | None = None
    wins: Savings | None = None
    health: Health | None = None
    stages: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReportRun:
    """What a report run left: a row per table, the index, the exit status, and the id it is known by.

    ``problems`` are of no table: globs that match nothing, a history that was not written.
    """

    rows: tuple[Row, ...]
    index: Path
    exit_status: int
    run_id: str = ""
    problems: tuple[str, ...] = ()


def exit_status(rows: Sequence[Row], fail_on: str, problems: Sequence[str] = ()) -> int:
    """The most serious of: crashed or timed out 3, misconfigured (also a glob that matches nothing, or a history that was not written) 2, unhealthy by the gate 1, healthy 0."""
    from icekit.notebook import gated

    found = {EXIT_MISCONFIGURED if problems else EXIT_HEALTHY}
    for row in rows:
        if row.status in {"crashed", "timed out"}:
            found.add(EXIT_CRASHED)
        elif row.status == "misconfigured":
            found.add(EXIT_MISCONFIGURED)
        elif row.outcome and gated(row.outcome.worst, fail_on):
            found.add(EXIT_UNHEALTHY)
    return max(found)


# --- Keep what a run has done while it runs, so that an interrupted one can be gone on with
#
# ``run.jsonl`` in the report's folder: one line for the run, then one for each table that is done,
# appended when it is. A line that was cut short by a kill counts as not written.


NAME = "run.jsonl"
_VERSION = 2


@dataclass(frozen=True, slots=True)
class StartedReport:
    """A run: its id, when it began, and the rows of tables that need not be done again."""

    run_id: str
    started_ms: int
    done: tuple[Row, ...] = ()


class Journal:
    """The file that a run writes to; use it in a ``with`` block, by one thread."""

    def __init__(self, begun: StartedReport, tables: Sequence[str], options: Options, path: Path) -> None:
        """Write the run's line and those of its rows that are done."""
        head = {"version": _VERSION, "run_id": begun.run_id, "started_ms": begun.started_ms, "tables": list(tables)}
        lines = [_line(head | {"options": _asked(options)}), *(_line(_plain(row)) for row in begun.done)]
        write_text(path, "".join(lines), clean=True)
        self._path, self._file = path, path.open("a", encoding="utf-8")

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, row: Row) -> None:
        """Write a table's row."""
        self._put(_plain(row))

    def end(self) -> None:
        """Say that the run is complete."""
        self._put({"ended": True})

    def _put(self, data: dict[str, Any]) -> None:
        with naming(self._path):
            self._file.write(_line(data))
            self._file.flush()


def begin(tables: Sequence[str], options: Options, path: Path, now: dt.datetime) -> StartedReport:
    """A new run; with ``options.resume`` the one that was interrupted, if there is one.

    Its tables with a complete report are not done again; those that failed are. A run that
    ended is not gone on with: a new one begins. Raises :class:`~icekit.errors.ParameterError` when the
    interrupted run was asked something else.
    """
    new = StartedReport(f"{now:%Y%m%dT%H%M%SZ}-{random.token_hex(3)}", int(now.timestamp() * 1000))
    lines = _lines(path) if options.resume else []
    if not lines or lines[0].get("version") != _VERSION or any("ended" in line for line in lines):
        return new
    if lines[0]["options"] != _asked(options):
        changed = sorted(key for key, value in _asked(options).items() if lines[0]["options"].get(key) != value)
        raise ParameterError(
            f"The run that was interrupted in {path.parent} was asked otherwise ({', '.join(changed)}); go on with the same options, or leave out --continue."
        )
    newest = {line["table"]: line for line in lines[1:] if "table" in line}
    rows = (_row(line, path.parent) for table, line in newest.items() if table in set(tables) and line["status"] in JUDGED)
    return StartedReport(lines[0]["run_id"], lines[0]["started_ms"], tuple(row for row in rows if row is not None))


def _asked(options: Options) -> dict[str, Any]:
    """What decides a table's report; where and how fast it is made does not."""
    names = ("catalog", "ref", "collector", "storage", "history")
    asked: dict[str, Any] = {name: getattr(options, name) for name in names}
    return asked | {"thresholds": dict(options.thresholds), "filter_columns": list(options.filter_columns)}


def _plain(row: Row) -> dict[str, Any]:
    return {
        "table": row.table,
        "status": row.status,
        "seconds": round(row.seconds, 3),
        "page": row.page,
        "error": row.error,
        "stages": dict(row.stages),
        "wins": asdict(row.wins) if row.wins else None,
        "health": row.health.plain() if row.health else None,
    }


def _row(line: dict[str, Any], output: Path) -> Row | None:
    """The row as it was; None if its files are not all there any more."""
    page = output / (line["page"] or "")
    document = page.with_suffix(".json")
    if not line["page"] or not page.exists() or not document.exists():
        return None
    wins, health = line["wins"], line["health"]
    return Row(
        table=line["table"],
        status=line["status"],
        seconds=line["seconds"],
        outcome=read(document),
        page=line["page"],
        error=None,
        # Written by another icekit, it may say more than this one knows.
        wins=Savings(**{f.name: wins[f.name] for f in fields(Savings) if f.name in wins}) if wins else None,
        health=Health.of_plain(health) if health else None,
        stages=line["stages"],
    )


def _line(data: dict[str, Any]) -> str:
    # Errors may quote a profile; numbers stay as they are.
    return json.dumps(mask_data(data)) + "\n"


def _lines(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found
