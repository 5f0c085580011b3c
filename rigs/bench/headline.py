"""``python -m rigs.bench.headline``: the figures of README's first lines, as a person would measure
them.

Whole commands on copies of one upsert table, from the command to the prompt: ``icekit compact``
with its checks, and a Spark job that calls ``rewrite_data_files``, with six times the heap, without
and with Iceberg's cache of delete files. Each is timed from outside, Spark's start and end included,
and its rows are compared with those that the table's history leaves. Where the job gets a table of
fewer partitions, each of which it rewrites by itself, its time without that of an empty session is
multiplied accordingly.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing

import icekit
from icekit.api import Lake
from icekit.rows.proof.fingerprint import fingerprint
from rigs.bench.equality_deletes_child import STOCK_OPTIONS, files_by_content
from rigs.bench.measure import Line, Measure, show, show_lines
from rigs.bench.rewrites import (
    ICEKIT,
    STOCK,
    compact_command,
    session_seconds,
    stock_command,
    timed,
)
from rigs.bench.tables import use_bench_lake
from rigs.bench.upserts import copied, expected, make_upserts

STOCK_CACHED = f"{STOCK}, deletes cached"
CONVERT = "icekit convert, checked"
#: Heaps in GB.
HEAPS = {ICEKIT: 1, STOCK: 6, STOCK_CACHED: 6, CONVERT: 2}
HISTORY = {"partitions": 6, "commits": 60, "rows": 50_000}
_ONLY = {
    "icekit": (ICEKIT,),
    "stock": (STOCK,),
    "cached": (STOCK_CACHED,),
    "convert": (CONVERT,),
    "all": (ICEKIT, CONVERT, STOCK, STOCK_CACHED),
}
#: Partitions that Spark's own rewrite gets where all benches run.
_STOCK_PARTITIONS = 2
#: What takes this many times as long as Spark's own rewrite without the cache is ended.
_PATIENCE = 1.5
_LONGEST_SECONDS = 1_800.0


def run(sizes: Sequence[int], *, long: bool) -> list[Line]:
    """Measure all commands; ``sizes`` are of other benches' tables."""
    del sizes, long
    return _bench(HISTORY, _ONLY["all"], _STOCK_PARTITIONS)


def main() -> None:
    """Measure what the options say."""
    parser = argparse.ArgumentParser(prog="python -m rigs.bench.headline", description=__doc__)
    for name, count in HISTORY.items():
        parser.add_argument(f"--{name}", type=int, default=count, help="default: %(default)s")
    parser.add_argument(
        "--stock-partitions",
        type=int,
        default=HISTORY["partitions"],
        help="partitions that Spark's own rewrite gets (default: %(default)s)",
    )
    parser.add_argument("--only", choices=_ONLY, default="all", help="measure only one of them")
    options = parser.parse_args()
    use_bench_lake()
    history = {name: getattr(options, name) for name in HISTORY}
    show_lines(_bench(history, _ONLY[options.only], options.stock_partitions))


def _bench(history: Mapping[str, int], ways: Sequence[str], stock_partitions: int) -> list[Line]:
    commits, rows_each = history["commits"], history["rows"]
    session = session_seconds()
    seconds: dict[str, float] = {}
    ended = set()
    rows = []
    with closing(icekit.connect()) as lake:
        for way in ways:
            partitions = history["partitions"]
            if way in {STOCK, STOCK_CACHED}:
                partitions = min(partitions, stock_partitions)
            times = history["partitions"] / partitions
            deadline = _LONGEST_SECONDS
            if STOCK in seconds:
                deadline = session + (_PATIENCE * seconds[STOCK] - session) / times
            template = make_upserts(lake, partitions=partitions, commits=commits, rows=rows_each)
            with copied(lake, template, "headline") as copy:
                taken = timed(_command(way, copy), HEAPS[way], deadline, **_settings(way))
                measured, memory = taken or (deadline, 0)
                seconds[way] = session + (measured - session) * times
                if taken is None:
                    ended.add(way)
                checked = _checked(lake, copy, template) if taken else ("ended", "")
            figures = (f"{memory / 2**30:.1f} GB" if taken else "", f"{measured:.1f} s")
            rows.append((way, partitions, f"{HEAPS[way]} GB", *figures, *checked))
            print(f"  {', '.join(map(str, rows[-1]))}", flush=True)
    title = (
        f"From the command to the prompt: {commits} commits, each of {rows_each:,} rows and as many "
        f"equality deletes in every partition; an empty session took {session:.1f} s"
    )
    header = ("command", "partitions", "heap", "peak memory", "time", "rows", "files left")
    show(title, header, rows)
    upserts = f"{history['partitions'] * commits * rows_each / 1e6:g} million upserts"
    # How many times as fast as Spark's own rewrite, and what version 0.2.0 was.
    is_part = stock_partitions < history["partitions"]
    scaled = f", from {stock_partitions} partitions" if is_part else ""
    alternatives = {
        STOCK: (f"Spark's own{scaled}", 6.7),
        STOCK_CACHED: (f"Spark's own, deletes cached{scaled}", None),
    }
    lines = [
        Line(
            f"compact {upserts}",
            seconds[ICEKIT],
            Measure.SPEEDUP,
            goal=15.0,
            last_release=last_release,
            alternative=name,
            alternative_seconds=seconds[stock],
            was_ended=stock in ended,
        )
        for stock, (name, last_release) in alternatives.items()
        if seconds.keys() >= {ICEKIT, stock}
    ]
    if CONVERT in seconds:
        lines.append(Line(f"convert {upserts}", seconds[CONVERT], Measure.SECONDS, 20.0, 60.8))
    return lines


def _command(way: str, copy: str) -> list[str]:
    if way == ICEKIT:
        return compact_command(copy)
    if way == CONVERT:
        return [sys.executable, "-m", "icekit", "convert", copy, "--execute"]
    return stock_command(copy, {**STOCK_OPTIONS, "cache-delete-files": _is_cached(way)})


def _settings(way: str) -> dict[str, str]:
    return {"spark.sql.iceberg.executor-cache.enabled": _is_cached(way)}


def _is_cached(way: str) -> str:
    return str(way == STOCK_CACHED).lower()


def _checked(lake: Lake, copy: str, template: str) -> tuple[str, str]:
    """Whether the copy holds the rows that it should, and how many files, by content."""
    files = files_by_content(lake, copy)
    rows = fingerprint(lake.spark, lake.sql_name(lake.identifier(copy)))[()]
    if rows != expected(lake, template):
        raise RuntimeError(f"{copy} holds {rows}, but should hold {expected(lake, template)}")
    return (
        "right",
        ", ".join(f"{counted[0]:,} {kind}" for kind, counted in sorted(files.items())),
    )


if __name__ == "__main__":
    main()
