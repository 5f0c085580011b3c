"""Present the keys of data files and of equality delete files to Spark as one table, and nothing
else from these files.

A key view is a scratch Iceberg table whose data files are the table's own data files and delete
files. Its schema holds the key columns by field id, so Iceberg's readers handle formats, renamed
and promoted columns; the other properties of a file that a join needs (its number, its order by
sequence number, partition and kind) are its partition values, which cost nothing to read, unlike a
column with the path. A key column that the table is partitioned by has the value of a data file's
partition, as Iceberg reads it, so such files have their own spec in the view.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import load_table, write_bytes
from icekit.engine.errors import explain, kind_of, reason
from icekit.errors import CatalogUnreachable, CloneRefused, ConversionRefused
from icekit.facts.files import Scalar
from icekit.facts.metadata import Json
from icekit.resolve.applies import order_of
from icekit.resolve.keys import DeleteKeys
from icekit.resolve.listing import File
from icekit.sandbox.clone_metadata import check_drop
from icekit.sandbox.scratch import NAMESPACE, owned, remove_folders, scratch_folder, scratch_name
from icekit.secrets import scrub
from icekit.sql import Identifier, call, display_name, identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    #: Of a data file its place in the listing, of a delete file its place among those of its
    # partition.
    number: int
    kind: int


@contextlib.contextmanager
def key_view(
    spark: SparkSession,
    table: Identifier,
    metadata: Json,
    keys: DeleteKeys,
    entries: Sequence[Entry],
) -> Iterator[Identifier]:
    """A key view of some files of a table (named with its catalog); dropped afterwards, with the
    few files it wrote.

    Raises :class:`~icekit.errors.CloneRefused` if the catalog cannot register a scratch table.
    """
    io = load_table(spark, table).io()
    copy = scratch_name(table)
    view: Identifier = (table[0], *copy)
    scratch = scratch_folder(str(metadata["location"]), copy)
    shapes = _shapes(keys, entries)
    location = f"{scratch}/metadata/00000-{uuid.uuid4()}.metadata.json"
    write_bytes(
        io,
        location,
        json.dumps(
            _metadata(metadata, keys, scratch, shapes, owned(table, scratch, own_files=True))
        ).encode(),
    )
    try:
        try:
            check_drop(spark, table, scratch)
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(table[0], NAMESPACE)}")
            spark.sql(
                call(table[0], "register_table", table=display_name(copy), metadata_file=location)
            )
        except CloneRefused:
            raise
        except Exception as error:
            if kind_of(error) == "conflict" or isinstance(
                explain(error, table), CatalogUnreachable
            ):
                raise  # the next attempt may succeed
            raise CloneRefused(
                f"Catalog {table[0]!r} cannot register a scratch table in namespace {NAMESPACE} "
                f"({reason(explain(error, table))}). The join of rows and deletes needs this "
                "table: grant the right to create tables there.",
                detail=scrub(str(error)),
            ) from None
        _append(spark, load_table(spark, view), keys, shapes, entries)
        spark.sql(f"REFRESH TABLE {identifier(*view)}")
        yield view
    finally:
        # What stays is removed later as any stale clone is; and a commit that was made inside is no
        # failure.
        with contextlib.suppress(Exception):
            # Not PURGE: its data files belong to the table.
            spark.sql(f"DROP TABLE IF EXISTS {identifier(*view)}")
        with contextlib.suppress(Exception):
            io.deletePrefix(f"{scratch}/")
        remove_folders(spark, scratch)


def _shapes(keys: DeleteKeys, entries: Sequence[Entry]) -> list[tuple[int, ...]]:
    """The sets of key columns whose values come from partitions, among the files; the empty set
    first. Their places are the view's specs.
    """
    return [(), *sorted({_from_partition(keys, entry) for entry in entries} - {()})]


def _from_partition(keys: DeleteKeys, entry: Entry) -> tuple[int, ...]:
    return tuple(field_id for field_id, _ in entry.file.constants if field_id in keys.columns)


def _metadata(
    table: Json,
    keys: DeleteKeys,
    location: str,
    shapes: Sequence[tuple[int, ...]],
    owner: Mapping[str, str],
) -> Mapping[str, Any]:
    """The metadata of an empty table with the key columns and the four that describe a file."""
    first = keys.last_column_id + 1
    columns = [
        {"id": first + i, "name": name, "required": True, "type": kind}
        for i, (name, kind) in enumerate(_COLUMNS)
    ]
    own = [_identity(name, first + i, _PARTITION + i) for i, (name, _) in enumerate(_COLUMNS)]
    places = _places(shapes)
    specs = [[*own, *(_identity(f"i{i}", i, places[i]) for i in shape)] for shape in shapes]
    properties = {
        **owner,
        "gc.enabled": "false",
        "write.metadata.path": f"{location}/metadata",
        "write.data.path": f"{location}/data",
        # Keys are a small part of a file, so one task can read many.
        "read.split.open-file-cost": "1048576",
    }
    if mapping := (table.get("properties") or {}).get("schema.name-mapping.default"):
        properties["schema.name-mapping.default"] = mapping
    version = max(2, int(table.get("format-version", 2)))
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
        "partition-specs": [
            {"spec-id": number, "fields": fields} for number, fields in enumerate(specs)
        ],
        "last-partition-id": max([_PARTITION + len(_COLUMNS), *places.values()]),
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": properties,
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        **({"next-row-id": 0} if version >= 3 else {}),
    }


def _identity(name: str, source_id: int, field_id: int) -> Json:
    """A partition field."""
    return {
        "name": name,
        "transform": "identity",
        "source-id": source_id,
        "field-id": field_id,
    }


def _places(shapes: Sequence[tuple[int, ...]]) -> dict[int, int]:
    """Field ids, in the view's partitions, of the key columns whose values come from partitions."""
    field_ids = sorted({field_id for shape in shapes for field_id in shape})
    return {field_id: _PARTITION + len(_COLUMNS) + i for i, field_id in enumerate(field_ids)}


def _append(
    spark: SparkSession,
    view: Any,
    keys: DeleteKeys,
    shapes: Sequence[tuple[int, ...]],
    entries: Sequence[Entry],
) -> None:
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    mapper = iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper()
    parser, numbers, places = (
        iceberg.ContentFileParser,
        {shape: number for number, shape in enumerate(shapes)},
        _places(shapes),
    )
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
    """A partition value in Iceberg's JSON format (table spec, "JSON single-value
    serialization").
    """
    if value is None or isinstance(value, bool):
        return value
    try:
        if kind == "date":
            return (_EPOCH + dt.timedelta(days=int(value))).date().isoformat()
        if kind in {"timestamp", "timestamptz"}:
            moment = _EPOCH + dt.timedelta(microseconds=int(value))
            return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + (
                "+00:00" if kind == "timestamptz" else ""
            )
    except OverflowError:
        raise ConversionRefused(
            f"A partition value is a {kind} before year 1 or after 9999, which cannot be written "
            "as a key."
        ) from None
    if kind == "binary" or kind.startswith("fixed"):
        return str(value).upper()
    return value


def _data_file(entry: Entry, spec_id: int, given: Mapping[str, Scalar]) -> Mapping[str, Any]:
    file = entry.file
    order = order_of(file.sequence) if entry.kind == DATA else order_of(file.sequence, entry.number)
    values = (entry.number, order, file.part, entry.kind)
    data_file: dict[str, Any] = {
        "spec-id": spec_id,
        "content": "DATA",
        "file-path": file.path,
        "file-format": file.format,
        "partition": {**{str(_PARTITION + i): value for i, value in enumerate(values)}, **given},
        "file-size-in-bytes": file.size,
        "record-count": file.records,
    }
    if file.split_offsets:
        data_file["split-offsets"] = list(file.split_offsets)
    return data_file
