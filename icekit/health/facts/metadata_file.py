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
from icekit.iceberg.metadata import Damaged, Json, child_fields, lineage, snapshots_by_id

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


def _damage(value: Any, path: str, requirement: str) -> Damaged:
    return Damaged(f"{path} is {_value_text(value)}, but must be {requirement}")


def _is(kind: type, value: Any, path: str) -> None:
    if type(value) is not kind or (kind is int and value not in _LONGS):
        raise _damage(value, path, _NAMES[kind])


def _check_value(kind: Any, value: Any, path: str) -> None:
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
                raise _damage(value, path, " or ".join(kind))
        case [item_kind]:
            _is(list, value, path)
            for index, item in enumerate(value):
                _check_value(item_kind, item, f"{path}[{index}]")
        case {"*": value_kind}:
            _is(dict, value, path)
            for key, item_value in value.items():
                _check_value(value_kind, item_value, f"{path}.{key}")
        case dict():
            _is(dict, value, path)
            for key, value_kind in kind.items():
                name = key.rstrip("?")
                is_absent = value.get(name) is None if key.endswith("??") else name not in value
                if not (is_absent and key.endswith("?")):
                    _check_value(value_kind, value.get(name), f"{path}.{name}" if path else name)
        case _:
            kind(value, path)


def _check_moment(value: Any, path: str) -> None:
    _is(int, value, path)
    if not 0 <= value <= _LAST_MS:
        raise _damage(value, path, "milliseconds since 1970, before the year 10000")


def _check_type(value: Any, path: str) -> None:
    if isinstance(value, str):
        return
    if path.count(".") > _DEEPEST:
        raise Damaged(f"{path[:_LONGEST]}… is a type nested more than {_DEEPEST // 2} times")
    _check_value({"type": tuple(_NESTED)}, value, path)
    _check_value(_NESTED[value["type"]], value, path)


def _check_summary(value: Any, path: str) -> None:
    _check_value({"*": str}, value, path)
    for key, figure in value.items():
        if _FIGURES.fullmatch(key) and not _FIGURE.fullmatch(figure):
            raise _damage(figure, f"{path}.{key}", "a whole number")


_COLUMNS = {
    "fields": [{"id": int, "name": str, "required": bool, "type": _check_type, "doc?": str}],
}
_NESTED = {
    "struct": _COLUMNS,
    "list": {"element-id": int, "element-required": bool, "element": _check_type},
    "map": {
        "key-id": int,
        "value-id": int,
        "value-required": bool,
        "key": _check_type,
        "value": _check_type,
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
    "timestamp-ms": _check_moment,
    "parent-snapshot-id?": int,
    "sequence-number?": int,
    "summary?": _check_summary,
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
    format_version = _format_version(metadata)
    for least_version, kind in _TABLE.items():
        if format_version >= least_version:
            _check_value(kind, metadata, "")
    column_ids = field_ids(_current_schema(metadata, format_version))
    _check_spec(metadata, format_version, column_ids)
    _check_order(metadata, column_ids)
    _check_snapshots(metadata, format_version)


def _format_version(metadata: Json) -> int:
    version = metadata.get("format-version")
    if type(version) is int and version in _TABLE:
        return version
    raise Damaged(
        f"format-version is {_value_text(version)}, but must be a whole number of 1 to "
        f"{max(_TABLE)}"
    )


def _current_schema(metadata: Json, version: int) -> Json:
    if schemas := _entries_by_id(metadata, "schemas", "schema-id"):
        return schemas[_referenced_id(metadata, "current-schema-id", schemas, "schemas")]
    schema: Json | None = metadata.get("schema")
    if version > 1 or schema is None:
        raise Damaged("schemas is empty or missing, so the table has no columns")
    _check_value(_SCHEMA, schema, "schema")
    return schema


def field_ids(schema: Json) -> set[int]:
    """The ids of all columns of a checked schema or nested type, nested ones too."""
    ids: set[int] = set()
    for child in child_fields(schema):
        ids |= {child.field_id}.union(() if isinstance(child.type, str) else field_ids(child.type))
    return ids


def _check_spec(metadata: Json, version: int, column_ids: set[int]) -> None:
    if specs := _entries_by_id(metadata, "partition-specs", "spec-id"):
        default_id = _referenced_id(metadata, "default-spec-id", specs, "partition-specs")
        for index, (spec_id, spec) in enumerate(specs.items()):
            path = f"partition-specs[{index}].fields"
            _check_columns(spec["fields"], path, column_ids if spec_id == default_id else None)
        return
    if version > 1:
        raise Damaged(
            "partition-specs is empty or missing, so it is not known how the files are partitioned"
        )
    fields = metadata.get("partition-spec")
    _check_value([_SPEC_FIELD], fields, "partition-spec")
    _check_columns(fields or (), "partition-spec", column_ids)


def _check_order(metadata: Json, column_ids: set[int]) -> None:
    sort_orders = _entries_by_id(metadata, "sort-orders", "order-id")
    # Version 1 may have none at all.
    if "sort-orders" in metadata and metadata.get("default-sort-order-id") != 0:
        default_id = _referenced_id(metadata, "default-sort-order-id", sort_orders, "sort-orders")
        path = f"sort-orders[{list(sort_orders).index(default_id)}].fields"
        _check_columns(sort_orders[default_id]["fields"], path, column_ids)


def _check_columns(fields: Sequence[Json], path: str, column_ids: set[int] | None) -> None:
    """Check the columns of fields; those that partition or sort new files must be among some. For a
    dropped column, version 1 keeps only a placeholder.
    """
    for index, field in enumerate(fields):
        source_id = field.get("source-id")
        source_ids = field.get("source-ids") if source_id is None else [source_id]
        if source_ids is None:
            raise Damaged(f"{path}[{index}].source-id is missing")
        for column_id in source_ids:
            if (
                column_ids is not None
                and field["transform"] != "void"
                and column_id not in column_ids
            ):
                raise Damaged(
                    f"{path}[{index}].source-id is {column_id}, but no column of the current "
                    "schema "
                    "has that id"
                )


def _check_snapshots(metadata: Json, version: int) -> None:
    snapshots = _entries_by_id(metadata, "snapshots", "snapshot-id")
    last_sequence_number = metadata["last-sequence-number"] if version > 1 else None
    for index, snapshot in enumerate(snapshots.values()):
        path = f"snapshots[{index}]"
        if snapshot.get("first-row-id") is not None:
            _is(int, snapshot.get("added-rows"), f"{path}.added-rows")
        if snapshot.get("manifest-list") is None:
            _is(list, snapshot.get("manifests"), f"{path}.manifest-list")
        sequence_number = snapshot.get("sequence-number") or 0
        if last_sequence_number is not None and sequence_number > last_sequence_number:
            raise Damaged(
                f"{path}.sequence-number is {sequence_number}, but last-sequence-number is "
                f"{last_sequence_number}: no "
                "commit can be newer than the last one"
            )
    current_id = metadata.get("current-snapshot-id")
    if current_id not in _NO_SNAPSHOT:
        _referenced_id(metadata, "current-snapshot-id", snapshots, "snapshots")
    refs = metadata.get("refs") or {}
    for name, ref in refs.items():
        _referenced_id(ref, "snapshot-id", snapshots, "snapshots", f"refs.{name}.")
    main_id = refs["main"]["snapshot-id"] if "main" in refs else None
    if main_id is not None and main_id != current_id:
        raise Damaged(
            f"current-snapshot-id is {_value_text(current_id)}, but refs.main.snapshot-id is "
            f"{main_id}: they "
            "must be equal"
        )
    _check_lineage(metadata)
    if current_id in _NO_SNAPSHOT:
        _check_log(metadata, snapshots)


def _check_log(metadata: Json, snapshots: Mapping[int, Json]) -> None:
    """Without a current snapshot, check that the snapshot log does not name one.

    Iceberg removes snapshots from the list and from the log together, and leaves both unchanged
    when CREATE OR REPLACE removes the current snapshot, which is a later change. Staged commits and
    other branches are not in the log.
    """
    log = metadata.get("snapshot-log") or ()
    for index, entry in enumerate(log):
        snapshot_id = entry["snapshot-id"]
        if snapshot_id not in snapshots:
            raise Damaged(
                f"no snapshot is current, but snapshot-log[{index}].snapshot-id is {snapshot_id}, "
                "which is not in snapshots"
            )
        if index == len(log) - 1 and entry["timestamp-ms"] == metadata["last-updated-ms"]:
            raise Damaged(
                f"no snapshot is current, but according to snapshot-log[{index}] the last change "
                f"(last-updated-ms) made {snapshot_id} the current one"
            )


def _check_lineage(metadata: Json) -> None:
    """Check each snapshot's ancestors; every snapshot is visited once."""
    snapshots = snapshots_by_id(metadata)
    checked_ids: set[object] = set()
    for snapshot in snapshots.values():
        lineage_ids = []
        for ancestor in lineage(snapshots, snapshot):
            if ancestor["snapshot-id"] in checked_ids:
                break
            lineage_ids.append(ancestor["snapshot-id"])
        checked_ids.update(lineage_ids)


def _entries_by_id(metadata: Json, list_name: str, id_key: str) -> dict[int, Json]:
    """The entries of a list by their ids, in order; the first schemas had no id."""
    entries: dict[int, Json] = {}
    for index, entry in enumerate(metadata.get(list_name) or ()):
        entry_id = entry.get(id_key, 0)
        _is(int, entry_id, f"{list_name}[{index}].{id_key}")
        if entry_id in entries:
            raise Damaged(
                f"{list_name}[{index}].{id_key} is {entry_id}, but another entry of {list_name} "
                "has the same"
            )
        entries[entry_id] = entry
    return entries


def _referenced_id(
    owner: Json, key: str, entries: Mapping[int, Json], list_name: str, path_prefix: str = ""
) -> int:
    """The id of one of some entries that a field must have."""
    entry_id: int = owner.get(key)  # type: ignore[assignment]
    _is(int, entry_id, path_prefix + key)
    if entry_id not in entries:
        raise Damaged(f"{path_prefix}{key} is {_value_text(entry_id)}, which is not in {list_name}")
    return entry_id


def _value_text(value: Any) -> str:
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
    """The table's metadata JSON, as from :func:`metadata_with_size`."""
    return metadata_with_size(source)[0]


def metadata_with_size(source: TableSource) -> tuple[dict[str, Any], int]:
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
        metadata: dict[str, Any] = json.loads(raw)
    except (ValueError, OSError, EOFError, zlib.error, RecursionError) as error:
        why = "it is empty" if not raw else first_line(error)
        raise MetadataUnreadable(
            f"{location} is not table metadata ({why}); {RESTORE_OLDER}."
        ) from None
    check_metadata(metadata, location)
    return metadata, file_bytes


def check_metadata(metadata: Any, location: str) -> None:
    """Raise :class:`~icekit.common.errors.MetadataUnreadable` for damaged metadata, and for metadata
    of a later format version; ``location`` is the path of the metadata file.
    """
    version = metadata.get("format-version") if isinstance(metadata, dict) else None
    if type(version) is int and version > max(_TABLE):
        raise FormatTooNew(location, version)
    try:
        check(metadata)
    except Damaged as problem:
        raise MetadataUnreadable(
            f"The table metadata {location} is damaged: {problem}; {RESTORE_OLDER}."
        ) from None
