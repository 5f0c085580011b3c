"""Facts as tables, with the column names of Iceberg's metadata tables, and ranges of file sizes; no
pandas, no matplotlib.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from icekit.answer.grid import BYTES, COUNT, FLAG, IDENTIFIER, NAME, NUMBER, SHARE, TEXT, TIME, Grid
from icekit.diagnose.findings import Thresholds
from icekit.facts import rollup
from icekit.facts.files import Kind
from icekit.facts.manifest_counts import expected_manifests
from icekit.facts.model import TableFacts
from icekit.facts.rollup import (
    expected_files,
    file_size_histogram,
    max_file_size,
    min_file_size,
)
from icekit.units import at, count, percent, size, size_range

__all__ = [
    "columns",
    "commits",
    "delete_ratios",
    "distribution",
    "file_sizes",
    "files",
    "manifests",
    "settings",
    "worst_partitions",
]


def target_of(facts: TableFacts, kind: Kind) -> int | None:
    """The target size of one kind of file, in bytes; None for deletion vectors."""
    if kind is Kind.DATA:
        return facts.target_bytes
    return (
        None
        if kind is Kind.DELETION_VECTORS
        else facts.int_setting("write.delete.target-file-size-bytes")
    )


def left_alone_sizes(
    facts: TableFacts, kind: Kind, thresholds: Thresholds | None = None
) -> tuple[int, int] | None:
    """The smallest and largest size that a rewrite leaves alone, in bytes; None for kinds without a
    size rule.

    Uses the given limits for data files, and Iceberg's own limits for position delete files.
    """
    target = target_of(facts, kind)
    # rewrite_position_delete_files has the size rules of rewrite_data_files, with its own target;
    # nothing combines equality deletes by size.
    if target is None or kind is Kind.EQUALITY_DELETES:
        return None
    chosen = thresholds if thresholds is not None and kind is Kind.DATA else Thresholds()
    return min_file_size(target, chosen.min_file_size_ratio), max_file_size(
        target, chosen.max_file_size_ratio
    )


def class_limits(
    target_bytes: int, band: tuple[int, int]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Lower limits and names of a few size ranges: below the band, the band, and above it.

    The ranges below the band end at 1/16 and 1/4 of the target and at the band; a range without
    room is left out.
    """
    low, over = band[0], band[1] + 1
    limits = tuple(
        sorted(
            {
                0,
                *(limit for limit in (target_bytes // 16, target_bytes // 4) if limit < low),
                low,
                over,
            }
        )
    )
    names = (
        f"under {size(limits[1])}",
        *(f"{size(a)}–{size(b)}" for a, b in pairwise(limits[1:])),
        f"over {size(over)}",
    )
    return limits, names


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Data files in a range of sizes relative to the target; ``is_left_alone`` marks the range that
    no size rule selects.
    """

    label: str
    file_count: int
    size_in_bytes: int
    share_of_files: float
    share_of_bytes: float
    is_left_alone: bool

    def __str__(self) -> str:
        if not self.file_count:
            return "0"
        return f"{count(self.file_count, 'file')}, {percent(self.share_of_bytes)} of bytes"


def size_classes(facts: TableFacts, thresholds: Thresholds | None = None) -> tuple[SizeClass, ...]:
    """Ranges of data file sizes, see :func:`class_limits`; ``thresholds`` set the band.

    The limits are bucket edges, or lie between buckets (:func:`icekit.facts.rollup.edges`; findings
    reject others), so the counts are exact.
    """
    band = left_alone_sizes(facts, Kind.DATA, thresholds)
    assert band is not None  # data files always have one
    limits, labels = class_limits(facts.target_bytes, band)
    bars = {
        bar.lower_bytes: (bar.file_count, bar.size_in_bytes)
        for bar in file_size_histogram(facts, Kind.DATA, limits)
    }
    classes = []
    for limit, label in zip(limits, labels, strict=True):
        files, held = bars.get(limit, (0, 0))
        shares = files / max(1, facts.data.file_count), held / max(1, facts.data.size_in_bytes)
        classes.append(SizeClass(label, files, held, *shares, limit == band[0]))
    return tuple(classes)


def files(facts: TableFacts) -> Grid:
    """Number, size and records of the files of each kind."""
    columns = {
        "content": TEXT,
        "file_count": COUNT("files"),
        "size_in_bytes": BYTES("size"),
        "record_count": COUNT("records"),
        "mean_file_size_in_bytes": BYTES("mean"),
        "min_file_size_in_bytes": BYTES("smallest"),
        "max_file_size_in_bytes": BYTES("largest"),
        "partition_count": COUNT("partitions"),
    }
    totals = [
        (kind, facts.total(kind), facts.of_kind(kind)) for kind in Kind if facts.of_kind(kind)
    ]
    rows = [
        (
            kind.value,
            t.file_count,
            t.size_in_bytes,
            t.record_count,
            t.mean_bytes,
            t.min_bytes,
            t.max_bytes,
            len(groups),
        )
        for kind, t, groups in totals
    ]
    return Grid("", columns, rows)


def file_sizes(
    facts: TableFacts, kind: Kind = Kind.DATA, thresholds: Thresholds | None = None
) -> Grid:
    """Files of one kind by size, up to the sizes that no size rule of a rewrite selects, which
    ``left_alone`` marks.

    The ranges end at the facts' own edges and at the limits of those sizes: a changed limit lies
    between buckets, or findings reject it.
    """
    columns = {
        "size": TEXT,
        "lower_bytes": BYTES("from"),
        "upper_bytes": BYTES("to"),
        "file_count": COUNT("files"),
        "size_in_bytes": BYTES("bytes"),
        "share_of_files": SHARE,
        "share_of_bytes": SHARE,
        "left_alone": FLAG("a rewrite leaves it alone"),
    }
    total, band = facts.total(kind), left_alone_sizes(facts, kind, thresholds)
    edges = facts.data_edges if kind is Kind.DATA else facts.delete_edges
    if band is not None:
        # A rewrite leaves a file of exactly either limit alone.
        edges = tuple(sorted({*edges, band[0], band[1] + 1} - {band[1]}))
    rows = [
        (
            size_range(bar.lower_bytes, bar.upper_bytes),
            bar.lower_bytes,
            bar.upper_bytes,
            bar.file_count,
            bar.size_in_bytes,
            bar.file_count / total.file_count,
            bar.size_in_bytes / total.size_in_bytes if total.size_in_bytes else None,
            band is not None and band[0] <= bar.lower_bytes <= band[1],
        )
        for bar in file_size_histogram(facts, kind, edges, reach=band)
    ]
    return Grid("", columns, rows)


def delete_ratios(facts: TableFacts) -> Grid:
    """Deletes compared with data, for each partition with deletes; highest ratio by records
    first.
    """
    columns = {
        "partition": NAME,
        "record_count": COUNT("records"),
        "file_count": COUNT("files"),
        "position_delete_record_count": COUNT("position deletes"),
        "position_delete_file_count": COUNT("position delete files"),
        "equality_delete_record_count": COUNT("equality deletes"),
        "equality_delete_file_count": COUNT("equality delete files"),
        "dv_record_count": COUNT("rows deleted by vectors"),
        "dv_count": COUNT("deletion vectors"),
        "deletes_per_record": SHARE("delete records per data record"),
        "delete_files_per_file": NUMBER("delete files per data file"),
    }
    rows = [
        (
            facts.partition_name(r.partition),
            r.data_record_count,
            r.data_file_count,
            r.position_delete_record_count,
            r.position_delete_file_count,
            r.equality_delete_record_count,
            r.equality_delete_file_count,
            r.deletion_vector_record_count,
            r.deletion_vector_count,
            r.by_records,
            r.by_files,
        )
        for r in rollup.delete_ratios(facts)
    ]
    return Grid("", columns, rows)


def worst_partitions(facts: TableFacts, limit: int = 20) -> Grid:
    """Partitions with the most data files beyond the number needed at the target size."""
    columns = {
        "partition": NAME,
        "spec_id": IDENTIFIER("spec"),
        "file_count": COUNT("files"),
        "files_needed": COUNT("needed"),
        "total_data_file_size_in_bytes": BYTES("size"),
        "record_count": COUNT("records"),
        "mean_file_size_in_bytes": BYTES("mean"),
    }
    rows = [
        (
            facts.partition_name(g.partition),
            g.partition.spec_id,
            g.file_count,
            expected_files(g.size_in_bytes, facts.target_bytes),
            g.size_in_bytes,
            g.record_count,
            g.mean_bytes,
        )
        for g in rollup.worst_partitions(facts, limit)
    ]
    return Grid("", columns, rows)


def manifests(facts: TableFacts) -> Grid:
    """Data and delete manifests, and the number needed at the target size."""
    columns = {
        "content": TEXT,
        "manifest_count": COUNT("manifests"),
        "manifests_needed": COUNT("needed"),
        "size_in_bytes": BYTES("size"),
        "mean_size_in_bytes": BYTES("mean"),
        "entry_count": COUNT("entries"),
        "entries_per_manifest": NUMBER("entries per manifest"),
    }
    target, m = facts.int_setting("commit.manifest.target-size-bytes"), facts.manifests
    kinds = [
        ("data", m.data_count, m.data_bytes, m.data_entry_count),
        ("deletes", m.delete_count, m.delete_bytes, m.delete_entry_count),
    ]
    rows = [
        (
            content,
            number,
            expected_manifests(size_in_bytes, target),
            size_in_bytes,
            size_in_bytes / number,
            entries,
            entries / number,
        )
        for content, number, size_in_bytes, entries in kinds
        if number
    ]
    return Grid("", columns, rows)


def commits(facts: TableFacts, limit: int | None = 20) -> Grid:
    """The newest commits of the lineage, newest first, from their summaries; ``limit`` None gives
    all in the facts.
    """
    columns = {
        "committed_at": TIME,
        "snapshot_id": IDENTIFIER("snapshot"),
        "operation": TEXT,
        "added_data_files": COUNT,
        "added_delete_files": COUNT,
        "added_files_size": BYTES("added bytes"),
        "added_records": COUNT,
        "deleted_data_files": COUNT,
        "changed_partition_count": COUNT("changed partitions"),
        "writer": TEXT,
    }
    rows = [
        (
            at(c.committed_at_ms),
            c.snapshot_id,
            c.operation,
            c.added_data_files,
            c.added_delete_files,
            c.added_bytes,
            c.added_records,
            c.removed_data_files,
            c.changed_partitions,
            c.writer,
        )
        for c in facts.history.commits[::-1][:limit]
    ]
    return Grid("", columns, rows)


def settings(facts: TableFacts) -> Grid:
    """Table properties in force and the origin of each."""
    rows = [(s.name, s.value, s.origin) for s in facts.settings]
    return Grid("", {"name": TEXT, "value": TEXT, "origin": TEXT("origin")}, rows, len(rows))


def columns(facts: TableFacts) -> Grid:
    """Leaf columns: the metrics that new files get, and what sampled files have."""
    sample = facts.metrics_sample
    heads = {
        "field_id": IDENTIFIER("id"),
        "name": NAME,
        "type": NAME,
        "required": FLAG,
        "metrics_mode": TEXT("metrics of new files"),
        "files_sampled": COUNT,
        "files_with_bounds": COUNT("with bounds"),
        "files_with_counts": COUNT("with counts"),
        "stab_share": SHARE("files a lookup reads"),
    }
    rows = []
    for c in facts.columns:
        column = sample.column(c.name)
        seen = (
            (column.bounds_file_count, column.counts_file_count, column.stab_share)
            if column
            else (None, None, None)
        )
        rows.append(
            (c.field_id, c.name, c.type, c.required, c.metrics_mode, sample.file_count, *seen)
        )
    return Grid("", heads, rows, 200)


def distribution(facts: TableFacts) -> Grid:
    """How each operation distributes rows before it writes, and why."""
    rows = [(d.operation, d.mode, d.origin) for d in facts.distribution]
    return Grid("", {"operation": TEXT, "mode": TEXT, "origin": TEXT("origin")}, rows)
