"""The columns that an action names, as the table names them now: another job may have renamed some
since it was planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from icekit.iceberg.metadata import Field, Json, child_fields, columns, schema_of, schemas_of, specs
from icekit.iceberg.where import where
from icekit.maintain.action import Action
from icekit.maintain.planning.rewrite_actions import filter_without


def with_current_names(action: Action, metadata: Json) -> Action:
    """The action with the current names of the columns that it sorts rows or files by, and with the
    filter for its partitions in current names.
    """
    order = action.order
    current_paths = tuple(_current_path(metadata, path) for path in order.by)
    column_of_files = order.files_by and _current_name(metadata, order.files_by)
    action = replace(action, order=replace(order, by=current_paths, files_by=column_of_files))
    if action.where is None or not action.partitions:
        return action
    specs_by_id = {spec.spec_id: spec for spec in specs(metadata)}
    leaf_columns = columns(metadata, schema_of(metadata))
    partition_filter_sql = where(action.catalog, specs_by_id, leaf_columns, action.partitions)
    if partition_filter_sql is None:
        return action
    return replace(action, where=filter_without(partition_filter_sql, action.unless))


def _current_path(metadata: Json, column_path: tuple[str, ...]) -> tuple[str, ...]:
    """The path of a column now; the same if the table has a column of that path, or never had."""
    field = _current_field(metadata, lambda each: each.names == column_path)
    return column_path if field is None else field.names


def _current_name(metadata: Json, dotted_name: str) -> str | None:
    """The dotted name of a column now; None if it was dropped."""
    field = _current_field(metadata, lambda each: each.name == dotted_name)
    return None if field is None else field.name


def _current_field(metadata: Json, is_named: Callable[[Field], bool]) -> Field | None:
    """The column of a name now, or else the one that had it last."""
    current_fields = list(_fields(schema_of(metadata)))
    if field := next(filter(is_named, current_fields), None):
        return field
    fields_by_id = {each.field_id: each for each in current_fields}
    for schema in sorted(schemas_of(metadata), key=lambda each: -int(each.get("schema-id", 0))):
        for field in _fields(schema):
            if is_named(field) and field.field_id in fields_by_id:
                return fields_by_id[field.field_id]
    return None


def _fields(schema: Json) -> Iterator[Field]:
    """The columns of a schema and the fields of its structs, each with its path."""
    for field in child_fields(schema):
        yield field
        if isinstance(field.type, dict) and field.type.get("type") == "struct":
            for nested_field in _fields(field.type):
                yield nested_field._replace(names=field.names + nested_field.names)
