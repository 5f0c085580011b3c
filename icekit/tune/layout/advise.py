"""Turn what was measured, proposed and tried into settings; pure. Advice that a trial does not confirm is dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from icekit.facts.metadata import undo_order
from icekit.facts.model import TableFacts
from icekit.facts.where import where
from icekit.tune import ddl
from icekit.tune.answer import Advice
from icekit.tune.layout.model import (
    Field,
    LayoutCandidate,
    LayoutOrder,
    Orders,
    Overlap,
    TriedLayout,
    fields_of,
    own_order,
    spec_name,
)
from icekit.tune.layout.rows import MARGIN, Proposal, is_tiny, pays
from icekit.units import count, percent, size

#: A layout may make data this much larger, as rows beside each other compress less well in another order: a stated choice.
GROWN = 1.25
_NO_PORTION = f" No predicate names a part of it by partitions, and {size(ddl.PORTION_BYTES)} or more are not rewritten at once: give rewrite_data_files a where of your own."
SPEC, ORDER, OLD_DATA = "partition spec", "sort order", "old data (rewrite_data_files)"


@dataclass(frozen=True, kw_only=True)
class LayoutComparison:
    """What the sample proposes, what it was compared with, and what a trial made of it; ``is_kept`` tells that the proposal stands after it."""

    proposal: Proposal
    orders: Orders
    candidates: Sequence[LayoutCandidate]
    worn: Sequence[Overlap]
    share_now: float
    tried: TriedLayout | None
    is_kept: bool


def advise(facts: TableFacts, found: LayoutComparison) -> tuple[Advice, ...]:
    """The spec, the order, and what of the old data would have to be rewritten.

    What the trial did not confirm is not advised.
    """
    current, proposal = fields_of(facts.default_spec), found.proposal
    spec, order = (proposal.spec, proposal.order) if found.is_kept else (current, None)
    advice = [_spec(facts, spec, found), _order(facts, (spec, order), found)]
    changed = spec != current or order is not None
    if found.is_kept and (changed or proposal.is_worn):
        advice.append(_old_data(facts, order, found.worn if not changed else (), found.tried))
    return tuple(advice)


def is_confirmed(facts: TableFacts, proposal: Proposal, tried: TriedLayout) -> bool:
    """Tell whether the trial keeps what the sample promised."""
    if tried.bytes_after > GROWN * tried.bytes_before:
        return False
    if proposal.coarser:
        least = facts.target_bytes / max(tried.bytes_after, 1)
        return tried.share_after <= max(tried.share_before * (1 + MARGIN), least) and tried.files_after <= max(tried.files_before, 1)
    # A difference of less than half a file is none; files of a sample are fewer.
    files = tried.files_before if tried.is_sample else facts.data.file_count
    return pays(tried.share_before, tried.share_after, files, MARGIN)


def _spec(facts: TableFacts, spec: tuple[Field, ...], found: LayoutComparison) -> Advice:
    current, share_now = fields_of(facts.default_spec), found.share_now
    now = spec_name(current)
    by_spec = {c.spec: c for c in found.candidates}
    here = by_spec.get(current)
    filled = f"{count(here.spread.partitions, 'partition')} of {size(here.spread.mean_bytes)} on average" if here else "Not sampled"
    if spec == current:
        tiny = here is not None and is_tiny(here, facts.target_bytes)
        if here is None:
            lacking = (
                "a field of the current spec cannot be worked out from the sample"
                if found.candidates
                else "filters, sampled rows or time are lacking"
            )
            return Advice(SPEC, now, now, f"It is compared with no other spec: {lacking}.")
        why = f"{filled}, where files are to be {size(facts.target_bytes)}."
        rest = (
            " They are too small for a file of a good size, but no coarser spec reads as little."
            if tiny
            else " No other spec with well-filled partitions saves enough of what filters read."
        )
        return Advice(SPEC, now, now, why + rest)
    there = by_spec[spec]
    if found.proposal.coarser:
        why = (
            f"{filled}, too small for a file of a good size ({size(facts.target_bytes)}); with {there.name} {count(there.spread.partitions, 'partition')} "
            f"of {size(there.spread.mean_bytes)}, and filters read {percent(there.share)} of the bytes on the sample ({percent(share_now)} now)."
        )
    else:
        why = (
            f"Filters read {percent(share_now)} of the bytes now, and {percent(there.share)} on the sample with {there.name}: "
            f"{count(there.spread.partitions, 'partition')} of {size(there.spread.mean_bytes)} on average. Only new data follows it."
        )
    return Advice(
        SPEC,
        now,
        there.name,
        why,
        "; ".join(ddl.change_spec(facts.sql_name, facts.by_name, current, spec)),
        verified=verified(found.tried),
        breaks="jobs that overwrite by partition replace other partitions than before, and storage-partitioned joins need the same buckets on both sides",
        undo="; ".join(ddl.change_spec(facts.sql_name, facts.by_name, spec, current)),
    )


def _order(facts: TableFacts, change: tuple[tuple[Field, ...], LayoutOrder | None], found: LayoutComparison) -> Advice:
    spec, order = change
    proposal, orders, share_now, tried = found.proposal, found.orders, found.share_now, found.tried
    own = own_order(facts)
    now = own.name if own is not None else "unordered" if not facts.sort_order else "an order of transforms"
    if order is None:
        return Advice(ORDER, now, now, _kept_order(facts, found), verified=verified(tried) if proposal.order else None)
    steps = "; ".join(f"{s.order.name} {percent(s.share)}" for s in orders.steps)
    beyond = orders.best is not None and order == orders.best.order and len(order.columns) < len(orders.steps)
    why = f"Filters read {percent(share_now)} of the bytes now. On the sample they would read, by the number of columns: {steps}." + (
        f" Beyond {count(len(order.columns), 'column')} another saves too little." if beyond else ""
    )
    if all(order != o for s in orders.steps for o, _ in s.shares):
        # The best within other partitions.
        why = f"Filters read {percent(share_now)} of the bytes now, and {percent(proposal.share)} on the sample with this order within {spec_name(spec)}."
    if order.is_curve:
        # No sort order of a table is a curve: rows that come are in some other order until they are rewritten.
        return Advice(
            ORDER,
            now,
            order.name,
            f"{why} A curve exists only in a rewrite: what is written later must be rewritten again, so the statement is the rewrite below.",
            verified=verified(tried),
        )
    by_partition = bool(spec) and facts.mean_partition_bytes <= 2 * facts.target_bytes
    return Advice(
        ORDER,
        now,
        order.name,
        why,
        ddl.write_order(facts.sql_name, facts.by_name, order.columns, by_partition=by_partition),
        verified=verified(tried),
        breaks="writes take a shuffle and a sort more",
        undo=undo_order(facts.sql_name, facts),
    )


def _kept_order(facts: TableFacts, found: LayoutComparison) -> str:
    proposal, orders, share_now = found.proposal, found.orders, found.share_now
    if facts.data.file_count < 2:
        return "The table has one data file, so there is no file to skip; its row groups are skipped by their own statistics."
    if proposal.order is not None and not found.is_kept:
        return f"{proposal.order.name} promised {percent(proposal.share)} of the bytes on the sample, and the trial did not confirm it."
    if proposal.is_worn and found.is_kept and orders.own is not None:
        return (
            f"The order is the right one and has degraded: filters read {percent(share_now)} of the bytes, "
            f"and {percent(orders.own)} on the sample where files follow it."
        )
    if orders.best is None:
        return "No orders are compared: no filter asks for a column that files could be ordered by, or sampled rows or time are lacking."
    best = f"{orders.best.order.name} would read {percent(orders.best.share)} on the sample"
    return f"Filters read {percent(share_now)} of the bytes now; {best}, which saves too little."


def _old_data(facts: TableFacts, order: LayoutOrder | None, worn: Sequence[Overlap], tried: TriedLayout | None) -> Advice:
    # Without a new order, by the one that is there.
    by_table = order is None and bool(facts.sort_order)
    rate = f", about {_minutes(tried, facts)} at the speed of the trial" if tried is not None and tried.seconds > 0 else ""
    if worn:
        chosen: list[Overlap] = []
        total = 0
        for one in worn:
            if chosen and total + one.size_in_bytes > ddl.PORTION_BYTES:
                break
            chosen.append(one)
            total += one.size_in_bytes
        predicate = where(facts.catalog, facts.specs_by_id, facts.columns, [w.partition for w in chosen])
        is_too_much = predicate is None and facts.data.size_in_bytes > ddl.PORTION_BYTES
        said = ", ".join(f"{w.path or 'the table'} ({w.depth:.1f} of {count(w.files, 'file')})" for w in chosen[:5])
        return Advice(
            OLD_DATA,
            None,
            f"{count(len(chosen), 'partition')} sorted again",
            f"A lookup opens this many files in: {said}. Rewriting these reads and writes {size(total)}; then ask again for the next portion."
            + (_NO_PORTION if is_too_much else ""),
            None if is_too_much else ddl.rewrite(facts.sql_name, facts.by_name, order, predicate, by_table=by_table),
            verified=verified(tried),
        )
    is_large, predicate, way = facts.data.size_in_bytes > ddl.PORTION_BYTES, None, ""
    if is_large:
        predicate, files = ddl.portion(facts, ddl.PORTION_BYTES)
        way = f" The statement is for one portion, {count(files, 'data file')}: go on with other partitions." if predicate else _NO_PORTION
    return Advice(
        OLD_DATA,
        None,
        "rewritten",
        f"What is there keeps its layout until it is rewritten: {size(facts.data.size_in_bytes)} in {count(facts.data.file_count, 'data file')} to read "
        f"and to write{rate}. It commits in parts, rows stay the same, and {facts.name} needs the room until old snapshots expire.{way}",
        None if is_large and predicate is None else ddl.rewrite(facts.sql_name, facts.by_name, order, predicate, by_table=by_table),
        verified=verified(tried),
    )


def _minutes(tried: TriedLayout, facts: TableFacts) -> str:
    seconds = tried.seconds * facts.data.size_in_bytes / max(tried.bytes_before, 1)
    return f"{seconds:,.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} minutes"


def verified(tried: TriedLayout | None) -> str | None:
    """What the trial showed, in words; None without one."""
    if tried is None:
        return None
    return (
        f"for these filters Iceberg plans {tried.reads}; {count(tried.files_after, 'file')} of {size(tried.bytes_after)} in all "
        f"were written in {tried.seconds:,.0f} s."
    )
