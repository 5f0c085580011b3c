"""Answer how a table should be laid out for its filters: sort orders, a coarser and a finer
partition spec and a bloom filter, each written and planned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from icekit.answer.grid import BYTES, COUNT, NUMBER, SECONDS, SHARE
from icekit.catalog.lake import session_of
from icekit.engine.planner import kind, nodes, query_of_frame
from icekit.errors import require_number
from icekit.facts.metadata import ROW_GROUP, TARGET
from icekit.facts.model import TableFacts
from icekit.facts.sort_order import undo_order
from icekit.sandbox.trial import BUDGET_BYTES, BUDGET_SECONDS, Budget, Sandbox, Trial
from icekit.sql import Identifier, identifier, set_properties
from icekit.tune import ddl
from icekit.tune.answer import Answer, Change, Confidence, Measure, Measurements, to_set
from icekit.tune.ddl import SORT, ZORDER, Field, RowOrder, fields_of, own_order, spec_name
from icekit.tune.experiment import Experiment, SetUp, mean, unchanged
from icekit.tune.filters import EQUALITY, NULLS, Filter, leaves, predicates
from icekit.tune.queries import Sample, bind, read_filters, sample
from icekit.units import count, percent, plain, size, span

if TYPE_CHECKING:
    from icekit.catalog import Lake

NOW = "now"
READ, OPENED, ROWS = (
    "bytes that filters read",
    "data files that a query opens",
    "rows that lookups read",
)
FILES, SIZE, REWRITE = "data files", "bytes of data files", "time to rewrite the data files"
_MEASURES = (
    Measure(READ, SHARE),
    Measure(OPENED, NUMBER),
    Measure(FILES, COUNT),
    Measure(SIZE, BYTES),
    Measure(ROWS, COUNT),
    Measure(REWRITE, SECONDS, is_cost=True),
)
SPEC, ORDER = "partition spec", "sort order"
_ENABLED, _NDV = (
    "write.parquet.bloom-filter-enabled.column.",
    "write.parquet.bloom-filter-ndv.column.",
)
# : Choices: the filters to plan, those with the greatest weight; the lookups of a bloom filter; the
# rows and the columns to sample.
_MOST_FILTERS, _LOOKUPS, _SAMPLED_ROWS, _MOST_COLUMNS = 48, 8, 20_000, 6
# : Choices: the share of what filters read that a layout must save, and what a simpler layout may
# read more than the best, as a share of that.
_GAIN, _SIMPLER = 0.2, 0.1
# : Choices: how much larger another layout may make the data; the days within which queries must
# pay a rewrite back.
_GROWN, _PAYBACK_DAYS = 1.25, 365
#: The smallest target file size of a scaled-down sample.
_LEAST_TARGET = 64 << 10
_WHOLE = {"partial-progress.enabled": "false"}
_COARSER = {"hour": "day", "day": "month", "month": "year"}
#: Transforms of times, and the microseconds of a unit, the coarsest first.
_UNITS = {"year": 365 * 86_400_000_000, "month": 30 * 86_400_000_000, "day": 86_400_000_000}


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout to try: a partition spec, an order of rows within partitions (None: the table's
    own), and a column with a bloom filter.
    """

    spec: tuple[Field, ...]
    order: RowOrder | None = None
    bloom: str = ""
    is_coarser: bool = False

    def name(self, current: Sequence[Field]) -> str:
        """The name of the variant."""
        if self.bloom:
            return f"bloom filter on {self.bloom}"
        order = (
            f"sorted by {self.order}"
            if self.order is not None and self.order.kind == SORT
            else str(self.order or "sorted again")
        )
        if self.spec == tuple(current):
            return order
        return f"by {spec_name(self.spec)}" + (f", {order}" if self.order is not None else "")


def column_weights(facts: TableFacts, filters: Sequence[Filter]) -> dict[str, float]:
    """The columns in filters that rows can be sorted by, with how often they are used, most often
    first.
    """
    weights: dict[str, float] = {}
    for one in filters:
        for column in {leaf.column for leaf in leaves(one.tree) if leaf.kind != NULLS}:
            weights[column] = weights.get(column, 0.0) + one.weight
    known = facts.by_name
    usable = (
        c
        for c in weights
        if c in known and not known[c].type.startswith(("struct", "list", "map", "variant", "geo"))
    )
    return {column: weights[column] for column in sorted(usable, key=lambda c: -weights[c])}


def layouts(facts: TableFacts, filters: Sequence[Filter], drawn: Sample) -> tuple[Layout, ...]:
    """The layouts to try, the simplest first: the own order again, one and two sort columns,
    z-order, a coarser and a finer spec, a bloom filter.
    """
    current, own = fields_of(facts.default_spec), own_order(facts)
    single = {f.column for f in current if f.transform == "identity"}
    first, second = ([c for c in column_weights(facts, filters) if c not in single] + ["", ""])[:2]
    found: list[Layout] = []
    if facts.sort_order and (own is None or own.columns[0] == first):
        found.append(Layout(current))
    orders = [RowOrder(SORT, (first,))] if first else []
    if second:
        orders += [
            RowOrder(SORT, (first, second)),
            RowOrder(SORT, (second, first)),
            RowOrder(ZORDER, (first, second)),
        ]
    found += [Layout(current, order) for order in orders if order != own]
    coarser = coarser_spec(facts, current)
    if coarser is not None:
        found.append(Layout(coarser, orders[0] if orders else None, is_coarser=True))
    finer = next(
        (
            f
            for c in (first, second)
            if c and (f := finer_field(facts, c, filters, drawn)) is not None
        ),
        None,
    )
    if finer is not None and finer not in current:
        rest = second if finer.column == first else first
        found.append(Layout((*current, finer), RowOrder(SORT, (rest,)) if rest else None))
    looked_up = next(
        (
            c
            for c in (first, second)
            if c and _is_looked_up(c, filters) and _distinct_share(drawn, c) > _GAIN
        ),
        "",
    )
    if looked_up and facts.properties.get(_ENABLED + looked_up, "").lower() != "true":
        found.append(Layout(current, bloom=looked_up))
    return tuple(found)


def coarser_spec(facts: TableFacts, current: tuple[Field, ...]) -> tuple[Field, ...] | None:
    """The spec with a coarser last time field, or without its last field, where partitions are
    smaller than a well-sized file; None elsewhere.
    """
    if not current or facts.mean_partition_bytes >= facts.target_bytes / 2:
        return None
    place = next(
        (i for i in reversed(range(len(current))) if current[i].transform in _COARSER), None
    )
    if place is None:
        return current[:-1]
    field, mean = current[place], facts.mean_partition_bytes
    for factor in (30, 12):
        if field.transform in _COARSER and mean < facts.target_bytes / 2:
            field, mean = (
                Field(field.column, _COARSER[field.transform]),
                mean * (24 if field.transform == "hour" else factor),
            )
    return (*current[:place], field, *current[place + 1 :])


def finer_field(
    facts: TableFacts, column: str, filters: Sequence[Filter], drawn: Sample
) -> Field | None:
    """One more partition field with which partitions still hold two files of the target size; None
    where none does.
    """
    most = facts.mean_partition_bytes / max(1, 2 * facts.target_bytes)
    values = set(drawn.get(column, ()))
    column_type = facts.by_name[column].type
    if most < 2 or not values:
        return None
    if column_type.startswith(("date", "timestamp")):
        scale = 86_400_000_000 if column_type == "date" else 1
        fits = [
            unit
            for unit, micros in _UNITS.items()
            if 2 <= len({int(v) * scale // micros for v in values}) <= most
        ]
        return Field(column, fits[-1]) if fits else None
    if len(values) <= most:
        return Field(column, "identity")
    if not _is_looked_up(column, filters) or column_type.startswith(("float", "double", "boolean")):
        return None
    return Field(column, f"bucket[{1 << int(math.log2(most))}]")


def _is_looked_up(column: str, filters: Sequence[Filter]) -> bool:
    kinds = {
        leaf.kind
        for f in filters
        for leaf in leaves(f.tree)
        if leaf.column == column and leaf.kind != NULLS
    }
    return kinds == {EQUALITY}


def _distinct_share(drawn: Sample, column: str) -> float:
    values = drawn.get(column, [])
    return len(set(values)) / max(len(values), 1)


def chosen(measured: Measurements, tried: Mapping[str, Layout]) -> str | None:
    """The variant to advise: the simplest that reads little more than the best, if that saves
    enough; None if none does.

    A coarser spec is advised for its fewer files, if filters read no more with it.
    """
    before, files = measured.value(NOW, READ), measured.value(NOW, FILES) or 1.0
    if before is None:
        return None
    most = _GROWN * (measured.value(NOW, SIZE) or math.inf)
    reads = {
        name: read
        for name, layout in tried.items()
        if not layout.bloom
        and (read := measured.value(name, READ)) is not None
        and (measured.value(name, SIZE) or 0.0) <= most
    }
    # A difference of less than a file is none.
    saving = {
        name: read
        for name, read in reads.items()
        if before - read >= max(_GAIN * before, 1 / files)
    }
    if saving:
        best = min(saving.values())
        return next(name for name, read in saving.items() if read - best <= _SIMPLER * before)
    return next(
        (
            name
            for name, read in reads.items()
            if tried[name].is_coarser
            and (measured.value(name, FILES) or files) <= files / 2
            and read <= before + max(_SIMPLER * before, 1 / files)
        ),
        None,
    )


def saves_by_bloom(measured: Measurements, name: str) -> bool:
    """Tell whether a bloom filter saves more of the rows that lookups read than it makes files
    grow.
    """
    before, after = measured.value(NOW, ROWS), measured.value(name, ROWS)
    sizes = measured.value(NOW, SIZE), measured.value(name, SIZE)
    if not before or after is None or not sizes[0] or sizes[1] is None:
        return False
    return 1 - after / before - max(0.0, sizes[1] / sizes[0] - 1) >= _GAIN


def queries_until_paid(measured: Measurements, name: str) -> int | None:
    """After how many queries the bytes that they no longer read equal those that the rewrite reads
    and writes; None if it saves none.
    """
    values = [
        measured.value(variant, measure) for variant in (NOW, name) for measure in (READ, SIZE)
    ]
    if any(value is None for value in values):
        return None
    read_before, size_before, read_after, size_after = (float(value or 0.0) for value in values)
    saved = read_before * size_before - read_after * size_after
    return math.ceil((size_before + size_after) / saved) if saved > 0 else None


def tune_layout(
    lake: Lake,
    table: str | Identifier,
    *,
    filters: Sequence[str] = (),
    event_log: str = "",
    reads_per_day: float = 0,
    budget_seconds: float = BUDGET_SECONDS,
    budget_bytes: str = BUDGET_BYTES,
    sample_bytes: str = "1 GB",
    progress: Callable[[str], None] = print,
) -> Answer:
    """Write other sort orders and partition specs to clones, and let Iceberg plan the filters of
    queries on each; only reads the table.

    Filters are ``filters`` (SQL predicates or queries), those of a Spark ``event_log``, or else
    point lookups on the declared columns. A table larger than ``sample_bytes`` is tried on copied
    samples of that size, with files scaled down like partitions. With ``reads_per_day``, a layout
    that such queries do not pay back within a year is not advised.

    Raises :class:`~icekit.errors.ParameterError` for parameters and filters that cannot be read,
    and for a table without data.
    """
    require_number("reads_per_day", reads_per_day)
    trial = Trial.of(
        lake,
        table,
        Budget(budget_seconds, budget_bytes),
        sample_bytes,
        progress,
        if_empty="there is no layout to tune",
    )
    facts = trial.facts
    with session_of(lake):
        queries = read_filters(lake, facts, sql=filters, event_log=event_log)
        columns = list(column_weights(facts, queries.filters))[:_MOST_COLUMNS]
        if not columns:
            return _unknown(facts, queries.notes)
        drawn = sample(lake, facts, columns, rows=_SAMPLED_ROWS, sample_bytes=trial.sample_bytes)
        current = fields_of(facts.default_spec)
        tried = {layout.name(current): layout for layout in layouts(facts, queries.filters, drawn)}
        variants: dict[str, SetUp] = {NOW: unchanged}
        rewriting: dict[str, float] = {}
        variants |= {
            name: partial(_write, facts=facts, layout=layout, name=name, seconds=rewriting)
            for name, layout in tried.items()
        }
        experiment = Experiment(
            trial=trial, variants=variants, measures=_MEASURES, always_sample=trial.is_large
        )
        progress(
            f"{facts.name}: {count(len(queries.filters), 'different filter')}, "
            f"{count(len(tried), 'layout')} to write"
        )
        with experiment.open():
            box = experiment.boxes.get(NOW)
            if box is not None and box.is_sample:
                # Values from the sample, which may not have those of the table; and files in the
                # scale of the others.
                _write(box, facts, Layout(current), NOW, {}, is_sorted=False)
                drawn = sample(lake, box.observe(), columns, rows=_SAMPLED_ROWS)
            bound = sorted(bind(queries.filters, drawn), key=lambda f: -f.weight)[:_MOST_FILTERS]
            asked = predicates(bound, facts.by_name)
            blooms = {layout.bloom for layout in tried.values() if layout.bloom}
            lookups = {
                c: [where for f, where in asked if f.columns == (c,)][:_LOOKUPS] for c in blooms
            }
            experiment.measure(
                "the filters",
                partial(_measure, asked=asked, tried=tried, lookups=lookups, seconds=rewriting),
            )
    return _answer(trial, experiment, tried, queries.notes, reads_per_day)


def _unknown(facts: TableFacts, notes: Sequence[str]) -> Answer:
    return Answer(
        question="layout",
        facts=facts,
        verdict="No advice: the filters of your queries are not known. Give filters, an event "
        "log, or declare icekit.filter-columns.",
        confidence=Confidence.NONE,
        because="without filters, no layout is better than another.",
        notes=tuple(notes),
    )


def _write(
    box: Sandbox,
    facts: TableFacts,
    layout: Layout,
    name: str,
    seconds: dict[str, float],
    *,
    is_sorted: bool = True,
) -> None:
    """Write a layout to a sandbox; the files of a sample are scaled down like its partitions, so
    that a partition has as many as in the table.
    """
    existing = box.observe()
    if box.is_sample:
        ratio = min(1.0, existing.mean_partition_bytes / max(facts.mean_partition_bytes, 1.0))
        target = max(_LEAST_TARGET, round(facts.target_bytes * ratio))
        group = max(_LEAST_TARGET // 2, min(facts.int_setting(ROW_GROUP), target // 2))
        box.set(set_properties(box.name, {TARGET: str(target), ROW_GROUP: str(group)}))
    box.set(
        "; ".join(
            ddl.change_spec(box.name, facts.by_name, fields_of(facts.default_spec), layout.spec)
        )
    )
    if layout.bloom:
        box.set(set_properties(box.name, _bloom_properties(facts, layout.bloom)))
    by_table = is_sorted and layout.order is None and bool(facts.sort_order)
    done = box.run(
        ddl.rewrite(box.name, facts.by_name, layout.order, options=_WHOLE, by_table=by_table),
        expected_bytes=box.size_in_bytes,
    )
    seconds[name] = done.seconds * box.scale


def _bloom_properties(facts: TableFacts, column: str) -> dict[str, str]:
    """The properties of a bloom filter; without the number of distinct values each row group gets
    one of the largest size.
    """
    row_bytes = facts.data.size_in_bytes / max(facts.data.record_count, 1)
    rows = round(min(facts.int_setting(ROW_GROUP), facts.target_bytes) / max(row_bytes, 1e-9))
    return {
        _NDV + column: str(max(1, min(rows, facts.data.record_count))),
        _ENABLED + column: "true",
    }


def _measure(
    name: str,
    box: Sandbox,
    asked: Sequence[tuple[Filter, str]],
    tried: Mapping[str, Layout],
    lookups: Mapping[str, Sequence[str]],
    seconds: Mapping[str, float],
) -> dict[str, float]:
    """Let Iceberg plan each filter; where a bloom filter is tried, also run lookups and count the
    rows that scans return to Spark.
    """
    facts = box.observe()
    # A filter for values that are not in a sample reads nothing in any layout.
    plans = [(f.weight, box.plan(where)) for f, where in asked]
    figures: dict[str, float] = {FILES: facts.data.file_count, SIZE: facts.data.size_in_bytes}
    if plans:
        figures[READ] = mean(
            (weight, plan.share_of(facts.data.size_in_bytes)) for weight, plan in plans
        )
        figures[OPENED] = mean((weight, plan.data_files) for weight, plan in plans)
    bloom = tried[name].bloom if name in tried else next(iter(lookups), "")
    if bloom:
        figures[ROWS] = sum(_rows_read(box, facts, bloom, where) for where in lookups[bloom])
    if name in seconds:
        figures[REWRITE] = seconds[name]
    return figures


def _rows_read(box: Sandbox, facts: TableFacts, column: str, where: str) -> int:
    """Rows of all row groups that neither statistics nor bloom filters rule out: Iceberg passes
    complete row groups to Spark.
    """
    term = identifier(*facts.by_name[column].names)
    with box.budget.watching(box.lake.spark):
        frame = box.lake.spark.sql(
            f"SELECT count({term}) FROM {identifier(*box.name)} WHERE {where}"
        )
        frame.collect()
    scans = [n for n in nodes(query_of_frame(frame).executedPlan()) if kind(n) == "BatchScanExec"]
    return sum(int(n.metrics().apply("numOutputRows").value()) for n in scans)


def _answer(
    trial: Trial,
    experiment: Experiment,
    tried: Mapping[str, Layout],
    notes: Sequence[str],
    reads_per_day: float,
) -> Answer:
    facts, measured = trial.facts, experiment.measured
    best = chosen(measured, tried)
    now = measured.value(NOW, READ)
    paid = queries_until_paid(measured, best) if best is not None else None
    late = reads_per_day and paid is not None and paid > _PAYBACK_DAYS * reads_per_day
    confidence, because = experiment.confidence()
    bloom = next(
        (name for name, layout in tried.items() if layout.bloom and saves_by_bloom(measured, name)),
        None,
    )
    changes: list[Change] = []
    if now is None:
        verdict = (
            "No advice: no filter could be "
            f"planned{f' ({trial.stopped})' if trial.stopped else ''}."
        )
        confidence = Confidence.NONE
    elif best is None or late:
        why = "no layout that was tried saves enough"
        if late and paid is not None:
            # Spans are in milliseconds.
            why = (
                f"{best} saves bytes, but queries pay the rewrite back only in "
                f"{span(paid / reads_per_day * 86_400_000)} ({paid:,} queries)"
            )
        verdict = f"No change: filters read {percent(now)} of the bytes, and {why}."
        changes.append(Change(ORDER, _order_now(facts), _order_now(facts), verdict))
        best = None
    else:
        then = percent(measured.value(best, READ) or 0.0)
        pays = f" {paid:,} queries pay the rewrite back." if paid is not None else ""
        verdict = (
            f"{best[0].upper()}{best[1:]}: filters read {then} of the bytes instead of "
            f"{percent(now)}.{pays}"
        )
        changes += _changes(
            facts,
            tried[best],
            f"Filters read {percent(now)} of the bytes now and {then} {best}.",
            measured.value(best, REWRITE),
        )
    if bloom is not None:
        column = tried[bloom].bloom
        rows = [plain(measured.value(variant, ROWS) or 0) for variant in (NOW, bloom)]
        why = (
            f"Lookups on {column} read {rows[1]} rows instead of {rows[0]} with a bloom filter; "
            "the table stays as it is partitioned and sorted."
        )
        changes.append(
            replace(
                to_set(facts, _bloom_properties(facts, column), why, now=None),
                is_alternative=best is not None,
            )
        )
        if best is None:
            best, verdict = (
                bloom,
                f"Set a bloom filter on {column}: lookups read {rows[1]} rows instead of "
                f"{rows[0]}.",
            )
    return Answer(
        question="layout",
        facts=facts,
        verdict=verdict,
        changes=tuple(changes),
        measured=measured,
        advised=best,
        confidence=confidence,
        because=because,
        notes=tuple(notes),
        stopped=trial.stopped,
    )


def _order_now(facts: TableFacts) -> str:
    own = own_order(facts)
    return (
        str(own)
        if own is not None
        else "unordered"
        if not facts.sort_order
        else "an order of transforms"
    )


def _changes(facts: TableFacts, layout: Layout, why: str, seconds: float | None) -> list[Change]:
    """The spec, the order, and the rewrite of existing data files, which comes last, after all
    settings that affect writes.
    """
    current, table, columns = fields_of(facts.default_spec), facts.sql_name, facts.by_name
    changes = []
    if layout.spec != current:
        sql, undo = (
            "; ".join(ddl.change_spec(table, columns, *pair))
            for pair in ((current, layout.spec), (layout.spec, current))
        )
        effect = (
            "jobs that overwrite by partition replace other partitions than before, and "
            "storage-partitioned joins need the same buckets on both sides"
        )
        changes.append(
            Change(
                SPEC,
                spec_name(current),
                spec_name(layout.spec),
                f"{why} Only new data uses the new spec.",
                sql,
                undo,
                side_effect=effect,
            )
        )
    order = layout.order
    if order is not None and order.kind == SORT:
        by_partition = bool(layout.spec) and facts.mean_partition_bytes <= 2 * facts.target_bytes
        sql = ddl.write_order(table, columns, order.columns, by_partition=by_partition)
        changes.append(
            Change(
                ORDER,
                _order_now(facts),
                str(order),
                why,
                sql,
                undo_order(table, facts),
                side_effect="each write needs one more shuffle and sort",
            )
        )
    time = f", about {span(seconds * 1000)} at the speed of the trial" if seconds else ""
    again = (
        " New data is not in this order until it is rewritten, too."
        if order is not None and order.kind == ZORDER
        else ""
    )
    files = f"{size(facts.data.size_in_bytes)} in {count(facts.data.file_count, 'data file')}"
    reads = f"The rewrite reads and writes {files}{time}, in parts.{again}"
    changes.append(
        ddl.rewrite_old(facts, reads, order, by_table=order is None and bool(facts.sort_order))
    )
    return changes


__all__ = ["Layout", "tune_layout"]
