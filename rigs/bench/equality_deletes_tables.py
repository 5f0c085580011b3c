"""What the measured runs of the equality delete bench come to: tables, curves, and a published
result beside them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from icekit.common.units import size
from icekit.common.view import COUNT, SECONDS, TEXT, Grid
from icekit.show.chart import BLUE, SMALL, VERMILLION, Chart, canvas
from rigs.bench.equality_deletes_cells import OUT_OF_MEMORY, OUTPUT, STOPPED, Cell, Run
from rigs.bench.measure import show, verdict

STOCK, CACHED, COMPACT = "stock", "stock, cached", "compact"
TIME_SHARE = 1 / 8
GROWTH = 2.1
Runs = Mapping[Cell, Run]


def show_runs(runs: Runs) -> None:
    """Every run, with what it took and what it is to stock's at the same heap and cores."""
    rows = []
    for cell, run in sorted(
        runs.items(),
        key=lambda item: (
            item[0].commits,
            item[0].rows,
            item[0].cores,
            item[0].heap_gb,
            item[0].kind,
        ),
    ):
        stock = _stock_of(runs, cell, cell.heap_gb)
        phases = (
            " + ".join(f"{p['phase']} {p['seconds']:.0f} s" for p in run.phases)
            if len(run.phases) > 1
            else ""
        )
        others = max((p["others"] for p in run.phases), default=math.nan)
        rows.append(
            (
                *(
                    cell.kind,
                    _sized(cell),
                    f"{cell.heap_gb} GB",
                    cell.cores,
                    _outcome(run),
                    _seconds(run),
                    phases,
                    f"{run.cpu:.0f} s",
                ),
                *(
                    _ratio(run, stock),
                    _mb(run.peak_mb),
                    _mb(run.kept_mb),
                    _mb(run.live_mb),
                    _files(run),
                    f"{others:.0%}",
                    run.measured_at,
                ),
            )
        )
    header = (
        "run|commits × partitions × rows|-Xmx|cores|outcome|seconds|of them|CPU|to stock|peak "
        "heap|after GC|after full GC|files left"
    )
    show(
        "Runs on copies of one table, each in a cold process (peak heap counts garbage, after GC "
        "what is dead in the old generation)",
        (*header.split("|"), "others", "measured"),
        rows,
    )


def show_targets(runs: Runs) -> None:
    """Compare each compaction with stock with three times the heap and the same cores."""
    rows = []
    for cell, run in runs.items():
        if cell.kind != COMPACT:
            continue
        for other in (STOCK, CACHED):
            stock = _at(runs, cell, other, 3 * cell.heap_gb)
            if stock is not None:
                rows.append((*_pair(run, stock), *_held(run, stock)))
    header = (
        "icekit compact",
        "",
        "beside",
        "",
        "time",
        "to CPU",
        "peak heap",
        f"time ≤ 1/{1 / TIME_SHARE:.0f}, heap ≤ 1/3",
    )
    if rows:
        show("icekit compact next to stock with three times the heap", header, rows)


def show_curves(runs: Runs) -> None:
    """Time by commits of equal size, and how it grows when they double; also drawn."""
    curves = {kind: _curve(runs, kind) for kind in (STOCK, CACHED, COMPACT)}
    rows = []
    for kind, curve in curves.items():
        before: Run | None = None
        for run in curve:
            growth = _growth(before, run)
            told = said = ""
            if growth is not None:
                told = f"{'≥ ' if run.outcome == STOPPED else ''}{growth:.2f} ×"
                # A run that was stopped grew by at least so much.
                if kind == COMPACT and (run.has_finished or growth > GROWTH):
                    said = verdict(growth, GROWTH)
            heap = f"{run.cell.heap_gb} GB"
            rows.append(
                (
                    kind,
                    run.cell.commits,
                    heap,
                    run.cell.cores,
                    _outcome(run),
                    _seconds(run),
                    f"{run.cpu:.0f} s",
                    told,
                    said,
                )
            )
            before = run if run.has_finished else None
    header = (
        "run",
        "commits",
        "-Xmx",
        "cores",
        "outcome",
        "seconds",
        "CPU",
        "per doubling",
        f"target ≤ {GROWTH} ×",
    )
    if rows:
        show("Growth with the number of commits of equal size", header, rows)
    drawn = draw(curves)
    if drawn is not None:
        print(f"\n  {drawn[1].alt}\n  Drawn in {drawn[0]}")


def show_published(runs: Runs) -> None:
    """The published result beside the largest compaction here."""
    done = [run for run in runs.values() if run.cell.kind == COMPACT and run.has_finished]
    if not done:
        return
    ours = max(
        done, key=lambda run: (run.cell.commits * run.cell.rows, run.cell.cores, -run.cell.heap_gb)
    )
    stock = [run for cell, run in runs.items() if cell.kind == STOCK and _like(cell, ours.cell)]
    published = [
        ("published, conversion", "22 GB", 32, "140 GB", "8 min", "finished", f"{8 * 32 / 22:.1f}"),
        ("published, stock", "22 GB", 32, "197 GB", "> 2 h", "failed", ""),
        ("published, stock", "22 GB", 12, "not said", "1 h", "finished", f"{60 * 12 / 22:.1f}"),
    ]
    held = next((p["bytes"] for p in ours.phases if "bytes" in p), None)
    here = [
        (
            *(
                f"here, {'icekit compact' if run is ours else 'stock'}",
                "" if held is None else size(held),
                run.cell.cores,
            ),
            *(f"{run.cell.heap_gb} GB", _seconds(run), _outcome(run)),
            ""
            if held is None or not run.has_finished
            else f"{run.seconds / 60 * run.cell.cores / (held / 2**30):.1f}",
        )
        for run in (ours, *sorted(stock, key=lambda r: (r.cell.cores, r.cell.heap_gb)))
    ]
    header = ("run", "data and deletes", "CPU", "memory", "time", "outcome", "core-minutes per GB")
    show(
        "The published result for a table of 22 GB in 6 partitions, and this one scaled down",
        header,
        [*published, *here],
    )
    scaled = "" if held is None else f", 1/{22 * 2**30 / held:.0f} of the bytes"
    print(
        f"\n  Scaled: {ours.cell.partitions} partitions as there{scaled}, {ours.cell.commits} "
        f"commits of {ours.cell.rows:,} rows and delete rows a partition, on {ours.cell.cores} "
        "cores and not 32; memory is the heap of the one process here, and of all executors there."
    )


def draw(curves: Mapping[str, Sequence[Run]]) -> tuple[Path, Chart] | None:
    """Draw seconds by commits on two logarithmic axes, one line a kind; a hollow mark is a run that
    was stopped.
    """
    drawn = {
        k: [r for r in curve if r.has_finished or r.outcome == STOPPED]
        for k, curve in curves.items()
        if k != CACHED
    }
    if any(len(curve) < 2 for curve in drawn.values()):
        return None
    title = "Equality deletes: time by commits"
    looks = {
        STOCK: (VERMILLION, "s", "rewrite_data_files alone"),
        COMPACT: (BLUE, "o", "icekit compact, checked"),
    }
    with canvas(title, 4.6) as (figure, (axes,)):
        for kind, curve in drawn.items():
            colour, mark, label = looks[kind]
            commits, seconds = [r.cell.commits for r in curve], [r.seconds for r in curve]
            done = sum(r.has_finished for r in curve)
            axes.plot(
                commits[:done], seconds[:done], color=colour, marker=mark, linewidth=2, markersize=8
            )
            # A run that was stopped would have gone on: at least so high.
            axes.plot(
                commits[max(done - 1, 0) :],
                seconds[max(done - 1, 0) :],
                color=colour,
                linestyle=":",
                linewidth=2,
            )
            axes.plot(
                commits[done:],
                seconds[done:],
                color=colour,
                linestyle="none",
                marker="^",
                markersize=11,
                markerfacecolor="white",
            )
            last = curve[-1]
            axes.annotate(
                f"{label}\n{last.cell.heap_gb} GB heap, "
                f"{'at least ' if not last.has_finished else ''}{last.seconds:,.0f} s",
                (last.cell.commits, last.seconds),
                (0, 14 if kind == STOCK else -54),
                textcoords="offset points",
                ha="right",
                va="bottom" if kind == STOCK else "top",
                color=colour,
                fontsize=SMALL,
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        ticks = sorted({r.cell.commits for curve in drawn.values() for r in curve})
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_minor_locator(NullLocator())
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.margins(x=0.08, y=0.28)
        axes.set_xlabel("Commits of equal size")
        axes.set_ylabel("Seconds")
    told = "; ".join(
        f"{looks[kind][2]}, from {_seconds(curve[0])} at {curve[0].cell.commits} commits to "
        f"{_seconds(curve[-1])} at {curve[-1].cell.commits}"
        for kind, curve in drawn.items()
    )
    rows = [(k, r.cell.commits, r.seconds, r.outcome) for k, c in drawn.items() for r in c]
    table = Grid("", {"run": TEXT, "commits": COUNT, "seconds": SECONDS, "outcome": TEXT}, rows)
    chart = Chart(figure, f"{told}.", table)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    path = OUTPUT / "equality_deletes.png"
    path.write_bytes(chart.png())
    return path, chart


def _curve(runs: Runs, kind: str) -> list[Run]:
    """The runs of a kind by commits: ours at its smallest heap, stock at its largest, all cores."""
    mine = [run for cell, run in runs.items() if cell.kind == kind]
    if not mine:
        return []
    cores = max(run.cell.cores for run in mine)
    pick = min if kind == COMPACT else max
    heap = pick(run.cell.heap_gb for run in mine)
    rows = max(run.cell.rows for run in mine)
    found = [
        run
        for run in mine
        if (run.cell.cores, run.cell.heap_gb, run.cell.rows) == (cores, heap, rows)
    ]
    return sorted(found, key=lambda run: run.cell.commits)


def _growth(before: Run | None, run: Run) -> float | None:
    """The factor by which time grows when commits double, from two runs whatever their distance."""
    if (
        before is None
        or run.outcome == OUT_OF_MEMORY
        or not (run.has_finished or run.outcome == STOPPED)
    ):
        return None
    return float(
        (run.seconds / before.seconds) ** (1 / math.log2(run.cell.commits / before.cell.commits))
    )


def _held(run: Run, stock: Run) -> tuple[str, str, str, str]:
    if not run.has_finished:
        return "", "", "", "NOT REACHED"
    time_share, bound = run.seconds / stock.seconds, "≥ " if stock.outcome == STOPPED else ""
    heaps = "" if not run.peak_mb or not stock.peak_mb else f"{run.peak_mb / stock.peak_mb:.2f}"
    cpu = f"{stock.cpu / run.cpu:.1f} ×"
    if not (stock.has_finished or stock.outcome == STOPPED):
        return "", "", heaps, f"stock did not finish: {_outcome(stock)}"
    said = verdict(time_share, TIME_SHARE)
    if stock.outcome == STOPPED and time_share > TIME_SHARE:
        said = "unknown: stock was stopped"
    return f"{bound}{1 / time_share:.1f} ×", f"{bound}{cpu}", heaps, said


def _pair(run: Run, stock: Run) -> tuple[str, str, str, str]:
    ours = f"{_sized(run.cell)}, {run.cell.cores} cores, {run.cell.heap_gb} GB"
    return (
        ours,
        _seconds(run),
        f"{stock.cell.kind}, {stock.cell.heap_gb} GB",
        f"{_outcome(stock)}, {_seconds(stock)}",
    )


def _stock_of(runs: Runs, cell: Cell, heap_gb: int) -> Run | None:
    return None if cell.kind == STOCK else _at(runs, cell, STOCK, heap_gb)


def _at(runs: Runs, like: Cell, kind: str, heap_gb: int) -> Run | None:
    return next(
        (
            r
            for c, r in runs.items()
            if c.kind == kind and c.heap_gb == heap_gb and c.cores == like.cores and _like(c, like)
        ),
        None,
    )


def _like(one: Cell, other: Cell) -> bool:
    """Tell whether two runs are on one table."""
    return dict(one.table) == dict(other.table)


def _ratio(run: Run, stock: Run | None) -> str:
    if (
        stock is None
        or not run.has_finished
        or not (stock.has_finished or stock.outcome == STOPPED)
    ):
        return ""
    return f"{'≤ ' if stock.outcome == STOPPED else ''}{run.seconds / stock.seconds:.2f}"


def _outcome(run: Run) -> str:
    return "WRONG ROWS" if run.right is False else run.outcome


def _seconds(run: Run) -> str:
    sign = {STOPPED: "> "}.get(run.outcome, "" if run.has_finished else "after ")
    return f"{sign}{run.seconds:.0f} s"


def _mb(value: int | None) -> str:
    return "" if value is None else f"{value:,} MB"


def _files(run: Run) -> str:
    return ", ".join(
        f"{counted[0]:,} {kind}" for kind, counted in sorted((run.files or {}).items())
    )


def _sized(cell: Cell) -> str:
    return (
        f"{cell.commits} × {cell.partitions} × {cell.rows:,}"
        + (f", v{cell.format_version}" if cell.format_version != 2 else "")
        + (f", {cell.key}" if cell.key != "string" else "")
    )
