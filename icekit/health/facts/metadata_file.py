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


def _damage(value: Any, json_path: str, requirement: str) -> Damaged:
    return Damaged(f"{json_path} is {_value_text(value)}, but must be {requirement}")


def _require_type(required_type: type, value: Any, json_path: str) -> None:
    if type(value) is not required_type or (required_type is int and value not in _LONGS):
        raise _damage(value, json_path, _NAMES[required_type])


def _check_value(rule: Any, value: Any, json_path: str) -> None:
    """Check a value, which is None if it is missing.

    A rule is a type, a tuple of texts, a list with the rule for its items, a dictionary with the
    rule for each field, or a function. A field with ``?`` may be missing, one with ``??`` may also
    be null; the field ``*`` stands for all.
    """
    match rule:
        case type():
            _require_type(rule, value, json_path)
        case tuple():
            if value not in rule:
                raise _damage(value, json_path, " or ".join(rule))
        case [item_rule]:
            _require_type(list, value, json_path)
            for index, item in enumerate(value):
                _check_value(item_rule, item, f"{json_path}[{index}]")
        case {"*": field_rule}:
            _require_type(dict, value, json_path)
            for key, field_value in value.items():
                _check_value(field_rule, field_value, f"{json_path}.{key}")
        case dict():
            _require_type(dict, value, json_path)
            for key, field_rule in rule.items():
                field_name = key.rstrip("?")
                is_absent = (
                    value.get(field_name) is None if key.endswith("??") else field_name not in value
                )
                if not (is_absent and key.endswith("?")):
                    _check_value(
                        field_rule,
                        value.get(field_name),
                        f"{json_path}.{field_name}" if json_path else field_name,
                    )
        case _:
            rule(value, json_path)


def _check_moment(value: Any, json_path: str) -> None:
    _require_type(int, value, json_path)
    if not 0 <= value <= _LAST_MS:
        raise _damage(value, json_path, "milliseconds since 1970, before the year 10000")


def _check_type(value: Any, json_path: str) -> None:
    if isinstance(value, str):
        return
    if json_path.count(".") > _DEEPEST:
        raise Damaged(f"{json_path[:_LONGEST]}… is a type nested more than {_DEEPEST // 2} times")
    _check_value({"type": tuple(_NESTED)}, value, json_path)
    _check_value(_NESTED[value["type"]], value, json_path)


def _check_summary(value: Any, json_path: str) -> None:
    _check_value({"*": str}, value, json_path)
    for key, figure_text in value.items():
        if _FIGURES.fullmatch(key) and not _FIGURE.fullmatch(figure_text):
            raise _damage(figure_text, f"{json_path}.{key}", "a whole number")


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
    _require_type(dict, metadata, "the document")
    format_version = _format_version(metadata)
    for least_version, rule in _TABLE.items():
        if format_version >= least_version:
            _check_value(rule, metadata, "")
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


def _current_schema(metadata: Json, format_version: int) -> Json:
    if schemas := _entries_by_id(metadata, "schemas", "schema-id"):
        return schemas[_referenced_id(metadata, "current-schema-id", schemas, "schemas")]
    schema: Json | None = metadata.get("schema")
    if format_version > 1 or schema is None:
        raise Damaged("schemas is empty or missing, so the table has no columns")
    _check_value(_SCHEMA, schema, "schema")
    return schema


def field_ids(schema: Json) -> set[int]:
    """The ids of all columns of a checked schema or nested type, nested ones too."""
    ids: set[int] = set()
    for child in child_fields(schema):
        ids |= {child.field_id}.union(() if isinstance(child.type, str) else field_ids(child.type))
    return ids


def _check_spec(metadata: Json, format_version: int, column_ids: set[int]) -> None:
    if specs_by_id := _entries_by_id(metadata, "partition-specs", "spec-id"):
        default_spec_id = _referenced_id(
            metadata, "default-spec-id", specs_by_id, "partition-specs"
        )
        for index, (spec_id, spec) in enumerate(specs_by_id.items()):
            json_path = f"partition-specs[{index}].fields"
            _check_source_columns(
                spec["fields"], json_path, column_ids if spec_id == default_spec_id else None
            )
        return
    if format_version > 1:
        raise Damaged(
            "partition-specs is empty or missing, so it is not known how the files are partitioned"
        )
    partition_fields = metadata.get("partition-spec")
    _check_value([_SPEC_FIELD], partition_fields, "partition-spec")
    _check_source_columns(partition_fields or (), "partition-spec", column_ids)


def _check_order(metadata: Json, column_ids: set[int]) -> None:
    orders_by_id = _entries_by_id(metadata, "sort-orders", "order-id")
    # Version 1 may have none at all.
    if "sort-orders" in metadata and metadata.get("default-sort-order-id") != 0:
        default_order_id = _referenced_id(
            metadata, "default-sort-order-id", orders_by_id, "sort-orders"
        )
        json_path = f"sort-orders[{list(orders_by_id).index(default_order_id)}].fields"
        _check_source_columns(orders_by_id[default_order_id]["fields"], json_path, column_ids)


def _check_source_columns(
    fields: Sequence[Json], json_path: str, column_ids: set[int] | None
) -> None:
    """Check the columns of fields; those that partition or sort new files must be among some. For a
    dropped column, version 1 keeps only a placeholder.
    """
    for index, field in enumerate(fields):
        source_id = field.get("source-id")
        source_ids = field.get("source-ids") if source_id is None else [source_id]
        if source_ids is None:
            raise Damaged(f"{json_path}[{index}].source-id is missing")
        for column_id in source_ids:
            if (
                column_ids is not None
                and field["transform"] != "void"
                and column_id not in column_ids
            ):
                raise Damaged(
                    f"{json_path}[{index}].source-id is {column_id}, but no column of the current "
                    "schema "
                    "has that id"
                )


def _check_snapshots(metadata: Json, format_version: int) -> None:
    snapshots = _entries_by_id(metadata, "snapshots", "snapshot-id")
    last_sequence_number = metadata["last-sequence-number"] if format_version > 1 else None
    for index, snapshot in enumerate(snapshots.values()):
        json_path = f"snapshots[{index}]"
        if snapshot.get("first-row-id") is not None:
            _require_type(int, snapshot.get("added-rows"), f"{json_path}.added-rows")
        if snapshot.get("manifest-list") is None:
            _require_type(list, snapshot.get("manifests"), f"{json_path}.manifest-list")
        sequence_number = snapshot.get("sequence-number") or 0
        if last_sequence_number is not None and sequence_number > last_sequence_number:
            raise Damaged(
                f"{json_path}.sequence-number is {sequence_number}, but last-sequence-number is "
                f"{last_sequence_number}: no "
                "commit can be newer than the last one"
            )
    current_snapshot_id = metadata.get("current-snapshot-id")
    if current_snapshot_id not in _NO_SNAPSHOT:
        _referenced_id(metadata, "current-snapshot-id", snapshots, "snapshots")
    refs = metadata.get("refs") or {}
    for ref_name, ref in refs.items():
        _referenced_id(ref, "snapshot-id", snapshots, "snapshots", f"refs.{ref_name}.")
    main_snapshot_id = refs["main"]["snapshot-id"] if "main" in refs else None
    if main_snapshot_id is not None and main_snapshot_id != current_snapshot_id:
        raise Damaged(
            f"current-snapshot-id is {_value_text(current_snapshot_id)}, but "
            f"refs.main.snapshot-id is {main_snapshot_id}: they must be equal"
        )
    _check_lineage(metadata)
    if current_snapshot_id in _NO_SNAPSHOT:
        _check_snapshot_log(metadata, snapshots)


def _check_snapshot_log(metadata: Json, snapshots: Mapping[int, Json]) -> None:
    """Without a current snapshot, check that the snapshot log does not name one.

    Iceberg removes snapshots from the list and from the log together, and leaves both unchanged
    when CREATE OR REPLACE removes the current snapshot, which is a later change. Staged commits and
    other branches are not in the log.
    """
    snapshot_log = metadata.get("snapshot-log") or ()
    for index, log_entry in enumerate(snapshot_log):
        snapshot_id = log_entry["snapshot-id"]
        if snapshot_id not in snapshots:
            raise Damaged(
                f"no snapshot is current, but snapshot-log[{index}].snapshot-id is {snapshot_id}, "
                "which is not in snapshots"
            )
        if (
            index == len(snapshot_log) - 1
            and log_entry["timestamp-ms"] == metadata["last-updated-ms"]
        ):
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
        _require_type(int, entry_id, f"{list_name}[{index}].{id_key}")
        if entry_id in entries:
            raise Damaged(
                f"{list_name}[{index}].{id_key} is {entry_id}, but another entry of {list_name} "
                "has the same"
            )
        entries[entry_id] = entry
    return entries


def _referenced_id(
    owner: Json, key: str, entries_by_id: Mapping[int, Json], list_name: str, path_prefix: str = ""
) -> int:
    """The id of one of some entries that a field must have."""
    entry_id: int = owner.get(key)  # type: ignore[assignment]
    _require_type(int, entry_id, path_prefix + key)
    if entry_id not in entries_by_id:
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
    metadata_location = source.metadata_location
    file_content = source.read(metadata_location)
    file_bytes = len(file_content)
    try:
        if file_content[:2] == b"\x1f\x8b":
            file_content = gzip.decompress(file_content)
        metadata: dict[str, Any] = json.loads(file_content)
    except (ValueError, OSError, EOFError, zlib.error, RecursionError) as error:
        complaint = "it is empty" if not file_content else first_line(error)
        raise MetadataUnreadable(
            f"{metadata_location} is not table metadata ({complaint}); {RESTORE_OLDER}."
        ) from None
    check_metadata(metadata, metadata_location)
    return metadata, file_bytes


def check_metadata(metadata: Any, metadata_location: str) -> None:
    """Raise :class:`~icekit.common.errors.MetadataUnreadable` for damaged metadata, and for
    metadata of a later format version; ``metadata_location`` is the path of the metadata file.
    """
    format_version = metadata.get("format-version") if isinstance(metadata, dict) else None
    if type(format_version) is int and format_version > max(_TABLE):
        raise FormatTooNew(metadata_location, format_version)
    try:
        check(metadata)
    except Damaged as problem:
        raise MetadataUnreadable(
            f"The table metadata {metadata_location} is damaged: {problem}; {RESTORE_OLDER}."
        ) from None
