"""Spend one budget over the partitions of many tables, the best win per byte first; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from icekit.compact.candidates import Candidate
from icekit.compact.model import Plan
from icekit.schedule.kinds import Budget


@dataclass(frozen=True, slots=True)
class Offer:
    """What rewriting one partition wins and costs; of :class:`~icekit.compact.candidates.Candidate`, without its partitions."""

    file_opens_saved: int
    bytes_in: int
    files_in: int

    @property
    def win_per_byte(self) -> float:
        """File opens that a full scan is spared per byte that is rewritten."""
        return self.file_opens_saved / max(self.bytes_in, 1)


@dataclass(frozen=True, slots=True)
class Share:
    """What one table may read of the pass's budget; ``cut`` if its plan wanted more. None: no limit."""

    bytes: int | None = None
    files: int | None = None
    cut: bool = False

    @property
    def is_limited(self) -> bool:
        """Tell whether the pass has a budget of bytes or files."""
        return self.bytes is not None or self.files is not None

    @property
    def is_nothing(self) -> bool:
        """Tell whether other tables got all of it."""
        return self.cut and (self.bytes == 0 or self.files == 0)


def offers(plan: Plan, found: Sequence[Candidate]) -> tuple[Offer, ...]:
    """The candidates that a plan has taken up."""
    planned = {partition for action in plan.actions for partition in action.partitions}
    return tuple(Offer(c.file_opens_saved, c.bytes_in, c.files_in) for c in found if planned.issuperset(c.partitions))


def less(budget: Budget, bytes_in: int, files_in: int = 0) -> Budget:
    """What is left of a budget after something was read."""
    return replace(
        budget,
        bytes=None if budget.bytes is None else max(0, budget.bytes - bytes_in),
        files=None if budget.files is None else max(0, budget.files - files_in),
    )


def share_out(wanted: Mapping[str, Sequence[Offer]], budget: Budget) -> dict[str, Share]:
    """What each table gets of a budget.

    Partitions of all tables stand in one queue, by win per byte; one that is dearer than what is left is passed
    over, as :func:`icekit.compact.plan.plan` does within a table.
    """
    if budget.bytes is None and budget.files is None:
        return {table: Share() for table in wanted}
    queue = sorted(
        ((offer, table) for table, several in wanted.items() for offer in several),
        key=lambda one: (-one[0].win_per_byte, -one[0].file_opens_saved, one[1]),
    )
    bytes_left, files_left = budget.bytes, budget.files
    spent = {table: [0, 0] for table in wanted}
    bought = dict.fromkeys(wanted, 0)
    for offer, table in queue:
        if (bytes_left is not None and offer.bytes_in > bytes_left) or (files_left is not None and offer.files_in > files_left):
            continue
        bytes_left = None if bytes_left is None else bytes_left - offer.bytes_in
        files_left = None if files_left is None else files_left - offer.files_in
        spent[table][0] += offer.bytes_in
        spent[table][1] += offer.files_in
        bought[table] += 1
    return {
        table: Share(
            None if budget.bytes is None else spent[table][0],
            None if budget.files is None else spent[table][1],
            bought[table] < len(several),
        )
        for table, several in wanted.items()
    }
