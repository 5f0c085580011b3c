"""Hold how a run behaves: how patiently it tries again, and how much of it is proved."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how patiently a conflict is tried again, and how small an action may become.

    Waits grow from ``first_wait`` to ``longest_wait`` seconds with a random part (tenacity's
    exponential jitter). ``floor_files`` is the least group size, in target files, before an
    action that is too large is given up.
    """

    attempts: int = 5
    first_wait: float = 2.0
    longest_wait: float = 60.0
    floor_files: int = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """How a run behaves: retries, and how many changed partitions of a commit are proved (None: all; 0: no proof)."""

    retry: Retry = field(default_factory=Retry)
    prove: int | None = None
