"""The measured process of the facts bench: ``spark``, ``local`` or ``inspect``, a table, a number
of runs.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from typing import Any

import icekit
from icekit.api import Lake
from icekit.common.sql import identifier
from icekit.health import TableFacts
from rigs.bench.measure import Others, in_turns
from rigs.bench.tables import BenchTable

SMALL = BenchTable(1000).name


def main(kind: str, table: str, runs: int = 1) -> None:
    """Measure, and print what was measured as JSON."""
    lake = icekit.connect()
    if kind == "inspect":
        print(len(_pyiceberg_table(lake, table).inspect.files()))
        return
    measure = _spark if kind == "spark" else _local
    print(json.dumps(measure(lake, table, runs)))
    lake.close()


def _spark(lake: Lake, table: str, runs: int) -> dict[str, Any]:
    def facts(name: str) -> TableFacts:
        return lake.observe(name, collector="spark")

    def plain_sql() -> object:
        cases = " ".join(
            f"WHEN file_size_in_bytes < {edge} THEN {edge}" for edge in observed.data_edges[1:]
        )
        files = identifier(*lake.sql_name(lake.identifier(table)), "files")
        return lake.spark.sql(
            f"SELECT spec_id, partition, content, CASE {cases} END, count(*), "
            "sum(file_size_in_bytes), sum(record_count), min(file_size_in_bytes), "
            f"max(file_size_in_bytes) FROM {files} GROUP BY 1, 2, 3, 4"
        ).toArrow()

    for _ in range(3):
        facts(SMALL)
    small = _peak_mb()
    for _ in range(3):
        observed = facts(table)
    grown = _peak_mb() - small
    beans = lake.spark._jvm.java.lang.management.ManagementFactory  # type: ignore[union-attr]
    pools = [pool for pool in beans.getMemoryPoolMXBeans() if str(pool.getType()) == "Heap memory"]
    peak = sum(pool.getPeakUsage().getUsed() for pool in pools) / 1e6
    beans.getMemoryMXBean().gc()
    kept = beans.getMemoryMXBean().getHeapMemoryUsage().getUsed() / 1e6
    plain_sql()
    with Others() as others:
        taken = in_turns(runs, {"facts": lambda: facts(table), "plain SQL": plain_sql})
    return {
        **_described(observed),
        **taken,
        "others": str(others),
        "peak_heap_mb": peak,
        "kept_heap_mb": kept,
        "python_mb": _peak_mb(),
        "python_grown_mb": grown,
    }


def _local(lake: Lake, table: str, runs: int) -> dict[str, Any]:
    pyiceberg = _pyiceberg_table(lake, table)

    def facts() -> TableFacts:
        return lake.observe(table, collector="local")

    def loop() -> int:
        snapshot = pyiceberg.current_snapshot()
        return sum(
            len(manifest.fetch_manifest_entry(pyiceberg.io))
            for manifest in snapshot.manifests(pyiceberg.io)
        )

    lake.observe(SMALL, collector="local")
    small = _peak_mb()
    observed = facts()
    grown = _peak_mb() - small
    work: dict[str, Callable[[], object]] = {
        "facts": facts,
        "inspect.files()": pyiceberg.inspect.files,
        "manifest entries": loop,
    }
    with Others() as others:
        taken = in_turns(runs, work)
    return {**_described(observed), **taken, "others": str(others), "python_grown_mb": grown}


def _pyiceberg_table(lake: Lake, table: str) -> Any:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(lake.tables.source(lake.identifier(table)).metadata_location)


def _described(facts: TableFacts) -> dict[str, int]:
    manifests = facts.manifests
    return {
        "files": manifests.data_entry_count + manifests.delete_entry_count,
        "manifests": manifests.count,
        "manifest_bytes": manifests.size_in_bytes,
    }


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
