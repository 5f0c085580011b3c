"""How near the forecast of heap comes: the delete sets' real peak by key type, and heaps so small
that a read dies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import icekit
from icekit.api import Lake
from icekit.engine.cluster import Executor
from icekit.health.facts.heap import forecast_heap, verdict
from rigs.bench.measure import show
from rigs.bench.upserts import KEYS, make_upserts

CHILD = "rigs.bench.forecast_child"
CORES, HEAP_MB = 2, 3072
# Shares of the forecast peak that the heap is set to, from ample to too small; Spark starts with no
# less than 512 MB.
HEAPS = (1 / 0.6, 1.0, 0.75, 0.6)
LEAST_HEAP_MB = 512
# A read that thrashes instead of dying has failed as well.
SECONDS = 300


def run(sizes: Sequence[int], *, long: bool) -> None:
    """Make the tables, measure the peaks, and then shrink the heap."""
    lake = icekit.connect()
    # Few large commits: the oldest file loads 800,000 delete records, and a scan 2.4 million.
    tables = {
        name: make_upserts(lake, keys=keys, partitions=2, commits=3, rows=400_000)
        for name, keys in KEYS.items()
    }
    dying = {name: table for name, table in _dying(lake).items() if long or name == "string"}
    lake.close()
    # One task at a time: the peaks of several need not meet.
    peaks = _child(HEAP_MB, [f"read:{table}" for table in tables.values()], cores=1)
    rows = []
    for name, found in zip(tables, peaks, strict=True):
        forecast = found["forecast"]
        most, real = forecast["task_bytes"], found["peak"] - found["before"]
        rows.append(
            (
                name,
                f"{forecast['records']:,}",
                _mb(most),
                _mb(real),
                "reached" if real <= most else "NOT REACHED",
            )
        )
    show(
        "Peak of the delete sets of one task of a stock read, beside the forecast, an upper bound",
        ("key", "deletes per file", "forecast", "real", "target"),
        rows,
    )
    _shrink(dying)


def _dying(lake: Lake) -> dict[str, tuple[str, int]]:
    """Tables whose sets outgrow the least heap that Spark starts with, and the forecast peak of a
    read.
    """
    found = {}
    for name, keys in KEYS.items():
        table = make_upserts(lake, keys=keys, partitions=2, commits=5, rows=400_000)
        facts = lake.observe(table, collector="local")
        executor = Executor(CORES, HEAP_MB * 2**20)
        found[name] = table, forecast_heap(facts, executor).needed_bytes
    return found


def _shrink(tables: dict[str, tuple[str, int]]) -> None:
    rows = []
    for name, (table, peak) in tables.items():
        for share in HEAPS:
            heap = max(LEAST_HEAP_MB, round(peak * share / 2**20))
            survived = bool(_child(heap, [f"read:{table}"], sample=False))
            said = verdict(peak, heap * 2**20)
            rows.append(
                (
                    name,
                    f"{heap:,} MB",
                    said,
                    "read" if survived else "died",
                    "NOT REACHED" if said == "fits" and not survived else "reached",
                )
            )
    show(
        "A stock read in smaller and smaller heaps: never 'fits' for one that died",
        ("key", "heap", "forecast", "it", "target"),
        rows,
    )


def _child(
    heap_mb: int, work: Sequence[str], *, cores: int = CORES, sample: bool = True
) -> list[Any]:
    """What a process of that heap measured; nothing if it died."""
    conf = (
        f"spark.master=local[{cores}] spark.driver.memory={heap_mb}m spark.sql.shuffle.partitions=2"
    )
    environment = {**os.environ, "ICEKIT_SPARK_CONF": conf, "ICEKIT_BENCH_SAMPLE": str(sample)}
    command = [sys.executable, "-m", CHILD, *work]
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=SECONDS,
            check=True,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return []
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _mb(size: float) -> str:
    return f"{size / 2**20:,.0f} MB"
