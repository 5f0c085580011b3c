"""The columns that an action names, as the table names them now: another job may have renamed some
since it was planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from icekit.health.metadata import (
    Field,
    Json,
    children,
    columns,
    schema_of,
    schemas_of,
    specs,
)
from icekit.health.where import where
from icekit.maintain.actions import excluding
from icekit.maintain.model import Action


def with_current_names(action: Action, metadata: Json) -> Action:
    """The action with the current names of the columns that it sorts by, and with the filter for
    its partitions in current names.
    """
    order = action.order
    paths = tuple(_current_path(metadata, path) for path in order.by)
    action = replace(action, order=replace(order, by=paths))
    if action.where is None or not action.partitions:
        return action
    by_id = {spec.spec_id: spec for spec in specs(metadata)}
    leaf_columns = columns(metadata, schema_of(metadata))
    of_partitions = where(action.catalog, by_id, leaf_columns, action.partitions)
    if of_partitions is None:
        return action
    return replace(action, where=excluding(of_partitions, action.unless))


def _current_path(metadata: Json, path: tuple[str, ...]) -> tuple[str, ...]:
    """The path of a column now; the same if the table has a column of that path, or never had."""
    current = {field.names: field for field in _fields(schema_of(metadata))}
    if path in current:
        return path
    by_id = {field.field_id: field for field in current.values()}
    for schema in sorted(schemas_of(metadata), key=lambda each: -int(each.get("schema-id", 0))):
        for field in _fields(schema):
            if field.names == path and field.field_id in by_id:
                return by_id[field.field_id].names
    return path


def _fields(schema: Json) -> Iterator[Field]:
    """The columns of a schema and the fields of its structs, each with its path."""
    for field in children(schema):
        yield field
        if isinstance(field.type, dict) and field.type.get("type") == "struct":
            for inner in _fields(field.type):
                yield inner._replace(names=field.names + inner.names)
