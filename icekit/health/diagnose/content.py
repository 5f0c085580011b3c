"""Check what the bytes of files are: rows or something else, columns of a useful size, metadata in
proportion to the data.
"""

from icekit.common.units import count, percent, size
from icekit.health.diagnose.findings import CHOICE, LONG_AGO, Context, Finding, Severity
from icekit.health.facts.metadata_sections import PARTITIONS_OF_SUMMARY
from icekit.iceberg.metadata import ROW_GROUP

_BLOOM_PREFIX = "write.parquet.bloom-filter-enabled.column."
# Choices: from here on, the bytes of a file besides its columns matter, those of a column in a row
# group are enough, and those of all manifests matter.
_MIN_OUTSIDE_BYTES = 2**20
_MIN_CHUNK_BYTES = 2**20
_MIN_MANIFEST_BYTES = 2**20
# The largest row group that Parquet's documentation advises.
_MAX_ROW_GROUP_BYTES = 2**30


def bytes_outside_columns(context: Context) -> Finding | None:
    """Data files of which columns are a small part: bloom filters, or footers of many row groups
    and columns, are the rest.

    Sizes of columns are those of Parquet's column chunks, in the manifest entries of the sampled
    files.
    """
    facts = context.facts
    thresholds = context.thresholds
    metrics_sample = facts.metrics_sample
    if not metrics_sample.column_bytes:
        return None
    outside_byte_count = metrics_sample.file_bytes - metrics_sample.column_bytes
    column_byte_share = metrics_sample.column_bytes / max(1, metrics_sample.file_bytes)
    if (
        1 - column_byte_share < thresholds.bytes_outside_columns
        or outside_byte_count < _MIN_OUTSIDE_BYTES * metrics_sample.sized_files
    ):
        return None
    bloom_properties = [
        property_name
        for property_name in facts.properties
        if property_name.startswith(_BLOOM_PREFIX) and facts.is_setting_true(property_name)
    ]
    bloom_columns = [
        property_name.removeprefix(_BLOOM_PREFIX) for property_name in bloom_properties
    ]
    cause_text = (
        "footers and indexes, which grow with columns × row groups, or bloom filters of a "
        "writer's own settings"
    )
    remedy = (
        f"Check the writer's row group size ({ROW_GROUP} is {size(facts.int_setting(ROW_GROUP))}) "
        "and its bloom filters, and write more rows per file."
    )
    if bloom_columns:
        cause_text = (
            f"bloom filters ({', '.join(bloom_columns)}), each of up to "
            "write.parquet.bloom-filter-max-bytes per row group"
        )
        remedy = (
            "State how many distinct values the columns have "
            "(write.parquet.bloom-filter-ndv.column.…), which sizes the filters, or lower "
            "write.parquet.bloom-filter-max-bytes. Filters help only point lookups: remove those "
            "that no query uses."
        )
    return context.finding(
        bloom_columns,
        figure=f"{percent(1 - column_byte_share)} of the bytes",
        evidence=f"columns are {percent(column_byte_share)} of the bytes of "
        f"{count(metrics_sample.sized_files, 'sampled data file')}: a file of "
        f"{size(metrics_sample.file_bytes / metrics_sample.sized_files)} on average holds "
        f"{size(metrics_sample.column_bytes / metrics_sample.sized_files)} of columns",
        threshold=f"{percent(thresholds.bytes_outside_columns)} of the bytes, and "
        f"{size(_MIN_OUTSIDE_BYTES)} per file",
        effect="The files look well-sized, but hold few rows, so compaction leaves them alone: "
        f"the rest is {cause_text}.",
        remedy=f"{remedy} Then rewrite the files, which have the size of the target: icekit "
        "compact with --scope major.",
    )


def thin_column_chunks(context: Context) -> Finding | None:
    """Tables so wide that a column has little in each row group, however large the files are."""
    facts = context.facts
    thresholds = context.thresholds
    column_count = len(facts.columns)
    row_group_bytes = facts.int_setting(ROW_GROUP)
    mean_file_bytes = facts.data.mean_bytes
    is_parquet = facts.properties.get("write.format.default", "parquet").lower() == "parquet"
    if (
        column_count < thresholds.wide_columns
        or mean_file_bytes is None
        or mean_file_bytes < row_group_bytes
        or not is_parquet
    ):
        return None
    chunk_bytes = row_group_bytes / column_count
    if chunk_bytes >= _MIN_CHUNK_BYTES:
        return None
    # The next power of two, as far as Parquet advises.
    sufficient_row_group_bytes = min(
        1 << (column_count * _MIN_CHUNK_BYTES - 1).bit_length(), _MAX_ROW_GROUP_BYTES
    )
    return context.finding(
        severity=Severity.INFO,
        figure=f"{size(chunk_bytes)} each",
        evidence=f"{column_count:,} columns: one has {size(chunk_bytes)} of a row group of "
        f"{size(row_group_bytes)} on average, and {size(mean_file_bytes / column_count)} of a file "
        f"of {size(mean_file_bytes)}",
        threshold=f"{thresholds.wide_columns} columns, and less than {size(_MIN_CHUNK_BYTES)} per "
        "column and row group",
        source=f"{CHOICE}; Parquet's own advice is row groups of 512 MiB to 1 GiB, so that "
        "columns are read in long pieces",
        effect="A query of a few columns makes a small request for each of them in each row "
        "group, and opens as many files as a query of all.",
        remedy=f"Raise {ROW_GROUP}, and the target file size with it, if writers and readers have "
        "the memory: a writer holds a row group, a task reads one. Or move columns that are "
        "rarely read to another table.",
        sql=(context.alter_statement({ROW_GROUP: str(sufficient_row_group_bytes)}),)
        if sufficient_row_group_bytes > row_group_bytes
        else (),
    )


def heavy_metadata(context: Context) -> Finding | None:
    """Manifests that are large in proportion to the data, or a metadata file that every commit and
    every reader pays for.
    """
    facts = context.facts
    thresholds = context.thresholds
    total_manifest_bytes = facts.manifests.size_in_bytes
    total_data_bytes = facts.data.size_in_bytes
    metadata_file_bytes = facts.metadata_bytes or 0
    has_heavy_manifests = (
        total_manifest_bytes >= _MIN_MANIFEST_BYTES
        and total_manifest_bytes >= thresholds.manifest_share * total_data_bytes
    )
    has_heavy_file = metadata_file_bytes >= thresholds.metadata_bytes
    if not (has_heavy_manifests or has_heavy_file):
        return None
    evidence_texts = []
    remedy_texts = []
    if has_heavy_manifests:
        evidence_texts.append(
            f"manifests hold {size(total_manifest_bytes)} for {size(total_data_bytes)} of data "
            f"({percent(total_manifest_bytes / max(1, total_data_bytes))})"
        )
        remedy_texts.append(
            "Write larger files, and keep statistics only of the columns that queries filter by "
            "(write.metadata.metrics.*): rewritten files then have smaller entries."
        )
    section_statements: tuple[str, ...] = ()
    if has_heavy_file:
        section_text, section_advice, section_statements = _section_advice(context)
        evidence_texts.append(f"the metadata file has {size(metadata_file_bytes)}{section_text}")
        remedy_texts.append(section_advice)
    return context.finding(
        figure=f"{size(total_manifest_bytes)} of manifests"
        if has_heavy_manifests
        else f"{size(metadata_file_bytes)} a commit",
        evidence="; ".join(evidence_texts),
        threshold=f"manifests of {size(_MIN_MANIFEST_BYTES)} and "
        f"{percent(thresholds.manifest_share)} of the data, or a metadata file of "
        f"{size(thresholds.metadata_bytes)}",
        effect="Planning reads the manifests before the first row. Each commit writes the "
        "metadata file again, and each reader loads it.",
        remedy=" ".join(remedy_texts),
        sql=section_statements,
    )


def _section_advice(context: Context) -> tuple[str, str, tuple[str, ...]]:
    """What the metadata file is full of, what helps against that, and its statements."""
    facts = context.facts
    if not facts.metadata_sections:
        return "", "Observe the table again to see what the file is full of.", ()
    largest_section = facts.metadata_sections[0]
    entries_text = (
        f", {count(largest_section.entry_count, 'entry', 'entries')}"
        if largest_section.entry_count > 1
        else ""
    )
    section_text = (
        f": {percent(largest_section.share)} of it is {largest_section.name}{entries_text}"
    )
    has_dominant_part = (
        largest_section.largest is not None
        and 2 * largest_section.largest_bytes >= largest_section.size_in_bytes
    )
    if has_dominant_part:
        is_property = largest_section.name == "properties"
        part_noun = "the property" if is_property else "the summary key"
        part_size_text = size(largest_section.largest_bytes)
        section_text += f", above all {part_noun} {largest_section.largest} ({part_size_text})"
    section_advice, section_statements = _reduction_advice(
        context, largest_section.name, largest_section.largest if has_dominant_part else None
    )
    return section_text, section_advice, section_statements


def _reduction_advice(
    context: Context, section_name: str, dominant_part: str | None
) -> tuple[str, tuple[str, ...]]:
    """How a section of the metadata file becomes smaller, and the statements for it."""
    facts = context.facts
    # What goes with snapshots goes only where some can.
    can_expire_snapshots = facts.history.snapshot_count > 1
    expiry_advice = (
        f"Expire snapshots: {context.command('maintain')}."
        if facts.history.expirable_count != 0
        else "No snapshot would expire now; state a shorter retention: "
        f"{context.command('maintain', '--keep', 'TIME', '--keep-last', 'N')}."
    )
    match section_name:
        case "properties" if dominant_part is not None:
            return (
                f"Keep the value of {dominant_part} outside of the table, then remove the "
                f"property: ALTER TABLE {context.table_sql} UNSET TBLPROPERTIES "
                f"('{dominant_part}').",
                (),
            )
        case "properties":
            return "Remove properties that no reader needs (UNSET TBLPROPERTIES).", ()
        case "snapshots" if dominant_part == PARTITIONS_OF_SUMMARY:
            property_name = "write.summary.partition-limit"
            advice = f"Write no summary of each partition: {property_name} = 0."
            return (
                f"{advice} {expiry_advice}" if can_expire_snapshots else advice,
                (context.alter_statement({property_name: "0"}),),
            )
        case "snapshots" if dominant_part is not None:
            advice = f"Let writers put less into {dominant_part} of their summaries."
            return f"{advice} {expiry_advice}" if can_expire_snapshots else advice, ()
        case "snapshots" | "snapshot-log" | "encryption-keys" if can_expire_snapshots:
            return expiry_advice, ()
        case "metadata-log":
            property_name = "write.metadata.previous-versions-max"
            max_log_entries = min(100, max(1, facts.int_setting(property_name)))
            return (
                "Keep fewer earlier metadata files in the log; the next commit shortens it.",
                (context.alter_statement({property_name: str(max_log_entries)}),),
            )
        case "refs":
            return (
                "Drop branches and tags that nobody needs (ALTER TABLE … DROP BRANCH, DROP TAG).",
                (),
            )
        case "statistics" | "partition-statistics":
            api_call = "updateStatistics().removeStatistics"
            if section_name == "partition-statistics":
                api_call = "updatePartitionStatistics().removePartitionStatistics"
            advice = (
                "Remove statistics that no planner needs, in Java or Scala: "
                f"table.{api_call}(snapshotId).commit(); the files then are orphans."
            )
            if can_expire_snapshots:
                advice += f" Those of a snapshot go when it expires. {expiry_advice}"
            return advice, ()
        case "schemas" | "partition-specs":
            advice = "Remove those that no snapshot uses"
            always_removed_text = context.always_removed_sentence
            if not always_removed_text:
                advice += ": the statement keeps every snapshot"
            else:
                always_removed_text += context.writer_state_sentence
            return (
                f"{advice} (from Iceberg 1.10).{always_removed_text}",
                (
                    context.call_statement(
                        "expire_snapshots", older_than=LONG_AGO, clean_expired_metadata=True
                    ),
                ),
            )
        case _:
            return f"No statement makes {section_name} smaller: find out which writer fills it.", ()
