"""Find the partitions where a sort order has worn off: files that overlap on its first column.

Counted in Spark over the ``files`` metadata table; only the worst partitions come to the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from icekit.engine.metadata_tables import metadata_table
from icekit.facts.model import TableFacts
from icekit.facts.spark import Partitions, partition_columns, unified
from icekit.sql import identifier
from icekit.tune.layout.model import Worn

if TYPE_CHECKING:
    from icekit.catalog import Lake

#: Partitions that come to the driver.
MOST_PARTITIONS = 20
#: A lookup that opens this many files of a partition on average finds them worn: a sorted partition has one, two at an edge.
WORN = 2.0


def worn_partitions(lake: Lake, facts: TableFacts, column: str) -> tuple[Worn, ...]:
    """The partitions whose files overlap most on a column, by the bytes that a lookup reads too many; those above :data:`WORN`.

    Depth is the mean, over the files, of how many files' bounds hold a file's lower bound.
    """
    if facts.snapshot_id is None:
        return ()
    files = metadata_table(lake.spark, lake.sql_name(facts.table), "data_files", facts.snapshot_id)
    names = unified(facts.specs)
    parts = partition_columns(files, "partition", names)
    scope = ["spec_id", *(f"p{i}" for i in range(len(names)))]
    keys = ", ".join(scope)
    bound = f"readable_metrics.{identifier(column)}"
    ranges = files.selectExpr(
        "spec_id", *parts, "file_size_in_bytes AS size", f"{bound}.lower_bound AS low", f"{bound}.upper_bound AS high"
    )
    # A range opens before another closes at the same value, as bounds include their ends.
    ends = ranges.where("low IS NOT NULL").selectExpr(
        *scope, "size", "explode(array(struct(low AS at, 0 AS closes), struct(high AS at, 1 AS closes))) AS e"
    )
    depth = f"sum(if(e.closes = 0, 1, -1)) OVER (PARTITION BY {keys} ORDER BY e.at, e.closes ROWS UNBOUNDED PRECEDING)"
    worst = (
        ends.selectExpr(*scope, "size", "e.closes AS closes", f"{depth} AS depth")
        .where("closes = 0")
        .selectExpr(*scope, "size", "CAST(depth AS DOUBLE) AS depth")
        .groupBy(*scope)
        .agg({"depth": "avg", "size": "sum", "*": "count"})
        .selectExpr(*scope, "`avg(depth)` AS depth", "`sum(size)` AS size", "`count(1)` AS files")
        .where(f"depth >= {WORN}")
    )
    table = (
        worst.selectExpr("*", "(depth - 1) * size / files AS wasted").orderBy("wasted", ascending=False).limit(MOST_PARTITIONS).toArrow()
    )
    specs = {s.spec_id: s for s in facts.specs}
    figures = [table.column(c).to_pylist() for c in ("files", "size", "depth")]
    return tuple(
        Worn(partition, facts.partition_path(partition), int(number), int(size), float(deep))
        for partition, number, size, deep in zip(Partitions(specs, names).read(table), *figures, strict=True)
    )
