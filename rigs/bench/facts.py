"""How long the facts of a table take, by Spark, without a JVM and by others; and their memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from rigs.bench.measure import Line, Measure, Others, Timing, in_child, in_turns, show, verdict
from rigs.bench.tables import BenchTable, build

CHILD = "rigs.bench.facts_child"
SPARK_CONF = "spark.driver.memory=1536m"
#: By number of files, the goal and what version 0.2.0 took.
SPARK_SECONDS = {100_000: (1.2, 2.9), 1_000_000: (5.0, 9.9)}
LOCAL_RATIO = {100_000: 4.0}
LOOK_FILES = 100
LOOK_SECONDS = 0.9
HEAP_MB = 1536


def run(sizes: Sequence[int], *, long: bool) -> list[Line]:
    """Build what is missing, then measure and print; the long form also measures upserts, and
    facts without a JVM.
    """
    plain = [BenchTable(size) for size in sizes]
    upserts = [BenchTable(size, with_deletes=True) for size in sizes if long and size == 100_000]
    build([BenchTable(LOOK_FILES), BenchTable(1000), *plain, *upserts])
    lines = _spark([*plain, *upserts], long=long)
    if long:
        _local([*plain, *upserts], runs=5)
        _look(runs=15)
    return lines


def _spark(tables: Sequence[BenchTable], *, long: bool) -> list[Line]:
    rows, memory, lines = [], [], []
    for table in tables:
        # Plain SQL over a million files takes long.
        runs = 9 if long else 5 if table.file_count <= 100_000 else 2
        found = in_child(
            CHILD,
            "spark",
            table.name,
            runs,
            ICEKIT_SPARK_CONF=f"{os.environ.get('ICEKIT_SPARK_CONF', '')} {SPARK_CONF}",
        )
        facts, plain = Timing(found["facts"]), Timing(found["plain SQL"])
        rows.append((table.name, *_input(found), runs, facts, plain, found["others"]))
        if table.file_count in SPARK_SECONDS and not table.with_deletes:
            goal, before = SPARK_SECONDS[table.file_count]
            what = f"facts of {table.file_count:,} files"
            beside = "plain SQL over files", plain.median
            lines.append(Line(what, facts.median, Measure.SECONDS, goal, before, *beside))
        heap = f"{found['peak_heap_mb']:.0f} MB", f"{found['kept_heap_mb']:.0f} MB"
        grown = f"{found['python_mb']:.0f} MB", f"+{found['python_grown_mb']:.1f} MB"
        memory.append(
            (table.name, *heap, f"≤ {HEAP_MB} MB", verdict(found["peak_heap_mb"], HEAP_MB), *grown)
        )
    show(
        "All facts by Spark, warm session, in turns; beside `files` grouped by partition, content "
        "and size in plain SQL",
        ("table", "files", "manifests", "MB", "runs", "icekit", "plain SQL", "others"),
        rows,
    )
    show(
        f"Memory of the facts by Spark (-Xmx{HEAP_MB}m; peak heap counts garbage; Python's growth "
        "is from a table of 1,000 files to this one)",
        ("table", "peak heap", "after GC", "target", "", "Python", "grown"),
        memory,
    )
    return lines


def _local(tables: Sequence[BenchTable], runs: int) -> None:
    rows = []
    for table in tables:
        found = in_child(CHILD, "local", table.name, runs)
        facts, inspect, loop = (
            Timing(found[name]) for name in ("facts", "inspect.files()", "manifest entries")
        )
        ratio = inspect.median / facts.median
        target = None if table.with_deletes else LOCAL_RATIO.get(table.file_count)
        said = (
            ("", "")
            if target is None
            else (f"≥ {target:.0f} ×", verdict(ratio, target, at_least=True))
        )
        cells = (
            *_input(found),
            facts,
            inspect,
            f"{ratio:.1f} ×",
            loop,
            f"{loop.median / facts.median:.1f} ×",
            *said,
        )
        rows.append((table.name, *cells, f"+{found['python_grown_mb']:.1f} MB", found["others"]))
    show(
        f"All facts without a JVM, {runs} runs in turns; beside pyiceberg's inspect.files() and "
        "its loop over manifest entries",
        (
            "table",
            "files",
            "manifests",
            "MB",
            "icekit",
            "inspect.files()",
            "ratio",
            "entries",
            "ratio",
            "target",
            "",
            "grown",
            "others",
        ),
        rows,
    )


def _look(runs: int) -> None:
    table = BenchTable(LOOK_FILES)
    look = [sys.executable, "-m", "icekit", "look", table.name]
    commands = {
        "icekit look": look,
        "pyiceberg, inspect.files()": [sys.executable, "-m", CHILD, "inspect", table.name],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    subprocess.run(look, stdout=subprocess.DEVNULL, check=True)
    with Others() as others:
        taken = in_turns(runs, {name: _quietly(command) for name, command in commands.items()})
    rows = []
    for name, seconds in taken.items():
        timing = Timing(seconds)
        said = (
            (f"≤ {LOOK_SECONDS} s", verdict(timing.median, LOOK_SECONDS))
            if name == "icekit look"
            else ("", "")
        )
        rows.append((name, timing, *said, others))
    show(
        f"A whole cold process on {table.name}, {runs} runs in turns",
        ("command", "seconds", "target", "", "others"),
        rows,
    )


def _quietly(command: Sequence[str]) -> Any:
    return lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def _input(found: Any) -> tuple[str, str, str]:
    return f"{found['files']:,}", f"{found['manifests']:,}", f"{found['manifest_bytes'] / 1e6:.1f}"
