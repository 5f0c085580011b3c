"""Ask Spark how it would run a statement, and Iceberg what its scans would open; nothing is run.

Iceberg plans a scan where Spark does, in the driver's JVM, and its own report counts the files.
No file comes over the bridge.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import elements, load_table
from icekit.engine.plan_nodes import children, is_scan_of, kind, nodes, query_of, searches
from icekit.errors import StatementRefused
from icekit.sql import Identifier, display_name, identifier
from icekit.tune.merge.model import EnginePlan, Scan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JOINS = {"SortMergeJoinExec", "ShuffledHashJoinExec", "BroadcastHashJoinExec", "BroadcastNestedLoopJoinExec", "CartesianProductExec"}
_MODES = {"ReplaceDataExec": "copy-on-write", "WriteDeltaExec": "merge-on-read"}


@dataclass(frozen=True, slots=True)
class Planned:
    """Spark's plans of a MERGE, as Java objects: what is asked of them is asked in few calls."""

    query: Any
    physical: Any
    joining: Any
    target_is_left: bool


def planned(spark: SparkSession, sql: str) -> Planned:
    """Spark's plan of a MERGE with its join found."""
    query = query_of(spark, sql)
    physical = query.executedPlan()
    joining = next((n for n in nodes(physical) if kind(n) in _JOINS), None)
    # Only a MERGE that inserts and nothing else has the source on the left.
    return Planned(query, physical, joining, joining is None or str(joining.joinType().toString()) != "LeftAnti")


def engine_plan(spark: SparkSession, sql: str, target: Identifier) -> EnginePlan:
    """How Spark would run a MERGE of ``target``, which is named with its catalog."""
    return read_plan(spark, planned(spark, sql), target)


def read_plan(spark: SparkSession, plan: Planned, target: Identifier) -> EnginePlan:
    """What a plan says, as a value."""
    joining, left = plan.joining, plan.target_is_left
    inside = plan.physical if joining is None else joining.children().apply(0 if left else 1)
    scanned = next((n for n in nodes(inside) if is_scan_of(n, target)), None)
    if scanned is None:
        raise StatementRefused(
            f"Spark's plan of this MERGE does not scan {display_name(target)} at all (no row can match, as when the source is empty), so there is nothing to review."
        )
    above = list(_until(plan.physical, joining)) if joining is not None else []
    before = [n for n in _until(inside, scanned) if kind(n) == "ShuffleExchangeExec"]
    after = [n for n in above if kind(n) == "ShuffleExchangeExec"]
    keys = (joining.leftKeys() if left else joining.rightKeys()) if joining is not None and hasattr(joining, "leftKeys") else None
    search = next(_searches(scanned), None)
    return EnginePlan(
        mode=next((_MODES[kind(n)] for n in nodes(plan.physical) if kind(n) in _MODES), "append"),
        join=str(joining.nodeName()) if joining is not None else None,
        join_type=str(joining.joinType().toString()) if joining is not None else None,
        keys=tuple(str(key.sql()) for key in elements(keys)) if keys is not None else (),
        scan=scan(spark, scanned, target),
        group_filter=scan(spark, search, target) if search is not None else None,
        broadcast=_broadcast(joining, left),
        exchange=str(before[0].outputPartitioning().toString()) if before else None,
        write_exchange=str(after[0].outputPartitioning().toString()) if after else None,
        source_bytes=_source_bytes(plan),
        tree=str(plan.physical.toString()),
    )


def whole(spark: SparkSession, target: Identifier, branch: str | None = None) -> Scan:
    """A scan of all of the target."""
    name = identifier(*target, *((f"branch_{branch}",) if branch else ()))
    physical = query_of(spark, f"SELECT * FROM {name}").executedPlan()
    return next((scan(spark, n, target) for n in nodes(physical) if kind(n) == "BatchScanExec"), Scan(0, 0, 0, 0))


def scan(spark: SparkSession, node: Any, target: Identifier) -> Scan:
    """What one scan would open, by Iceberg's own report of planning it."""
    planning = node.scan()
    planning.toBatch().planInputPartitions()
    counts = {str(m.name()): int(m.value()) for m in planning.reportDriverMetrics()}
    text = str(planning.description())
    return Scan(
        files=counts.get("resultDataFiles", 0),
        size_in_bytes=counts.get("totalDataFileSize", 0),
        delete_files=counts.get("resultDeleteFiles", 0),
        partitions=_partitions(spark, planning, target),
        filters=_filters(text),
        runtime_filters=tuple(str(f.toString()) for f in elements(node.runtimeFilters())),
        grouped_by=tuple(part for part in text.rpartition("groupedBy=")[2].rstrip(")").split(", ") if part),
    )


def _partitions(spark: SparkSession, planning: Any, target: Identifier) -> int | None:
    """In how many partitions the files of a planned scan are; None where this version of Iceberg does not tell."""
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    with contextlib.suppress(Exception):
        table = load_table(spark, target)
        grouping = iceberg.Partitioning.groupingKeyType(table.schema(), table.specs().values())
        if grouping.fields().isEmpty():
            return None
        owner = planning.getClass()
        while str(owner.getSimpleName()) != "SparkPartitioningAwareScan":
            owner = owner.getSuperclass()
        tasks = next(m for m in elements(owner.getDeclaredMethods()) if m.getName() == "tasks" and m.getParameterCount() == 0)
        tasks.setAccessible(True)
        files = tasks.invoke(planning, None)
        # One group a partition: no limit to its bytes.
        return int(iceberg.util.TableScanUtil.planTaskGroups(files, 1 << 62, 1, 1, grouping).size())
    return None


def _filters(text: str) -> tuple[str, ...]:
    """The filters that a scan's description names, as one text: values in them may hold commas."""
    rest = text.partition("filters=")[2].rpartition(", groupedBy=")[0]
    said = rest.rpartition(", runtimeFilters=")[0] if ", runtimeFilters=" in rest else rest
    return (said,) if said else ()


def _searches(scanned: Any) -> Iterator[Any]:
    """The scans of the target by which a copy-on-write MERGE looks for matches first."""
    name = str(scanned.table().name())
    for plan in searches(scanned):
        yield from (n for n in nodes(plan) if kind(n) == "BatchScanExec" and str(n.table().name()) == name)


def _broadcast(joining: Any, target_is_left: bool) -> str | None:
    """Which side is sent to every task."""
    if joining is None or not kind(joining).startswith("Broadcast"):
        return None
    return "target" if ("Left" in str(joining.buildSide().toString())) == target_is_left else "source"


def _source_bytes(plan: Planned) -> int | None:
    """Spark's estimate of the source's size, by which it decides whether to broadcast."""
    with contextlib.suppress(Exception):
        for n in nodes(plan.query.optimizedPlan()):
            if kind(n) == "Join":
                return int((n.right() if plan.target_is_left else n.left()).stats().sizeInBytes())
    return None


def _until(node: Any, last: Any) -> Iterator[Any]:
    """The nodes on the way down to one of them."""
    if node.equals(last):
        return
    yield node
    for child in children(node):
        if any(n.equals(last) for n in nodes(child)):
            yield from _until(child, last)
            return
