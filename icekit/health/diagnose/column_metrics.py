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
_MODE = "write.metadata.metrics.column."
_BOUNDS = "truncate(16)"
_NO_BOUNDS = {"none", "counts"}


def metrics_missing(context: Context) -> Finding | None:
    """Columns that filters use, without bounds in the files."""
    facts = context.facts
    sample = facts.metrics_sample
    # The partition's value answers a filter on the column of an identity field, in files of every
    # spec that has it.
    spec_ids = {g.partition.spec_id for g in facts.of_kind(Kind.DATA)} or {facts.default_spec_id}
    identity_columns = set.intersection(
        *(set(_source_columns(facts.spec(i), "identity")) for i in spec_ids)
    )
    sort_columns = (f.source for f in facts.sort_order)
    useful_columns = dict.fromkeys(
        (*_source_columns(facts.default_spec), *sort_columns, *facts.filter_columns)
    )
    missing_counts: dict[str, int] = {}
    properties: dict[str, str] = {}
    for name in useful_columns:
        column = facts.by_name.get(name)
        column_sample = sample.column(name)
        if column is None or column.type.startswith(NO_BOUNDS) or name in identity_columns:
            continue
        is_without_bounds = column.metrics_mode in _NO_BOUNDS
        if is_without_bounds:
            properties[_MODE + name] = _BOUNDS
        unbounded_count = sample.file_count
        if column_sample:
            unbounded_count -= column_sample.bounds_file_count + column_sample.null_file_count
        if is_without_bounds or unbounded_count > sample.file_count / 2:
            missing_counts[name] = unbounded_count
    if not any(missing_counts.values()):
        return None
    return context.finding(
        tuple(missing_counts),
        figure=first_names(missing_counts, 2),
        evidence="; ".join(
            f"{name} (mode {facts.by_name[name].metrics_mode}) has no bounds in {file_count} of "
            f"{sample.file_count} sampled data files"
            for name, file_count in list(missing_counts.items())[:5]
        ),
        threshold="a partition-source, sort or declared filter column without bounds in half of "
        "the sampled files, or in new ones",
        source="write.metadata.metrics.*: scan planning skips files only by bounds",
        effect="A filter on such a column skips no file: a query opens every file that partition "
        "filters leave.",
        remedy="Keep bounds for these columns. New files get bounds at once, existing files when "
        "they are rewritten."
        if properties
        else "The table asks for these bounds already: the files are older than that, or their "
        f"writer keeps none. {context.command('compact', '--scope', 'major', '--budget', '100 GB')} "
        "rewrites them in portions.",
        sql=(context.alter_statement(properties), *context.rewrite_calls()) if properties else (),
    )


def _source_columns(spec: PartitionSpec, transform: str | None = None) -> dict[str, None]:
    """The columns of a spec's fields, or of those with one transform."""
    return {
        f.source: None for f in spec.active_fields if f.source and transform in (None, f.transform)
    }


def columns_past_metrics_limit(context: Context) -> Finding | None:
    """More columns than Iceberg collects metrics for: the rest silently have none."""
    facts = context.facts
    metrics_limit = facts.int_setting("write.metadata.metrics.max-inferred-column-defaults")
    unmeasured_columns = [
        c.name
        for c in facts.columns
        if c.metrics_mode == "none" and _MODE + c.name not in facts.properties
    ]
    if not unmeasured_columns or "write.metadata.metrics.default" in facts.properties:
        return None
    return context.finding(
        unmeasured_columns,
        severity=Severity.INFO,
        figure=f"{len(unmeasured_columns):,} of {count(len(facts.columns), 'column')}",
        evidence=f"{len(facts.columns):,} columns; {count(len(unmeasured_columns), 'column')} "
        "beyond the first "
        f"{metrics_limit} get no metrics",
        threshold=f"{metrics_limit} columns, counting the fields of structs, lists and maps",
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
    sample = facts.metrics_sample
    measured_columns = [c for c in sample.columns if c.counts_file_count]
    if len(measured_columns) <= thresholds.metrics_columns:
        return None
    manifests = facts.manifests
    return context.finding(
        severity=Severity.INFO,
        figure=f"of {count(len(measured_columns), 'column')}",
        evidence=f"the sampled data files have statistics of {len(measured_columns):,} columns: "
        f"{size(manifests.data_bytes / manifests.data_entry_count)} of manifest per data file, "
        f"{size(manifests.data_bytes)} in total",
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
    sample = facts.metrics_sample
    # Sorting clusters only the first sort column; it orders the next ones only within equal values
    # of the first.
    first_sort_column = [f.source for f in facts.sort_order[:1] if f.transform == "identity"]
    filter_columns = dict.fromkeys((*facts.filter_columns, *first_sort_column))
    unclustered_samples = [
        (column_sample, column_sample.stab_share)
        for name in filter_columns
        if (column_sample := sample.column(name))
        and column_sample.stab_share is not None
        and column_sample.bounds_file_count >= thresholds.min_sampled_files
        and column_sample.stab_share >= thresholds.stab_share
    ]
    if not unclustered_samples:
        return None
    names = [column_sample.column for column_sample, _ in unclustered_samples]
    # The first column wins most, a second one little, further ones nothing; only a trial shows
    # whether a curve does better.
    sort_order = ", ".join(
        f"{column_sql(facts.by_name, name)} ASC NULLS LAST" for name in names[:2]
    )
    statements = [*context.rewrite_calls(strategy="sort", sort_order=sort_order)]
    if not facts.sort_order:
        statements.append(f"ALTER TABLE {context.table} WRITE ORDERED BY {sort_order}")
    return context.finding(
        names,
        figure=first_names(names, 2),
        evidence="; ".join(
            f"a filter on one value of {column_sample.column} opens "
            f"{_opens_text(column_sample.bounds_file_count, share, facts.data.file_count)}"
            for column_sample, share in unclustered_samples
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


def _opens_text(sampled_count: int, share: float, file_count: int) -> str:
    """``9 of 9 data files``, ``about 40 of 40 data files (100 % of 20 sampled)``."""
    open_count_text = f"{file_opens_from_share(share, sampled_count, file_count):,.0f}"
    text = f"{open_count_text} of {count(file_count, 'data file')}"
    if sampled_count >= file_count:
        return text
    return f"about {text} ({percent(share)} of {sampled_count} sampled)"


def _metrics_statement(context: Context) -> tuple[str, ...]:
    """ALTER TABLE that keeps bounds only for filter, sort, partition and delete key columns.

    Empty while no filter columns are declared: the statement could remove bounds that
    some query uses to skip files.
    """
    facts = context.facts
    if not facts.filter_columns:
        return ()
    useful_columns = *facts.filter_columns, *facts.columns_needing_bounds
    columns = (facts.by_name[name] for name in useful_columns if name in facts.by_name)
    metrics_modes = {
        _MODE + c.name: _BOUNDS if c.metrics_mode in _NO_BOUNDS else c.metrics_mode for c in columns
    }
    return (context.alter_statement({"write.metadata.metrics.default": "none", **metrics_modes}),)
