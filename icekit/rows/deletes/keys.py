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

    ``sql`` reads it from a key view, where columns are named after their ids. A ``is_required`` one
    is null in no row. ``is_current`` says whether the current schema has it.
    """

    field_id: int
    path_names: tuple[str, ...]
    type_name: str
    sql: str
    is_required: bool
    is_current: bool

    @property
    def is_read_correctly(self) -> bool:
        """Whether Iceberg's own reader applies deletes by this column rightly in every query."""
        return is_read_correctly(len(self.path_names), self.type_name, has_column=self.is_current)


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

    set_index: int
    columns: tuple[KeyColumn, ...]
    is_global: bool
    records: int
    max_sequence: int

    @property
    def field_ids(self) -> tuple[int, ...]:
        """The key, as delete files name it."""
        return tuple(column.field_id for column in self.columns)


def delete_keys(metadata: Json, field_ids: Iterable[int]) -> DeleteKeys:
    """Find key columns in a table's schemas, the current one first, then the newest that has the
    field.

    A delete applies to rows even if its key column was dropped or renamed. Raises
    :class:`~icekit.common.errors.ConversionRefused` for a floating-point key (not
    allowed by Iceberg's specification, equality delete files), for a type Spark cannot
    read, and for a field that no schema has.
    """
    current_fields = schema_of(metadata)["fields"]
    key_paths: list[Sequence[Json]] = []
    columns_by_id: dict[int, KeyColumn] = {}
    for field_id in sorted(set(field_ids)):
        schema_paths = list(field_paths(metadata, field_id))
        if not schema_paths:
            raise ConversionRefused(
                f"Equality deletes name field {field_id}, which no schema of the table has, or "
                "only inside a list or map, so icekit cannot tell which rows they delete."
            )
        key_path = schema_paths[0]
        path_names = tuple(str(field["name"]) for field in key_path)
        _check_key_type(identifier(*path_names), key_path[-1]["type"])
        is_current = field_path(current_fields, field_id) is not None
        # If any schema allowed nulls, old files may hold them.
        is_required = is_current and all(
            field.get("required") for schema_path in schema_paths for field in schema_path
        )
        # Of a struct that is null, each field is null (table spec, "Equality Delete Files").
        column_sql = identifier(*[_view_name(field) for field in key_path])
        columns_by_id[field_id] = KeyColumn(
            field_id, path_names, str(key_path[-1]["type"]), column_sql, is_required, is_current
        )
        key_paths.append(key_path)
    return DeleteKeys(columns_by_id, _view_fields(key_paths))


def with_fields(metadata: Json, field_ids: Iterable[int]) -> Json:
    """The metadata with a current schema that has these fields, those that were dropped too.

    A dropped field comes back at its place, optional, under its last name, or under another one if
    that is in use; :func:`delete_keys` then finds it like any other. The same object if nothing is
    missing. A field that no schema has stays missing.
    """
    schema = schema_of(metadata)
    extended_fields = schema["fields"]
    for field_id in sorted(set(field_ids)):
        key_path = next(field_paths(metadata, field_id), None)
        if key_path is not None:
            extended_fields = _with_key_path(extended_fields, key_path)
    if extended_fields is schema["fields"]:
        return metadata
    schemas = schemas_of(metadata)
    schema_id = 1 + max(int(known_schema.get("schema-id", 0)) for known_schema in schemas)
    extended_schema = {**schema, "schema-id": schema_id, "fields": extended_fields}
    return {**metadata, "schemas": [*schemas, extended_schema], "current-schema-id": schema_id}


def _with_key_path(fields: Sequence[Json], key_path: Sequence[Json]) -> Sequence[Json]:
    """The fields of a struct with those of a path through it; the same object if it has them."""
    outer_field = key_path[0]
    inner_path = key_path[1:]
    for index, field in enumerate(fields):
        if field["id"] != outer_field["id"]:
            continue
        inner_fields = _with_key_path(field["type"]["fields"], inner_path) if inner_path else None
        if inner_fields is None or inner_fields is field["type"]["fields"]:
            return fields
        extended_field = {**field, "type": {**field["type"], "fields": inner_fields}}
        return [*fields[:index], extended_field, *fields[index + 1 :]]
    restored_field = {
        **outer_field,
        "name": free_name(str(outer_field["name"]), [str(field["name"]) for field in fields]),
        "required": False,
    }
    if inner_path:
        restored_field["type"] = {"type": "struct", "fields": _with_key_path([], inner_path)}
    return [*fields, restored_field]


def _check_key_type(column_sql: str, key_type: object) -> None:
    if not isinstance(key_type, str):
        type_name = key_type.get("type") if isinstance(key_type, Mapping) else key_type
        raise ConversionRefused(
            f"Key column {column_sql} is a {type_name}; a key must be a primitive type."
        )
    if key_type in {"float", "double"}:
        raise ConversionRefused(
            f"Key column {column_sql} is a {key_type}: floating-point numbers cannot be keys (NaN "
            "and -0.0 equal different values in different engines, and Iceberg's specification "
            "forbids them). Give the writer another key, and compact the table to remove these "
            "deletes."
        )
    # The types of keys are the same for every engine.
    if not Engine().can(Ability.MATCH, key_type):
        raise ConversionRefused(
            f"Key column {column_sql} is a {key_type}, which Spark cannot read or compare. "
            "Convert these deletes with an engine that can."
        )


def _view_name(field: Json) -> str:
    """The name in a key view: derived from the id, so names cannot clash, whatever case or
    characters the table uses.
    """
    return f"c{field['id']}"


def _view_fields(key_paths: Iterable[Sequence[Json]]) -> list[dict[str, Any]]:
    """The fields of a key view through which some paths lead: optional, because old files may lack
    them.
    """
    paths_by_id: dict[int, list[Sequence[Json]]] = {}
    for key_path in key_paths:
        paths_by_id.setdefault(int(key_path[0]["id"]), []).append(key_path)
    view_fields = []
    for paths_of_field in paths_by_id.values():
        field = paths_of_field[0][0]
        inner_paths = [key_path[1:] for key_path in paths_of_field if len(key_path) > 1]
        view_type = (
            {"type": "struct", "fields": _view_fields(inner_paths)}
            if inner_paths
            else field["type"]
        )
        defaults = {key: field[key] for key in ("initial-default", "write-default") if key in field}
        view_fields.append(
            {
                "id": field["id"],
                "name": _view_name(field),
                "required": False,
                "type": view_type,
                **defaults,
            }
        )
    return view_fields
