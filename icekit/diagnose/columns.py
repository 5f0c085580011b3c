"""Symptoms of column statistics: missing where filters need them, kept where nobody looks."""

from __future__ import annotations

from icekit import sql
from icekit.diagnose.context import CHOICE, Context
from icekit.diagnose.findings import Finding, Severity
from icekit.facts.model import ColumnSample
from icekit.units import count, percent, size

_NEVER_BOUNDED = ("list", "map", "struct", "variant", "geometry", "geography", "unknown")


def metrics_missing(context: Context) -> Finding | None:
    """Columns that filters rely on, without bounds in the files."""
    facts = context.facts
    sample = facts.metrics_sample
    roles: dict[str, str] = {}
    for field in facts.default_spec.fields:
        if field.source and field.transform != "void":
            roles[field.source] = "partition source"
    roles.update({f.source: "sort order" for f in facts.sort_order})
    roles.update(dict.fromkeys(facts.filter_columns, "filter"))
    columns = {c.name: c for c in facts.columns}
    sick = {}
    for name, role in roles.items():
        column = columns.get(name)
        if column is None or column.type.startswith(_NEVER_BOUNDED):
            continue
        seen = sample.column(name)
        if column.metrics_mode in {"none", "counts"} or (sample.file_count and seen and not seen.counts_file_count):
            sick[name] = f"{role}, mode {column.metrics_mode}"
    if not sick or not sample.file_count:
        return None
    without = {name: sample.file_count - (seen.bounds_file_count if (seen := sample.column(name)) else 0) for name in sick}
    if not any(without.values()):
        return None
    properties = {f"write.metadata.metrics.column.{name}": "truncate(16)" for name in sick}
    return context.finding(
        "metrics_missing",
        Severity.WARNING,
        tuple(sick),
        evidence="; ".join(
            f"{name} ({sick[name]}) has no bounds in {without[name]} of {sample.file_count} sampled data files" for name in list(sick)[:5]
        ),
        threshold="a partition-source, sort or declared filter column without bounds",
        source="write.metadata.metrics.*: scan planning skips files by bounds only",
        effect="A filter on such a column skips no file: every file that the partition lets through is opened.",
        remedy="Keep bounds for these columns; new files get them at once, old ones when they are rewritten.",
        sql=(context.alter(properties), context.rewrite()),
        files_at_stake=facts.data.file_count,
        bytes_at_stake=facts.data.size_in_bytes,
    )


def columns_past_metrics_limit(context: Context) -> Finding | None:
    """More columns than metrics are inferred for: the rest silently has none."""
    facts = context.facts
    limit = facts.int_setting("write.metadata.metrics.max-inferred-column-defaults")
    if facts.top_level_column_count <= limit or "write.metadata.metrics.default" in facts.properties:
        return None
    bare = [c.name for c in facts.columns if c.metrics_mode == "none"]
    return context.finding(
        "columns_past_metrics_limit",
        Severity.INFO,
        tuple(bare),
        evidence=f"{facts.top_level_column_count:,} columns; {count(len(bare), 'column')} beyond the first {limit} get no metrics",
        threshold=f"{limit} columns",
        source="write.metadata.metrics.max-inferred-column-defaults",
        effect="Which columns can be filtered by depends on the order in which they were declared; a column added later never has bounds.",
        remedy="State it: no metrics by default, and bounds for the columns that queries filter by. Declare those (icekit.filter-columns) to get the statement.",
        sql=_state_metrics(context),
        files_at_stake=facts.data.file_count,
    )


def too_many_metrics(context: Context) -> Finding | None:
    """Statistics of very many columns in every manifest entry."""
    facts, limits = context.facts, context.thresholds
    sample = facts.metrics_sample
    kept = [c for c in sample.columns if c.counts_file_count]
    per_entry = facts.manifests.bytes_per_data_entry
    if len(kept) <= limits.metrics_columns or per_entry is None:
        return None
    return context.finding(
        "too_many_metrics",
        Severity.INFO,
        (),
        evidence=f"every data file carries statistics of {len(kept):,} columns: {size(per_entry)} of manifest each, {size(facts.manifests.data_bytes)} in all",
        threshold=f"{limits.metrics_columns} columns with metrics",
        source=CHOICE,
        effect="Planning reads and decodes all of it to use the bounds of the one or two columns in the filter; drivers hold it in memory.",
        remedy="Keep metrics for the columns that queries filter or sort by, and none for the rest; files that are there keep theirs until they are rewritten. Declare the columns (icekit.filter-columns) to get the statement.",
        sql=_state_metrics(context),
        files_at_stake=facts.data.file_count,
        bytes_at_stake=facts.manifests.data_bytes,
    )


def unclustered_filter_columns(context: Context) -> Finding | None:
    """Declared filter columns, or the first sort column, whose bounds never rule a file out."""
    facts, limits = context.facts, context.thresholds
    sample = facts.metrics_sample
    # Only the first sort column is clustered by sorting; the next ones are so within its equals.
    wanted = dict.fromkeys((*facts.filter_columns, *(f.source for f in facts.sort_order[:1] if f.transform == "identity")))
    sick: list[tuple[ColumnSample, float]] = []
    for name in wanted:
        seen = sample.column(name)
        if (
            seen
            and seen.stab_share is not None
            and seen.bounds_file_count >= limits.min_sampled_files
            and seen.stab_share >= limits.stab_share
        ):
            sick.append((seen, seen.stab_share))
    if not sick:
        return None
    names = [seen.column for seen, _ in sick]
    texts = any(c.type == "string" and c.metrics_mode.startswith("truncate") for c in facts.columns if c.name in names)
    alike = " Texts that share a long beginning no sorting helps while bounds are cut: tune the metrics first." if texts else ""
    paths = {c.name: c.names for c in facts.columns}
    quoted = [sql.identifier(*paths.get(name, (name,))) for name in names]
    # Sorted by several columns only the first is clustered; a space-filling curve serves them all.
    order = f"{quoted[0]} ASC NULLS LAST" if len(names) == 1 else f"zorder({', '.join(quoted)})"
    statements = [context.rewrite(strategy="sort", sort_order=order)]
    if len(names) == 1 and not facts.sort_order:
        statements.append(f"ALTER TABLE {sql.identifier(*context.full_name)} WRITE ORDERED BY {order}")
    return context.finding(
        "unclustered_filter_columns",
        Severity.WARNING,
        tuple(names),
        evidence="; ".join(
            f"a value of {seen.column} lies within the bounds of {percent(share)} of {seen.bounds_file_count} sampled data files"
            for seen, share in sick
        ),
        threshold=f"{percent(limits.stab_share)} of at least {limits.min_sampled_files} files",
        source=CHOICE,
        effect="Bounds are kept and read, and skip almost nothing: each file holds the whole range of values.",
        remedy="Sort by these columns, in portions: well-sized files are taken only with the option rewrite-all, so give it with a where filter that keeps each run small."
        + alike,
        sql=tuple(statements),
        files_at_stake=facts.data.file_count,
        bytes_at_stake=facts.data.size_in_bytes,
    )


def _state_metrics(context: Context) -> tuple[str, ...]:
    """ALTER TABLE that keeps bounds for what filters, sorts and partitions, and for nothing else.

    None while nobody has declared what queries filter by: it would take bounds away that
    some query skips files with.
    """
    facts = context.facts
    if not facts.filter_columns:
        return ()
    wanted = [*facts.filter_columns, *(f.source for f in facts.default_spec.fields if f.source), *(f.source for f in facts.sort_order)]
    # Without bounds of its key a data file loads every equality delete file (DeleteFileIndex).
    wanted += [c.name for c in facts.columns if any(c.field_id in key.field_ids for key in facts.equality_keys)]
    properties = {"write.metadata.metrics.default": "none"}
    properties.update({f"write.metadata.metrics.column.{name}": "truncate(16)" for name in dict.fromkeys(wanted)})
    return (context.alter(properties),)
