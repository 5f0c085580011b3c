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
    limits = context.thresholds
    sample = facts.metrics_sample
    if not sample.column_bytes:
        return None
    other = sample.file_bytes - sample.column_bytes
    share = sample.column_bytes / max(1, sample.file_bytes)
    if 1 - share < limits.bytes_outside_columns or other < _OUTSIDE_BYTES * sample.sized_files:
        return None
    on = [name for name in facts.properties if name.startswith(_BLOOM) and facts.is_on(name)]
    blooms = [name.removeprefix(_BLOOM) for name in on]
    cause = (
        "footers and indexes, which grow with columns × row groups, or bloom filters of a "
        "writer's own settings"
    )
    remedy = (
        f"Check the writer's row group size ({ROW_GROUP} is {size(facts.int_setting(ROW_GROUP))}) "
        "and its bloom filters, and write more rows per file."
    )
    if blooms:
        cause = (
            f"bloom filters ({', '.join(blooms)}), each of up to "
            "write.parquet.bloom-filter-max-bytes per row group"
        )
        remedy = (
            "State how many distinct values the columns have "
            "(write.parquet.bloom-filter-ndv.column.…), which sizes the filters, or lower "
            "write.parquet.bloom-filter-max-bytes. Filters help only point lookups: remove those "
            "that no query uses."
        )
    return context.finding(
        blooms,
        figure=f"{percent(1 - share)} of the bytes",
        evidence=f"columns are {percent(share)} of the bytes of "
        f"{count(sample.sized_files, 'sampled data file')}: a file of "
        f"{size(sample.file_bytes / sample.sized_files)} on average holds "
        f"{size(sample.column_bytes / sample.sized_files)} of columns",
        threshold=f"{percent(limits.bytes_outside_columns)} of the bytes, and "
        f"{size(_OUTSIDE_BYTES)} per file",
        effect="The files look well-sized, but hold few rows, so compaction leaves them alone: "
        f"the rest is {cause}.",
        remedy=f"{remedy} Then rewrite the files, which have the size of the target: icekit "
        "compact with --scope major.",
    )


def thin_column_chunks(context: Context) -> Finding | None:
    """Tables so wide that a column has little in each row group, however large the files are."""
    facts = context.facts
    limits = context.thresholds
    columns = len(facts.columns)
    row_group = facts.int_setting(ROW_GROUP)
    mean = facts.data.mean_bytes
    is_parquet = facts.properties.get("write.format.default", "parquet").lower() == "parquet"
    if columns < limits.wide_columns or mean is None or mean < row_group or not is_parquet:
        return None
    chunk = row_group / columns
    if chunk >= _CHUNK_BYTES:
        return None
    # The next power of two, as far as Parquet advises.
    enough = min(1 << (columns * _CHUNK_BYTES - 1).bit_length(), _ROW_GROUP_BYTES)
    return context.finding(
        severity=Severity.INFO,
        figure=f"{size(chunk)} each",
        evidence=f"{columns:,} columns: one has {size(chunk)} of a row group of {size(row_group)} "
        f"on average, and {size(mean / columns)} of a file of {size(mean)}",
        threshold=f"{limits.wide_columns} columns, and less than {size(_CHUNK_BYTES)} per column "
        "and row group",
        source=f"{CHOICE}; Parquet's own advice is row groups of 512 MiB to 1 GiB, so that "
        "columns are read in long pieces",
        effect="A query of a few columns makes a small request for each of them in each row "
        "group, and opens as many files as a query of all.",
        remedy=f"Raise {ROW_GROUP}, and the target file size with it, if writers and readers have "
        "the memory: a writer holds a row group, a task reads one. Or move columns that are "
        "rarely read to another table.",
        sql=(context.alter({ROW_GROUP: str(enough)}),) if enough > row_group else (),
    )


def heavy_metadata(context: Context) -> Finding | None:
    """Manifests that are large in proportion to the data, or a metadata file that every commit and
    every reader pays for.
    """
    facts = context.facts
    limits = context.thresholds
    manifests = facts.manifests.size_in_bytes
    data = facts.data.size_in_bytes
    file = facts.metadata_bytes or 0
    is_listed = manifests >= _MANIFEST_BYTES and manifests >= limits.manifest_share * data
    is_file = file >= limits.metadata_bytes
    if not (is_listed or is_file):
        return None
    evidence = []
    remedy = []
    if is_listed:
        evidence.append(
            f"manifests hold {size(manifests)} for {size(data)} of data "
            f"({percent(manifests / max(1, data))})"
        )
        remedy.append(
            "Write larger files, and keep statistics only of the columns that queries filter by "
            "(write.metadata.metrics.*): rewritten files then have smaller entries."
        )
    statements: tuple[str, ...] = ()
    if is_file:
        description, advice, statements = _heaviest_section(context)
        evidence.append(f"the metadata file has {size(file)}{description}")
        remedy.append(advice)
    return context.finding(
        figure=f"{size(manifests)} of manifests" if is_listed else f"{size(file)} a commit",
        evidence="; ".join(evidence),
        threshold=f"manifests of {size(_MANIFEST_BYTES)} and {percent(limits.manifest_share)} of "
        f"the data, or a metadata file of {size(limits.metadata_bytes)}",
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
    entries = (
        f", {count(section.entry_count, 'entry', 'entries')}" if section.entry_count > 1 else ""
    )
    description = f": {percent(section.share)} of it is {section.name}{entries}"
    is_one = section.largest is not None and 2 * section.largest_bytes >= section.size_in_bytes
    if is_one:
        where = "the property" if section.name == "properties" else "the summary key"
        description += f", above all {where} {section.largest} ({size(section.largest_bytes)})"
    advice, statements = _lighter(context, section.name, section.largest if is_one else None)
    return description, advice, statements


def _lighter(context: Context, section: str, largest: str | None) -> tuple[str, tuple[str, ...]]:
    """How a section of the metadata file becomes smaller, and the statements for it."""
    facts = context.facts
    # What goes with snapshots goes only where some can.
    can_expire = facts.history.snapshot_count > 1
    by_expiry = (
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
            setting = "write.summary.partition-limit"
            text = f"Write no summary of each partition: {setting} = 0."
            return (
                f"{text} {by_expiry}" if can_expire else text,
                (context.alter({setting: "0"}),),
            )
        case "snapshots" if largest is not None:
            text = f"Let writers put less into {largest} of their summaries."
            return f"{text} {by_expiry}" if can_expire else text, ()
        case "snapshots" | "snapshot-log" | "encryption-keys" if can_expire:
            return by_expiry, ()
        case "metadata-log":
            setting = "write.metadata.previous-versions-max"
            most_versions = min(100, max(1, facts.int_setting(setting)))
            return (
                "Keep fewer earlier metadata files in the log; the next commit shortens it.",
                (context.alter({setting: str(most_versions)}),),
            )
        case "refs":
            return (
                "Drop branches and tags that nobody needs (ALTER TABLE … DROP BRANCH, DROP TAG).",
                (),
            )
        case "statistics" | "partition-statistics":
            kind = "updateStatistics().removeStatistics"
            if section == "partition-statistics":
                kind = "updatePartitionStatistics().removePartitionStatistics"
            text = (
                "Remove statistics that no planner needs, in Java or Scala: "
                f"table.{kind}(snapshotId).commit(); the files then are orphans."
            )
            if can_expire:
                text += f" Those of a snapshot go when it expires. {by_expiry}"
            return text, ()
        case "schemas" | "partition-specs":
            text = "Remove those that no snapshot uses"
            by_limits = context.past_limits
            if not by_limits:
                text += ": the statement keeps every snapshot"
            else:
                by_limits += context.states_at_risk
            return (
                f"{text} (from Iceberg 1.10).{by_limits}",
                (
                    context.call(
                        "expire_snapshots", older_than=LONG_AGO, clean_expired_metadata=True
                    ),
                ),
            )
        case _:
            return f"No statement makes {section} smaller: find out which writer fills it.", ()
