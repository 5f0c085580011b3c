"""Make facts without a table: whatever is not said is that of a healthy partitioned table.

A factory takes what a test is about and fills in the rest consistently: sizes fall into the
buckets of the target in force, manifests list the files there are, settings follow from the
properties. Pure, so that tests of judgements and pictures take milliseconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from icekit.health.diagnose.findings import Finding, Findings, Severity, Thresholds
from icekit.health.facts.files import Bucket, FileGroup, SequenceCounts
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import bucket_edges, lower_edge_of
from icekit.iceberg import metadata
from icekit.iceberg.definition import Column, PartitionField, PartitionSpec
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.manifest_counts import ColumnSample, ManifestFacts, MetricsSample, SpecManifests
from icekit.iceberg.partition import Partition, Scalar
from icekit.iceberg.snapshots import Commit, History

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
HOUR_MS = 3_600_000

#: 2026-01-02 03:04:05 UTC, when the snapshot that facts are about was committed.
NOW_MS = 1_767_323_045_000
#: 2026-01-01, as the day transform stores it.
FIRST_DAY = 20_454

TARGET = 512 * MIB
DELETE_TARGET = 64 * MIB
ENTRY_BYTES = 400

COLUMNS = (
    Column(1, "event_id", "long", required=True, position=0, metrics_mode="truncate(16)"),
    Column(2, "event_time", "timestamptz", required=True, position=1, metrics_mode="truncate(16)"),
    Column(3, "carrier", "string", required=False, position=2, metrics_mode="truncate(16)"),
    Column(4, "amount", "double", required=False, position=3, metrics_mode="truncate(16)"),
)
BY_DAY = PartitionSpec(0, (PartitionField(1000, "event_day", "day", 2, "event_time", "date"),))
UNPARTITIONED = PartitionSpec(0, ())
BY_CARRIER = PartitionSpec(
    0, (PartitionField(1000, "carrier", "identity", 3, "carrier", "string"),)
)
#: A later spec with the same fields.
NEWER = PartitionSpec(1, BY_DAY.fields)


def partition(*values: Scalar, spec_id: int = 0) -> Partition:
    """A partition; the first day without values."""
    return Partition(spec_id, values or (FIRST_DAY,))


def file_group(
    *sizes: int,
    kind: Kind = Kind.DATA,
    of: Partition | None = None,
    records_per_file: int = 1_000_000,
    file_scoped_count: int = 0,
    target_bytes: int | None = None,
    ratios: Sequence[float] = Thresholds().size_ratios,
) -> FileGroup:
    """Files of the sizes given, counted in buckets; one file of the target size without any."""
    target = target_bytes or (TARGET if kind is Kind.DATA else DELETE_TARGET)
    cut = bucket_edges(target, ratios)
    buckets: dict[int, list[int]] = {}
    for size in sizes or (target,):
        buckets.setdefault(lower_edge_of(size, cut), []).append(size)
    return FileGroup(
        of or partition(),
        kind,
        tuple(
            Bucket(lower, len(b), sum(b), len(b) * records_per_file, min(b), max(b))
            for lower, b in sorted(buckets.items())
        ),
        file_scoped_count,
    )


def healthy_groups(days: int = 10) -> tuple[FileGroup, ...]:
    """Four well-sized data files in every partition."""
    return tuple(file_group(*[500 * MIB] * 4, of=partition(FIRST_DAY + day)) for day in range(days))


def sequence(number: int = 1, of: Partition | None = None, **counts: int) -> SequenceCounts:
    """Files that share a sequence number; ``counts`` as in :class:`SequenceCounts`."""
    return SequenceCounts(of or partition(), number, **counts)


def manifest_facts(groups: Sequence[FileGroup] = (), **overrides: Any) -> ManifestFacts:
    """The manifests that list ``groups``: one of data files, and one of delete files if there are
    any.
    """
    data = sum(g.file_count for g in groups if g.kind is Kind.DATA)
    deletes = sum(g.file_count for g in groups if g.kind is not Kind.DATA)
    made: dict[str, Any] = {
        "data_count": min(data, 1),
        "data_bytes": data * ENTRY_BYTES,
        "data_entry_count": data,
        "delete_count": min(deletes, 1),
        "delete_bytes": deletes * ENTRY_BYTES,
        "delete_entry_count": deletes,
        "undersized_count": min(data, 1),
    }
    counted = made | overrides
    of_spec = SpecManifests(
        *(counted[name] for name in ("data_count", "data_bytes", "delete_count", "delete_bytes"))
    )
    return ManifestFacts(**{"by_spec": (of_spec,)} | counted)


def commit(number: int = 0, **overrides: Any) -> Commit:
    """An hourly append of one well-sized file; ``number`` counts back from the newest, 0."""
    return replace(
        Commit(
            snapshot_id=9_000_000_000_000_000_000 - number,
            committed_at_ms=NOW_MS - number * HOUR_MS,
            operation="append",
            writer="spark 4.1.4",
            added_data_files=1,
            added_delete_files=None,
            added_bytes=500 * MIB,
            added_records=1_000_000,
            removed_data_files=None,
            changed_partitions=1,
        ),
        **overrides,
    )


def history(*commits: Commit, **overrides: Any) -> History:
    """The history of the commits given, oldest first; forty hourly appends without any."""
    lineage = commits or tuple(commit(n) for n in reversed(range(40)))
    times = [c.committed_at_ms for c in lineage]
    return replace(
        History(
            snapshot_count=len(lineage),
            oldest_snapshot_ms=min(times),
            newest_snapshot_ms=max(times),
            median_seconds_between_commits=3600.0 if len(lineage) > 1 else None,
            commits=lineage,
            metadata_log_count=len(lineage),
        ),
        **overrides,
    )


def column_sample(column: str, files: int = 20, **overrides: Any) -> ColumnSample:
    """Statistics of one column: bounds in every sampled file, which rule out nearly all of them."""
    return replace(
        ColumnSample(
            column=column,
            bounds_file_count=files,
            counts_file_count=files,
            stab_share=1 / files,
        ),
        **overrides,
    )


def metrics_sample(columns: Sequence[Column] = COLUMNS) -> MetricsSample:
    """A sample of twenty files in which every column has bounds."""
    return MetricsSample(20, tuple(column_sample(c.name) for c in columns))


def table_facts(**overrides: Any) -> TableFacts:
    """Facts of ``db.events``: ten days of four well-sized files, forty hourly appends, no deletes.

    Takes any field of :class:`TableFacts`. Settings, bucket edges and distribution modes
    follow from ``properties``, manifests from ``groups``, the sample from ``columns``. No
    ``groups`` and no ``snapshot_id`` make an empty table.
    """
    properties: Mapping[str, str] = overrides.get("properties", {})
    groups: Sequence[FileGroup] = overrides.get("groups", healthy_groups())
    columns: Sequence[Column] = overrides.get("columns", COLUMNS)
    specs: tuple[PartitionSpec, ...] = overrides.get("specs", (BY_DAY,))
    in_force = metadata.settings(properties)
    value = {s.name: s.value for s in in_force}
    ratios = Thresholds().size_ratios
    default_spec_id = overrides.get("default_spec_id", specs[-1].spec_id)
    partitioned = any(s.fields for s in specs if s.spec_id == default_spec_id)
    return replace(
        TableFacts(
            catalog="prod",
            table=("db", "events"),
            table_uuid="3f1b8e8e-0000-4000-8000-000000000001",
            location="s3://bucket/db/events",
            format_version=2,
            snapshot_id=9_000_000_000_000_000_000,
            ref=None,
            snapshot_ms=NOW_MS,
            schema_id=0,
            columns=tuple(columns),
            specs=specs,
            default_spec_id=default_spec_id,
            sort_order=(),
            properties=properties,
            settings=in_force,
            distribution=metadata.distribution_modes(
                properties, is_partitioned=partitioned, is_sorted=bool(overrides.get("sort_order"))
            ),
            filter_columns=(),
            data_edges=bucket_edges(int(value["write.target-file-size-bytes"] or 0), ratios),
            groups=tuple(groups),
            sequences=(),
            sequence_width=1,
            manifests=manifest_facts(groups),
            history=history(),
            metrics_sample=metrics_sample(columns),
            storage=None,
            collector="local",
            collected_at_ms=NOW_MS + 2 * HOUR_MS,
            seconds=0.1,
        ),
        **overrides,
    )


def empty_facts(**overrides: Any) -> TableFacts:
    """Facts of a table that was created and never written to."""
    nothing: dict[str, Any] = {
        "snapshot_id": None,
        "snapshot_ms": None,
        "groups": (),
        "manifests": ManifestFacts(),
        "history": History(),
        "metrics_sample": MetricsSample(),
    }
    return table_facts(**nothing | overrides)


def finding(
    name: str = "small_files", severity: Severity = Severity.WARNING, **overrides: Any
) -> Finding:
    """A finding with a sentence in every field and one statement."""
    made: dict[str, Any] = {
        "table": "db.events",
        "where": ("event_day=2026-01-01",),
        "where_count": 1,
        "figure": "90 of 100 would go",
        "evidence": "compaction would remove 90 of 100 data files",
        "threshold": "5 files under 0.75 of the target in one partition",
        "source": "rewrite_data_files: min-input-files",
        "effect": "Every file costs a request.",
        "remedy": "Combine them.",
        "sql": ("CALL `prod`.system.rewrite_data_files(table => 'db.events')",),
    }
    return Finding(name=name, severity=severity, **made | overrides)


def findings(*names: str) -> Findings:
    """Findings of these names."""
    return Findings(finding(name) for name in names)
