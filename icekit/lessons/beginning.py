"""Begin a lesson: its tables as they were built, and a ledger that is the lab's own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from icekit import notebook
from icekit.api import connect
from icekit.lab import build, is_kept, reset
from icekit.lab.workbench import embedded

if TYPE_CHECKING:
    from icekit.api import Lake


def begin(*tables: str) -> Lake:
    """Connect to the embedded lake and put the lab tables of a lesson back as they were built.

    ``tables`` are names without the namespace. A table that is not there yet is built, which takes a
    minute the first time. Runs are recorded in a ledger of the lab, begun anew, so that practice neither
    teaches the predictions of real runs nor is resumed by one; ``ICEKIT_LEDGER`` keeps another.
    Raises the errors of :func:`icekit.lab.build` and :func:`icekit.lab.reset`.
    """
    notebook.begin({}, ())
    lake = connect()
    if missing := [name for name in tables if not is_kept(lake, name)]:
        build(lake, missing, rebuild=True)
    reset(lake, tables)
    ledger = embedded(lake) / "lessons" / f"{tables[0]}.db"
    ledger.parent.mkdir(exist_ok=True)
    if os.environ.setdefault("ICEKIT_LEDGER", str(ledger)) == str(ledger):
        ledger.unlink(missing_ok=True)
    return lake
