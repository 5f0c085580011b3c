"""Compare two tables, or two snapshots of one table: figures, and the findings that are new or gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from icekit.answer import html
from icekit.answer.grid import FIGURE, TEXT, Grid
from icekit.diagnose.findings import Finding, Findings, badge
from icekit.facts.model import Kind, TableFacts
from icekit.units import moment, size

_DELETES = (
    ("position delete", Kind.POSITION_DELETES),
    ("equality delete", Kind.EQUALITY_DELETES),
    ("deletion vector", Kind.DELETION_VECTORS),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure on both sides; ``unit`` is ``bytes`` or the noun that is counted. None where a side has no value."""

    name: str
    unit: str
    before: float | None
    after: float | None

    @property
    def difference(self) -> float | None:
        """After minus before; None where either is absent."""
        return self.after - self.before if self.before is not None and self.after is not None else None

    @property
    def ratio(self) -> float | None:
        """After divided by before; None where either is absent or before is 0."""
        return self.after / self.before if self.before and self.after is not None else None


@dataclass(frozen=True)
class Comparison:
    """Two sides with their figures; findings in ``came`` are only on the second side, findings in ``went`` only on the first."""

    before: str
    after: str
    figures: tuple[Figure, ...]
    came: Findings
    went: Findings
    stayed: Findings

    def __repr__(self) -> str:
        return comparison_text(self)

    def _repr_html_(self) -> str:
        return comparison_html(self)


def compare(before: TableFacts, after: TableFacts, found_before: Findings, found_after: Findings) -> Comparison:
    """Compare the facts of two sides, and their findings at the same thresholds; pure.

    A finding is the same on both sides if it has the same name: its figures may differ, and
    ``stayed`` has those of the second side.
    """
    return Comparison(
        side(before),
        side(after),
        tuple(_figures(before, after)),
        Findings(f for f in found_after if f.name not in found_before.names),
        Findings(f for f in found_before if f.name not in found_after.names),
        Findings(f for f in found_after if f.name in found_before.names),
    )


def side(facts: TableFacts) -> str:
    """A table and its snapshot, as a heading."""
    if facts.snapshot_id is None or facts.snapshot_ms is None:
        return f"{facts.name}, no snapshot"
    ref = f"{facts.ref}, " if facts.ref and facts.ref != str(facts.snapshot_id) else ""
    return f"{facts.name}, {ref}snapshot {facts.snapshot_id} of {moment(facts.snapshot_ms)}"


def _figures(a: TableFacts, b: TableFacts) -> Iterator[Figure]:
    yield Figure("data files", "files", a.data.file_count, b.data.file_count)
    yield Figure("data", "bytes", a.data.size_in_bytes, b.data.size_in_bytes)
    yield Figure("mean data file", "bytes", a.data.mean_bytes, b.data.mean_bytes)
    yield Figure("target size in force", "bytes", a.target_bytes, b.target_bytes)
    yield Figure("data records, before deletes", "records", a.data.record_count, b.data.record_count)
    yield Figure("partitions with data", "partitions", len(a.of_kind(Kind.DATA)), len(b.of_kind(Kind.DATA)))
    for noun, kind in _DELETES:
        x, y = a.total(kind), b.total(kind)
        if x.file_count or y.file_count:
            yield Figure(f"{noun} files" if kind is not Kind.DELETION_VECTORS else "deletion vectors", "files", x.file_count, y.file_count)
            yield Figure(f"{noun} records", "records", x.record_count, y.record_count)
    yield Figure("data manifests", "manifests", a.manifests.data_count, b.manifests.data_count)
    yield Figure("delete manifests", "manifests", a.manifests.delete_count, b.manifests.delete_count)
    yield Figure("manifests", "bytes", a.manifests.data_bytes + a.manifests.delete_bytes, b.manifests.data_bytes + b.manifests.delete_bytes)
    yield Figure("snapshots in the lineage", "snapshots", a.history.lineage_count, b.history.lineage_count)


_COLUMNS = {"figure": TEXT(""), "before": FIGURE, "after": FIGURE, "difference": FIGURE, "ratio": FIGURE("after / before")}


def comparison_text(compared: Comparison) -> str:
    """Both sides as lines for a terminal."""
    lines = [f"before  {compared.before}", f"after   {compared.after}", ""]
    lines += comparison_grid(compared).lines()
    for what, found in _findings(compared):
        lines += [f"findings, {what.lower()}: {', '.join(f.title for f in found) or 'none'}"]
    return "\n".join(lines)


def comparison_html(compared: Comparison) -> str:
    """Both sides as a table, with the findings that are new, gone, and on both sides."""
    said = [(what, "".join(map(_line, found)) or "none") for what, found in _findings(compared)]
    return html.framed(
        html.definitions([("Before", html.text(compared.before)), ("After", html.text(compared.after))]),
        comparison_grid(compared).html(),
        "<p>Findings, at the same limits:</p>",
        html.definitions(said),
    )


def comparison_grid(compared: Comparison) -> Grid:
    """Each figure on both sides, its difference and its ratio, as text; a missing value is a dash."""
    rows = [
        (f.name, _told(f, f.before), _told(f, f.after), _difference(f), f"× {f.ratio:,.3g}" if f.ratio is not None else "–")
        for f in compared.figures
    ]
    return Grid("", _COLUMNS, rows)


def _line(finding: Finding) -> str:
    return f'<p class="{finding.severity.name.lower()}">{badge(finding.severity)} <b>{html.text(finding.title)}</b>: {html.prose(finding.evidence)}</p>'


def _findings(compared: Comparison) -> Sequence[tuple[str, Sequence[Finding]]]:
    return (("New", compared.came), ("Gone", compared.went), ("On both sides", compared.stayed))


def _told(figure: Figure, value: float | None) -> str:
    if value is None:
        return "–"
    return size(value) if figure.unit == "bytes" else f"{value:,.0f}"


def _difference(figure: Figure) -> str:
    by = figure.difference
    if by is None:
        return "–"
    return "0" if not by else f"{'+' if by > 0 else '−'}{_told(figure, abs(by))}"
