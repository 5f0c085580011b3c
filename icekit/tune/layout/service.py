"""Answer the question for a table: filters, what they read now, a sample laid out in other ways, the best one tried on a clone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from icekit.catalog.lake import session_of
from icekit.engine.bridge import has_bridge
from icekit.engine.cluster import cluster_of
from icekit.engine.planner import PlannedScan
from icekit.errors import ParameterError
from icekit.facts.collect import observe
from icekit.facts.model import TableFacts
from icekit.parsing import size_in_bytes
from icekit.sql import Identifier, display_name, identifier
from icekit.tune.filters import Filter, Filters, Sample, bind, read_filters, sample
from icekit.tune.layout import blooms as blooming
from icekit.tune.layout import clustering
from icekit.tune.layout.advise import OLD_DATA, Layout, advise, borne_out
from icekit.tune.layout.clustering import fields_of, levels, plans, share_read, worn_partitions
from icekit.tune.layout.model import BloomCheck, Candidate, Order, Orders, Worn
from icekit.tune.layout.rows import Rows
from icekit.tune.layout.specs import PAYS, Proposal, candidates, choose, own_order, propose, score, with_own_orders
from icekit.tune.layout.trial import Trial, run_trial
from icekit.tune.place import Budget, BudgetSpent

if TYPE_CHECKING:
    from icekit.catalog import Lake

#: Filters with values that layouts are compared by; the most frequent.
MOST_BOUND = 96
#: Of the seconds of a budget, for planning lookups on the table as it is.
PLANNING = 0.2
#: Columns that are sampled: the spec's, the order's, and those most asked for.
MOST_SAMPLED = 12
_SAMPLED = ("int", "long", "float", "double", "string", "boolean", "date", "timestamp", "decimal", "uuid", "binary", "fixed")


def tune_layout(
    lake: Lake,
    table: str | Identifier,
    *,
    filters: Sequence[str] = (),
    event_log: str = "",
    scan_reports: str = "",
    max_sort_columns: int = 4,
    budget_seconds: float = 900,
    budget_bytes: str = "20 GB",
    sample_bytes: str = "1 GB",
    trial: bool = True,
    progress: Callable[[str], None] = print,
) -> Layout:
    """Say how a table should be partitioned, ordered and looked up for the filters there are; the table is only read.

    Filters are ``filters`` (SQL predicates or queries), those of a Spark ``event_log``, of Iceberg ``scan_reports``, else point
    lookups on the declared columns. Orders of up to ``max_sort_columns`` columns and other partition specs are compared on
    sampled rows, read from data files of ``sample_bytes`` at most; the best is written to a clone (to a copied sample of
    ``sample_bytes`` where the table is larger), where Iceberg plans the same filters. What that does not bear out is not advised.
    Without ``trial`` nothing is written, and the advice rests on the sample.

    A trial that meets ``budget_seconds`` or ``budget_bytes`` (data written) ends there and says so. Under Spark Connect there is no
    planner to ask and nothing to try on: what filters read comes from the sample, and predicates cannot be read.

    Raises :class:`~icekit.errors.ParameterError` for parameters and filters that cannot be read, and for a table without data.
    """
    _check(filters, max_sort_columns)
    budget, most_sampled = Budget(budget_seconds, size_in_bytes(budget_bytes)), size_in_bytes(sample_bytes)
    with session_of(lake):
        facts = observe(lake, table, collector="spark")
        if not facts.data.file_count:
            raise ParameterError(f"{display_name(facts.table)} has no data files, so there is no layout to look at; write to it first.")
        bridged = has_bridge(lake.spark)
        if not bridged and filters:
            raise ParameterError(
                "Under Spark Connect predicates cannot be planned; declare filter columns (icekit.filter-columns), or give an event log or scan reports."
            )
        found = read_filters(lake, facts, sql=filters, event_log=event_log, scan_reports=scan_reports)
        progress(f"{facts.name}: {len(found.filters):,} different filters")
        drawn, notes = _drawn(lake, facts, found, most_sampled, budget if bridged else None)
        bound = _most(bind(found.filters, drawn))
        full = lake.sql_name(facts.table)
        opened = plans(lake.spark, full, facts, bound, progress, seconds=PLANNING * budget_seconds) if bridged else {}
        # What is compared is compared by the same lookups.
        bound = tuple(f for f in bound if f in opened) if opened else bound
        return _answer(
            lake,
            facts,
            found,
            drawn,
            bound,
            opened,
            (*found.notes, *notes),
            max_sort_columns,
            budget,
            most_sampled,
            trial and bridged,
            progress,
        )


def _answer(
    lake: Lake,
    facts: TableFacts,
    found: Filters,
    drawn: Sample,
    bound: Sequence[Filter],
    opened: dict[Filter, PlannedScan],
    notes: Sequence[str],
    most: int,
    budget: Budget,
    most_sampled: int,
    trial: bool,
    progress: Callable[[str], None],
) -> Layout:
    full, current, own = lake.sql_name(facts.table), fields_of(facts.default_spec), own_order(facts)
    columns = {c.name: c for c in facts.columns}
    rows = Rows.of(
        drawn,
        {name: columns[name].type for name in drawn.columns},
        facts.data.size_in_bytes,
        facts.target_bytes,
        {name: columns[name].metrics_mode for name in drawn.columns},
        {name for name in drawn.columns if len(columns[name].names) > 1},
    )
    progress(f"laying {rows.rows:,} rows out in other ways")
    orders, scored, share_now, left = _compared(facts, rows, own, found, bound, opened, most, budget)
    proposal = propose(facts, current, own, orders, scored, share_now)
    worn: tuple[Worn, ...] = ()
    if proposal.is_worn and own is not None:
        worn = worn_partitions(lake, facts, own.columns[0])
    # Bloom filters are for what the layout that is advised leaves.
    after = rows.read(proposal.spec, proposal.order or (own if proposal.is_worn else None), bound) if rows.rows else None
    checks = blooming.check(facts, found.filters, rows.columns, blooming.by_column(after.shares if after else {}))
    proposal, ran = _tried(lake, facts, found, bound, proposal, orders, checks, share_now, budget, most_sampled, trial, progress)
    change = proposal.change(current)
    if change is not None and not borne_out(facts, proposal, ran.tried, was_tried=trial):
        # The layout stays, and so does what lookups read of it.
        total = max(facts.data.size_in_bytes, 1)
        shares = {f: p.data_bytes / total for f, p in opened.items()} or rows.read(current, own, bound).shares
        checks = blooming.check(facts, found.filters, rows.columns, blooming.by_column(shares))
        _, again = _tried(
            lake, facts, found, bound, Proposal(current, None, share_now), orders, checks, share_now, budget, most_sampled, trial, progress
        )
        ran = Trial(ran.tried, again.blooms, ran.stopped or again.stopped)
    sizing = clustering.sizing(facts, cluster_of(lake.spark).task_heap_bytes)
    version = clustering.version(full, facts)
    advice = (
        *advise(full, facts, proposal, orders, scored, worn, share_now, ran.tried, was_tried=trial and change is not None),
        *blooming.advise(full, facts, checks, ran.blooms),
        *clustering.advise(facts, sizing),
        *([version] if version else []),
    )
    # Old data is rewritten when all is set that it is written by.
    advice = tuple(sorted(advice, key=lambda a: a.setting == OLD_DATA))
    return Layout(
        full,
        facts,
        advice,
        ran.stopped,
        levels(facts, bound, opened),
        share_now,
        bool(opened),
        rows.rows,
        orders,
        tuple(scored),
        worn,
        checks,
        tuple(ran.blooms.values()),
        sizing,
        ran.tried,
        (*notes, *left),
    )


def _tried(
    lake: Lake,
    facts: TableFacts,
    found: Filters,
    bound: Sequence[Filter],
    proposal: Proposal,
    orders: Orders,
    checks: Sequence[BloomCheck],
    share_now: float,
    budget: Budget,
    most_sampled: int,
    trial: bool,
    progress: Callable[[str], None],
) -> tuple[Proposal, Trial]:
    """What the trial showed, and what is proposed after it: a sort where a curve turns out to be no better."""
    current, wanted = fields_of(facts.default_spec), [c for c in checks if c.reason is None and not c.is_there]
    change = proposal.change(current)
    if not trial or (change is None and not wanted):
        return proposal, Trial()
    limited = partial(
        run_trial, unset=blooming.wasted(facts, checks), share_now=share_now, sample_bytes=most_sampled, budget=budget, progress=progress
    )
    ran = limited(lake, facts, found.filters, bound, change, wanted)
    simpler = proposal.simpler(orders, ran.tried)
    if simpler is None or ran.tried is None:
        return proposal, ran
    progress("the curve is no better than a sort promises to be; trying the sort")
    again = limited(lake, facts, found.filters, bound, simpler.change(current), ())
    if again.tried is None or again.tried.share_after > ran.tried.share_after * (1 + PAYS):
        return proposal, ran
    ran.tried = again.tried
    return simpler, ran


def _compared(
    facts: TableFacts,
    rows: Rows,
    own: Order | None,
    found: Filters,
    bound: Sequence[Filter],
    opened: dict[Filter, PlannedScan],
    most: int,
    budget: Budget,
) -> tuple[Orders, list[Candidate], float, list[str]]:
    """Orders and specs on the sample, what filters read now, and what time did not suffice for.

    Without filters or rows there is nothing to compare.
    """
    spec, none = fields_of(facts.default_spec), Orders(1.0, None, (), None)
    measured = share_read(facts, opened)
    if not bound or not rows.rows:
        return none, [], measured if measured is not None else 1.0, []
    limits: Any = {"most": most, "files": facts.data.file_count, "check": budget.check}
    try:
        orders = choose(rows, spec, bound, found.columns, own, **limits)
    except BudgetSpent as error:
        return none, [], measured if measured is not None else 1.0, [f"Orders and specs were not compared: {error}."]
    share_now = measured if measured is not None else orders.as_they_came
    followed = own if own is not None and orders.own is not None else orders.best.order if orders.best is not None else None
    better = orders.best is not None and orders.own is not None and orders.best.share < orders.own * 0.8
    order = orders.best.order if better and orders.best is not None else followed
    try:
        scored = score(rows, candidates(rows, spec, bound, found.columns), bound, order, budget.check)
        return orders, with_own_orders(rows, scored, bound, found.columns, **limits), share_now, []
    except BudgetSpent as error:
        return orders, [], share_now, [f"Specs were not compared: {error}."]


def _drawn(lake: Lake, facts: TableFacts, found: Filters, most_bytes: int, budget: Budget | None) -> tuple[Sample, list[str]]:
    """Sampled rows of the columns that matter, within a budget if there is one, and what is left out."""
    top = set(lake.spark.table(identifier(*lake.sql_name(facts.table))).columns)
    # What lies inside a list or a map has no value of a row's own; its dotted name has no path.
    known = {c.name: c.type for c in facts.columns if c.path or c.name in top}
    inside = [c for c in found.columns if c not in known]
    # Without these two the layout that is there cannot be judged at all.
    wanted = [*(f.column for f in fields_of(facts.default_spec)), *(f.source for f in facts.sort_order), *found.columns]
    usable = [c for c in dict.fromkeys(wanted) if known.get(c, "").startswith(_SAMPLED)]
    left = usable[MOST_SAMPLED:]
    notes = (
        [
            f"Of the columns asked for, {', '.join(left)} are left out: {MOST_SAMPLED} are sampled, the partitioning's and the order's, then those most asked for."
        ]
        if left
        else []
    )
    notes += [f"Filters on {name} cannot be used: it lies inside a list or a map, whose values have no order in a file." for name in inside]
    names = usable[:MOST_SAMPLED]
    try:
        with budget.watching(lake.spark) if budget is not None else contextlib.nullcontext():
            return sample(lake, facts, names, sample_bytes=most_bytes), notes
    except BudgetSpent as error:
        return Sample({name: [] for name in names}, facts.data.record_count), [*notes, f"No rows were sampled: {error}."]


def _most(bound: Sequence[Filter]) -> tuple[Filter, ...]:
    """The most frequent; of lookups that drew the same value one, with the weight of all."""
    weights: dict[Filter, float] = {}
    for one in bound:
        plain = replace(one, weight=1.0)
        weights[plain] = weights.get(plain, 0.0) + one.weight
    merged = [replace(one, weight=weight) for one, weight in weights.items()]
    return tuple(sorted(merged, key=lambda f: -f.weight)[:MOST_BOUND])


def _check(filters: Sequence[str], max_sort_columns: int) -> None:
    if isinstance(filters, str) or not all(isinstance(f, str) for f in filters):
        raise ParameterError(
            f"filters is {filters!r}; give a list of SQL predicates or queries (with papermill: -y 'filters: [\"id = 7\"]')."
        )
    if max_sort_columns < 1:
        raise ParameterError(f"max_sort_columns is {max_sort_columns}; give 1 or more.")
