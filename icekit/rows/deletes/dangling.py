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
    name: Identifier,
    tags: Mapping[str, str],
    *,
    branch: str | None = None,
    stop: Stop | None = None,
) -> int:
    """Drop the delete files that apply to no data file; returns how many; ``name`` has its catalog.

    Only the commit of an unchanged table is accepted: another writer may have added a data file to
    which an old delete applies. Raises the error of the commit then, and the errors of
    :mod:`icekit.common.errors`.
    """
    stop = stop or Stop()
    stop.check()
    table = load_latest_table(spark, name)
    files, snapshot_id = _dangling(spark, name, table, branch)
    if files:
        stop.check()
        _commit(spark, table, files, (branch or "main", snapshot_id), tags)
    return len(files)


def count_dangling(spark: SparkSession, name: Identifier, *, branch: str | None = None) -> int:
    """How many delete files :func:`drop_dangling` would drop now; it commits nothing."""
    files, _ = _dangling(spark, name, load_latest_table(spark, name), branch)
    return len(files)


def removed(
    spark: SparkSession, name: Identifier, parent_id: int, snapshot_id: int
) -> tuple[int, int]:
    """Count the delete files that a commit removed, and those that applied to a data file before
    it.
    """
    table = load_table(spark, name)
    count, needed = _java(spark, table).removed(parent_id, snapshot_id)
    return int(count), int(needed)


def _java(spark: SparkSession, table: Any) -> Any:
    return java_object(spark, table, "Dangling", table)


def _dangling(
    spark: SparkSession, name: Identifier, table: Any, branch: str | None
) -> tuple[Any, int]:
    """The delete files, as Java lists them, and the snapshot."""
    snapshot = head_snapshot(table, branch)
    if snapshot is None:
        return [], 0
    snapshot_id = int(snapshot.snapshotId())
    try:
        return _java(spark, table).of(snapshot_id), snapshot_id
    except Exception as error:
        explained = explain(error, name)
        if isinstance(explained, MetadataUnreadable):
            raise explained from error
        raise


def _commit(
    spark: SparkSession, table: Any, files: Any, base: tuple[str, int], tags: Mapping[str, str]
) -> None:
    checked = guarded_table(spark, table, expected_head=base)
    rewrite = _java(spark, table).without(checked.newRewrite(), files)
    rewrite = rewrite.validateFromSnapshot(base[1]).toBranch(base[0])
    for key, value in tags.items():
        rewrite = rewrite.set(key, value)
    rewrite.commit()
