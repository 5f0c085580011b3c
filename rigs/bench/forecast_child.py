"""The measured process of the forecast bench: ``facts``, ``read`` or ``rewrite``, and tables, each
answered by a line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import icekit
from icekit.api import Lake
from icekit.common.sql import call_sql, identifier
from icekit.engine.cluster import cluster_of
from icekit.health.facts.heap import BASE_BYTES, forecast_heap
from rigs.bench.upserts import copied

# Between two garbage collections, of which each stops the tasks.
PAUSE_SECONDS = 0.25
ENOUGH_SAMPLES, MAX_READS = 20, 6


def main(*work: str) -> None:
    """Measure each ``kind:table``, and print what was measured as JSON, with the forecast for this
    very process.
    """
    lake = icekit.connect()
    for kind, _, table in (one.partition(":") for one in work):
        print(
            json.dumps(
                {"kind": kind, "forecast": _forecast(lake, table), **_peak(lake, kind, table)}
            ),
            flush=True,
        )
    lake.close()


def _forecast(lake: Lake, table: str) -> dict[str, Any]:
    """The forecast for this process, with what decides it: heap and threads are those of its
    session.
    """
    facts = lake.observe(table, collector="local")
    executor = cluster_of(lake.spark).executor
    found = forecast_heap(facts, executor)
    of_task = (found.needed_bytes - BASE_BYTES) // executor.cores
    return {"records": found.max_deletes_per_file, "task_bytes": of_task}


def _peak(lake: Lake, kind: str, table: str) -> dict[str, Any]:
    """What lived on the heap at most while the table was read or rewritten, beyond what lived
    before.
    """
    spark = lake.spark
    spark.range(10).write.format("noop").mode("overwrite").save()
    lake.observe(table, collector="local")
    before = live_bytes(spark)
    often = os.environ.get("ICEKIT_BENCH_SAMPLE") != "False"
    if kind == "read":
        # In a small heap the read is to die of itself, and not of more garbage collections.
        with sampled(spark, often=often) as found:
            # Garbage is collected seldom on a busy machine: once more, until the peak was met.
            for _ in range(MAX_READS if often else 1):
                if len(found) < ENOUGH_SAMPLES:
                    spark.table(identifier(*lake.sql_name(lake.identifier(table)))).write.format(
                        "noop"
                    ).mode("overwrite").save()
    else:
        with copied(lake, table, "forecast") as copy, sampled(spark, often=often) as found:
            spark.sql(
                call_sql(
                    lake.name,
                    "rewrite_data_files",
                    table=copy,
                    options={"delete-file-threshold": "1"},
                )
            ).collect()
    executor = cluster_of(spark).executor
    return {
        "before": before,
        "peak": max(found, default=before),
        "samples": len(found),
        "heap": executor.heap_bytes,
        "cores": executor.cores,
    }


@contextlib.contextmanager
def sampled(spark: Any, *, often: bool = True) -> Iterator[list[int]]:
    """Bytes that live on the heap, again and again while the block runs."""
    found: list[int] = []
    done = threading.Event()

    def run() -> None:
        pause = PAUSE_SECONDS
        while not done.wait(pause):
            started = time.monotonic()
            found.append(live_bytes(spark))
            # The tasks get at least two thirds of the time.
            pause = max(PAUSE_SECONDS, 2 * (time.monotonic() - started))

    thread = threading.Thread(target=run, daemon=True)
    if often:
        thread.start()
    try:
        yield found
    finally:
        done.set()
        if often:
            thread.join()


def live_bytes(spark: Any) -> int:
    """Bytes that a full garbage collection leaves on the heap; what was allocated since does not
    count.
    """
    jvm = spark._jvm
    jvm.java.lang.System.gc()
    pools = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    left = [pool.getCollectionUsage() for pool in pools if pool.getType().name() == "HEAP"]
    return sum(int(usage.getUsed()) for usage in left if usage is not None)


if __name__ == "__main__":
    main(*sys.argv[1:])
