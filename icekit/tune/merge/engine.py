"""Ask Spark how it would run a MERGE, and Iceberg which files its scans would open; runs nothing.

Iceberg plans a scan in the driver's JVM, like Spark, and its report counts the files.
No file list crosses the bridge.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.errors import StatementRefused
from icekit.common.sql import Identifier, display_name, identifier
from icekit.engine.bridge import elements
from icekit.engine.planner import (
    is_scan_of,
    match_filter_plans,
    node_class,
    query_execution,
    walk_plan,
)
from icekit.tune.filters import filters_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SHUFFLE = "ShuffleExchangeExec"


@frozen
class TargetScan:
    """What one scan of the target would open, from the engine's own planner.

    ``pushed_filters`` are those that reached Iceberg. ``size_in_bytes`` is the size of the data
    files, of which a columnar scan reads only a part. ``keeps_partitions_apart`` tells whether the
    scan keeps partitions apart.
    """

    file_count: int = 0
    size_in_bytes: int = 0
    delete_file_count: int = 0
    pushed_filters: str = ""
    keeps_partitions_apart: bool = False

    @classmethod
    def from_node(cls, scan_node: Any) -> TargetScan:
        """Plan a scan that is a node of Spark's plan, and read Iceberg's report of it."""
        iceberg_scan = scan_node.scan()
        iceberg_scan.toBatch().planInputPartitions()
        metric_values = {str(m.name()): int(m.value()) for m in iceberg_scan.reportDriverMetrics()}
        scan_description = str(iceberg_scan.description())
        return cls(
            file_count=metric_values.get("resultDataFiles", 0),
            size_in_bytes=metric_values.get("totalDataFileSize", 0),
            delete_file_count=metric_values.get("resultDeleteFiles", 0),
            pushed_filters=filters_of(scan_description) or "none",
            keeps_partitions_apart=not scan_description.endswith("groupedBy=)"),
        )


@frozen
class MergePlan:
    """How Spark would run a MERGE, found without running it.

    ``group_filter_scan`` is the scan by which a copy-on-write MERGE finds the files that hold
    matches, at run time. ``is_target_shuffled`` tells whether the target's rows go through a
    shuffle before the join, ``is_write_shuffled`` whether the written rows do after it, and
    ``source_partitioning`` how the source is partitioned. ``analyzed_plan`` is Spark's logical
    plan, a Java object, in which ``is_target_left`` says on which side of the join the target is.
    """

    join_description: str
    is_target_left: bool
    scan: TargetScan
    group_filter_scan: TargetScan | None
    is_target_shuffled: bool
    is_write_shuffled: bool
    source_partitioning: str
    analyzed_plan: Any

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the target's files that are opened: by the scan itself, and by the search for
        matches before it.
        """
        return sum(scan.size_in_bytes for scan in (self.scan, self.group_filter_scan) if scan)


def merge_plan(spark: SparkSession, sql: str, target: Identifier) -> MergePlan:
    """How Spark would run a MERGE of ``target``, which is named with its catalog."""
    execution = query_execution(spark, sql)
    physical_plan = execution.executedPlan()
    plan_nodes = list(walk_plan(physical_plan))
    join_node = next(
        (n for n in plan_nodes if node_class(n).endswith(("JoinExec", "ProductExec"))), None
    )
    join_type = str(join_node.joinType().toString()) if join_node is not None else ""
    # Only a MERGE that inserts and nothing else has the source on the left.
    is_target_left = join_type != "LeftAnti"
    join_sides = [plan_nodes, []]
    if join_node is not None:
        join_sides = [list(walk_plan(side_node)) for side_node in elements(join_node.children())]
    target_nodes, source_nodes = join_sides if is_target_left else join_sides[::-1]
    scan_node = next((n for n in target_nodes if is_scan_of(n, target)), None)
    if scan_node is None:
        raise StatementRefused(
            f"Spark's plan of this MERGE does not scan {display_name(target)} at all (no row can "
            "match, as when the source is empty), so there is nothing to review."
        )
    match_search_nodes = (
        n
        for match_filter_plan in match_filter_plans(scan_node)
        for n in walk_plan(match_filter_plan)
        if is_scan_of(n, target)
    )
    nodes_after_join = takewhile(lambda n: not n.equals(join_node), plan_nodes)
    return MergePlan(
        join_description=(
            f"{join_type} {join_node.nodeName()}" if join_node is not None else "no join"
        ),
        is_target_left=is_target_left,
        scan=TargetScan.from_node(scan_node),
        group_filter_scan=next(map(TargetScan.from_node, match_search_nodes), None),
        is_target_shuffled=any(node_class(n) == SHUFFLE for n in target_nodes),
        is_write_shuffled=any(node_class(n) == SHUFFLE for n in nodes_after_join),
        source_partitioning=_partitioning_text(source_nodes),
        analyzed_plan=execution.analyzed(),
    )


def _partitioning_text(plan_nodes: Iterable[Any]) -> str:
    """How the only table of a plan is partitioned, in words."""
    leaf_nodes = [n for n in plan_nodes if n.children().isEmpty()]
    if [node_class(n) for n in leaf_nodes] != ["BatchScanExec"]:
        return "is not a plain Iceberg table"
    # Spark writes identity(d), Iceberg d.
    transforms = (
        re.sub(r"^identity\((.*)\)$", r"\1", str(transform.toString()))
        for transform in elements(leaf_nodes[0].table().partitioning())
    )
    return f"is partitioned by {', '.join(transforms) or 'nothing'}"


def full_scan(spark: SparkSession, table: Identifier) -> TargetScan:
    """A scan of all of a table, or of the branch that its name ends with."""
    physical_plan = query_execution(spark, f"SELECT * FROM {identifier(*table)}").executedPlan()
    return next(
        (
            TargetScan.from_node(n)
            for n in walk_plan(physical_plan)
            if node_class(n) == "BatchScanExec"
        ),
        TargetScan(),
    )
