"""Find the delete files that a scan gives to no data file, and drop them in one checked commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from icekit.common.errors import MetadataUnreadable
from icekit.common.sql import Identifier
from icekit.engine.bridge import (
    guarded_table,
    head_snapshot,
    java_object,
    load_latest_table,
    load_table,
)
from icekit.engine.errors import explain
from icekit.engine.interrupting import Stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def drop_dangling(
    spark: SparkSession,
    table_name: Identifier,
    summary_tags: Mapping[str, str],
    *,
    branch: str | None = None,
    stop: Stop | None = None,
) -> int:
    """Drop the delete files that apply to no data file; returns how many; ``table_name`` has its
    catalog.

    Only the commit of an unchanged table is accepted: another writer may have added a data file to
    which an old delete applies. Raises the error of the commit then, and the errors of
    :mod:`icekit.common.errors`.
    """
    stop = stop or Stop()
    stop.check()
    table = load_latest_table(spark, table_name)
    dangling_files, snapshot_id = _find_dangling(spark, table_name, table, branch)
    if dangling_files:
        stop.check()
        _commit(spark, table, dangling_files, (branch or "main", snapshot_id), summary_tags)
    return len(dangling_files)


def count_dangling(
    spark: SparkSession, table_name: Identifier, *, branch: str | None = None
) -> int:
    """How many delete files :func:`drop_dangling` would drop now; it commits nothing."""
    dangling_files, _ = _find_dangling(
        spark, table_name, load_latest_table(spark, table_name), branch
    )
    return len(dangling_files)


def removed_delete_counts(
    spark: SparkSession, table_name: Identifier, parent_id: int, snapshot_id: int
) -> tuple[int, int]:
    """Count the delete files that a commit removed, and those that applied to a data file before
    it.
    """
    table = load_table(spark, table_name)
    removed_count, needed_count = _dangling_java(spark, table).removed(parent_id, snapshot_id)
    return int(removed_count), int(needed_count)


def _dangling_java(spark: SparkSession, table: Any) -> Any:
    return java_object(spark, table, "Dangling", table)


def _find_dangling(
    spark: SparkSession, table_name: Identifier, table: Any, branch: str | None
) -> tuple[Any, int]:
    """The delete files, as Java lists them, and the snapshot."""
    snapshot = head_snapshot(table, branch)
    if snapshot is None:
        return [], 0
    snapshot_id = int(snapshot.snapshotId())
    try:
        return _dangling_java(spark, table).of(snapshot_id), snapshot_id
    except Exception as error:
        explained_error = explain(error, table_name)
        if isinstance(explained_error, MetadataUnreadable):
            raise explained_error from error
        raise


def _commit(
    spark: SparkSession,
    table: Any,
    dangling_files: Any,
    branch_and_snapshot: tuple[str, int],
    summary_tags: Mapping[str, str],
) -> None:
    checked_table = guarded_table(spark, table, expected_head=branch_and_snapshot)
    rewrite = _dangling_java(spark, table).without(checked_table.newRewrite(), dangling_files)
    rewrite = rewrite.validateFromSnapshot(branch_and_snapshot[1]).toBranch(branch_and_snapshot[0])
    for key, value in summary_tags.items():
        rewrite = rewrite.set(key, value)
    rewrite.commit()
