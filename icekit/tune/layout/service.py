"""Answer how a table should be laid out: measure, propose, try on a clone or a copied sample, advise."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from icekit.catalog.lake import session_of
from icekit.engine.bridge import has_bridge
from icekit.engine.cluster import cluster_of
from icekit.engine.errors import engine_errors, reason
from icekit.engine.planner import PlannedScan, kind, nodes, query_of_frame
from icekit.errors import ParameterError, SparkUnavailable
from icekit.facts.collect import observe
from icekit.facts.model import Column, TableFacts
from icekit.parsing import size_in_bytes
from icekit.sql import Identifier, call, display_name, identifier, set_properties, unset_properties
from icekit.tune.ddl import change_spec, rewrite
from icekit.tune.filters import Filters, Sample, read_filters
from icekit.tune.filters.model import Filter, Leaf, sql
from icekit.tune.filters.read import bind, sample
from icekit.tune.layout import blooms as blooming
from icekit.tune.layout import clustering
from icekit.tune.layout.advise import OLD_DATA, Layout, advise, borne_out
from icekit.tune.layout.blooms import settings
from icekit.tune.layout.clustering import fields_of, levels, plans, share_read, worn_partitions
from icekit.tune.layout.model import BloomCheck, BloomTrial, Field, LayoutCandidate, LayoutOrder, Orders, TriedLayout, Worn
from icekit.tune.layout.rows import SampleRows
from icekit.tune.layout.specs import PAYS, Proposal, candidates, choose, own_order, propose, score, with_own_orders
from icekit.tune.place import Budget, BudgetSpent, Place, places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.catalog import Lake


# --- Try a layout on a clone or a copied sample: write it, let Iceberg plan the filters, read lookups; the table is only read.


_TARGET, _ROW_GROUP = "write.target-file-size-bytes", "write.parquet.row-group-size-bytes"
#: A file of a scaled-down trial is no smaller than this.
_LEAST_TARGET = 64 << 10
#: Lookups that are read for a bloom filter.
LOOKUPS = 8


#: A spec, and an order of rows within its partitions; None for the table's own.
Change = tuple[tuple[Field, ...], LayoutOrder | None]


@dataclass
class LayoutTrial:
    """What was tried; ``stopped`` says why it is not whole."""

    tried: TriedLayout | None = None
    blooms: dict[str, BloomTrial] = field(default_factory=dict)
    stopped: str | None = None


def run_trial(
    lake: Lake,
    facts: TableFacts,
    filters: Sequence[Filter],
    bound: Sequence[Filter],
    change: Change | None,
    blooms: Sequence[BloomCheck],
    *,
    unset: Sequence[str] = (),
    share_now: float,
    sample_bytes: int,
    budget: Budget,
    progress: Callable[[str], None],
) -> LayoutTrial:
    """Write the layout that is proposed (a spec and an order; None to keep both) to a place of its own, then bloom filters.

    ``unset`` are properties that are advised to go, as bloom filters that serve nobody. ``filters`` are as found and ``bound`` with values, ``share_now`` what they read of the table. A table of more than
    ``sample_bytes`` is tried on a copied sample, whose files are as much smaller as its partitions are; what filters read there
    after the change is compared with what they read there before it.
    """
    trial = LayoutTrial()
    try:
        is_large = facts.data.size_in_bytes > sample_bytes
        with places(lake, facts, 1, sample_bytes=sample_bytes, always_sample=is_large, budget=budget, progress=progress) as stack:
            if unset:
                lake.spark.sql(unset_properties(lake.sql_name(stack.places[0].table), unset))
            _try(lake, facts, stack.places[0], filters, bound, change, blooms, trial, share_now, budget, progress)
    except BudgetSpent as error:
        trial.stopped = str(error)
    except SparkUnavailable as error:
        trial.stopped = f"nothing could be tried: {error}"
    except engine_errors() as error:
        trial.stopped = f"an error of the engine ended it: {reason(error)}"
    return trial


def _try(
    lake: Lake,
    facts: TableFacts,
    place: Place,
    filters: Sequence[Filter],
    bound: Sequence[Filter],
    change: Change | None,
    blooms: Sequence[BloomCheck],
    trial: LayoutTrial,
    share_now: float,
    budget: Budget,
    progress: Callable[[str], None],
) -> None:
    columns = {c.name: c for c in facts.columns}
    is_scaled = place.is_sample and _scale(lake, facts, place)
    asked: Sequence[Filter] = bound
    if place.is_sample and any(not f.is_bound for f in filters):
        # Values of the whole table may not be in the sample at all.
        there = observe(lake, place.table, collector="spark")
        asked = bind(filters, sample(lake, there, sorted({c for f in filters for c in f.columns}), rows=10_000))
    if change is not None:
        progress(f"writing the layout to {'a sample' if place.is_sample else 'a clone'} of the table")
        before, files = share_now, facts.data.file_count
        if place.is_sample:
            if is_scaled:
                _write_as_it_lies(lake, place, budget)
            there = observe(lake, place.table, collector="spark")
            opened = found_there(plans(lake.spark, lake.sql_name(place.table), there, asked, progress))
            asked, files, before = tuple(opened), there.data.file_count, share_read(there, opened) or 0.0
            if not asked:
                trial.stopped = "no filter finds rows in the copied sample, so nothing can be compared there; give a larger sample_bytes"
        if asked:
            trial.tried = _lay_out(lake, facts, place, asked, change, before, files, budget, progress)
    for one in blooms:
        trial.blooms[one.column] = _bloom(lake, facts, place, one, columns, budget, progress)


def found_there(opened: Mapping[Filter, PlannedScan]) -> dict[Filter, PlannedScan]:
    """The plans that open something: a filter for values that a sample has not reads nothing of any layout. Pure."""
    return {one: plan for one, plan in opened.items() if plan.data_files}


def _write_as_it_lies(lake: Lake, place: Place, budget: Budget) -> None:
    """Write a sample anew in files of the size it is tried with, rows in the order they have."""
    with budget.watching(lake.spark, place.size_in_bytes):
        lake.spark.sql(rewrite(lake.name, place.table, {}, None, options={"partial-progress.enabled": "false"})).collect()
    budget.bytes_written += place.size_in_bytes


def _lay_out(
    lake: Lake,
    facts: TableFacts,
    place: Place,
    asked: Sequence[Filter],
    change: Change,
    share_before: float,
    files_before: int,
    budget: Budget,
    progress: Callable[[str], None],
) -> TriedLayout | None:
    """Write the layout; None where no filter could be planned on it."""
    spark, columns = lake.spark, {c.name: c for c in facts.columns}
    table, (spec, order) = lake.sql_name(place.table), change
    began = time.monotonic()
    with budget.watching(spark, place.size_in_bytes):
        for statement in change_spec(table, columns, fields_of(facts.default_spec), spec):
            spark.sql(statement)
        whole = {"partial-progress.enabled": "false"}
        by_table = order is None and bool(facts.sort_order)
        spark.sql(rewrite(lake.name, place.table, columns, order, options=whole, by_table=by_table)).collect()
    seconds = time.monotonic() - began
    after = observe(lake, place.table, collector="spark")
    budget.bytes_written += after.data.size_in_bytes
    read = share_read(after, plans(spark, table, after, asked, progress))
    if read is None:
        return None
    return TriedLayout(
        spec,
        order,
        share_before,
        read,
        files_before,
        after.data.file_count,
        place.size_in_bytes,
        after.data.size_in_bytes,
        seconds,
        place.is_sample,
        place.scale,
    )


def _scale(lake: Lake, facts: TableFacts, place: Place) -> bool:
    """Make the files of a sample as much smaller as its partitions are, so that a partition has as many as in the table; tell if so."""
    there = observe(lake, place.table, collector="spark")
    mean = facts.data.size_in_bytes / max(1, len({g.partition for g in facts.groups}))
    own = there.data.size_in_bytes / max(1, len({g.partition for g in there.groups}))
    ratio = min(1.0, own / max(mean, 1.0))
    is_smaller = ratio < 0.75
    if is_smaller:
        target = max(_LEAST_TARGET, round(facts.target_bytes * ratio))
        group = max(_LEAST_TARGET // 2, min(facts.int_setting(_ROW_GROUP), target // 2))
        lake.spark.sql(set_properties(lake.sql_name(place.table), {_TARGET: str(target), _ROW_GROUP: str(group)}))
    return is_smaller


def _bloom(
    lake: Lake,
    facts: TableFacts,
    place: Place,
    one: BloomCheck,
    columns: Mapping[str, Column],
    budget: Budget,
    progress: Callable[[str], None],
) -> BloomTrial:
    """Rewrite the place without and with the bloom filter, and read the same lookups both times."""
    spark, table = lake.spark, lake.sql_name(place.table)
    progress(f"trying a bloom filter on {one.column}")
    here = observe(lake, place.table, collector="spark")
    drawn = sample(lake, here, [one.column], rows=10_000)
    lookup = Filter(f"{one.column} = ?", Leaf(one.column, "="))
    lookups = list(bind([lookup], drawn))[:LOOKUPS]
    wheres = [sql(f.tree, columns) for f in lookups]
    term = identifier(*columns[one.column].names)
    plain = call(lake.name, "rewrite_data_files", table=display_name(place.table), options={"rewrite-all": "true"})
    figures = []
    for properties in ({}, settings(facts, one)):
        if properties:
            spark.sql(set_properties(table, properties))
        with budget.watching(spark, here.data.size_in_bytes):
            spark.sql(plain).collect()
            read = sum(rows_read(spark, table, term, where) for where in wheres)
        now = observe(lake, place.table, collector="spark")
        budget.bytes_written += now.data.size_in_bytes
        figures.append((read, now.data.size_in_bytes))
    (without, bytes_without), (with_it, bytes_with) = figures
    return BloomTrial(one.column, len(lookups), without, with_it, bytes_without, bytes_with)


def rows_read(spark: SparkSession, table: Identifier, column: str, where: str) -> int:
    """Rows that a scan takes out of the files for a query: those of all row groups that no statistics rule out.

    From the scan's own metric: Iceberg's readers give whole row groups to Spark, which filters the rows. ``column`` is SQL.
    """
    frame = spark.sql(f"SELECT count({column}) FROM {identifier(*table)} WHERE {where}")
    frame.collect()
    scans = [n for n in nodes(query_of_frame(frame).executedPlan()) if kind(n) == "BatchScanExec"]
    return sum(int(n.metrics().apply("numOutputRows").value()) for n in scans)


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
    rows = SampleRows.of(
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
        ran = LayoutTrial(ran.tried, again.blooms, ran.stopped or again.stopped)
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
) -> tuple[Proposal, LayoutTrial]:
    """What the trial showed, and what is proposed after it: a sort where a curve turns out to be no better."""
    current, wanted = fields_of(facts.default_spec), [c for c in checks if c.reason is None and not c.is_there]
    change = proposal.change(current)
    if not trial or (change is None and not wanted):
        return proposal, LayoutTrial()
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
    rows: SampleRows,
    own: LayoutOrder | None,
    found: Filters,
    bound: Sequence[Filter],
    opened: dict[Filter, PlannedScan],
    most: int,
    budget: Budget,
) -> tuple[Orders, list[LayoutCandidate], float, list[str]]:
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
