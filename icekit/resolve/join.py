"""Find the rows that equality deletes delete: one join on keys that Spark can spill, over a view that holds only keys."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import load_table, write_bytes
from icekit.engine.errors import explain, kind_of, reason
from icekit.errors import CatalogUnreachable, CloneRefused, ConversionRefused
from icekit.facts.files import Scalar
from icekit.facts.metadata import Json, schema_of
from icekit.resolve.applies import EVERYWHERE, MOST_FILES, OWN, by_ruled_out, order_of, unless_ruled_out
from icekit.resolve.applies import FILE as RULED_FILE
from icekit.resolve.listing import File
from icekit.sandbox import NAMESPACE, owned, remove_folders, scratch_folder, scratch_name
from icekit.sandbox.drop_check import check_drop
from icekit.secrets import scrub
from icekit.sql import Identifier, call, display_name, identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


# --- Resolve the keys of equality deletes: by field id, in any schema that has the field


#: Spark has no type for their values, so it cannot read a table with such a column.
_UNREADABLE = {"time", "timestamp_ns", "timestamptz_ns", "variant", "geometry", "geography", "unknown"}


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One column of a key: its field id, its names from the outermost struct in, and its place in a key view.

    ``sql`` reads it from a key view, where columns are named after their ids. A ``required`` one
    is null in no row.
    """

    field_id: int
    names: tuple[str, ...]
    type: str
    sql: str
    required: bool


@dataclass(frozen=True)
class DeleteKeys:
    """All key columns of some delete files, by field id, and a schema that reads only these."""

    columns: Mapping[int, KeyColumn]
    fields: Sequence[Mapping[str, Any]]
    last_column_id: int


def keys_of(metadata: Json, field_ids: Iterable[int]) -> DeleteKeys:
    """Find key columns in a table's schemas, the current one first, then the newest that has the field.

    A delete applies to rows even if its key column was dropped or renamed. Raises
    :class:`~icekit.errors.ConversionRefused` for a floating-point key (not
    allowed by Iceberg's specification, equality delete files), for a type Spark cannot
    read, and for a field that no schema has.
    """
    schemas = [schema_of(metadata), *sorted(metadata.get("schemas") or (), key=lambda s: -int(s.get("schema-id", 0)))]
    tops: dict[int, dict[str, Any]] = {}
    columns: dict[int, KeyColumn] = {}
    for field_id in sorted(set(field_ids)):
        path = next((found for schema in schemas if (found := path_to(schema["fields"], field_id))), None)
        names = tuple(str(field["name"]) for field in path or ())
        if path is None:
            raise ConversionRefused(
                f"Equality deletes name field {field_id}, which no schema of the table has, so icekit cannot tell which rows they delete."
            )
        kind = path[-1]["type"]
        _check(identifier(*names), kind)
        columns[field_id] = KeyColumn(field_id, names, str(kind), key_sql([_name(f) for f in path]), _is_required(schemas, field_id))
        _add(tops, path)
    every = [int(metadata.get("last-column-id") or 0), *(int(f["id"]) for schema in schemas for f in _walk(schema["fields"]))]
    return DeleteKeys(columns, [_json(top) for top in tops.values()], max(every))


def _is_required(schemas: Sequence[Json], field_id: int) -> bool:
    """Whether no row has a null in this column: false if any schema allowed nulls, because old files may hold them."""
    paths = [found for schema in schemas if (found := path_to(schema["fields"], field_id))]
    return all(field.get("required") for found in paths for field in found)


def key_sql(names: Sequence[str]) -> str:
    """SQL for the value of a key column by its names, outermost first.

    To Iceberg's readers a struct that is null does not equal one whose field is null, so the value of
    a nested field includes whether each of its structs is null.
    """
    if len(names) == 1:
        return identifier(*names)
    missing = ", ".join(f"{identifier(*names[:depth])} IS NULL" for depth in range(1, len(names)))
    return f"struct({missing}, {identifier(*names)})"


def _check(name: str, kind: object) -> None:
    if not isinstance(kind, str):
        raise ConversionRefused(
            f"Key column {name} is a {kind.get('type') if isinstance(kind, Mapping) else kind}; a key must be a primitive type."
        )
    if kind in {"float", "double"}:
        raise ConversionRefused(
            f"Key column {name} is a {kind}: floating-point numbers cannot be keys (NaN and -0.0 equal different values "
            "in different engines, and Iceberg's specification forbids them). Give the writer another key, and compact the table to remove these deletes."
        )
    if kind.partition("(")[0] in _UNREADABLE:
        raise ConversionRefused(f"Key column {name} is a {kind}, which Spark cannot read. Convert these deletes with an engine that can.")


def path_to(fields: Sequence[Json], field_id: int) -> tuple[Json, ...] | None:
    """The fields from the outermost to the one with the id, through structs only."""
    for field in fields:
        if field["id"] == field_id:
            return (field,)
        kind = field["type"]
        if isinstance(kind, Mapping) and kind.get("type") == "struct" and (found := path_to(kind["fields"], field_id)):
            return (field, *found)
    return None


def _walk(fields: Sequence[Json]) -> Iterable[Json]:
    for field in fields:
        yield field
        if isinstance(field["type"], Mapping) and field["type"].get("type") == "struct":
            yield from _walk(field["type"]["fields"])


def _name(field: Json) -> str:
    """The name in a key view: derived from the id, so names cannot clash, whatever case or characters the table uses."""
    return f"c{field['id']}"


def _add(tops: dict[int, dict[str, Any]], path: Sequence[Json]) -> None:
    """Add a path to a tree of fields; branches that lead to other keys are kept."""
    level = tops
    for field in path:
        node = level.setdefault(int(field["id"]), {"field": field, "inner": {}})
        level = node["inner"]


def _json(node: Mapping[str, Any]) -> dict[str, Any]:
    """A field for the metadata of a key view: optional, because old files may lack it."""
    field, inner = node["field"], node["inner"]
    kind = {"type": "struct", "fields": [_json(each) for each in inner.values()]} if inner else field["type"]
    defaults = {key: field[key] for key in ("initial-default", "write-default") if key in field}
    return {"id": field["id"], "name": _name(field), "required": False, "type": kind, **defaults}


# --- Present the keys of data files and of equality delete files to Spark as one table, and nothing else from these files
#
# A key view is a scratch Iceberg table whose data files are the table's own data files and
# delete files. Its schema holds the key columns by field id, so Iceberg's readers handle formats,
# renamed and promoted columns; the other properties of a file that a join needs (its number, its order by sequence
# number, partition and kind) are its partition values, which cost nothing to read, unlike a
# column with the path. A key column that the table is partitioned by has the value of a data file's
# partition, as Iceberg reads it, so such files have their own spec in the view.


# The partition fields of a file in the view.
FILE, SEQUENCE, PART, KIND = "f", "s", "p", "k"
_COLUMNS = ((FILE, "int"), (SEQUENCE, "long"), (PART, "int"), (KIND, "int"))
#: The field id of the first such partition field.
_PARTITION = 1000
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
#: The kind of data files; delete files have the number of their key set, from 0.
DATA = -1


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a key view and its partition values."""

    file: File
    #: Of a data file its place in the listing, of a delete file its place among those of its partition.
    number: int
    kind: int


@contextlib.contextmanager
def key_view(spark: SparkSession, table: Identifier, metadata: Json, keys: DeleteKeys, entries: Sequence[Entry]) -> Iterator[Identifier]:
    """A key view of some files of a table (named with its catalog); dropped afterwards, with the few files it wrote.

    Raises :class:`~icekit.errors.CloneRefused` if the catalog cannot register a scratch table.
    """
    io = load_table(spark, table).io()
    made = scratch_name(table)
    view: Identifier = (table[0], *made)
    scratch = scratch_folder(str(metadata["location"]), made)
    shapes = _shapes(keys, entries)
    location = f"{scratch}/metadata/00000-{uuid.uuid4()}.metadata.json"
    write_bytes(io, location, json.dumps(_metadata(metadata, keys, scratch, shapes, owned(table, scratch, own_files=True))).encode())
    try:
        try:
            check_drop(spark, table, scratch)
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(table[0], NAMESPACE)}")
            spark.sql(call(table[0], "register_table", table=display_name(made), metadata_file=location))
        except CloneRefused:
            raise
        except Exception as error:
            if kind_of(error) == "conflict" or isinstance(explain(error, table), CatalogUnreachable):
                raise  # the next attempt may succeed
            raise CloneRefused(
                f"Catalog {table[0]!r} cannot register a scratch table in namespace {NAMESPACE} ({reason(explain(error, table))}). The join of rows and deletes needs this table: "
                "grant the right to create tables there.",
                detail=scrub(str(error)),
            ) from None
        _append(spark, load_table(spark, view), keys, shapes, entries)
        spark.sql(f"REFRESH TABLE {identifier(*view)}")
        yield view
    finally:
        # What stays is removed later as any stale clone is; and a commit that was made inside is no failure.
        with contextlib.suppress(Exception):
            # Not PURGE: its data files belong to the table.
            spark.sql(f"DROP TABLE IF EXISTS {identifier(*view)}")
        with contextlib.suppress(Exception):
            io.deletePrefix(f"{scratch}/")
        remove_folders(spark, scratch)


def _shapes(keys: DeleteKeys, entries: Sequence[Entry]) -> list[tuple[int, ...]]:
    """The sets of key columns whose values come from partitions, among the files; the empty set first. Their places are the view's specs."""
    return [(), *sorted({_from_partition(keys, entry) for entry in entries} - {()})]


def _from_partition(keys: DeleteKeys, entry: Entry) -> tuple[int, ...]:
    return tuple(field_id for field_id, _ in entry.file.constants if field_id in keys.columns)


def _metadata(
    table: Json, keys: DeleteKeys, location: str, shapes: Sequence[tuple[int, ...]], owner: Mapping[str, str]
) -> Mapping[str, Any]:
    """The metadata of an empty table with the key columns and the four that describe a file."""
    first = keys.last_column_id + 1
    columns = [{"id": first + i, "name": name, "required": True, "type": kind} for i, (name, kind) in enumerate(_COLUMNS)]
    partition = [
        {"name": name, "transform": "identity", "source-id": first + i, "field-id": _PARTITION + i} for i, (name, _) in enumerate(_COLUMNS)
    ]
    places = _places(shapes)
    specs = [
        [*partition, *({"name": f"i{i}", "transform": "identity", "source-id": i, "field-id": places[i]} for i in shape)]
        for shape in shapes
    ]
    properties = {
        **owner,
        "gc.enabled": "false",
        "write.metadata.path": f"{location}/metadata",
        "write.data.path": f"{location}/data",
        # Keys are a small part of a file, so one task can read many.
        "read.split.open-file-cost": "1048576",
    }
    mapping = (table.get("properties") or {}).get("schema.name-mapping.default")
    if mapping:
        properties["schema.name-mapping.default"] = mapping
    version = max(2, int(table.get("format-version", 2)))
    more = {"next-row-id": 0} if version >= 3 else {}
    return {
        "format-version": version,
        "table-uuid": str(uuid.uuid4()),
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": int(time.time() * 1000),
        "last-column-id": first + len(_COLUMNS),
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [*keys.fields, *columns]}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": number, "fields": fields} for number, fields in enumerate(specs)],
        "last-partition-id": max([_PARTITION + len(_COLUMNS), *places.values()]),
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": properties,
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        **more,
    }


def _places(shapes: Sequence[tuple[int, ...]]) -> dict[int, int]:
    """Field ids, in the view's partitions, of the key columns whose values come from partitions."""
    found = sorted({field_id for shape in shapes for field_id in shape})
    return {field_id: _PARTITION + len(_COLUMNS) + place for place, field_id in enumerate(found)}


def _append(spark: SparkSession, view: Any, keys: DeleteKeys, shapes: Sequence[tuple[int, ...]], entries: Sequence[Entry]) -> None:
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    mapper = iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper()
    parser, numbers, places = iceberg.ContentFileParser, {shape: number for number, shape in enumerate(shapes)}, _places(shapes)
    specs = [view.specs()[number] for number in numbers.values()]
    append = view.newFastAppend()
    for entry in entries:
        shape = _from_partition(keys, entry)
        values = dict(entry.file.constants)
        given = {str(places[i]): single_value(keys.columns[i].type, values[i]) for i in shape}
        file = _data_file(entry, numbers[shape], given)
        append.appendFile(parser.fromJson(mapper.readTree(json.dumps(file)), specs[numbers[shape]]))
    append.commit()


def single_value(kind: str, value: Scalar) -> Scalar:
    """A partition value in Iceberg's JSON format (table spec, "JSON single-value serialization")."""
    if value is None or isinstance(value, bool):
        return value
    try:
        if kind == "date":
            return (_EPOCH + dt.timedelta(days=int(value))).date().isoformat()
        if kind in {"timestamp", "timestamptz"}:
            moment = _EPOCH + dt.timedelta(microseconds=int(value))
            return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + ("+00:00" if kind == "timestamptz" else "")
    except OverflowError:
        raise ConversionRefused(f"A partition value is a {kind} before year 1 or after 9999, which cannot be written as a key.") from None
    if kind == "binary" or kind.startswith("fixed"):
        return str(value).upper()
    return value


def _data_file(entry: Entry, spec_id: int, given: Mapping[str, Scalar]) -> Mapping[str, Any]:
    file = entry.file
    order = order_of(file.sequence) if entry.kind == DATA else order_of(file.sequence, entry.number)
    values = (entry.number, order, file.part, entry.kind)
    made: dict[str, Any] = {
        "spec-id": spec_id,
        "content": "DATA",
        "file-path": file.path,
        "file-format": file.format,
        "partition": {**{str(_PARTITION + i): value for i, value in enumerate(values)}, **given},
        "file-size-in-bytes": file.size,
        "record-count": file.records,
    }
    if file.split_offsets:
        made["split-offsets"] = list(file.split_offsets)
    return made


#: Most distinct keys that one task holds in memory (some 150 bytes each): deduplicated keys
#: spread evenly, whatever the skew, so this bounds a task's memory and not the table's size.
KEYS_PER_TASK = 400_000
#: Up to this many deletes, every task gets all of them, and no row is shuffled.
BROADCAST_KEYS = 200_000
_LEAST_TASKS = 4


@dataclass(frozen=True, slots=True)
class KeySet:
    """Delete files with one key: ``kind`` is their number in the key view; global ones apply to every partition."""

    kind: int
    columns: tuple[KeyColumn, ...]
    is_global: bool
    records: int
    max_sequence: int


def dead_rows(spark: SparkSession, view: Identifier, key_sets: Sequence[KeySet], ruled_out: DataFrame | None = None) -> DataFrame:
    """The deleted rows, as ``f`` (number of the data file) and ``pos`` (bigint); a row may appear twice.

    A row is deleted by a delete with its key and a higher sequence number (and of its partition,
    unless the delete is global). The query fails at a row with a delete that is ``ruled_out`` for its file.
    """
    return _united(_dead(spark, view, key_set, ruled_out, unless_ruled_out) for key_set in key_sets)


def disagreeing(spark: SparkSession, view: Identifier, key_sets: Sequence[KeySet], ruled_out: DataFrame) -> list[int]:
    """The numbers of some data files with rows at which :func:`dead_rows` fails."""
    rows = _united(_dead(spark, view, key_set, ruled_out, by_ruled_out) for key_set in key_sets)
    return sorted(row[0] for row in rows.select(FILE).distinct().limit(MOST_FILES).collect())


def _united(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionAll(other), frames)


def looked_up(spark: SparkSession, view: Identifier, key_sets: Sequence[KeySet], sample: str, given: DataFrame | None = None) -> DataFrame:
    """Rows as ``f``, ``pos`` and ``dead``: whether a plain join on the keys themselves finds a newer delete, of any key set.

    ``sample`` is SQL (see :func:`sampled`) that takes only rows with some keys of the first key set; the deletes of the others are read in full.
    ``given`` are the deletes of the first set (see :func:`deduplicated`), :func:`hinted`, if they have been read.
    """
    first = key_sets[0]
    keys = [f"{c.sql} AS {_row_key(key_set, i)}" for key_set in key_sets for i, c in enumerate(key_set.columns)]
    selected = ", ".join([FILE, "_pos AS pos", f"{SEQUENCE} AS r", f"{PART} AS part", *keys])
    rows = spark.sql(f"SELECT {selected} FROM {identifier(*view)} WHERE {KIND} = {DATA} AND {sample}")
    dead = ["false"]
    for key_set in key_sets:
        newest = f"s{key_set.kind}"
        taken = sample if key_set.columns == first.columns else "true"
        deletes = given if given is not None and key_set is first else hinted(deduplicated(spark, view, key_set, taken), key_set.records)
        deletes = deletes.withColumnRenamed(SEQUENCE, newest)
        equal = deletes[newest] > rows["r"]
        if not key_set.is_global:
            equal = (rows["part"] == deletes[PART]) & equal
        for place in range(len(key_set.columns)):
            equal = rows[_row_key(key_set, place)].eqNullSafe(deletes[f"k{place}"]) & equal
        rows = rows.join(deletes, equal, "left")
        dead.append(f"{newest} IS NOT NULL")
    return rows.selectExpr(FILE, "pos", f"({' OR '.join(dead)}) AS dead")


def sampled(values: Sequence[str], salt: int, one_in: int) -> str:
    """SQL for whether a row, or a delete, has one of the sampled keys: one in so many, by a hash with a salt of the key's ``values``, which are SQL."""
    return "true" if one_in == 1 else f"pmod(xxhash64({salt}, {', '.join(values)}), {one_in}) = 0"


def _row_key(key_set: KeySet, place: int) -> str:
    return f"r{key_set.kind}_{place}"


def words(dead: DataFrame, records: int, *more: str) -> DataFrame:
    """Positions of rows as ``f``, ``word`` (bigint) and ``bits`` (bigint): 64 positions per word; a row counts once.

    At most one bit per row, plus as much again for the word numbers, so the driver can hold a batch. Positions with different values in the columns
    ``more`` are kept apart.
    """
    from pyspark.sql import functions as F

    # Only numbers, so that Spark aggregates in generated code; grouped by 32,768 positions first.
    placed = dead.selectExpr(
        "f", "shiftright(pos, 15) AS b", "shiftright(pos, 6) AS word", "shiftleft(1L, CAST(pos & 63 AS int)) AS bit", *more
    )
    gathered = (
        placed.repartition(max(tasks(records) // 4, _LEAST_TASKS), "f", "b")
        .groupBy("f", "b", "word", *more)
        .agg(F.bit_or("bit").alias("bits"))
    )
    return gathered.select("f", "word", "bits", *more)


def tasks(records: int) -> int:
    """The number of tasks that the deletes are spread over."""
    return max(1, math.ceil(records / KEYS_PER_TASK))


def deduplicated(spark: SparkSession, view: Identifier, key_set: KeySet, where: str = "true") -> DataFrame:
    """Each deleted key once (``k0``, ``k1`` …, and ``p`` unless global), with its highest sequence number ``s``; ``where`` takes only some."""
    names = ", ".join(_names(key_set))
    rows = f"SELECT {SEQUENCE}, {_keys(key_set)} FROM {identifier(*view)} WHERE {KIND} = {key_set.kind} AND {where}"
    return spark.sql(f"SELECT {names}, max({SEQUENCE}) AS {SEQUENCE} FROM ({rows}) GROUP BY {names}")


def hinted(deletes: DataFrame, records: int) -> DataFrame:
    """At most so many deletes, for a plain join: if they are few, every task gets all of them."""
    return deletes.hint("broadcast" if records <= BROADCAST_KEYS else "merge")


def _names(key_set: KeySet) -> list[str]:
    """The identity of a key: its columns, and the number of its partition."""
    return [*(() if key_set.is_global else (PART,)), *(f"k{i}" for i in range(len(key_set.columns)))]


def _keys(key_set: KeySet) -> str:
    return ", ".join([*(() if key_set.is_global else (PART,)), *(f"{column.sql} AS k{i}" for i, column in enumerate(key_set.columns))])


def _dead(
    spark: SparkSession, view: Identifier, key_set: KeySet, ruled_out: DataFrame | None, narrow: Callable[[str, str, str], str]
) -> DataFrame:
    """Join on a 64-bit hash of the key, which Spark looks up as a number, and then compare the keys themselves."""
    from pyspark.sql import functions as F

    names = _names(key_set)
    hashed = f"xxhash64({', '.join(names)}) AS h"
    older = f"{KIND} = {DATA} AND {SEQUENCE} < {order_of(key_set.max_sequence, 0)}L"
    rows = spark.sql(
        f"SELECT *, {hashed} FROM (SELECT {FILE}, _pos AS pos, {SEQUENCE}, {_keys(key_set)} FROM {identifier(*view)} WHERE {older})"
    )
    deletes = spark.sql(
        f"SELECT *, {hashed} FROM (SELECT {SEQUENCE}, {_keys(key_set)} FROM {identifier(*view)} WHERE {KIND} = {key_set.kind})"
    )
    few = key_set.records <= BROADCAST_KEYS
    if not few:
        # By hash alone, as the join needs it: all deletes of a key are then in one task, and pre-aggregation
        # gains nothing.
        deletes = deletes.repartition(max(tasks(key_set.records), spark.sparkContext.defaultParallelism), "h")
    once = deletes.groupBy("h", *names).agg(_max(SEQUENCE)).hint("broadcast" if few else "shuffle_hash")
    on = F.expr(f"r.h = d.h AND {_matches(key_set, names)}")
    if ruled_out is None:
        return rows.alias("r").join(once.alias("d"), on, "left_semi").select(FILE, "pos")
    # A delete of each key, so that no row is doubled. The words come to what was found, so that the shuffle does not move them.
    found = rows.alias("r").join(once.alias("d"), on).select(f"r.{FILE}", "r.pos", f"d.{SEQUENCE}")
    placed = found.join(ruled_out.hint("broadcast"), found[FILE] == ruled_out[RULED_FILE], "left")
    words = identifier(EVERYWHERE if key_set.is_global else OWN)
    return placed.where(narrow("true", SEQUENCE, words)).select(FILE, "pos")


def _max(column: str) -> Column:
    from pyspark.sql import functions as F

    return F.max(column).alias(column)


def same_value(row: str, delete: str, *, required: bool) -> str:
    """SQL for whether a key column of a row and of a delete are equal, nulls too unless it is required; not a plain equality, see :func:`_matches`."""
    return f"coalesce({row} = {delete}, {'false' if required else f'isnull({row}) AND isnull({delete})'})"


def _matches(key_set: KeySet, names: Sequence[str]) -> str:
    """SQL for what else a row and a delete with one hash must agree in; written so that Spark joins on the hash and only filters on the keys."""
    # Not as equalities: Spark would join on all of them, and look up strings.
    required = {f"k{i}" for i, column in enumerate(key_set.columns) if column.required}
    same = [same_value(f"r.{k}", f"d.{k}", required=k in required) for k in names if k != PART]
    if PART in names:
        same.append(f"r.{PART} BETWEEN d.{PART} AND d.{PART}")
    return " AND ".join([f"d.{SEQUENCE} > r.{SEQUENCE}", *same])
