"""``python -m rigs.bench.headline``: the figures of README's first lines, as a person would measure
them.

Whole commands on copies of one upsert table, from the command to the prompt: ``icekit compact``
with its checks, and a Spark job that calls ``rewrite_data_files``, with six times the heap, without
and with Iceberg's cache of delete files. Each is timed from outside, Spark's start and end included,
and its rows are compared with those that the table's history leaves.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import icekit
from icekit.api import Lake
from icekit.prove.fingerprint import fingerprint
from rigs.bench.equality_deletes_child import files_by_content, stock_rewrite
from rigs.bench.measure import in_child, show, watched, yardstick
from rigs.bench.tables import use_bench_lake
from rigs.bench.upserts import NAMESPACE, expected, make_upserts
from rigs.soak.table import clone, forget

NAME = "rigs.bench.headline"
ICEKIT, STOCK = "icekit compact, checked", "stock rewrite_data_files, not checked"
STOCK_CACHED = f"{STOCK}, deletes cached"
CONVERT = "icekit convert, checked"
#: Heaps in GB.
HEAPS = {ICEKIT: 1, STOCK: 6, STOCK_CACHED: 6, CONVERT: 2}
_DEFAULT = (ICEKIT, CONVERT, STOCK, STOCK_CACHED)
#: How many times faster version 0.2.0 was than Spark's own rewrite, on a quiet machine.
_LAST_RELEASE = {ICEKIT: 6.7}
#: What takes this many times as long as Spark's own rewrite without the cache is ended.
_PATIENCE = 1.5
_LONGEST_SECONDS = 1_800.0


def run(sizes: Sequence[int], *, long: bool) -> None:
    """Measure both commands; ``sizes`` are of other benches' tables."""
    del sizes, long
    _bench({"partitions": 6, "commits": 60, "rows": 50_000}, _DEFAULT)


def main() -> None:
    """Measure what the options say, or do one step of it in a process of its own."""
    parser = argparse.ArgumentParser(prog=f"python -m {NAME}", description=__doc__)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--commits", type=int, default=60)
    parser.add_argument(
        "--rows",
        type=int,
        default=50_000,
        help="rows of each partition and commit (default: %(default)s)",
    )
    parser.add_argument(
        "--only",
        choices=("icekit", "stock", "cached", "convert"),
        help="measure only one of them",
    )
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    use_bench_lake()
    if options.step:
        print(json.dumps(_step(options.step[0], json.loads(options.step[1]))), flush=True)
        return
    ways = {
        "icekit": (ICEKIT,),
        "stock": (STOCK,),
        "cached": (STOCK_CACHED,),
        "convert": (CONVERT,),
    }.get(options.only, _DEFAULT)
    _bench(
        {"partitions": options.partitions, "commits": options.commits, "rows": options.rows}, ways
    )


def _bench(history: Mapping[str, int], ways: Sequence[str]) -> None:
    seconds_by_way: dict[str, float] = {}
    rows = []
    for way in ways:
        copy = _in_step("copy", history)
        stock = seconds_by_way.get(STOCK)
        deadline = _LONGEST_SECONDS if stock is None else _PATIENCE * stock
        try:
            taken = _timed(way, copy, deadline)
            if taken is None:
                rows.append((way, f"{HEAPS[way]} GB", "", f"ended after {deadline:.0f} s", "", ""))
                continue
            checked = _in_step("check", {"copy": copy, **history})
        finally:
            _in_step("drop", {"copy": copy})
        seconds_by_way[way], memory = taken
        result = "right" if checked["right"] else "WRONG"
        figures = (f"{memory / 2**30:.1f} GB", f"{taken[0]:.1f} s", result, checked["files"])
        rows.append((way, f"{HEAPS[way]} GB", *figures))
        print(f"  {', '.join(map(str, rows[-1]))}", flush=True)
    count = history["partitions"] * history["commits"] * history["rows"]
    title = (
        f"From the command to the prompt: {count:,} rows and as many equality deletes, "
        f"{history['partitions']} partitions, {history['commits']} commits"
    )
    show(title, ("command", "heap", "peak memory", "time", "rows", "files left"), rows)
    for way, seconds in seconds_by_way.items():
        if way != STOCK and STOCK in seconds_by_way:
            before = _LAST_RELEASE.get(way)
            print(
                f"{way}: {seconds_by_way[STOCK] / seconds:.1f} times as fast as {STOCK}"
                + (f" (0.2.0: {before} times)" if before else "")
            )
    print(f"20 million steps of a Python loop: {yardstick():.2f} s")


def _timed(way: str, copy: str, deadline: float) -> tuple[float, int] | None:
    """Seconds and peak memory of a whole process. Commands before it, which are not timed, leave
    what later starts of Spark use.
    """
    cached = str(way == STOCK_CACHED).lower()
    settings = (
        f"spark.master=local[{os.cpu_count()}] spark.driver.memory={HEAPS[way]}g "
        f"spark.sql.iceberg.executor-cache.enabled={cached}"
    )
    conf = f"{os.environ.get('ICEKIT_SPARK_CONF', '')} {settings}"
    work = ["convert", copy] if way == CONVERT else ["compact", copy, "--leave-alone", "0 minutes"]
    plan = [sys.executable, "-m", "icekit", *work]
    command = [*plan, "--execute"]
    if way in {STOCK, STOCK_CACHED}:
        order = {"copy": copy, "options": {"cache-delete-files": cached}}
        command = [sys.executable, "-m", NAME, "--step", "stock", json.dumps(order)]
    for _ in range(2):
        environment = {**os.environ, "ICEKIT_SPARK_CONF": conf}
        subprocess.run(plan, env=environment, stdout=subprocess.DEVNULL, check=True)
    return watched(command, deadline, ICEKIT_SPARK_CONF=conf)


def _in_step(step: str, order: Mapping[str, Any]) -> Any:
    return in_child(NAME, "--step", step, json.dumps(order))


def _step(step: str, order: Mapping[str, Any]) -> Any:
    lake = icekit.connect()
    try:
        return {"copy": _copy, "stock": _stock, "check": _check, "drop": _drop}[step](lake, order)
    finally:
        lake.close()


def _copy(lake: Lake, history: Mapping[str, Any]) -> str:
    """Make the table unless it is there, and a second one over its files; returns the name of that
    one.
    """
    template = make_upserts(lake, **history).rpartition(".")[2]
    return str(clone(lake, f"{template}_headline", NAMESPACE, template))


def _stock(lake: Lake, order: Mapping[str, Any]) -> None:
    stock_rewrite(lake, order["copy"], **order["options"])


def _check(lake: Lake, order: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whether the copy holds the rows that it should, and how many files, by content."""
    rows = fingerprint(lake.spark, lake.sql_name(lake.identifier(order["copy"])))[()]
    files = files_by_content(lake, order["copy"])
    return {
        "right": rows == expected(lake, order["copy"].removesuffix("_headline")),
        "files": ", ".join(f"{counted[0]:,} {kind}" for kind, counted in sorted(files.items())),
    }


def _drop(lake: Lake, order: Mapping[str, Any]) -> None:
    forget(lake, order["copy"].rpartition(".")[2], NAMESPACE)


if __name__ == "__main__":
    main()
