"""How long the facts of a table take, by Spark, without a JVM and by others; and their memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from rigs.bench.measure import Others, Timing, in_child, in_turns, show, verdict
from rigs.bench.tables import BenchTable, build

CHILD = "rigs.bench.facts_child"
SPARK_CONF = "spark.driver.memory=1536m"
SPARK_SECONDS = {100_000: 1.0, 1_000_000: 4.5}
LOCAL_RATIO = {100_000: 4.0}
LOOK_FILES = 100
LOOK_SECONDS = 0.9
HEAP_MB = 1536
# Reading every file into Python is for tables up to here, unless the bench may take long.
LOCAL_FILES = 100_000


def run(sizes: Sequence[int], *, long: bool) -> None:
    """Build what is missing, then measure and print."""
    plain = [BenchTable(size) for size in sizes]
    upserts = [BenchTable(size, with_deletes=True) for size in sizes if size == 100_000]
    build([BenchTable(LOOK_FILES), BenchTable(1000), *plain, *upserts])
    _spark([*plain, *upserts], runs=9 if long else 5)
    _local(
        [t for t in (*plain, *upserts) if long or t.file_count <= LOCAL_FILES],
        runs=5 if long else 3,
    )
    _look(runs=15 if long else 7)


def _spark(tables: Sequence[BenchTable], runs: int) -> None:
    rows, memory = [], []
    for table in tables:
        found = in_child(
            CHILD,
            "spark",
            table.name,
            runs,
            ICEKIT_SPARK_CONF=f"{os.environ.get('ICEKIT_SPARK_CONF', '')} {SPARK_CONF}",
        )
        facts, plain = Timing(found["facts"]), Timing(found["plain SQL"])
        target = None if table.with_deletes else SPARK_SECONDS.get(table.file_count)
        said = ("", "") if target is None else (f"≤ {target} s", verdict(facts.median, target))
        rows.append(
            (
                table.name,
                *_input(found),
                facts,
                plain,
                f"{plain.median / facts.median:.1f} ×",
                *said,
                found["others"],
            )
        )
        heap = f"{found['peak_heap_mb']:.0f} MB", f"{found['kept_heap_mb']:.0f} MB"
        grown = f"{found['python_mb']:.0f} MB", f"+{found['python_grown_mb']:.1f} MB"
        memory.append(
            (table.name, *heap, f"≤ {HEAP_MB} MB", verdict(found["peak_heap_mb"], HEAP_MB), *grown)
        )
    show(
        f"All facts by Spark, warm session, {runs} runs in turns; beside `files` grouped by "
        "partition, content and size in plain SQL",
        (
            "table",
            "files",
            "manifests",
            "MB",
            "icekit",
            "plain SQL",
            "ratio",
            "target",
            "",
            "others",
        ),
        rows,
    )
    show(
        f"Memory of the facts by Spark (-Xmx{HEAP_MB}m; peak heap counts garbage; Python's growth "
        "is from a table of 1,000 files to this one)",
        ("table", "peak heap", "after GC", "target", "", "Python", "grown"),
        memory,
    )


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
