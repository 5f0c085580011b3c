"""Check column statistics, missing where filters need them or kept where nothing uses them: one
function per finding.
"""

from icekit.common.units import count, first_names, percent, size
from icekit.health.diagnose.findings import Context, Finding, Severity
from icekit.health.facts.sort_order import quoted
from icekit.iceberg.definition import PartitionSpec
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.filter_opens import opens_of_share
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
    specs = {g.partition.spec_id for g in facts.of_kind(Kind.DATA)} or {facts.default_spec_id}
    identity_columns = set.intersection(*(set(_sources(facts.spec(i), "identity")) for i in specs))
    sorted_by = (f.source for f in facts.sort_order)
    used = dict.fromkeys((*_sources(facts.default_spec), *sorted_by, *facts.filter_columns))
    without: dict[str, int] = {}
    properties: dict[str, str] = {}
    for name in used:
        column = facts.by_name.get(name)
        seen = sample.column(name)
        if column is None or column.type.startswith(NO_BOUNDS) or name in identity_columns:
            continue
        is_off = column.metrics_mode in _NO_BOUNDS
        if is_off:
            properties[_MODE + name] = _BOUNDS
        bare = sample.file_count
        if seen:
            bare -= seen.bounds_file_count + seen.null_file_count
        if is_off or bare > sample.file_count / 2:
            without[name] = bare
    if not any(without.values()):
        return None
    return context.finding(
        tuple(without),
        figure=first_names(without, 2),
        evidence="; ".join(
            f"{name} (mode {facts.by_name[name].metrics_mode}) has no bounds in {files} of "
            f"{sample.file_count} sampled data files"
            for name, files in list(without.items())[:5]
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
        sql=(context.alter(properties), *context.rewrite()) if properties else (),
    )


def _sources(spec: PartitionSpec, transform: str | None = None) -> dict[str, None]:
    """The columns of a spec's fields, or of those with one transform."""
    return {
        f.source: None for f in spec.active_fields if f.source and transform in (None, f.transform)
    }


def columns_past_metrics_limit(context: Context) -> Finding | None:
    """More columns than Iceberg collects metrics for: the rest silently have none."""
    facts = context.facts
    limit = facts.int_setting("write.metadata.metrics.max-inferred-column-defaults")
    bare = [
        c.name
        for c in facts.columns
        if c.metrics_mode == "none" and _MODE + c.name not in facts.properties
    ]
    if not bare or "write.metadata.metrics.default" in facts.properties:
        return None
    return context.finding(
        bare,
        severity=Severity.INFO,
        figure=f"{len(bare):,} of {count(len(facts.columns), 'column')}",
        evidence=f"{len(facts.columns):,} columns; {count(len(bare), 'column')} beyond the first "
        f"{limit} get no metrics",
        threshold=f"{limit} columns, counting the fields of structs, lists and maps",
        source="write.metadata.metrics.max-inferred-column-defaults",
        effect="The order of the columns decides which filters can skip files; a column added "
        "later never has bounds.",
        remedy="Choose explicitly: no metrics by default, and bounds for the columns that queries "
        "filter by. Declare those columns (icekit.filter-columns) to get the statement.",
        sql=_state_metrics(context),
    )


def too_many_metrics(context: Context) -> Finding | None:
    """Statistics of too many columns in every manifest entry."""
    facts = context.facts
    limits = context.thresholds
    sample = facts.metrics_sample
    kept_columns = [c for c in sample.columns if c.counts_file_count]
    if len(kept_columns) <= limits.metrics_columns:
        return None
    manifests = facts.manifests
    return context.finding(
        severity=Severity.INFO,
        figure=f"of {count(len(kept_columns), 'column')}",
        evidence=f"the sampled data files have statistics of {len(kept_columns):,} columns: "
        f"{size(manifests.data_bytes / manifests.data_entry_count)} of manifest per data file, "
        f"{size(manifests.data_bytes)} in total",
        threshold=f"{limits.metrics_columns} columns with metrics",
        effect="Planning reads and decodes all statistics to use the bounds of the one or two "
        "columns in the filter; drivers hold them in memory.",
        remedy="Keep metrics only for the columns that queries filter or sort by. Existing files "
        "keep their statistics until they are rewritten. Declare the columns "
        "(icekit.filter-columns) to get the statement.",
        sql=_state_metrics(context),
    )


def unclustered_filter_columns(context: Context) -> Finding | None:
    """Declared filter columns, or the first sort column, whose bounds rule out almost no file."""
    facts = context.facts
    limits = context.thresholds
    sample = facts.metrics_sample
    # Sorting clusters only the first sort column; it orders the next ones only within equal values
    # of the first.
    first = [f.source for f in facts.sort_order[:1] if f.transform == "identity"]
    wanted_columns = dict.fromkeys((*facts.filter_columns, *first))
    sick = [
        (seen, seen.stab_share)
        for name in wanted_columns
        if (seen := sample.column(name))
        and seen.stab_share is not None
        and seen.bounds_file_count >= limits.min_sampled_files
        and seen.stab_share >= limits.stab_share
    ]
    if not sick:
        return None
    names = [seen.column for seen, _ in sick]
    # The first column wins most, a second one little, further ones nothing; only a trial shows
    # whether a curve does better.
    order = ", ".join(f"{quoted(facts.by_name, name)} ASC NULLS LAST" for name in names[:2])
    statements = [*context.rewrite(strategy="sort", sort_order=order)]
    if not facts.sort_order:
        statements.append(f"ALTER TABLE {context.table} WRITE ORDERED BY {order}")
    return context.finding(
        names,
        figure=first_names(names, 2),
        evidence="; ".join(
            f"a filter on one value of {seen.column} opens "
            f"{_opened(seen.bounds_file_count, share, facts.data.file_count)}"
            for seen, share in sick
        ),
        threshold=f"{percent(limits.stab_share)} of at least {limits.min_sampled_files} files",
        effect="Bounds are stored and read, but skip almost no file: each file covers nearly the "
        "full range of values.",
        remedy="Sort by the columns that most queries filter by, in portions: a rewrite takes "
        "well-sized files only with the option rewrite-all, so use it with a where filter that "
        f"keeps each run small. {context.command('tune layout')} tries other orders. For strings "
        "with a long shared prefix, first keep longer bounds (icekit tune metrics-columns).",
        sql=tuple(statements),
    )


def _opened(sampled: int, share: float, file_count: int) -> str:
    """``9 of 9 data files``, ``about 40 of 40 data files (100 % of 20 sampled)``."""
    opens = f"{opens_of_share(share, sampled, file_count):,.0f}"
    text = f"{opens} of {count(file_count, 'data file')}"
    if sampled >= file_count:
        return text
    return f"about {text} ({percent(share)} of {sampled} sampled)"


def _state_metrics(context: Context) -> tuple[str, ...]:
    """ALTER TABLE that keeps bounds only for filter, sort, partition and delete key columns.

    Empty while no filter columns are declared: the statement could remove bounds that
    some query uses to skip files.
    """
    facts = context.facts
    if not facts.filter_columns:
        return ()
    wanted_columns = *facts.filter_columns, *facts.bound_columns
    columns = (facts.by_name[name] for name in wanted_columns if name in facts.by_name)
    bounds = {
        _MODE + c.name: _BOUNDS if c.metrics_mode in _NO_BOUNDS else c.metrics_mode for c in columns
    }
    return (context.alter({"write.metadata.metrics.default": "none", **bounds}),)
