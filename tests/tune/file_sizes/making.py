"""Make what trials measure, without a trial: a commit of so many files, after a shuffle of so many bytes."""

from __future__ import annotations

from typing import Any

from icekit.engine.cluster import Cluster
from icekit.tune.file_sizes.written import Shuffle, TrialRows, Written
from tests.factories import GIB, MIB, TARGET

SOURCE = TrialRows(
    described="12 files in one commit",
    table=("prod", "db", "events"),
    size_in_bytes=12 * TARGET,
    records=12_000,
    partitions=1,
    as_written=False,
)
CLUSTER = Cluster(8, 4, 8 * GIB, "2 executors of 4 cores")


def shuffle(planned: int = 12 * TARGET, **overrides: Any) -> Shuffle:
    """A shuffle of so many bytes into one task, of rows twice as large in memory."""
    made: dict[str, Any] = {
        "size_in_bytes": planned,
        "planned_bytes": planned,
        "row_bytes": 2 * planned,
        "tasks": 1,
        "split_count": 0,
        "spilled_bytes": 0,
    }
    return Shuffle(**made | overrides)


def written(*files: int, partitions: int = 1, **overrides: Any) -> Written:
    """A commit of files of these sizes, spread evenly over partitions; 12 of the target without any."""
    sizes = files or (TARGET,) * 12
    total, target = sum(sizes), overrides.get("target_bytes", TARGET)
    each = total // partitions
    made: dict[str, Any] = {
        "target_bytes": target,
        "files": len(sizes),
        "size_in_bytes": total,
        "records": 1000 * len(sizes),
        "min_bytes": min(sizes),
        "max_bytes": max(sizes),
        "small_files": sum(s < 0.75 * target for s in sizes),
        "small_bytes": sum(s for s in sizes if s < 0.75 * target),
        "partitions": partitions,
        "fewest": partitions * -(-each // int(0.85 * target)),
        "enough_files": len(sizes) if each >= 12 * target else 0,
        "enough_bytes": total if each >= 12 * target else 0,
        "largest_partition_bytes": each,
        "delete_files": 0,
        "delete_bytes": 0,
        "seconds": 1.0,
        "shuffle": shuffle(2 * total, tasks=len(sizes)),
    }
    return Written(**made | overrides)


__all__ = ["CLUSTER", "MIB", "TARGET", "shuffle", "written"]
