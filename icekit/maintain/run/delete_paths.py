"""Check the paths inside the position deletes that Iceberg's own action would apply or rewrite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import elements, head_snapshot, load_latest_table
from icekit.engine.errors import explain_errors
from icekit.engine.planner import RewriteGroups, deletes_plan
from icekit.engine.staging import Staging
from icekit.maintain.engine_prediction import engine_groups
from icekit.rows.proof.position_deletes import PositionDeletes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.maintain.action import Action


def check_applied_delete_paths(spark: SparkSession, action: Action) -> RewriteGroups | None:
    """Check the paths in the position deletes that Iceberg's own action would apply, and return the
    groups of data files that it takes; None without a snapshot.

    Raises :class:`~icekit.common.errors.DeletesUnmatched` if they are of no data file, but should
    be.
    """
    position_deletes = _position_deletes_of(
        spark, action, load_latest_table(spark, action.sql_name)
    )
    groups = engine_groups(spark, action)
    if position_deletes is None or groups is None:
        return None
    scan_tasks = _scan_tasks(spark, groups.groups)
    position_deletes.check_listed(scan_tasks)
    position_deletes.check_paths(position_deletes.java.files(scan_tasks), scan_tasks)
    return groups


def check_rewritten_delete_paths(spark: SparkSession, action: Action) -> None:
    """Check the paths in the position deletes that Iceberg's own action would rewrite, as
    :func:`check_applied_delete_paths` does.
    """
    table = load_latest_table(spark, action.sql_name)
    position_deletes = _position_deletes_of(spark, action, table)
    if position_deletes is None:
        return
    with explain_errors(action.sql_name):
        rewrite_plan = deletes_plan(
            spark, action.sql_name, table, action.options, where=action.where
        )
    position_deletes.check_paths(
        position_deletes.java.files(_scan_tasks(spark, rewrite_plan.groups())), None
    )


def _position_deletes_of(spark: SparkSession, action: Action, table: Any) -> PositionDeletes | None:
    """The position deletes of an action's branch of a table, an object of Iceberg's API; None
    without a snapshot.
    """
    snapshot = head_snapshot(table, action.branch)
    if snapshot is None:
        return None
    return PositionDeletes(Staging(spark, table), int(snapshot.snapshotId()))


def _scan_tasks(spark: SparkSession, file_groups: Any) -> Any:
    """The scan tasks of all groups, in a Java list."""
    scan_tasks = spark._jvm.java.util.ArrayList()  # type: ignore[union-attr]
    for group in elements(file_groups):
        scan_tasks.addAll(group.fileScanTasks())
    return scan_tasks
