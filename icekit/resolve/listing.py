"""List the equality deletes of a snapshot, and the data files that they may delete rows from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icekit.engine.compat import arrow_of, frame_of
from icekit.engine.metadata_tables import CONTENT, metadata_table
from icekit.facts.definition import PartitionSpec
from icekit.facts.files import Partition, Scalar
from icekit.facts.manifests import FileCounts
from icekit.facts.spark import check_listed
from icekit.facts.spark_entries import Partitions, partition_columns, unified
from icekit.sql import Identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# Number of tasks that manifest entries are gathered in.
_REDUCERS = 4


@dataclass(frozen=True, slots=True)
class Scope:
    """The equality deletes of one partition, or the global ones of an unpartitioned spec, and the
    data files they may apply to.

    ``data_*`` count the data files older than the newest of these deletes: for global deletes in
    the complete table, else in the partition.
    """

    partition: Partition
    key: str
    is_global: bool
    delete_files: int
    delete_records: int
    delete_bytes: int
    max_sequence: int
    data_files: int
    data_records: int
    data_bytes: int


@dataclass(frozen=True, slots=True)
class File:
    """A data file or an equality delete file (``field_ids`` are its key's), and the number of its
    partition.

    ``constants`` are the columns of a data file (by field id) whose value is the partition's
    value: Iceberg reads them from there, whatever the file holds.
    """

    path: str
    format: str
    size: int
    records: int
    split_offsets: tuple[int, ...]
    sequence: int
    spec_id: int
    part: int
    field_ids: tuple[int, ...] = ()
    constants: tuple[tuple[int, Scalar], ...] = ()


def scopes(
    spark: SparkSession,
    table: Identifier,
    snapshot_id: int,
    specs: Mapping[int, PartitionSpec],
    up_to: int | None = None,
    expected: FileCounts | None = None,
) -> tuple[Scope, ...]:
    """Roll up the equality deletes of a snapshot by partition; ``table`` is named with its catalog.

    ``up_to`` leaves out deletes of later sequence numbers. The driver receives at most five rows
    per partition. Global deletes come last. ``expected`` are the files that the snapshot's manifest
    list counts: raises :class:`~icekit.errors.MetadataUnreadable` if the metadata table lists a
    different number.
    """
    entries = _entries(spark, table, snapshot_id)
    names = unified(specs.values())
    keyed = entries.selectExpr(
        *_PLAIN, _key(entries), *partition_columns(entries, "data_file.partition", names)
    )
    is_delete = "content = 2" if up_to is None else f"content = 2 AND sequence <= {up_to}"
    # Gathered by partition once, in few tasks: the rows are narrow.
    by_scope = arrow_of(
        keyed.repartition(_REDUCERS, "part_key")
        .selectExpr(
            "*", f"max(if({is_delete}, sequence, NULL)) OVER (PARTITION BY part_key) AS newest"
        )
        .selectExpr(
            "*", f"coalesce({is_delete} OR content = 0 AND sequence < newest, false) AS counts"
        )
        .groupBy(
            *("spec_id", "part_key", "content", "newest", "counts"),
            *(f"p{i}" for i in range(len(names))),
        )
        .agg(*_sums())
    )
    check_listed(spark, table, snapshot_id, expected, _counted(by_scope))
    counted = by_scope.filter(by_scope.column("counts"))
    if not counted.num_rows:
        return ()
    sums_of: dict[tuple[str, int], tuple[int, int, int]] = {}
    where: dict[str, tuple[Partition, int]] = {}
    columns = [
        counted.column(c).to_pylist()
        for c in ("part_key", "content", "newest", "files", "records", "bytes")
    ]
    for partition, key, content, newest, *sums in zip(
        Partitions(specs, names).read(counted), *columns, strict=True
    ):
        sums_of[key, content] = (sums[0], sums[1], sums[2])
        where[key] = (partition, newest)
    result = []
    for key, (partition, newest) in where.items():
        is_global = specs[partition.spec_id].is_unpartitioned
        reaches_others = is_global and len(specs) > 1
        data = _all_older(keyed, newest) if reaches_others else sums_of.get((key, 0), (0, 0, 0))
        result.append(Scope(partition, key, is_global, *sums_of[key, 2], newest, *data))
    return tuple(sorted(result, key=lambda s: (s.is_global, s.key)))


def _counted(sums: pa.Table) -> FileCounts:
    """The files of all partitions."""
    files = sums.group_by("content").aggregate([("files", "sum")]).to_pylist()
    data = sum(row["files_sum"] for row in files if row["content"] == 0)
    return FileCounts(data, sum(row["files_sum"] for row in files) - data)


@dataclass(frozen=True, slots=True)
class FileSelection:
    """Equality deletes of some scopes, up to a sequence number (None: all), and a part of the data
    files: (2, 5) is the third of five.
    """

    scopes: Sequence[Scope]
    up_to: int | None = None
    slices: tuple[int, int] = (0, 1)


def files(
    spark: SparkSession,
    table: Identifier,
    snapshot_id: int,
    specs: Mapping[int, PartitionSpec],
    selection: FileSelection,
) -> tuple[list[File], list[File]]:
    """The equality delete files of some scopes, and the data files older than their newest.

    Each has the number of its partition, equal if the deletes of one apply to the other; for
    global deletes the number does not matter. The driver holds a row per file of a batch, not of
    the table.
    """
    entries = _entries(spark, table, snapshot_id)
    up_to, (index, slices) = selection.up_to, selection.slices
    late = "" if up_to is None else f" AND sequence <= {up_to}"
    sliced = f" AND {_slice(slices)} = {index}" if slices > 1 else ""
    names = unified(specs.values())
    listed = entries.selectExpr(
        *_PLAIN,
        _key(entries),
        "data_file.file_path AS path",
        "data_file.file_format AS format",
        "data_file.split_offsets AS split_offsets",
        "data_file.equality_ids AS field_ids",
        *partition_columns(entries, "data_file.partition", names),
    )
    joined, older = _beside(spark, listed, selection.scopes)
    wanted = joined.where(f"(content = 2 AND chosen_key IS NOT NULL{late}) OR ({older}{sliced})")
    numbers: dict[str, int] = {}
    deletes: list[File] = []
    data: list[File] = []
    constants: dict[int, tuple[tuple[int, Scalar], ...]] = {}
    rows = arrow_of(wanted.drop("chosen_key", "newest"))
    places = iter(Partitions(specs, names).read(rows)) if rows.num_rows else iter(())
    for batch in rows.to_batches():
        for row in batch.to_pylist():
            part = numbers.setdefault(row["part_key"], len(numbers))
            partition = next(places)
            if part not in constants:
                constants[part] = _constants(specs[partition.spec_id], partition)
            made = File(
                path=row["path"],
                format=row["format"].upper(),
                size=row["size"],
                records=row["records"],
                split_offsets=tuple(row["split_offsets"] or ()),
                sequence=row["sequence"],
                spec_id=row["spec_id"],
                part=part,
                field_ids=tuple(sorted(row["field_ids"] or ())) if row["content"] == 2 else (),
                constants=constants[part] if row["content"] == 0 else (),
            )
            (deletes if row["content"] == 2 else data).append(made)
    # In the order they were written: tasks then read neighbouring files, whose keys repeat.
    order = lambda file: (file.part, file.sequence, file.path)  # noqa: E731
    return sorted(deletes, key=order), sorted(data, key=order)


def uncovered(
    spark: SparkSession,
    table: Identifier,
    snapshot_id: int,
    chosen: Sequence[Scope],
    since: Sequence[Collection[int]],
    slices: int,
) -> tuple[int, str]:
    """Count the data files with some scopes' deletes that the earlier slices have not seen, and
    name one.

    ``since`` has, for each earlier slice, the commits made after it was listed. A rewrite may give
    the files of such a commit the sequence number that the rewrite started from, so that deletes
    older than the file apply to it.
    """
    entries = _entries(spark, table, snapshot_id)
    listed = entries.selectExpr(
        *_PLAIN, _key(entries), "data_file.file_path AS path", "snapshot_id"
    )
    joined, older = _beside(spark, listed, chosen)
    new = " OR ".join(
        f"({_slice(slices)} = {index} AND snapshot_id IN ({', '.join(map(str, sorted(commits)))}))"
        for index, commits in enumerate(since)
        if commits
    )
    row = (
        joined.where(f"{older} AND ({new or 'false'})").selectExpr("count(*)", "min(path)").first()
    )
    return (int(row[0]), str(row[1])) if row is not None else (0, "")


def _beside(
    spark: SparkSession, listed: DataFrame, chosen: Sequence[Scope]
) -> tuple[DataFrame, str]:
    """Entries with their scope (``chosen_key``, None for another scope), and SQL for the data files
    older than its newest delete.
    """
    newest = {scope.key: scope.max_sequence for scope in chosen if not scope.is_global}
    everywhere = max((scope.max_sequence for scope in chosen if scope.is_global), default=-1)
    keys = sorted({scope.key for scope in chosen})
    by_key = local(
        spark,
        {
            "chosen_key": (pa.string(), keys),
            "newest": (pa.int64(), [newest.get(key, -1) for key in keys]),
        },
    )
    joined = listed.join(by_key.hint("broadcast"), listed.part_key == by_key.chosen_key, "left")
    return joined, f"content = 0 AND sequence < greatest(coalesce(newest, -1L), {everywhere}L)"


def _slice(slices: int) -> str:
    """SQL for the slice of a data file: computed from its path, so the file stays in its slice
    whatever is added or removed.
    """
    return f"crc32(CAST(path AS binary)) % {slices}"


def repeated(
    spark: SparkSession, table: Identifier, snapshot_id: int, paths: Collection[str]
) -> list[str]:
    """The given data files that a snapshot holds more than once (appended twice), with different
    sequence numbers.
    """
    if not paths:
        return []
    chosen = local(spark, {"path": (pa.string(), paths)})
    listed = (
        _entries(spark, table, snapshot_id)
        .where(f"{CONTENT} = 0")
        .selectExpr("data_file.file_path AS path")
        .join(chosen.hint("broadcast"), "path", "left_semi")
    )
    return sorted(
        row["path"] for row in listed.groupBy("path").count().where("count > 1").collect()
    )


def local(
    spark: SparkSession, columns: Mapping[str, tuple[pa.DataType, Iterable[Any]]]
) -> DataFrame:
    """A frame of values from the driver, sent as Arrow: rows would be unpacked by Python
    processes.
    """
    return frame_of(
        spark,
        pa.table({name: pa.array(list(values), kind) for name, (kind, values) in columns.items()}),
    )


def _constants(spec: PartitionSpec, partition: Partition) -> tuple[tuple[int, Scalar], ...]:
    """The columns whose values a partition gives, by field id."""
    pairs = zip(spec.fields, partition.values, strict=True)
    return tuple(
        sorted(
            {
                field.source_id: value for field, value in pairs if field.transform == "identity"
            }.items()
        )
    )


_PLAIN = (
    f"{CONTENT} AS content",
    "data_file.spec_id AS spec_id",
    "data_file.record_count AS records",
    "data_file.file_size_in_bytes AS size",
    "coalesce(sequence_number, 0L) AS sequence",
)


def _entries(spark: SparkSession, table: Identifier, snapshot_id: int) -> DataFrame:
    return metadata_table(spark, table, "entries", snapshot_id).where("status < 2")


def _key(entries: DataFrame) -> str:
    """SQL for a text that distinguishes a partition from every other, of any spec."""
    return f"concat(data_file.spec_id, ' ', {partition_text(entries)}) AS part_key"


def partition_text(entries: DataFrame) -> str:
    """SQL for a text that distinguishes a partition from the others of its spec; empty if the table
    has none, whose entries have no such column.
    """
    struct: Any = entries.select("data_file.*").schema
    has_partition = (
        "partition" in struct.fieldNames() and len(struct["partition"].dataType.fields) > 0
    )
    # Without formats JSON truncates to milliseconds, and partitions may differ by less.
    moments = (
        "'timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSSXXX', 'timestampNTZFormat', 'yyyy-MM-dd "
        "HH:mm:ss.SSSSSS'"
    )
    return f"to_json(data_file.partition, map({moments}))" if has_partition else "''"


def _sums() -> list[Any]:
    from pyspark.sql import functions as F

    return [
        F.count("*").alias("files"),
        F.sum("records").alias("records"),
        F.sum("size").alias("bytes"),
    ]


def _all_older(keyed: DataFrame, sequence: int) -> tuple[int, int, int]:
    row = (
        keyed.where(f"content = 0 AND sequence < {sequence}")
        .selectExpr("count(*)", "coalesce(sum(records), 0L)", "coalesce(sum(size), 0L)")
        .first()
    )
    return (int(row[0]), int(row[1]), int(row[2])) if row is not None else (0, 0, 0)
