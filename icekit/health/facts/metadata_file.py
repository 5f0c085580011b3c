"""Load a table's metadata file, and check it."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from icekit.common.errors import FormatTooNew, MetadataUnreadable, first_line
from icekit.common.units import shorten
from icekit.iceberg.metadata import Damaged, Json, children, lineage, snapshots_by_id

if TYPE_CHECKING:
    from icekit.engine.tables import TableSource


# Ids that mean "no snapshot", as writers of format version 1 write them.
_NO_SNAPSHOT = (None, -1)
# The figures read from a snapshot's summary (SnapshotSummary); engines add to the totals with every
# commit.
_FIGURES = re.compile(
    "(added|deleted|removed|total)-((data|delete|equality-delete|position-delete)-files|dvs"
    "|files-size|records|equality-deletes|position-deletes)|changed-partition-count"
)
_FIGURE = re.compile(r"-?[0-9]{1,19}")
# The end of the year 9999: a later moment cannot be written as a date.
_LAST_MS = 253_402_300_799_999
_LONGEST = 60  # characters of a value in a message
# Types nested deeper than any engine writes would overflow the stack of a reader.
_DEEPEST = 200
_LONGS = range(-(2**63), 2**63)
_NAMES = {
    str: "a string",
    bool: "true or false",
    int: "a 64-bit whole number",
    list: "a list",
    dict: "an object",
}


def _wrong(value: Any, path: str, wanted: str) -> Damaged:
    return Damaged(f"{path} is {_shown(value)}, but must be {wanted}")


def _is(kind: type, value: Any, path: str) -> None:
    if type(value) is not kind or (kind is int and value not in _LONGS):
        raise _wrong(value, path, _NAMES[kind])


def _check(kind: Any, value: Any, path: str) -> None:
    """Check a value, which is None if it is missing.

    A kind is a type, a tuple of texts, a list with the kind of its items, a dictionary with the
    kind of each field, or a function. A field with ``?`` may be missing, one with ``??`` may also
    be null; the field ``*`` stands for all.
    """
    match kind:
        case type():
            _is(kind, value, path)
        case tuple():
            if value not in kind:
                raise _wrong(value, path, " or ".join(kind))
        case [of_item]:
            _is(list, value, path)
            for index, item in enumerate(value):
                _check(of_item, item, f"{path}[{index}]")
        case {"*": of_value}:
            _is(dict, value, path)
            for key, each in value.items():
                _check(of_value, each, f"{path}.{key}")
        case dict():
            _is(dict, value, path)
            for key, of_value in kind.items():
                name = key.rstrip("?")
                is_left_out = value.get(name) is None if key.endswith("??") else name not in value
                if not (is_left_out and key.endswith("?")):
                    _check(of_value, value.get(name), f"{path}.{name}" if path else name)
        case _:
            kind(value, path)


def _moment(value: Any, path: str) -> None:
    _is(int, value, path)
    if not 0 <= value <= _LAST_MS:
        raise _wrong(value, path, "milliseconds since 1970, before the year 10000")


def _type(value: Any, path: str) -> None:
    if isinstance(value, str):
        return
    if path.count(".") > _DEEPEST:
        raise Damaged(f"{path[:_LONGEST]}… is a type nested more than {_DEEPEST // 2} times")
    _check({"type": tuple(_NESTED)}, value, path)
    _check(_NESTED[value["type"]], value, path)


def _summary(value: Any, path: str) -> None:
    _check({"*": str}, value, path)
    for key, figure in value.items():
        if _FIGURES.fullmatch(key) and not _FIGURE.fullmatch(figure):
            raise _wrong(figure, f"{path}.{key}", "a whole number")


_COLUMNS = {
    "fields": [{"id": int, "name": str, "required": bool, "type": _type, "doc?": str}],
}
_NESTED = {
    "struct": _COLUMNS,
    "list": {"element-id": int, "element-required": bool, "element": _type},
    "map": {
        "key-id": int,
        "value-id": int,
        "value-required": bool,
        "key": _type,
        "value": _type,
    },
}
_SCHEMA = {"type": ("struct",), **_COLUMNS, "schema-id??": int}
_SPEC_FIELD = {
    "name": str,
    "transform": str,
    "field-id?": int,
    "source-id??": int,
    "source-ids??": [int],
}
_SORT_FIELD = {"transform": str, "direction": str, "null-order": str, "source-id": int}
_SNAPSHOT = {
    "snapshot-id": int,
    "timestamp-ms": _moment,
    "parent-snapshot-id?": int,
    "sequence-number?": int,
    "summary?": _summary,
    "schema-id??": int,
    "first-row-id??": int,
    "manifest-list??": str,
}
_REF = {
    "type": ("branch", "tag"),
    "snapshot-id": int,
    "max-ref-age-ms??": int,
    "max-snapshot-age-ms??": int,
    "min-snapshots-to-keep??": int,
}
_STATISTICS = {"statistics-path": str, "snapshot-id": int, "file-size-in-bytes": int}
_BLOB = {
    "type": str,
    "snapshot-id": int,
    "sequence-number": int,
    "fields": [int],
    "properties?": {"*": str},
}
#: The format versions with rules here (table spec): what all require and allow, and what each
# requires in addition.
_TABLE: Mapping[int, Any] = {
    1: {
        "location": str,
        "last-updated-ms": int,
        "last-column-id": int,
        "properties?": {"*": str},
        "schemas?": [_SCHEMA],
        "partition-specs?": [{"fields": [_SPEC_FIELD], "spec-id": int}],
        "sort-orders?": [{"fields": [_SORT_FIELD], "order-id": int}],
        "snapshots?": [_SNAPSHOT],
        "refs?": {"*": _REF},
        "statistics?": [
            {**_STATISTICS, "file-footer-size-in-bytes": int, "blob-metadata": [_BLOB]}
        ],
        "partition-statistics?": [_STATISTICS],
        "table-uuid??": str,
        "last-partition-id??": int,
        "snapshot-log??": [{"snapshot-id": int, "timestamp-ms": int}],
        "metadata-log??": [{"timestamp-ms": int, "metadata-file": str}],
    },
    2: {
        "table-uuid": str,
        "last-partition-id": int,
        "sort-orders": list,
        "last-sequence-number": int,
    },
    3: {"next-row-id": int},
}


def check(metadata: Any) -> None:
    """Raise :class:`~icekit.iceberg.metadata.Damaged` for the first error in a table's metadata
    JSON.
    """
    _is(dict, metadata, "the document")
    version = _version(metadata)
    for since, kind in _TABLE.items():
        if version >= since:
            _check(kind, metadata, "")
    columns = field_ids(_current_schema(metadata, version))
    _check_spec(metadata, version, columns)
    _check_order(metadata, columns)
    _check_snapshots(metadata, version)


def _version(metadata: Json) -> int:
    version = metadata.get("format-version")
    if type(version) is int and version in _TABLE:
        return version
    raise Damaged(
        f"format-version is {_shown(version)}, but must be a whole number of 1 to {max(_TABLE)}"
    )


def _current_schema(metadata: Json, version: int) -> Json:
    if schemas := _by_id(metadata, "schemas", "schema-id"):
        return schemas[_chosen(metadata, "current-schema-id", schemas, "schemas")]
    schema: Json | None = metadata.get("schema")
    if version > 1 or schema is None:
        raise Damaged("schemas is empty or missing, so the table has no columns")
    _check(_SCHEMA, schema, "schema")
    return schema


def field_ids(schema: Json) -> set[int]:
    """The ids of all columns of a checked schema or nested type, nested ones too."""
    ids: set[int] = set()
    for child in children(schema):
        ids |= {child.field_id}.union(() if isinstance(child.type, str) else field_ids(child.type))
    return ids


def _check_spec(metadata: Json, version: int, columns: set[int]) -> None:
    if specs := _by_id(metadata, "partition-specs", "spec-id"):
        default = _chosen(metadata, "default-spec-id", specs, "partition-specs")
        for index, (spec_id, spec) in enumerate(specs.items()):
            path = f"partition-specs[{index}].fields"
            _check_columns(spec["fields"], path, columns if spec_id == default else None)
        return
    if version > 1:
        raise Damaged(
            "partition-specs is empty or missing, so it is not known how the files are partitioned"
        )
    fields = metadata.get("partition-spec")
    _check([_SPEC_FIELD], fields, "partition-spec")
    _check_columns(fields or (), "partition-spec", columns)


def _check_order(metadata: Json, columns: set[int]) -> None:
    orders = _by_id(metadata, "sort-orders", "order-id")
    # Version 1 may have none at all.
    if "sort-orders" in metadata and metadata.get("default-sort-order-id") != 0:
        default = _chosen(metadata, "default-sort-order-id", orders, "sort-orders")
        path = f"sort-orders[{list(orders).index(default)}].fields"
        _check_columns(orders[default]["fields"], path, columns)


def _check_columns(fields: Sequence[Json], path: str, columns: set[int] | None) -> None:
    """Check the columns of fields; those that partition or sort new files must be among some. For a
    dropped column, version 1 keeps only a placeholder.
    """
    for index, field in enumerate(fields):
        source_id = field.get("source-id")
        sources = field.get("source-ids") if source_id is None else [source_id]
        if sources is None:
            raise Damaged(f"{path}[{index}].source-id is missing")
        for source in sources:
            if columns is not None and field["transform"] != "void" and source not in columns:
                raise Damaged(
                    f"{path}[{index}].source-id is {source}, but no column of the current schema "
                    "has that id"
                )


def _check_snapshots(metadata: Json, version: int) -> None:
    snapshots = _by_id(metadata, "snapshots", "snapshot-id")
    last = metadata["last-sequence-number"] if version > 1 else None
    for index, snapshot in enumerate(snapshots.values()):
        path = f"snapshots[{index}]"
        if snapshot.get("first-row-id") is not None:
            _is(int, snapshot.get("added-rows"), f"{path}.added-rows")
        if snapshot.get("manifest-list") is None:
            _is(list, snapshot.get("manifests"), f"{path}.manifest-list")
        number = snapshot.get("sequence-number") or 0
        if last is not None and number > last:
            raise Damaged(
                f"{path}.sequence-number is {number}, but last-sequence-number is {last}: no "
                "commit can be newer than the last one"
            )
    current = metadata.get("current-snapshot-id")
    if current not in _NO_SNAPSHOT:
        _chosen(metadata, "current-snapshot-id", snapshots, "snapshots")
    refs = metadata.get("refs") or {}
    for name, ref in refs.items():
        _chosen(ref, "snapshot-id", snapshots, "snapshots", f"refs.{name}.")
    head = refs["main"]["snapshot-id"] if "main" in refs else None
    if head is not None and head != current:
        raise Damaged(
            f"current-snapshot-id is {_shown(current)}, but refs.main.snapshot-id is {head}: they "
            "must be equal"
        )
    _check_lineage(metadata)
    if current in _NO_SNAPSHOT:
        _check_log(metadata, snapshots)


def _check_log(metadata: Json, snapshots: Mapping[int, Json]) -> None:
    """Without a current snapshot, check that the snapshot log does not name one.

    Iceberg removes snapshots from the list and from the log together, and leaves both unchanged
    when CREATE OR REPLACE removes the current snapshot, which is a later change. Staged commits and
    other branches are not in the log.
    """
    log = metadata.get("snapshot-log") or ()
    for index, entry in enumerate(log):
        number = entry["snapshot-id"]
        if number not in snapshots:
            raise Damaged(
                f"no snapshot is current, but snapshot-log[{index}].snapshot-id is {number}, "
                "which is not in snapshots"
            )
        if index == len(log) - 1 and entry["timestamp-ms"] == metadata["last-updated-ms"]:
            raise Damaged(
                f"no snapshot is current, but according to snapshot-log[{index}] the last change "
                f"(last-updated-ms) made {number} the current one"
            )


def _check_lineage(metadata: Json) -> None:
    """Check each snapshot's ancestors; every snapshot is visited once."""
    snapshots = snapshots_by_id(metadata)
    checked_ids: set[object] = set()
    for snapshot in snapshots.values():
        walked = []
        for ancestor in lineage(snapshots, snapshot):
            if ancestor["snapshot-id"] in checked_ids:
                break
            walked.append(ancestor["snapshot-id"])
        checked_ids.update(walked)


def _by_id(metadata: Json, name: str, key: str) -> dict[int, Json]:
    """The entries of a list by their ids, in order; the first schemas had no id."""
    entries: dict[int, Json] = {}
    for index, entry in enumerate(metadata.get(name) or ()):
        number = entry.get(key, 0)
        _is(int, number, f"{name}[{index}].{key}")
        if number in entries:
            raise Damaged(
                f"{name}[{index}].{key} is {number}, but another entry of {name} has the same"
            )
        entries[number] = entry
    return entries


def _chosen(of: Json, key: str, entries: Mapping[int, Json], name: str, before: str = "") -> int:
    """The id of one of some entries that a field must have."""
    value: int = of.get(key)  # type: ignore[assignment]
    _is(int, value, before + key)
    if value not in entries:
        raise Damaged(f"{before}{key} is {_shown(value)}, which is not in {name}")
    return value


def _shown(value: Any) -> str:
    """A value; a long one is cut."""
    if value is None:
        return "missing or null"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return shorten(repr(value), _LONGEST)


RESTORE_OLDER = (
    "restore it; if that is impossible, point the catalog at the metadata file before it "
    "(register_table), which loses the last commit"
)


def load_metadata(source: TableSource) -> dict[str, Any]:
    """The table's metadata JSON, as from :func:`sized_metadata`."""
    return sized_metadata(source)[0]


def sized_metadata(source: TableSource) -> tuple[dict[str, Any], int]:
    """The table's metadata JSON, compressed or not, and the size of its file.

    Raises :class:`~icekit.common.errors.MetadataUnreadable` for a file that is not metadata or is
    damaged; the message says where.
    """
    location = source.metadata_location
    raw = source.read(location)
    file_bytes = len(raw)
    try:
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        loaded: dict[str, Any] = json.loads(raw)
    except (ValueError, OSError, EOFError, zlib.error, RecursionError) as error:
        why = "it is empty" if not raw else first_line(error)
        raise MetadataUnreadable(
            f"{location} is not table metadata ({why}); {RESTORE_OLDER}."
        ) from None
    check_metadata(loaded, location)
    return loaded, file_bytes


def check_metadata(loaded: Any, location: str) -> None:
    """Raise :class:`~icekit.common.errors.MetadataUnreadable` for damaged metadata, and for metadata
    of a later format version; ``location`` is the path of the metadata file.
    """
    version = loaded.get("format-version") if isinstance(loaded, dict) else None
    if type(version) is int and version > max(_TABLE):
        raise FormatTooNew(location, version)
    try:
        check(loaded)
    except Damaged as problem:
        raise MetadataUnreadable(
            f"The table metadata {location} is damaged: {problem}; {RESTORE_OLDER}."
        ) from None
