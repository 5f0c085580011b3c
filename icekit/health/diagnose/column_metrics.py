"""Check column statistics, missing where filters need them or kept where nothing uses them: one
function per finding.
"""

from icekit.common.units import count, first_names, percent, size
from icekit.health.diagnose.findings import Context, Finding, Severity
from icekit.health.facts.sort_order import column_sql
from icekit.iceberg.definition import PartitionSpec
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.filter_opens import file_opens_from_share
from icekit.iceberg.where import NO_BOUNDS

# The property with a column's mode, Iceberg's default mode, and those that keep no bounds.
_MODE_PREFIX = "write.metadata.metrics.column."
_BOUNDS_MODE = "truncate(16)"
_BOUNDLESS_MODES = {"none", "counts"}


def metrics_missing(context: Context) -> Finding | None:
    """Columns that filters use, without bounds in the files."""
    facts = context.facts
    metrics_sample = facts.metrics_sample
    # The partition's value answers a filter on the column of an identity field, in files of every
    # spec that has it.
    data_spec_ids = {g.partition.spec_id for g in facts.of_kind(Kind.DATA)} or {
        facts.default_spec_id
    }
    identity_columns = set.intersection(
        *(set(_source_columns(facts.spec(i), "identity")) for i in data_spec_ids)
    )
    sort_columns = (f.source for f in facts.sort_order)
    columns_needing_bounds = dict.fromkeys(
        (*_source_columns(facts.default_spec), *sort_columns, *facts.filter_columns)
    )
    unbounded_counts_by_column: dict[str, int] = {}
    bounds_properties: dict[str, str] = {}
    for column_name in columns_needing_bounds:
        column = facts.by_name.get(column_name)
        column_sample = metrics_sample.column(column_name)
        if column is None or column.type.startswith(NO_BOUNDS) or column_name in identity_columns:
            continue
        has_boundless_mode = column.metrics_mode in _BOUNDLESS_MODES
        if has_boundless_mode:
            bounds_properties[_MODE_PREFIX + column_name] = _BOUNDS_MODE
        unbounded_file_count = metrics_sample.file_count
        if column_sample:
            unbounded_file_count -= column_sample.bounds_file_count + column_sample.null_file_count
        if has_boundless_mode or unbounded_file_count > metrics_sample.file_count / 2:
            unbounded_counts_by_column[column_name] = unbounded_file_count
    if not any(unbounded_counts_by_column.values()):
        return None
    return context.finding(
        tuple(unbounded_counts_by_column),
        figure=first_names(unbounded_counts_by_column, 2),
        evidence="; ".join(
            f"{column_name} (mode {facts.by_name[column_name].metrics_mode}) has no bounds in "
            f"{unbounded_count} of {metrics_sample.file_count} sampled data files"
            for column_name, unbounded_count in list(unbounded_counts_by_column.items())[:5]
        ),
        threshold="a partition-source, sort or declared filter column without bounds in half of "
        "the sampled files, or in new ones",
        source="write.metadata.metrics.*: scan planning skips files only by bounds",
        effect="A filter on such a column skips no file: a query opens every file that partition "
        "filters leave.",
        remedy="Keep bounds for these columns. New files get bounds at once, existing files when "
        "they are rewritten."
        if bounds_properties
        else "The table asks for these bounds already: the files are older than that, or their "
        "writer keeps none. "
        f"{context.command('compact', '--scope', 'major', '--budget', '100 GB')} rewrites them in "
        "portions.",
        sql=(context.alter_statement(bounds_properties), *context.rewrite_statements())
        if bounds_properties
        else (),
    )


def _source_columns(spec: PartitionSpec, transform: str | None = None) -> dict[str, None]:
    """The columns of a spec's fields, or of those with one transform."""
    return {
        f.source: None for f in spec.active_fields if f.source and transform in (None, f.transform)
    }


def columns_past_metrics_limit(context: Context) -> Finding | None:
    """More columns than Iceberg collects metrics for: the rest silently have none."""
    facts = context.facts
    column_limit = facts.int_setting("write.metadata.metrics.max-inferred-column-defaults")
    unmeasured_columns = [
        c.name
        for c in facts.columns
        if c.metrics_mode == "none" and _MODE_PREFIX + c.name not in facts.properties
    ]
    if not unmeasured_columns or "write.metadata.metrics.default" in facts.properties:
        return None
    return context.finding(
        unmeasured_columns,
        severity=Severity.INFO,
        figure=f"{len(unmeasured_columns):,} of {count(len(facts.columns), 'column')}",
        evidence=f"{len(facts.columns):,} columns; {count(len(unmeasured_columns), 'column')} "
        f"beyond the first {column_limit} get no metrics",
        threshold=f"{column_limit} columns, counting the fields of structs, lists and maps",
        source="write.metadata.metrics.max-inferred-column-defaults",
        effect="The order of the columns decides which filters can skip files; a column added "
        "later never has bounds.",
        remedy="Choose explicitly: no metrics by default, and bounds for the columns that queries "
        "filter by. Declare those columns (icekit.filter-columns) to get the statement.",
        sql=_metrics_statement(context),
    )


def too_many_metrics(context: Context) -> Finding | None:
    """Statistics of too many columns in every manifest entry."""
    facts = context.facts
    thresholds = context.thresholds
    metrics_sample = facts.metrics_sample
    measured_columns = [c for c in metrics_sample.columns if c.counts_file_count]
    if len(measured_columns) <= thresholds.metrics_columns:
        return None
    manifest_facts = facts.manifests
    return context.finding(
        severity=Severity.INFO,
        figure=f"of {count(len(measured_columns), 'column')}",
        evidence=f"the sampled data files have statistics of {len(measured_columns):,} columns: "
        f"{size(manifest_facts.data_bytes / manifest_facts.data_entry_count)} of manifest per data "
        f"file, {size(manifest_facts.data_bytes)} in total",
        threshold=f"{thresholds.metrics_columns} columns with metrics",
        effect="Planning reads and decodes all statistics to use the bounds of the one or two "
        "columns in the filter; drivers hold them in memory.",
        remedy="Keep metrics only for the columns that queries filter or sort by. Existing files "
        "keep their statistics until they are rewritten. Declare the columns "
        "(icekit.filter-columns) to get the statement.",
        sql=_metrics_statement(context),
    )


def unclustered_filter_columns(context: Context) -> Finding | None:
    """Declared filter columns, or the first sort column, whose bounds rule out almost no file."""
    facts = context.facts
    thresholds = context.thresholds
    metrics_sample = facts.metrics_sample
    # Sorting clusters only the first sort column; it orders the next ones only within equal values
    # of the first.
    first_sort_columns = [f.source for f in facts.sort_order[:1] if f.transform == "identity"]
    filter_columns = dict.fromkeys((*facts.filter_columns, *first_sort_columns))
    unclustered_samples = [
        (column_sample, column_sample.stab_share)
        for column_name in filter_columns
        if (column_sample := metrics_sample.column(column_name))
        and column_sample.stab_share is not None
        and column_sample.bounds_file_count >= thresholds.min_sampled_files
        and column_sample.stab_share >= thresholds.stab_share
    ]
    if not unclustered_samples:
        return None
    unclustered_names = [column_sample.column for column_sample, _ in unclustered_samples]
    # The first column wins most, a second one little, further ones nothing; only a trial shows
    # whether a curve does better.
    sort_order_sql = ", ".join(
        f"{column_sql(facts.by_name, column_name)} ASC NULLS LAST"
        for column_name in unclustered_names[:2]
    )
    statements = [*context.rewrite_statements(strategy="sort", sort_order=sort_order_sql)]
    if not facts.sort_order:
        statements.append(f"ALTER TABLE {context.table_sql} WRITE ORDERED BY {sort_order_sql}")
    return context.finding(
        unclustered_names,
        figure=first_names(unclustered_names, 2),
        evidence="; ".join(
            f"a filter on one value of {column_sample.column} opens "
            f"{_opens_text(column_sample.bounds_file_count, open_share, facts.data.file_count)}"
            for column_sample, open_share in unclustered_samples
        ),
        threshold=f"{percent(thresholds.stab_share)} of at least {thresholds.min_sampled_files} "
        "files",
        effect="Bounds are stored and read, but skip almost no file: each file covers nearly the "
        "full range of values.",
        remedy="Sort by the columns that most queries filter by, in portions: a rewrite takes "
        "well-sized files only with the option rewrite-all, so use it with a where filter that "
        f"keeps each run small. {context.command('tune layout')} tries other orders. For strings "
        "with a long shared prefix, first keep longer bounds (icekit tune metrics-columns).",
        sql=tuple(statements),
    )


def _opens_text(sampled_file_count: int, open_share: float, file_count: int) -> str:
    """``9 of 9 data files``, ``about 40 of 40 data files (100 % of 20 sampled)``."""
    open_count_text = f"{file_opens_from_share(open_share, sampled_file_count, file_count):,.0f}"
    opens_text = f"{open_count_text} of {count(file_count, 'data file')}"
    if sampled_file_count >= file_count:
        return opens_text
    return f"about {opens_text} ({percent(open_share)} of {sampled_file_count} sampled)"


def _metrics_statement(context: Context) -> tuple[str, ...]:
    """ALTER TABLE that keeps bounds only for filter, sort, partition and delete key columns.

    Empty while no filter columns are declared: the statement could remove bounds that
    some query uses to skip files.
    """
    facts = context.facts
    if not facts.filter_columns:
        return ()
    names_needing_bounds = *facts.filter_columns, *facts.columns_needing_bounds
    columns_needing_bounds = (
        facts.by_name[column_name]
        for column_name in names_needing_bounds
        if column_name in facts.by_name
    )
    modes_by_property = {
        _MODE_PREFIX + c.name: _BOUNDS_MODE
        if c.metrics_mode in _BOUNDLESS_MODES
        else c.metrics_mode
        for c in columns_needing_bounds
    }
    return (
        context.alter_statement({"write.metadata.metrics.default": "none", **modes_by_property}),
    )
