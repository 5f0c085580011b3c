"""Read partitions and their values from Spark in the form that facts keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from icekit.facts.definition import PartitionSpec
from icekit.facts.files import Partition, Scalar
from icekit.facts.values import to_scalar
from icekit.sql import identifier

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def unified(specs: Iterable[PartitionSpec]) -> list[tuple[int, str]]:
    """(field id, name) of the partition struct that metadata tables have for all specs.

    Source: Partitioning.partitionType: by field id, with the names of the newest spec.
    """
    names: dict[int, str] = {}
    for spec in sorted(specs, key=lambda s: -s.spec_id):
        for field in spec.fields:
            names.setdefault(field.field_id, field.name)
    return sorted(names.items())


def partition_columns(frame: DataFrame, path: str, names: Sequence[tuple[int, str]]) -> list[str]:
    """SQL that converts each partition field to the form that facts keep, as columns p0, p1 and so on."""
    if not names:
        return []
    outer, _, name = path.rpartition(".")
    beside: Any = frame.select(f"{outer}.*").schema if outer else frame.schema
    # Without it if every partition field was void, or its column was dropped.
    fields = beside[name].dataType.fields if name in beside.fieldNames() else ()
    types = {field.name: field.dataType.typeName() for field in fields}
    return [f"{scalar_sql(f'{path}.{identifier(name)}', types.get(name))} AS p{i}" for i, (_, name) in enumerate(names)]


def scalar_sql(column: str, type_name: str | None) -> str:
    """SQL that converts a value of a Spark type (``typeName()``) to the form that facts keep; :func:`scalar` does the rest."""
    if type_name is None:  # a field that was void in every spec has no column
        return "NULL"
    return {
        "date": f"unix_date({column})",
        "timestamp": f"unix_micros({column})",
        "timestamp_ntz": f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01 00:00:00', {column})",
        "binary": f"lower(hex({column}))",
    }.get(type_name, column)


def scope_columns(names: Sequence[tuple[int, str]]) -> list[str]:
    """The columns that identify a partition."""
    return ["spec_id", *(f"p{i}" for i in range(len(names)))]


class Partitions:
    """Partitions of Arrow rows, each created once."""

    def __init__(self, specs: Mapping[int, PartitionSpec], names: Sequence[tuple[int, str]]) -> None:
        place = {field_id: i for i, (field_id, _) in enumerate(names)}
        self.places = {spec_id: [place[f.field_id] for f in spec.fields] for spec_id, spec in specs.items()}
        self.width = len(names)
        self.known: dict[tuple[Any, ...], Partition] = {}

    def read(self, table: pa.Table) -> list[Partition]:
        """The partition of each row of ``spec_id, p0, p1, …``."""
        columns = [table.column("spec_id").to_pylist(), *(table.column(f"p{i}").to_pylist() for i in range(self.width))]
        return [self._one(key) for key in zip(*columns, strict=True)]

    def _one(self, key: tuple[Any, ...]) -> Partition:
        found = self.known.get(key)
        if found is None:
            values = tuple(scalar(key[1 + i]) for i in self.places[key[0]])
            found = self.known[key] = Partition(key[0], values)
        return found


def scalar(value: object) -> Scalar:
    """Convert the result of :func:`scalar_sql` to the form that facts keep."""
    # As a string in plain notation: CAST of a small decimal depends on the session's ANSI mode.
    return format(value, "f") if isinstance(value, Decimal) else to_scalar(value)
