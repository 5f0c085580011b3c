"""Findings about how a table is written begin exactly at their limits."""

from typing import Any

from icekit.health.facts.model import TableFacts
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.manifest_counts import MetricsSample, RepeatedIdentifiers, SampledWrite
from tests.factories import KIB, MIB, NOW_MS, commit, file_group, history, table_facts
from tests.health.diagnose.told import Borders


def sampled(*writes: tuple[int, int, int], partitions: int = 1, **overrides: Any) -> TableFacts:
    """Writes as (files, tasks, bytes of a file)."""
    made = tuple(
        SampledWrite(files, tasks, files * each, partition_count=partitions)
        for files, tasks, each in writes
    )
    return table_facts(metrics_sample=MetricsSample(20, (), writes=made), **overrides)


def stream(gap: float, commits: int = 120, each: int = 256 * KIB, **overrides: Any) -> TableFacts:
    many = [
        commit(n, committed_at_ms=NOW_MS - round(n * gap * 1000), added_bytes=each, **overrides)
        for n in reversed(range(commits))
    ]
    return table_facts(history=history(*many))


def deletes(
    *pairs: tuple[int, int], removed_data_files: int | None = None, version: int = 3
) -> TableFacts:
    """Commits as (vectors added, delete files removed)."""
    commits = (
        commit(
            n,
            operation="delete",
            added_data_files=None,
            added_delete_files=added,
            removed_delete_files=removed,
            removed_data_files=removed_data_files,
        )
        for n, (added, removed) in enumerate(pairs)
    )
    return table_facts(format_version=version, history=history(*commits))


def repeating(**overrides: Any) -> TableFacts:
    repeated = RepeatedIdentifiers(7, 5, 4), RepeatedIdentifiers(8, 100, 90)
    return table_facts(
        metrics_sample=MetricsSample(20, (), identifiers=("event_id",), repeated=repeated),
        **overrides,
    )


BORDERS: Borders = {
    # Two commits of three full files into one partition, and half of such commits.
    "one_writing_task": (
        [
            sampled(*[(3, 1, 500 * MIB)] * 2),
            sampled(*[(3, 1, 500 * MIB)] * 2, *[(3, 3, 500 * MIB)] * 2),
        ],
        [
            sampled((3, 1, 500 * MIB)),
            sampled(*[(2, 1, 500 * MIB)] * 5),
            sampled(*[(3, 2, 500 * MIB)] * 5),
            sampled(*[(3, 1, MIB)] * 5),
            sampled(*[(3, 1, 500 * MIB)] * 2, *[(3, 3, 500 * MIB)] * 3),
            sampled(*[(20, 1, 500 * MIB)] * 4, partitions=5),
        ],
    ),
    # A hundred commits less than a minute apart, over five minutes or more, of small files.
    "frequent_commits": (
        [stream(4), stream(59), stream(5, commits=100)],
        [
            stream(3),
            stream(60),
            stream(5, commits=99),
            stream(5, each=400 * MIB),
            stream(5, added_data_files=0),
            # Rewrites add no rows.
            stream(5, operation="replace"),
        ],
    ),
    # Half of the vectors, in five commits and half of those with deletes; files that are replaced
    # drop their vectors.
    "vectors_rewritten": (
        [deletes(*[(10, 5)] * 5)],
        [
            deletes(*[(10, 5)] * 4),
            deletes(*[(10, 4)] * 9),
            deletes(*[(10, 5)] * 5, *[(10, 0)] * 6),
            deletes(*[(10, 9)] * 9, version=2),
            deletes(*[(10, 9)] * 9, removed_data_files=9),
        ],
    ),
    "managed_elsewhere": (
        [
            table_facts(properties={"self-optimizing.enabled": "true"}),
            table_facts(properties={"delta.universalFormat.enabledFormats": "iceberg"}),
            table_facts(location="s3://63a8e430-6e0b-46f5--table-s3/data"),
        ],
        [
            table_facts(properties={"self-optimizing.enabled": "false"}),
            table_facts(location="s3://bucket/t--table-s3"),
        ],
    ),
    # Deletes by position may have removed the copies.
    "identifiers_not_unique": (
        [repeating(groups=(file_group(MIB), file_group(KIB, kind=Kind.EQUALITY_DELETES)))],
        [
            repeating(groups=(file_group(MIB), file_group(KIB, kind=kind)))
            for kind in (Kind.POSITION_DELETES, Kind.DELETION_VECTORS)
        ],
    ),
}


#: A finding of each kind, as a golden file shows it.
SHOWN = {
    "one_writing_task": sampled(*[(4, 1, 500 * MIB)] * 4),
    "one_writing_task that nothing distributes": sampled(
        *[(4, 1, 500 * MIB)] * 4, properties={"write.distribution-mode": "none"}
    ),
    "frequent_commits": stream(5),
    "frequent_commits into small files": stream(50, each=2 * KIB),
    "frequent_commits into many partitions": stream(5, changed_partitions=20),
    "vectors_rewritten": deletes(*[(100, 90)] * 6),
    "identifiers_not_unique": repeating(),
    "managed_elsewhere": table_facts(properties={"self-optimizing.enabled": "true"}),
}
