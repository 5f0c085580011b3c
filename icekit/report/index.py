"""Hold the options of a report and the result of each table, save them so that an interrupted run can resume, and write pages and index."""

from __future__ import annotations

import copy
import datetime as dt
import json
import os
import re
import secrets as random
import shlex
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from icekit.answer.html import render
from icekit.diagnose.document import ReportedHealth, read
from icekit.diagnose.findings import Thresholds, titles
from icekit.errors import EXIT_HEALTHY, EXIT_MISCONFIGURED, EXIT_UNHEALTHY, ParameterError, require_seconds
from icekit.facts.collect import Collector
from icekit.history.store import Health
from icekit.history.trend import Comparison, compare
from icekit.maintain.savings import Savings, total
from icekit.saving import naming, write_text
from icekit.secrets import mask_data
from icekit.show.explorer import WIDGET_VIEW
from icekit.status import Status
from icekit.units import about, count, percent, size

#: Tables observed at once: each mostly waits for its catalog and storage, or for Spark.
JOBS = 4
#: Notebooks at once: each is a Python process that uses one core.
KERNELS = min(4, os.cpu_count() or 1)

#: The result of a table, most serious first; the last four are what its findings say.
STATUSES = (Status.CRASHED, Status.TIMED_OUT, Status.MISCONFIGURED, "critical", "warning", "info", "healthy")
#: Statuses of tables that could be diagnosed.
JUDGED = frozenset(STATUSES[3:])


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a report; the defaults are the notebook's.

    ``history`` is where health is recorded over time: empty for nowhere, ``table`` for the Iceberg
    table ``icekit.health`` of the catalog, else a SQLite file. ``timeout_seconds`` is the limit for one table,
    from its first byte to its page (None: no limit). ``jobs`` tables are observed at once.
    ``resume`` continues the interrupted run in ``output``. ``fresh_kernels`` starts a
    kernel for each notebook, as papermill does by default.
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
    """One table of a run: its result, and its page.

    ``wins`` and ``health`` are None if the table could not be read. ``seconds`` are work on the table, and
    ``stages`` the seconds of ``observe``, ``notebook`` and ``page``: neither includes waiting for a free thread, a kernel or Spark.
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

    @property
    def said(self) -> str:
        """``db.events: critical, 2 findings``."""
        findings = self.outcome.findings if self.outcome else ()
        return f"{self.table}: {self.status}" + (f", {count(len(findings), 'finding')}" if findings else "")


@dataclass(frozen=True, slots=True)
class ReportRun:
    """The result of a report run: a row per table, the index, the exit status, and the run's id.

    ``problems`` belong to no table: globs that match nothing, a history that could not be written.
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
        if row.status not in JUDGED:
            found.add(Status(row.status).exit_status)
        elif row.outcome and gated(row.outcome.worst, fail_on):
            found.add(EXIT_UNHEALTHY)
    return max(found)


# --- Save the progress of a run, so that an interrupted run can resume
#
# ``run.jsonl`` in the report's folder: one line for the run, then one for each table that is done,
# appended when it is. A line that was cut short by a kill counts as not written.


NAME = "run.jsonl"
_VERSION = 2


@dataclass(frozen=True, slots=True)
class StartedReport:
    """A run: its id, when it began, and the rows of tables that are already done."""

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
    """A new run; with ``options.resume`` the interrupted one, if there is one.

    Tables with a complete report are not done again; failed ones are. A finished
    run is not resumed: a new one begins. Raises :class:`~icekit.errors.ParameterError` if the
    interrupted run had other options.
    """
    new = StartedReport(f"{now:%Y%m%dT%H%M%SZ}-{random.token_hex(3)}", int(now.timestamp() * 1000))
    lines = _lines(path) if options.resume else []
    if not lines or lines[0].get("version") != _VERSION or any("ended" in line for line in lines):
        return new
    if lines[0]["options"] != _asked(options):
        changed = sorted(key for key, value in _asked(options).items() if lines[0]["options"].get(key) != value)
        raise ParameterError(
            f"The interrupted run in {path.parent} had other options ({', '.join(changed)}). Use the same options, or leave out --resume."
        )
    newest = {line["table"]: line for line in lines[1:] if "table" in line}
    rows = (_row(line, path.parent) for table, line in newest.items() if table in set(tables) and line["status"] in JUDGED)
    return StartedReport(lines[0]["run_id"], lines[0]["started_ms"], tuple(row for row in rows if row is not None))


def _asked(options: Options) -> dict[str, Any]:
    """The options that affect a table's report; where and how fast it is made does not matter."""
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
    """The row as it was saved; None if some of its files are missing."""
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


# --- Convert an executed notebook into one HTML file that opens offline, and tables into an index


_OWN = threading.local()
#: Cells with this tag teach, or are for a person who runs the notebook; a page leaves them out.
TEACH = "teach"
#: The section that a page begins with, unfolded.
_FIRST = "Findings"


class _Section(NamedTuple):
    heading: str
    sentence: str
    body: Any


def write_page(notebook: Any, title: str, path: Path, *, failed: bool = False) -> Path:
    """Export a notebook without its code into a page: its findings, and the other sections folded under one sentence each.

    A section is everything after a heading cell (``## …``). A section without a table or a picture is left
    out. If a notebook ``failed``, or has no findings, everything is shown and unfolded, because an error may be in any section.

    nbconvert's ``basic`` template renders the cells and nothing around them: its full
    templates fetch scripts when a page is opened, and are not made for a phone.
    """
    found = [_section(heading, cells) for heading, cells in _by_heading(without_widgets(notebook))]
    is_whole = failed or all(one.heading != _FIRST for one in found)
    shown = [one for one in found if is_whole or re.search('<(img|table|div class="(finding|card))', one.body)]
    shown.sort(key=lambda one: one.heading != _FIRST)
    return write_text(path, render("table.html", title=title, sections=shown, is_open=is_whole))


def _by_heading(notebook: Any) -> Iterator[tuple[str, Any]]:
    """Headings, each with a notebook of the cells under it."""
    heading, cells = "", list[Any]()
    for cell in [*notebook.cells, None]:
        new = cell is None or (cell.cell_type == "markdown" and cell.source.startswith("## "))
        if new and cells:
            part = copy.copy(notebook)
            part.cells = cells
            yield heading, part
        if cell is None:
            return
        if new:
            heading, cells = cell.source.splitlines()[0].removeprefix("## "), []
        elif TEACH not in cell.metadata.get("tags", ()) or any(o.output_type == "error" for o in cell.get("outputs", ())):
            cells = [*cells, cell]


def _section(heading: str, part: Any) -> _Section:
    from markupsafe import Markup

    body, _ = _exporter().from_notebook_node(part)
    texts = [output.data.get("text/plain", "") for cell in part.cells for output in cell.get("outputs", ()) if "data" in output]
    # A chart's text is a sentence; that of a table has lines, and that of what only controls show has brackets.
    sentence = next((text for text in texts if text and "\n" not in text and not text.startswith("<")), "")
    return _Section(heading, sentence, Markup(body))


def _exporter() -> Any:
    """The exporter of this thread, whose templates are compiled once."""
    made = getattr(_OWN, "exporter", None)
    if made is None:
        from nbconvert import HTMLExporter

        made = _OWN.exporter = HTMLExporter(  # type: ignore[no-untyped-call]
            template_name="basic", exclude_input=True, exclude_input_prompt=True, exclude_output_prompt=True, exclude_anchor_links=True
        )
    return made


def without_widgets(notebook: Any) -> Any:
    """A copy whose outputs show what explorers say without controls: a page has no kernel to draw widgets from."""
    plain = copy.deepcopy(notebook)
    plain.metadata.pop("widgets", None)
    for cell in plain.cells:
        for output in cell.get("outputs", ()):
            if "text/html" in output.get("data", ()):
                output.data.pop(WIDGET_VIEW, None)
    return plain


# --- The index: every table of a run, ranked by what maintenance would save


_SIGNS = dict.fromkeys(STATUSES[:3], "✖") | {"critical": "✖", "warning": "▲", "info": "●", "healthy": "✔"}
_SAID = {"warning": "with warnings", "info": "with notes"}
#: Most tables named in the list of tables that got worse; the rows show all.
_MOST_WORSE = 20
#: Letters of a name that may be broken.
_LONG = 24
_DASH = "–"


@dataclass(frozen=True, kw_only=True)
class Index:
    """The content of a run's index: its rows, and information about the run.

    ``pending`` tables have no row yet; ``remembered`` holds earlier runs; ``thresholds`` decide which
    tables got worse since then; ``problems`` belong to no table, and are shown above the tables.
    """

    rows: Sequence[Row]
    made_at: str
    catalog: str
    pending: int = 0
    remembered: Mapping[str, Sequence[Health]] = field(default_factory=dict)
    thresholds: Thresholds = field(default_factory=Thresholds)
    problems: Sequence[str] = ()


class _Column(NamedTuple):
    """``group`` is a heading over adjacent columns; an ``is_more`` column is shown only on request."""

    name: str
    css: str = "n"
    group: str = ""
    is_more: bool = False


class _Cell(NamedTuple):
    """A cell sorts by its value; an unknown value sorts below 0."""

    text: str = _DASH
    value: float = -1
    share: float | None = None
    note: Any = ""


class _Box(NamedTuple):
    value: str
    name: str
    more: str = ""


_SAVED = "What maintenance would save"
_ORPHANS = _Column("Orphan files hold", "n more", is_more=True)
_COLUMNS = (_Column("Status", ""), _Column("Table and findings", ""))
#: The columns after the first two; :func:`_cells` has a cell for each.
_FIGURES = (
    _Column("Of the scan's cost", group=_SAVED),
    _Column("File opens", group=_SAVED),
    _Column("Delete rows", group=_SAVED),
    _Column("Manifests", group=_SAVED),
    _Column("To rewrite"),
    _Column("Over time", "t"),
    _Column("Cost saved", "n more", is_more=True),
    _Column("Data files", "n more", is_more=True),
    _Column("Data", "n more", is_more=True),
    _Column("Expiry frees", "n more", is_more=True),
    _ORPHANS,
    _Column("Seconds", "n more", is_more=True),
)


def write_index(index: Index, path: Path) -> Path:
    """Rank the tables: what could not be read first, then by what maintenance would save a full scan."""
    ranked = sorted(index.rows, key=rank)
    earlier = index.remembered
    compared = {
        row.table: compare([*earlier[row.table], row.health], index.thresholds) for row in ranked if row.health and row.table in earlier
    }
    is_listed = any(row.wins is not None and row.wins.orphan_files is not None for row in ranked)
    figures = [column for column in _FIGURES if is_listed or column is not _ORPHANS]
    columns = [*_COLUMNS, *figures]
    numbers = Counter(row.status for row in ranked)
    page = render(
        "index.html",
        title=f"Table health: {index.catalog}",
        catalog=index.catalog,
        made_at=index.made_at,
        pending=index.pending,
        problems=index.problems,
        verdict=_verdict(numbers, len(ranked)),
        totals=_totals([row.wins for row in ranked if row.wins]),
        compared=len(compared),
        worse=[(row, "; ".join(compared[row.table].worse)) for row in ranked if row.table in compared and compared[row.table].worse],
        most_worse=_MOST_WORSE,
        better=sum(bool(each.better) for each in compared.values()),
        statuses=[{"name": s, "css": s.replace(" ", "-"), "sign": _SIGNS[s], "tables": numbers[s]} for s in STATUSES if numbers[s]],
        groups=[(name, len(list(each))) for name, each in groupby(c.group for c in columns if not c.is_more)],
        columns=columns,
        ranks={status: place for place, status in enumerate(STATUSES)},
        signs=_SIGNS,
        rows=[
            (row, [pair for pair in zip(_FIGURES, _cells(row, compared.get(row.table)), strict=True) if pair[0] in figures])
            for row in ranked
        ],
        link=_link,
        finds=_finds,
    )
    return write_text(path, page)


def rank(row: Row) -> tuple[int, int, int, int, str]:
    """The order of the index: unreadable tables, then scan savings, freed storage, severity, name."""
    grave, won = STATUSES.index(row.status), row.wins or Savings()
    return (grave if row.status not in JUDGED else len(STATUSES), -won.saved, -won.storage_bytes, grave, row.table)


#: Tables and findings that the closing words of a run name.
_WORST, _FINDINGS = 3, 4


def closing(run: ReportRun, catalog: str) -> str:
    """The closing words of a run for a terminal: the verdict, the worst tables with their findings, and what to run next."""
    lines = [_verdict(Counter(row.status for row in run.rows), len(run.rows))]
    worst = [row for row in sorted(run.rows, key=rank) if row.status != "healthy"]
    width = max((len(row.table) for row in worst[:_WORST]), default=0)
    for row in worst[:_WORST]:
        names = titles([str(finding["name"]) for finding in (row.outcome.findings if row.outcome else ())])
        more = f" and {len(names) - _FINDINGS} more" if len(names) > _FINDINGS else ""
        why = f": {', '.join(names[:_FINDINGS])}{more}" if names else ""
        lines.append(f"  {_SIGNS[row.status]} {row.table:<{width}}  {row.status}{why}")
    if judged := [row for row in worst if row.status in JUDGED]:
        given = f" --catalog {shlex.quote(catalog)}" if catalog else ""
        lines.append(f"Next: icekit plan {shlex.quote(judged[0].table)}{given}")
    return "\n".join(line for line in lines if line)


def _verdict(numbers: Mapping[str, int], tables: int) -> str:
    each = ", ".join(f"{numbers[status]:,} {_SAID.get(status, status)}" for status in STATUSES if numbers[status])
    return f"{count(tables, 'table')}: {each}." if tables else ""


def _totals(each: Sequence[Savings]) -> list[_Box]:
    if not each:
        return []
    summed = total(each)
    boxes = [
        _Box("not estimated" if summed.share is None else percent(summed.share), "of the cost of scanning every table once"),
        _Box(f"{summed.opens_saved:,}", "file opens", f"of {summed.opens:,} in those scans"),
    ]
    if summed.delete_rows_gone:
        boxes.append(_Box(f"{summed.delete_rows_gone:,}", "delete rows no longer applied", f"of {summed.delete_rows:,}"))
    if summed.manifests_gone:
        boxes.append(_Box(f"{summed.manifests_gone:,}", "manifests", f"of {summed.manifests:,}"))
    if summed.expirable_bytes:
        boxes.append(_Box(size(summed.expirable_bytes), "storage, by expiry", "at least"))
    if summed.orphan_files:
        held = _DASH if summed.orphan_bytes is None else _held(summed)
        boxes.append(_Box(held, "storage, of orphan files", f"{count(summed.orphan_files, 'file')}, where storage was listed"))
    return [*boxes, _Box(size(summed.rewrite_bytes), "to rewrite", "of data files, to save this")]


def _cells(row: Row, compared: Comparison | None) -> list[_Cell]:
    """A table's cells, in the order of :data:`_FIGURES`."""
    won, data = row.wins, row.outcome.totals["data"] if row.outcome else None
    share = won.share if won else None
    has_findings = row.outcome is not None and bool(row.outcome.findings)
    # No finding of such a table has a saving that can be worked out: that is not to save nothing.
    unknown = won is not None and (share is None or (not share and has_findings))
    of_cost = _Cell(percent(share), share, share) if share else _Cell("not estimated") if unknown else _Cell()
    return [
        of_cost,
        _of(won.opens_saved, won.opens) if won else _Cell(),
        _of(won.delete_rows_gone, won.delete_rows) if won else _Cell(),
        _of(won.manifests_gone, won.manifests) if won else _Cell(),
        _bytes(won.rewrite_bytes if won else None),
        _Cell("", len(compared.worse) + bool(compared.trend) / 2, note=compared) if compared else _Cell(value=0),
        _bytes(won.saved if won else None),
        _Cell(f"{data['file_count']:,}", data["file_count"]) if data else _Cell(),
        _bytes(data["size_in_bytes"] if data else None),
        _bytes(won.expirable_bytes if won else None),
        _orphans(won),
        _Cell(f"{row.seconds:.1f}", row.seconds),
    ]


def _of(saved: int, there: int) -> _Cell:
    return _Cell(f"{saved:,} of {there:,}" if there else "0", saved)


def _bytes(value: int | None) -> _Cell:
    return _Cell() if value is None else _Cell(size(value), value)


def _orphans(won: Savings | None) -> _Cell:
    if won is None or won.orphan_files is None:
        return _Cell()
    files = count(won.orphan_files, "file")
    if won.orphan_bytes is None:
        # Files that nobody could weigh sort above none at all.
        return _Cell(files, min(won.orphan_files, 1))
    return _Cell(f"{_held(won)}, {files}" if won.orphan_files else "0", won.orphan_bytes)


def _held(won: Savings) -> str:
    return about(won.orphan_bytes or 0, is_estimate=won.are_orphans_estimated)


def _finds(row: Row) -> str:
    found = titles([f["name"] for f in row.outcome.findings]) if row.outcome else []
    return row.error or ", ".join(found) or "nothing to do"


def _link(row: Row) -> Any:
    """The table's name, which leads to its page; a long one may be broken where a person would break it."""
    from markupsafe import Markup, escape

    name = escape(row.table)
    if len(row.table) > _LONG:
        name = Markup(re.sub(r"([._])", r"\1<wbr>", str(name)))
    return Markup("<a href='{}'>{}</a>").format(quote(row.page), name) if row.page else name
