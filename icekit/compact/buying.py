"""Say what a budget buys of the candidates there are; pure arithmetic on a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from icekit.compact.candidates import Candidate
from icekit.compact.model import Plan


@dataclass(frozen=True, slots=True)
class Bought:
    """What a plan takes of the candidates, by their own figures; ``of_*`` is what all of them come to."""

    candidates: int
    bytes_in: int
    files_in: int
    file_opens_saved: int
    of_candidates: int
    of_bytes_in: int
    of_files_in: int
    of_file_opens_saved: int

    @property
    def share_won(self) -> float | None:
        """File opens saved as a share of what all candidates save; None where there is nothing to save."""
        return self.file_opens_saved / self.of_file_opens_saved if self.of_file_opens_saved else None


def bought(found: Sequence[Candidate], plan: Plan) -> Bought:
    """Count the candidates whose partitions are all in the plan's actions."""
    chosen = {p for action in plan.actions for p in action.partitions}
    taken = [c for c in found if chosen.issuperset(c.partitions)]
    return Bought(len(taken), *_sums(taken), len(found), *_sums(found))


def _sums(some: Sequence[Candidate]) -> tuple[int, int, int]:
    return sum(c.bytes_in for c in some), sum(c.files_in for c in some), sum(c.file_opens_saved for c in some)
