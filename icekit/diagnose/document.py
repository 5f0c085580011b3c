"""Save facts and findings as JSON with a schema version, read them back, and compare those of two tables or snapshots."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from icekit.answer import html
from icekit.answer.grid import FIGURE, TEXT, Grid
from icekit.diagnose.findings import Finding, Findings, Severity, Thresholds, badge
from icekit.errors import ParameterError
from icekit.facts.model import Kind, TableFacts
from icekit.facts.rollup import worst_partitions
from icekit.saving import versions, write_json, write_text
from icekit.units import moment, plain, size

#: Goes up by one when a field changes its meaning or is removed; an added field does not count.
SCHEMA_VERSION = 1
#: Partitions that a report document lists; the others are counted in ``facts_left_out``.
MAX_PARTITIONS = 1000
_FACTS = TypeAdapter(TableFacts)


@dataclass(frozen=True, slots=True)
class ReportedHealth:
    """One table's health, read back from its report document; ``findings`` holds the ``name`` and ``severity`` of each."""

    catalog: str
    table: str
    status: str
    worst: Severity | None
    findings: tuple[dict[str, Any], ...]
    totals: dict[str, Any]
    seconds: float


def status_of(findings: Findings) -> str:
    """``healthy``, or the most serious severity in lower case."""
    return findings.worst.name.lower() if findings.worst else "healthy"


def document(facts: TableFacts, findings: Findings, thresholds: Thresholds) -> dict[str, Any]:
    """The report of one table as plain data; :func:`write` masks secrets."""
    kept, left_out = _bounded(facts)
    return {
        "schema_version": SCHEMA_VERSION,
        "catalog": facts.catalog,
        "table": facts.name,
        "status": status_of(findings),
        "collected_at": dt.datetime.fromtimestamp(facts.collected_at_ms / 1000, dt.UTC).isoformat(),
        "collector": facts.collector,
        "seconds": round(facts.seconds, 3),
        "versions": versions() | ({"iceberg": facts.iceberg_version} if facts.iceberg_version else {}),
        "thresholds": asdict(thresholds),
        "totals": {str(kind): asdict(facts.total(kind)) for kind in facts._by_kind},
        "findings": [asdict(f) | {"severity": f.severity.name.lower()} for f in findings],
        "facts": _FACTS.dump_python(kept, mode="json"),
        "facts_left_out": left_out,
    }


def write(facts: TableFacts, findings: Findings, thresholds: Thresholds, path: Path) -> Path:
    """Write the document; a reader never sees a half-written one."""
    return write_json(path, document(facts, findings, thresholds))


def read(path: Path) -> ReportedHealth:
    """Read a document, for an index or a gate; raises ParameterError for another schema version."""
    said = json.loads(path.read_text(encoding="utf-8"))
    if said.get("schema_version") != SCHEMA_VERSION:
        raise ParameterError(
            f"{path} has schema version {said.get('schema_version')}, but this icekit reads version {SCHEMA_VERSION}; create the report again."
        )
    # The outcomes of many tables are in memory at once; the document has the rest of each finding.
    found = tuple({"name": f["name"], "severity": f["severity"]} for f in said["findings"])
    worst = None if said["status"] == "healthy" else Severity[said["status"].upper()]
    return ReportedHealth(
        catalog=said["catalog"],
        table=said["table"],
        status=said["status"],
        worst=worst,
        findings=found,
        totals=said["totals"],
        seconds=said["seconds"],
    )


def save_facts(facts: TableFacts, path: Path) -> Path:
    """Save complete facts, so that :func:`load_facts` returns equal ones; for icekit's own use."""
    return write_text(path, _FACTS.dump_json(facts).decode(), clean=True)


def load_facts(path: Path) -> TableFacts:
    """Read facts that :func:`save_facts` wrote."""
    try:
        return _FACTS.validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ParameterError(
            f"{path} holds no saved facts ({type(error).__name__}); leave facts_file empty to observe the table."
        ) from None


def _bounded(facts: TableFacts) -> tuple[TableFacts, dict[str, int]]:
    """Only the facts of the worst partitions, if there are more partitions than a document lists."""
    partitions = len(set(facts.partitions()))
    if partitions <= MAX_PARTITIONS and max(len(facts.sequences), len(facts.unapplied)) <= MAX_PARTITIONS * 10:
        return facts, {}
    kept = {group.partition for group in worst_partitions(facts, MAX_PARTITIONS)}
    groups = tuple(g for g in facts.groups if g.partition in kept)
    sequences = tuple(s for s in facts.sequences if s.partition in kept)[: MAX_PARTITIONS * 10]
    unapplied = facts.unapplied[: MAX_PARTITIONS * 10]
    recent = tuple(p for p in facts.recent if p in kept)
    left_out = {
        "partitions": partitions - len(kept),
        "groups": len(facts.groups) - len(groups),
        "sequences": len(facts.sequences) - len(sequences),
        "unapplied": len(facts.unapplied) - len(unapplied),
        "recent": len(facts.recent) - len(recent),
    }
    return replace(facts, groups=groups, sequences=sequences, unapplied=unapplied, recent=recent), left_out


# --- Compare two tables, or two snapshots of one table: figures, and the findings that are new or gone


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
        (f.name, _told(f, f.before), _told(f, f.after), _difference(f), f"× {plain(f.ratio)}" if f.ratio is not None else "–")
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
