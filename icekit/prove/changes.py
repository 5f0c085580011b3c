"""Find what a commit changed: its partitions, from the manifest entries that it wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from icekit.engine.compat import arrow_of
from icekit.engine.metadata_tables import CONTENT, metadata_table
from icekit.facts.definition import Column, PartitionField, PartitionSpec
from icekit.facts.files import Partition
from icekit.facts.spark_entries import Partitions, partition_columns, scalar_sql, unified
from icekit.facts.where import transformed
from icekit.prove.fingerprint import Fingerprint, summed_up
from icekit.sql import Identifier, identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# The identity of a file, and the order in which deletes apply to it.
_FILE = (
    "xxhash64(data_file.content, data_file.file_path, data_file.spec_id, sequence_number, "
    "data_file.record_count, isnull(data_file.content_offset), data_file.content_offset)"
)


@dataclass(frozen=True)
class Changes:
    """The partitions that a commit changed, sorted.

    ``is_complete`` is false if the files of the parent, minus the files it says it removed, plus
    the files it says it added, are not the commit's files: then it lost or gained files silently,
    and the changed partitions are not all of them. ``records`` are the rows in the data files of
    the changed partitions at the parent and at the commit, according to their manifests; None if
    deletes apply, so that a reader gets fewer rows, or if another spec is live, so that a predicate
    selects more. ``agree`` says whether all these rows have their partition's values, according to
    the files' bounds.
    """

    partitions: tuple[Partition, ...]
    is_complete: bool
    records: Callable[[], tuple[int | None, int | None]]
    agree: Callable[[Sequence[Column]], bool]

    def holds(self, rows: Sequence[int], columns: Sequence[Column]) -> bool:
        """Whether these row counts at the parent and at the commit are certainly all rows in their
        files.

        ``columns`` are the table's current columns.
        """
        return self.records() == tuple(rows) or self.agree(columns)


def changes(
    spark: SparkSession,
    table: Identifier,
    parent_id: int,
    snapshot_id: int,
    specs: Mapping[int, PartitionSpec],
) -> Changes:
    """Read what a commit added and removed, data and delete files; ``table`` is named with its
    catalog.

    Two aggregations of the commit's ``entries`` and one of its parent's, without statistics;
    the driver receives a row per changed partition.
    """
    entries = metadata_table(spark, table, "entries", snapshot_id)
    own = entries.where(f"snapshot_id = {snapshot_id} AND status > 0")
    names = unified(specs.values())
    distinct = own.selectExpr(
        "data_file.spec_id AS spec_id", *partition_columns(own, "data_file.partition", names)
    ).distinct()
    partitions = sorted(set(Partitions(specs, names).read(arrow_of(distinct))), key=_order)
    # Live in the commit and not added by it, or removed by it: the parent's live files.
    kept = entries.where(
        f"CASE WHEN snapshot_id = {snapshot_id} THEN status <> 1 ELSE status < 2 END"
    )
    before = metadata_table(spark, table, "entries", parent_id).where("status < 2")

    def records() -> tuple[int | None, int | None]:
        now = entries.where("status < 2")
        first, second = (_records(side, distinct, specs, names) for side in (before, now))
        return first, second

    def agree(columns: Sequence[Column]) -> bool:
        asked = [
            (spec_id, field)
            for spec_id in {p.spec_id for p in partitions}
            for field in specs[spec_id].fields
            if field.transform not in {"identity", "void"}
        ]
        sides = before, entries.where("status < 2")
        # Where a predicate selects complete partitions of every existing spec, Spark does not check
        # the bucket of each row (SparkScanBuilder).
        if len(specs) == 1:
            asked = [each for each in asked if not each[1].transform.startswith("bucket")]
        return all(
            _agrees(
                side,
                distinct,
                names,
                (spec_id, field),
                next((c for c in columns if c.field_id == field.source_id), None),
                table[0],
            )
            for side in sides
            for spec_id, field in asked
        )

    return Changes(
        tuple(partitions), is_complete=_files(kept) == _files(before), records=records, agree=agree
    )


def _records(
    entries: DataFrame,
    partitions: DataFrame,
    specs: Mapping[int, PartitionSpec],
    names: Sequence[tuple[int, str]],
) -> int | None:
    """The rows in the data files of some partitions, minus those that deletion vectors delete.

    None if there are other deletes, or if data files of several specs are live.
    """
    from pyspark.sql import functions as F

    columns = ["spec_id", *(f"p{i}" for i in range(len(names)))]
    rows = entries.selectExpr(
        "data_file.spec_id AS spec_id",
        *partition_columns(entries, "data_file.partition", names),
        f"{CONTENT} AS content",
        "upper(data_file.file_format) = 'PUFFIN' AS is_vector",
        "data_file.record_count AS records",
    )
    unpartitioned = [spec_id for spec_id, spec in specs.items() if spec.is_unpartitioned]
    everywhere = (F.col("content") == 2) & F.col("spec_id").isin(unpartitioned)
    same = [F.col(f"e.{name}").eqNullSafe(F.col(f"c.{name}")) for name in columns]
    inside = F.col("c.spec_id").isNotNull()
    sums = (
        rows.alias("e")
        .join(F.broadcast(partitions).alias("c"), same, "left")
        .select(inside.alias("inside"), "e.spec_id", "content", "is_vector", "records")
        .agg(
            F.sum(F.when(F.col("inside") & (F.col("content") == 0), F.col("records")).otherwise(0)),
            F.sum(F.when(F.col("inside") & F.col("is_vector"), F.col("records")).otherwise(0)),
            F.count_if(
                (F.col("inside") & (F.col("content") > 0) & ~F.col("is_vector")) | everywhere
            ),
            F.count_distinct(F.when(F.col("content") == 0, F.col("e.spec_id"))),
        )
        .first()
    )
    if sums is None or sums[2] or sums[3] > 1:
        return None
    return int(sums[0] or 0) - int(sums[1] or 0)


def _agrees(
    entries: DataFrame,
    partitions: DataFrame,
    names: Sequence[tuple[int, str]],
    of: tuple[int, PartitionField],
    column: Column | None,
    catalog: str,
) -> bool:
    """Whether the bounds of each data file of some partitions equal the partition's value in one
    field.

    Then all its rows do, because these transforms keep the order. Buckets have no order, and a file
    may have no bounds: neither counts as equal.
    """
    spec_id, field = of
    bounds: Any = entries.schema["readable_metrics"].dataType
    if column is None or field.transform.startswith("bucket") or column.name not in bounds.names:
        return False
    values = [
        transformed(catalog, field, [replace(column, name=end, path=())]) for end in ("low", "high")
    ]
    if None in values:
        return False
    metrics = f"readable_metrics.{identifier(column.name)}"
    keys = ["spec_id", *(f"p{i}" for i in range(len(names)))]
    files = entries.where(f"{CONTENT} = 0 AND data_file.spec_id = {spec_id}").selectExpr(
        "data_file.spec_id AS spec_id",
        *partition_columns(entries, "data_file.partition", names),
        f"{metrics}.lower_bound AS low",
        f"{metrics}.upper_bound AS high",
    )
    from pyspark.sql import functions as F

    same = [F.col(f"e.{key}").eqNullSafe(F.col(f"c.{key}")) for key in keys]
    inside = files.alias("e").join(F.broadcast(partitions).alias("c"), same, "left_semi")
    index = next(i for i, (field_id, _) in enumerate(names) if field_id == field.field_id)
    ends = inside.selectExpr(
        f"p{index} AS value",
        *(f"{value} AS {end}" for value, end in zip(values, ("low", "high"), strict=True)),
    )
    low, high = (scalar_sql(end, ends.schema[end].dataType.typeName()) for end in ("low", "high"))
    return ends.where(f"NOT coalesce({low} = value AND {high} = value, false)").isEmpty()


def _files(entries: DataFrame) -> Fingerprint:
    return summed_up(entries, _FILE)


def _order(partition: Partition) -> tuple[int, list[tuple[bool, str]]]:
    # Values of one field may be null or, where a spec changed, of different types.
    return partition.spec_id, [(value is None, str(value)) for value in partition.values]
