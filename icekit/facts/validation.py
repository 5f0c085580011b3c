"""Reject table metadata that is damaged or contradicts itself, with the field and its value; pure.

Rejects what Iceberg's own parser rejects (TableMetadataParser, TableMetadata): a required field
that is missing or null, and a value of another kind. Except unknown type names, because a newer
Iceberg may have more. Also rejects errors that the parser ignores: a lineage with a circle,
duplicate ids, a current snapshot that is lost although the snapshot log has it, and a format
version newer than the rules here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from icekit.facts.lineage import Damaged, lineage, snapshots_by_id
from icekit.facts.metadata import Json, children

#: The format versions with rules here (table spec).
VERSIONS = (1, 2, 3)
# Ids that mean "no snapshot", as writers of format version 1 write them.
_NO_SNAPSHOT = (None, -1)
# The figures read from a snapshot's summary (SnapshotSummary); engines add to the totals with every
# commit.
_FIGURES = frozenset(
    f"{change}-{what}"
    for change in ("added", "deleted", "removed", "total")
    for what in (
        "data-files",
        "delete-files",
        "equality-delete-files",
        "position-delete-files",
        "dvs",
        "files-size",
        "records",
        "equality-deletes",
        "position-deletes",
    )
) | {"changed-partition-count"}
_FIGURE = re.compile(r"-?[0-9]{1,19}")
# The end of the year 9999: a later moment cannot be written as a date.
_LAST_MS = 253_402_300_799_999
_LONGEST = 60
# Types nested deeper than any engine writes would overflow the stack of a reader.
_DEEPEST = 200

# Checks a value, which is None if it is missing, of the field that a path names.
_Check = Callable[[Any, str], None]
_Checks = Mapping[str, _Check]
_NONE: _Checks = MappingProxyType({})


def _wrong(value: Any, path: str, wanted: str) -> Damaged:
    return Damaged(f"{path} is {_shown(value)}, but must be {wanted}")


def _is(kind: type, wanted: str) -> _Check:
    def check(value: Any, path: str) -> None:
        if not isinstance(value, kind):
            raise _wrong(value, path, wanted)

    return check


_text, _flag = _is(str, "a string"), _is(bool, "true or false")


def _whole(value: Any, path: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise _wrong(value, path, "a 64-bit whole number")


def _one_of(*values: str) -> _Check:
    def check(value: Any, path: str) -> None:
        if value not in values:
            raise _wrong(value, path, " or ".join(values))

    return check


def _list(of_item: _Check, wanted: str = "a list") -> _Check:
    is_list = _is(list, wanted)

    def check(value: Any, path: str) -> None:
        is_list(value, path)
        for index, item in enumerate(value):
            of_item(item, f"{path}[{index}]")

    return check


_object = _is(dict, "an object")


def _map(of_value: _Check) -> _Check:
    def check(value: Any, path: str) -> None:
        _object(value, path)
        for key, each in value.items():
            of_value(each, f"{path}.{key}")

    return check


def _fields(required: _Checks, optional: _Checks = _NONE, nullable: _Checks = _NONE) -> _Check:
    """An object with these fields: optional ones may be missing, nullable ones null too."""

    def check(value: Any, path: str) -> None:
        _object(value, path or "the document")
        before = f"{path}." if path else ""
        for key, of_value in required.items():
            of_value(value.get(key), before + key)
        for key, of_value in optional.items():
            if key in value:
                of_value(value[key], before + key)
        for key, of_value in nullable.items():
            if value.get(key) is not None:
                of_value(value[key], before + key)

    return check


def _type(value: Any, path: str) -> None:
    if isinstance(value, str):
        return
    if path.count(".") > _DEEPEST:
        raise Damaged(f"{path[:_LONGEST]}… is a type nested more than {_DEEPEST // 2} times")
    _is(dict, "a type")(value, path)
    _one_of(*_NESTED)(value.get("type"), f"{path}.type")
    _NESTED[value["type"]](value, path)


_COLUMNS: _Checks = {
    "fields": _list(
        _fields({"id": _whole, "name": _text, "required": _flag, "type": _type}, {"doc": _text})
    )
}
_NESTED: _Checks = {
    "struct": _fields(_COLUMNS),
    "list": _fields({"element-id": _whole, "element-required": _flag, "element": _type}),
    "map": _fields(
        {
            "key-id": _whole,
            "value-id": _whole,
            "value-required": _flag,
            "key": _type,
            "value": _type,
        }
    ),
}
_schema = _fields({"type": _one_of("struct"), **_COLUMNS}, nullable={"schema-id": _whole})


def _spec_field(value: Any, path: str) -> None:
    _fields({"name": _text, "transform": _text}, {"field-id": _whole}, {"source-id": _whole})(
        value, path
    )
    if value.get("source-id") is None:
        _list(_whole, "an id")(value.get("source-ids"), f"{path}.source-id")


_sort_field = _fields(
    {"transform": _text, "direction": _text, "null-order": _text, "source-id": _whole}
)


def _summary(value: Any, path: str) -> None:
    _map(_text)(value, path)
    for key in value.keys() & _FIGURES:
        if not _FIGURE.fullmatch(value[key]):
            raise _wrong(value[key], f"{path}.{key}", "a whole number")


def _moment(value: Any, path: str) -> None:
    _whole(value, path)
    if not 0 <= value <= _LAST_MS:
        raise _wrong(value, path, "milliseconds since 1970, before the year 10000")


def _snapshot(value: Any, path: str) -> None:
    _fields(
        {"snapshot-id": _whole, "timestamp-ms": _moment},
        {"parent-snapshot-id": _whole, "sequence-number": _whole, "summary": _summary},
        {"schema-id": _whole, "first-row-id": _whole, "manifest-list": _text},
    )(value, path)
    if value.get("first-row-id") is not None:
        _whole(value.get("added-rows"), f"{path}.added-rows")
    if value.get("manifest-list") is None:
        _is(list, "a string")(value.get("manifests"), f"{path}.manifest-list")


_ref = _fields(
    {"type": _one_of("branch", "tag"), "snapshot-id": _whole},
    nullable={
        "max-ref-age-ms": _whole,
        "max-snapshot-age-ms": _whole,
        "min-snapshots-to-keep": _whole,
    },
)
_STATISTICS: _Checks = {
    "statistics-path": _text,
    "snapshot-id": _whole,
    "file-size-in-bytes": _whole,
}
_blob = _fields(
    {
        "type": _text,
        "snapshot-id": _whole,
        "sequence-number": _whole,
        "fields": _list(_whole),
    },
    {"properties": _map(_text)},
)
_table = _fields(
    {"location": _text, "last-updated-ms": _whole, "last-column-id": _whole},
    {
        "properties": _map(_text),
        "schemas": _list(_schema),
        "partition-specs": _list(_fields({"fields": _list(_spec_field), "spec-id": _whole})),
        "sort-orders": _list(_fields({"fields": _list(_sort_field), "order-id": _whole})),
        "snapshots": _list(_snapshot),
        "refs": _map(_ref),
        "statistics": _list(
            _fields(
                {
                    **_STATISTICS,
                    "file-footer-size-in-bytes": _whole,
                    "blob-metadata": _list(_blob),
                }
            )
        ),
        "partition-statistics": _list(_fields(_STATISTICS)),
    },
    {
        "table-uuid": _text,
        "last-partition-id": _whole,
        "snapshot-log": _list(_fields({"snapshot-id": _whole, "timestamp-ms": _whole})),
        "metadata-log": _list(_fields({"timestamp-ms": _whole, "metadata-file": _text})),
    },
)
#: What a format version requires in addition to the versions before it.
_REQUIRED: Mapping[int, _Check] = {
    2: _fields(
        {
            "table-uuid": _text,
            "last-partition-id": _whole,
            "sort-orders": _is(list, "a list"),
            "last-sequence-number": _whole,
        }
    ),
    3: _fields({"next-row-id": _whole}),
}


def check(metadata: Any) -> None:
    """Raise :class:`~icekit.facts.lineage.Damaged` for the first error in a table's metadata
    JSON.
    """
    _object(metadata, "the document")
    version = _version(metadata)
    _table(metadata, "")
    for since, requirements in _REQUIRED.items():
        if version >= since:
            requirements(metadata, "")
    columns = field_ids(_current_schema(metadata, version))
    _check_spec(metadata, version, columns)
    _check_order(metadata, columns)
    _check_snapshots(metadata, version)


def _version(metadata: Json) -> int:
    version = metadata.get("format-version")
    if version is None:
        state = "null" if "format-version" in metadata else "missing"
        raise Damaged(f"format-version is {state}")
    known = f"there are versions 1 to {max(VERSIONS)}"
    if isinstance(version, int) and not isinstance(version, bool):
        if version in VERSIONS:
            return version
        if version > max(VERSIONS):
            known = (
                f"only versions 1 to {max(VERSIONS)} are known here: a newer icekit may support it"
            )
    raise Damaged(f"format-version is {_shown(version)}, but {known}")


def _current_schema(metadata: Json, version: int) -> Json:
    if schemas := _by_id(metadata, "schemas", "schema-id", 0):
        return schemas[_chosen(metadata, "current-schema-id", schemas, "schemas")]
    schema: Json | None = metadata.get("schema")
    if version > 1 or schema is None:
        raise Damaged("schemas is empty or missing, so the table has no columns")
    _schema(schema, "schema")
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
        _check_sources(specs, default, "partition-specs", columns)
        return
    if version > 1:
        raise Damaged(
            "partition-specs is empty or missing, so it is not known how the files are partitioned"
        )
    fields = metadata.get("partition-spec")
    _list(_spec_field)(fields, "partition-spec")
    _check_columns(fields or (), "partition-spec", columns)


def _check_order(metadata: Json, columns: set[int]) -> None:
    orders = _by_id(metadata, "sort-orders", "order-id")
    if "sort-orders" not in metadata:
        return  # version 1 may have none at all
    _whole(metadata.get("default-sort-order-id"), "default-sort-order-id")
    if metadata["default-sort-order-id"]:
        default = _chosen(metadata, "default-sort-order-id", orders, "sort-orders")
        _check_sources(orders, default, "sort-orders", columns)


def _check_sources(entries: Mapping[int, Json], default: int, key: str, columns: set[int]) -> None:
    path = f"{key}[{list(entries).index(default)}].fields"
    _check_columns(entries[default]["fields"], path, columns)


def _check_columns(fields: Sequence[Json], path: str, columns: set[int]) -> None:
    """Check the columns that partition or sort new files; for a dropped column, version 1 keeps
    only a placeholder.
    """
    for index, field in enumerate(fields):
        own = field.get("source-id")
        for source in field["source-ids"] if own is None else [own]:
            if field["transform"] != "void" and source not in columns:
                raise Damaged(
                    f"{path}[{index}].source-id is {source}, but no column of the current schema "
                    "has that id"
                )


def _check_snapshots(metadata: Json, version: int) -> None:
    snapshots = _by_id(metadata, "snapshots", "snapshot-id")
    last = metadata["last-sequence-number"] if version > 1 else None
    for index, snapshot in enumerate(snapshots.values()):
        number = snapshot.get("sequence-number") or 0
        if last is not None and number > last:
            raise Damaged(
                f"snapshots[{index}].sequence-number is {number}, but last-sequence-number is "
                f"{last}: no commit can be newer than the last one"
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
    done: set[object] = set()
    for snapshot in snapshots.values():
        walked = []
        for ancestor in lineage(snapshots, snapshot):
            if ancestor["snapshot-id"] in done:
                break
            walked.append(ancestor["snapshot-id"])
        done.update(walked)


def _by_id(metadata: Json, name: str, key: str, default: int | None = None) -> dict[int, Json]:
    """The entries of a list by their ids, in order."""
    entries: dict[int, Json] = {}
    for index, entry in enumerate(metadata.get(name) or ()):
        number = entry.get(key, default)
        _whole(number, f"{name}[{index}].{key}")
        if number in entries:
            raise Damaged(
                f"{name}[{index}].{key} is {number}, but another entry of {name} has the same"
            )
        entries[number] = entry
    return entries


def _chosen(of: Json, key: str, entries: Mapping[int, Json], name: str, before: str = "") -> int:
    """The id of one of some entries that a field must have."""
    value: int = of.get(key)  # type: ignore[assignment]
    _whole(value, before + key)
    if value not in entries:
        others = f"{len(entries):,} others are" if len(entries) > 1 else "one other is"
        known = others if entries else "nothing is"
        raise Damaged(f"{before}{key} is {value}, which is not in {name} ({known})")
    return value


def _shown(value: Any) -> str:
    """A value as in JSON; a long one is cut."""
    if value is None:
        return "missing or null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
