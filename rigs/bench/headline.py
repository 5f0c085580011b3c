"""``python -m rigs.bench.headline``: the figures of README's first lines, as a person would measure
them.

Two whole commands on copies of one upsert table, from the command to the prompt: ``icekit compact``
with its checks, and a Spark job that calls ``rewrite_data_files``, with three times the heap. Each
is timed from outside, Spark's start and end included, and its rows are compared with those that the
table's history leaves.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import icekit
from icekit.api import Lake
from icekit.prove.fingerprint import fingerprint
from rigs.bench.equality_deletes_child import files_by_content, stock_rewrite
from rigs.bench.measure import in_child, show
from rigs.bench.tables import use_bench_lake
from rigs.bench.upserts import NAMESPACE, expected, make_upserts
from rigs.soak.table import clone, forget

NAME = "rigs.bench.headline"
ICEKIT, STOCK = "icekit compact, checked", "stock rewrite_data_files, not checked"
CONVERT = "icekit convert, checked"
#: Heaps in GB.
HEAPS = {ICEKIT: 2, STOCK: 6, CONVERT: 2}
_DEFAULT = (ICEKIT, STOCK)


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
        choices=("icekit", "stock", "convert"),
        help="measure only one: one of the two, or `icekit convert`",
    )
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    use_bench_lake()
    if options.step:
        print(json.dumps(_step(options.step[0], json.loads(options.step[1]))), flush=True)
        return
    ways = {"icekit": (ICEKIT,), "stock": (STOCK,), "convert": (CONVERT,)}.get(
        options.only, _DEFAULT
    )
    _bench(
        {"partitions": options.partitions, "commits": options.commits, "rows": options.rows}, ways
    )


def _bench(history: Mapping[str, int], ways: Sequence[str]) -> None:
    rows = []
    for way in ways:
        copy = _in_step("copy", history)
        try:
            seconds = _timed(way, copy)
            checked = _in_step("check", {"copy": copy, **history})
        finally:
            _in_step("drop", {"copy": copy})
        result = "right" if checked["right"] else "WRONG"
        rows.append((way, f"{HEAPS[way]} GB", f"{seconds:.1f} s", result, checked["files"]))
        print(f"  {', '.join(map(str, rows[-1]))}", flush=True)
    count = history["partitions"] * history["commits"] * history["rows"]
    title = (
        f"From the command to the prompt: {count:,} rows and as many equality deletes, "
        f"{history['partitions']} partitions, {history['commits']} commits"
    )
    show(title, ("command", "heap", "time", "rows", "files left"), rows)


def _timed(way: str, copy: str) -> float:
    """Seconds of a whole process. Commands before it, which are not timed, leave what later starts
    of Spark use.
    """
    settings = f"spark.master=local[{os.cpu_count()}] spark.driver.memory={HEAPS[way]}g"
    environment = {
        **os.environ,
        "ICEKIT_SPARK_CONF": f"{os.environ.get('ICEKIT_SPARK_CONF', '')} {settings}",
    }
    work = ["convert", copy] if way == CONVERT else ["compact", copy, "--leave-alone", "0 minutes"]
    plan = [sys.executable, "-m", "icekit", *work]
    command = (
        [sys.executable, "-m", NAME, "--step", "stock", json.dumps({"copy": copy})]
        if way == STOCK
        else [*plan, "--execute"]
    )
    for _ in range(2):
        subprocess.run(plan, env=environment, stdout=subprocess.DEVNULL, check=True)
    started = time.monotonic()
    subprocess.run(command, env=environment, check=True)
    return time.monotonic() - started


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
    stock_rewrite(lake, order["copy"])


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
