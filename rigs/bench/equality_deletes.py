"""What it takes to compact a table under equality deletes, checks included, next to the rewrite
that Iceberg has.

``python -m rigs.bench.equality_deletes`` runs what is asked for and prints the tables; ``--show``
prints what was measured before. Each run is kept as it ends, and a run that is kept is not done
again but with ``--again``, so that a long bench can be interrupted and gone on with.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rigs.bench.equality_deletes_cells import (
    OUT_OF_MEMORY,
    RECORDS,
    STOPPED,
    Cell,
    Run,
    make_tables,
    measured,
    run_cell,
)
from rigs.bench.equality_deletes_child import KINDS
from rigs.bench.equality_deletes_tables import (
    CACHED,
    COMPACT,
    STOCK,
    show_curves,
    show_published,
    show_runs,
    show_targets,
)
from rigs.bench.tables import use_bench_lake
from rigs.bench.upserts import KEYS

SHORT_ROWS, LONG_ROWS = 5_000, 50_000
SHORT_CURVE, LONG_CURVE = (15, 30, 60), (15, 30, 60, 120, 240)
HEAPS, CORES = (2, 4, 6), (1, 2)
GRID_COMMITS = 60
SHORT_LIMIT, LONG_LIMIT = 150.0, 2400.0


def run(sizes: Sequence[int], *, long: bool) -> None:
    """Measure and print; ``sizes`` are of other benches' tables. The long form goes on where it was
    interrupted.
    """
    del sizes
    cells = long_cells() if long else short_cells()
    _bench(cells, LONG_LIMIT if long else SHORT_LIMIT, again=not long)


def short_cells() -> list[Cell]:
    """Few rows: the curves, and one comparison with stock at three times the heap."""
    curves = [
        Cell(kind, commits, heap, 2, SHORT_ROWS)
        for commits in SHORT_CURVE
        for kind, heap in ((STOCK, 6), (COMPACT, 2))
    ]
    return [*curves, Cell(CACHED, GRID_COMMITS, 6, 2, SHORT_ROWS)]


def long_cells() -> list[Cell]:
    """The grid of heaps and cores, then the curves, small before large."""
    kinds = (COMPACT, STOCK, CACHED)
    grid = [
        Cell(kind, GRID_COMMITS, heap, cores, LONG_ROWS)
        for cores in reversed(CORES)
        for heap in reversed(HEAPS)
        for kind in kinds
    ]
    ends = ((COMPACT, min(HEAPS)), (STOCK, max(HEAPS)))
    curves = [
        Cell(kind, commits, heap, max(CORES), LONG_ROWS)
        for commits in LONG_CURVE
        for kind, heap in ends
    ]
    return list(dict.fromkeys([*curves[: 2 * LONG_CURVE.index(GRID_COMMITS)], *grid, *curves]))


def main() -> None:
    """Run the cells that the options select."""
    parser = argparse.ArgumentParser(
        prog="python -m rigs.bench.equality_deletes", description=__doc__
    )
    parser.add_argument(
        "--long", action="store_true", help=f"{LONG_ROWS:,} rows a file, all heaps and cores; hours"
    )
    parser.add_argument("--only", help=f"kinds of run, separated by semicolons: {'; '.join(KINDS)}")
    parser.add_argument("--commits", help="numbers of commits, separated by commas")
    parser.add_argument("--heaps", help="heaps in GB, separated by commas")
    parser.add_argument("--cores", help="numbers of cores, separated by commas")
    parser.add_argument("--rows", type=int, help="rows a partition and commit")
    parser.add_argument(
        "--partitions", type=int, default=6, help="partitions of the tables (default: %(default)s)"
    )
    parser.add_argument("--format-version", type=int, default=2)
    parser.add_argument(
        "--key",
        default="string",
        choices=KEYS,
        help="type of the equality key (default: %(default)s)",
    )
    parser.add_argument(
        "--limit",
        type=float,
        help=f"seconds after which a run is stopped (default: {SHORT_LIMIT:.0f}, long "
        f"{LONG_LIMIT:.0f})",
    )
    parser.add_argument("--again", action="store_true", help="measure again what has been measured")
    parser.add_argument(
        "--show", action="store_true", help=f"measure nothing; print what {RECORDS} has"
    )
    options = parser.parse_args()
    limit = options.limit or (LONG_LIMIT if options.long else SHORT_LIMIT)
    cells = _selected(options)
    if options.show:
        chosen = set(cells) if _narrowed(options) else set(measured())
        _show({cell: run for cell, run in measured().items() if cell in chosen})
        return
    use_bench_lake()
    _bench(cells, limit, again=options.again)


def _narrowed(options: argparse.Namespace) -> bool:
    return bool(
        options.long
        or options.only
        or options.commits
        or options.heaps
        or options.cores
        or options.rows
    )


def _selected(options: argparse.Namespace) -> list[Cell]:
    """The form's cells; where kind, commits, heaps and cores are all given, exactly those, of the
    form or not.
    """
    form = long_cells() if options.long else short_cells()
    kinds = [kind.strip() for kind in options.only.split(";")] if options.only else None
    commits, heaps, cores = (
        [int(value) for value in text.split(",")] if text else None
        for text in (options.commits, options.heaps, options.cores)
    )
    if unknown := set(kinds or ()) - set(KINDS):
        raise SystemExit(
            f"There is no run {', '.join(sorted(unknown))}; there are {'; '.join(KINDS)}."
        )
    rows = options.rows or (LONG_ROWS if options.long else SHORT_ROWS)
    if kinds or commits or heaps or cores:
        fallback = form[0]
        form = [
            Cell(kind, count, heap, core, rows)
            for count in commits or [GRID_COMMITS]
            for core in cores or [max(CORES)]
            for heap in heaps or [fallback.heap_gb]
            for kind in kinds or [COMPACT, STOCK]
        ]
    return [
        Cell(
            c.kind,
            c.commits,
            c.heap_gb,
            c.cores,
            rows,
            options.partitions,
            options.format_version,
            options.key,
        )
        for c in dict.fromkeys(form)
    ]


def _bench(cells: Sequence[Cell], limit: float, *, again: bool) -> None:
    """Make what tables are missing, measure, and print all that there is on these cells."""
    before = {} if again else {cell: run for cell, run in measured().items() if _holds(run, limit)}
    todo = [cell for cell in cells if cell not in before]
    kept = [before[cell] for cell in cells if cell in before]
    if kept:
        print(
            f"{len(kept)} runs of {min(run.measured_at for run in kept)} and later are kept; "
            "--again measures them again"
        )
    make_tables(todo)
    found = {run.cell: run for run in kept}
    for place, cell in enumerate(todo, 1):
        print(f"[{place}/{len(todo)}] {cell}", flush=True)
        done = found[cell] = run_cell(cell, limit)
        print(
            f"    {done.outcome} after {done.seconds:.1f} s, CPU {done.cpu:.1f} s; {_told(done)}",
            flush=True,
        )
    _show(found)


def _holds(run: Run, limit: float) -> bool:
    """Tell whether a kept run stands: what failed, or was stopped sooner, is tried again."""
    return (
        run.has_finished
        or run.outcome == OUT_OF_MEMORY
        or (run.outcome == STOPPED and run.limit >= limit)
    )


def _told(run: Run) -> str:
    if run.outcome == STOPPED:
        return "it was stopped by the limit"
    if run.error:
        return run.error
    return "the rows are right" if run.right else "THE ROWS ARE NOT THOSE EXPECTED"


def _show(runs: dict[Cell, Run]) -> None:
    if not runs:
        print("Nothing has been measured.")
        return
    show_runs(runs)
    show_targets(runs)
    show_curves(runs)
    show_published(runs)


if __name__ == "__main__":
    main()
