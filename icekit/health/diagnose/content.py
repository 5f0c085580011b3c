"""Check what the bytes of files are: rows or something else, columns of a useful size, metadata in
proportion to the data.
"""

from icekit.common.units import count, percent, size
from icekit.health.diagnose.findings import CHOICE, LONG_AGO, Context, Finding, Severity
from icekit.health.facts.metadata_sections import PARTITIONS_OF_SUMMARY
from icekit.iceberg.metadata import ROW_GROUP

_BLOOM = "write.parquet.bloom-filter-enabled.column."
# Choices: bytes of a file besides its columns, of a column in a row group, and of all manifests,
# from which on they matter.
_OUTSIDE_BYTES = _CHUNK_BYTES = _MANIFEST_BYTES = 2**20
# The largest row group that Parquet's documentation advises.
_ROW_GROUP_BYTES = 2**30


def bytes_outside_columns(context: Context) -> Finding | None:
    """Data files of which columns are a small part: bloom filters, or footers of many row groups
    and columns, are the rest.

    Sizes of columns are those of Parquet's column chunks, in the manifest entries of the sampled
    files.
    """
    facts = context.facts
    thresholds = context.thresholds
    sample = facts.metrics_sample
    if not sample.column_bytes:
        return None
    other_bytes = sample.file_bytes - sample.column_bytes
    column_share = sample.column_bytes / max(1, sample.file_bytes)
    if (
        1 - column_share < thresholds.bytes_outside_columns
        or other_bytes < _OUTSIDE_BYTES * sample.sized_files
    ):
        return None
    on = [
        name for name in facts.properties if name.startswith(_BLOOM) and facts.is_setting_true(name)
    ]
    bloom_columns = [name.removeprefix(_BLOOM) for name in on]
    cause = (
        "footers and indexes, which grow with columns × row groups, or bloom filters of a "
        "writer's own settings"
    )
    remedy = (
        f"Check the writer's row group size ({ROW_GROUP} is {size(facts.int_setting(ROW_GROUP))}) "
        "and its bloom filters, and write more rows per file."
    )
    if bloom_columns:
        cause = (
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
        figure=f"{percent(1 - column_share)} of the bytes",
        evidence=f"columns are {percent(column_share)} of the bytes of "
        f"{count(sample.sized_files, 'sampled data file')}: a file of "
        f"{size(sample.file_bytes / sample.sized_files)} on average holds "
        f"{size(sample.column_bytes / sample.sized_files)} of columns",
        threshold=f"{percent(thresholds.bytes_outside_columns)} of the bytes, and "
        f"{size(_OUTSIDE_BYTES)} per file",
        effect="The files look well-sized, but hold few rows, so compaction leaves them alone: "
        f"the rest is {cause}.",
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
    if chunk_bytes >= _CHUNK_BYTES:
        return None
    # The next power of two, as far as Parquet advises.
    sufficient_bytes = min(1 << (column_count * _CHUNK_BYTES - 1).bit_length(), _ROW_GROUP_BYTES)
    return context.finding(
        severity=Severity.INFO,
        figure=f"{size(chunk_bytes)} each",
        evidence=f"{column_count:,} columns: one has {size(chunk_bytes)} of a row group of "
        f"{size(row_group_bytes)} "
        f"on average, and {size(mean_file_bytes / column_count)} of a file of "
        f"{size(mean_file_bytes)}",
        threshold=f"{thresholds.wide_columns} columns, and less than {size(_CHUNK_BYTES)} per "
        "column "
        "and row group",
        source=f"{CHOICE}; Parquet's own advice is row groups of 512 MiB to 1 GiB, so that "
        "columns are read in long pieces",
        effect="A query of a few columns makes a small request for each of them in each row "
        "group, and opens as many files as a query of all.",
        remedy=f"Raise {ROW_GROUP}, and the target file size with it, if writers and readers have "
        "the memory: a writer holds a row group, a task reads one. Or move columns that are "
        "rarely read to another table.",
        sql=(context.alter_statement({ROW_GROUP: str(sufficient_bytes)}),)
        if sufficient_bytes > row_group_bytes
        else (),
    )


def heavy_metadata(context: Context) -> Finding | None:
    """Manifests that are large in proportion to the data, or a metadata file that every commit and
    every reader pays for.
    """
    facts = context.facts
    thresholds = context.thresholds
    manifest_bytes = facts.manifests.size_in_bytes
    data_bytes = facts.data.size_in_bytes
    metadata_file_bytes = facts.metadata_bytes or 0
    has_heavy_manifests = (
        manifest_bytes >= _MANIFEST_BYTES
        and manifest_bytes >= thresholds.manifest_share * data_bytes
    )
    has_heavy_file = metadata_file_bytes >= thresholds.metadata_bytes
    if not (has_heavy_manifests or has_heavy_file):
        return None
    evidence = []
    remedy = []
    if has_heavy_manifests:
        evidence.append(
            f"manifests hold {size(manifest_bytes)} for {size(data_bytes)} of data "
            f"({percent(manifest_bytes / max(1, data_bytes))})"
        )
        remedy.append(
            "Write larger files, and keep statistics only of the columns that queries filter by "
            "(write.metadata.metrics.*): rewritten files then have smaller entries."
        )
    statements: tuple[str, ...] = ()
    if has_heavy_file:
        description, advice, statements = _heaviest_section(context)
        evidence.append(f"the metadata file has {size(metadata_file_bytes)}{description}")
        remedy.append(advice)
    return context.finding(
        figure=f"{size(manifest_bytes)} of manifests"
        if has_heavy_manifests
        else f"{size(metadata_file_bytes)} a commit",
        evidence="; ".join(evidence),
        threshold=f"manifests of {size(_MANIFEST_BYTES)} and {percent(thresholds.manifest_share)} "
        "of "
        f"the data, or a metadata file of {size(thresholds.metadata_bytes)}",
        effect="Planning reads the manifests before the first row. Each commit writes the "
        "metadata file again, and each reader loads it.",
        remedy=" ".join(remedy),
        sql=statements,
    )


def _heaviest_section(context: Context) -> tuple[str, str, tuple[str, ...]]:
    """What the metadata file is full of, what helps against that, and its statements."""
    facts = context.facts
    if not facts.metadata_sections:
        return "", "Observe the table again to see what the file is full of.", ()
    section = facts.metadata_sections[0]
    entries_text = (
        f", {count(section.entry_count, 'entry', 'entries')}" if section.entry_count > 1 else ""
    )
    description = f": {percent(section.share)} of it is {section.name}{entries_text}"
    has_dominant_part = (
        section.largest is not None and 2 * section.largest_bytes >= section.size_in_bytes
    )
    if has_dominant_part:
        part_kind = "the property" if section.name == "properties" else "the summary key"
        description += f", above all {part_kind} {section.largest} ({size(section.largest_bytes)})"
    advice, statements = _reduction_advice(
        context, section.name, section.largest if has_dominant_part else None
    )
    return description, advice, statements


def _reduction_advice(
    context: Context, section: str, largest: str | None
) -> tuple[str, tuple[str, ...]]:
    """How a section of the metadata file becomes smaller, and the statements for it."""
    facts = context.facts
    # What goes with snapshots goes only where some can.
    can_expire = facts.history.snapshot_count > 1
    expiry_advice = (
        f"Expire snapshots: {context.command('maintain')}."
        if facts.history.expirable_count != 0
        else "No snapshot would expire now; state a shorter retention: "
        f"{context.command('maintain', '--keep', 'TIME', '--keep-last', 'N')}."
    )
    match section:
        case "properties" if largest is not None:
            return (
                f"Keep the value of {largest} outside of the table, then remove the property: "
                f"ALTER TABLE {context.table} UNSET TBLPROPERTIES ('{largest}').",
                (),
            )
        case "properties":
            return "Remove properties that no reader needs (UNSET TBLPROPERTIES).", ()
        case "snapshots" if largest == PARTITIONS_OF_SUMMARY:
            property_name = "write.summary.partition-limit"
            advice = f"Write no summary of each partition: {property_name} = 0."
            return (
                f"{advice} {expiry_advice}" if can_expire else advice,
                (context.alter_statement({property_name: "0"}),),
            )
        case "snapshots" if largest is not None:
            advice = f"Let writers put less into {largest} of their summaries."
            return f"{advice} {expiry_advice}" if can_expire else advice, ()
        case "snapshots" | "snapshot-log" | "encryption-keys" if can_expire:
            return expiry_advice, ()
        case "metadata-log":
            property_name = "write.metadata.previous-versions-max"
            most_versions = min(100, max(1, facts.int_setting(property_name)))
            return (
                "Keep fewer earlier metadata files in the log; the next commit shortens it.",
                (context.alter_statement({property_name: str(most_versions)}),),
            )
        case "refs":
            return (
                "Drop branches and tags that nobody needs (ALTER TABLE … DROP BRANCH, DROP TAG).",
                (),
            )
        case "statistics" | "partition-statistics":
            api_call = "updateStatistics().removeStatistics"
            if section == "partition-statistics":
                api_call = "updatePartitionStatistics().removePartitionStatistics"
            advice = (
                "Remove statistics that no planner needs, in Java or Scala: "
                f"table.{api_call}(snapshotId).commit(); the files then are orphans."
            )
            if can_expire:
                advice += f" Those of a snapshot go when it expires. {expiry_advice}"
            return advice, ()
        case "schemas" | "partition-specs":
            advice = "Remove those that no snapshot uses"
            limits_text = context.past_limits_sentence
            if not limits_text:
                advice += ": the statement keeps every snapshot"
            else:
                limits_text += context.state_risk_sentence
            return (
                f"{advice} (from Iceberg 1.10).{limits_text}",
                (
                    context.call(
                        "expire_snapshots", older_than=LONG_AGO, clean_expired_metadata=True
                    ),
                ),
            )
        case _:
            return f"No statement makes {section} smaller: find out which writer fills it.", ()
