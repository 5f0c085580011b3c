"""Turn measurements, proposals and trials into settings; pure. Advice that a trial does not confirm is dropped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from icekit.facts.metadata import ROW_GROUP, undo_order
from icekit.facts.model import TableFacts
from icekit.facts.where import where
from icekit.sql import set_properties, unset_properties
from icekit.tune import ddl
from icekit.tune.card import Advice, to_set
from icekit.tune.filters import EQUALITY, Filter, leaves
from icekit.tune.layout.model import (
    BloomCheck,
    BloomTrial,
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
from icekit.tune.layout.rows import MARGIN, LayoutProposal, SampleColumn, is_tiny, pays
from icekit.units import count, percent, raised, size

#: A choice: a layout may make data this much larger, because rows may compress less well in another order.
GROWN = 1.25
_NO_PORTION = f" No predicate selects a part of the table by partitions, and icekit does not rewrite {size(ddl.PORTION_BYTES)} or more at once: call rewrite_data_files with your own where."
#: What a property that is removed becomes.
NOT_SET = "not set"
SPEC, ORDER, OLD_DATA = "partition spec", "sort order", "existing data files"


@dataclass(frozen=True, kw_only=True)
class LayoutComparison:
    """The proposal of the sample, its alternatives, and its trial; ``is_kept`` is true if the trial confirms the proposal."""

    proposal: LayoutProposal
    orders: Orders
    candidates: Sequence[LayoutCandidate]
    worn: Sequence[Overlap]
    share_now: float
    tried: TriedLayout | None
    is_kept: bool


def advise_layout(facts: TableFacts, found: LayoutComparison) -> tuple[Advice, ...]:
    """Advice on the spec, the order, and the rewrite of existing data files.

    Drops advice that the trial did not confirm.
    """
    current, proposal = fields_of(facts.default_spec), found.proposal
    spec, order = (proposal.spec, proposal.order) if found.is_kept else (current, None)
    advice = [_spec(facts, spec, found), _order(facts, (spec, order), found)]
    changed = spec != current or order is not None
    if found.is_kept and (changed or proposal.is_worn):
        advice.append(_old_data(facts, order, found.worn if not changed else (), found.tried))
    return tuple(advice)


def is_confirmed(facts: TableFacts, proposal: LayoutProposal, tried: TriedLayout) -> bool:
    """Tell whether the trial confirms the prediction of the sample."""
    if tried.bytes_after > GROWN * tried.bytes_before:
        return False
    if proposal.coarser:
        least = facts.target_bytes / max(tried.bytes_after, 1)
        return tried.share_after <= max(tried.share_before * (1 + MARGIN), least) and tried.files_after <= max(tried.files_before, 1)
    # A difference of less than half a file counts as none; a sample has fewer files.
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
                "a field of the current spec cannot be computed from the sample"
                if found.candidates
                else "there are not enough filters, sampled rows or time"
            )
            return Advice(SPEC, now, now, f"It was not compared with other specs: {lacking}.")
        why = f"{filled}; the target file size is {size(facts.target_bytes)}."
        rest = (
            " They are too small for a well-sized file, but filters would read more with any coarser spec."
            if tiny
            else " No other spec with large enough partitions saves filters enough bytes."
        )
        return Advice(SPEC, now, now, why + rest)
    there = by_spec[spec]
    if found.proposal.coarser:
        why = (
            f"{filled}, too small for a file of the target size ({size(facts.target_bytes)}). With {there.name} there {'is' if there.spread.partitions == 1 else 'are'} {count(there.spread.partitions, 'partition')} "
            f"of {size(there.spread.mean_bytes)}, and filters read {percent(there.share)} of the bytes on the sample ({percent(share_now)} now)."
        )
    else:
        why = (
            f"Filters read {percent(share_now)} of the bytes now, and {percent(there.share)} on the sample with {there.name}: "
            f"{count(there.spread.partitions, 'partition')} of {size(there.spread.mean_bytes)} on average. Only new data uses the new spec."
        )
    if there.spread.a_year >= 1:
        why += f" A year of data adds about {count(round(there.spread.a_year), 'partition')}."
    return Advice(
        SPEC,
        now,
        there.name,
        why,
        "; ".join(ddl.change_spec(facts.sql_name, facts.by_name, current, spec)),
        verified=verified(found.tried),
        breaks="jobs that overwrite by partition replace different partitions than before, and storage-partitioned joins need the same buckets on both sides",
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
    why = f"Filters read {percent(share_now)} of the bytes now. On the sample they would read, by sort columns: {steps}." + (
        f" A further column after {count(len(order.columns), 'column')} saves too little." if beyond else ""
    )
    if all(order != o for s in orders.steps for o, _ in s.shares):
        # The best order within other partitions.
        why = f"Filters read {percent(share_now)} of the bytes now, and {percent(proposal.share)} on the sample with this order within {spec_name(spec)}."
    if order.is_curve:
        # A table's sort order cannot be a curve: new rows have another order until they are rewritten.
        return Advice(
            ORDER,
            now,
            order.name,
            f"{why} Only a rewrite can apply a curve, and later data must be rewritten again, so the statement is the rewrite of the existing data files.",
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
        breaks="each write needs an additional shuffle and sort",
        undo=undo_order(facts.sql_name, facts),
    )


def _kept_order(facts: TableFacts, found: LayoutComparison) -> str:
    proposal, orders, share_now = found.proposal, found.orders, found.share_now
    if facts.data.file_count < 2:
        return "The table has one data file, so there is no file to skip; scans skip its row groups by their own statistics."
    if proposal.order is not None and not found.is_kept:
        return f"On the sample, filters would read {percent(proposal.share)} of the bytes with {proposal.order.name}, but the trial did not confirm it."
    if proposal.is_worn and found.is_kept and orders.own is not None:
        return (
            f"The order is right, but the files no longer follow it: filters read {percent(share_now)} of the bytes, "
            f"and would read {percent(orders.own)} on the sample if files followed it."
        )
    if orders.best is None:
        return "No orders were compared: no filter is on a column that can be sorted, or there are not enough sampled rows or time."
    best = f"with {orders.best.order.name} they would read {percent(orders.best.share)} on the sample"
    return f"Filters read {percent(share_now)} of the bytes now; {best}, which saves too little."


def _old_data(facts: TableFacts, order: LayoutOrder | None, worn: Sequence[Overlap], tried: TriedLayout | None) -> Advice:
    # Without a new order, use the current one.
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
            "as they are",
            f"{count(len(chosen), 'partition')} sorted again",
            f"Files that a lookup opens, by partition: {said}. A rewrite of these partitions reads and writes {size(total)}; then run this question again for the next portion."
            + (_NO_PORTION if is_too_much else ""),
            None if is_too_much else ddl.rewrite(facts.sql_name, facts.by_name, order, predicate, by_table=by_table),
            verified=verified(tried),
        )
    is_large, predicate, way = facts.data.size_in_bytes > ddl.PORTION_BYTES, None, ""
    if is_large:
        predicate, files = ddl.portion(facts, ddl.PORTION_BYTES)
        way = (
            f" The statement is for one portion, {count(files, 'data file')}: continue with other partitions." if predicate else _NO_PORTION
        )
    return Advice(
        OLD_DATA,
        "as they are",
        "rewritten",
        f"Existing data files keep their layout until they are rewritten. The rewrite reads and writes {size(facts.data.size_in_bytes)} in {count(facts.data.file_count, 'data file')}"
        f"{rate}. It commits in parts and changes no row; {facts.name} needs the space for both copies until old snapshots expire.{way}",
        None if is_large and predicate is None else ddl.rewrite(facts.sql_name, facts.by_name, order, predicate, by_table=by_table),
        verified=verified(tried),
        breaks="the undo does not move rewritten files back",
    )


def _minutes(tried: TriedLayout, facts: TableFacts) -> str:
    seconds = tried.seconds * facts.data.size_in_bytes / max(tried.bytes_before, 1)
    return f"{seconds:,.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} minutes"


def verified(tried: TriedLayout | None) -> str | None:
    """The result of the trial in words; None without a trial."""
    if tried is None:
        return None
    return (
        f"these filters read {tried.reads}, according to Iceberg's planner; the trial wrote {count(tried.files_after, 'file')} of {size(tried.bytes_after)} in total "
        f"in {tried.seconds:,.0f} s."
    )


# --- Check bloom filters: which columns would benefit, and which existing ones are unused
#
# A bloom filter answers equality only (``ParquetBloomRowGroupFilter``: = and IN), and only row groups that bounds and dictionaries
# leave are asked: where a column's values fit into a dictionary, Parquet writes one and Iceberg looks there
# (``ParquetDictionaryRowGroupFilter``).


ENABLED, FPP, NDV = (f"write.parquet.bloom-filter-{what}.column." for what in ("enabled", "fpp", "ndv"))
MAX_BYTES, DICTIONARY = "write.parquet.bloom-filter-max-bytes", "write.parquet.dict-size-bytes"
#: What Iceberg takes where nothing is set (TableProperties).
_FPP, _MAX_BYTES, _DICTIONARY = 0.01, 1 << 20, 2 << 20
#: A lookup that reads this share of the bytes by bounds, or less, needs no bloom filter: a stated choice.
SKIPPED_BY_BOUNDS = 0.1
#: A bloom filter must save this share of the rows that lookups read, beyond the share by which files grow: a stated choice.
SAVES = 0.2
_TYPES = ("int", "long", "float", "double", "string", "date", "timestamp", "uuid", "binary", "fixed", "decimal", "time")


def check_blooms(
    facts: TableFacts, filters: Iterable[Filter], columns: Mapping[str, SampleColumn], by_bounds: Mapping[str, float]
) -> tuple[BloomCheck, ...]:
    """Judge each column that filters ask by equality, and each that has a bloom filter.

    ``columns`` are of the sample, ``by_bounds`` the share of bytes that lookups on a column read with the layout that is advised.
    """
    filters = tuple(filters)
    asked = {leaf.column for f in filters for leaf in leaves(f.tree) if leaf.kind == EQUALITY}
    there = bloom_columns(facts.properties)
    found = []
    for name in [*there, *sorted(asked - set(there))]:
        column = columns.get(name)
        if column is None and name not in there:
            continue  # not sampled: inside a list or a map, or beyond the columns most asked for
        distinct = column.distinct_in_table(facts.data.record_count) if column is not None else 0.0
        a_group = min(distinct, _rows_a_group(facts))
        width = _width(column)
        unknown = _unknown(name, name in asked, column, bool(filters), facts)
        check = BloomCheck(name, name in there, distinct, a_group * width, unknown, unknown is None)
        if unknown is None:
            check = replace(check, reason=_against(check, column, by_bounds.get(name), facts, is_asked=name in asked))
        found.append(check)
    return tuple(found)


def share_by_column(shares: Mapping[Filter, float]) -> dict[str, float]:
    """The largest share that a filter reads which asks for a column by equality, by column."""
    found: dict[str, float] = {}
    for one, share in shares.items():
        for leaf in leaves(one.tree):
            if leaf.kind == EQUALITY:
                found[leaf.column] = max(found.get(leaf.column, 0.0), share)
    return found


def bloom_columns(properties: Mapping[str, str]) -> list[str]:
    """Columns that have a bloom filter switched on."""
    return sorted(k.removeprefix(ENABLED) for k, v in properties.items() if k.startswith(ENABLED) and v.lower() == "true")


def unused_blooms(facts: TableFacts, checks: Iterable[BloomCheck]) -> list[str]:
    """The properties of bloom filters that are set and serve no filter."""
    columns = [c.column for c in checks if c.is_there and c.is_judged and c.reason is not None]
    return [k for k in facts.properties if k in {f"{prefix}{c}" for c in columns for prefix in (ENABLED, FPP, NDV)}]


def needed_bytes(distinct: float, fpp: float = _FPP) -> int:
    """Bytes of a bloom filter for so many distinct values: a power of two, as Parquet's split blocks are.

    Source: ``BlockSplitBloomFilter.optimalNumOfBits``: -8 n / ln(1 - fpp^(1/8)) bits.
    """
    bits = -8 * max(distinct, 1.0) / math.log(1 - fpp ** (1 / 8))
    return int(max(32, 1 << math.ceil(math.log2(bits / 8))))


def bloom_settings(facts: TableFacts, one: BloomCheck) -> dict[str, str]:
    """The properties that give a column a bloom filter of a fitting size.

    Without the number of distinct values each row group gets one of ``write.parquet.bloom-filter-max-bytes``, however few there are.
    """
    a_group = max(1, round(min(one.distinct, _rows_a_group(facts))))
    wanted = needed_bytes(a_group)
    found = {f"{NDV}{one.column}": str(a_group)}
    if wanted > int(facts.properties.get(MAX_BYTES, _MAX_BYTES)):
        found[MAX_BYTES] = str(wanted)
    return {**found, f"{ENABLED}{one.column}": "true"}


def advise_blooms(facts: TableFacts, checks: Sequence[BloomCheck], trials: Mapping[str, BloomTrial]) -> tuple[Advice, ...]:
    """One advice a column: switch on what the trial shows to save, off what serves no filter, leave the rest."""
    return tuple(_advice(facts, one, trials.get(one.column)) for one in checks)


def lookups_of(
    spec: Sequence[Field], current: Sequence[Field], filters: Iterable[Filter], checks: Iterable[BloomCheck]
) -> tuple[BloomCheck, ...]:
    """The columns by which a spec newly partitions, if filters ask for them by equality only and a bloom filter would serve them."""
    new = {f.column for f in spec} - {f.column for f in current}
    kinds: dict[str, set[str]] = {}
    for one in filters:
        for leaf in leaves(one.tree):
            kinds.setdefault(leaf.column, set()).add(leaf.kind)
    return tuple(c for c in checks if c.column in new and c.reason is None and not c.is_there and kinds.get(c.column) == {EQUALITY})


def advise_instead(facts: TableFacts, checks: Sequence[BloomCheck], trials: Mapping[str, BloomTrial]) -> list[Advice]:
    """Bloom filters that the trial confirms, as the cheaper alternative to a new partition spec for point lookups."""
    found = [a for a in advise_blooms(facts, checks, trials) if a.is_change]
    why = "The cheaper alternative to the new partition spec, as these filters are point lookups: partitions, and the jobs that overwrite them, stay as they are. "
    return [replace(a, evidence=why + raised(a.evidence), is_alternative=True) for a in found]


def _advice(facts: TableFacts, one: BloomCheck, tried: BloomTrial | None) -> Advice:
    setting, now = f"{ENABLED}{one.column}", "true" if one.is_there else None
    if one.is_there and one.is_judged and one.reason is not None:
        names = unused_blooms(facts, [one])
        back = {k: facts.properties[k] for k in names}
        undo = set_properties(facts.sql_name, back)
        evidence = f"It costs {_bloom_size(facts, one)} per row group to write and has no use: {one.reason}."
        return Advice(setting, now, NOT_SET, evidence, unset_properties(facts.sql_name, names), undo=undo)
    if one.reason is not None:
        return Advice(setting, now, now, f"{one.reason[:1].upper()}{one.reason[1:]}.")
    what = f"at least {one.distinct:,.0f} distinct values, {size(one.distinct_bytes)} per row group: too many for a dictionary."
    if one.is_there:
        return Advice(setting, now, now, f"It is set and used by filters: {what}")
    if tried is None:
        return Advice(setting, now, now, f"A bloom filter may help: {what} It was not tried, so there is no advice.")
    saved = 1 - tried.rows_with / tried.rows_without if tried.rows_without else 0.0
    grown = tried.bytes_with / tried.bytes_without - 1
    verified = (
        f"{count(tried.lookups, 'lookup')} read {tried.rows_without:,} rows without and {tried.rows_with:,} with it, "
        f"{percent(max(saved, 0.0))} fewer; data files grew by {percent(max(grown, 0.0))}."
    )
    if saved - grown < SAVES:
        return Advice(setting, now, now, f"A bloom filter saves too little: {what}", verified=verified)
    return replace(to_set(facts, bloom_settings(facts, one), current=now, evidence=what, verified=verified), setting=setting)


def _unknown(name: str, is_asked: bool, column: SampleColumn | None, has_filters: bool, facts: TableFacts) -> str | None:
    """Why nothing can be said of a bloom filter; None where something can. What is not known is no reason to take it off."""
    if not has_filters:
        return f"the use of a bloom filter on {name} is not known, because no filters are known"
    there = facts.by_name.get(name)
    if is_asked and (column is None or not len(column.distinct)) and there is not None and there.type.startswith(_TYPES):
        return f"the use of a bloom filter on {name} is not known, because no value of {name} was sampled"
    return None


def _against(check: BloomCheck, column: SampleColumn | None, by_bounds: float | None, facts: TableFacts, *, is_asked: bool) -> str | None:
    """Why a bloom filter would not serve a column; None where it would."""
    name, distinct, distinct_bytes = check.column, check.distinct, check.distinct_bytes
    if not is_asked:
        return f"no filter uses = or IN on {name}"
    if column is None or not column.kind.startswith(_TYPES):
        return f"the type of {name} has no bloom filter"
    if by_bounds is not None and by_bounds <= SKIPPED_BY_BOUNDS:
        return f"with the advised layout, bounds alone reduce a lookup on {name} to {percent(by_bounds)} of the bytes"
    limit = int(facts.properties.get(DICTIONARY, _DICTIONARY))
    if distinct_bytes <= limit:
        return (
            f"about {distinct:,.0f} distinct values of {name} ({size(distinct_bytes)} per row group) fit into a dictionary "
            f"({DICTIONARY} {size(limit)}), which rules out row groups as well"
        )
    return None


def _bloom_size(facts: TableFacts, one: BloomCheck) -> str:
    limit = int(facts.properties.get(MAX_BYTES, _MAX_BYTES))
    stated = facts.properties.get(f"{NDV}{one.column}")
    return size(min(limit, needed_bytes(float(stated))) if stated else limit)


def _rows_a_group(facts: TableFacts) -> float:
    row_bytes = facts.data.size_in_bytes / max(facts.data.record_count, 1)
    return min(facts.int_setting(ROW_GROUP), facts.target_bytes) / max(row_bytes, 1e-9)


def _width(column: SampleColumn | None) -> float:
    """Bytes of a value in a dictionary: a text has its length and four more."""
    if column is None or not len(column.distinct):
        return 8.0
    if column.kind in {"string", "uuid"}:
        return 4 + sum(len(v) for v in column.distinct[:1000]) / min(len(column.distinct), 1000)
    return 4.0 if column.kind in {"int", "float", "date"} else 8.0
