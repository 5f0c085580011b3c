"""How the time of a compaction grows when a table under equality deletes gets twice the commits.

Each run is a session of its own, without its start, on a table whose keys grow with its commits.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from rigs.bench.equality_deletes_cells import Cell, make_tables, run_cell
from rigs.bench.measure import Line, Measure, Timing, show

COMMITS = (120, 240)
ROWS, PARTITIONS, HEAP_GB = 12_500, 2, 2
_TURNS = 2
_LIMIT_SECONDS = 300.0


def run(sizes: Sequence[int], *, long: bool) -> list[Line]:
    """Measure both in turns, and compare the fastest run of each; ``sizes`` are of other benches'
    tables.
    """
    del sizes, long
    cores = os.cpu_count() or 2
    cells = [Cell("compact", count, HEAP_GB, cores, ROWS, PARTITIONS) for count in COMMITS]
    make_tables(cells)
    runs = [run_cell(cell, _LIMIT_SECONDS) for _ in range(_TURNS) for cell in cells]
    for failed in (each for each in runs if not each.has_finished):
        raise RuntimeError(f"{failed.cell}: {failed.outcome}, rows right: {failed.right}")
    timings = [Timing(each.seconds for each in runs if each.cell == cell) for cell in cells]
    title = f"Compactions of upserts, each of {ROWS:,} rows in {PARTITIONS} partitions"
    show(title, ("commits", "seconds"), zip(COMMITS, timings, strict=True))
    few, twice_as_many = (min(timing.seconds) for timing in timings)
    what, beside = f"compact upserts of {COMMITS[1]} commits", f"{COMMITS[0]} commits"
    return [Line(what, twice_as_many, Measure.MULTIPLE, 2.1, 1.98, beside, few)]
