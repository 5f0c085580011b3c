"""Answer how a table should be laid out: measure, propose, try on a clone or a copied sample, advise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from icekit.answer.grid import BYTES, COUNT, FLAG, NAME, NUMBER, SHARE, TEXT, Grid
from icekit.catalog.lake import session_of
from icekit.engine.cluster import cluster_of
from icekit.engine.planner import PlannedScan, kind, nodes, plan_scan, query_of_frame
from icekit.errors import ParameterError, require_number
from icekit.facts.metadata import ROW_GROUP, TARGET
from icekit.facts.model import TableFacts
from icekit.sandbox.trial import BUDGET_BYTES, BUDGET_SECONDS, Budget, BudgetSpent, Sandbox, Trial
from icekit.sql import Identifier, identifier, set_properties, unset_properties
from icekit.tune.card import Advice, Answer, Effect, tried_or_not
from icekit.tune.ddl import change_spec, rewrite
from icekit.tune.filters import Filter, Leaf, sql
from icekit.tune.layout import clustering
from icekit.tune.layout.advise import (
    NOT_SET,
    OLD_DATA,
    ORDER,
    SPEC,
    LayoutComparison,
    advise_blooms,
    advise_instead,
    advise_layout,
    bloom_settings,
    check_blooms,
    is_confirmed,
    lookups_of,
    share_by_column,
    unused_blooms,
)
from icekit.tune.layout.clustering import levels, plans, share_read, worn_partitions
from icekit.tune.layout.model import (
    BloomCheck,
    BloomTrial,
    Field,
    LayoutCandidate,
    LayoutOrder,
    Level,
    Orders,
    Overlap,
    Sizing,
    TriedLayout,
    fields_of,
    own_order,
    spec_name,
)
from icekit.tune.layout.rows import PAYS, LayoutProposal, SampleRows, Search, candidates, close_to_limit, is_close, propose
from icekit.tune.queries import Filters, Sample, bind, read_filters, sample
from icekit.units import count, elapsed, percent, raised, size, span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.catalog import Lake


# --- Try a layout on a clone or a copied sample: write it, let Iceberg plan the filters, run lookups; only reads the table.


#: The smallest target file size of a scaled-down trial.
_LEAST_TARGET = 64 << 10
#: A choice: a rewrite of existing data files that queries pay back later than this is not advised, in days.
PAYBACK_DAYS = 365
#: The number of lookups for a bloom filter.
LOOKUPS = 8
_WHOLE = {"partial-progress.enabled": "false"}


#: A spec, and an order of rows within its partitions; None for the table's own order.
Change = tuple[tuple[Field, ...], LayoutOrder | None]


@dataclass
class LayoutTrial:
    """The results of a trial, as far as it got."""

    tried: TriedLayout | None = None
    blooms: dict[str, BloomTrial] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AskedFilters:
    """The filters of queries: as found, with values, and Iceberg's plans for them on the current table.

    ``opened`` is empty if Iceberg's planner is not available.
    """

    found: Filters
    bound: Sequence[Filter]
    opened: Mapping[Filter, PlannedScan] = field(default_factory=dict)


def run_trial(
    trial: Trial, asked: AskedFilters, change: Change | None, checks: Sequence[BloomCheck] = (), *, unset: Sequence[str] = ()
) -> LayoutTrial:
    """Write the proposed layout (a spec and an order; None to keep both) to a sandbox, then try bloom filters.

    ``unset`` are properties to remove, such as unused bloom filters. A table larger than the trial's
    ``sample_bytes`` is tried on a copied sample, with files scaled down like its partitions; the bytes that filters read there
    are compared before and after the change.
    """
    ran = LayoutTrial()
    with trial.attempt(), trial.sandbox(always_sample=trial.facts.data.size_in_bytes > trial.sample_bytes) as box:
        if unset:
            box.set(unset_properties(box.name, unset))
        # A clone equals the table, and so do the bytes that filters read.
        before = box.observe() if box.is_sample else trial.facts
        opened = asked.opened
        is_scaled = box.is_sample and _scale(trial.facts, before, box)
        if change is not None:
            trial.progress(f"writing the new layout to {'a sample' if box.is_sample else 'a clone'} of the table")
            if is_scaled:
                # In files of the size of the trial, with rows in their current order.
                box.run(rewrite(box.name, {}, None, options=_WHOLE), expected_bytes=box.size_in_bytes)
                before = box.observe()
            if box.is_sample:
                opened = found_there(plans(box.plan, before, _bound_there(box, before, asked), trial.progress))
                if not opened:
                    trial.stopped = (
                        "no filter matches rows in the copied sample, so there is nothing to compare; give a larger sample_bytes"
                    )
            if opened:
                ran.tried = _lay_out(trial, box, change, before, opened)
        for check in checks:
            ran.blooms[check.column] = _bloom(trial, box, check)
    return ran


def _bound_there(box: Sandbox, there: TableFacts, asked: AskedFilters) -> Sequence[Filter]:
    """Filters without values get values from the sample, which may not contain the table's values."""
    if all(f.is_bound for f in asked.found.filters):
        return asked.bound
    return bind(asked.found.filters, sample(box.lake, there, sorted(asked.found.columns), rows=10_000))


def found_there(opened: Mapping[Filter, PlannedScan]) -> dict[Filter, PlannedScan]:
    """The plans that open files: a filter for values that are not in the sample reads nothing in any layout. Pure."""
    return {one: plan for one, plan in opened.items() if plan.data_files}


def _lay_out(trial: Trial, box: Sandbox, change: Change, before: TableFacts, opened: Mapping[Filter, PlannedScan]) -> TriedLayout | None:
    """Write the layout over the ``before`` state, in which filters ``opened`` these files; None if no filter could be planned on the result."""
    facts, (spec, order) = trial.facts, change
    box.set("; ".join(change_spec(box.name, facts.by_name, fields_of(facts.default_spec), spec)))
    sql = rewrite(box.name, facts.by_name, order, options=_WHOLE, by_table=order is None and bool(facts.sort_order))
    done = box.run(sql, expected_bytes=before.data.size_in_bytes)
    after = box.observe()
    then = plans(box.plan, after, tuple(opened), trial.progress)
    read, was_read = share_read(after, then), share_read(before, {one: opened[one] for one in then})
    if read is None or was_read is None:
        return None
    return TriedLayout(
        spec=spec,
        order=order,
        share_before=was_read,
        share_after=read,
        files_before=before.data.file_count,
        files_after=after.data.file_count,
        bytes_before=before.data.size_in_bytes,
        bytes_after=after.data.size_in_bytes,
        seconds=done.seconds,
        is_sample=box.is_sample,
        scale=box.scale,
    )


def _scale(facts: TableFacts, there: TableFacts, box: Sandbox) -> bool:
    """Scale the files of a sample down like its partitions, so that a partition has as many files as in the table; returns whether it did."""
    ratio = min(1.0, there.mean_partition_bytes / max(facts.mean_partition_bytes, 1.0))
    is_smaller = ratio < 0.75
    if is_smaller:
        target = max(_LEAST_TARGET, round(facts.target_bytes * ratio))
        group = max(_LEAST_TARGET // 2, min(facts.int_setting(ROW_GROUP), target // 2))
        box.set(set_properties(box.name, {TARGET: str(target), ROW_GROUP: str(group)}))
    return is_smaller


def _bloom(trial: Trial, box: Sandbox, check: BloomCheck) -> BloomTrial:
    """Rewrite the sandbox without and with the bloom filter, and run the same lookups both times."""
    trial.progress(f"trying a bloom filter on {check.column}")
    columns, here = trial.facts.by_name, box.observe()
    drawn = sample(box.lake, here, [check.column], rows=10_000)
    lookup = Filter(f"{check.column} = ?", Leaf(check.column, "="))
    lookups = list(bind([lookup], drawn))[:LOOKUPS]
    wheres = [sql(f.tree, columns) for f in lookups]
    term = identifier(*columns[check.column].names)
    figures = []
    for properties in ({}, bloom_settings(trial.facts, check)):
        if properties:
            box.set(set_properties(box.name, properties))
        box.run(rewrite(box.name, {}, None, options=_WHOLE), expected_bytes=here.data.size_in_bytes)
        with box.budget.watching(box.lake.spark):
            read = sum(rows_read(box.lake.spark, box.name, term, where) for where in wheres)
        figures.append((read, box.observe().data.size_in_bytes))
    (without, bytes_without), (with_it, bytes_with) = figures
    return BloomTrial(check.column, len(lookups), without, with_it, bytes_without, bytes_with)


def rows_read(spark: SparkSession, table: Identifier, column: str, where: str) -> int:
    """Rows that a scan reads for a query: the rows of all row groups that statistics do not rule out.

    The scan's own metric: Iceberg's readers pass complete row groups to Spark, which filters the rows. ``column`` is SQL.
    """
    frame = spark.sql(f"SELECT count({column}) FROM {identifier(*table)} WHERE {where}")
    frame.collect()
    scans = [n for n in nodes(query_of_frame(frame).executedPlan()) if kind(n) == "BatchScanExec"]
    return sum(int(n.metrics().apply("numOutputRows").value()) for n in scans)


# --- The answer: how filters find a table's partitions, files and row groups, and what to change


@dataclass(frozen=True, repr=False)
class Layout(Answer):
    """The bytes that filters read of a table now, of other layouts on a sample, and of the layout tried; see :func:`tune_layout`.

    ``share_now`` is the weighted share of the data bytes that the filters read: from Iceberg's planner, or from the sample if
    ``is_measured`` is false. ``doubt`` says why another sample might lead to another layout. ``notes`` say what was left out and why.
    ``reads_per_day`` is how often such a filter is asked, 0 if not known.
    """

    question: ClassVar[str] = "layout"

    levels: tuple[Level, ...]
    share_now: float
    is_measured: bool
    sampled_rows: int
    orders: Orders
    candidates: tuple[LayoutCandidate, ...]
    worn: tuple[Overlap, ...]
    blooms: tuple[BloomCheck, ...]
    bloom_trials: tuple[BloomTrial, ...]
    sizing: Sizing | None
    tried: TriedLayout | None
    notes: tuple[str, ...]
    doubt: str | None = None
    reads_per_day: float = 0.0

    @property
    def reads_until_paid(self) -> int | None:
        """After how many queries the bytes that they no longer read equal those that the rewrite reads and writes; None without a trial that saves any."""
        if self.tried is None:
            return None
        grown = self.tried.bytes_after / max(self.tried.bytes_before, 1)
        saved = self.tried.share_before - self.tried.share_after * grown
        return math.ceil((1 + grown) / saved) if saved > 0 else None

    def with_reads(self, reads_per_day: float) -> Layout:
        """The answer for so many queries a day: no advice to rewrite existing data files if that is paid back too late."""
        paid, days = self.reads_until_paid, float(PAYBACK_DAYS)
        if not reads_per_day or paid is None or paid / reads_per_day <= days:
            return replace(self, reads_per_day=reads_per_day)
        late = (
            f"Queries would pay a rewrite of the existing data files back in {span(paid / reads_per_day * _DAY_MS)} ({paid:,} queries): let them stay, "
            "and new files have the new layout."
        )
        kept = (
            replace(a, proposed=a.current, evidence=late, sql=None, undo=None, breaks=None) if a.setting == OLD_DATA else a
            for a in self.advice
        )
        return replace(self, reads_per_day=reads_per_day, advice=tuple(kept))

    def verdict(self) -> str:
        """The partitions and the order to set and the bytes that filters then read, or that nothing should change."""
        changes = {a.setting: a for a in self.advice if a.is_change and not a.is_alternative}
        parts = [_partitioned(changes[SPEC].proposed)] if SPEC in changes else []
        if ORDER in changes:
            parts.append(f"sort by {changes[ORDER].proposed}")
        elif OLD_DATA in changes:
            parts.append("sort partitions again whose files overlap" if self.worn else "rewrite existing data files")
        properties = [a for a in changes.values() if a.setting not in {SPEC, ORDER, OLD_DATA}]
        others = [a.setting for a in properties if a.proposed != NOT_SET]
        removed = [a.setting for a in properties if a.proposed == NOT_SET]
        parts += [f"set {', '.join(others)}"] if others else []
        parts += [f"unset {', '.join(removed)}"] if removed else []
        if not self.levels:
            known = "the filters of your queries are not known, so there is no advice on partitions and order. Give filters, or declare columns (icekit.filter-columns)."
            return f"{raised(' and '.join(parts))}; {known}" if parts else f"No advice: {known}"
        now = percent(self.share_now)
        if not parts:
            return f"No change: filters read {now} of the bytes, and no layout that was compared saves enough."
        then = ""
        # A trial that was not kept says nothing of what is advised.
        if self.tried is not None and {SPEC, ORDER, OLD_DATA} & changes.keys():
            on = f"on a sample of {percent(1 / self.tried.scale)} of the table " if self.tried.is_sample else ""
            read = f"filters read {percent(self.tried.share_after)} of the bytes instead of {percent(self.tried.share_before)}"
            fewer = f"{count(self.tried.files_after, 'data file')} instead of {self.tried.files_before:,}"
            then = f": {on}{f'{fewer}; {read}' if self.tried.share_after > self.tried.share_before else read}"
        return f"{raised(' and '.join(parts))}{then}."

    def effects(self) -> list[Effect]:
        """The effects in the trial: bytes that filters read, files and bytes of the table, the cost of the rewrite."""
        lookups = [
            Effect(f"rows read by {count(t.lookups, 'lookup')} on {t.column}", f"{t.rows_without:,}", f"{t.rows_with:,}")
            for t in self.bloom_trials
            if any(a.is_change and not a.is_alternative and a.setting.endswith(f".column.{t.column}") for a in self.advice)
        ]
        tried = self.tried
        if tried is None or not any(a.is_change for a in self.advice if a.setting in {SPEC, ORDER, OLD_DATA}):
            return lookups
        of = " of the sample" if tried.is_sample else ""
        found = [
            Effect(f"bytes that filters read{of}", percent(tried.share_before), percent(tried.share_after)),
            Effect(f"data files{of}", f"{tried.files_before:,}", f"{tried.files_after:,}", tried.files_after > tried.files_before),
            Effect(f"data bytes{of}", size(tried.bytes_before), size(tried.bytes_after), tried.bytes_after > tried.bytes_before),
        ]
        if any(a.setting == OLD_DATA and a.is_change for a in self.advice):
            whole = tried.seconds * tried.scale if tried.is_sample else tried.seconds
            found.append(
                Effect(
                    "one-time rewrite of existing data files",
                    "–",
                    f"{size(self.facts.data.size_in_bytes)}, about {elapsed(whole)}",
                    is_cost=True,
                )
            )
            paid = self.reads_until_paid
            if paid is not None:
                days = f", in {span(paid / self.reads_per_day * _DAY_MS)}" if self.reads_per_day else ""
                found.append(Effect("queries until the rewrite is paid back, in bytes read", "–", f"{paid:,}{days}"))
        return found + lookups

    def confidence(self) -> str:
        """Whether the layout was written, or only computed from sampled rows; near-equal layouts lower it."""
        doubt = f" But {self.doubt}." if self.doubt else ""
        if self.tried is not None:
            part = self.tried.is_sample
            how = f"written to a copied sample of {percent(1 / self.tried.scale)} of the table" if part else "written to a clone"
            return tried_or_not(
                self,
                level=("low" if part else "medium") if doubt else "medium" if part else "high",
                why=f"the layout was {how}, and Iceberg planned the filters there.{doubt}",
            )
        if not self.levels:
            return "low: no filters are known."
        sampled = f"orders and partitions were compared on {count(self.sampled_rows, 'sampled row')} only"
        return tried_or_not(self, level="low" if self.is_change or doubt else "medium", why=f"{sampled}; no layout was written.{doubt}")

    def tables(self) -> dict[str, Grid]:
        """Bytes that filters read, orders, specs, the trial, partitions with overlapping files, bloom filters."""
        return {
            "levels": _levels(self),
            "orders": _orders(self),
            "specs": _specs(self),
            "tried": _tried(self),
            "worn": _worn(self),
            "blooms": _blooms(self),
        }

    def basis(self) -> Sequence[str]:
        """The sample, and what was left out."""
        found = []
        if self.levels:
            found.append(
                f"Orders and specs were compared on {count(self.sampled_rows, 'sampled row')}; the bytes that filters read now are "
                + (
                    "from Iceberg's planner."
                    if self.is_measured
                    else "estimated from the sample, because Iceberg's planner was not available."
                )
            )
        ignored = [level.text for level in self.levels if level.is_ignored_by_spec]
        if ignored and not self.facts.default_spec.is_unpartitioned:
            found.append(f"Partitions skip no files for these filters: {'; '.join(ignored[:5])}{' …' if len(ignored) > 5 else ''}.")
        old = {g.partition.spec_id for g in self.facts.groups} - {self.facts.default_spec_id}
        if old:
            found.append(
                f"Some data files still use older specs ({', '.join(map(str, sorted(old)))}), and filters skip them by these specs."
            )
        if self.sizing is not None and self.sizing.heap_bytes is None:
            found.append("A task's memory is not known (spark.executor.cores is not set), so row groups were not compared with it.")
        return [*found, *self.notes]


#: The most rows in a table of filters or specs.
_MOST = 12
_DAY_MS = 86_400_000


def _levels(answer: Layout) -> Grid:
    columns = {
        "filter": NAME,
        "weight": NUMBER,
        "share_left_by_partitions": SHARE("bytes after partitions"),
        "ignored_by_spec": FLAG("partitions skip nothing"),
        "manifests_read": NUMBER,
        "manifests_skipped": NUMBER,
        "data_files": NUMBER,
        "share_left_by_bounds": SHARE("bytes after bounds"),
    }
    by_spec = not answer.facts.default_spec.is_unpartitioned
    rows = [
        (
            v.text,
            v.weight,
            v.partition_share,
            v.is_ignored_by_spec if by_spec else None,
            v.manifests,
            v.skipped_manifests,
            v.files,
            v.file_share,
        )
        for v in answer.levels
    ]
    return Grid("Bytes that filters read now (a filter without values shows the mean of several lookups)", columns, rows, _MOST)


def _orders(answer: Layout) -> Grid:
    orders = answer.orders
    columns = {"columns": COUNT, "kind": TEXT, "order": TEXT, "share_read": SHARE("bytes read"), "is_best": FLAG("best")}
    rows: list[tuple[object, ...]] = [(None, "current", "order of arrival", orders.as_they_came, False)]
    if orders.own is not None:
        rows.append((None, "current", "sort order of the table", orders.own, False))
    rows += [
        (number, order.kind, ", ".join(order.columns), share, orders.best is not None and order == orders.best.order)
        for number, step in enumerate(orders.steps, 1)
        for order, share in step.shares
    ]
    coarse = ", estimated with fewer and larger files than the table has" if orders.is_coarse else ""
    return Grid(f"Sort orders on the sample{coarse}", columns, rows if orders.steps else [])


def _specs(answer: Layout) -> Grid:
    columns = {
        "spec": TEXT("partition spec"),
        "is_now": FLAG("now"),
        "share_read": SHARE("bytes read"),
        "partitions": COUNT,
        "new_partitions_a_year": COUNT("new a year"),
        "mean_bytes": BYTES("mean"),
        "largest_bytes": BYTES("largest"),
        "is_well_filled": FLAG("partitions large enough"),
        "order": TEXT("sorted by"),
    }
    here, *others = answer.candidates or (None,)
    ranked = sorted(others, key=lambda c: (not c.fits, c.share))
    rows = [
        (
            c.name,
            c is here,
            c.share,
            c.spread.partitions,
            round(c.spread.a_year) or None,
            c.spread.mean_bytes,
            c.spread.largest_bytes,
            c.fits,
            c.order.name if c.order else None,
        )
        for c in (here, *ranked)
        if c is not None
    ]
    return Grid("Partition specs on the sample, with rows sorted within partitions", columns, rows, _MOST)


def _tried(answer: Layout) -> Grid:
    columns = {"layout": TEXT, "share_read": SHARE("bytes read"), "data_files": COUNT, "size_in_bytes": BYTES("size")}
    t = answer.tried
    rows = [(t.before, t.share_before, t.files_before, t.bytes_before), ("tried", t.share_after, t.files_after, t.bytes_after)] if t else []
    return Grid("The layout tried", columns, rows)


def _worn(answer: Layout) -> Grid:
    columns = {"partition": NAME, "data_files": COUNT, "size_in_bytes": BYTES("size"), "depth": NUMBER("files a lookup opens")}
    rows = [(w.path or "the table", w.files, w.size_in_bytes, w.depth) for w in answer.worn]
    return Grid("Partitions whose files overlap on the first sort column", columns, rows, _MOST)


def _blooms(answer: Layout) -> Grid:
    columns = {
        "column": TEXT("bloom filter on"),
        "lookups": COUNT,
        "rows_without": COUNT("rows read without"),
        "rows_with": COUNT("with"),
        "bytes_without": BYTES("data without"),
        "bytes_with": BYTES("with"),
    }
    rows = [(t.column, t.lookups, t.rows_without, t.rows_with, t.bytes_without, t.bytes_with) for t in answer.bloom_trials]
    return Grid("Bloom filters tried", columns, rows)


# --- Answer the question: measure, compare on sampled rows, try the best, advise


#: The number of filters with values to compare layouts with; the most frequent ones.
MOST_BOUND = 96
#: The share of the time budget for planning lookups on the current table.
PLANNING = 0.2
#: The most columns to sample: columns of the spec, of the order, and of the most frequent filters.
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
    reads_per_day: float = 0.0,
    budget_seconds: float = BUDGET_SECONDS,
    budget_bytes: str = BUDGET_BYTES,
    sample_bytes: str = "1 GB",
    trial: bool = True,
    progress: Callable[[str], None] = print,
) -> Layout:
    """Advise on a table's partitioning, sort order and bloom filters for its filters; only reads the table.

    Filters are ``filters`` (SQL predicates or queries), those of a Spark ``event_log`` or of Iceberg ``scan_reports``, or else point
    lookups on the declared columns. Orders of up to ``max_sort_columns`` columns and other partition specs are compared on
    sampled rows, from at most ``sample_bytes`` of data files. The best layout is written to a clone (to a copied sample of
    ``sample_bytes`` if the table is larger), where Iceberg plans the same filters; advice that this does not confirm is dropped.
    Without ``trial`` nothing is written, and the advice comes only from the sample. With ``reads_per_day``, how many such queries
    run in a day, the answer says after which time the rewrite of the existing data files is paid back.

    A trial that reaches ``budget_seconds`` or ``budget_bytes`` (data written) stops and says so.

    Raises :class:`~icekit.errors.ParameterError` for parameters and filters that cannot be read, and for a table without data.
    """
    if max_sort_columns < 1:
        raise ParameterError(f"max_sort_columns is {max_sort_columns}, but must be 1 or more.")
    require_number("reads_per_day", reads_per_day)
    attempt = Trial.of(lake, table, Budget(budget_seconds, budget_bytes), sample_bytes, progress, if_empty="there is no layout to tune")
    facts = attempt.facts
    with session_of(lake):
        found = read_filters(lake, facts, sql=filters, event_log=event_log, scan_reports=scan_reports)
        progress(f"{facts.name}: {count(len(found.filters), 'different filter')}")
        drawn, notes = _drawn(attempt, found)
        bound = _most(bind(found.filters, drawn))
        plan = partial(plan_scan, lake.spark, lake.sql_name(facts.table))
        opened = plans(plan, facts, bound, progress, seconds=PLANNING * budget_seconds)
        # All layouts are compared with the same lookups.
        bound = tuple(f for f in bound if f in opened) if opened else bound
        asked = AskedFilters(found=found, bound=bound, opened=opened)
        answer = _answer(attempt, asked, drawn, (*found.notes, *notes), max_sort_columns, is_tried=trial)
        return answer.with_reads(reads_per_day)


def _answer(trial: Trial, asked: AskedFilters, drawn: Sample, notes: Sequence[str], most: int, *, is_tried: bool) -> Layout:
    """Compare layouts on the sampled rows, try the best, and advise what the trial confirms."""
    facts = trial.facts
    current, own, bound = fields_of(facts.default_spec), own_order(facts), asked.bound
    columns = {name: facts.by_name[name] for name in drawn.columns}
    rows = SampleRows.of(
        drawn,
        {name: column.type for name, column in columns.items()},
        facts.data.size_in_bytes,
        facts.target_bytes,
        {name: column.metrics_mode for name, column in columns.items()},
        {name for name, column in columns.items() if len(column.names) > 1},
    )
    trial.progress(f"comparing layouts on {count(rows.rows, 'sampled row')}")
    orders, scored, share_now, left = _compared(trial, rows, asked, most)
    proposal = propose(facts, current, own, orders, scored, share_now)
    worn: tuple[Overlap, ...] = ()
    if proposal.is_worn and own is not None:
        worn = worn_partitions(trial.lake, facts, own.columns[0])
    # Bloom filters are judged with the advised layout.
    after = rows.read(proposal.spec, proposal.order or (own if proposal.is_worn else None), bound) if rows.rows else None
    checks = check_blooms(facts, asked.found.filters, rows.columns, share_by_column(after.shares if after else {}))
    ran = LayoutTrial()
    if is_tried:
        proposal, ran = try_proposal(trial, asked, proposal, orders, checks)
    is_kept = is_confirmed(facts, proposal, ran.tried) if ran.tried is not None else not is_tried or proposal.change(current) is None
    # Without a new layout, lookups read the same bytes as now.
    shares = {f: p.share_of(facts.data.size_in_bytes) for f, p in asked.opened.items()} or rows.read(current, own, bound).shares
    checks_now = check_blooms(facts, asked.found.filters, rows.columns, share_by_column(shares))
    alternatives: list[Advice] = []
    if is_kept and is_tried and trial.stopped is None:
        cheaper = lookups_of(proposal.spec, current, asked.found.filters, checks_now)
        if cheaper:
            alternatives = advise_instead(facts, cheaper, run_trial(trial, asked, None, cheaper).blooms)
    if not is_kept:
        checks = checks_now
        if is_tried:
            ran.blooms = try_proposal(trial, asked, LayoutProposal(current, None, share_now), orders, checks)[1].blooms
    sizing = clustering.sizing(facts, cluster_of(trial.lake.spark).task_heap_bytes)
    version = clustering.version(facts)
    found = LayoutComparison(
        proposal=proposal,
        orders=orders,
        candidates=scored,
        worn=worn,
        share_now=share_now,
        tried=ran.tried,
        is_kept=is_kept,
    )
    advice = (
        *advise_layout(facts, found),
        *alternatives,
        *advise_blooms(facts, checks, ran.blooms),
        *clustering.advise(facts, sizing),
        *([version] if version else []),
    )
    return Layout(
        facts=facts,
        # Existing data files are rewritten last, after all settings that affect writes.
        advice=tuple(sorted(advice, key=lambda a: a.setting == OLD_DATA)),
        stopped=trial.stopped,
        levels=levels(facts, bound, asked.opened),
        share_now=share_now,
        is_measured=bool(asked.opened),
        sampled_rows=rows.rows,
        orders=orders,
        candidates=tuple(scored),
        worn=worn,
        blooms=checks,
        bloom_trials=tuple(ran.blooms.values()),
        sizing=sizing,
        tried=ran.tried,
        notes=(*notes, *left),
        doubt=_doubt(facts, proposal, ran.tried),
    )


def _doubt(facts: TableFacts, proposal: LayoutProposal, tried: TriedLayout | None) -> str | None:
    """Why another run might lead to another layout: near-equal layouts on the sample, or a trial near the limit."""
    if proposal.doubt is not None or tried is None or proposal.coarser:
        return proposal.doubt
    files = tried.files_before if tried.is_sample else facts.data.file_count
    near = is_close(tried.share_before, tried.share_after, files)
    return f"in the trial, {close_to_limit(tried.share_before, tried.share_after)}" if near else None


def try_proposal(
    trial: Trial, asked: AskedFilters, proposal: LayoutProposal, orders: Orders, checks: Sequence[BloomCheck]
) -> tuple[LayoutProposal, LayoutTrial]:
    """The result of the trial, and the proposal after it: a sort if a curve is no better."""
    current, wanted = fields_of(trial.facts.default_spec), [c for c in checks if c.reason is None and not c.is_there]
    change = proposal.change(current)
    if change is None and not wanted:
        return proposal, LayoutTrial()
    unset = unused_blooms(trial.facts, checks)
    ran = run_trial(trial, asked, change, wanted, unset=unset)
    simpler = proposal.simpler(orders, ran.tried)
    if simpler is None or ran.tried is None:
        return proposal, ran
    trial.progress("the curve is no better than the prediction for a sort; trying the sort")
    again = run_trial(trial, asked, simpler.change(current), unset=unset)
    if again.tried is None or again.tried.share_after > ran.tried.share_after * (1 + PAYS):
        return proposal, ran
    ran.tried = again.tried
    return simpler, ran


def _compared(trial: Trial, rows: SampleRows, asked: AskedFilters, most: int) -> tuple[Orders, list[LayoutCandidate], float, list[str]]:
    """Orders and specs on the sample, the bytes that filters read now, and notes on what was left out for lack of time.

    Empty without filters or rows.
    """
    facts, bound = trial.facts, asked.bound
    spec, own, none = fields_of(facts.default_spec), own_order(facts), Orders(1.0, None, (), None)
    measured = share_read(facts, asked.opened)
    if not bound or not rows.rows:
        return none, [], measured if measured is not None else 1.0, []
    search = Search(rows, bound, asked.found.columns, most, facts.data.file_count, trial.budget.check)
    try:
        orders = search.choose(spec, own)
    except BudgetSpent as error:
        return none, [], measured if measured is not None else 1.0, [f"Orders and specs were not compared: {error}."]
    share_now = measured if measured is not None else orders.as_they_came
    followed = own if own is not None and orders.own is not None else orders.best.order if orders.best is not None else None
    better = orders.best is not None and orders.own is not None and orders.best.share < orders.own * 0.8
    order = orders.best.order if better and orders.best is not None else followed
    try:
        scored = search.score(candidates(rows, spec, bound, asked.found.columns), order)
        return orders, search.with_own_orders(scored), share_now, []
    except BudgetSpent as error:
        return orders, [], share_now, [f"Specs were not compared: {error}."]


def _drawn(trial: Trial, found: Filters) -> tuple[Sample, list[str]]:
    """Sampled rows of the relevant columns, within the budget if Spark's work can be cancelled, and notes on what was left out."""
    lake, facts = trial.lake, trial.facts
    top = set(lake.spark.table(identifier(*lake.sql_name(facts.table))).columns)
    # A field inside a list or a map has several values per row; its dotted name has no path.
    known = {c.name: c.type for c in facts.columns if c.path or c.name in top}
    inside = [c for c in found.columns if c not in known]
    # Without the columns of the spec and the order, the current layout cannot be compared.
    wanted = [*(f.column for f in fields_of(facts.default_spec)), *(f.source for f in facts.sort_order), *found.columns]
    usable = [c for c in dict.fromkeys(wanted) if known.get(c, "").startswith(_SAMPLED)]
    names, left = usable[:MOST_SAMPLED], usable[MOST_SAMPLED:]
    notes = [f"Filters on {name} cannot be used: it is inside a list or a map, whose values have no order in a file." for name in inside]
    if left:
        notes.insert(
            0,
            f"Columns left out: {', '.join(left)}. At most {MOST_SAMPLED} columns are sampled: columns of the partitioning and the sort order first, then of the most frequent filters.",
        )
    try:
        with trial.budget.watching(lake.spark):
            return sample(lake, facts, names, sample_bytes=trial.sample_bytes), notes
    except BudgetSpent as error:
        return Sample({name: [] for name in names}, facts.data.record_count), [*notes, f"No rows were sampled: {error}."]


def _most(bound: Sequence[Filter]) -> tuple[Filter, ...]:
    """The most frequent filters; lookups with the same value count as one, with their total weight."""
    weights: dict[Filter, float] = {}
    for one in bound:
        plain = replace(one, weight=1.0)
        weights[plain] = weights.get(plain, 0.0) + one.weight
    merged = [replace(one, weight=weight) for one, weight in weights.items()]
    return tuple(sorted(merged, key=lambda f: -f.weight)[:MOST_BOUND])


def _partitioned(spec: str | None) -> str:
    return "remove the partitioning" if spec == spec_name(()) else f"partition by {spec}"


__all__ = ["Layout", "tune_layout"]
