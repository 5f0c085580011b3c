"""``python -m rigs.bench commands``: what a person waits for on small tables, from the command to
the prompt, beside a Spark session that does nothing.

The commands take turns with the empty session, so that noise meets all alike.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import partial

from rigs.bench.measure import Line, Measure, Timing, in_turns, show
from rigs.bench.rewrites import EMPTY_SESSION, EMPTY_SESSION_COMMAND, compact_command

SMALL, UPSERTS = "skewed_small_files", "equality_deletes"
_ICEKIT = (sys.executable, "-m", "icekit")
_LOOK, _DRY_RUN = "look", "compact, dry run"
_EXECUTE, _EXECUTE_UPSERTS = "compact --execute", "compact --execute, equality deletes"


def run(sizes: Sequence[int], *, long: bool) -> list[Line]:
    """Run each command in a process of its own; ``sizes`` are of other benches' tables."""
    del sizes
    _run((*_ICEKIT, "lab", SMALL, UPSERTS))
    commands = {
        EMPTY_SESSION: EMPTY_SESSION_COMMAND,
        _LOOK: (*_ICEKIT, "look", f"lab.{SMALL}"),
        _DRY_RUN: (*_ICEKIT, "compact", f"lab.{SMALL}"),
        _EXECUTE: compact_command(f"lab.{SMALL}"),
        _EXECUTE_UPSERTS: compact_command(f"lab.{UPSERTS}"),
    }
    work = {name: partial(_run, command) for name, command in commands.items()}
    reset = partial(_run, (*_ICEKIT, "lab", "--reset", SMALL, UPSERTS))
    # The first turn leaves what later starts of Spark use.
    in_turns(1, work, reset)
    taken = in_turns(5 if long else 3, work, reset)
    timings = {name: Timing(seconds) for name, seconds in taken.items()}
    title = "From the command to the prompt, on small tables"
    show(title, ("command", "time"), timings.items())
    median = {name: timing.median for name, timing in timings.items()}
    empty = EMPTY_SESSION, median[EMPTY_SESSION]
    return [
        Line(_LOOK, median[_LOOK], Measure.SECONDS, 1.0),
        Line(_DRY_RUN, median[_DRY_RUN], Measure.SECONDS, 2.0),
        Line(_EXECUTE, median[_EXECUTE], Measure.MULTIPLE, 1.4, 1.85, *empty),
        Line(_EXECUTE_UPSERTS, median[_EXECUTE_UPSERTS], Measure.MULTIPLE, 1.6, 2.2, *empty),
    ]


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    # A look that finds something ends with 1.
    allowed = (0, 1) if "look" in command else (0,)
    if done.returncode not in allowed:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}")
