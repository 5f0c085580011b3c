"""How often an action is tried again, and what is proved of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from icekit.errors import ParameterError


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


#: What is proved of a run: ``checked`` (each rewrite before it is committed; commits that were not
# checked are compared in full), ``full`` (all changed partitions of every commit compared after
# it), ``none``, or how many changed partitions of a commit are compared.
Prove = Literal["checked", "full", "none"] | int


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings of a run: retries, and what is proved."""

    retry: Retry = field(default_factory=Retry)
    prove: Prove = "checked"

    @property
    def sample(self) -> int | None:
        """How many changed partitions of a commit are compared; None for all."""
        return self.prove if isinstance(self.prove, int) else None


def sampled(text: str) -> Prove:
    """What is proved, from an option's text."""
    if text in {"checked", "full", "none"}:
        return text  # type: ignore[return-value]
    if str(text).isdecimal() and int(text) > 0:
        return int(text)
    raise ParameterError(
        f"prove cannot be {text!r}; use checked, full, none, or the number of partitions per "
        "commit."
    )
