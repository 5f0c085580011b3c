"""Say in SQL which rows belong to given partitions."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence

from icekit.facts.model import Column, Partition, PartitionField, PartitionSpec, Scalar
from icekit.sql import identifier, literal

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - wall-clock arithmetic; the zone is written into the literal
_INTEGERS = {"int", "long"}


class _Inexact(Exception):
    """A partition whose rows no predicate here tells exactly."""


def where(catalog: str, specs: Mapping[int, PartitionSpec], columns: Sequence[Column], partitions: Iterable[Partition]) -> str | None:
    """A predicate that holds for the rows of the partitions; None for the whole table.

    The predicate speaks of columns, not of files, so that it means the same rows at any
    snapshot and under any spec. It is None if a partition is that of an unpartitioned spec, or
    its source column is gone, or its transform is unknown. No partitions are no rows.
    """
    types = {column.name: column.type for column in columns}
    found: dict[str, None] = {}
    for partition in partitions:
        fields = [
            (field, value)
            for field, value in zip(specs[partition.spec_id].fields, partition.values, strict=True)
            if field.transform != "void"
        ]
        if not fields:
            return None
        try:
            found[" AND ".join(_field(catalog, field, types, value) for field, value in fields)] = None
        except (_Inexact, OverflowError, ValueError):
            return None
    if len(found) == 1:
        return next(iter(found))
    return " OR ".join(f"({predicate})" for predicate in found) or "false"


def _field(catalog: str, field: PartitionField, types: Mapping[str, str], value: Scalar) -> str:
    kind = types.get(field.source or "")
    # A dot may be one in a name or lead into a struct; the facts do not say which.
    if field.source is None or kind is None or "." in field.source:
        raise _Inexact(field.name)
    column = identifier(field.source)
    if value is None:
        return f"{column} IS NULL"
    name, _, width = field.transform.rstrip("]").partition("[")
    if name == "identity":
        return _equals(column, kind, value)
    if name == "bucket":
        # Iceberg hashes a uuid's bytes; Spark reads it as text.
        hashed = f"unhex(replace({column}, '-', ''))" if kind == "uuid" else column
        return f"{identifier(catalog, 'system', 'bucket')}({int(width)}, {hashed}) = {value}"
    if name == "truncate":
        return _equals(f"{identifier(catalog, 'system', 'truncate')}({int(width)}, {column})", kind, value)
    if name in {"year", "month", "day", "hour"} and isinstance(value, int):
        return f"{column} >= {_start(name, kind, value)} AND {column} < {_start(name, kind, value + 1)}"
    raise _Inexact(field.transform)


def _start(transform: str, kind: str, value: int) -> str:
    """The first moment of a year, month, day or hour, counted from 1970."""
    if transform == "year":
        moment = dt.datetime(1970 + value, 1, 1)  # noqa: DTZ001
    elif transform == "month":
        moment = dt.datetime(1970 + value // 12, value % 12 + 1, 1)  # noqa: DTZ001
    else:
        moment = _EPOCH + dt.timedelta(**{f"{transform}s": value})
    return _moment(kind, moment)


def _moment(kind: str, moment: dt.datetime) -> str:
    if kind == "date":
        return f"DATE '{moment.date().isoformat()}'"
    text = moment.isoformat(sep=" ")
    if kind == "timestamptz":
        return f"TIMESTAMP '{text}+00:00'"
    if kind == "timestamp":
        return f"TIMESTAMP_NTZ '{text}'"
    raise _Inexact(kind)


def _equals(value: str, kind: str, wanted: Scalar) -> str:
    if kind in {"float", "double"}:
        if wanted == "nan":
            return f"isnan({value})"
        if wanted == 0:
            # Iceberg tells 0.0 from -0.0 when it prunes files, facts and SQL do not.
            return f"abs({value}) = 0"
        return f"{value} = CAST({literal(str(wanted))} AS {kind})"
    if kind == "boolean" or kind in _INTEGERS:
        return f"{value} = {literal(wanted)}"
    if kind == "date" or kind.startswith("timestamp"):
        if not isinstance(wanted, int):
            raise _Inexact(kind)
        step = dt.timedelta(days=wanted) if kind == "date" else dt.timedelta(microseconds=wanted)
        return f"{value} = {_moment(kind, _EPOCH + step)}"
    if kind.startswith("decimal"):
        precision, scale = re.findall(r"\d+", kind)
        return f"{value} = CAST({literal(str(wanted))} AS DECIMAL({precision}, {scale}))"
    if kind == "binary" or kind.startswith("fixed"):
        return f"{value} = X'{wanted}'"
    if kind in {"string", "uuid"}:
        return f"{value} = {literal(str(wanted))}"
    raise _Inexact(kind)
