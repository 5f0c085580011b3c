"""Reject table metadata that is damaged or contradicts itself, with the field and its value; pure.

Rejects what Iceberg's own parser rejects (TableMetadataParser, TableMetadata): a required field
that is missing or null, and a value of another kind. Except unknown type names, because a newer
Iceberg may have more. Also rejects errors that the parser ignores: a lineage with a circle,
duplicate ids, a current snapshot that is lost although the snapshot log has it, and a format
version newer than the rules here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from icekit.facts.lineage import Damaged, lineage

#: The format versions with rules here (table spec).
VERSIONS = (1, 2, 3)
_REF_TYPES = ("branch", "tag")
# Ids that mean "no snapshot", as writers of format version 1 write them.
_NONE = (None, -1)
# The figures read from a snapshot's summary (SnapshotSummary); engines add to the totals with every
# commit.
_FIGURES = tuple(
    [f"{did}-{what}" for did in ("added", "deleted", "total") for what in ("data-files", "records")]
    + [
        f"{did}-{what}"
        for did in ("added", "removed", "total")
        for what in ("delete-files", "files-size")
    ]
    + [
        f"{did}-{what}"
        for did in ("added", "removed")
        for what in ("equality-delete-files", "position-delete-files", "dvs")
    ]
    + [
        f"{did}-{what}"
        for did in ("added", "removed", "total")
        for what in ("equality-deletes", "position-deletes")
    ]
    + ["changed-partition-count"]
)
_FIGURE = re.compile(r"-?[0-9]{1,19}")
# The end of the year 9999: a later moment cannot be written as a date.
_LAST_MS = 253_402_300_799_999
_LONGEST = 60
# Types nested deeper than any engine writes would overflow the stack of a reader.
_DEEPEST = 200


def check(metadata: Any) -> None:
    """Raise :class:`~icekit.facts.lineage.Damaged` for the first error in a table's metadata
    JSON.
    """
    _kind(metadata, dict, "the document", "an object")
    version = _present(metadata, "format-version")
    if isinstance(version, bool) or version not in VERSIONS or not isinstance(version, int):
        newer = isinstance(version, int) and version > max(VERSIONS)
        raise Damaged(
            f"format-version is {_shown(version)}, but "
            f"{'only versions' if newer else 'there are versions'} 1 to {max(VERSIONS)}"
            f"{' are known here: a newer icekit may support it' if newer else ''}"
        )
    _kind(_present(metadata, "location"), str, "location", "a string")
    for key in ("last-updated-ms", "last-column-id", *(("next-row-id",) if version > 2 else ())):
        _whole(_present(metadata, key), key)
    if version > 1:
        for key in ("table-uuid", "last-partition-id", "sort-orders"):
            _present(metadata, key)
    _kind(metadata.get("table-uuid") or "", str, "table-uuid", "a string")
    if metadata.get("last-partition-id") is not None:
        _whole(metadata["last-partition-id"], "last-partition-id")
    for key, value in _map(metadata, "properties").items():
        _kind(value, str, f"properties.{key}", "a string")
    columns = field_ids(_check_schemas(metadata, version))
    _check_specs(metadata, version, columns)
    _check_orders(metadata, columns)
    _check_snapshots(metadata, version)
    _check_statistics(metadata)
    for place, entry in enumerate(_objects(metadata, "metadata-log")):
        _whole(entry.get("timestamp-ms"), f"metadata-log[{place}].timestamp-ms")
        _kind(entry.get("metadata-file"), str, f"metadata-log[{place}].metadata-file", "a string")


def _check_schemas(metadata: Mapping[str, Any], version: int) -> Mapping[str, Any]:
    """Check all schemas; returns the current one."""
    schemas = _objects(metadata, "schemas")
    if not schemas:
        if version > 1 or metadata.get("schema") is None:
            raise Damaged("schemas is empty or missing, so the table has no columns")
        _check_schema(metadata["schema"], "schema")
        return dict(metadata["schema"])
    for place, schema in enumerate(schemas):
        _check_schema(schema, f"schemas[{place}]")
    ids = _unique((schema.get("schema-id", 0) for schema in schemas), "schemas", "schema-id")
    current = _present(metadata, "current-schema-id")
    _named(current, ids, "current-schema-id", "schemas")
    return next(
        (schema for schema in schemas if schema.get("schema-id", 0) == current), schemas[-1]
    )


def field_ids(kind: Any) -> set[int]:
    """The ids of all columns of a checked schema or type, nested ones too."""
    if isinstance(kind, str):
        return set()
    inner = [(field["id"], field["type"]) for field in kind.get("fields") or ()]
    inner += [
        (kind[f"{part}-id"], kind[part]) for part in ("element", "key", "value") if part in kind
    ]
    return {number for number, _ in inner}.union(*(field_ids(nested) for _, nested in inner))


def _check_schema(schema: Any, where: str) -> None:
    _kind(schema, dict, where, "an object")
    if schema.get("type") != "struct":
        raise Damaged(f"{where}.type is {_shown(schema.get('type'))}, but must be struct")
    if schema.get("schema-id") is not None:
        _whole(schema["schema-id"], f"{where}.schema-id")
    _check_fields(schema.get("fields"), f"{where}.fields")


def _check_fields(fields: Any, where: str) -> None:
    for place, field in enumerate(_kind(fields, list, where, "a list")):
        at = f"{where}[{place}]"
        _kind(field, dict, at, "an object")
        _whole(field.get("id"), f"{at}.id")
        _kind(field.get("name"), str, f"{at}.name", "a string")
        _kind(field.get("required"), bool, f"{at}.required", "true or false")
        _kind(field.get("doc", ""), str, f"{at}.doc", "a string")
        _check_type(field.get("type"), f"{at}.type")


def _check_type(kind: Any, where: str) -> None:
    if isinstance(kind, str):
        return
    if where.count(".") > _DEEPEST:
        raise Damaged(f"{where[:_LONGEST]}… is a type nested more than {_DEEPEST // 2} times")
    _kind(kind, dict, where, "a type")
    match kind.get("type"):
        case "struct":
            _check_fields(kind.get("fields"), f"{where}.fields")
        case "list":
            _whole(kind.get("element-id"), f"{where}.element-id")
            _kind(kind.get("element-required"), bool, f"{where}.element-required", "true or false")
            _check_type(kind.get("element"), f"{where}.element")
        case "map":
            _whole(kind.get("key-id"), f"{where}.key-id")
            _whole(kind.get("value-id"), f"{where}.value-id")
            _kind(kind.get("value-required"), bool, f"{where}.value-required", "true or false")
            _check_type(kind.get("key"), f"{where}.key")
            _check_type(kind.get("value"), f"{where}.value")
        case other:
            raise Damaged(
                f"{where}.type is {_shown(other)}, but a nested type is a struct, a list or a map"
            )


def _check_specs(metadata: Mapping[str, Any], version: int, columns: set[int]) -> None:
    specs = _objects(metadata, "partition-specs")
    if not specs:
        if version > 1:
            raise Damaged(
                "partition-specs is empty or missing, so it is not known how the files are "
                "partitioned"
            )
        fields = _present(metadata, "partition-spec")
        _check_spec_fields(fields, "partition-spec")
        _check_sources(fields, "partition-spec", columns)
        return
    for place, spec in enumerate(specs):
        _check_spec_fields(spec.get("fields"), f"partition-specs[{place}].fields")
    ids = _unique((spec.get("spec-id") for spec in specs), "partition-specs", "spec-id")
    default = _present(metadata, "default-spec-id")
    _named(default, ids, "default-spec-id", "partition-specs")
    place = next(place for place, spec in enumerate(specs) if spec["spec-id"] == default)
    _check_sources(specs[place]["fields"], f"partition-specs[{place}].fields", columns)


def _check_sources(fields: Sequence[Mapping[str, Any]], where: str, columns: set[int]) -> None:
    """Check the columns that partition or sort new files; for a dropped column, version 1 keeps
    only a placeholder.
    """
    for place, field in enumerate(fields):
        for source in (
            [field["source-id"]]
            if field.get("source-id") is not None
            else field.get("source-ids") or []
        ):
            if field["transform"] != "void" and source not in columns:
                raise Damaged(
                    f"{where}[{place}].source-id is {source}, but no column of the current schema "
                    "has that id"
                )


def _check_spec_fields(fields: Any, where: str) -> None:
    for place, field in enumerate(_kind(fields, list, where, "a list")):
        at = f"{where}[{place}]"
        _kind(field, dict, at, "an object")
        _kind(field.get("name"), str, f"{at}.name", "a string")
        _kind(field.get("transform"), str, f"{at}.transform", "a string")
        sources = (
            [field["source-id"]]
            if field.get("source-id") is not None
            else _kind(field.get("source-ids"), list, f"{at}.source-id", "an id")
        )
        for source in sources:
            _whole(source, f"{at}.source-id")
        _optional(field, "field-id", at)


def _check_orders(metadata: Mapping[str, Any], columns: set[int]) -> None:
    orders = _objects(metadata, "sort-orders")
    for place, order in enumerate(orders):
        for number, field in enumerate(
            _kind(order.get("fields"), list, f"sort-orders[{place}].fields", "a list")
        ):
            at = f"sort-orders[{place}].fields[{number}]"
            _kind(field, dict, at, "an object")
            for key in ("transform", "direction", "null-order"):
                _kind(field.get(key), str, f"{at}.{key}", "a string")
            _whole(field.get("source-id"), f"{at}.source-id")
    ids = _unique((order.get("order-id") for order in orders), "sort-orders", "order-id")
    # Version 1 may have none at all.
    if default := _present(metadata, "default-sort-order-id") if "sort-orders" in metadata else 0:
        _named(default, ids, "default-sort-order-id", "sort-orders")
        place = next(place for place, order in enumerate(orders) if order["order-id"] == default)
        _check_sources(orders[place]["fields"], f"sort-orders[{place}].fields", columns)


def _check_snapshots(metadata: Mapping[str, Any], version: int) -> None:
    snapshots = _objects(metadata, "snapshots")
    last = (
        _whole(_present(metadata, "last-sequence-number"), "last-sequence-number")
        if version > 1
        else None
    )
    for place, snapshot in enumerate(snapshots):
        _check_snapshot(snapshot, f"snapshots[{place}]", last)
    ids = _unique((snapshot["snapshot-id"] for snapshot in snapshots), "snapshots", "snapshot-id")
    current = metadata.get("current-snapshot-id")
    if current not in _NONE:
        _named(current, ids, "current-snapshot-id", "snapshots")
    refs = _map(metadata, "refs")
    for name, ref in refs.items():
        _kind(ref, dict, f"refs.{name}", "an object")
        if ref.get("type") not in _REF_TYPES:
            raise Damaged(
                f"refs.{name}.type is {_shown(ref.get('type'))}, but a ref is a branch or a tag"
            )
        _named(ref.get("snapshot-id"), ids, f"refs.{name}.snapshot-id", "snapshots")
        for key in ("max-ref-age-ms", "max-snapshot-age-ms", "min-snapshots-to-keep"):
            if ref.get(key) is not None:
                _whole(ref[key], f"refs.{name}.{key}")
    head = refs["main"]["snapshot-id"] if "main" in refs else None
    if head is not None and head != current:
        raise Damaged(
            f"current-snapshot-id is {_shown(current)}, but refs.main.snapshot-id is {head}: they "
            "must be equal"
        )
    _check_lineage(snapshots)
    _check_log(metadata, ids)


def _check_log(metadata: Mapping[str, Any], ids: set[int]) -> None:
    """Without a current snapshot, check that the snapshot log does not name one.

    Iceberg removes snapshots from the list and from the log together, and leaves both unchanged
    when CREATE OR REPLACE removes the current snapshot, which is a later change. Staged commits and
    other branches are not in the log.
    """
    log = _objects(metadata, "snapshot-log")
    for place, entry in enumerate(log):
        number = _whole(entry.get("snapshot-id"), f"snapshot-log[{place}].snapshot-id")
        moment = _whole(entry.get("timestamp-ms"), f"snapshot-log[{place}].timestamp-ms")
        if metadata.get("current-snapshot-id") not in _NONE:
            continue
        if number not in ids:
            raise Damaged(
                f"no snapshot is current, but snapshot-log[{place}].snapshot-id is {number}, "
                "which is not in snapshots"
            )
        if place == len(log) - 1 and moment == metadata.get("last-updated-ms"):
            raise Damaged(
                f"no snapshot is current, but according to snapshot-log[{place}] the last change "
                f"(last-updated-ms) made {number} the current one"
            )


def _check_snapshot(snapshot: Mapping[str, Any], where: str, last: int | None) -> None:
    _whole(snapshot.get("snapshot-id"), f"{where}.snapshot-id")
    if not 0 <= _whole(snapshot.get("timestamp-ms"), f"{where}.timestamp-ms") <= _LAST_MS:
        raise Damaged(
            f"{where}.timestamp-ms is {snapshot['timestamp-ms']}, but must be milliseconds since "
            "1970, before the year 10000"
        )
    for key in ("parent-snapshot-id", "sequence-number"):
        _optional(snapshot, key, where)
    for key in ("schema-id", "first-row-id"):
        if snapshot.get(key) is not None:
            _whole(snapshot[key], f"{where}.{key}")
    if snapshot.get("first-row-id") is not None:
        _whole(snapshot.get("added-rows"), f"{where}.added-rows")
    number = snapshot.get("sequence-number") or 0
    if last is not None and number > last:
        raise Damaged(
            f"{where}.sequence-number is {number}, but last-sequence-number is {last}: no commit "
            "can be newer than the last one"
        )
    listing = snapshot.get("manifest-list")
    if listing is None:
        _kind(snapshot.get("manifests"), list, f"{where}.manifest-list", "a string")
    else:
        _kind(listing, str, f"{where}.manifest-list", "a string")
    summary = _map(snapshot, "summary", f"{where}.summary")
    for key, value in summary.items():
        _kind(value, str, f"{where}.summary.{key}", "a string")
    for key in _FIGURES:
        if key in summary and not _FIGURE.fullmatch(summary[key]):
            raise Damaged(
                f"{where}.summary.{key} is {_shown(summary[key])}, but must be a whole number"
            )


def _check_statistics(metadata: Mapping[str, Any]) -> None:
    for key in ("statistics", "partition-statistics"):
        for place, file in enumerate(_objects(metadata, key)):
            at = f"{key}[{place}]"
            _kind(file.get("statistics-path"), str, f"{at}.statistics-path", "a string")
            of_table = ("file-footer-size-in-bytes",) if key == "statistics" else ()
            for number in ("snapshot-id", "file-size-in-bytes", *of_table):
                _whole(file.get(number), f"{at}.{number}")
            for number, blob in enumerate(
                _kind(file.get("blob-metadata"), list, f"{at}.blob-metadata", "a list")
                if of_table
                else ()
            ):
                _check_blob(
                    _kind(blob, dict, f"{at}.blob-metadata[{number}]", "an object"),
                    f"{at}.blob-metadata[{number}]",
                )


def _check_blob(blob: Mapping[str, Any], where: str) -> None:
    _kind(blob.get("type"), str, f"{where}.type", "a string")
    for key in ("snapshot-id", "sequence-number"):
        _whole(blob.get(key), f"{where}.{key}")
    for field in _kind(blob.get("fields"), list, f"{where}.fields", "a list"):
        _whole(field, f"{where}.fields")
    for key, value in _map(blob, "properties", f"{where}.properties").items():
        _kind(value, str, f"{where}.properties.{key}", "a string")


def _check_lineage(snapshots: Sequence[Mapping[str, Any]]) -> None:
    """Check each snapshot's ancestors; every snapshot is visited once."""
    by_id: dict[int | None, Mapping[str, Any]] = {
        snapshot["snapshot-id"]: snapshot for snapshot in snapshots
    }
    done: set[object] = set()
    for snapshot in snapshots:
        walked = []
        for ancestor in lineage(by_id, snapshot):
            if ancestor["snapshot-id"] in done:
                break
            walked.append(ancestor["snapshot-id"])
        done.update(walked)


def _present(metadata: Mapping[str, Any], key: str) -> Any:
    if metadata.get(key) is None:
        raise Damaged(f"{key} is {'null' if key in metadata else 'missing'}")
    return metadata[key]


def _kind(value: Any, kind: type, where: str, wanted: str) -> Any:
    if not isinstance(value, kind):
        raise Damaged(f"{where} is {_shown(value)}, but must be {wanted}")
    return value


def _whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise Damaged(f"{where} is {_shown(value)}, but must be a 64-bit whole number")
    return value


def _optional(of: Mapping[str, Any], key: str, where: str) -> None:
    """Check a whole number that may be missing, but not null."""
    if key in of:
        _whole(of[key], f"{where}.{key}")


def _map(of: Mapping[str, Any], key: str, where: str = "") -> Mapping[str, Any]:
    found: Mapping[str, Any] = _kind(of.get(key, {}), dict, where or key, "an object")
    return found


#: Lists for which the parser takes null too.
_MAY_BE_NULL = ("metadata-log", "snapshot-log")


def _objects(metadata: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    is_empty = key not in metadata or (metadata[key] is None and key in _MAY_BE_NULL)
    found: Sequence[Mapping[str, Any]] = _kind(
        [] if is_empty else metadata[key], list, key, "a list"
    )
    for place, one in enumerate(found):
        _kind(one, dict, f"{key}[{place}]", "an object")
    return found


def _unique(ids: Iterator[Any], where: str, key: str) -> set[int]:
    found: set[int] = set()
    for place, one in enumerate(ids):
        if _whole(one, f"{where}[{place}].{key}") in found:
            raise Damaged(
                f"{where}[{place}].{key} is {one}, but another entry of {where} has the same"
            )
        found.add(one)
    return found


def _named(value: Any, ids: set[int], where: str, among: str) -> None:
    if _whole(value, where) not in ids:
        there = (
            f"{len(ids):,} others are" if len(ids) > 1 else "one other is" if ids else "nothing is"
        )
        raise Damaged(f"{where} is {value}, which is not in {among} ({there})")


def _shown(value: Any) -> str:
    """A value as in JSON; a long one is cut."""
    text = (
        {None: "missing or null", True: "true", False: "false"}.get(value)
        if isinstance(value, bool | None)
        else None
    )
    text = text or (
        "a list"
        if isinstance(value, list)
        else "an object"
        if isinstance(value, dict)
        else repr(value)
    )
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
