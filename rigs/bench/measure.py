"""Time what is compared in turns, run it in processes of its own, and print what came out."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any


class Measure(Enum):
    """What a goal limits: the alternative's time to ours, ours to the alternative's, or our seconds."""

    SPEEDUP = "≥ {} ×"
    MULTIPLE = "≤ {} ×"
    SECONDS = "≤ {} s"


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of the benches: our seconds and the alternative's, the goal, and the figure of the
    last release (None: there was none), both in the unit of ``measure``.

    ``was_ended`` is for an alternative that would have taken longer than its seconds.
    """

    what: str
    seconds: float
    measure: Measure
    goal: float
    last_release: float | None = None
    alternative: str = ""
    alternative_seconds: float | None = None
    was_ended: bool = False

    @property
    def ratio(self) -> float | None:
        """The alternative's time to ours, or ours to it where that is what the goal limits."""
        if self.alternative_seconds is None:
            return None
        if self.measure is Measure.MULTIPLE:
            return self.seconds / self.alternative_seconds
        return self.alternative_seconds / self.seconds

    @property
    def verdict(self) -> str:
        """Whether the goal is reached; unknown of an alternative that was ended too soon."""
        figure = self.seconds if self.measure is Measure.SECONDS else self.ratio
        assert figure is not None
        at_least = self.measure is Measure.SPEEDUP
        if at_least and self.was_ended and figure < self.goal:
            return "unknown"
        return verdict(figure, self.goal, at_least=at_least)

    @property
    def cells(self) -> tuple[str, ...]:
        """What, ours, the alternative and its time, the ratio, the goal, the last release, the
        verdict.
        """
        more = "> " if self.was_ended else ""
        other = self.alternative_seconds
        before = self.last_release
        unit = "s" if self.measure is Measure.SECONDS else "×"
        return (
            self.what,
            f"{_short(self.seconds)} s",
            self.alternative,
            "" if other is None else f"{more}{_short(other)} s",
            "" if self.ratio is None else f"{more}{self.ratio:.2f} ×",
            self.measure.value.format(f"{self.goal:g}"),
            "" if before is None else f"{before:g} {unit}",
            self.verdict,
        )


def show_lines(lines: Sequence[Line]) -> None:
    """Print the figures of one run with their goals, and the machine's yardstick."""
    header = ("what", "ours", "alternative", "", "ratio", "goal", "0.2.0", "")
    title = f"Goals; 20 million steps of a Python loop took {yardstick():.2f} s"
    show(title, header, [line.cells for line in lines])


class Timing:
    """Seconds of several runs; shown as their median with the fastest and slowest."""

    def __init__(self, seconds: Iterable[float]) -> None:
        self.seconds = tuple(seconds)

    @property
    def median(self) -> float:
        """The figure that targets are held against."""
        return statistics.median(self.seconds)

    def __str__(self) -> str:
        return f"{_short(self.median)} s ({_short(min(self.seconds))}–{_short(max(self.seconds))})"


def in_turns(
    runs: int,
    work: Mapping[str, Callable[[], object]],
    before: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """Seconds of each piece of work, one run of each after the other, so that noise meets all
    alike; what is done ``before`` each does not count.
    """
    taken: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(runs):
        for name, one in work.items():
            before()
            started = time.perf_counter()
            one()
            taken[name].append(time.perf_counter() - started)
    return taken


def in_child(module: str, *arguments: object, **environment: str) -> Any:
    """Run a module in a process of its own; what it printed last, decoded from JSON."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def yardstick() -> float:
    """Seconds of 20 million steps of a Python loop: what figures of another machine are compared by."""
    started = time.perf_counter()
    for _ in range(20_000_000):
        pass
    return time.perf_counter() - started


def watched(
    command: Sequence[str], deadline: float, **environment: str
) -> tuple[float, int] | None:
    """Seconds of a whole process, and the most memory in bytes that it and all that it started held
    at once (0 where there is no ``/proc``); None if it was ended after ``deadline`` seconds.
    """
    started = time.monotonic()
    process = subprocess.Popen(command, env={**os.environ, **environment}, start_new_session=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(_resident, _tree(process.pid))))
        if time.monotonic() - started > deadline:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None
        time.sleep(0.2)
    seconds = time.monotonic() - started
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return seconds, peak


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in children.read_text().split():
                yield from _tree(int(child))


def _resident(pid: int) -> int:
    """The bytes of a process in memory, with those that it shares; none of one that a JVM has just
    forked, which still has all of the JVM's.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        folder = Path(f"/proc/{pid}")
        parent = folder.joinpath("stat").read_text().rpartition(")")[2].split()[1]
        program = folder.joinpath("exe").readlink()
        is_forked = program.name == "java" and program == Path(f"/proc/{parent}/exe").readlink()
        if not is_forked:
            pages = int(folder.joinpath("statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


class Others:
    """The share of all processors that others used while the ``with`` block ran; NaN where Linux
    does not tell.
    """

    share = float("nan")

    def __enter__(self) -> Others:
        self._before = self._ticks()
        return self

    def __exit__(self, *_: object) -> None:
        own, busy, every = (b - a for a, b in zip(self._before, self._ticks(), strict=True))
        if every:
            self.share = max(0.0, (busy - own) / every)

    def __str__(self) -> str:
        return f"{self.share:.0%}"

    @staticmethod
    def _ticks() -> tuple[int, int, int]:
        """Clock ticks so far: of this process and its descendants, of everybody, and of idling
        too.
        """
        stat = Path("/proc/stat")
        if not stat.exists():
            return 0, 0, 0
        every = [int(field) for field in stat.read_text().split("\n", 1)[0].split()[1:9]]
        parents: dict[int, int] = {}
        used: dict[int, int] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it may have ended meanwhile
                fields = path.read_text().rpartition(")")[2].split()
                parents[int(path.parent.name)] = int(fields[1])
                used[int(path.parent.name)] = sum(
                    map(int, fields[11:15])
                )  # with those of children that ended
        return (
            sum(
                ticks for process, ticks in used.items() if _descends(process, os.getpid(), parents)
            ),
            sum(every) - every[3] - every[4],
            sum(every),
        )


def _descends(process: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    while process not in (ancestor, 0):
        process = parents.get(process, 0)
    return process == ancestor


def verdict(actual: float, limit: float, *, at_least: bool = False) -> str:
    """Whether a target is reached."""
    return "reached" if (actual >= limit if at_least else actual <= limit) else "NOT REACHED"


def show(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table, numbers and all, aligned to the right but for its first column."""
    lines = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print(f"\n{title}\n")
    for place, line in enumerate(lines):
        cells = [
            line[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
        ]
        print("  " + "  ".join(cells).rstrip())
        if place == 0:
            print("  " + "  ".join("-" * width for width in widths))
    sys.stdout.flush()


def _short(seconds: float) -> str:
    return (
        f"{seconds:.0f}"
        if seconds >= 100
        else f"{seconds:.1f}"
        if seconds >= 10
        else f"{seconds:.2f}"
    )
