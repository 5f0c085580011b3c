"""Measure planning: in the driver and by the executors, and with more or fewer threads. Nothing is read but manifests."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import load_now
from icekit.engine.plan_nodes import is_scan_of, nodes, query_of
from icekit.engine.planner import plan_files
from icekit.engine.session import lent
from icekit.errors import StatementRefused
from icekit.sql import Identifier, identifier
from icekit.tune.budget import Budget
from icekit.tune.planning.mode import DISTRIBUTED, LOCAL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MODES = ("spark.sql.iceberg.data-planning-mode", "spark.sql.iceberg.delete-planning-mode")
#: Threads that are tried, as far as there are manifests for them.
THREADS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds to plan a scan in one way: the least of some repeats."""

    name: str
    seconds: float


def in_each_mode(spark: SparkSession, table: Identifier, where: str | None, *, repeats: int, budget: Budget) -> tuple[Timing, ...]:
    """Plan a query as Spark does (its own part included), with Iceberg's planning mode set to local and to distributed, in turns."""
    seconds: dict[str, list[float]] = {LOCAL: [], DISTRIBUTED: []}
    sql = f"SELECT * FROM {identifier(*table)}{f' WHERE {where}' if where else ''}"
    for _ in range(repeats + 1):
        for mode, found in seconds.items():
            with budget.watching(spark), lent(spark, dict.fromkeys(_MODES, mode)):
                found.append(_plan(spark, table, sql))
    # The first of each warms up.
    return tuple(Timing(mode, min(found[1:])) for mode, found in seconds.items())


def _plan(spark: SparkSession, table: Identifier, sql: str) -> float:
    # Spark plans the scan while it optimizes, to know its size.
    started = time.monotonic()
    query = query_of(spark, sql)
    scan = next((n.scan() for n in nodes(query.executedPlan()) if is_scan_of(n, table)), None)
    if scan is None:
        raise StatementRefused(f"Spark plans {sql} without reading the table, so there is nothing to measure.")
    scan.toBatch().planInputPartitions()
    return time.monotonic() - started


def with_threads(spark: SparkSession, table: Identifier, manifests: int, *, repeats: int, budget: Budget) -> tuple[Timing, ...]:
    """Plan a full scan in the driver with so many threads each; up to as many as there are manifests."""
    jvm: Any = spark._jvm
    loaded = load_now(spark, table)
    found = []
    for number in (n for n in THREADS if n == 1 or n <= manifests):
        pool = jvm.java.util.concurrent.Executors.newFixedThreadPool(number)
        try:
            times = []
            for _ in range(repeats + 1):
                budget.check()
                started = time.monotonic()
                plan_files(spark, loaded.newScan().planWith(pool))
                times.append(time.monotonic() - started)
            found.append(Timing(f"{number}", min(times[1:])))
        finally:
            pool.shutdown()
    return tuple(found)
