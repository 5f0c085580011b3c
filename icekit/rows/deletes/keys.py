"""Resolve the keys of equality deletes: by field id, in any schema that has the field."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from icekit.common import frozen
from icekit.common.errors import ConversionRefused
from icekit.common.sql import free_name, identifier
from icekit.engine.column_types import Ability, Engine
from icekit.iceberg.key_fields import field_path, field_paths, is_read_correctly
from icekit.iceberg.metadata import Json, schema_of, schemas_of


@frozen
class KeyColumn:
    """One column of a key: its field id, its names from the outermost struct in, and its place in a
    key view.

    ``sql`` reads it from a key view, where columns are named after their ids. A ``required`` one
    is null in no row. ``is_current`` says whether the current schema has it.
    """

    field_id: int
    names: tuple[str, ...]
    type_name: str
    sql: str
    required: bool
    is_current: bool

    @property
    def is_read_correctly(self) -> bool:
        """Whether Iceberg's own reader applies deletes by this column rightly in every query."""
        return is_read_correctly(len(self.names), self.type_name, has_column=self.is_current)


@frozen
class DeleteKeys:
    """All key columns of some delete files, by field id, and a schema that reads only these."""

    columns: Mapping[int, KeyColumn]
    fields: Sequence[Mapping[str, Any]]


@frozen
class KeySet:
    """Delete files with one key: ``kind`` is its number, from 0; global ones apply to every
    partition.
    """

    kind: int
    columns: tuple[KeyColumn, ...]
    is_global: bool
    records: int
    max_sequence: int

    @property
    def field_ids(self) -> tuple[int, ...]:
        """The key, as delete files name it."""
        return tuple(column.field_id for column in self.columns)


def keys_of(metadata: Json, field_ids: Iterable[int]) -> DeleteKeys:
    """Find key columns in a table's schemas, the current one first, then the newest that has the
    field.

    A delete applies to rows even if its key column was dropped or renamed. Raises
    :class:`~icekit.common.errors.ConversionRefused` for a floating-point key (not
    allowed by Iceberg's specification, equality delete files), for a type Spark cannot
    read, and for a field that no schema has.
    """
    current = schema_of(metadata)["fields"]
    paths: list[Sequence[Json]] = []
    columns: dict[int, KeyColumn] = {}
    for field_id in sorted(set(field_ids)):
        paths_of_field = list(field_paths(metadata, field_id))
        if not paths_of_field:
            raise ConversionRefused(
                f"Equality deletes name field {field_id}, which no schema of the table has, or "
                "only inside a list or map, so icekit cannot tell which rows they delete."
            )
        path = paths_of_field[0]
        names = tuple(str(field["name"]) for field in path)
        _check(identifier(*names), path[-1]["type"])
        is_current = field_path(current, field_id) is not None
        # If any schema allowed nulls, old files may hold them.
        required = is_current and all(
            field.get("required") for steps in paths_of_field for field in steps
        )
        # Of a struct that is null, each field is null (table spec, "Equality Delete Files").
        sql = identifier(*[_name(field) for field in path])
        columns[field_id] = KeyColumn(
            field_id, names, str(path[-1]["type"]), sql, required, is_current
        )
        paths.append(path)
    return DeleteKeys(columns, _fields(paths))


def with_fields(metadata: Json, field_ids: Iterable[int]) -> Json:
    """The metadata with a current schema that has these fields, those that were dropped too.

    A dropped field comes back at its place, optional, under its last name, or under another one if
    that is in use; :func:`keys_of` then finds it like any other. The same object if nothing is
    missing. A field that no schema has stays missing.
    """
    schema = schema_of(metadata)
    fields = schema["fields"]
    for field_id in sorted(set(field_ids)):
        path = next(field_paths(metadata, field_id), None)
        if path is not None:
            fields = _with_path(fields, path)
    if fields is schema["fields"]:
        return metadata
    schemas = schemas_of(metadata)
    schema_id = 1 + max(int(each.get("schema-id", 0)) for each in schemas)
    extended = {**schema, "schema-id": schema_id, "fields": fields}
    return {**metadata, "schemas": [*schemas, extended], "current-schema-id": schema_id}


def _with_path(fields: Sequence[Json], path: Sequence[Json]) -> Sequence[Json]:
    """The fields of a struct with those of a path through it; the same object if it has them."""
    first = path[0]
    rest = path[1:]
    for index, field in enumerate(fields):
        if field["id"] != first["id"]:
            continue
        inner = _with_path(field["type"]["fields"], rest) if rest else None
        if inner is None or inner is field["type"]["fields"]:
            return fields
        extended = {**field, "type": {**field["type"], "fields": inner}}
        return [*fields[:index], extended, *fields[index + 1 :]]
    restored = {
        **first,
        "name": free_name(str(first["name"]), [str(field["name"]) for field in fields]),
        "required": False,
    }
    if rest:
        restored["type"] = {"type": "struct", "fields": _with_path([], rest)}
    return [*fields, restored]


def _check(name: str, kind: object) -> None:
    if not isinstance(kind, str):
        nested = kind.get("type") if isinstance(kind, Mapping) else kind
        raise ConversionRefused(f"Key column {name} is a {nested}; a key must be a primitive type.")
    if kind in {"float", "double"}:
        raise ConversionRefused(
            f"Key column {name} is a {kind}: floating-point numbers cannot be keys (NaN and -0.0 "
            "equal different values in different engines, and Iceberg's specification forbids "
            "them). Give the writer another key, and compact the table to remove these deletes."
        )
    # The types of keys are the same for every engine.
    if not Engine().can(Ability.MATCH, kind):
        raise ConversionRefused(
            f"Key column {name} is a {kind}, which Spark cannot read or compare. Convert these "
            "deletes with an engine that can."
        )


def _name(field: Json) -> str:
    """The name in a key view: derived from the id, so names cannot clash, whatever case or
    characters the table uses.
    """
    return f"c{field['id']}"


def _fields(paths: Iterable[Sequence[Json]]) -> list[dict[str, Any]]:
    """The fields of a key view through which some paths lead: optional, because old files may lack
    them.
    """
    by_id: dict[int, list[Sequence[Json]]] = {}
    for path in paths:
        by_id.setdefault(int(path[0]["id"]), []).append(path)
    fields = []
    for same in by_id.values():
        field = same[0][0]
        inner = [path[1:] for path in same if len(path) > 1]
        kind = {"type": "struct", "fields": _fields(inner)} if inner else field["type"]
        defaults = {key: field[key] for key in ("initial-default", "write-default") if key in field}
        fields.append(
            {
                "id": field["id"],
                "name": _name(field),
                "required": False,
                "type": kind,
                **defaults,
            }
        )
    return fields
