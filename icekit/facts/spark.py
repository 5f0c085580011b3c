"""Collect the file rollup in Spark: the tasks that read manifests also count the files."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import iceberg_version
from icekit.engine.compat import arrow_of
from icekit.engine.errors import explain
from icekit.engine.metadata_tables import CONTENT, metadata_table
from icekit.errors import MetadataUnreadable
from icekit.facts.definition import PartitionSpec
from icekit.facts.files import Bucket, Kind, Partition, Scalar
from icekit.facts.integrity import EXAMPLES, MOST_PARTITIONS, DeleteState, DuplicateFile, Integrity, MisplacedDelete, NarrowManifest
from icekit.facts.key_bounds import KeyColumn, Keyed, Spans, compared, decode, rule_out
from icekit.facts.local import PATH_FIELD_ID, file_name
from icekit.facts.manifests import (
    FieldRange,
    FileCounts,
    Record,
    comparable,
    is_delete_manifest,
    may_have_live,
    narrow_fields,
    of_manifests,
)
from icekit.facts.rollup import Cut, Rollup, add_sequence, sort_key
from icekit.facts.values import to_scalar
from icekit.sql import Identifier, display_name, identifier
from icekit.units import count

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_KINDS = tuple(Kind)
# Why deletes apply to nothing, as numbers from 1; 0 is those that apply.
_STATES = tuple(DeleteState)
# The number of tasks after a shuffle: few, because each task costs some milliseconds, and one
# task handles a million rows in half a second.
_REDUCERS = 4
# No data file has this sequence number.
_NEVER = f"{2**63 - 1}L"


@dataclass(frozen=True)
class _Snapshot:
    """What is read: a snapshot of a table (named with its catalog), its manifests and its partition specs."""

    spark: SparkSession
    table: Identifier
    snapshot_id: int
    manifests: Sequence[Record]
    specs: Mapping[int, PartitionSpec]
    cut: Cut
    columns: Mapping[int, KeyColumn]

    @property
    def names(self) -> list[tuple[int, str]]:
        return unified(self.specs.values())

    @property
    def scope(self) -> list[str]:
        """The columns that identify a partition."""
        return _scope(self.names)

    def files(self, name: str) -> DataFrame:
        """One of the metadata tables."""
        return metadata_table(self.spark, self.table, name, self.snapshot_id)


def roll_up(
    spark: SparkSession,
    table: Identifier,
    snapshot_id: int,
    manifests: Sequence[Record],
    specs: Mapping[int, PartitionSpec],
    cut: Cut,
    width: Callable[[int], int],
    columns: Mapping[int, KeyColumn],
) -> tuple[Rollup, int]:
    """Count every live file of a snapshot, which has these ``manifests``; ``table`` includes its catalog, ``columns`` are its columns by id.

    Without delete files this reads ``data_files``, which reads no statistics. With delete files it reads ``entries``, the only table
    with sequence numbers. The columns that count are cached while they are aggregated: by partition, by file and by manifest. The
    driver receives a row per partition, kind, size bucket and, with deletes, sequence number, and a row per manifest. More is read only
    to join delete files with the data files that they name, to compare the key bounds of equality deletes, and to name what contradicts itself.
    """
    snapshot = _Snapshot(spark, table, snapshot_id, manifests, specs, cut, columns)
    with_deletes = any(is_delete_manifest(m) and may_have_live(m) for m in manifests)
    rollup = Rollup()
    try:
        rows = (_with_deletes(snapshot) if with_deletes else _plain(snapshot)).persist()
        try:
            step = _count_deletes(snapshot, rows, rollup, width) if with_deletes else _count_data(snapshot, rows, rollup)
            rollup.integrity = _integrity(snapshot, rows, rollup)
        finally:
            rows.unpersist()
    except Exception as error:
        raise explain(error, table) from error
    return rollup, step


#: Columns of every row: a hash of the manifest's path, which Python computes too, and of the file. A Puffin file holds many deletion vectors.
_MANIFEST = "crc32(input_file_name()) AS manifest"


def _file(path: str, offset: str | None = None) -> str:
    return f"xxhash64({path})" if offset is None else f"xxhash64({path}, {offset})"


def _code(kind: Kind) -> int:
    """A number for a kind: Spark groups by numbers several times faster than by strings."""
    return _KINDS.index(kind)


# Of an entry: its kind, and the hash of its file.
_KIND = (
    f"CASE WHEN {CONTENT} = 0 THEN {_code(Kind.DATA)} WHEN {CONTENT} = 2 THEN {_code(Kind.EQUALITY_DELETES)} "
    f"WHEN upper(data_file.file_format) = 'PUFFIN' THEN {_code(Kind.DELETION_VECTORS)} ELSE {_code(Kind.POSITION_DELETES)} END"
)
_ENTRY = f"if({CONTENT} = 0, {_file('data_file.file_path')}, {_file('data_file.file_path', 'data_file.content_offset')})"


def _plain(snapshot: _Snapshot) -> DataFrame:
    files = snapshot.files("data_files")
    return files.selectExpr(
        "spec_id",
        *partition_columns(files, "partition", snapshot.names),
        f"{_bucket('file_size_in_bytes', snapshot.cut.data)} AS bucket",
        "file_size_in_bytes AS size",
        "record_count AS records",
        f"{_file('file_path')} AS file",
        _MANIFEST,
    )


def _count_data(snapshot: _Snapshot, rows: DataFrame, rollup: Rollup) -> int:
    keys = [*snapshot.scope, "bucket"]
    _read_buckets(_aggregated(_brought_together(rows, keys), keys), snapshot.specs, snapshot.names, rollup)
    return 1


def _with_deletes(snapshot: _Snapshot) -> DataFrame:
    entries, cut = snapshot.files("entries").where("status < 2"), snapshot.cut
    return (
        entries.selectExpr(
            "data_file.spec_id AS spec_id",
            *partition_columns(entries, "data_file.partition", snapshot.names),
            f"{_KIND} AS kind",
            "data_file.file_size_in_bytes AS file_size",
            "data_file.content_size_in_bytes AS content_size",
            "data_file.record_count AS records",
            "sequence_number AS sequence",
            f"{_ENTRY} AS file",
            f"{_file(_last('data_file.file_path'))} AS name",
            _MANIFEST,
        )
        .selectExpr("*", f"if(kind = {_code(Kind.DELETION_VECTORS)}, content_size, file_size) AS size")
        .selectExpr("*", f"if(kind = {_code(Kind.DATA)}, {_bucket('size', cut.data)}, {_bucket('size', cut.deletes)}) AS bucket")
        .selectExpr("*", f"{_place(snapshot.scope)} AS place")
    )


def _last(path: str) -> str:
    return f"substring_index({path}, '/', -1)"


def _place(scope: Sequence[str]) -> str:
    """A hash of the partition; xxhash64 leaves nulls out, so that they have a hash of their own."""
    return f"xxhash64({', '.join([*scope, *(f'{column} IS NULL' for column in scope)])})"


def _count_deletes(snapshot: _Snapshot, rows: DataFrame, rollup: Rollup, width: Callable[[int], int]) -> int:
    specs, names, scope = snapshot.specs, snapshot.names, snapshot.scope
    named = _named_deletes(snapshot, rows)
    settled = rows.selectExpr("*", "CAST(NULL AS INT) AS state")
    if named is not None:
        states = _grouped(named, ["file"], "min(state) AS state")
        deletes = rows.where(f"kind <> {_code(Kind.DATA)}").join(states, "file", "left")
        settled = settled.where(f"kind = {_code(Kind.DATA)}").unionByName(deletes)
    # Shuffled by partition alone, so that the aggregations below do not shuffle again.
    keys = [*scope, "kind", "bucket", "sequence", "state"]
    fine = _aggregated(_brought_together(settled, scope), keys).persist()
    try:
        judged = _judged(snapshot, fine)
        _read_judged(snapshot, judged, rollup)
        _read_equality_keys(snapshot, rollup)
        step = width(len({partition for partition, _ in rollup.buckets}))
        if new_keys := _rule_out(snapshot, judged, rollup, step):
            judged = _without(snapshot, judged, new_keys, step)
            _read_judged(snapshot, judged, rollup)
        _read_sequences(judged.where("state = 0"), specs, names, rollup, snapshot.cut, step)
    finally:
        fine.unpersist()
    return step


def _read_judged(snapshot: _Snapshot, judged: DataFrame, rollup: Rollup) -> None:
    """Read the counts of files, of those that apply and of those that do not; instead of what was read before."""
    for held in (rollup.buckets, rollup.file_scoped, rollup.unapplied):
        held.clear()
    specs, names = snapshot.specs, snapshot.names
    _read_buckets(_merged(judged.where("state = 0"), [*snapshot.scope, "kind", "bucket"]), specs, names, rollup)
    _read_unapplied(judged, specs, names, rollup)


def _named_deletes(snapshot: _Snapshot, rows: DataFrame) -> DataFrame | None:
    """The delete files that name a single data file, and whether they apply to it: as ``state``; None without any.

    A delete applies to the live data file that has exactly the path it names, is not newer, and has its spec and partition
    (DeleteFileIndex). Only this needs bounds of delete files, and a join by path.
    """
    scoped = _names(snapshot).selectExpr("file", f"{_file('named')} AS named", f"{_file(_last('named'))} AS named_name")
    if scoped.isEmpty():
        return None
    deletes = rows.where(f"kind <> {_code(Kind.DATA)}").select("file", "place", "sequence").join(scoped, "file")
    data = rows.where(f"kind = {_code(Kind.DATA)}")
    oldest = "min_by(place, sequence) AS named_place", "min(sequence) AS named_sequence"
    live = _grouped(data.selectExpr("file AS named", "place", "sequence"), ["named"], *oldest)
    beside = _grouped(
        data.selectExpr("place", "name AS named_name", "sequence"), ["place", "named_name"], "min(sequence) AS alike_sequence"
    )
    state = (
        f"CASE WHEN named_sequence IS NULL THEN if(coalesce(alike_sequence, {_NEVER}) <= sequence, {_state(DeleteState.UNMATCHED)}, {_state(DeleteState.DANGLING)}) "
        f"WHEN named_sequence > sequence THEN {_state(DeleteState.DANGLING)} WHEN named_place <> place THEN {_state(DeleteState.MISFILED)} ELSE 0 END AS state"
    )
    joined = deletes.repartition(_REDUCERS, "named").join(live, "named", "left")
    return joined.repartition(_REDUCERS, "place", "named_name").join(beside, ["place", "named_name"], "left").selectExpr("*", state)


def _names(snapshot: _Snapshot) -> DataFrame:
    """The data file that each delete file names, if it is only one: directly, or by equal bounds (ContentFileUtil.referencedDataFile)."""
    lower, upper = (f"{end}_bounds[{PATH_FIELD_ID}]" for end in ("lower", "upper"))
    named = f"coalesce(referenced_data_file, if({lower} = {upper}, decode({lower}, 'utf-8'), NULL)) AS named"
    files = snapshot.files("delete_files").where("content + 0 = 1")
    return files.selectExpr(f"{_file('file_path', 'content_offset')} AS file", named).where("named IS NOT NULL").distinct()


def _grouped(rows: DataFrame, keys: Sequence[str], *sums: str) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.repartition(_REDUCERS, *keys).groupBy(*keys).agg(*map(F.expr, sums))


def _state(state: DeleteState) -> int:
    return 1 + _STATES.index(state)


def _judged(snapshot: _Snapshot, fine: DataFrame) -> DataFrame:
    """The counts with a ``state`` for all deletes: those older than all data they could apply to are dangling (table spec, "Scan Planning")."""
    data, equality = _code(Kind.DATA), _code(Kind.EQUALITY_DELETES)
    everywhere = [str(spec.spec_id) for spec in snapshot.specs.values() if spec.is_unpartitioned]
    lowest = f"coalesce(min(if(kind = {data}, sequence, NULL)) OVER (PARTITION BY {', '.join(snapshot.scope)}), {_NEVER})"
    if everywhere:
        (first,) = fine.where(f"kind = {data}").selectExpr(f"coalesce(min(sequence), {_NEVER})").collect()
        lowest = f"if(kind = {equality} AND spec_id IN ({', '.join(everywhere)}), {first[0]}L, {lowest})"
    is_older = f"kind <> {data} AND (sequence < lowest OR kind = {equality} AND sequence = lowest)"
    return (
        fine.selectExpr("*", f"{lowest} AS lowest")
        .withColumnRenamed("state", "named_state")
        .selectExpr(
            "*", f"CASE WHEN named_state > 0 THEN named_state WHEN {is_older} THEN {_state(DeleteState.DANGLING)} ELSE 0 END AS state"
        )
        .selectExpr("*", f"if(kind = {_code(Kind.POSITION_DELETES)} AND named_state = 0, files, 0L) AS scoped")
    )


# --- Rule out equality deletes by the bounds of their keys


def _rule_out(snapshot: _Snapshot, judged: DataFrame, rollup: Rollup, width: int) -> set[tuple[int, int]]:
    """The (place, sequence number) of equality deletes that apply to no data by key bounds; adds what they rule out of other data.

    The driver receives a row per partition with equality deletes, kind, key and (range of) sequence number.
    """
    columns = compared(snapshot.columns, rollup.by_key)
    applied = {partition for partition, kind in rollup.buckets if kind is Kind.EQUALITY_DELETES}
    if not columns or not applied:
        return set()
    table = arrow_of(
        _key_spans(snapshot, judged, columns, width, is_global=any(snapshot.specs[p.spec_id].is_unpartitioned for p in applied))
    )
    partitions = Partitions(snapshot.specs, snapshot.names).read(table)
    numbers = {partition: number for number, partition in enumerate(dict.fromkeys(partitions))}
    data, deletes = Keyed({column: Spans() for column in columns}), dict[tuple[int, ...], Keyed]()
    places, order = dict[int, int](), {column: place for place, column in enumerate(columns)}
    for partition, row in zip(partitions, table.to_pylist(), strict=True):
        number, key = numbers[partition], tuple(row["ids"] or ())
        places[number] = row["place"]
        held = data
        if row["kind"] != _code(Kind.DATA):
            held = deletes.setdefault(key, Keyed({column: Spans() for column in key if column in columns}))
        into = held.row(number, row["sequence"])
        held.files[into], held.records[into] = row["files"], row["records"]
        for column, spans in held.columns.items():
            place = order[column]
            low, high = (_bound(columns[column].type, row[f"{end}{place}"]) for end in ("low", "high"))
            spans.merge(into, low, high, row[f"null{place}"], row[f"value{place}"], row[f"bounded{place}"])
    everywhere = {number for partition, number in numbers.items() if snapshot.specs[partition.spec_id].is_unpartitioned}
    found, named = rule_out(data, deletes, everywhere, width == 1), list(numbers)
    for (number, end), counts in found.data.items():
        rollup.add_ruled_out(named[number], end, *counts)
    return {(places[number], end) for number, end in found.deletes}


def _key_spans(snapshot: _Snapshot, judged: DataFrame, columns: Mapping[int, KeyColumn], width: int, *, is_global: bool) -> DataFrame:
    """What data files, and equality deletes that are not older than all data, may hold in the columns of keys."""
    from pyspark.sql import functions as F

    equality, place = _code(Kind.EQUALITY_DELETES), f"{_place(snapshot.scope)} AS place"
    applied = judged.where(f"state = 0 AND kind = {equality}").selectExpr(place, "sequence").distinct()
    entries = snapshot.files("entries").where(f"status < 2 AND {CONTENT} <> 1")
    stated, spans = [], []
    for i, (column, (kind, required)) in enumerate(columns.items()):
        nulls, values = (f"data_file.{name}_counts[{column}]" for name in ("null_value", "value"))
        maybe = "false" if required else f"coalesce({nulls}, 1) > 0"
        only = "false" if required else f"coalesce({nulls} > 0 AND {nulls} = {values}, false)"
        low, high = (f"if({only}, NULL, {_ordered(kind, f'data_file.{end}_bounds[{column}]')})" for end in ("lower", "upper"))
        stated += [f"{low} AS low{i}", f"{high} AS high{i}", f"{maybe} AS null{i}", f"NOT {only} AS value{i}"]
        spans += [f"{how}({name}{i}) AS {name}{i}" for name, how in (("low", "min"), ("high", "max"), ("null", "max"), ("value", "max"))]
        spans.append(f"min(NOT value{i} OR low{i} IS NOT NULL AND high{i} IS NOT NULL) AS bounded{i}")
    rows = entries.selectExpr(
        "data_file.spec_id AS spec_id",
        *partition_columns(entries, "data_file.partition", snapshot.names),
        f"{_KIND} AS kind",
        "sequence_number AS sequence",
        "data_file.record_count AS records",
        "array_sort(data_file.equality_ids) AS ids",
        *stated,
    ).selectExpr("*", place)
    data, deletes = rows.where(f"kind <> {equality}"), rows.where(f"kind = {equality}").join(applied, ["place", "sequence"], "left_semi")
    if not is_global:
        data = data.join(applied.select("place").distinct(), "place", "left_semi")
    ranged = data.unionByName(deletes).withColumn("sequence", F.expr(_range_end(width)))
    keys = [*snapshot.scope, "place", "kind", "sequence", "ids"]
    return _grouped(ranged, keys, "count(*) AS files", "sum(records) AS records", *spans)


def _range_end(width: int) -> str:
    return f"CAST(ceil(sequence / {width}D) AS BIGINT) * {width}"


# Two's complement of 128 bits, with the other sign, so that texts of hexadecimal digits have the order of the numbers.
_SIGN = 1 << 127


def _ordered(type_name: str, raw: str) -> str:
    """SQL for a bound in a form that has the order of :func:`icekit.facts.key_bounds.decode`; :func:`_bound` reads it."""
    if decode(type_name) is bytes:
        return raw
    digits = f"hex({raw})"
    if not type_name.startswith("decimal"):
        digits = f"concat_ws('', transform(sequence(length({raw}), 1, -1), i -> substring({digits}, 2 * i - 1, 2)))"
    padded = f"lpad({digits}, 32, if(substring({digits}, 1, 1) >= '8', 'F', '0'))"
    flipped = f"translate(substring({padded}, 1, 1), '0123456789ABCDEF', '89ABCDEF01234567') || substring({padded}, 2)"
    return f"if(length({raw}) > 0, {flipped}, NULL)"


def _bound(type_name: str, value: Any) -> Any:
    return value if value is None or decode(type_name) is bytes else int(value, 16) - _SIGN


def _without(snapshot: _Snapshot, judged: DataFrame, new_keys: Iterable[tuple[int, int]], width: int) -> DataFrame:
    """The counts with these equality deletes among those that do not apply."""
    from pyspark.sql import functions as F

    ruled_out = snapshot.spark.createDataFrame(list(new_keys), "place LONG, last_sequence LONG").withColumn("is_new", F.lit(True))
    placed = judged.selectExpr("*", f"{_place(snapshot.scope)} AS place", f"{_range_end(width)} AS last_sequence")
    is_new = f"state = 0 AND kind = {_code(Kind.EQUALITY_DELETES)} AND is_new"
    state = F.expr(f"if({is_new}, {_state(DeleteState.NEW_KEYS)}, state)")
    return placed.join(ruled_out, ["place", "last_sequence"], "left").withColumn("state", state)


def check_listed(spark: SparkSession, table: Identifier, snapshot_id: int, expected: FileCounts | None, listed: FileCounts) -> None:
    """Check that the metadata tables list as many files as the snapshot has; ``expected`` is None if nothing counts them.

    Raises :class:`~icekit.errors.MetadataUnreadable` otherwise: with a file missing here, icekit would
    call a table healthy, or a delete resolved.
    """
    if expected is None or listed == expected:
        return
    there, seen = (f"{count(n.data, 'data file')} and {count(n.deletes, 'delete file')}" for n in (expected, listed))
    raise MetadataUnreadable(
        f"Snapshot {snapshot_id} of {display_name(table[1:])} has {there}, but the metadata tables of this session's Iceberg "
        f"({iceberg_version(spark, table[0])}) list {seen}; use another version of iceberg-spark-runtime."
    )


def unified(specs: Iterable[PartitionSpec]) -> list[tuple[int, str]]:
    """(field id, name) of the partition struct that metadata tables have for all specs.

    Source: Partitioning.partitionType: by field id, with the names of the newest spec.
    """
    names: dict[int, str] = {}
    for spec in sorted(specs, key=lambda s: -s.spec_id):
        for field in spec.fields:
            names.setdefault(field.field_id, field.name)
    return sorted(names.items())


def partition_columns(frame: DataFrame, path: str, names: Sequence[tuple[int, str]]) -> list[str]:
    """SQL that converts each partition field to the form that facts keep, as columns p0, p1 and so on."""
    if not names:
        return []
    outer, _, name = path.rpartition(".")
    beside: Any = frame.select(f"{outer}.*").schema if outer else frame.schema
    # Without it if every partition field was void, or its column was dropped.
    fields = beside[name].dataType.fields if name in beside.fieldNames() else ()
    types = {field.name: field.dataType.typeName() for field in fields}
    return [f"{scalar_sql(f'{path}.{identifier(name)}', types.get(name))} AS p{i}" for i, (_, name) in enumerate(names)]


def scalar_sql(column: str, type_name: str | None) -> str:
    """SQL that converts a value of a Spark type (``typeName()``) to the form that facts keep; :func:`scalar` does the rest."""
    if type_name is None:  # a field that was void in every spec has no column
        return "NULL"
    return {
        "date": f"unix_date({column})",
        "timestamp": f"unix_micros({column})",
        "timestamp_ntz": f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01 00:00:00', {column})",
        "binary": f"lower(hex({column}))",
    }.get(type_name, column)


def _bucket(size: str, edges: Sequence[int]) -> str:
    cases = " ".join(f"WHEN {size} < {upper}L THEN {lower}L" for lower, upper in pairwise(edges))
    return f"CASE {cases} ELSE {edges[-1]}L END"


def _scope(names: Sequence[tuple[int, str]]) -> list[str]:
    """The columns that identify a partition."""
    return ["spec_id", *(f"p{i}" for i in range(len(names)))]


def _brought_together(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Move rows with equal keys to one task, so that later groupings by these keys do not shuffle.

    By default Spark counts per task first and then shuffles into
    ``spark.sql.shuffle.partitions`` (200 by default): for so few rows, opening that many files
    per task takes longer than reading the manifests. The session's setting belongs to the user.
    """
    return rows.repartition(_REDUCERS, *keys)


def _aggregated(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.groupBy(*keys).agg(
        F.count("*").alias("files"),
        F.sum("size").alias("bytes"),
        F.sum("records").alias("records"),
        F.min("size").alias("low"),
        F.max("size").alias("high"),
    )


def _merged(fine: DataFrame, keys: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F

    return fine.groupBy(*keys).agg(
        F.sum("files").alias("files"),
        F.sum("bytes").alias("bytes"),
        F.sum("records").alias("records"),
        F.min("low").alias("low"),
        F.max("high").alias("high"),
        F.sum("scoped").alias("scoped"),
    )


class Partitions:
    """Partitions of Arrow rows, each created once."""

    def __init__(self, specs: Mapping[int, PartitionSpec], names: Sequence[tuple[int, str]]) -> None:
        place = {field_id: i for i, (field_id, _) in enumerate(names)}
        self.places = {spec_id: [place[f.field_id] for f in spec.fields] for spec_id, spec in specs.items()}
        self.width = len(names)
        self.known: dict[tuple[Any, ...], Partition] = {}

    def read(self, table: pa.Table) -> list[Partition]:
        """The partition of each row of ``spec_id, p0, p1, …``."""
        columns = [table.column("spec_id").to_pylist(), *(table.column(f"p{i}").to_pylist() for i in range(self.width))]
        return [self._one(key) for key in zip(*columns, strict=True)]

    def _one(self, key: tuple[Any, ...]) -> Partition:
        found = self.known.get(key)
        if found is None:
            values = tuple(scalar(key[1 + i]) for i in self.places[key[0]])
            found = self.known[key] = Partition(key[0], values)
        return found


def scalar(value: object) -> Scalar:
    """Convert the result of :func:`scalar_sql` to the form that facts keep."""
    # As a string in plain notation: CAST of a small decimal depends on the session's ANSI mode.
    return format(value, "f") if isinstance(value, Decimal) else to_scalar(value)


def _read_buckets(frame: DataFrame, specs: Mapping[int, PartitionSpec], names: Sequence[tuple[int, str]], rollup: Rollup) -> None:
    table = arrow_of(frame)
    has_deletes = "kind" in table.column_names
    kinds = table.column("kind").to_pylist() if has_deletes else [_code(Kind.DATA)] * table.num_rows
    scoped = table.column("scoped").to_pylist() if has_deletes else [0] * table.num_rows
    columns = [table.column(c).to_pylist() for c in ("bucket", "files", "bytes", "records", "low", "high")]
    for partition, kind, named, *row in zip(Partitions(specs, names).read(table), kinds, scoped, *columns, strict=True):
        rollup.add_bucket(partition, _KINDS[kind], Bucket(*row))
        if named:
            rollup.file_scoped[partition] += named


def _read_unapplied(judged: DataFrame, specs: Mapping[int, PartitionSpec], names: Sequence[tuple[int, str]], rollup: Rollup) -> None:
    counted = judged.where("state > 0").groupBy(*_scope(names), "kind", "state").sum("files", "bytes", "records")
    table = arrow_of(counted)
    columns = [table.column(c).to_pylist() for c in ("kind", "state", "sum(files)", "sum(bytes)", "sum(records)")]
    for partition, kind, state, *row in zip(Partitions(specs, names).read(table), *columns, strict=True):
        rollup.unapplied[partition, _KINDS[kind], _STATES[state - 1]] = row


def _read_equality_keys(snapshot: _Snapshot, rollup: Rollup) -> None:
    if not any(key[1] is Kind.EQUALITY_DELETES for key in (*rollup.buckets, *rollup.unapplied)):
        return
    deletes = snapshot.files("delete_files").where("content + 0 = 2").select("equality_ids", "record_count")
    rows = deletes.selectExpr("array_sort(equality_ids) AS ids", "record_count AS records")
    for ids, files, records in (
        _brought_together(rows, ["ids"])
        .groupBy("ids")
        .agg({"*": "count", "records": "sum"})
        .select("ids", "count(1)", "sum(records)")
        .collect()
    ):
        rollup.add_key(ids or (), files, records)


def _read_sequences(
    fine: DataFrame, specs: Mapping[int, PartitionSpec], names: Sequence[tuple[int, str]], rollup: Rollup, cut: Cut, width: int
) -> None:
    low, high = cut.well_sized
    well = f"kind = {_code(Kind.DATA)} AND low >= {low} AND high <= {high}"
    scope = _scope(names)
    globally = any(kind is Kind.EQUALITY_DELETES and specs[p.spec_id].is_unpartitioned for p, kind in rollup.buckets)
    if not globally:
        # Only partitions with deletes; the rest never reach the driver.
        fine = fine.selectExpr("*", f"max(kind <> {_code(Kind.DATA)}) OVER (PARTITION BY {', '.join(scope)}) AS has_deletes").where(
            "has_deletes"
        )
    counted = arrow_of(
        fine.selectExpr(
            *scope,
            "kind",
            f"{_range_end(width)} AS sequence",
            "files",
            "records",
            f"if({well}, files, 0L) AS well_files",
            f"if({well}, bytes, 0L) AS well_bytes",
        )
        .groupBy(*scope, "kind", "sequence")
        .sum("files", "records", "well_files", "well_bytes")
    )
    sums = [counted.column(c).to_pylist() for c in ("kind", "sequence", "sum(files)", "sum(records)", "sum(well_files)", "sum(well_bytes)")]
    for partition, kind, sequence, *counts in zip(Partitions(specs, names).read(counted), *sums, strict=True):
        add_sequence(rollup.by_sequence[partition, sequence], _KINDS[kind], *counts)


# --- Find what contradicts itself, and name it


def _integrity(snapshot: _Snapshot, rows: DataFrame, rollup: Rollup) -> Integrity:
    found = of_manifests(snapshot.manifests, _narrow(snapshot, rows))
    twice = rows.select("file").repartition(_REDUCERS, "file").groupBy("file").count().where("count > 1").select("file")
    if not twice.isEmpty():
        found = _duplicates(snapshot, twice, found)
    if any(state is not DeleteState.DANGLING for _, _, state in rollup.unapplied):
        found = replace(found, misplaced=tuple(_misplaced(snapshot, rows)))
    return found


def _narrow(snapshot: _Snapshot, rows: DataFrame) -> Iterable[NarrowManifest]:
    """The manifests whose summary does not cover their entries: one row per manifest and spec, with the range of each partition field.

    A row's manifest is known by a 32-bit hash of the path that Spark reads; manifests with the same hash are not compared.
    """
    names = snapshot.names
    partitioned = [m for m in snapshot.manifests if m.get("partitions") and not snapshot.specs[m["partition_spec_id"]].is_unpartitioned]
    if not partitioned:
        return
    by_hash: dict[int, list[Record]] = {}
    for manifest in {m["manifest_path"]: m for m in snapshot.manifests}.values():
        by_hash.setdefault(zlib.crc32(manifest["manifest_path"].encode()), []).append(manifest)
    types = dict(rows.dtypes)
    sums = []
    for i in range(len(names)):
        is_nan = f"isnan(p{i})" if types[f"p{i}"] in {"float", "double"} else "false"
        value = f"if({is_nan}, NULL, p{i})"
        sums += [f"min({value}) AS low{i}", f"max({value}) AS high{i}", f"max(p{i} IS NULL) AS null{i}", f"max({is_nan}) AS nan{i}"]
    table = arrow_of(_grouped(rows.select("manifest", *snapshot.scope), ["manifest", "spec_id"], *sums)).to_pylist()
    place = {field_id: i for i, (field_id, _) in enumerate(names)}
    for row in table:
        same = by_hash.get(row["manifest"], [])
        if len(same) != 1 or same[0]["partition_spec_id"] != row["spec_id"]:
            continue
        spec = snapshot.specs[row["spec_id"]]
        ranges = []
        for field in spec.fields:
            i = place[field.field_id]
            low, high = (comparable(field.result_type, row[f"{end}{i}"]) for end in ("low", "high"))
            ranges.append(FieldRange(low, high, bool(row[f"null{i}"]), bool(row[f"nan{i}"])))
        yield from narrow_fields(same[0], [(f.name, f.result_type) for f in spec.fields], ranges)


def _duplicates(snapshot: _Snapshot, twice: DataFrame, found: Integrity) -> Integrity:
    """The counts of files that are listed twice, and examples."""
    listed = _entries(snapshot).join(twice, "file", "left_semi").persist()
    try:
        keys = ["kind", "path", "offset"]
        files = _grouped(
            listed, keys, "count(*) AS entries", "max(records) AS records", "sort_array(collect_set(snapshot_id)) AS snapshots"
        ).where("entries > 1")
        counted = (
            files.selectExpr(f"kind = {_code(Kind.DATA)} AS is_data", "(entries - 1) * records AS again")
            .groupBy("is_data")
            .agg({"*": "count", "again": "sum"})
        )
        totals = {row["is_data"]: (row["count(1)"], row["sum(again)"]) for row in counted.collect()}
        first = files.orderBy("path", "offset").limit(EXAMPLES).collect()
        partitions = Partitions(snapshot.specs, snapshot.names).read(
            arrow_of(listed.select(*snapshot.scope).distinct().limit(MOST_PARTITIONS + 1))
        )
    finally:
        listed.unpersist()
    return replace(
        found,
        duplicate_data_file_count=totals.get(True, (0, 0))[0],
        duplicate_delete_file_count=totals.get(False, (0, 0))[0],
        duplicate_record_count=totals.get(True, (0, 0))[1],
        duplicate_partitions=tuple(sorted(partitions, key=sort_key)) if len(partitions) <= MOST_PARTITIONS else (),
        duplicates=tuple(DuplicateFile(row["path"], _KINDS[row["kind"]], row["entries"], tuple(row["snapshots"])) for row in first),
    )


def _entries(snapshot: _Snapshot) -> DataFrame:
    """The live entries with the path of the file, its partition, and the snapshot that added them."""
    entries = snapshot.files("entries").where("status < 2")
    return entries.selectExpr(
        f"{_ENTRY} AS file",
        f"{_KIND} AS kind",
        "data_file.file_path AS path",
        "data_file.content_offset AS offset",
        "data_file.record_count AS records",
        "data_file.spec_id AS spec_id",
        *partition_columns(entries, "data_file.partition", snapshot.names),
        "snapshot_id",
    )


def _misplaced(snapshot: _Snapshot, rows: DataFrame) -> Iterable[MisplacedDelete]:
    """A few misfiled and unmatched deletes, each with the data file that it names, or the one in its place."""
    from pyspark.sql import functions as F

    named = _named_deletes(snapshot, rows)
    if named is None:
        return
    wrong = named.where(f"state > {_state(DeleteState.DANGLING)}").select("file", "state").distinct()
    found = _entries(snapshot).join(wrong, "file").join(_names(snapshot), "file").orderBy("path", "named").limit(EXAMPLES)
    deletes = arrow_of(found.selectExpr("*", f"{_place(snapshot.scope)} AS place"))
    paths = set(deletes.column("named").to_pylist())
    files = _entries(snapshot).where(f"kind = {_code(Kind.DATA)}").selectExpr("*", f"{_place(snapshot.scope)} AS place")
    is_beside = F.expr(_last("path")).isin(sorted(map(file_name, paths))) & F.col("place").isin(deletes.column("place").to_pylist())
    data = arrow_of(files.where(F.col("path").isin(sorted(paths)) | is_beside))
    known = Partitions(snapshot.specs, snapshot.names)
    by_path = dict(zip(data.column("path").to_pylist(), known.read(data), strict=True))
    columns = [deletes.column(c).to_pylist() for c in ("state", "path", "named", "snapshot_id")]
    for partition, state, path, named_path, snapshot_id in zip(known.read(deletes), *columns, strict=True):
        reason, data_path = _STATES[state - 1], named_path
        if reason is DeleteState.UNMATCHED:
            beside = (p for p, held in by_path.items() if held == partition and file_name(p) == file_name(named_path))
            data_path = min(beside, default=named_path)
        yield MisplacedDelete(reason, path, partition, named_path, data_path, by_path.get(data_path, partition), snapshot_id)
