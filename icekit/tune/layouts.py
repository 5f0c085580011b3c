"""The layouts that are worth trying for some filters: orders, curves, partition specs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from icekit.facts.model import TableFacts
from icekit.tune.ddl import SORT, ZORDER, Field, RowOrder, fields_of, own_order, spec_name
from icekit.tune.filters import EQUALITY, NULLS, Filter, operators
from icekit.tune.queries import Sample, sort_columns

#: The next coarser transform, and how many units of the finer one it holds.
_COARSER = {"hour": ("day", 24), "day": ("month", 30), "month": ("year", 12)}


#: A choice: the share of what filters read that a layout must save.
GAIN = 0.2
ENABLED, NDV = (
    "write.parquet.bloom-filter-enabled.column.",
    "write.parquet.bloom-filter-ndv.column.",
)


#: Transforms of times, and the microseconds of a unit, the coarsest first.
_UNITS = {"year": 365 * 86_400_000_000, "month": 30 * 86_400_000_000, "day": 86_400_000_000}


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout to try: a partition spec, an order of rows within partitions (None: the table's
    own), and a column with a bloom filter.
    """

    spec: tuple[Field, ...]
    order: RowOrder | None = None
    bloom: str = ""
    is_coarser: bool = False

    def order_for(self, facts: TableFacts) -> RowOrder | None:
        """The order of a rewrite: this one, or that of the table."""
        return self.order or (RowOrder(SORT, ()) if facts.sort_order else None)

    def name(self, current: Sequence[Field]) -> str:
        """The name of the variant."""
        if self.bloom:
            return f"bloom filter on {self.bloom}"
        order = str(self.order or "sorted again")
        if self.order is not None and self.order.kind == SORT:
            order = f"sorted by {order}"
        if self.spec == tuple(current):
            return order
        spec = f"by {spec_name(self.spec)}"
        return spec if self.order is None else f"{spec}, {order}"


def layouts(facts: TableFacts, filters: Sequence[Filter], drawn: Sample) -> Iterator[Layout]:
    """The layouts to try, the simplest first: the own order again, one and two sort columns,
    z-order, a coarser and a finer spec, a bloom filter.
    """
    current, own = fields_of(facts.default_spec), own_order(facts)
    single = {f.column for f in current if f.transform == "identity"}
    columns = tuple(c for c in sort_columns(facts, filters) if c not in single)[:2]
    if facts.sort_order and (own is None or own.columns[0] in columns[:1]):
        yield Layout(current)
    orders = [RowOrder(SORT, columns[:1])] if columns else []
    if len(columns) > 1:
        orders += [RowOrder(SORT, columns), RowOrder(SORT, columns[::-1])]
        orders.append(RowOrder(ZORDER, columns))
    yield from (Layout(current, order) for order in orders if order != own)
    coarser = coarser_spec(facts, current)
    if coarser is not None:
        yield Layout(coarser, orders[0] if orders else None, is_coarser=True)
    fields = (finer_field(facts, c, filters, drawn) for c in columns)
    finer = next((field for field in fields if field is not None), None)
    if finer is not None and finer not in current:
        rest = tuple(c for c in columns if c != finer.column)
        yield Layout((*current, finer), RowOrder(SORT, rest) if rest else None)
    for column in columns:
        values = drawn.get(column, [])
        is_distinct = len(set(values)) > GAIN * len(values)
        is_set = facts.properties.get(ENABLED + column, "").lower() == "true"
        if is_distinct and not is_set and _is_looked_up(column, filters):
            yield Layout(current, bloom=column)
            break


def coarser_spec(facts: TableFacts, current: tuple[Field, ...]) -> tuple[Field, ...] | None:
    """The spec with a coarser last time field, or without its last field, where partitions are
    smaller than a well-sized file; None elsewhere.
    """
    if not current or facts.mean_partition_bytes >= facts.target_bytes / 2:
        return None
    index = next(
        (i for i in reversed(range(len(current))) if current[i].transform in _COARSER), None
    )
    if index is None:
        return current[:-1]
    field, mean = current[index], facts.mean_partition_bytes
    while field.transform in _COARSER and mean < facts.target_bytes / 2:
        transform, units = _COARSER[field.transform]
        field, mean = Field(field.column, transform), mean * units
    return (*current[:index], field, *current[index + 1 :])


def finer_field(
    facts: TableFacts, column: str, filters: Sequence[Filter], drawn: Sample
) -> Field | None:
    """One more partition field with which partitions still hold two files of the target size; None
    where none does.
    """
    most = facts.mean_partition_bytes / max(1, 2 * facts.target_bytes)
    values = set(drawn.get(column, ()))
    column_type = facts.by_name[column].type
    if most < 2 or not values:
        return None
    if column_type.startswith(("date", "timestamp")):
        scale = 86_400_000_000 if column_type == "date" else 1
        fits = [
            unit
            for unit, micros in _UNITS.items()
            if 2 <= len({int(v) * scale // micros for v in values}) <= most
        ]
        return Field(column, fits[-1]) if fits else None
    if len(values) <= most:
        return Field(column, "identity")
    if not _is_looked_up(column, filters) or column_type.startswith(("float", "double", "boolean")):
        return None
    return Field(column, f"bucket[{1 << int(math.log2(most))}]")


def _is_looked_up(column: str, filters: Sequence[Filter]) -> bool:
    return operators(filters, column) - {NULLS} <= EQUALITY
