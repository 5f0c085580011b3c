"""Propose a layout from what a sample tells, to be tried before it is advised; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from icekit.facts.model import TableFacts
from icekit.tune.layout.model import SORT, Candidate, Order, Orders, Tried
from icekit.tune.layout.orders import CURVE_PAYS, pays
from icekit.tune.layout.specs import best, is_tiny
from icekit.tune.layout.transforms import Field

#: A new order or spec must save this share of the bytes that filters read now: a stated choice.
MARGIN = 0.2


@dataclass(frozen=True)
class Proposal:
    """What the sample speaks for: a spec (the current one to keep it) and an order (None to keep it).

    ``share`` is of the bytes that filters would read. ``is_worn`` tells that the order there is is the right one, and files do not follow it; ``coarser`` that the spec is proposed
    for fewer, fuller partitions.
    """

    spec: tuple[Field, ...]
    order: Order | None
    share: float
    is_worn: bool = False
    coarser: bool = False

    def change(self, current: Sequence[Field]) -> tuple[tuple[Field, ...], Order | None] | None:
        """The spec and the order (None: the table's own) that a trial writes; None where nothing is proposed."""
        if self.spec == tuple(current) and self.order is None and not self.is_worn:
            return None
        return self.spec, self.order

    def simpler(self, orders: Orders, tried: Tried | None) -> Proposal | None:
        """A plain sort in place of a curve that a trial shows to be no better; None where there is nothing simpler to try."""
        if tried is None or self.order is None or self.order.kind == SORT or not orders.steps:
            return None
        sorts = [(share, order) for step in orders.steps for order, share in step.shares if order.kind == SORT]
        share, order = min(sorts, key=lambda pair: (pair[0], len(pair[1].columns)))
        return replace(self, order=order, share=share) if tried.share_after > share * (1 - CURVE_PAYS) else None


def propose(
    facts: TableFacts, current: tuple[Field, ...], own: Order | None, orders: Orders, candidates: Sequence[Candidate], share_now: float
) -> Proposal:
    """What the sample speaks for, against what filters read now; ``candidates`` have the current spec first."""
    files = facts.data.file_count
    order, share, worn = None, share_now, False
    found = orders.best
    if own is not None and orders.own is not None and (found is None or not pays(orders.own, found.share, files, MARGIN)):
        if pays(share_now, orders.own, files, MARGIN):
            share, worn = orders.own, True
    elif found is not None and pays(share_now, found.share, files, MARGIN):
        order, share = found.order, found.share
    keep = Proposal(current, order, share, worn)
    if not candidates:
        return keep
    here, chosen = candidates[0], best(candidates)
    if chosen is None or chosen.spec == here.spec:
        return keep
    # A spec is dearer to change than an order, so it must save as much again.
    if pays(share, chosen.share, files, MARGIN):
        return Proposal(chosen.spec, chosen.order if chosen.order != own else None, chosen.share, worn)
    if is_tiny(here, facts.target_bytes):
        # Reading one file of a good size is never too much.
        most = max(share * (1 + MARGIN), facts.target_bytes / max(facts.data.size_in_bytes, 1))
        fitting = [c for c in candidates if c.fits and c.share <= most and c.spread.partitions < here.spread.partitions]
        if fitting:
            coarser = min(fitting, key=lambda c: (c.share > share, not c.spec, c.share, len(c.spec)))
            return Proposal(coarser.spec, coarser.order if coarser.order != own else None, coarser.share, worn, coarser=True)
    return keep


def own_order(facts: TableFacts) -> Order | None:
    """The table's sort order, as far as its first fields are plain columns; None without one."""
    columns: list[str] = []
    for field in facts.sort_order:
        if field.transform != "identity":
            break
        columns.append(field.source)
    return Order(SORT, tuple(columns)) if columns else None
