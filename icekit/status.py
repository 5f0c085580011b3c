"""Name how an action, a run, a report of a table or a pass ended, and its exit status."""

from __future__ import annotations

from enum import StrEnum

from icekit.errors import (
    EXIT_CRASHED,
    EXIT_HEALTHY,
    EXIT_MISCONFIGURED,
    EXIT_STOPPED,
    EXIT_UNHEALTHY,
)


class Status(StrEnum):
    """How something ended, the most serious first.

    ``disproved``: it changed rows, or lost something; nothing more runs on the table until a person
    has ``cleared`` the run. ``unproved``: nothing is left to do, but icekit could not prove that no
    row changed. ``refused``: all else is done, but a procedure that the user named was refused.
    ``unhealthy``: by ``fail_on``. ``stopped``: cut short by the window, the budget or a person;
    ``pending``: not begun before that. ``busy``: another run holds the table. ``waits``: left for
    the next pass. ``planned``: a dry run, or what a rule does not allow. ``split``: run again as
    smaller actions. ``skipped``: nothing was left to do.
    """

    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    MISCONFIGURED = "misconfigured"
    DISPROVED = "disproved"
    UNPROVED = "unproved"
    FAILED = "failed"
    REFUSED = "refused"
    UNHEALTHY = "unhealthy"
    STOPPED = "stopped"
    PENDING = "pending"
    BUSY = "busy"
    WAITS = "waits"
    RUNNING = "running"
    CLEARED = "cleared"
    PLANNED = "planned"
    SPLIT = "split"
    DONE = "done"
    SKIPPED = "skipped"
    NOTHING = "nothing to do"

    @property
    def exit_status(self) -> int:
        """The exit status of a command whose most serious status this is."""
        return _EXITS.get(self, EXIT_HEALTHY)

    @property
    def rank(self) -> int:
        """0 for the most serious."""
        return _ORDER.index(self)


_ORDER = list(Status)
_EXITS = {
    Status.CRASHED: EXIT_CRASHED,
    Status.TIMED_OUT: EXIT_CRASHED,
    Status.MISCONFIGURED: EXIT_MISCONFIGURED,
    Status.STOPPED: EXIT_STOPPED,
} | dict.fromkeys(
    (Status.DISPROVED, Status.UNPROVED, Status.FAILED, Status.REFUSED, Status.UNHEALTHY),
    EXIT_UNHEALTHY,
)
