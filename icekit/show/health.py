"""Say a table's health in a dozen short lines, and show an explorer with controls or as plain HTML; no pandas, no matplotlib."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from icekit.diagnose.findings import Thresholds
from icekit.errors import ParameterError, nearest
from icekit.facts.files import median_bytes
from icekit.facts.model import Kind, TableFacts
from icekit.facts.rollup import delete_ratio, file_size_histogram
from icekit.show.sparkline import class_limits, left_alone
from icekit.units import count, moment, percent, size, span

#: A mean so many times the median, or so many times under it, misleads: a few files that are unlike the others make it.
MISLEADING = 2


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Data files of a range of sizes relative to the target; ``left_alone`` is the band no size rule selects."""

    label: str
    file_count: int
    size_in_bytes: int
    left_alone: bool = False


def size_classes(facts: TableFacts, thresholds: Thresholds | None = None) -> tuple[SizeClass, ...]:
    """Ranges of data file sizes: see :func:`icekit.show.sparkline.class_limits`; the band is that of the limits given.

    The limits are bucket edges, or lie between buckets (:func:`icekit.facts.rollup.edges`; findings refuse others), so
    the counts are exact.
    """
    band = left_alone(facts, Kind.DATA, thresholds)
    assert band is not None  # data files always have one
    limits, labels = class_limits(facts.target_bytes, band)
    bars = {bar.lower_bytes: (bar.file_count, bar.size_in_bytes) for bar in file_size_histogram(facts, Kind.DATA, limits)}
    return tuple(
        SizeClass(label, *bars.get(limit, (0, 0)), left_alone=limit == band[0]) for limit, label in zip(limits, labels, strict=True)
    )


def lines(facts: TableFacts) -> list[tuple[str, str]]:
    """What there is to say of a table, as (name, sentence); sizes and findings are shown apart."""
    return [
        ("snapshot", _snapshot(facts)),
        ("partitions", _partitions(facts)),
        ("data files", _data(facts)),
        ("deletes", _deletes(facts)),
        ("manifests", _manifests(facts)),
        ("history", _history(facts)),
        ("writes", _writes(facts)),
    ]


def _snapshot(facts: TableFacts) -> str:
    if facts.snapshot_id is None or facts.snapshot_ms is None:
        lost = count(facts.history.snapshot_count, "snapshot")
        return (
            f"none is current, though the metadata lists {lost}: staged, on other branches, or older than a CREATE OR REPLACE"
            if facts.history.snapshot_count
            else "none: the table is empty, as its metadata lists no snapshots"
        )
    told = f"{facts.snapshot_id} of {moment(facts.snapshot_ms)}"
    if facts.collected_at_ms > facts.snapshot_ms:
        told += f", {span(facts.collected_at_ms - facts.snapshot_ms)} old"
    return told + (f" ({facts.ref})" if facts.ref else "")


def _partitions(facts: TableFacts) -> str:
    fields = [f for f in facts.default_spec.fields if f.transform != "void"]
    by = ", ".join(f.source or f.name if f.transform == "identity" else f"{f.transform}({f.source or f.name})" for f in fields)
    used = dict.fromkeys(facts.partitions())
    told = f"{len(used):,} by {by}" if by else "unpartitioned"
    old = {p.spec_id for p in used} - {facts.default_spec_id}
    return told + (f"; {count(len(old), 'older spec')} in use" if old else "")


def _data(facts: TableFacts) -> str:
    data = facts.data
    if data.mean_bytes is None:
        return f"none; target {size(facts.target_bytes)}"
    mean = f"mean {size(data.mean_bytes)}"
    median = median_bytes(facts.of_kind(Kind.DATA))
    if median is not None and not data.mean_bytes <= MISLEADING * median <= MISLEADING**2 * data.mean_bytes:
        mean += f", median about {size(median)}"
    return (
        f"{data.file_count:,}, {size(data.size_in_bytes)}, {count(data.record_count, 'record')}; {mean}, target {size(facts.target_bytes)}"
    )


def _deletes(facts: TableFacts) -> str:
    ratio = delete_ratio(facts)
    kinds = (
        (Kind.POSITION_DELETES, "position delete file"),
        (Kind.EQUALITY_DELETES, "equality delete file"),
        (Kind.DELETION_VECTORS, "deletion vector"),
    )
    told = [count(total.file_count, noun) for kind, noun in kinds if (total := facts.total(kind)).file_count]
    if not told:
        return "none"
    share = "no data to compare with" if ratio.by_records is None else f"{percent(ratio.by_records)} of the data records"
    return f"{', '.join(told)}; {count(ratio.delete_record_count, 'record')}, {share}"


def _manifests(facts: TableFacts) -> str:
    m = facts.manifests
    if not m.data_count and not m.delete_count:
        return "none"
    told = [
        f"{count(n, f'{what} manifest')}, {size(held)}"
        for what, n, held in (("data", m.data_count, m.data_bytes), ("delete", m.delete_count, m.delete_bytes))
        if n
    ]
    if m.data_count:
        told[0] += f", {m.data_entry_count / m.data_count:,.1f} files each"
    return "; ".join(told)


def _history(facts: TableFacts) -> str:
    h = facts.history
    told = count(h.snapshot_count, "snapshot")
    if h.oldest_snapshot_ms is not None and h.newest_snapshot_ms is not None and h.snapshot_count > 1:
        told += f" over {span(h.newest_snapshot_ms - h.oldest_snapshot_ms)}"
    if h.median_seconds_between_commits is not None:
        told += f", median gap {span(h.median_seconds_between_commits * 1000)}"
    return told + f"; {count(h.metadata_log_count, 'metadata file')} in the log"


def _writes(facts: TableFacts) -> str:
    """Operations that distribute rows alike are named together."""
    modes: dict[str, list[str]] = {}
    for d in facts.distribution:
        modes.setdefault(d.mode, []).append(d.operation)
    return "distribution " + "; ".join(f"{mode} for {', '.join(operations)}" for mode, operations in modes.items())


# --- Show an explorer twice in one output: with controls where somebody can move them, and as plain HTML everywhere else


#: What JupyterLab draws a widget from; a page without a kernel cannot.
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
#: ``off`` shows every explorer as plain HTML alone.
SWITCH = "ICEKIT_WIDGETS"
_STATES = ("on", "off")
# A page that nobody can run again hides it by its class.
_OFF = f'<p class="controls-off">Controls are off here ({SWITCH}); set it to on and run the notebook again to move them.</p>'


def widgets_on() -> bool:
    """Tell whether explorers have controls: unless ``ICEKIT_WIDGETS=off``, which a run by papermill sets for itself.

    Raises :class:`~icekit.errors.ParameterError` for any other value than on and off.
    """
    state = os.environ.get(SWITCH) or "on"
    if state not in _STATES:
        raise ParameterError(f"{SWITCH} is {state!r}{nearest(state, _STATES, count=1) or '; use on or off.'}")
    return state == "on"


class Explorer(ABC):
    """Something to explore: its facts as HTML, and controls that choose among them.

    The controls are made when they are first shown, and never in a static run.
    """

    def __init__(self) -> None:
        self._controls: Any = None

    @abstractmethod
    def static(self) -> str:
        """The same facts without controls, as HTML: a table or a chart that says what it shows."""

    @abstractmethod
    def build(self) -> Any:
        """Make the controls: an ipywidgets widget."""

    @property
    def controls(self) -> Any:
        """The controls, made once."""
        if self._controls is None:
            self._controls = self.build()
        return self._controls

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        del include, exclude  # a front end takes what it can draw
        bundle: dict[str, Any] = {"text/plain": repr(self), "text/html": self.static()}
        if not widgets_on():
            bundle["text/html"] += _OFF
        else:
            bundle[WIDGET_VIEW] = self.controls._repr_mimebundle_()[WIDGET_VIEW]
        return bundle

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"
