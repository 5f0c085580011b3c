"""Answer how a table should be laid out for its filters: sort orders, a coarser and a finer
partition spec and a bloom filter, each written and planned.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from icekit.common import frozen
from icekit.common.commands import LayoutOptions
from icekit.common.sql import identifier, set_properties
from icekit.common.units import capitalized, count, percent, plain, size, span
from icekit.common.view import BYTES, COUNT, NUMBER, SECONDS, SHARE
from icekit.engine.planner import is_scan_of, metric, nodes, query_of_frame
from icekit.health.diagnose.partitions import coarser
from icekit.health.facts.column_support import order_refusal
from icekit.health.facts.model import TableFacts
from icekit.health.facts.sort_order import undo_order
from icekit.iceberg.metadata import ROW_GROUP
from icekit.sandbox.trial import Sandbox, Trial
from icekit.tune import ddl
from icekit.tune.answer import Answer, Change, Measure, Measurements, to_set
from icekit.tune.ddl import SORT, ZORDER, Field, RowOrder, fields_of, own_order, spec_name
from icekit.tune.experiment import Experiment, Figures, planned, scale_files, unknown_filters
from icekit.tune.filters import EQUALITY, NULLS, Asked, Filter, operators
from icekit.tune.queries import Sample, read_filters, sample, sort_columns

NOW = "now"
READ = "bytes that filters read"
OPENED = "data files that a query opens"
ROWS = "rows that lookups read"
FILES = "data files"
SIZE = "bytes of data files"
REWRITE = "time to rewrite the data files"
_MEASURES = (
    Measure(READ, SHARE),
    Measure(OPENED, NUMBER),
    Measure(FILES, COUNT),
    Measure(SIZE, BYTES),
    Measure(ROWS, COUNT),
    Measure(REWRITE, SECONDS, is_cost=True),
)
SPEC = "partition spec"
ORDER = "sort order"
#: Choices: the lookups of a bloom filter; the columns to sample.
_LOOKUPS = 8
_MOST_COLUMNS = 6
#: A choice: what a simpler layout may read more than the best, as a share.
_SIMPLER = 0.1
#: Choices: how much larger another layout may make the data; the days within which queries must
# pay a rewrite back.
_GROWN = 1.25
_PAYBACK_DAYS = 365
#: The smallest target file size of a scaled-down sample.
_LEAST_TARGET = 64 << 10
#: A choice: the share of what filters read that a layout must save.
_GAIN = 0.2
_ENABLED = "write.parquet.bloom-filter-enabled.column."
_NDV = "write.parquet.bloom-filter-ndv.column."
#: Transforms of times, and the microseconds of a unit, the coarsest first.
_UNITS = {"year": 365 * 86_400_000_000, "month": 30 * 86_400_000_000, "day": 86_400_000_000}


@frozen
class Layout:
    """A layout to try: a partition spec, an order of rows within partitions (None: the table's
    own), and a column with a bloom filter.
    """

    spec: tuple[Field, ...]
    order: RowOrder | None = None
    bloom: str = ""
    is_coarser: bool = False

    def order_for(self, facts: TableFacts) -> RowOrder | None:
        """The order of a rewrite: this one, or that of the table."""
        return self.order or (RowOrder(SORT, ()) if facts.sort_order else None)

    def name(self, current: Sequence[Field]) -> str:
        """The name of the variant."""
        if self.bloom:
            return f"bloom filter on {self.bloom}"
        order = str(self.order or "sorted again")
        if self.order is not None and self.order.kind == SORT:
            order = f"sorted by {order}"
        if self.spec == tuple(current):
            return order
        spec = f"by {spec_name(self.spec)}"
        return spec if self.order is None else f"{spec}, {order}"


def layouts(facts: TableFacts, filters: Sequence[Filter], drawn: Sample) -> Iterator[Layout]:
    """The layouts to try, the simplest first: the own order again, one and two sort columns,
    z-order, a coarser and a finer spec, a bloom filter.
    """
    current = fields_of(facts.default_spec)
    own = own_order(facts)
    single = {f.column for f in current if f.transform == "identity"}
    columns = tuple(c for c in sort_columns(facts, filters) if c not in single)[:2]
    if facts.sort_order and (own is None or own.columns[0] in columns[:1]):
        yield Layout(current)
    orders = [RowOrder(SORT, columns[:1])] if columns else []
    if len(columns) > 1:
        orders += [RowOrder(SORT, columns), RowOrder(SORT, columns[::-1])]
        if order_refusal(facts, ZORDER, columns) is None:
            orders.append(RowOrder(ZORDER, columns))
    yield from (Layout(current, order) for order in orders if order != own)
    coarser = coarser_spec(facts, current)
    if coarser is not None:
        yield Layout(coarser, orders[0] if orders else None, is_coarser=True)
    fields = (finer_field(facts, c, filters, drawn) for c in columns)
    finer = next(filter(None, fields), None)
    if finer and finer not in current:
        rest = tuple(c for c in columns if c != finer.column)
        yield Layout((*current, finer), RowOrder(SORT, rest) if rest else None)
    for column in columns:
        values = drawn.get(column, [])
        is_distinct = len(set(values)) > _GAIN * len(values)
        is_set = facts.properties.get(_ENABLED + column, "").lower() == "true"
        if is_distinct and not is_set and _is_looked_up(column, filters):
            yield Layout(current, bloom=column)
            break


def coarser_spec(facts: TableFacts, current: tuple[Field, ...]) -> tuple[Field, ...] | None:
    """The spec with a coarser last time field, or without its last field, where partitions are
    smaller than a well-sized file; None elsewhere.
    """
    if not current or facts.mean_partition_bytes >= facts.target_bytes / 2:
        return None
    factor = facts.target_bytes / 2 / max(1, facts.mean_partition_bytes)
    for i, field in reversed([*enumerate(current)]):
        if coarse := coarser(facts.by_name[field.column], field.transform, factor):
            return (*current[:i], Field(field.column, coarse), *current[i + 1 :])
    return current[:-1]


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
    return operators(filters, column) - {NULLS} <= EQUALITY


def chosen(measured: Measurements, tried: Mapping[str, Layout]) -> str | None:
    """The variant to advise: the simplest that reads little more than the best, if that saves
    enough; None if none does.

    A coarser spec is advised for its fewer files, if filters read no more with it.
    """
    before = measured.value(NOW, READ) or 0.0
    files = measured.value(NOW, FILES) or 1.0
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
    rows = measured.pair(ROWS, NOW, name)
    sizes = measured.pair(SIZE, NOW, name)
    if rows is None or sizes is None or not rows[0]:
        return False
    return 1 - rows[1] / rows[0] - max(0.0, sizes[1] / sizes[0] - 1) >= _GAIN


def queries_until_paid(measured: Measurements, name: str) -> int | None:
    """After how many queries the bytes that they no longer read equal those that the rewrite reads
    and writes; None if it saves none.
    """
    read = measured.pair(READ, NOW, name)
    sizes = measured.pair(SIZE, NOW, name)
    if read is None or sizes is None:
        return None
    saved = read[0] * sizes[0] - read[1] * sizes[1]
    return math.ceil(sum(sizes) / saved) if saved > 0 else None


def tune_layout(trial: Trial, options: LayoutOptions) -> Answer:
    """Write other sort orders and partition specs to clones, and let Iceberg plan the filters of
    queries on each; only reads the table.

    Filters are ``filters`` (SQL predicates or queries), those of a Spark ``event_log``, or else
    point lookups on the declared columns. A table larger than ``sample_bytes`` is tried on copied
    samples of that size, with files scaled down like partitions. With ``reads_per_day``, a layout
    that such queries do not pay back within a year is not advised.

    Raises :class:`~icekit.common.errors.ParameterError` for filters that cannot be read.
    """
    lake = trial.lake
    facts = trial.facts
    queries = read_filters(lake, facts, options.filters, options.event_log)
    columns = sort_columns(facts, queries.filters)[:_MOST_COLUMNS]
    if not columns:
        return unknown_filters("layout", facts, queries.notes)
    drawn = sample(lake, facts, columns, sample_bytes=trial.sample_bytes)
    current = fields_of(facts.default_spec)
    tried = {layout.name(current): layout for layout in layouts(facts, queries.filters, drawn)}
    experiment = Experiment(
        trial=trial,
        variants={
            name: partial(_set_up, facts=facts, layout=layout)
            for name, layout in {NOW: None, **tried}.items()
        },
        measures=_MEASURES,
        always_sample=trial.is_large,
    )
    with experiment.open():
        # A sample may not have the values of the table.
        box = experiment.boxes.get(NOW)
        copy = box.observe() if box is not None and box.is_sample else None
        asked = queries.asked(lake, copy or facts)
        if asked:
            experiment.measure("the filters", partial(_plan, asked=asked))
        for bloom, layout in tried.items():
            if layout.bloom:
                lookups = [where for f, where in asked if f.columns == (layout.bloom,)][:_LOOKUPS]
                read = partial(_look_up, column=layout.bloom, lookups=lookups)
                experiment.measure("the lookups", read, only=(NOW, bloom))
    return _answer(experiment, tried, queries.notes, options.reads_per_day)


def _set_up(box: Sandbox, facts: TableFacts, layout: Layout | None) -> Figures:
    """Write a layout to a sandbox; None is the table as it is, of which only the files of a sample
    are written again, in the scale of the others. Times are scaled to the table.
    """
    seconds = 0.0
    if layout is not None:
        seconds = _write(box, facts, layout, layout.order_for(facts))
    elif box.is_sample:
        _write(box, facts, Layout(fields_of(facts.default_spec)), None)
    data = box.observe().data
    figures: Figures = {FILES: data.file_count, SIZE: data.size_in_bytes}
    return figures if layout is None else {**figures, REWRITE: seconds * box.scale}


def _write(box: Sandbox, facts: TableFacts, layout: Layout, order: RowOrder | None) -> float:
    """Write a layout to a sandbox, and return the seconds; the files of a sample are scaled down
    like its partitions, so that a partition has as many as in the table.
    """
    if box.is_sample:
        ratio = min(1.0, box.observe().mean_partition_bytes / max(facts.mean_partition_bytes, 1.0))
        scale_files(box, facts, max(_LEAST_TARGET, round(facts.target_bytes * ratio)))
    current = fields_of(facts.default_spec)
    box.set(*ddl.change_spec(box.name, facts.by_name, current, layout.spec))
    if layout.bloom:
        box.set(set_properties(box.name, _bloom_properties(facts, layout.bloom)))
    rewrite = ddl.rewrite(box.name, facts.by_name, order, is_whole=True)
    return box.run(rewrite, expected_bytes=box.size_in_bytes).seconds


def _plan(_: str, box: Sandbox, asked: Asked) -> Figures:
    """Let Iceberg plan each filter."""
    mean = planned(box, asked)
    size_in_bytes = max(box.observe().data.size_in_bytes, 1)
    return {READ: mean["data_bytes"] / size_in_bytes, OPENED: mean["data_files"]}


def _look_up(_: str, box: Sandbox, column: str, lookups: Sequence[str]) -> Figures:
    """Run lookups, and count the rows of all row groups that neither statistics nor bloom filters
    rule out: Iceberg passes complete row groups to Spark.
    """
    term = identifier(*box.observe().by_name[column].names)
    rows = 0
    for where in lookups:
        with box.budget.watching(box.lake.spark):
            frame = box.lake.spark.sql(
                f"SELECT count({term}) FROM {identifier(*box.name)} WHERE {where}"
            )
            frame.collect()
        plan = query_of_frame(frame).executedPlan()
        rows += sum(
            metric(node, "numOutputRows") for node in nodes(plan) if is_scan_of(node, box.name)
        )
    return {ROWS: rows}


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


def _answer(
    experiment: Experiment,
    tried: Mapping[str, Layout],
    notes: Sequence[str],
    reads_per_day: float,
) -> Answer:
    facts = experiment.trial.facts
    measured = experiment.measured
    now = measured.value(NOW, READ)
    if now is None:
        return experiment.answer("layout", "", (), notes, is_enough=False)
    best = chosen(measured, tried)
    why = "no layout that was tried saves enough"
    paid = queries_until_paid(measured, best) if best is not None else None
    if reads_per_day and paid is not None and paid > _PAYBACK_DAYS * reads_per_day:
        # Spans are in milliseconds.
        days = span(paid / reads_per_day * 86_400_000)
        back = f"queries pay the rewrite back only in {days} ({paid:,} queries)"
        best, why = None, f"{best} saves bytes, but {back}"
    if best is None:
        verdict = f"No change: filters read {percent(now)} of the bytes, and {why}."
        changes = [Change(ORDER, _order_now(facts), _order_now(facts), verdict)]
    else:
        then = percent(measured.value(best, READ) or 0.0)
        pays = f" {paid:,} queries pay the rewrite back." if paid is not None else ""
        verdict = f"{capitalized(best)}: filters read {then} of the bytes instead of {percent(now)}.{pays}"
        why = f"Filters read {percent(now)} of the bytes now and {then} {best}."
        changes = list(_changes(facts, tried[best], why))
    for bloom, layout in tried.items():
        if layout.bloom and saves_by_bloom(measured, bloom):
            before = plain(measured.value(NOW, ROWS) or 0)
            after = plain(measured.value(bloom, ROWS) or 0)
            why = (
                f"Lookups on {layout.bloom} read {after} rows instead of {before} with a bloom "
                "filter; the table stays as it is partitioned and sorted."
            )
            change = to_set(facts, _bloom_properties(facts, layout.bloom), why)
            changes.append(replace(change, is_alternative=best is not None))
            if best is None:
                reads = f"lookups read {after} rows instead of {before}"
                best = bloom
                verdict = f"Set a bloom filter on {layout.bloom}: {reads}."
    return experiment.answer("layout", verdict, changes, notes, advised=best)


def _order_now(facts: TableFacts) -> str:
    return ", ".join(str(Field(f.source, f.transform)) for f in facts.sort_order) or "unordered"


def _changes(facts: TableFacts, layout: Layout, why: str) -> Iterator[Change]:
    """The spec, the order, and the rewrite of existing data files, which comes last, after all
    settings that affect writes.
    """
    current = fields_of(facts.default_spec)
    table = facts.sql_name
    columns = facts.by_name
    if layout.spec != current:
        effect = (
            "jobs that overwrite by partition replace other partitions than before, and "
            "storage-partitioned joins need the same buckets on both sides"
        )
        yield Change(
            SPEC,
            spec_name(current),
            spec_name(layout.spec),
            f"{why} Only new data uses the new spec.",
            sql=ddl.change_spec(table, columns, current, layout.spec),
            undo=ddl.change_spec(table, columns, layout.spec, current),
            side_effect=effect,
        )
    order = layout.order
    if order is not None and order.kind == SORT:
        by_partition = bool(layout.spec) and facts.mean_partition_bytes <= 2 * facts.target_bytes
        sql = ddl.write_order(table, columns, order.columns, by_partition=by_partition)
        yield Change(
            ORDER,
            _order_now(facts),
            str(order),
            why,
            sql=(sql,),
            undo=undo_order(table, facts),
            side_effect="each write needs one more shuffle and sort",
        )
    files = f"{size(facts.data.size_in_bytes)} in {count(facts.data.file_count, 'data file')}"
    reads = f"The rewrite reads and writes {files}, in parts. Only a rewrite makes a z-order."
    yield ddl.rewrite_old(facts, reads, layout.order_for(facts))
