"""``python -m rigs.bench commands``: what a person waits for on small tables, from the command to
the prompt, beside a Spark session that does nothing.

The commands take turns with the empty session, so that noise meets all alike.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import partial

from rigs.bench.measure import Timing, in_turns, show, verdict

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
    _icekit("lab", SMALL, UPSERTS)
    work = {_EMPTY: partial(_done, [sys.executable, "-c", _SESSION])}
    work |= {name: partial(_icekit, *asked) for name, (asked, *_) in _COMMANDS.items()}
    reset = partial(_icekit, "lab", "--reset", SMALL, UPSERTS)
    # The first turn leaves what later starts of Spark use.
    in_turns(1, work, reset)
    taken = in_turns(5 if long else 3, work, reset)
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


def _icekit(*arguments: str) -> None:
    # A look or a plan that finds something ends with 1.
    finds = arguments[0] in {"look", "plan"}
    _done([sys.executable, "-m", "icekit", *arguments], (0, 1) if finds else (0,))


def _done(command: Sequence[str], allowed: Sequence[int] = (0,)) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode not in allowed:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}")
