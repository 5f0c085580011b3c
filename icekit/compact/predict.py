"""Ask the engine's own planner what a rewrite would take, without running it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from icekit.compact.deletes import dropped_by
from icekit.compact.model import Action
from icekit.engine.bridge import elements, has_bridge, load_table
from icekit.engine.errors import explain
from icekit.facts.files import Partition
from icekit.facts.model import TableFacts
from icekit.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Files whose deletes are asked for one by one.
MAX_FILES_LOOKED_AT = 5_000


@dataclass(frozen=True, slots=True)
class Planned:
    """What the planner would rewrite now: groups, files and bytes in, files out; a rollup, whatever the table's size.

    ``delete_files`` counts the delete files over them, each beside each of its data files; None
    where it was not asked, or there are too many to ask.
    """

    groups: int
    files_in: int
    bytes_in: int
    files_out: int
    delete_files: int | None = None
    largest_group_bytes: int = 0


def load(spark: SparkSession, name: tuple[str, ...]) -> Any:
    """The table as Iceberg's Java API knows it, as it is now; ``name`` has its catalog."""
    spark.sql(f"REFRESH TABLE {identifier(*name)}")
    return load_table(spark, name)


def filter_expression(spark: SparkSession, name: tuple[str, ...], where: str) -> Any:
    """A ``where`` as the procedure turns it into an Iceberg expression."""
    jvm: Any = spark._jvm
    converter = jvm.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
    resolved = converter.collectResolvedSparkExpression(spark._jsparkSession, identifier(*name), where)
    return converter.convertToIcebergExpression(resolved)


def ask_planner(spark: SparkSession, action: Action, *, deletes: bool = False) -> Planned:
    """What ``rewrite_data_files`` would rewrite with this action's filter and options, by its own planner.

    ``deletes`` also counts the delete files over them. Needs the JVM bridge; raises the errors
    of :mod:`icekit.errors`.
    """
    plan = _plan(spark, action)
    return rolled_up(plan, deletes=deletes) if plan is not None else Planned(0, 0, 0, 0)


def partitions_left(spark: SparkSession, action: Action, sequence_number: int) -> tuple[Partition, ...] | None:
    """The partitions in which the planner selects a file that was there at a sequence number.

    What a run has written itself may be selected again (deletes of the sequence number that
    it starts from still apply to its files), and is not left to do. None where groups cannot be
    told by partition: those of older specs.
    """
    plan = _plan(spark, action)
    if plan is None:
        return ()
    known = {_java_values(p): p for p in action.partitions}
    jvm: Any = spark._jvm
    kind = jvm.java.lang.Class.forName("java.lang.Object")
    found: list[Partition] = []
    for group in elements(plan.groups()):
        if any(int(task.file().fileSequenceNumber() or 0) <= sequence_number for task in elements(group.fileScanTasks())):
            struct = group.info().partition()
            values = tuple(str(struct.get(place, kind)) for place in range(int(struct.size())))
            if values not in known:
                return None
            found.append(known[values])
    return tuple(dict.fromkeys(found))


def _java_values(partition: Partition) -> tuple[str, ...]:
    """Partition values as the texts that Java's give; those that differ are not found, and nothing is left out then."""
    return tuple(str(value) for value in partition.values)


def _plan(spark: SparkSession, action: Action) -> Any:
    """The engine's plan, None for a table without a snapshot."""
    name = (action.catalog, *action.table)
    try:
        table = load(spark, name)
        jvm: Any = spark._jvm
        snapshot = table.snapshot(action.branch) if action.branch else table.currentSnapshot()
        if snapshot is None:
            return None
        expression, sensitive = asked_of(spark, action)
        planner = jvm.org.apache.iceberg.actions.BinPackRewriteFilePlanner(table, expression, snapshot.snapshotId(), sensitive)
        return planned_by(planner, action)
    except Exception as error:
        raise explain(error, name) from error


def asked_of(spark: SparkSession, action: Action) -> tuple[Any, bool]:
    """The files an action's ``where`` asks a planner for, and whether names in it are case-sensitive."""
    jvm: Any = spark._jvm
    expressions = jvm.org.apache.iceberg.expressions.Expressions
    name = (action.catalog, *action.table)
    expression = expressions.alwaysTrue() if action.where is None else filter_expression(spark, name, action.where)
    return expression, is_case_sensitive(spark)


def is_case_sensitive(spark: SparkSession) -> bool:
    """Tell whether the session tells names apart by their case."""
    return str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def planned_by(planner: Any, action: Action) -> Any:
    """The plan of one of the engine's planners, given those of the action's options that it knows."""
    valid = {str(option) for option in elements(planner.validOptions())}
    planner.init({key: value for key, value in action.options.items() if key in valid})
    return planner.plan()


def rolled_up(plan: Any, *, deletes: bool = False) -> Planned:
    """Add up the groups of an engine's plan; ``deletes`` also counts the delete files over data files."""
    groups = files = total = out = largest = 0
    over: int | None = 0 if deletes else None
    for group in elements(plan.groups()):
        count, size = int(group.inputFileNum()), int(group.inputFilesSizeInBytes())
        groups, files, total, largest = groups + 1, files + count, total + size, max(largest, size)
        out += int(group.expectedOutputFiles())
        if over is not None:
            over = (
                None if files > MAX_FILES_LOOKED_AT else over + sum(int(task.deletes().size()) for task in elements(group.fileScanTasks()))
            )
    return Planned(groups, files, total, out, over, largest)


def predict(
    spark: SparkSession | None,
    facts: TableFacts,
    action: Action,
    *,
    sequence_number: int,
    bytes_ratio: float = 1.0,
    bytes_per_second: float | None = None,
) -> Action:
    """The action with the engine's prediction in place of the estimate it was chosen by.

    ``bytes_ratio`` is bytes written per live byte read, from a trial or past runs.
    ``bytes_per_second`` is the throughput of past runs. Without a bridge the estimate stays,
    and says so by its source.
    """
    estimate = action.prediction
    if estimate.source == "metadata":
        return action
    if spark is not None and has_bridge(spark):
        # Only where deletes decide which files are taken must each file be looked at.
        by_ratio = "delete-ratio-threshold" in action.options
        planned = ask_planner(spark, action, deletes=by_ratio)
        removed = planned.delete_files or 0
        if not by_ratio and action.options.get("remove-dangling-deletes") == "true":
            renewed = action.options.get("use-starting-sequence-number") == "false"
            removed = dropped_by(facts, action.partitions, sequence_number + renewed)
        live = estimate.bytes_out / estimate.bytes_in if estimate.bytes_in else 1.0
        estimate = replace(
            estimate,
            files_in=planned.files_in,
            bytes_in=planned.bytes_in,
            files_out=planned.files_out,
            bytes_out=round(planned.bytes_in * live * bytes_ratio),
            bytes_untaught=round(planned.bytes_in * live),
            delete_files_removed=removed,
            groups=planned.groups,
            file_opens_saved=max(estimate.file_opens_saved - (estimate.files_in - estimate.files_out), 0)
            + max(planned.files_in - planned.files_out, 0),
            source="planner",
        )
    else:
        estimate = replace(estimate, bytes_out=round(estimate.bytes_out * bytes_ratio))
    return replace(
        action,
        prediction=replace(
            estimate,
            shuffle_bytes=estimate.bytes_in if action.order.is_sorting else 0,
            seconds=estimate.bytes_in / bytes_per_second if bytes_per_second else None,
        ),
    )
