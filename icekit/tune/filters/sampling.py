"""Sample rows of a table: to try layouts on, and to give values to filters that come without."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from icekit.facts.model import TableFacts
from icekit.facts.parts import Column
from icekit.sql import identifier
from icekit.tune.filters.model import Filter, Leaf, Node, with_leaves
from icekit.tune.place import some_files

if TYPE_CHECKING:
    from icekit.catalog import Lake

#: Lookups that stand for a filter without values.
DRAWS = 8


@dataclass(frozen=True, eq=False)
class Sample:
    """Some rows of a table: by column name a list of values as facts keep them (decimals as numbers), all of one length.

    ``total_rows`` are the table's, before deletes.
    """

    columns: dict[str, list[Any]]
    total_rows: int

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return len(next(iter(self.columns.values()), ()))


def sample(
    lake: Lake, facts: TableFacts, columns: Sequence[str], *, rows: int = 100_000, sample_bytes: int = 1 << 30, seed: int = 7
) -> Sample:
    """About ``rows`` rows, drawn evenly from all files, or from some all over the table where they have more than ``sample_bytes``.

    ``columns`` are names of leaves inside no list or map. Spark reads these columns alone; the driver holds the rows.
    """
    by_name = {c.name: c for c in facts.columns}
    if facts.snapshot_id is None or not columns:
        return Sample({name: [] for name in columns}, 0)
    read = facts.data.record_count * min(1.0, sample_bytes / max(facts.data.size_in_bytes, 1))
    share = min(1.0, 1.1 * rows / max(read, 1))
    terms = ", ".join(f"{_as_fact(by_name[name])} AS c{place}" for place, name in enumerate(columns))
    drawn = f" AND rand({seed}) < {share}" if share < 1 else ""
    table = lake.spark.sql(
        f"SELECT {terms} FROM {identifier(*lake.sql_name(facts.table))} VERSION AS OF {facts.snapshot_id} "
        f"WHERE {some_files(lake, facts, sample_bytes)}{drawn} LIMIT {rows}"
    ).toArrow()
    found = {name: table.column(place).to_pylist() for place, name in enumerate(columns)}
    return Sample(found, facts.data.record_count)


def _as_fact(column: Column) -> str:
    term, kind = identifier(*column.names), column.type
    if kind == "date":
        return f"unix_date({term})"
    if kind.startswith("timestamptz"):
        return f"unix_micros({term})"
    if kind.startswith("timestamp"):
        return f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01', {term})"
    if kind.startswith("decimal"):
        return f"CAST({term} AS DOUBLE)"
    if kind.startswith(("binary", "fixed")):
        return f"lower(hex({term}))"
    return term


def bind(filters: Sequence[Filter], drawn: Sample, *, seed: int = 7) -> tuple[Filter, ...]:
    """The filters with values: one without becomes :data:`DRAWS` with values drawn from a sample, which share its weight.

    A column that has no values in the sample is asked for nothing.
    """
    draw = random.Random(seed)
    present = {name: [v for v in values if v is not None] for name, values in drawn.columns.items()}

    def bound(leaf: Leaf) -> Node:
        values = present.get(leaf.column)
        if leaf.is_bound or not values:
            return leaf
        return replace(leaf, values=(draw.choice(values),))

    found: list[Filter] = []
    for one in filters:
        if one.is_bound:
            found.append(one)
        else:
            found += [replace(one, tree=with_leaves(one.tree, bound), weight=one.weight / DRAWS) for _ in range(DRAWS)]
    return tuple(found)
