"""Step through a table's past, filter its partitions, move its limits: findings, charts and the trend follow."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import ipywidgets as ipw

from icekit.answer import html
from icekit.answer.grid import BYTES, COUNT, FIGURE, NAME, TEXT, Grid
from icekit.diagnose.findings import Findings, Thresholds, findings_html
from icekit.engine.interrupting import Stop
from icekit.errors import IcekitError
from icekit.facts.files import Kind
from icekit.facts.head import MOST, SizesAt, spread, through_time
from icekit.facts.model import UNPARTITIONED, TableFacts
from icekit.facts.rollup import ORDERS, PartitionFigures, Selection, expected_files, max_file_size, min_file_size, partition_figures, select
from icekit.history.store import Health
from icekit.history.trend import Past, past, remembered
from icekit.maintain.savings import savings_told
from icekit.show.card import lines
from icekit.show.explorer import Explorer, widgets_on
from icekit.show.history_charts import outlook as outlook_grid
from icekit.show.history_charts import sizes_at_one, sizes_through_time, trends
from icekit.show.sizes_picture import sizes_picture
from icekit.show.widgets.chooser import too_much_at_once
from icekit.show.widgets.controls import Progress, Say, View, attempt, button, chosen, column, labelled, note, picture, row
from icekit.units import count, percent, plain, size

__all__ = ["ThresholdsExplorer", "limit_text", "outlook", "thresholds", "trend"]


class TimeExplorer(Explorer):
    """File sizes at snapshots spread over the table's history."""

    def __init__(self, view: View, at_once: int = 0) -> None:
        super().__init__()
        self.view = view
        self.sizes: tuple[SizesAt, ...] = ()
        # By table, target and snapshot: a table that comes back into view is not read again.
        self._known: dict[tuple[object, ...], dict[int, SizesAt]] = {}
        self._drawn: dict[tuple[int, int], str] = {}
        self._why_not = "No past snapshot was read, because none was asked for."
        self._shown_of: object = (self._key(), view.thresholds.size_ratios)
        if at_once > 0:
            if too_much := too_much_at_once(view):
                self._why_not = f"No past snapshot was read: {too_much}"
            else:
                self.sizes = through_time(view.lake, view.facts, at_once, known=self._cache())

    def static(self) -> str:
        """All snapshots that were read, in one chart, or why there is none."""
        return sizes_through_time(self.view.facts, self.sizes, self.view.thresholds)._repr_html_() if self.sizes else note(self._why_not)

    def build(self) -> Any:
        """A button that reads snapshots, a slider through them, and the picture."""
        self.read = button("Read", "", self._read, style="primary")
        self.slider = labelled(
            ipw.SelectionSlider, "Snapshot", "which snapshot's file sizes are shown", options=["none read yet"], continuous_update=False
        )
        self.progress = Progress("what was read is kept; press the button again to read the rest.", [self.read])
        self.at = picture()
        self.all = picture()
        chosen(self.slider, self._show_one)
        self.view.on_change(self._follow)
        self._say_what()
        self._show()
        return column(row(self.read, self.progress.cancel), self.progress.log, self.slider, self.at, self.all)

    def _key(self) -> tuple[object, ...]:
        facts = self.view.facts
        return facts.catalog, facts.table, facts.table_uuid, facts.snapshot_id, facts.target_bytes

    def _cache(self) -> dict[int, SizesAt]:
        catalog, table, uuid, _, target = self._key()
        return self._known.setdefault((catalog, table, uuid, target), {})

    def _say_what(self) -> None:
        chosen_now = spread(self.view.facts.history.commits)
        todo = sum(c.snapshot_id not in self._cache() for c in chosen_now)
        self.read.description = f"Read {count(todo, 'more snapshot') if len(chosen_now) > todo else count(todo, 'snapshot')}"
        self.read.tooltip = f"read the metadata of up to {MOST} snapshots spread over the history of {self.view.facts.name}; writes nothing"
        self.read.disabled = not todo

    def _read(self) -> None:
        view = self.view

        def job(say: Say, stop: Stop) -> tuple[SizesAt, ...]:
            def progress(place: int, of: int) -> None:
                stop.check()
                say(f"snapshot {place + 1} of {of}")

            return through_time(view.lake, view.facts, known=self._cache(), progress=progress)

        def done(found: tuple[SizesAt, ...]) -> str:
            self.sizes = found
            self._say_what()
            self._show()
            return f"{count(len(found), 'snapshot')} of {view.facts.name} read: move the slider."

        self.progress.run(f"Reading snapshots of {view.facts.name}", job, done)

    def _follow(self) -> None:
        if (self._key(), self.view.thresholds.size_ratios) == self._shown_of:
            return
        self._shown_of = self._key(), self.view.thresholds.size_ratios
        known = self._cache()
        self.sizes = tuple(known[c.snapshot_id] for c in spread(self.view.facts.history.commits) if c.snapshot_id in known)
        self._say_what()
        self._show()

    def _show(self) -> None:
        self._drawn.clear()
        if not self.sizes:
            self.slider.disabled = True
            self.slider.options = ["none read yet"]
            self.at.value, self.all.value = "", note("Press the button to read past snapshots.")
            return
        self.slider.disabled = False
        self.slider.options = [(f"{i + 1} of {len(self.sizes)}", i) for i in range(len(self.sizes))]
        self.slider.value = len(self.sizes) - 1
        self._show_one()
        self.all.value = sizes_through_time(self.view.facts, self.sizes, self.view.thresholds)._repr_html_()

    def _show_one(self) -> None:
        place = self.slider.value
        if not isinstance(place, int) or place >= len(self.sizes):
            return
        key = place, len(self.sizes)
        if key not in self._drawn:
            self._drawn[key] = sizes_at_one(self.view.facts, self.sizes, place, self.view.thresholds)._repr_html_()
        self.at.value = self._drawn[key]


def sizes_over_time(view: View, at_once: int = 0) -> TimeExplorer:
    """File sizes through time; ``at_once`` snapshots are read when the cell runs, the others when asked for."""
    return TimeExplorer(view, at_once)


# --- Filter and sort a table's partitions; only some are shown, however many there are


ROWS = (10, 20, 50, 200)


class PartitionsExplorer(Explorer):
    """The partitions of the table in view, filtered and sorted."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view
        self._figures: tuple[PartitionFigures, ...] = ()
        self._of: object = None

    def static(self) -> str:
        """The partitions with most files."""
        return selection_html(select(self.figures, limit=ROWS[0]), self.view.facts.target_bytes, next(iter(ORDERS)))

    @property
    def figures(self) -> tuple[PartitionFigures, ...]:
        """The figures of every partition of the table in view, calculated once."""
        if self._of is not self.view.facts:
            self._of, self._figures = self.view.facts, partition_figures(self.view.facts)
        return self._figures

    def build(self) -> Any:
        """A filter, an order and a number of rows above the table."""
        self.text = labelled(
            ipw.Text,
            "Partition contains",
            "words that the partition's path must contain; empty: all",
            placeholder="month=2013-01 or a part of it",
            continuous_update=True,
        )
        self.by = labelled(ipw.Dropdown, "Sorted by", "which partitions come first", options=list(ORDERS), layout={"width": "26em"})
        self.limit = labelled(
            ipw.Dropdown, "Rows", "how many partitions to show at most", options=ROWS, value=ROWS[0], layout={"width": "18em"}
        )
        self.shown = picture()
        for control in (self.text, self.by, self.limit):
            chosen(control, self._show)
        self._table = self.view.facts.table
        self.view.on_change(self._follow)
        self._show()
        return column(self.text, row(self.by, self.limit), self.shown)

    def _follow(self) -> None:
        # A filter for one table's partitions would hide all of another's.
        if self._table != self.view.facts.table:
            self._table = self.view.facts.table
            self.text.value = ""
        self._show()

    def _show(self) -> None:
        found = select(self.figures, self.text.value, self.by.value, self.limit.value)
        self.shown.value = selection_html(found, self.view.facts.target_bytes, self.by.value)


def selection_html(found: Selection, target_bytes: int, by: str) -> str:
    """Partitions as a table, with a sentence that says how many there are."""
    columns = {
        "partition": NAME,
        "data_files": COUNT,
        "needed": COUNT,
        "size_in_bytes": BYTES("bytes"),
        "mean_bytes": BYTES("mean file"),
        "data_records": COUNT,
        "delete_files": COUNT,
        "delete_records": COUNT,
    }
    rows = [
        (
            p.path or UNPARTITIONED,
            p.data_file_count,
            expected_files(p.size_in_bytes, target_bytes) if p.data_file_count else None,
            p.size_in_bytes,
            p.mean_bytes,
            p.record_count,
            p.delete_file_count,
            p.delete_record_count,
        )
        for p in found.rows
    ]
    of = "" if found.matched == found.total else f" of {found.total:,}"
    said = f"{count(found.matched, 'partition')}{of}; the first {len(rows):,} by {by}. needed: the number of files of {size(target_bytes)} that would hold the same bytes."
    if not rows:
        said = f"No partition{of} matches." if found.total else "No partition has a file."
    return html.framed(f"<p>{html.prose(said)}</p>{Grid('', columns, rows, len(rows)).html()}")


def partitions(view: View) -> PartitionsExplorer:
    """Partitions to filter and sort; see :class:`PartitionsExplorer`."""
    return PartitionsExplorer(view)


# --- Describe the limits that can be moved: what each counts, where it comes from, and its range; no ipywidgets here


_CHOICE = "a choice"


@dataclass(frozen=True, slots=True)
class Limit:
    """One threshold as a control: ``name`` is that in :class:`~icekit.diagnose.findings.Thresholds`.

    ``low``, ``high`` and ``step`` are in the threshold's own unit; a share is shown in percent.
    """

    name: str
    label: str
    unit: str
    source: str
    low: float
    high: float
    step: float

    @property
    def is_share(self) -> bool:
        """Tell whether it is a share of something."""
        return self.unit.startswith("%")

    @property
    def is_whole(self) -> bool:
        """Tell whether it is a whole number."""
        return isinstance(getattr(Thresholds(), self.name), int)


#: The limits that people move most, each of another finding; always in sight.
LIMITS_IN_SIGHT = (
    Limit(
        name="min_file_size_ratio",
        label="Small files: under",
        unit="% of the target size",
        source="rewrite_data_files: min-file-size-bytes",
        low=0,
        high=1,
        step=0.01,
    ),
    Limit(
        name="thin_partition_share",
        label="Small partitions: under",
        unit="% of one target file",
        source=_CHOICE,
        low=0,
        high=1,
        step=0.05,
    ),
    Limit(name="delete_ratio", label="Deletes: from", unit="% of the data records", source=_CHOICE, low=0, high=1, step=0.01),
    Limit(
        name="fragmented_manifests",
        label="Manifests: from",
        unit="manifests under half their target size",
        source="commit.manifest.min-count-to-merge",
        low=1,
        high=1000,
        step=1,
    ),
    Limit(name="snapshots", label="Snapshots: from", unit="snapshots kept", source=_CHOICE, low=1, high=1000, step=1),
)
#: The others, folded below them.
LIMITS_FOLDED = (
    Limit(
        name="max_file_size_ratio",
        label="Large files: over",
        unit="× the target size",
        source="rewrite_data_files: max-file-size-bytes",
        low=1.1,
        high=16,
        step=0.1,
    ),
    Limit(
        name="min_input_files",
        label="Files per rewrite: from",
        unit="files in one group",
        source="rewrite_data_files: min-input-files",
        low=1,
        high=50,
        step=1,
    ),
    Limit(
        name="critical_share",
        label="Small files critical: from",
        unit="% of all data files",
        source=_CHOICE,
        low=0,
        high=1,
        step=0.05,
    ),
    Limit(
        name="critical_files",
        label="… and from",
        unit="files that compaction would remove",
        source=_CHOICE,
        low=0,
        high=1000,
        step=10,
    ),
    Limit(name="skew_ratio", label="Skew: from", unit="× the median partition's bytes", source=_CHOICE, low=1, high=100, step=1),
    Limit(
        name="critical_delete_ratio",
        label="Deletes critical: from",
        unit="% of the data records",
        source="rewrite_data_files: delete-ratio-threshold",
        low=0,
        high=1,
        step=0.01,
    ),
    Limit(name="overlap_share", label="Manifest overlap: from", unit="% of the other manifests", source=_CHOICE, low=0, high=1, step=0.05),
    Limit(
        name="files_per_partition_per_commit",
        label="Files per commit: from",
        unit="files per partition changed",
        source=_CHOICE,
        low=1,
        high=20,
        step=0.5,
    ),
)
LIMITS = (*LIMITS_IN_SIGHT, *LIMITS_FOLDED)


def moved(thresholds: Thresholds) -> dict[str, float]:
    """The limits that differ from the defaults, as a notebook's ``thresholds`` parameter has them."""
    default = Thresholds()
    names = Thresholds.__dataclass_fields__
    return {name: getattr(thresholds, name) for name in names if getattr(thresholds, name) != getattr(default, name)}


def size_ratios(facts: TableFacts, *, over: bool, also: float) -> tuple[float, ...]:
    """Limits of file size that the facts can answer exactly, as shares of the target: no bucket of sizes spans one.

    ``over`` asks for limits over the target, else for those up to it; ``also`` is one that is in force.
    """
    buckets = [b for g in facts.of_kind(Kind.DATA) for b in g.buckets]
    target = facts.target_bytes

    def is_exact(ratio: float) -> bool:
        # The same question as icekit.diagnose.findings.under: a file of exactly the limit is left alone on either side.
        limit = max_file_size(target, ratio) + 1 if over else min_file_size(target, ratio)
        return not any(b.min_bytes < limit <= b.max_bytes for b in buckets)

    return tuple(sorted({also, *filter(is_exact, _OVER if over else _UP_TO)}))


_UP_TO = tuple(round(0.05 * i, 2) for i in range(1, 21))
_OVER = (*(round(1 + 0.1 * i, 1) for i in range(1, 11)), 2.5, 3.0, 4.0, 6.0, 8.0, 16.0)


# --- Move a limit and see the findings change at once: the facts stay the same, and judging them is arithmetic


class ThresholdsExplorer(Explorer):
    """Findings, and the limits they depend on."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view
        self.given = view.thresholds
        self._moving = False

    def static(self) -> str:
        """The findings, and the thresholds in force as a table."""
        rows = [
            (
                limit.label,
                limit_text(limit, getattr(self.view.thresholds, limit.name)),
                limit.unit.removeprefix("% ").removeprefix("× "),
                limit.source,
            )
            for limit in LIMITS
        ]
        columns = {"threshold": TEXT, "value": FIGURE, "unit": TEXT("unit"), "origin": TEXT("where it comes from")}
        table = Grid("", columns, rows).html()
        return self._cards() + html.framed(f"<details><summary>Thresholds in force</summary>{table}</details>")

    def build(self) -> Any:
        """A slider for each limit above the findings; the less used ones are folded."""
        self.sliders = {limit.name: self._slider(limit) for limit in LIMITS}
        self.reset = button("Reset thresholds", "set every threshold to the value in the notebook's parameters", self._reset)
        self.said = picture()
        self.found = picture()
        for limit in LIMITS:
            chosen(self.sliders[limit.name], partial(self._move, limit))
        self.view.on_change(self._follow)
        self._show()
        in_sight, folded = ([self._labelled(limit) for limit in limits] for limits in (LIMITS_IN_SIGHT, LIMITS_FOLDED))
        self.more = ipw.Accordion([column(*folded)], titles=("More thresholds",), selected_index=None)
        return column(*in_sight, self.more, row(self.reset), self.said, self.found)

    def _labelled(self, limit: Limit) -> Any:
        return row(self.sliders[limit.name], ipw.Label(f"{limit.unit}; {limit.source}"))

    def _slider(self, limit: Limit) -> Any:
        value = getattr(self.view.thresholds, limit.name)
        tooltip = f"{limit.unit}; where it comes from: {limit.source}"
        layout = {"width": "32em"}
        if limit.name in ("min_file_size_ratio", "max_file_size_ratio"):
            return labelled(
                ipw.SelectionSlider, limit.label, tooltip, options=self._sizes(limit), value=value, continuous_update=False, layout=layout
            )
        kind = ipw.IntSlider if limit.is_whole else ipw.FloatSlider
        options: dict[str, Any] = {} if limit.is_whole else {"readout_format": ".0%" if limit.is_share else ".1f"}
        return labelled(
            kind,
            limit.label,
            tooltip,
            min=min(limit.low, value),
            max=max(limit.high, value),
            step=limit.step,
            value=value,
            continuous_update=False,
            layout=layout,
            **options,
        )

    def _sizes(self, limit: Limit) -> list[tuple[str, float]]:
        """Limits of file size for which the facts have exact counts."""
        over = limit.name.startswith("max")
        ratios = size_ratios(self.view.facts, over=over, also=getattr(self.view.thresholds, limit.name))
        return [(f"{limit_text(limit, r)} ({size(self.view.facts.target_bytes * r)})", r) for r in ratios]

    def _move(self, limit: Limit) -> None:
        if self._moving:
            return
        value = self.sliders[limit.name].value
        before = self.view.thresholds

        def move() -> None:
            self.view.limit(before.with_changes(**{limit.name: value}))

        if not attempt(move, self.said):
            self._set(before)

    def _reset(self) -> None:
        if attempt(lambda: self.view.limit(self.given), self.said):
            self._set(self.given)

    def _set(self, limits: Thresholds) -> None:
        """Move every slider to its limit, without judging again for each."""
        self._moving = True
        try:
            for limit in LIMITS:
                slider = self.sliders[limit.name]
                if limit.name in ("min_file_size_ratio", "max_file_size_ratio"):
                    # Another table has another target size, and other exact limits.
                    slider.options = self._sizes(limit)
                slider.value = getattr(limits, limit.name)
        finally:
            self._moving = False

    def _follow(self) -> None:
        self._set(self.view.thresholds)
        self._show()

    def _show(self) -> None:
        at_given = self._at_given()
        here = self.view.findings
        changed = moved(self.view.thresholds)
        parts = []
        came = [f.title for f in here if f.name not in at_given.names]
        went = [f.title for f in at_given if f.name not in here.names]
        if came or went:
            parts.append(f"New: {', '.join(came) or 'none'}. Gone: {', '.join(went) or 'none'}.")
        if changed:
            parts.append(f"To keep these thresholds: thresholds = {changed!r}")
        self.said.value = note(" ".join(parts)) if parts else ""
        self.found.value = self._cards()

    def _cards(self) -> str:
        found = self.view.findings
        facts = self.view.facts
        snapshot = dict(lines(facts))["snapshot"]
        context = [f"Snapshot {snapshot}; {count(facts.data.file_count, 'data file')}, {size(facts.data.size_in_bytes)}."]
        picture = sizes_picture(facts, self.view.thresholds)
        return findings_html(found, savings_told(facts, found, self.view.thresholds), context=context, picture=picture)

    def _at_given(self) -> Findings:
        from icekit.diagnose import diagnose

        return diagnose(self.view.facts, self.given, session_conf=self.view.lake.session_conf())


def limit_text(limit: Limit, value: float) -> str:
    """A limit's value, as text."""
    return percent(value) if limit.is_share else plain(value, 6)


def thresholds(view: View) -> ThresholdsExplorer:
    """Findings that follow the limits; see :class:`ThresholdsExplorer`."""
    return ThresholdsExplorer(view)


# --- Draw a chart or a table of what is in view, and draw it again when another table comes into view or a limit is moved


class Following(Explorer):
    """What ``draw`` makes of the facts in view (a chart, or a frame), always of those in view.

    ``draw`` takes facts, and the limits where it has a parameter ``thresholds``. Without
    controls it is shown as ``draw`` made it, and there is nothing to move. Of two with the same ``name`` (``draw`` unless
    given) the newer one follows: a cell that is run again draws in its new output alone.
    """

    def __init__(self, view: View, draw: Callable[..., Any], name: object = None) -> None:
        super().__init__()
        self.view, self._draw, self._name = view, draw, name or draw
        self._is_by_limits = "thresholds" in inspect.signature(draw).parameters
        self._make()

    def static(self) -> str:
        """The same as it is shown by itself."""
        return str(self.made._repr_html_())

    def build(self) -> Any:
        """A place for the picture, and no control."""
        self.shown = picture(self.static())
        self.view.on_change(self._follow, instead_of=self._name)
        return self.shown

    _of: tuple[object, object]

    def _make(self) -> None:
        limits = {"thresholds": self.view.thresholds} if self._is_by_limits else {}
        self.made = self._draw(self.view.facts, **limits)
        self._of = self._key()

    def _key(self) -> tuple[object, object]:
        return (self.view.facts, self.view.thresholds if self._is_by_limits else None)

    def _follow(self) -> None:
        facts, limits = self._of
        if facts is self.view.facts and limits == self._key()[1]:
            return
        try:
            self._make()
        except IcekitError as problem:
            # What was drawn is of another table, or by other limits: it goes.
            self._of = (None, None)
            self.shown.value = note(f"Nothing is shown of {self.view.facts.name}: {problem}", "critical")
        else:
            self.shown.value = self.static()

    def __repr__(self) -> str:
        return repr(self.made)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        if widgets_on():
            return super()._repr_mimebundle_(include, exclude)
        return {"text/plain": repr(self.made), "text/html": self.made._repr_html_()}


def follow(view: View, draw: Callable[..., Any]) -> Following:
    """A chart or a table that follows what is in view, such as ``follow(view, charts.file_sizes)``; see :class:`Following`."""
    return Following(view, draw)


# --- Follow the table in view through the runs that a history keeps of it


def trend(view: View, history: str = "") -> Following:
    """How the figures of the table in view have changed over the runs in ``history`` (``table``, a SQLite file; empty: nowhere)."""
    return Following(view, _of_history(view, history, trends), "trend")


def outlook(view: View, history: str = "") -> Following:
    """When each figure of the table in view will meet its threshold, from the runs in ``history``."""
    return Following(view, _of_history(view, history, outlook_grid), "outlook")


def _of_history(view: View, history: str, draw: Callable[[Past], Any]) -> Callable[..., Any]:
    """Draw what is kept of a table; earlier runs are read when another table comes into view, and not for every limit that moves."""
    read: dict[tuple[str, str], tuple[Health, ...]] = {}

    def drawn(facts: TableFacts, thresholds: Thresholds) -> Any:
        lake, table = view.lake, (view.lake.name, facts.name)
        if history and table not in read:
            read.clear()
            read[table] = remembered(history, lake, facts.name)
        return draw(past(lake, facts, view.findings, history, thresholds, before=read.get(table, ())))

    return drawn
