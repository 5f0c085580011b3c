"""What to set, why, and the statement that sets it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """One table property to set or to leave.

    ``now`` is the value in force, ``value`` the better one (the same to leave it). ``evidence``
    is one sentence with the figure it rests on, ``breaks`` what the change takes away, and ``sql``
    the statement to paste, None where there is nothing to change.
    """

    setting: str
    now: str | None
    value: str | None
    evidence: str
    sql: str | None = None
    breaks: str | None = None

    @property
    def is_change(self) -> bool:
        """Tell whether there is something to set."""
        return self.sql is not None
