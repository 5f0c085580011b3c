"""Answer how a table should be laid out for its filters: sort orders, a coarser and a finer
partition spec and a bloom filter, each written and planned.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from icekit.common import frozen
from icekit.common.commands.tune import LayoutOptions
from icekit.common.sql import identifier, set_properties_sql
from icekit.common.units import capitalized, count, percent, plain_number, size, span
from icekit.common.view import BYTES, COUNT, NUMBER, SECONDS, SHARE
from icekit.engine.planner import frame_execution, is_scan_of, metric, walk_plan
from icekit.health.diagnose.partitions import coarser_transform
from icekit.health.facts.column_support import order_refusal
from icekit.health.facts.model import TableFacts
from icekit.health.facts.sort_order import order_restoration
from icekit.iceberg.metadata import ROW_GROUP
from icekit.sandbox.trial import Sandbox, Trial
from icekit.tune import ddl
from icekit.tune.answer import Answer, Change, Measure, Measurements, property_change
from icekit.tune.ddl import (
    SORT,
    ZORDER,
    RowOrder,
    SpecField,
    plain_sort_order,
    spec_fields_of,
    spec_name,
)
from icekit.tune.experiment import (
    Experiment,
    Figures,
    answer_without_filters,
    mean_plan_figures,
    set_target_size,
)
from icekit.tune.filters import EQUALITY, NULLS, Filter, SqlFilters, operators
from icekit.tune.queries import ValuesByColumn, columns_to_sort_by, draw_sample, read_filters

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

    spec: tuple[SpecField, ...]
    order: RowOrder | None = None
    bloom_column: str = ""
    is_coarser: bool = False

    def order_for_rewrite(self, facts: TableFacts) -> RowOrder | None:
        """The order of a rewrite: this one, or that of the table."""
        return self.order or (RowOrder(SORT, ()) if facts.sort_order else None)

    def name(self, current_spec: Sequence[SpecField]) -> str:
        """The name of the variant."""
        if self.bloom_column:
            return f"bloom filter on {self.bloom_column}"
        order_text = str(self.order or "sorted again")
        if self.order is not None and self.order.kind == SORT:
            order_text = f"sorted by {order_text}"
        if self.spec == tuple(current_spec):
            return order_text
        spec_text = f"by {spec_name(self.spec)}"
        return spec_text if self.order is None else f"{spec_text}, {order_text}"


def layouts_to_try(
    facts: TableFacts, filters: Sequence[Filter], sample_values: ValuesByColumn
) -> Iterator[Layout]:
    """The layouts to try, the simplest first: the own order again, one and two sort columns,
    z-order, a coarser and a finer spec, a bloom filter.
    """
    current_spec = spec_fields_of(facts.default_spec)
    table_order = plain_sort_order(facts)
    identity_columns = {f.column for f in current_spec if f.transform == "identity"}
    candidate_columns = tuple(
        c for c in columns_to_sort_by(facts, filters) if c not in identity_columns
    )[:2]
    if facts.sort_order and (
        table_order is None or table_order.columns[0] in candidate_columns[:1]
    ):
        yield Layout(current_spec)
    candidate_orders = [RowOrder(SORT, candidate_columns[:1])] if candidate_columns else []
    if len(candidate_columns) > 1:
        candidate_orders += [
            RowOrder(SORT, candidate_columns),
            RowOrder(SORT, candidate_columns[::-1]),
        ]
        if order_refusal(facts, ZORDER, candidate_columns) is None:
            candidate_orders.append(RowOrder(ZORDER, candidate_columns))
    yield from (
        Layout(current_spec, candidate_order)
        for candidate_order in candidate_orders
        if candidate_order != table_order
    )
    coarse_spec = coarser_spec(facts, current_spec)
    if coarse_spec is not None:
        yield Layout(
            coarse_spec, candidate_orders[0] if candidate_orders else None, is_coarser=True
        )
    finer_fields = (finer_field(facts, c, filters, sample_values) for c in candidate_columns)
    finer_partition_field = next(filter(None, finer_fields), None)
    if finer_partition_field and finer_partition_field not in current_spec:
        remaining_columns = tuple(c for c in candidate_columns if c != finer_partition_field.column)
        yield Layout(
            (*current_spec, finer_partition_field),
            RowOrder(SORT, remaining_columns) if remaining_columns else None,
        )
    for candidate_column in candidate_columns:
        column_values = sample_values.get(candidate_column, [])
        has_many_distinct_values = len(set(column_values)) > _GAIN * len(column_values)
        has_bloom_filter = facts.properties.get(_ENABLED + candidate_column, "").lower() == "true"
        if (
            has_many_distinct_values
            and not has_bloom_filter
            and _has_only_lookups(candidate_column, filters)
        ):
            yield Layout(current_spec, bloom_column=candidate_column)
            break


def coarser_spec(
    facts: TableFacts, current_spec: tuple[SpecField, ...]
) -> tuple[SpecField, ...] | None:
    """The spec with a coarser last time field, or without its last field, where partitions are
    smaller than a well-sized file; None elsewhere.
    """
    if not current_spec or facts.mean_partition_bytes >= facts.target_bytes / 2:
        return None
    growth_factor = facts.target_bytes / 2 / max(1, facts.mean_partition_bytes)
    for i, current_field in reversed([*enumerate(current_spec)]):
        if new_transform := coarser_transform(
            facts.by_name[current_field.column], current_field.transform, growth_factor
        ):
            return (
                *current_spec[:i],
                SpecField(current_field.column, new_transform),
                *current_spec[i + 1 :],
            )
    return current_spec[:-1]


def finer_field(
    facts: TableFacts, column: str, filters: Sequence[Filter], sample_values: ValuesByColumn
) -> SpecField | None:
    """One more partition field with which partitions still hold two files of the target size; None
    where none does.
    """
    max_parts_per_partition = facts.mean_partition_bytes / max(1, 2 * facts.target_bytes)
    distinct_values = set(sample_values.get(column, ()))
    column_type = facts.by_name[column].type
    if max_parts_per_partition < 2 or not distinct_values:
        return None
    if column_type.startswith(("date", "timestamp")):
        micros_per_value = 86_400_000_000 if column_type == "date" else 1
        fitting_units = [
            time_unit
            for time_unit, micros_per_unit in _UNITS.items()
            if 2
            <= len({int(v) * micros_per_value // micros_per_unit for v in distinct_values})
            <= max_parts_per_partition
        ]
        return SpecField(column, fitting_units[-1]) if fitting_units else None
    if len(distinct_values) <= max_parts_per_partition:
        return SpecField(column, "identity")
    if not _has_only_lookups(column, filters) or column_type.startswith(
        ("float", "double", "boolean")
    ):
        return None
    return SpecField(column, f"bucket[{1 << int(math.log2(max_parts_per_partition))}]")


def _has_only_lookups(column: str, filters: Sequence[Filter]) -> bool:
    return operators(filters, column) - {NULLS} <= EQUALITY


def best_layout_name(
    measurements: Measurements, layouts_by_name: Mapping[str, Layout]
) -> str | None:
    """The variant to advise: the simplest that reads little more than the best, if that saves
    enough; None if none does.

    A coarser spec is advised for its fewer files, if filters read no more with it.
    """
    read_share_now = measurements.value(NOW, READ) or 0.0
    file_count_now = measurements.value(NOW, FILES) or 1.0
    max_data_bytes = _GROWN * (measurements.value(NOW, SIZE) or math.inf)
    read_share_by_name = {
        layout_name: read_share
        for layout_name, layout in layouts_by_name.items()
        if not layout.bloom_column
        and (read_share := measurements.value(layout_name, READ)) is not None
        and (measurements.value(layout_name, SIZE) or 0.0) <= max_data_bytes
    }
    # A difference of less than a file is none.
    saving_share_by_name = {
        layout_name: read_share
        for layout_name, read_share in read_share_by_name.items()
        if read_share_now - read_share >= max(_GAIN * read_share_now, 1 / file_count_now)
    }
    if saving_share_by_name:
        least_read_share = min(saving_share_by_name.values())
        return next(
            layout_name
            for layout_name, read_share in saving_share_by_name.items()
            if read_share - least_read_share <= _SIMPLER * read_share_now
        )
    return next(
        (
            layout_name
            for layout_name, read_share in read_share_by_name.items()
            if layouts_by_name[layout_name].is_coarser
            and (measurements.value(layout_name, FILES) or file_count_now) <= file_count_now / 2
            and read_share <= read_share_now + max(_SIMPLER * read_share_now, 1 / file_count_now)
        ),
        None,
    )


def is_bloom_worth_it(measurements: Measurements, variant: str) -> bool:
    """Tell whether a bloom filter saves more of the rows that lookups read than it makes files
    grow.
    """
    read_rows_pair = measurements.figure_pair(ROWS, NOW, variant)
    data_bytes_pair = measurements.figure_pair(SIZE, NOW, variant)
    if read_rows_pair is None or data_bytes_pair is None or not read_rows_pair[0]:
        return False
    rows_now, rows_after = read_rows_pair
    bytes_now, bytes_after = data_bytes_pair
    saved_row_share = 1 - rows_after / rows_now
    added_byte_share = max(0.0, bytes_after / bytes_now - 1)
    return saved_row_share - added_byte_share >= _GAIN


def queries_until_paid(measurements: Measurements, variant: str) -> int | None:
    """After how many queries the bytes that they no longer read equal those that the rewrite reads
    and writes; None if it saves none.
    """
    read_share_pair = measurements.figure_pair(READ, NOW, variant)
    data_bytes_pair = measurements.figure_pair(SIZE, NOW, variant)
    if read_share_pair is None or data_bytes_pair is None:
        return None
    read_bytes_now = read_share_pair[0] * data_bytes_pair[0]
    read_bytes_after = read_share_pair[1] * data_bytes_pair[1]
    saved_bytes = read_bytes_now - read_bytes_after
    return math.ceil(sum(data_bytes_pair) / saved_bytes) if saved_bytes > 0 else None


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
    query_filters = read_filters(lake, facts, options.filters, options.event_log)
    sampled_columns = columns_to_sort_by(facts, query_filters.filters)[:_MOST_COLUMNS]
    if not sampled_columns:
        return answer_without_filters("layout", facts, query_filters.notes)
    sample_values = draw_sample(lake, facts, sampled_columns, sample_bytes=trial.sample_bytes)
    current_spec = spec_fields_of(facts.default_spec)
    layouts_by_name = {
        layout.name(current_spec): layout
        for layout in layouts_to_try(facts, query_filters.filters, sample_values)
    }
    experiment = Experiment(
        trial=trial,
        variants={
            variant_name: partial(_set_up_layout, facts=facts, layout=layout)
            for variant_name, layout in {NOW: None, **layouts_by_name}.items()
        },
        measures=_MEASURES,
        always_sample=trial.is_large,
    )
    with experiment.open():
        # A sample may not have the values of the table.
        sandbox_now = experiment.sandboxes_by_variant.get(NOW)
        sample_facts = (
            sandbox_now.observe() if sandbox_now is not None and sandbox_now.is_sample else None
        )
        sql_filters = query_filters.sql_filters(lake, sample_facts or facts)
        if sql_filters:
            experiment.measure("the filters", partial(_measure_filters, sql_filters=sql_filters))
        for variant, layout in layouts_by_name.items():
            if layout.bloom_column:
                lookup_conditions = [
                    condition_sql
                    for f, condition_sql in sql_filters
                    if f.columns == (layout.bloom_column,)
                ][:_LOOKUPS]
                lookup_workload = partial(
                    _measure_lookups,
                    column=layout.bloom_column,
                    lookup_conditions=lookup_conditions,
                )
                experiment.measure("the lookups", lookup_workload, only_variants=(NOW, variant))
    return _layout_answer(experiment, layouts_by_name, query_filters.notes, options.reads_per_day)


def _set_up_layout(box: Sandbox, facts: TableFacts, layout: Layout | None) -> Figures:
    """Write a layout to a sandbox; None is the table as it is, of which only the files of a sample
    are written again, in the scale of the others. Times are scaled to the table.
    """
    rewrite_seconds = 0.0
    if layout is not None:
        rewrite_seconds = _write_layout(box, facts, layout, layout.order_for_rewrite(facts))
    elif box.is_sample:
        _write_layout(box, facts, Layout(spec_fields_of(facts.default_spec)), None)
    data_totals = box.observe().data
    figures: Figures = {FILES: data_totals.file_count, SIZE: data_totals.size_in_bytes}
    return figures if layout is None else {**figures, REWRITE: rewrite_seconds * box.scale}


def _write_layout(box: Sandbox, facts: TableFacts, layout: Layout, order: RowOrder | None) -> float:
    """Write a layout to a sandbox, and return the seconds; the files of a sample are scaled down
    like its partitions, so that a partition has as many as in the table.
    """
    if box.is_sample:
        partition_size_ratio = min(
            1.0, box.observe().mean_partition_bytes / max(facts.mean_partition_bytes, 1.0)
        )
        set_target_size(
            box, facts, max(_LEAST_TARGET, round(facts.target_bytes * partition_size_ratio))
        )
    current_spec = spec_fields_of(facts.default_spec)
    box.set(*ddl.spec_change_sql(box.name, facts.by_name, current_spec, layout.spec))
    if layout.bloom_column:
        box.set(set_properties_sql(box.name, _bloom_properties(facts, layout.bloom_column)))
    rewrite_sql = ddl.rewrite_files_sql(box.name, facts.by_name, order, is_one_commit=True)
    return box.run(rewrite_sql, expected_bytes=box.size_in_bytes).seconds


def _measure_filters(_: str, box: Sandbox, sql_filters: SqlFilters) -> Figures:
    """Let Iceberg plan each filter."""
    mean_figures = mean_plan_figures(box, sql_filters)
    size_in_bytes = max(box.observe().data.size_in_bytes, 1)
    return {READ: mean_figures["data_bytes"] / size_in_bytes, OPENED: mean_figures["data_files"]}


def _measure_lookups(
    _: str, box: Sandbox, column: str, lookup_conditions: Sequence[str]
) -> Figures:
    """Run lookups, and count the rows of all row groups that neither statistics nor bloom filters
    rule out: Iceberg passes complete row groups to Spark.
    """
    column_sql = identifier(*box.observe().by_name[column].names)
    read_row_count = 0
    for lookup_condition in lookup_conditions:
        with box.budget.cancel_jobs_when_spent(box.lake.spark):
            count_frame = box.lake.spark.sql(
                f"SELECT count({column_sql}) FROM {identifier(*box.name)} WHERE {lookup_condition}"
            )
            count_frame.collect()
        physical_plan = frame_execution(count_frame).executedPlan()
        read_row_count += sum(
            metric(plan_node, "numOutputRows")
            for plan_node in walk_plan(physical_plan)
            if is_scan_of(plan_node, box.name)
        )
    return {ROWS: read_row_count}


def _bloom_properties(facts: TableFacts, column: str) -> dict[str, str]:
    """The properties of a bloom filter; without the number of distinct values each row group gets
    one of the largest size.
    """
    row_bytes = facts.data.size_in_bytes / max(facts.data.record_count, 1)
    rows_per_row_group = round(
        min(facts.int_setting(ROW_GROUP), facts.target_bytes) / max(row_bytes, 1e-9)
    )
    return {
        _NDV + column: str(max(1, min(rows_per_row_group, facts.data.record_count))),
        _ENABLED + column: "true",
    }


def _layout_answer(
    experiment: Experiment,
    layouts_by_name: Mapping[str, Layout],
    notes: Sequence[str],
    reads_per_day: float,
) -> Answer:
    facts = experiment.trial.facts
    measurements = experiment.measurements
    read_share_now = measurements.value(NOW, READ)
    if read_share_now is None:
        return experiment.answer("layout", "", (), notes, has_enough_measurements=False)
    best_variant = best_layout_name(measurements, layouts_by_name)
    why = "no layout that was tried saves enough"
    payback_query_count = (
        queries_until_paid(measurements, best_variant) if best_variant is not None else None
    )
    if (
        reads_per_day
        and payback_query_count is not None
        and payback_query_count > _PAYBACK_DAYS * reads_per_day
    ):
        # Spans are in milliseconds.
        payback_time_text = span(payback_query_count / reads_per_day * 86_400_000)
        payback_clause = (
            f"queries pay the rewrite back only in {payback_time_text} ({payback_query_count:,} "
            "queries)"
        )
        why = f"{best_variant} saves bytes, but {payback_clause}"
        best_variant = None
    if best_variant is None:
        verdict = f"No change: filters read {percent(read_share_now)} of the bytes, and {why}."
        changes = [Change(ORDER, _current_order_text(facts), _current_order_text(facts), verdict)]
    else:
        read_percent_after = percent(measurements.value(best_variant, READ) or 0.0)
        payback_sentence = (
            f" {payback_query_count:,} queries pay the rewrite back."
            if payback_query_count is not None
            else ""
        )
        verdict = (
            f"{capitalized(best_variant)}: filters read {read_percent_after} of the bytes instead "
            f"of {percent(read_share_now)}.{payback_sentence}"
        )
        why = (
            f"Filters read {percent(read_share_now)} of the bytes now and {read_percent_after} "
            f"{best_variant}."
        )
        changes = list(_layout_changes(facts, layouts_by_name[best_variant], why))
    for variant, layout in layouts_by_name.items():
        if layout.bloom_column and is_bloom_worth_it(measurements, variant):
            rows_text_now = plain_number(measurements.value(NOW, ROWS) or 0)
            rows_text_after = plain_number(measurements.value(variant, ROWS) or 0)
            why = (
                f"Lookups on {layout.bloom_column} read {rows_text_after} rows instead of "
                f"{rows_text_now} with a bloom filter; the table stays as it is partitioned and "
                "sorted."
            )
            bloom_change = property_change(
                facts, _bloom_properties(facts, layout.bloom_column), why
            )
            changes.append(replace(bloom_change, is_alternative=best_variant is not None))
            if best_variant is None:
                rows_clause = f"lookups read {rows_text_after} rows instead of {rows_text_now}"
                best_variant = variant
                verdict = f"Set a bloom filter on {layout.bloom_column}: {rows_clause}."
    return experiment.answer("layout", verdict, changes, notes, advised=best_variant)


def _current_order_text(facts: TableFacts) -> str:
    return ", ".join(str(SpecField(f.source, f.transform)) for f in facts.sort_order) or "unordered"


def _layout_changes(facts: TableFacts, layout: Layout, why: str) -> Iterator[Change]:
    """The spec, the order, and the rewrite of existing data files, which comes last, after all
    settings that affect writes.
    """
    current_spec = spec_fields_of(facts.default_spec)
    table_name = facts.sql_name
    columns_by_name = facts.by_name
    if layout.spec != current_spec:
        side_effect = (
            "jobs that overwrite by partition replace other partitions than before, and "
            "storage-partitioned joins need the same buckets on both sides"
        )
        yield Change(
            SPEC,
            spec_name(current_spec),
            spec_name(layout.spec),
            f"{why} Only new data uses the new spec.",
            sql=ddl.spec_change_sql(table_name, columns_by_name, current_spec, layout.spec),
            undo=ddl.spec_change_sql(table_name, columns_by_name, layout.spec, current_spec),
            side_effect=side_effect,
        )
    sort_order = layout.order
    if sort_order is not None and sort_order.kind == SORT:
        is_by_partition = bool(layout.spec) and facts.mean_partition_bytes <= 2 * facts.target_bytes
        sql = ddl.write_order_sql(
            table_name, columns_by_name, sort_order.columns, is_by_partition=is_by_partition
        )
        yield Change(
            ORDER,
            _current_order_text(facts),
            str(sort_order),
            why,
            sql=(sql,),
            undo=order_restoration(table_name, facts),
            side_effect="each write needs one more shuffle and sort",
        )
    data_files_text = (
        f"{size(facts.data.size_in_bytes)} in {count(facts.data.file_count, 'data file')}"
    )
    rewrite_reason = (
        f"The rewrite reads and writes {data_files_text}, in parts. Only a rewrite makes a z-order."
    )
    yield ddl.rewrite_change(facts, rewrite_reason, layout.order_for_rewrite(facts))
