"""A file's rows as rows of a table: fields are selected by id (Column Projection)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rigs.torture.reader.schema import (
    NO_ID,
    Field,
    ListOf,
    MapOf,
    NotReadable,
    Primitive,
    Struct,
    Type,
    default_value,
    in_id_order,
    in_order,
    plain,
    promoted,
)

#: Values by field id of the columns that a file need not hold: those of identity partitions.
Constants = Mapping[int, Any]


def project(
    row: Mapping[str, Any], source: Struct, target: Struct, constants: Constants
) -> tuple[tuple[int, Any], ...]:
    """A row of a file, as a library has it, by the field ids of ``target``."""
    return in_id_order(
        (field.id, _field_value(row, source, field, constants))
        for field in target.fields
        if field.id != NO_ID
    )


def _field_value(row: Mapping[str, Any], source: Struct, field: Field, constants: Constants) -> Any:
    stored = source.field(field.id)
    if stored is not None:
        return _value(row[stored.name], stored.type, field.type, constants)
    if field.id in constants:
        return constants[field.id]
    return default_value(field.initial_default, field.type)


def _value(value: Any, source: Type, target: Type, constants: Constants) -> Any:
    if value is None:
        return None
    match source, target:
        case Primitive(), Primitive():
            return promoted(plain(value, source), source, target)
        case Struct(), Struct():
            return project(value, source, target, constants)
        case ListOf(element), ListOf(wanted):
            return tuple(_value(each, element.type, wanted.type, constants) for each in value)
        case MapOf(), MapOf():
            return in_order(
                (
                    _value(key, source.key.type, target.key.type, constants),
                    _value(mapped, source.value.type, target.value.type, constants),
                )
                for key, mapped in _entries(value, source)
            )
    raise NotReadable(f"{source} in a file where the table has {target}")


def _entries(value: Any, kind: MapOf) -> Iterable[tuple[Any, Any]]:
    """A map's entries: libraries have a map as a mapping, as pairs, or as records of two fields."""
    if isinstance(value, Mapping):
        return value.items()
    return [
        (each[kind.key.name], each[kind.value.name]) if isinstance(each, Mapping) else each
        for each in value
    ]
