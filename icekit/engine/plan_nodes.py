"""Read Spark's plan of a statement: its nodes, its scans of Iceberg tables and, after it was run, their metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import elements
from icekit.engine.errors import reason
from icekit.errors import StatementRefused
from icekit.secrets import scrub
from icekit.sql import Identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def query_of(spark: SparkSession, sql: str) -> Any:
    """The execution of a statement, analysed and not run; raises StatementRefused for what Spark cannot analyse."""
    from pyspark.errors import PySparkException

    jvm: Any = spark._jvm
    state = spark._jsparkSession.sessionState()
    try:
        skip = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        query = state.executePlan(state.sqlParser().parsePlan(sql), skip)
        query.assertAnalyzed()
        query.executedPlan()
        return query
    except PySparkException as error:
        raise StatementRefused(
            f"Spark cannot plan the statement: {reason(error)}; fix it, or what it reads.",
            detail=scrub(str(error)),
        ) from None


def query_of_frame(frame: DataFrame) -> Any:
    """The execution of a frame; after it was collected, its plan has metrics."""
    java: Any = frame
    return java._jdf.queryExecution()


def ran_command(frame: DataFrame) -> Any:
    """The physical plan of the statement that a frame of ``spark.sql`` has run; None where it was no command."""
    command = next((n for n in nodes(query_of_frame(frame).commandExecuted()) if kind(n) == "CommandResult"), None)
    return None if command is None else command.commandPhysicalPlan()


def changes_something(spark: SparkSession, query: Any) -> bool:
    """Tell whether an analysed statement is a command, as a DELETE or an INSERT is, and no query."""
    from py4j.java_gateway import is_instance_of

    return bool(is_instance_of(spark._sc._gateway, query.analyzed(), "org.apache.spark.sql.catalyst.plans.logical.Command"))


def kind(node: Any) -> str:
    """The class of a plan's node, without its package."""
    return str(node.getClass().getSimpleName())


def metric(node: Any, name: str) -> int:
    """A metric of a node of a plan that was run; 0 where it has none of that name."""
    found = node.metrics().get(name)
    return int(found.get().value()) if found.isDefined() else 0


def is_scan_of(node: Any, table: Identifier) -> bool:
    """Tell whether a node of a plan scans a table that is named with its catalog."""
    if kind(node) != "BatchScanExec":
        return False
    # What Iceberg calls a table ends with its branch, where one is read.
    name, wanted = str(node.table().name()).replace("`", ""), ".".join(table).replace("`", "")
    return name == wanted or name.startswith(f"{wanted} ")


def nodes(node: Any) -> Iterator[Any]:
    """A plan's nodes from the top down, through what adaptive execution wraps."""
    yield node
    for child in children(node):
        yield from nodes(child)


def nodes_with_searches(node: Any) -> Iterator[Any]:
    """A plan's nodes, and those of the sub-queries by which a copy-on-write MERGE looks for matches."""
    for one in nodes(node):
        yield one
        if kind(one) == "BatchScanExec":
            for search in searches(one):
                yield from nodes_with_searches(search)


def searches(scan: Any) -> Iterator[Any]:
    """The plans of the sub-queries by which a copy-on-write MERGE looks for matches, before it scans."""
    for runtime_filter in elements(scan.runtimeFilters()):
        if "_file" in str(runtime_filter.toString()):
            with contextlib.suppress(Exception):
                yield runtime_filter.child().plan()


def children(node: Any) -> Iterator[Any]:
    """The nodes right below one, through what adaptive execution wraps."""
    name = kind(node)
    if name == "AdaptiveSparkPlanExec":
        yield node.executedPlan() if node.isFinalPlan() else node.initialPlan()
    elif name.endswith("QueryStageExec"):
        yield node.plan()
    elif name in {"SubqueryExec", "SubqueryAdaptiveBroadcastExec", "ReusedSubqueryExec"}:
        yield node.child()
    else:
        yield from elements(node.children())
