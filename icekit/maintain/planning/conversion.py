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
from icekit.rows.deletes.find import SnapshotDeletes, remaining
from icekit.rows.deletes.listing import AppliedDeletes, Scope, data_under, read_of
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
    """Scopes converted together, in ``slices`` commits, each for part of the data files."""

    scopes: tuple[Scope, ...]
    slices: int = 1

    @property
    def shuffle_bytes(self) -> int:
        """Disk space of rows and deletes while they are joined, all slices together."""
        return sum(_bytes(scope) for scope in self.scopes)


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
    name = lake.identifier(table)
    full = lake.sql_name(name)
    spark = lake.spark
    require_classic(spark)
    budget = _budget(lake, batch_bytes)
    lake.tables.source(name)  # raises the usual errors for a missing table or a view
    require_readable(lake, name, "nothing is converted")
    asked_for = None if where is None else _files_of(spark, full, where)
    check_clock(head(lake, name).metadata, display_name(name), now_ms())
    snapshot_deletes = remaining(spark, full, branch=branch)
    if snapshot_deletes is None or not snapshot_deletes.scopes:
        uuid = str(snapshot_deletes.metadata.get("table-uuid")) if snapshot_deletes else None
        none = ("The table has no equality deletes.",)
        return Plan(lake.name, name, uuid, None, branch, (), notes=none, converts=True)
    chosen_scopes, notes = (
        (snapshot_deletes.scopes, ())
        if asked_for is None
        else _chosen(spark, snapshot_deletes, asked_for)
    )
    speed = past_speed(ledger, display_name(full), EQUALITY_DELETE)
    up_to = max((s.max_sequence for s in chosen_scopes), default=0)
    shared = Action("", CONVERT, lake.name, name, "", Prediction(), branch=branch)
    applied = snapshot_deletes.listing.applied()
    actions = tuple(
        _action(
            replace(shared, action_id=f"e{number}"),
            batch,
            snapshot_deletes.specs,
            speed,
            up_to,
            applied,
        )
        for number, batch in enumerate(batches(chosen_scopes, budget), 1)
    )
    of_statistics = statistics_notes(
        lake.name, name, snapshot_deletes.metadata, snapshot_deletes.snapshot_id
    )
    return Plan(
        lake.name,
        name,
        str(snapshot_deletes.metadata.get("table-uuid")),
        snapshot_deletes.snapshot_id,
        branch,
        actions,
        notes=(*notes, *((*of_statistics, *_notes(snapshot_deletes.metadata)) if actions else ())),
        made_at_ms=int(time.time() * 1000),
        converts=True,
    )


def _chosen(
    spark: SparkSession, snapshot_deletes: SnapshotDeletes, asked_for: Any
) -> tuple[Sequence[Scope], tuple[str, ...]]:
    """The deletes of the partitions that a filter selects, and a note on what it cannot select."""
    filtered_partitions, narrows = snapshot_deletes.listing.where(
        asked_for, case_sensitive=is_case_sensitive(spark)
    )
    chosen_scopes = [
        s for s in snapshot_deletes.scopes if not s.is_global and s.partition in filtered_partitions
    ]
    global_files = sum(s.delete_files for s in snapshot_deletes.scopes if s.is_global)
    notes = {
        "The partitions that the filter selects have no equality deletes.": not chosen_scopes,
        "The filter uses no partition column, so it selects every partition.": not narrows,
        f"Left in place: {count(global_files, EQUALITY_DELETE)} that can apply to any partition. "
        "Convert without a filter to remove them.": global_files,
    }
    return chosen_scopes, tuple(note for note, holds in notes.items() if holds)


def _files_of(spark: SparkSession, table: Identifier, where: str) -> Any:
    """A person's filter as Iceberg's expression; raises
    :class:`~icekit.common.errors.ParameterError` if Iceberg cannot use it.
    """
    condition = read_predicate(spark, spark.table(identifier(*table)), where)
    try:
        with quiet_errors():
            return filter_expression(spark, table, condition)
    except engine_errors() as error:
        raise ParameterError(
            f"Iceberg cannot select partitions with the filter {shorten(where, 200)!r} "
            f"({reason(error)}). Compare columns with values (=, <, >, IN, IS NULL, LIKE 'a%'), "
            "without functions of columns other than partition transforms."
        ) from None


def batches(scopes: Sequence[Scope], budget: int) -> list[Batch]:
    """Pack partitions into batches that fit a disk and a driver; global deletes come last, with all
    data files.

    A partition that is too large for one commit is sliced by data files. Pure.
    """
    packed: list[list[Scope]] = []
    size_in_bytes = files = 0
    for scope in sorted((s for s in scopes if not s.is_global), key=lambda s: s.number):
        size_in_bytes += _bytes(scope)
        files += scope.data_files + scope.delete_files
        if packed and size_in_bytes <= budget and files <= MAX_FILES:
            packed[-1].append(scope)
        else:
            packed.append([scope])
            size_in_bytes = _bytes(scope)
            files = scope.data_files + scope.delete_files
    everywhere = [s for s in scopes if s.is_global]
    return [Batch(tuple(each), _slices(each, budget)) for each in (*packed, everywhere) if each]


def _slices(scopes: Sequence[Scope], budget: int) -> int:
    """The number of slices that the rows must be cut into; each slice reads all the deletes."""
    deletes = sum(s.delete_records for s in scopes) * RECORD_BYTES
    rows = max(s.data_records for s in scopes) * RECORD_BYTES
    by_files = math.ceil(max(s.data_files for s in scopes) / MAX_FILES)
    fits = rows + deletes <= budget
    by_disk = 1 if fits else math.ceil(rows / max(budget - deletes, budget // 4, 1))
    return max(1, by_files, by_disk)


def _bytes(scope: Scope) -> int:
    return (scope.data_records + scope.delete_records) * RECORD_BYTES


def _action(
    shared: Action,
    batch: Batch,
    specs: Mapping[int, PartitionSpec],
    speed: Speed | None,
    up_to: int,
    applied: Mapping[int, AppliedDeletes],
) -> Action:
    """The action of a batch; ``shared`` holds the fields that all actions share, ``speed`` that of
    past conversions, ``applied`` what a scan applies of each scope.
    """
    scopes = batch.scopes
    deletes = sum(s.delete_files for s in scopes)
    records = sum(s.delete_records for s in scopes)
    data_files, _, _ = data_under(scopes)
    _, read = read_of(scopes)
    of_scopes = [applied.get(s.number, AppliedDeletes()) for s in scopes]
    # Global deletes of several specs may apply to the same data file.
    reached_files = min(sum(each.data_files for each in of_scopes), data_files)
    return replace(
        shared,
        why=_why(batch, records, of_scopes, reached_files),
        prediction=Prediction(
            files_in=deletes,
            bytes_in=read,
            files_out=reached_files,
            data_files_read=data_files,
            delete_files_removed=deletes,
            groups=batch.slices,
            shuffle_bytes=batch.shuffle_bytes,
            seconds=speed.seconds(read) if speed else None,
            source="metadata",
            unit=EQUALITY_DELETE,
            certainty=Certainty.AT_MOST if reached_files else Certainty.EXACT,
        ),
        partitions=tuple(s.partition for s in scopes),
        partition_names=tuple(
            partition_path(specs[s.partition.spec_id], s.partition.values) or "whole table"
            for s in scopes[:3]
        ),
        arguments={"up_to": up_to, "slices": batch.slices},
    )


def _why(batch: Batch, records: int, applied: Sequence[AppliedDeletes], reached_files: int) -> str:
    """What the deletes of a batch apply to, and how they are joined to it."""
    if not reached_files:
        return (
            f"{count_with_verb(records, 'delete record', 'applies', 'apply')} to no data file, because "
            "the key ranges of all older data files rule their keys out: the delete files are "
            "removed, and nothing replaces them"
        )
    of_applied = sum(each.delete_records for each in applied)
    rows = sum(each.data_records for each in applied)
    of_all = f"{of_applied:,} of " if of_applied < records else ""
    return (
        f"{of_all}{count_with_verb(records, 'delete record', 'applies', 'apply')} to "
        f"{count(reached_files, 'data file')} with {count(rows, 'row')}: Spark reads and deduplicates "
        f"them once, and joins them using at most {size(batch.shuffle_bytes)} of spill space, in "
        f"{count(batch.slices, 'commit')}"
    )


def _notes(metadata: Any) -> Iterable[str]:
    """How the commit appears to readers of the change stream, and who else maintains the table."""
    new_files = (
        "deletion vectors"
        if int(metadata.get("format-version", 2)) >= 3
        else "position delete files"
    )
    yield (
        f"Each commit adds {new_files} and removes equality deletes; no row changes. The commit is a "
        "`delete` (or, where no row is hit, an `overwrite`) and not a `replace`: Spark streaming "
        "readers stop at such a commit unless streaming-skip-delete-snapshots "
        "(streaming-skip-overwrite-snapshots) is set; Flink's incremental reads, which take only "
        "appends, skip it."
    )
    manager = other_optimizer(properties_of(metadata), str(metadata["location"]))
    if manager is not None:
        yield manager.note


def _budget(lake: Lake, batch_bytes: int | str | None) -> int:
    if batch_bytes is not None:
        size = size_in_bytes(str(batch_bytes))
        if size <= 0:
            raise ParameterError(
                f"A batch of {batch_bytes} is too small. Give the disk space that a batch may "
                "use, such as '200 GB'."
            )
        return size
    context: Any = lake.spark.sparkContext
    if not str(context.master).startswith("local"):
        return CLUSTER_BATCH_BYTES
    folder = context.getConf().get("spark.local.dir", None) or tempfile.gettempdir()
    return int(shutil.disk_usage(folder.split(",")[0]).free * DISK_SHARE)
