"""Write rows of a table again as one commit, and measure its files: by Iceberg's metadata, and the
shuffle by Spark's own metrics.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.sql import Identifier, identifier, literal
from icekit.common.units import count, size
from icekit.engine.metadata_tables import metadata_table
from icekit.engine.planner import (
    executed_command_plan,
    metric,
    node_class,
    nodes_with_match_filters,
)
from icekit.health.facts.model import TableFacts
from icekit.iceberg.file_kind import Kind
from icekit.sandbox.trial import Sandbox, groups_within

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Choices: how far below the target a file may be; target sizes that a partition of a large commit
# should have; recent commits to choose from.
TOLERANCE = 0.15
ENOUGH = 12
_RECENT = 20
#: Spark's split of a large file; a writer's task reads about as much.
_SPLIT_BYTES = 128 << 20
_MIN_SPLIT_BYTES = 64 << 10
#: A commit with more files than this for each partition and each target size did not bring its
# rows together.
_SCATTERED = 2.0
_ALONE = str(2**40)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRows:
    """Rows of a table to write again, which have ``size_in_bytes`` in it now.

    ``read_options`` are those of the read, ``where_sql`` filters it, and ``task_count`` tasks get
    the rows in no particular order, if it is not 0.
    """

    description: str
    table: Identifier
    size_in_bytes: int
    read_options: Mapping[str, str] = field(default_factory=dict)
    where_sql: str = ""
    task_count: int = 0


def typical_commit_rows(
    facts: TableFacts, *, sample_bytes: int, task_count: int
) -> TrialRows | None:
    """The rows of a recent append of median size; None if the snapshots have none, or it is too
    large.

    Rows that a commit did not bring together are read with one task for each file: the tasks that
    wrote them. Of others the original distribution is not known, so ``task_count`` read them in no
    particular order.
    """
    appends_with_parents = [
        (parent_commit, commit)
        for parent_commit, commit in pairwise(facts.history.commits)
        if commit.operation == "append" and commit.added_data_files and commit.added_records
    ][-_RECENT:]
    if not appends_with_parents:
        return None
    appends_with_parents.sort(key=lambda pair: pair[1].added_records or 0)
    parent_commit, commit = appends_with_parents[(len(appends_with_parents) - 1) // 2]
    added_bytes = commit.added_bytes or 0
    if added_bytes > sample_bytes:
        return None
    is_scattered_commit = (commit.added_data_files or 1) >= _SCATTERED * (
        (commit.changed_partitions or 1) + added_bytes // facts.target_bytes
    )
    reading_text = f"read by {count(task_count, 'task')} in no particular order"
    read_options = {
        "start-snapshot-id": str(parent_commit.snapshot_id),
        "end-snapshot-id": str(commit.snapshot_id),
    }
    if is_scattered_commit:
        reading_text = "one task per file that it wrote"
        task_count = 0
        read_options["file-open-cost"] = _ALONE
    return TrialRows(
        description=(
            f"the rows of a typical commit ({commit.added_records or 0:,} rows, {reading_text})"
        ),
        table=facts.sql_name,
        size_in_bytes=added_bytes,
        read_options=read_options,
        task_count=task_count,
    )


def trial_target_bytes(facts: TableFacts, sample_bytes: int) -> int:
    """The target size for the trial: the table's own, or a smaller one if the sample has too few
    files of that size.
    """
    largest_partition_bytes = max((g.size_in_bytes for g in facts.of_kind(Kind.DATA)), default=0)
    needed_partition_bytes = ENOUGH * facts.target_bytes
    return (
        facts.target_bytes
        if largest_partition_bytes < needed_partition_bytes
        or needed_partition_bytes <= sample_bytes
        else max(1, sample_bytes // ENOUGH)
    )


def large_commit_rows(
    facts: TableFacts, data_files_sql: str, *, target_bytes: int, sample_bytes: int
) -> TrialRows | None:
    """Rows of the largest partitions, enough for several files of the target size where the table
    has them; None without rows.

    They are read by tasks of a quarter of the target, as Spark's splits of 128 MB are of 512 MB.
    ``data_files_sql`` is SQL for that metadata table.
    """
    partition_groups = sorted(
        (g for g in facts.of_kind(Kind.DATA) if g.size_in_bytes), key=lambda g: -g.size_in_bytes
    )
    if not partition_groups:
        return None
    needed_bytes = min(sample_bytes, ENOUGH * target_bytes * 5 // 4)
    # The smallest group that has enough by itself, else the largest ones until there is enough.
    sufficient_groups = [g for g in partition_groups if g.size_in_bytes >= needed_bytes]
    selected_groups = (
        sufficient_groups[-1:]
        or groups_within(partition_groups[: ENOUGH * 4], needed_bytes)[:ENOUGH]
    )
    partitions = [g.partition for g in selected_groups]
    partition_predicate = (
        facts.where(partitions, is_for_query=True)
        if len(selected_groups) < len(partition_groups)
        else None
    )
    source_groups = selected_groups if partition_predicate else partition_groups
    source_bytes = sum(g.size_in_bytes for g in source_groups)
    sampled_share = min(1.0, needed_bytes / source_bytes)
    row_conditions = [f"({partition_predicate})"] if partition_predicate else []
    if sampled_share < 0.9:
        # Whole files, so that rows stay as near each other as they are; of a few that are large,
        # rows.
        paths_sql = (
            f"SELECT file_path FROM {data_files_sql} WHERE pmod(xxhash64(file_path), 1000) < "
            f"{max(1, round(sampled_share * 1000))}"
        )
        has_enough_files = facts.data.file_count * sampled_share >= ENOUGH * 4
        row_conditions.append(
            f"_file IN ({paths_sql})" if has_enough_files else f"rand(7) < {sampled_share:.6f}"
        )
    else:
        sampled_share = 1.0
    split_bytes = max(_MIN_SPLIT_BYTES, min(_SPLIT_BYTES, target_bytes // 4))
    sampled_bytes = round(source_bytes * sampled_share)
    return TrialRows(
        description=(
            f"{size(sampled_bytes)} of rows of {count(len(source_groups), 'partition')} in one "
            f"commit (read by tasks of {size(split_bytes)})"
        ),
        table=facts.sql_name,
        size_in_bytes=sampled_bytes,
        read_options={"split-size": str(split_bytes), "file-open-cost": "0"},
        where_sql=" AND ".join(row_conditions),
    )


@frozen
class CommittedFiles:
    """The data files of one commit.

    ``shuffle_bytes`` is what adaptive execution took the shuffle for (0: no shuffle).
    """

    file_count: int
    size_in_bytes: int
    largest_partition_bytes: int
    shuffle_bytes: int = 0
    write_seconds: float = 0.0


def write_trial_rows(
    box: Sandbox, trial_rows: TrialRows, session_settings: Mapping[str, str]
) -> CommittedFiles:
    """Write a trial's rows to a sandbox under temporary session settings, and measure the
    commit.
    """
    with _temporary_view(box.lake.spark, trial_rows) as view_name:
        sql = f"INSERT INTO {identifier(*box.name)} SELECT * FROM {identifier(view_name)}"
        execution = box.run(sql, expected_bytes=trial_rows.size_in_bytes, settings=session_settings)
    if not execution.snapshots:
        return CommittedFiles(0, 0, 0, write_seconds=execution.seconds)
    snapshot_id = int(execution.snapshots[-1]["snapshot-id"])
    manifest_entries = metadata_table(box.lake.spark, box.name, "entries", snapshot_id)
    # The entries of a table without partitions have no such column.
    data_file_schema: Any = manifest_entries.select("data_file.*").schema
    partition_sql = "data_file.partition" if "partition" in data_file_schema.fieldNames() else "''"
    totals_row = box.lake.spark.sql(
        f"""SELECT coalesce(sum(n), 0) AS file_count, coalesce(sum(b), 0) AS size_in_bytes,
              coalesce(max(b), 0) AS largest_partition_bytes
            FROM (SELECT count(*) AS n, sum(s) AS b
                  FROM (SELECT data_file.file_size_in_bytes AS s, data_file.spec_id AS spec,
                          {partition_sql} AS p
                        FROM {{entries}}
                        WHERE status = 1 AND snapshot_id = {literal(snapshot_id)}
                          AND data_file.content = 0)
                  GROUP BY spec, p)""",
        entries=manifest_entries,
    ).collect()[0]
    return CommittedFiles(
        **{column_name: int(total) for column_name, total in totals_row.asDict().items()},
        shuffle_bytes=_shuffle_bytes(executed_command_plan(execution.frame)),
        write_seconds=execution.seconds,
    )


@contextlib.contextmanager
def _temporary_view(spark: SparkSession, trial_rows: TrialRows) -> Iterator[str]:
    """The name of a temporary view of a trial's rows: the SQL of Spark 3.5 takes no options of a
    read.
    """
    rows_frame = spark.read.options(**trial_rows.read_options).table(identifier(*trial_rows.table))
    rows_frame = rows_frame.where(trial_rows.where_sql) if trial_rows.where_sql else rows_frame
    view_name = f"icekit_{uuid.uuid4().hex}"
    (
        rows_frame.repartition(trial_rows.task_count) if trial_rows.task_count else rows_frame
    ).createTempView(view_name)
    try:
        yield view_name
    finally:
        spark.catalog.dropTempView(view_name)


def _shuffle_bytes(physical_plan: Any) -> int:
    """The bytes of the last shuffle before the writer, from the metrics of the plan that was run; 0
    where there is none.
    """
    shuffle_read_bytes = 0
    for plan_node in nodes_with_match_filters(physical_plan) if physical_plan is not None else ():
        if node_class(plan_node) == "AQEShuffleReadExec":
            shuffle_read_bytes = shuffle_read_bytes or metric(plan_node, "partitionDataSize")
        elif node_class(plan_node) == "ShuffleExchangeExec":
            # Round robin is a shuffle of the trial's own rows, not of the writer.
            is_round_robin = "RoundRobin" in str(plan_node.outputPartitioning().toString())
            return (
                0
                if is_round_robin
                else shuffle_read_bytes or metric(plan_node, "shuffleBytesWritten")
            )
    return 0
