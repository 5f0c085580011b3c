"""How often an action is tried again, and what is proved of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from icekit.errors import ParameterError

#: What is proved of a run: each rewrite before it is committed, and commits that were not checked
# are compared in full; all changed partitions of every commit compared after it; or nothing.
PROVING = ("checked", "full", "none")


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and with which waits a conflict is retried, and how small an action may become.

    Waits grow from ``first_wait`` to ``longest_wait`` seconds with a random part (tenacity's
    exponential jitter). ``floor_files`` is the smallest group size, in target files; below it
    icekit gives up on an action that is too large.
    """

    attempts: int = 5
    first_wait: float = 2.0
    longest_wait: float = 60.0
    floor_files: int = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings of a run: retries, and what is proved (one of :data:`PROVING`)."""

    retry: Retry = field(default_factory=Retry)
    prove: str = "checked"

    def __post_init__(self) -> None:
        if self.prove not in PROVING:
            raise ParameterError(f"prove cannot be {self.prove!r}; use {', '.join(PROVING)}.")
