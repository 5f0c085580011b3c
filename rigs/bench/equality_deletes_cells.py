"""Measured runs of the equality delete bench: each in a process of its own, under a limit of time,
kept when done.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rigs.bench.equality_deletes_child import cpu_seconds, pauses
from rigs.bench.tables import LAKE
from rigs.bench.upserts import KEYS, NAMESPACE

CHILD = "rigs.bench.equality_deletes_child"
OUTPUT = Path("build/bench")
RECORDS = OUTPUT / "equality_deletes.jsonl"
FINISHED, OUT_OF_MEMORY, STOPPED, FAILED = "finished", "out of memory", "stopped", "failed"
# What comes before and after the measured work, which no limit of it counts: start, table,
# fingerprint.
_AROUND_SECONDS = 900
_NO_MEMORY = re.compile(
    r"OutOfMemoryError|GC overhead limit exceeded|Java heap space|UNABLE_TO_ACQUIRE_MEMORY"
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One measured run: what is done, on which table, with how much heap and how many cores."""

    kind: str
    commits: int
    heap_gb: int
    cores: int
    rows: int = 50_000
    partitions: int = 6
    format_version: int = 2
    key: str = "string"

    @property
    def table(self) -> Mapping[str, Any]:
        """The table as ``make_upserts`` wants it."""
        return {
            "commits": self.commits,
            "rows": self.rows,
            "partitions": self.partitions,
            "format_version": self.format_version,
            "keys": KEYS[self.key],
        }

    def __str__(self) -> str:
        size = f"{self.commits} commits × {self.partitions} partitions × {self.rows:,} rows"
        return f"{self.kind}: {size}, {self.heap_gb} GB, {self.cores} core{'s' * (self.cores > 1)}"


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a cell; the seconds of a run that was stopped are what it had taken until
    then.
    """

    cell: Cell
    outcome: str
    limit: float
    measured_at: str
    phases: tuple[Mapping[str, Any], ...]
    seconds: float
    cpu: float
    peak_mb: int | None = None
    kept_mb: int | None = None
    live_mb: int | None = None
    rows: int | None = None
    print: str | None = None
    right: bool | None = None
    files: Mapping[str, list[int]] | None = None
    error: str | None = None

    @property
    def has_finished(self) -> bool:
        """Tell whether it did all that it was to do, and left the rows that it should."""
        return self.outcome == FINISHED and self.right is True

    def phase(self, name: str) -> float | None:
        """Seconds of one phase, if it came to its end."""
        return next((p["seconds"] for p in self.phases if p["phase"] == name), None)


def measured() -> dict[Cell, Run]:
    """The last run of each cell that is kept."""
    found = {}
    for line in RECORDS.read_text().splitlines() if RECORDS.exists() else ():
        with contextlib.suppress(
            ValueError, TypeError, KeyError
        ):  # half a line, or of an older bench
            told = json.loads(line)
            run = Run(**{**told, "cell": Cell(**told["cell"]), "phases": tuple(told["phases"])})
            found[run.cell] = run
    return found


def make_tables(cells: Iterable[Cell]) -> None:
    """Make the tables that are not there yet, at ease."""
    for order in {
        json.dumps({"kind": "make", "table": cell.table}, sort_keys=True): None for cell in cells
    }:
        subprocess.run(
            [sys.executable, "-m", CHILD, order],
            env=_environment(4, os.cpu_count() or 2),
            stdout=subprocess.DEVNULL,
            check=True,
        )


def run_cell(cell: Cell, limit: float) -> Run:
    """Run a cell and keep what came of it; its table must be there."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    scratch = OUTPUT.resolve() / f"run-{os.getpid()}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        run = _run(cell, limit, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        _clean_up()
    with RECORDS.open("a") as records:
        records.write(json.dumps(asdict(run)) + "\n")
    return run


def _run(cell: Cell, limit: float, scratch: Path) -> Run:
    log, gc_log = scratch / "output", scratch / "gc.log"
    order = json.dumps({"kind": cell.kind, "table": cell.table, "gc_log": str(gc_log)})
    environment = _environment(
        cell.heap_gb, cell.cores, cached=cell.kind == "stock, cached", scratch=scratch
    )
    with log.open("w") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", CHILD, order],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            watched = _Watched(child, log, limit)
        finally:
            # The JVM too, whose parent may be gone.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    events = list(_events(log))
    phases = tuple(_without_event(said) for said in events if said["event"] == "phase")
    checked = next((said for said in events if said["event"] == "checked"), None)
    text = log.read_text(errors="replace")
    done: dict[str, Any] = {} if checked is None else _without_event(checked)
    if checked is not None:
        outcome = FINISHED
    elif _NO_MEMORY.search(text):
        outcome = OUT_OF_MEMORY
    else:
        outcome = STOPPED if watched.stopped else FAILED
    memory: dict[str, Any] = dict(pauses(gc_log, watched.logged_before))
    if watched.has_measured:
        # Not what the fingerprint used, which comes after.
        memory = {
            name: max((p[name] for p in phases if p[name] is not None), default=None)
            for name in memory
        }
    return Run(
        cell,
        outcome,
        limit,
        time.strftime("%Y-%m-%d %H:%M"),
        phases,
        sum(p["seconds"] for p in phases) if watched.has_measured else watched.seconds,
        sum(p["cpu"] for p in phases) if watched.has_measured else watched.cpu,
        **memory,
        **done,
        error=None if outcome in (FINISHED, STOPPED) else _reason(events, text),
    )


class _Watched:
    """A child watched until it ends or its limit is over; says when it measured and what it had
    used.
    """

    def __init__(self, child: subprocess.Popen[bytes], log: Path, limit: float) -> None:
        self.stopped = self.has_measured = False
        self.seconds = self.cpu = 0.0
        self.logged_before = 0
        began, measuring, cpu_before = time.monotonic(), None, 0.0
        jvm = 0
        while child.poll() is None:
            time.sleep(0.25)
            now = time.monotonic()
            said = {event["event"]: event for event in _events(log)}
            self.has_measured = "measured" in said
            if measuring is None and "measuring" in said:
                measuring, jvm = now, int(said["measuring"]["jvm"])
                cpu_before = cpu_seconds(jvm)
                gc_log = log.with_name("gc.log")
                self.logged_before = gc_log.stat().st_size if gc_log.exists() else 0
            if measuring is not None and not self.has_measured:
                self.seconds = now - measuring
                used = cpu_seconds(jvm) - cpu_before
                self.cpu = self.cpu if used != used else used
            over = self.seconds > limit and not self.has_measured
            if over or now - began > limit + _AROUND_SECONDS:
                self.stopped = True
                return


def _events(log: Path) -> Iterator[dict[str, Any]]:
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith('{"event"'):
            with contextlib.suppress(ValueError):  # it is being written
                yield json.loads(line)


def _without_event(said: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in said.items() if key != "event"}


def _reason(events: Iterable[Mapping[str, Any]], text: str) -> str:
    """What a run that did not finish said last; Java's own cause where there is one."""
    told = next((said["error"] for said in events if said["event"] == "failed"), "")
    lines = [line.strip() for line in f"{told}\n{text}".splitlines()]
    named = [line for line in lines if _NO_MEMORY.search(line) and not line.startswith("{")]
    causes = [line for line in told.splitlines() if line.startswith("Caused by:")]
    return next(
        iter(
            [*named, *causes[-1:], *told.splitlines()[:1], *[line for line in lines if line][-1:]]
        ),
        "said nothing",
    )[:400]


def _environment(
    heap_gb: int, cores: int, *, cached: bool = False, scratch: Path | None = None
) -> dict[str, str]:
    """The settings of a run's session: its heap, its cores, and a collector's log that outlives
    it.
    """
    java = (
        "-Djava.util.concurrent.ForkJoinPool.common.parallelism=8 -XX:+UseParallelGC "
        "-XX:+ExitOnOutOfMemoryError"
    )
    settings = {"spark.master": f"local[{cores}]", "spark.driver.memory": f"{heap_gb}g"}
    settings["spark.sql.iceberg.executor-cache.enabled"] = str(cached).lower()
    if scratch is not None:
        java += f" -Xlog:gc:file={scratch / 'gc.log'}:uptime"
        settings["spark.local.dir"] = str(scratch / "spark")
    settings["spark.driver.extraJavaOptions"] = java
    told = " ".join(f"'{key}={value}'" for key, value in settings.items())
    return {**os.environ, "ICEKIT_SPARK_CONF": f"{os.environ.get('ICEKIT_SPARK_CONF', '')} {told}"}


def _clean_up() -> None:
    """Remove the files that a killed run has left; the next run drops what the catalog still knows
    of it.
    """
    home = LAKE / "warehouse" / NAMESPACE
    for left in (*home.glob("*_run"), home / "icekit_scratch"):
        shutil.rmtree(left, ignore_errors=True)
