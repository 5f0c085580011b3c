"""Answer which columns need metrics, and how long their bounds should be: the advised modes are
written to a clone, and Iceberg plans the filters there.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from icekit.common.commands.tune import MetricsColumnsOptions
from icekit.common.sql import set_properties_sql
from icekit.common.units import count, first_names, plain_number, size
from icekit.common.view import BYTES, NUMBER
from icekit.engine.metadata_tables import metadata_table
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.model import TableFacts
from icekit.iceberg.definition import Column
from icekit.iceberg.where import NO_BOUNDS
from icekit.sandbox.trial import Sandbox, Trial
from icekit.tune import ddl
from icekit.tune.answer import Answer, Change, Measure, Measurements, property_change
from icekit.tune.experiment import Experiment, Figures, answer_without_filters, mean_plan_figures
from icekit.tune.filters import NULLS, Filter, SqlFilters, operators
from icekit.tune.queries import ValuesByColumn, columns_to_sort_by, draw_sample, read_filters

if TYPE_CHECKING:
    from icekit.engine.lake import Lake

NOW = "now"
BOUNDS = "longer bounds"
USED = "only used columns"
SHORT = "shorter bounds"
READ = "data files that a filter reads"
BYTES_OF = "bytes of manifests"
_MEASURES = (Measure(READ, NUMBER), Measure(BYTES_OF, BYTES))
DEFAULT = "write.metadata.metrics.default"
COLUMN = "write.metadata.metrics.column."
NONE = "none"
COUNTS = "counts"
FULL = "full"
#: The lengths to try for the bounds of a string column, the default first.
LENGTHS = (16, 24, 32, 48, 64, 96, 128)
_TRUNCATE = re.compile(r"truncate\((\d+)\)")
#: Choices: filters must read this share fewer files, and one at least; the share of sampled values
# that may have the same bound.
_GAIN = 0.1
_COLLIDING = 0.01
#: Choices: unused statistics are worth a change if manifests shrink by this share, and have this
# many such columns or bytes.
_UNUSED_SHARE = 0.3
_UNUSED_COLUMNS = Thresholds().metrics_columns
_UNUSED_BYTES = 64 << 20
#: A choice: the bytes of one column's statistics in a manifest entry that are worth shorter bounds.
_HEAVY_BYTES = 1024
#: The columns that a note lists, and the data files whose statistics are measured.
_SHOWN = 100
_SAMPLED = 300
_NUMBER_MAPS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUND_MAPS = ("lower_bounds", "upper_bounds")
_REWRITTEN = "Each table was rewritten, so that only the metrics of their columns differ."
_EFFECT = (
    "filters on columns without statistics (including a MERGE's keys and runtime filters) skip no "
    "new files, and their MIN, MAX and COUNT no longer come from metadata"
)


def truncate_mode(length: int) -> str:
    """The mode that keeps ``length`` characters."""
    return f"truncate({length})"


def mode_rank(mode: str) -> float:
    """A rank of modes by how much they keep: none, counts, truncate by length, full."""
    mode_name = mode.strip().lower()
    if length_match := _TRUNCATE.fullmatch(mode_name):
        return 1.0 + int(length_match[1])
    return {NONE: 0.0, COUNTS: 1.0, FULL: math.inf}.get(mode_name, 1.0 + LENGTHS[0])


def needed_mode(sampled_values: Iterable[Any]) -> str:
    """The mode of the smallest of :data:`LENGTHS` at which at most 1 % of sampled texts share their
    start with another.
    """
    distinct_texts = {
        sampled_text for sampled_text in sampled_values if isinstance(sampled_text, str)
    }
    for bound_length in LENGTHS:
        prefix_counts = Counter(sampled_text[:bound_length] for sampled_text in distinct_texts)
        if sum(n for n in prefix_counts.values() if n > 1) <= _COLLIDING * len(distinct_texts):
            return truncate_mode(bound_length)
    return FULL


def needed_modes(
    facts: TableFacts, filters: Sequence[Filter], sample_values: ValuesByColumn
) -> dict[str, str]:
    """The mode that each used column needs: the default, only counts for filters by null, or as
    many characters as tell its values apart.

    Used are the columns of filters, and those whose bounds the table itself needs.
    """
    columns_needing_bounds = facts.columns_needing_bounds
    modes_by_column: dict[str, str] = {}
    for column_name in (
        *(column_name for f in filters for column_name in f.columns),
        *columns_needing_bounds,
    ):
        column = facts.by_name.get(column_name)
        column_operators = operators(filters, column_name)
        if column is None or column.type.startswith(NO_BOUNDS):
            continue
        modes_by_column[column_name] = truncate_mode(LENGTHS[0])
        if column_operators == {NULLS} and column_name not in columns_needing_bounds:
            modes_by_column[column_name] = COUNTS
        elif column_operators and column.type == "string":
            modes_by_column[column_name] = needed_mode(sample_values.get(column_name, ()))
    return modes_by_column


def unused_columns(facts: TableFacts, modes_by_column: Mapping[str, str]) -> list[Column]:
    """Columns with statistics, but without a known use or an explicit setting."""
    return [
        c
        for c in facts.columns
        if c.metrics_mode != NONE
        and c.name not in modes_by_column
        and COLUMN + c.name not in facts.properties
    ]


def shorter_bound_modes(
    facts: TableFacts,
    modes_by_column: Mapping[str, str],
    entry_bytes_by_column: Mapping[str, float],
) -> dict[str, str]:
    """The modes of columns whose statistics are large, where the mode in force keeps more than
    filters need: what used columns need, and Iceberg's default for others.

    ``entry_bytes_by_column`` are the bytes of each column's statistics in a manifest entry.
    """
    shorter_modes_by_column: dict[str, str] = {}
    for column in facts.columns:
        sufficient_mode = modes_by_column.get(column.name, truncate_mode(LENGTHS[0]))
        has_large_statistics = entry_bytes_by_column.get(column.name, 0) >= _HEAVY_BYTES
        if has_large_statistics and mode_rank(sufficient_mode) < mode_rank(column.metrics_mode):
            shorter_modes_by_column[column.name] = sufficient_mode
    return shorter_modes_by_column


def outdated_columns(facts: TableFacts, entry_bytes_by_column: Mapping[str, float]) -> list[Column]:
    """Columns whose statistics in existing files are larger than the mode in force can make them:
    the files are older than the mode.
    """
    columns_with_large_statistics: list[Column] = []
    for column in facts.columns:
        length_match = _TRUNCATE.fullmatch(column.metrics_mode)
        # Four bytes a character, in two bounds; the upper one may be a character longer.
        min_outdated_bytes = (
            _HEAVY_BYTES + 8 * (int(length_match[1]) + 1) if length_match else float(_HEAVY_BYTES)
        )
        if (
            mode_rank(column.metrics_mode) < mode_rank(FULL)
            and entry_bytes_by_column.get(column.name, 0) >= min_outdated_bytes
        ):
            columns_with_large_statistics.append(column)
    return columns_with_large_statistics


def variant_properties(
    facts: TableFacts,
    modes_by_column: Mapping[str, str],
    entry_bytes_by_column: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, dict[str, str]]:
    """The properties of each variant: longer bounds of used columns, shorter ones of columns whose
    statistics are large, and no statistics for unused columns where these are worth a setting that
    somebody has to remember when a new filter comes up.
    """
    columns_by_name = facts.by_name
    identity_columns = {f.source for f in facts.default_spec.fields if f.transform == "identity"}
    longer_properties = {
        COLUMN + n: metrics_mode
        for n, metrics_mode in modes_by_column.items()
        if mode_rank(columns_by_name[n].metrics_mode) < mode_rank(metrics_mode)
        and n not in identity_columns
    }
    properties_by_variant = {BOUNDS: longer_properties} if longer_properties else {}
    shorter_properties = {
        COLUMN + column_name: metrics_mode
        for column_name, metrics_mode in shorter_bound_modes(
            facts, modes_by_column, entry_bytes_by_column
        ).items()
    }
    if shorter_properties:
        properties_by_variant[SHORT] = {**longer_properties, **shorter_properties}
    has_large_manifests = facts.manifests.data_bytes >= _UNUSED_BYTES
    unused_column_count = len(unused_columns(facts, modes_by_column))
    if unused_column_count >= _UNUSED_COLUMNS or (unused_column_count and has_large_manifests):
        used_column_properties = {
            COLUMN + n: max(columns_by_name[n].metrics_mode, metrics_mode, key=mode_rank)
            for n, metrics_mode in modes_by_column.items()
            if COLUMN + n not in facts.properties
        }
        properties_by_variant[USED] = {
            **used_column_properties,
            **longer_properties,
            **shorter_properties,
            DEFAULT: NONE,
        }
    return properties_by_variant


def best_variant_name(measurements: Measurements) -> str | None:
    """The variant to advise: filters read no more files with it than now, and they read fewer, or
    much smaller manifests, or bounds that were large are short.
    """
    for variant in (USED, SHORT, BOUNDS):
        read_files_pair = measurements.figure_pair(READ, NOW, variant)
        manifest_bytes_pair = measurements.figure_pair(BYTES_OF, NOW, variant)
        if (
            read_files_pair is None
            or manifest_bytes_pair is None
            or read_files_pair[1] > read_files_pair[0]
        ):
            continue
        has_smaller_statistics = (
            variant == USED
            and manifest_bytes_pair[1] <= (1 - _UNUSED_SHARE) * manifest_bytes_pair[0]
        )
        # Manifests are compressed; in memory, large bounds take what they take.
        has_smaller_statistics |= (
            variant == SHORT and manifest_bytes_pair[1] <= manifest_bytes_pair[0]
        )
        if has_smaller_statistics or saves_files(*read_files_pair):
            return variant
    return None


def saves_files(file_count_before: float, file_count_after: float) -> bool:
    """Tell whether filters read clearly fewer files."""
    return file_count_before - file_count_after >= max(1.0, _GAIN * file_count_before)


def tune_metrics_columns(trial: Trial, options: MetricsColumnsOptions) -> Answer:
    """Write other metrics modes of a table's columns to clones; only reads the table.

    Filters of queries are SQL (predicates or complete queries), those of a Spark ``event_log``, or
    else the columns that the table declares. A table larger than ``sample_bytes`` is tried on
    copied samples of that size.

    Raises :class:`~icekit.common.errors.ParameterError` for an invalid filter, and for an event log
    that cannot be read.
    """
    lake = trial.lake
    facts = trial.facts
    query_filters = read_filters(lake, facts, options.filters, options.event_log)
    if not query_filters.filters:
        return answer_without_filters("metrics-columns", facts, query_filters.notes)
    sort_column_names = columns_to_sort_by(facts, query_filters.filters)
    sample_values = draw_sample(lake, facts, sort_column_names, sample_bytes=trial.sample_bytes)
    modes_by_column = needed_modes(facts, query_filters.filters, sample_values)
    entry_bytes_by_column = mean_entry_bytes(lake, facts)
    properties_by_variant = variant_properties(facts, modes_by_column, entry_bytes_by_column)
    variants = {
        variant: partial(_write_metrics, properties=properties)
        for variant, properties in {NOW: {}, **properties_by_variant}.items()
    }
    experiment = Experiment(
        trial=trial, variants=variants, measures=_MEASURES, always_sample=trial.is_large
    )
    sql_filters = query_filters.sql_filters(lake, facts)
    with experiment.open():
        experiment.measure("the filters", partial(_measure_filters, sql_filters=sql_filters))
    best_variant = best_variant_name(experiment.measurements)
    verdict, changes = _metrics_advice(
        facts,
        experiment.measurements,
        best_variant,
        properties_by_variant,
        modes_by_column,
        entry_bytes_by_column,
    )
    modes_text = first_names(
        (f"{column_name} {metrics_mode}" for column_name, metrics_mode in modes_by_column.items()),
        _SHOWN,
    )
    largest_entries_first = sorted(
        entry_bytes_by_column.items(), key=lambda name_and_size: -name_and_size[1]
    )
    entry_sizes_text = first_names(
        (
            f"{column_name} {plain_number(entry_bytes)}"
            for column_name, entry_bytes in largest_entries_first
        ),
        _SHOWN,
    )
    return experiment.answer(
        "metrics-columns",
        verdict,
        changes,
        (
            *query_filters.notes,
            f"Columns in use, with the mode that each needs: {modes_text}.",
            "Bytes that the statistics of each column take in a manifest entry, before "
            f"compression: {entry_sizes_text}.",
            _REWRITTEN,
        ),
        advised=best_variant,
    )


def mean_entry_bytes(lake: Lake, facts: TableFacts) -> dict[str, float]:
    """The mean bytes of each leaf column's statistics in a manifest entry, over some data files."""
    data_files = metadata_table(lake.spark, lake.sql_name(facts.table), "data_files")
    # Bounds may be large: only their lengths come to the driver.
    bound_length_sqls = [
        f"transform_values({map_name}, (id, value) -> length(value))" for map_name in _BOUND_MAPS
    ]
    metrics_rows = (
        data_files.limit(_SAMPLED).selectExpr(*_NUMBER_MAPS, *bound_length_sqls).collect()
    )
    bytes_by_field_id = Counter[int]()
    for row in metrics_rows:
        for map_index, numbers_by_field_id in enumerate(row):
            for field_id, map_number in (numbers_by_field_id or {}).items():
                bound_bytes = map_number if map_index >= len(_NUMBER_MAPS) else 0
                bytes_by_field_id[field_id] += (
                    _avro_bytes(field_id) + _avro_bytes(map_number) + bound_bytes
                )
    return {
        c.name: bytes_by_field_id[c.field_id] / max(len(metrics_rows), 1) for c in facts.columns
    }


def _avro_bytes(number: int) -> int:
    """The bytes of a number in Avro (specification, "Binary encoding"): it has a bit for its sign,
    and seven bits in each byte. The length of other values is a number in front of them.
    """
    return -(-(number.bit_length() + 1) // 7)


def _write_metrics(box: Sandbox, properties: Mapping[str, str]) -> None:
    """Rewrite the data files of a sandbox with these metrics; without properties too, so that only
    the metrics differ.
    """
    if properties:
        box.set(set_properties_sql(box.name, dict(properties)))
    box.run(
        ddl.rewrite_files_sql(box.name, {}, None, is_one_commit=True),
        expected_bytes=box.size_in_bytes,
    )
    # The commit leaves the entries of the files that it replaced in manifests, marked as deleted.
    box.run(ddl.rewrite_manifests_sql(box.name))


def _measure_filters(_: str, box: Sandbox, sql_filters: SqlFilters) -> Figures:
    read_file_count = mean_plan_figures(box, sql_filters)["data_files"]
    return {READ: read_file_count, BYTES_OF: box.observe().manifests.data_bytes}


def _metrics_advice(
    facts: TableFacts,
    measurements: Measurements,
    best_variant: str | None,
    properties_by_variant: Mapping[str, Mapping[str, str]],
    modes_by_column: Mapping[str, str],
    entry_bytes_by_column: Mapping[str, float],
) -> tuple[str, list[Change]]:
    """The verdict, and the properties of a variant with the rewrite of existing files."""
    default_mode_now = facts.properties.get(DEFAULT) or "truncate(16) for the first columns"
    why = (
        f"Statistics of {count(len(unused_columns(facts, modes_by_column)), 'column')} have no use "
        "in any known filter, sort order, partitioning or delete key."
    )
    if best_variant is None and (
        columns_to_rewrite := outdated_columns(facts, entry_bytes_by_column)
    ):
        heaviest_column = max(
            columns_to_rewrite, key=lambda column: entry_bytes_by_column[column.name]
        )
        rewrite_reason = (
            f"The statistics of {heaviest_column.name} take "
            f"{size(entry_bytes_by_column[heaviest_column.name])} in each manifest entry: its "
            f"files are older than its mode {heaviest_column.metrics_mode}."
        )
        return f"Rewrite the existing files. {rewrite_reason}", [
            ddl.rewrite_change(facts, rewrite_reason, None)
        ]
    if best_variant is None:
        read_files_text = plain_number(measurements.value(NOW, READ) or 0)
        file_count = facts.data.file_count
        verdict = (
            f"No change: a filter reads {read_files_text} of {count(file_count, 'data file')}, and "
            "no other metrics mode is worth it."
        )
        return verdict, [Change(DEFAULT, default_mode_now, default_mode_now, why)]
    advised_properties = properties_by_variant[best_variant]
    gain_text = measurements.gain_text(NOW, best_variant)
    property_names = [
        property_name.removeprefix("write.metadata.metrics.")
        for property_name in advised_properties
    ]
    side_effect = _EFFECT if best_variant == USED else None
    if best_variant == BOUNDS:
        why = f"Longer bounds tell values apart{gain_text}."
    if best_variant == SHORT:
        shorter_modes_by_column = shorter_bound_modes(facts, modes_by_column, entry_bytes_by_column)
        heaviest_column_name = max(
            shorter_modes_by_column, key=lambda property_name: entry_bytes_by_column[property_name]
        )
        gain_text = (
            f": the statistics of {heaviest_column_name} take "
            f"{size(entry_bytes_by_column[heaviest_column_name])} in each manifest entry"
        )
        why = f"Filters skip as many files with {shorter_modes_by_column[heaviest_column_name]}."
    changes = [
        property_change(
            facts, advised_properties, why, now=default_mode_now, side_effect=side_effect
        )
    ]
    read_files_pair = measurements.figure_pair(READ, NOW, best_variant)
    # Without a gain, the next compaction, which rewrites files anyway, is early enough; but entries
    # with large bounds slow down every plan until then.
    if best_variant == SHORT or (read_files_pair is not None and saves_files(*read_files_pair)):
        rewrite_reason = (
            "New settings apply only to new files; the others keep their metrics until they are "
            "rewritten (rewrite_manifests copies metrics unchanged)."
        )
        changes.append(ddl.rewrite_change(facts, rewrite_reason, None))
    properties_text = first_names(property_names, 3)
    return (
        f"Set {count(len(property_names), 'property', 'properties')} "
        f"({properties_text}){gain_text}.",
        changes,
    )
