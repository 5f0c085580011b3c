"""Propose partition specs and sort orders for the filters there are, scored on a sample by what filters would read; pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from icekit.facts.model import TableFacts
from icekit.tune.filters.model import EQUALITY, PREFIX, RANGE, Filter, leaves
from icekit.tune.layout.model import HILBERT, SORT, ZORDER, Field, LayoutCandidate, LayoutOrder, OrderDepth, Orders, TriedLayout
from icekit.tune.layout.rows import SampleRows, takes

# --- Choose columns to order by: what filters would read of a sample, sorted, z-ordered or along a Hilbert curve; pure
#
# Columns are added one at a time, each time the one that helps most (greedy forward selection), until one more no longer pays.


Check = Callable[[], object]
#: Another column must save this share of what is read without it, and a curve that of what a sort reads: stated choices.
PAYS, CURVE_PAYS = 0.1, 0.2
#: Columns that are looked at, those most asked for.
MOST_SORT_COLUMNS = 8


def choose(
    rows: SampleRows,
    spec: Sequence[Field],
    filters: Sequence[Filter],
    columns: Sequence[str],
    own: LayoutOrder | None,
    *,
    most: int,
    files: int,
    check: Check = bool,
) -> Orders:
    """Compare orders of rows within a spec's partitions; ``columns`` are asked for by filters, ``own`` is the table's order.

    An order by up to ``most`` columns. ``files`` are the table's: less than half a file of all bytes is no difference. ``check``
    is called before each order, and may raise where time is up.
    """
    came = rows.read(spec, None, filters)
    owned = rows.read(spec, own, filters).share if own is not None else None
    # Within a partition an identity column has one value.
    fixed = {f.column for f in spec if f.transform == "identity"}
    open_ = [c for c in columns if c not in fixed and c in rows.columns and len(rows.columns[c].distinct) > 1][:MOST_SORT_COLUMNS]
    steps: list[OrderDepth] = []
    while open_ and len(steps) < most:
        chosen = steps[-1].order.columns if steps else ()
        step = _best(rows, spec, filters, chosen, [c for c in open_ if c not in chosen], check)
        if step is None:
            break
        steps.append(step)
    best = steps[0] if steps else None
    for step in steps[1:]:
        if best is not None and pays(best.share, step.share, files):
            best = step
    return Orders(came.share, owned, tuple(steps), best, came.is_coarse)


def pays(before: float, after: float, files: int, margin: float = PAYS) -> bool:
    """Tell whether reading less is worth a change: by the margin, and by half a file a query at least."""
    return before - after >= max(margin * before, 0.5 / max(files, 1))


def _best(
    rows: SampleRows, spec: Sequence[Field], filters: Sequence[Filter], chosen: tuple[str, ...], more: Sequence[str], check: Check
) -> OrderDepth | None:
    tried: dict[LayoutOrder, float] = {}
    for column in more:
        columns = (*chosen, column)
        orders = [LayoutOrder(SORT, columns)]
        if len(columns) > 1:
            # The first columns of a sort weigh most; a column may serve better before those chosen.
            orders.append(LayoutOrder(SORT, (column, *chosen)))
            # Iceberg's curves take top-level columns only (SparkZOrderFileRewriteRunner).
            if all(takes(rows.columns[c].kind) and c not in rows.nested for c in columns):
                orders += [LayoutOrder(ZORDER, columns), LayoutOrder(HILBERT, columns)]
        for order in orders:
            check()
            tried[order] = rows.read(spec, order, filters).share
    if not tried:
        return None
    sort = min((o for o in tried if o.kind == SORT), key=lambda o: tried[o])
    curve = min((o for o in tried if o.kind != SORT), key=lambda o: tried[o], default=None)
    # New files keep a sort order, and a curve only comes of a rewrite: it must be clearly better.
    best = curve if curve is not None and tried[curve] < tried[sort] * (1 - CURVE_PAYS) else sort
    by_kind: dict[str, LayoutOrder] = {}
    for order in sorted(tried, key=lambda o: tried[o]):
        by_kind.setdefault(order.kind, order)
    return OrderDepth(best, tried[best], tuple((o, tried[o]) for o in by_kind.values()))


_TIMES = ("year", "month", "day", "hour")
#: A column of so few values may be a partition field as it is.
LOW_CARDINALITY = 200
#: Candidates that are scored, and columns they are made of.
MOST, MOST_COLUMNS = 48, 4
#: Buckets are as many as make one file each, within these.
FEWEST_BUCKETS, MOST_BUCKETS = 4, 1024
#: A partition should have this share of the target size at least, or no file of it is ever of a good size: a stated choice.
WELL_FILLED = 0.5
#: Below this share of the target size partitions are tiny; fewer than so many of them are no burden: stated choices.
TINY, MANY = 0.25, 16
#: Specs that get an order of their own, beside the one that is best for the table as it is.
WITH_OWN_ORDER = 3


def candidates(rows: SampleRows, current: Sequence[Field], filters: Sequence[Filter], columns: Sequence[str]) -> list[tuple[Field, ...]]:
    """Specs to compare: the current one first, none at all, its parts, coarser and finer ones, and fields for what filters ask.

    None but the current one where a field of it cannot be worked out from the sample: what it rules out is not known then.
    """
    known = tuple(current)
    if not rows.knows(known):
        return [known]
    found: dict[tuple[Field, ...], None] = {known: None, (): None}
    for size in range(1, len(known)):
        found.update(dict.fromkeys(itertools.combinations(known, size)))
    for place, field in enumerate(known):
        for other in _neighbours(field, rows):
            found[(*known[:place], other, *known[place + 1 :])] = None
    single = [f for column in columns[:MOST_COLUMNS] if column in rows.columns for f in _fields(rows, column, filters)]
    found.update({(field,): None for field in single})
    for field in single:
        if all(field.column != f.column for f in known) and known:
            found[(*known, field)] = None
    for a, b in itertools.combinations(single, 2):
        if a.column != b.column:
            # Times first, as people read paths.
            found[(a, b) if a.name in _TIMES or b.name not in _TIMES else (b, a)] = None
    return list(found)[:MOST]


def score(
    rows: SampleRows, specs: Sequence[tuple[Field, ...]], filters: Sequence[Filter], order: LayoutOrder | None, check: Check = bool
) -> list[LayoutCandidate]:
    """What the filters would read of each spec with an order within its partitions, in the order given; ``check`` comes before each."""
    found = []
    for spec in specs:
        check()
        spread = rows.spread(spec)
        fits = not spec or spread.mean_bytes >= WELL_FILLED * rows.target_bytes
        found.append(LayoutCandidate(spec, rows.read(spec, order, filters).share, spread, fits, order))
    return found


def with_own_orders(
    rows: SampleRows,
    scored: Sequence[LayoutCandidate],
    filters: Sequence[Filter],
    columns: Sequence[str],
    *,
    most: int,
    files: int,
    check: Check = bool,
) -> list[LayoutCandidate]:
    """The same, with the best order of its own for each of the few best specs that fit, where that pays; never for the first."""
    best_few = sorted((c for c in scored[1:] if c.fits), key=lambda c: (c.share, len(c.spec)))[:WITH_OWN_ORDER]
    found = []
    for one in scored:
        own = choose(rows, one.spec, filters, columns, None, most=most, files=files, check=check).best if one in best_few else None
        is_better = own is not None and pays(one.share, own.share, files)
        found.append(replace(one, share=own.share, order=own.order) if own is not None and is_better else one)
    return found


def best(scored: Sequence[LayoutCandidate]) -> LayoutCandidate | None:
    """The spec of well-filled partitions that is read least of; of near equals the one with fewer fields and partitions."""
    fitting = [c for c in scored if c.fits]
    if not fitting:
        return None
    least = min(c.share for c in fitting)
    return min((c for c in fitting if c.share <= least * 1.05 + 1e-9), key=lambda c: (len(c.spec), c.spread.partitions, c.share))


def is_tiny(candidate: LayoutCandidate, target_bytes: int) -> bool:
    """Tell whether a spec has many partitions that are too small for a file of a good size."""
    return candidate.spread.partitions >= MANY and candidate.spread.mean_bytes < TINY * target_bytes


def _neighbours(field: Field, rows: SampleRows) -> list[Field]:
    kind = rows.columns[field.column].kind
    if field.name in _TIMES:
        return [Field(field.column, t) for t in _units(kind) if t != field.transform]
    if field.name == "bucket":
        width = int(field.transform[7:-1])
        return [Field(field.column, f"bucket[{n}]") for n in {max(2, width // 4), width * 4} if n != width]
    return []


def _units(kind: str) -> tuple[str, ...]:
    return _TIMES[:3] if kind == "date" else _TIMES


def _fields(rows: SampleRows, column: str, filters: Sequence[Filter]) -> list[Field]:
    """Fields that serve what filters ask of a column."""
    of, asked = rows.columns[column], [leaf for f in filters for leaf in leaves(f.tree) if leaf.column == column]
    kinds = {leaf.kind for leaf in asked}
    if of.kind in {"date", "timestamp", "timestamptz"}:
        return [Field(column, unit) for unit in _units(of.kind)]
    found = []
    distinct = of.distinct_in_table(rows.table_rows)
    if distinct <= LOW_CARDINALITY and of.kind in {"string", "int", "long", "boolean", "uuid"}:
        found.append(Field(column, "identity"))
    elif EQUALITY in kinds and of.kind in {"string", "int", "long", "uuid", "binary"}:
        found.append(Field(column, f"bucket[{_buckets(rows)}]"))
    if PREFIX in kinds and of.kind == "string":
        # A prefix that drew no value, as from a column of nulls, has no length.
        shortest = min((len(str(leaf.values[0])) for leaf in asked if leaf.kind == PREFIX and leaf.values), default=0)
        found += [Field(column, f"truncate[{shortest}]")] if shortest else []
    if RANGE in kinds and of.kind in {"int", "long"} and distinct > LOW_CARDINALITY:
        found.append(Field(column, f"truncate[{_width(rows, column)}]"))
    return found


def _buckets(rows: SampleRows) -> int:
    """A power of two that makes partitions of one to two target sizes."""
    wanted = max(1.0, rows.table_bytes / max(rows.target_bytes, 1))
    return int(min(max(2 ** int(wanted).bit_length() // 2, FEWEST_BUCKETS), MOST_BUCKETS))


def _width(rows: SampleRows, column: str) -> int:
    """A power of ten that makes partitions of a target size or more, were the values spread evenly."""
    distinct = rows.columns[column].distinct
    span = int(distinct[-1]) - int(distinct[0]) + 1
    wanted = span / max(1.0, rows.table_bytes / max(rows.target_bytes, 1))
    width = 1
    while width < wanted:
        width *= 10
    return width


# --- Propose a layout from what a sample tells, to be tried before it is advised; pure


#: A new order or spec must save this share of the bytes that filters read now: a stated choice.
MARGIN = 0.2


@dataclass(frozen=True)
class Proposal:
    """What the sample speaks for: a spec (the current one to keep it) and an order (None to keep it).

    ``share`` is of the bytes that filters would read. ``is_worn`` tells that the order there is is the right one, and files do not follow it; ``coarser`` that the spec is proposed
    for fewer, fuller partitions.
    """

    spec: tuple[Field, ...]
    order: LayoutOrder | None
    share: float
    is_worn: bool = False
    coarser: bool = False

    def change(self, current: Sequence[Field]) -> tuple[tuple[Field, ...], LayoutOrder | None] | None:
        """The spec and the order (None: the table's own) that a trial writes; None where nothing is proposed."""
        if self.spec == tuple(current) and self.order is None and not self.is_worn:
            return None
        return self.spec, self.order

    def simpler(self, orders: Orders, tried: TriedLayout | None) -> Proposal | None:
        """A plain sort in place of a curve that a trial shows to be no better; None where there is nothing simpler to try."""
        if tried is None or self.order is None or self.order.kind == SORT or not orders.steps:
            return None
        sorts = [(share, order) for step in orders.steps for order, share in step.shares if order.kind == SORT]
        share, order = min(sorts, key=lambda pair: (pair[0], len(pair[1].columns)))
        return replace(self, order=order, share=share) if tried.share_after > share * (1 - CURVE_PAYS) else None


def propose(
    facts: TableFacts,
    current: tuple[Field, ...],
    own: LayoutOrder | None,
    orders: Orders,
    candidates: Sequence[LayoutCandidate],
    share_now: float,
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


def own_order(facts: TableFacts) -> LayoutOrder | None:
    """The table's sort order, as far as its first fields are plain columns; None without one."""
    columns: list[str] = []
    for field in facts.sort_order:
        if field.transform != "identity":
            break
        columns.append(field.source)
    return LayoutOrder(SORT, tuple(columns)) if columns else None
