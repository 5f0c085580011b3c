"""A file's rows as rows of a table: fields are selected by id (Column Projection)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rigs.torture.reader.schema import (
    Field,
    ListOf,
    MapOf,
    NotReadable,
    Primitive,
    Struct,
    Type,
    default_value,
    promoted,
)

#: Values by field id of the columns that a file need not hold: those of identity partitions.
Constants = Mapping[int, Any]


def project(
    row: Mapping[str, Any], source: Struct, target: Struct, constants: Constants
) -> dict[int, Any]:
    """A row of a file, by the field ids of ``target``."""
    return {field.id: _field_value(row, source, field, constants) for field in target.fields}


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
            return promoted(value, source, target)
        case Struct(), Struct():
            return project(value, source, target, constants)
        case ListOf(element), ListOf(wanted):
            return tuple(_value(each, element.type, wanted.type, constants) for each in value)
        case MapOf(key, mapped), MapOf(wanted_key, wanted):
            return tuple(
                (
                    _value(one, key.type, wanted_key.type, constants),
                    _value(other, mapped.type, wanted.type, constants),
                )
                for one, other in value
            )
    raise NotReadable(f"{source} in a file where the table has {target}")


def canonical(value: Any, kind: Type) -> Any:
    """A projected value as it is counted: hashable, and the same whatever the order of fields and
    of a map's entries.
    """
    if value is None:
        return None
    match kind:
        case Struct(fields):
            ordered = sorted(fields, key=lambda field: field.id)
            return tuple((field.id, canonical(value[field.id], field.type)) for field in ordered)
        case ListOf(element):
            return tuple(canonical(each, element.type) for each in value)
        case MapOf(key, mapped):
            pairs = [
                (canonical(one, key.type), canonical(other, mapped.type)) for one, other in value
            ]
            return tuple(sorted(pairs, key=repr))
    return value
