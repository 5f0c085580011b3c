"""``python -m rigs.bench.small_files``: combine and sort a table of ordinary small files, checks
included, beside Spark's own ``rewrite_data_files``.

Whole commands on copies of one table, from the command to the prompt. Both ways must leave the same
rows. A sort gets the first partitions only.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import icekit
from icekit.api import Lake
from icekit.common.sql import identifier
from icekit.rows.proof.fingerprint import Fingerprint, fingerprint
from rigs.bench.equality_deletes_child import files_by_content
from rigs.bench.measure import Line, Measure, show, show_lines
from rigs.bench.rewrites import ICEKIT, STOCK, compact_command, stock_command, timed
from rigs.bench.small_files_table import ROWS, make_small_files
from rigs.bench.tables import use_bench_lake
from rigs.bench.upserts import copied

#: Files where all benches run, and otherwise.
FEW_FILES, FILES = 4_000, 8_000
SORTED_PARTITIONS, HEAP_GB = 2, 4
#: The strategies, each with its goal: how many times as fast as Spark's own rewrite.
GOALS = {"binpack": 1.5, "sort": 1.2}


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """What one command did to a copy."""

    files_before: int
    bytes_before: int
    files_after: int
    seconds: float
    memory: int
    rows: Fingerprint


def run(sizes: Sequence[int], *, long: bool) -> list[Line]:
    """Measure both commands; ``sizes`` are of other benches' tables."""
    del sizes, long
    return _bench(FEW_FILES, tuple(GOALS))


def main() -> None:
    """Measure what the options say."""
    parser = argparse.ArgumentParser(prog="python -m rigs.bench.small_files", description=__doc__)
    parser.add_argument("--files", type=int, default=FILES, help="default: %(default)s")
    parser.add_argument("--only", choices=GOALS, help="measure only one of them")
    options = parser.parse_args()
    use_bench_lake()
    show_lines(_bench(options.files, (options.only,) if options.only else tuple(GOALS)))


def _bench(file_count: int, strategies: Sequence[str]) -> list[Line]:
    lines, rows = [], []
    with closing(icekit.connect()) as lake:
        template = make_small_files(lake, file_count)
        for strategy in strategies:
            ours = _rewritten(lake, template, ICEKIT, strategy)
            stock = _rewritten(lake, template, STOCK, strategy)
            is_right = ours.rows == stock.rows and ours.rows.row_count == ours.files_before * ROWS
            if not is_right:
                raise RuntimeError(f"{strategy}: {ours.rows} and {stock.rows}")
            rows += [
                (
                    *(f"{way}, {strategy}", f"{done.files_before:,}"),
                    *(f"{done.memory / 2**30:.1f} GB", f"{done.seconds:.1f} s"),
                    *("right", done.files_after),
                )
                for way, done in ((ICEKIT, ours), (STOCK, stock))
            ]
            what = f"{strategy} of {ours.files_before:,} files, {ours.bytes_before / 1e9:.1f} GB"
            beside = "Spark's own", stock.seconds
            goal = GOALS[strategy]
            lines.append(Line(what, ours.seconds, Measure.SPEEDUP, goal, None, *beside))
    title = f"From the command to the prompt, with {HEAP_GB} GB of heap"
    show(title, ("command", "files", "peak memory", "time", "rows", "files left"), rows)
    return lines


def _rewritten(lake: Lake, template: str, way: str, strategy: str) -> _Rewritten:
    with copied(lake, template, "rewritten") as copy:
        name = lake.sql_name(lake.identifier(copy))
        if strategy == "sort":
            lake.spark.sql(f"DELETE FROM {identifier(*name)} WHERE p >= {SORTED_PARTITIONS}")
        files, size, _ = files_by_content(lake, copy)["data"]
        taken = timed(_command(way, copy, strategy), HEAP_GB)
        if taken is None:
            raise TimeoutError(f"{way}, {strategy}")
        files_after = files_by_content(lake, copy)["data"][0]
        rows = fingerprint(lake.spark, name)[()]
    return _Rewritten(files, size, files_after, *taken, rows)


def _command(way: str, copy: str, strategy: str) -> list[str]:
    is_sort = strategy == "sort"
    if way == STOCK:
        order = {"strategy": "sort", "sort_order": "account"} if is_sort else {}
        return stock_command(copy, {}, **order)
    return compact_command(
        copy, *(("--strategy", "sort", "--columns", "account") if is_sort else ())
    )


if __name__ == "__main__":
    main()
