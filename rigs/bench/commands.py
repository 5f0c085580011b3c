"""``python -m rigs.bench commands``: what a person waits for on small tables, from the command to
the prompt, beside a Spark session that does nothing.

The commands take turns with the empty session, so that noise meets all alike.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

from rigs.bench.measure import Timing, show, verdict
from rigs.bench.tables import use_bench_lake

SMALL, UPSERTS = "skewed_small_files", "equality_deletes"
_SESSION = (
    "import icekit; lake = icekit.connect(); lake.spark.sql('SELECT 1').collect(); lake.close()"
)
_EMPTY = "an empty Spark session"
_EXECUTE = ("--leave-alone", "0 minutes", "--execute")
#: By what it is called here, each command with its goals, in seconds and as a multiple of the empty
#: session (0: none), and with the seconds of version 0.1.0.
_COMMANDS = {
    "look": (("look", f"lab.{SMALL}"), 1.0, 0.0, "0.3"),
    "compact, dry run": (("compact", f"lab.{SMALL}"), 2.0, 0.0, "6.4"),
    "plan": (("plan", f"lab.{SMALL}"), 2.0, 0.0, ""),
    "compact --execute": (("compact", f"lab.{SMALL}", *_EXECUTE), 8.0, 1.6, "12.2"),
    "… under equality deletes": (("compact", f"lab.{UPSERTS}", *_EXECUTE), 12.0, 0.0, "18 to 20"),
}


def run(sizes: Sequence[int], *, long: bool) -> None:
    """Run each command in a process of its own; ``sizes`` are of other benches' tables."""
    del sizes
    use_bench_lake()
    _icekit("lab", SMALL, UPSERTS)
    commands = {_EMPTY: [sys.executable, "-c", _SESSION]}
    commands |= {name: _command(*asked) for name, (asked, *_) in _COMMANDS.items()}
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(6 if long else 4):
        for name, command in commands.items():
            _icekit("lab", "--reset", SMALL, UPSERTS)
            started = time.monotonic()
            _done(command)
            # The first turn leaves what later starts of Spark use.
            if turn:
                taken[name].append(time.monotonic() - started)
    timings = {name: Timing(seconds) for name, seconds in taken.items()}
    empty = timings[_EMPTY].median
    rows = [(_EMPTY, timings[_EMPTY], "", "", "5.4 to 7.5 s", "")]
    for name, (_, limit, multiple, before) in _COMMANDS.items():
        seconds = timings[name].median
        allowed = max(limit, multiple * empty)
        goal = f"{limit:.0f} s" + (f" or {multiple} ×" if multiple else "")
        judged = verdict(seconds, allowed)
        times = f"{seconds / empty:.1f} ×"
        rows.append((name, timings[name], times, goal, f"{before} s" if before else "", judged))
    title = "From the command to the prompt, on small tables"
    show(title, ("command", "time", "of an empty session", "goal", "0.1.0", ""), rows)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "icekit", *arguments]


def _icekit(*arguments: str) -> None:
    _done(_command(*arguments))


def _done(command: Sequence[str]) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    # A look or a plan that finds something ends with 1.
    if done.returncode > 1:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}")
