"""Plan the conversion of a table's equality deletes: its batches, and a prediction for each."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.errors import ParameterError
from icekit.common.parsing import size_in_bytes
from icekit.common.sql import Identifier, display_name, identifier
from icekit.common.terminal import quiet_errors
from icekit.common.units import count, count_with_verb, shorten, size
from icekit.engine.bridge import is_case_sensitive, require_classic
from icekit.engine.cluster import Executor, cluster_of
from icekit.engine.errors import engine_errors, reason
from icekit.engine.planner import filter_expression
from icekit.engine.predicate import read_predicate
from icekit.health.facts.head import head
from icekit.health.facts.heap import HeapForecast, forecast_heap
from icekit.health.facts.model import TableFacts
from icekit.iceberg.definition import PartitionSpec, other_optimizer
from icekit.iceberg.metadata import check_clock, properties_of
from icekit.iceberg.values import partition_path
from icekit.maintain.action import CONVERT, Action
from icekit.maintain.engine_prediction import Speed
from icekit.maintain.plan import Plan, statistics_notes
from icekit.maintain.planning.table_plan import past_speed
from icekit.maintain.prediction import EQUALITY_DELETE, Certainty, Prediction
from icekit.maintain.record.claims import now_ms
from icekit.maintain.record.ledger import Ledger
from icekit.rows.deletes.conversion_inputs import SnapshotDeletes, remaining_deletes
from icekit.rows.deletes.listing import AppliedDeletes, Scope, conversion_reads, data_under_deletes
from icekit.rows.deletes.resolved import require_readable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.engine.lake import Lake

#: Approximate number of files in one commit: the driver holds a row for each while it runs.
MAX_FILES = 20_000
#: Bytes of one row or delete record in a shuffle: its key, its place and its age.
RECORD_BYTES = 100
#: Share of the free disk where Spark spills, in local mode; elsewhere the free space is unknown.
DISK_SHARE = 0.5
CLUSTER_BATCH_BYTES = 200 * 10**9


@frozen
class Batch:
    """Scopes converted together, in ``slice_count`` commits, each for part of the data files."""

    scopes: tuple[Scope, ...]
    slice_count: int = 1

    @property
    def shuffle_bytes(self) -> int:
        """Disk space of rows and deletes while they are joined, all slices together."""
        return sum(_shuffle_bytes(scope) for scope in self.scopes)


def forecast_facts(lake: Lake, facts: TableFacts, executor: Executor | str = "") -> HeapForecast:
    """Forecast how much of an executor's heap Spark's own reading and rewriting of a table take.

    ``executor`` is an :class:`Executor`, or a text for :meth:`Executor.parse`; the default is the
    executor of the lake's session.
    """
    if isinstance(executor, str):
        executor = Executor.parse(executor) if executor else cluster_of(lake.spark).executor
    return forecast_heap(facts, executor)


def plan_conversion(
    lake: Lake,
    table: Identifier | str,
    *,
    where: str | None = None,
    branch: str | None = None,
    batch_bytes: int | str | None = None,
    ledger: Ledger | str | None = None,
) -> Plan:
    """Plan the conversion of a table's equality deletes into position deletes; runs nothing.

    ``where`` (SQL) selects the complete partitions that may hold matching rows; deletes that apply
    to every partition then stay. ``batch_bytes`` is how much space one batch may take on the disks
    that Spark spills to ("200 GB"; default: half of the free space, in local mode). Raises
    :class:`~icekit.common.errors.ClassicSessionRequired` over Spark Connect, and the errors of
    :mod:`icekit.common.errors`.
    """
    table_name = lake.identifier(table)
    sql_name = lake.sql_name(table_name)
    spark = lake.spark
    require_classic(spark)
    budget_bytes = _batch_budget(lake, batch_bytes)
    lake.tables.source(table_name)  # raises the usual errors for a missing table or a view
    require_readable(lake, table_name, "nothing is converted")
    iceberg_filter = None if where is None else _iceberg_filter(spark, sql_name, where)
    check_clock(head(lake, table_name).metadata, display_name(table_name), now_ms())
    snapshot_deletes = remaining_deletes(spark, sql_name, branch=branch)
    if snapshot_deletes is None or not snapshot_deletes.scopes:
        table_uuid = str(snapshot_deletes.metadata.get("table-uuid")) if snapshot_deletes else None
        return Plan(
            lake.name,
            table_name,
            table_uuid,
            None,
            branch,
            (),
            notes=("The table has no equality deletes.",),
            converts=True,
        )
    selected_scopes: Sequence[Scope] = snapshot_deletes.scopes
    filter_notes: tuple[str, ...] = ()
    if iceberg_filter is not None:
        selected_scopes, filter_notes = _selected_scopes(spark, snapshot_deletes, iceberg_filter)
    speed = past_speed(ledger, display_name(sql_name), EQUALITY_DELETE)
    max_sequence_number = max((s.max_sequence for s in selected_scopes), default=0)
    shared_fields = Action("", CONVERT, lake.name, table_name, "", Prediction(), branch=branch)
    applied_by_scope = snapshot_deletes.listing.applied_by_scope()
    actions = tuple(
        _batch_action(
            replace(shared_fields, action_id=f"e{batch_number}"),
            batch,
            snapshot_deletes.specs,
            speed,
            max_sequence_number,
            applied_by_scope,
        )
        for batch_number, batch in enumerate(batches(selected_scopes, budget_bytes), 1)
    )
    plan_notes: list[str] = []
    if actions:
        plan_notes += statistics_notes(
            lake.name, table_name, snapshot_deletes.metadata, snapshot_deletes.snapshot_id
        )
        plan_notes += _notes(snapshot_deletes.metadata)
    return Plan(
        lake.name,
        table_name,
        str(snapshot_deletes.metadata.get("table-uuid")),
        snapshot_deletes.snapshot_id,
        branch,
        actions,
        notes=(*filter_notes, *plan_notes),
        made_at_ms=int(time.time() * 1000),
        converts=True,
    )


def _selected_scopes(
    spark: SparkSession, snapshot_deletes: SnapshotDeletes, iceberg_filter: Any
) -> tuple[Sequence[Scope], tuple[str, ...]]:
    """The deletes of the partitions that a filter selects, and a note on what it cannot select."""
    filtered_partitions, is_narrowing = snapshot_deletes.listing.matching_partitions(
        iceberg_filter, case_sensitive=is_case_sensitive(spark)
    )
    selected_scopes = [
        s for s in snapshot_deletes.scopes if not s.is_global and s.partition in filtered_partitions
    ]
    global_file_count = sum(s.delete_files for s in snapshot_deletes.scopes if s.is_global)
    applies_by_note = {
        "The partitions that the filter selects have no equality deletes.": not selected_scopes,
        "The filter uses no partition column, so it selects every partition.": not is_narrowing,
        f"Left in place: {count(global_file_count, EQUALITY_DELETE)} that can apply to any "
        "partition. Convert without a filter to remove them.": global_file_count,
    }
    return selected_scopes, tuple(note for note, applies in applies_by_note.items() if applies)


def _iceberg_filter(spark: SparkSession, table: Identifier, filter_sql: str) -> Any:
    """A person's filter as Iceberg's expression; raises
    :class:`~icekit.common.errors.ParameterError` if Iceberg cannot use it.
    """
    spark_predicate = read_predicate(spark, spark.table(identifier(*table)), filter_sql)
    try:
        with quiet_errors():
            return filter_expression(spark, table, spark_predicate)
    except engine_errors() as error:
        raise ParameterError(
            f"Iceberg cannot select partitions with the filter {shorten(filter_sql, 200)!r} "
            f"({reason(error)}). Compare columns with values (=, <, >, IN, IS NULL, LIKE 'a%'), "
            "without functions of columns other than partition transforms."
        ) from None


def batches(scopes: Sequence[Scope], budget_bytes: int) -> list[Batch]:
    """Pack partitions into batches that fit a disk and a driver; global deletes come last, with all
    data files.

    A partition that is too large for one commit is sliced by data files. Pure.
    """
    scope_batches: list[list[Scope]] = []
    batch_bytes = batch_files = 0
    for scope in sorted((s for s in scopes if not s.is_global), key=lambda s: s.scope_index):
        batch_bytes += _shuffle_bytes(scope)
        batch_files += scope.data_files + scope.delete_files
        if scope_batches and batch_bytes <= budget_bytes and batch_files <= MAX_FILES:
            scope_batches[-1].append(scope)
        else:
            scope_batches.append([scope])
            batch_bytes = _shuffle_bytes(scope)
            batch_files = scope.data_files + scope.delete_files
    global_scopes = [s for s in scopes if s.is_global]
    return [
        Batch(tuple(batch_scopes), _slice_count(batch_scopes, budget_bytes))
        for batch_scopes in (*scope_batches, global_scopes)
        if batch_scopes
    ]


def _slice_count(scopes: Sequence[Scope], budget_bytes: int) -> int:
    """The number of slices that the rows must be cut into; each slice reads all the deletes."""
    delete_bytes = sum(s.delete_records for s in scopes) * RECORD_BYTES
    row_bytes = max(s.data_records for s in scopes) * RECORD_BYTES
    slices_by_files = math.ceil(max(s.data_files for s in scopes) / MAX_FILES)
    fits_budget = row_bytes + delete_bytes <= budget_bytes
    slices_by_disk = (
        1
        if fits_budget
        else math.ceil(row_bytes / max(budget_bytes - delete_bytes, budget_bytes // 4, 1))
    )
    return max(1, slices_by_files, slices_by_disk)


def _shuffle_bytes(scope: Scope) -> int:
    return (scope.data_records + scope.delete_records) * RECORD_BYTES


def _batch_action(
    shared_fields: Action,
    batch: Batch,
    specs_by_id: Mapping[int, PartitionSpec],
    speed: Speed | None,
    max_sequence_number: int,
    applied_by_scope: Mapping[int, AppliedDeletes],
) -> Action:
    """The action of a batch; ``shared_fields`` holds what all actions share, ``speed`` is that of
    past conversions, ``applied_by_scope`` what a scan applies of each scope, by its number.
    """
    scopes = batch.scopes
    delete_file_count = sum(s.delete_files for s in scopes)
    delete_record_count = sum(s.delete_records for s in scopes)
    data_file_count, _, _ = data_under_deletes(scopes)
    _, bytes_read = conversion_reads(scopes)
    applied_deletes = [applied_by_scope.get(s.scope_index, AppliedDeletes()) for s in scopes]
    # Global deletes of several specs may apply to the same data file.
    reached_file_count = min(
        sum(deletes.data_files for deletes in applied_deletes), data_file_count
    )
    return replace(
        shared_fields,
        why=_why(batch, delete_record_count, applied_deletes, reached_file_count),
        prediction=Prediction(
            files_in=delete_file_count,
            bytes_in=bytes_read,
            files_out=reached_file_count,
            data_files_read=data_file_count,
            delete_files_removed=delete_file_count,
            groups=batch.slice_count,
            shuffle_bytes=batch.shuffle_bytes,
            seconds=speed.seconds(bytes_read) if speed else None,
            source="metadata",
            unit=EQUALITY_DELETE,
            certainty=Certainty.AT_MOST if reached_file_count else Certainty.EXACT,
        ),
        partitions=tuple(s.partition for s in scopes),
        partition_names=tuple(
            partition_path(specs_by_id[s.partition.spec_id], s.partition.values) or "whole table"
            for s in scopes[:3]
        ),
        arguments={"up_to": max_sequence_number, "slices": batch.slice_count},
    )


def _why(
    batch: Batch,
    delete_record_count: int,
    applied_deletes: Sequence[AppliedDeletes],
    reached_file_count: int,
) -> str:
    """What the deletes of a batch apply to, and how they are joined to it."""
    records_apply_text = count_with_verb(delete_record_count, "delete record", "applies", "apply")
    if not reached_file_count:
        return (
            f"{records_apply_text} to no data file, because the key ranges of all older data files rule "
            "their keys out: the delete files are removed, and nothing replaces them"
        )
    applied_record_count = sum(deletes.delete_records for deletes in applied_deletes)
    row_count = sum(deletes.data_records for deletes in applied_deletes)
    applied_count_text = (
        f"{applied_record_count:,} of " if applied_record_count < delete_record_count else ""
    )
    return (
        f"{applied_count_text}{records_apply_text} to {count(reached_file_count, 'data file')} with "
        f"{count(row_count, 'row')}: Spark reads and deduplicates them once, and joins them using at "
        f"most {size(batch.shuffle_bytes)} of spill space, in {count(batch.slice_count, 'commit')}"
    )


def _notes(metadata: Any) -> Iterable[str]:
    """How the commit appears to readers of the change stream, and who else maintains the table."""
    new_file_kind = (
        "deletion vectors"
        if int(metadata.get("format-version", 2)) >= 3
        else "position delete files"
    )
    yield (
        f"Each commit adds {new_file_kind} and removes equality deletes; no row changes. The commit "
        "is a `delete` (or, where no row is hit, an `overwrite`) and not a `replace`: Spark "
        "streaming readers stop at such a commit unless streaming-skip-delete-snapshots "
        "(streaming-skip-overwrite-snapshots) is set; Flink's incremental reads, which take only "
        "appends, skip it."
    )
    optimizer = other_optimizer(properties_of(metadata), str(metadata["location"]))
    if optimizer is not None:
        yield optimizer.note


def _batch_budget(lake: Lake, batch_bytes: int | str | None) -> int:
    if batch_bytes is not None:
        stated_bytes = size_in_bytes(str(batch_bytes))
        if stated_bytes <= 0:
            raise ParameterError(
                f"A batch of {batch_bytes} is too small. Give the disk space that a batch may "
                "use, such as '200 GB'."
            )
        return stated_bytes
    spark_context: Any = lake.spark.sparkContext
    if not str(spark_context.master).startswith("local"):
        return CLUSTER_BATCH_BYTES
    spill_folder = spark_context.getConf().get("spark.local.dir", None) or tempfile.gettempdir()
    return int(shutil.disk_usage(spill_folder.split(",")[0]).free * DISK_SHARE)
