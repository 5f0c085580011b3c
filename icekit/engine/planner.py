"""Ask Spark's and Iceberg's own planners, in the JVM, what a statement, a scan or a rewrite would
take; reads and writes no data.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.errors import StatementRefused
from icekit.common.sql import Identifier, identifier
from icekit.common.terminal import quiet_errors
from icekit.engine.bridge import elements, is_case_sensitive, java_object, load_latest_table
from icekit.engine.errors import complaint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@frozen
class MovedFiles:
    """Data files of one partition spec whose rows a rewrite puts into the partitions of another."""

    spec_id: int
    partition_count: int
    file_count: int
    size_in_bytes: int
    row_count: int


@frozen
class PlannedRewrite:
    """The planner's answer for a rewrite: groups, files, bytes and rows in, files out; a rollup,
    whatever the table's size.

    ``files_out`` is without what comes of the ``moved`` files. ``is_upper_bound``: fewer files come
    out where deletes leave nothing of a task. ``is_estimate``: rows are sorted, or a file may
    become larger than it should be, so that only writing it tells. ``scoped_deletes`` are the
    delete files that name one of the data files, and ``oversized_in`` and ``oversized_out`` the
    files before and after that a later plan would call oversized. A writer ends a file at
    ``max_file_bytes``. ``ranges`` are those of :meth:`RewriteGroups.ranges`, if they were
    requested.
    """

    groups: int
    files_in: int
    bytes_in: int
    files_out: int
    rows_in: int = 0
    scoped_deletes: int = 0
    oversized_in: int = 0
    oversized_out: int = 0
    largest_group_bytes: int = 0
    max_file_bytes: int = 0
    is_upper_bound: bool = False
    is_estimate: bool = False
    moved: tuple[MovedFiles, ...] = ()
    ranges: Mapping[str, Any] = field(default_factory=dict)


NOTHING_PLANNED = PlannedRewrite(0, 0, 0, 0)


@frozen
class PlannedScan:
    """What a scan opens, according to Iceberg's own planning: a delete file counts once for each
    data file it applies to.

    ``manifests`` are the data manifests that planning read, ``seconds`` is the time of planning.
    """

    data_files: int
    data_bytes: int
    delete_opens: int
    manifests: int = 0
    seconds: float = 0.0


def filter_expression(spark: SparkSession, table_name: Identifier, where: str) -> Any:
    """A ``where`` converted to an Iceberg expression as Iceberg's procedures do; ``table_name`` has
    its catalog.
    """
    jvm: Any = spark._jvm
    converter = jvm.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
    spark_expression = converter.collectResolvedSparkExpression(
        spark._jsparkSession, identifier(*table_name), where
    )
    return converter.convertToIcebergExpression(spark_expression)


def plan_scan(spark: SparkSession, table: Identifier, where: str | None = None) -> PlannedScan:
    """Plan a scan of a table (named with its catalog) and count what it opens; one call, however
    many files.

    ``where`` is SQL that Iceberg accepts as a filter; errors are Spark's own.
    """
    jvm: Any = spark._jvm
    iceberg_table = load_latest_table(spark, table)
    metrics_reporter = jvm.org.apache.iceberg.metrics.InMemoryMetricsReporter()
    table_scan = (
        iceberg_table.newScan()
        .caseSensitive(is_case_sensitive(spark))
        .metricsReporter(metrics_reporter)
    )
    if where is not None:
        table_scan = table_scan.filter(filter_expression(spark, table, where))
    start_time = time.monotonic()
    # Planned by counting them in Java: none of the files comes over the bridge.
    scan_tasks = table_scan.planFiles()
    jvm.org.apache.iceberg.relocated.com.google.common.collect.Iterables.size(scan_tasks)
    scan_tasks.close()
    planning_seconds = time.monotonic() - start_time
    scan_report = metrics_reporter.scanReport()
    if scan_report is None:
        # A table without a snapshot is not planned at all.
        return PlannedScan(0, 0, 0)
    scan_metrics = scan_report.scanMetrics()
    return PlannedScan(
        int(scan_metrics.resultDataFiles().value()),
        int(scan_metrics.totalFileSizeInBytes().value()),
        int(scan_metrics.resultDeleteFiles().value()),
        int(scan_metrics.scannedDataManifests().value()),
        planning_seconds,
    )


@frozen
class RewriteGroups:
    """The groups that Iceberg's planner makes of the files of a rewrite, a Java list;
    ``left_out_group_count`` is the number of groups of files of older specs, which its filter also
    selects.

    ``java_rewrites`` counts what comes of the groups, and ``planner`` has the bounds of their
    files.
    """

    groups: Any
    left_out_group_count: int
    java_rewrites: Any
    planner: Any

    def rollup(self, *, keeps_order: bool) -> PlannedRewrite:
        """Add up the groups; ``keeps_order`` is for a rewrite that does not sort."""
        largest_file_bytes = self.planner.maxFileSize()
        rollup_totals = json.loads(
            str(self.java_rewrites.rolledUp(self.groups, keeps_order, largest_file_bytes))
        )
        moved_files = tuple(MovedFiles(*row) for row in rollup_totals.pop("moved"))
        return PlannedRewrite(
            files_out=rollup_totals.pop("written"), moved=moved_files, **rollup_totals
        )

    def ranges(self, max_files: int) -> dict[str, Any]:
        """The bounds of some files before and after the rewrite, as ``OrderedPlanner.ranges`` gives
        them.
        """
        ranges: dict[str, Any] = json.loads(
            str(self.planner.ranges(self.java_rewrites, self.groups, max_files))
        )
        return ranges


def plan_rewrite(
    spark: SparkSession,
    table_name: Identifier,
    table: Any,
    snapshot: Any,
    options: Mapping[str, str],
    *,
    where: str | None,
    stays_in_spec: bool,
    file_order_column: str | None = None,
    bounds_columns: Sequence[str] = (),
) -> RewriteGroups:
    """Iceberg's plan of a rewrite of a snapshot's data files; ``table`` and ``snapshot`` are
    objects of its API, and errors are the engine's own.

    ``stays_in_spec`` leaves out files of older specs, which a filter for partitions also selects
    where their column bounds allow it. The data files of a partition are taken in the order of the
    column ``file_order_column``; the groups have the bounds of the columns ``bounds_columns``.
    Options that the planner does not know are ignored.
    """
    planner = java_object(
        spark,
        table,
        "OrderedPlanner",
        table,
        _filter_or_all(spark, table_name, where),
        snapshot,
        is_case_sensitive(spark),
        file_order_column,
        list(bounds_columns),
    )
    java_rewrites = java_object(spark, table, "Rewrites", table)
    rewrite_plan = _plan_with_options(planner, options)
    file_groups = java_rewrites.groups(rewrite_plan.groups(), stays_in_spec)
    left_out_group_count = int(rewrite_plan.totalGroupCount()) - int(file_groups.size())
    return RewriteGroups(file_groups, left_out_group_count, java_rewrites, planner)


def plan_rewrite_of_deletes(
    spark: SparkSession,
    table_name: Identifier,
    table: Any,
    options: Mapping[str, str],
    *,
    where: str | None,
) -> PlannedRewrite:
    """What Iceberg's planner takes of the position delete files, and what their bytes come to; as
    :func:`plan_rewrite` does.
    """
    group_count = file_count = total_bytes = output_file_count = largest_group_bytes = 0
    for file_group in elements(
        deletes_plan(spark, table_name, table, options, where=where).groups()
    ):
        group_bytes = int(file_group.inputFilesSizeInBytes())
        group_count += 1
        file_count += int(file_group.inputFileNum())
        total_bytes += group_bytes
        output_file_count += int(file_group.expectedOutputFiles())
        largest_group_bytes = max(largest_group_bytes, group_bytes)
    return PlannedRewrite(
        group_count,
        file_count,
        total_bytes,
        output_file_count,
        largest_group_bytes=largest_group_bytes,
    )


def deletes_plan(
    spark: SparkSession,
    table_name: Identifier,
    table: Any,
    options: Mapping[str, str],
    *,
    where: str | None,
) -> Any:
    """Iceberg's own plan of a rewrite of position delete files."""
    iceberg_package: Any = spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    planner = iceberg_package.actions.BinPackRewritePositionDeletePlanner(
        table, _filter_or_all(spark, table_name, where), is_case_sensitive(spark)
    )
    return _plan_with_options(planner, options)


def _filter_or_all(spark: SparkSession, table_name: Identifier, where: str | None) -> Any:
    if where is not None:
        return filter_expression(spark, table_name, where)
    return spark._jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()  # type: ignore[union-attr]


def _plan_with_options(planner: Any, options: Mapping[str, str]) -> Any:
    """The planner's plan; options that it does not know are ignored."""
    valid_options = {str(option_name) for option_name in elements(planner.validOptions())}
    planner.init(
        {key: option_value for key, option_value in options.items() if key in valid_options}
    )
    return planner.plan()


def partitions_with_files_up_to(
    spark: SparkSession, groups: Any, sequence_number: int
) -> Iterator[tuple[str, ...]]:
    """The partitions, as Java's texts of their values, in which groups take a file that was there
    at a sequence number; again for each group.
    """
    jvm: Any = spark._jvm
    object_class = jvm.java.lang.Class.forName("java.lang.Object")
    for file_group in elements(groups):
        if any(
            int(task.file().fileSequenceNumber() or 0) <= sequence_number
            for task in elements(file_group.fileScanTasks())
        ):
            partition = file_group.info().partition()
            yield tuple(str(partition.get(i, object_class)) for i in range(int(partition.size())))


def query_execution(spark: SparkSession, sql: str, *, is_planned: bool = True) -> Any:
    """The execution of a statement, analysed, planned unless that is not wanted, and not run.

    Raises :class:`~icekit.common.errors.StatementRefused` for what Spark cannot analyse or plan.
    """
    jvm: Any = spark._jvm
    session_state = spark._jsparkSession.sessionState()
    with refuse_on_error("plan", "Fix the statement, or the tables that it reads."):
        execution_mode = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        execution = session_state.executePlan(
            session_state.sqlParser().parsePlan(sql), execution_mode
        )
        execution.assertAnalyzed()
        if is_planned:
            execution.executedPlan()
    return execution


@contextlib.contextmanager
def refuse_on_error(step_verb: str, advice: str) -> Iterator[None]:
    """Raise :class:`~icekit.common.errors.StatementRefused` for a statement with which Spark cannot
    do the step of the block.
    """
    from pyspark.errors import PySparkException

    try:
        with quiet_errors():
            yield
    except PySparkException as error:
        raise StatementRefused(
            f"Spark cannot {step_verb} the statement: {complaint(error)}. {advice}"
        ) from None


def frame_execution(frame: DataFrame) -> Any:
    """The execution of a frame; after it was collected, its plan has metrics."""
    java_frame: Any = frame
    return java_frame._jdf.queryExecution()


def executed_command_plan(frame: DataFrame) -> Any:
    """The physical plan of the statement that a frame of ``spark.sql`` has run; None where it was
    no command.
    """
    command_node = next(
        (
            n
            for n in walk_plan(frame_execution(frame).commandExecuted())
            if node_class(n) == "CommandResult"
        ),
        None,
    )
    return None if command_node is None else command_node.commandPhysicalPlan()


def is_command(spark: SparkSession, query: Any) -> bool:
    """Tell whether an analysed statement is a command, as a DELETE or an INSERT is, and no
    query.
    """
    from py4j.java_gateway import is_instance_of

    return bool(
        is_instance_of(
            spark._sc._gateway,
            query.analyzed(),
            "org.apache.spark.sql.catalyst.plans.logical.Command",
        )
    )


def node_class(node: Any) -> str:
    """The class of a node of a plan, or of a parse tree, without its package and ``Context``."""
    return str(node.getClass().getSimpleName()).removesuffix("Context")


def metric(node: Any, metric_name: str) -> int:
    """A metric of a node of a plan that was run; 0 where it has none of that name."""
    metric_option = node.metrics().get(metric_name)
    return int(metric_option.get().value()) if metric_option.isDefined() else 0


def is_scan_of(node: Any, table: Identifier) -> bool:
    """Tell whether a node of a plan scans a table that is named with its catalog."""
    if node_class(node) != "BatchScanExec":
        return False
    # What Iceberg calls a table ends with its branch, where one is read.
    scanned_name = str(node.table().name()).replace("`", "")
    table_name = ".".join(table).replace("`", "")
    return scanned_name == table_name or scanned_name.startswith(f"{table_name} ")


def walk_plan(node: Any) -> Iterator[Any]:
    """A plan's nodes from the top down, through what adaptive execution wraps."""
    yield node
    for child in child_nodes(node):
        yield from walk_plan(child)


def nodes_with_match_filters(node: Any) -> Iterator[Any]:
    """A plan's nodes, and those of the sub-queries by which a copy-on-write MERGE looks for
    matches.
    """
    for plan_node in walk_plan(node):
        yield plan_node
        if node_class(plan_node) == "BatchScanExec":
            for match_filter_plan in match_filter_plans(plan_node):
                yield from nodes_with_match_filters(match_filter_plan)


def match_filter_plans(scan_node: Any) -> Iterator[Any]:
    """The plans of the sub-queries by which a copy-on-write MERGE looks for matches, before it
    scans.
    """
    for runtime_filter in elements(scan_node.runtimeFilters()):
        if "_file" in str(runtime_filter.toString()):
            with contextlib.suppress(Exception):
                yield runtime_filter.child().plan()


def child_nodes(node: Any) -> Iterator[Any]:
    """The nodes right below one, through what adaptive execution wraps."""
    class_name = node_class(node)
    if class_name == "AdaptiveSparkPlanExec":
        yield node.executedPlan() if node.isFinalPlan() else node.initialPlan()
    elif class_name.endswith("QueryStageExec"):
        yield node.plan()
    elif class_name in {"SubqueryExec", "SubqueryAdaptiveBroadcastExec", "ReusedSubqueryExec"}:
        yield node.child()
    else:
        yield from elements(node.children())
