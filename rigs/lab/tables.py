"""Build the lab's healthy tables, and those with a problem of metadata, layout or columns, and a
pair for a MERGE.
"""

import itertools
import json
import os
import time

import pyarrow as pa

from icekit.common.sql import identifier, literal
from rigs.lab import flights
from rigs.lab.workbench import (
    FILTER_COLUMNS,
    SIZES,
    TARGET_SIZE_BYTES,
    TRIMMED,
    Lab,
    lab_table,
)


@lab_table("Healthy: partitioned by month, sorted, written in well-sized files.")
def healthy_partitioned(lab: Lab) -> None:
    """Partition by month, send each month to one task, and sort it by time."""
    lab.create("months(time_hour)", {FILTER_COLUMNS: "time_hour"})
    lab.sql("ALTER TABLE {t} WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY time_hour")
    lab.insert("month <= 2")
    lab.insert("month BETWEEN 3 AND 4")


@lab_table("Healthy: unpartitioned, sorted, written in well-sized files.")
def healthy_unpartitioned(lab: Lab) -> None:
    """Sort by the columns that queries filter by, so that they skip files without partitions."""
    lab.create("", {FILTER_COLUMNS: "dest"})
    lab.sql("ALTER TABLE {t} WRITE ORDERED BY dest, time_hour")
    lab.insert("month <= 2")


@lab_table("Healthy: it was created but never written to, so it has no snapshot.")
def empty(lab: Lab) -> None:
    """Create a table that nobody has written to: no snapshot, no manifest list."""
    lab.create("days(time_hour)")


DAYS = 15 * 7


@lab_table(
    "Each of many appends added its own manifest, and planning a scan opens all of them. The "
    "daily partitions are also too small for one file each.",
    "fragmented_manifests",
    "over_partitioned",
)
def fragmented_manifests(lab: Lab) -> None:
    """Append once per day with a writer that does not merge manifests.

    pyiceberg and Flink use fast appends by default: each commit adds its own manifest, and
    a scan opens all of them. Snapshots and metadata files are cleaned up, as a careful
    owner would do; neither reduces the number of manifests.
    """
    lab.create("flight_date", {"commit.manifest-merge.enabled": "false", **TRIMMED}, rolls=False)
    lab.append_days(DAYS)
    # All except the last: nobody reads the lab meanwhile. In production, keep days of history.
    lab.call("expire_snapshots", "older_than => now()", "retain_last => 1")


@lab_table(
    "Every load also corrects early days, so each manifest spans nearly all days and scans "
    "cannot skip it.",
    "overlapping_manifests",
    "over_partitioned",
)
def overlapping_manifests(lab: Lab) -> None:
    """Load week after week, each load with corrections for a day of every earlier week.

    A scan skips a manifest by its range of partitions. Here each manifest has its own week
    and a day of the first week, so that a query for an early day opens all manifests.
    """
    # A target size for manifests as small as that for files, so that these count as full.
    lab.create("flight_date", {"commit.manifest.target-size-bytes": str(8 * 1024)}, rolls=False)
    table = lab.pyiceberg_table()
    for week in range(12):
        corrections = [lab.days(7 * earlier + week % 7).slice(length=20) for earlier in range(week)]
        table.append(pa.concat_tables([lab.days(7 * week, 7), *corrections]))


@lab_table(
    "Snapshots never expire, so they keep replaced files, and metadata files pile up.",
    "old_snapshots",
    "snapshots_piling_up",
    "metadata_files_piling_up",
)
def snapshot_pile_up(lab: Lab) -> None:
    """Commit every day, compact data and manifests, and never expire snapshots.

    Compaction replaces files; earlier snapshots still keep the replaced files.
    """
    lab.create(
        "month",
        {"write.metadata.previous-versions-max": "1000"},
        target_size_bytes=16 * TARGET_SIZE_BYTES,
        rolls=False,
    )
    lab.append_days(DAYS)
    lab.call("rewrite_data_files")
    lab.call("rewrite_manifests")


@lab_table(
    "A property holds a document of 8 MiB, which each commit writes again and each reader loads.",
    "heavy_metadata",
)
def heavy_metadata(lab: Lab) -> None:
    """Keep a large document, such as the report of a data-quality check, in a property of the
    table.
    """
    lab.create("months(time_hour)")
    lab.insert("month <= 3")
    rows = lab.days(0, 7).select(["flight_id", "carrier", "origin", "dest"]).to_pylist()
    document = json.dumps(rows)
    lab.set({"quality.report": document * (1 + 2**23 // len(document))})


TEN_DAYS_S = 10 * 24 * 3600
# A stream with this many tasks writes this many files per batch.
STREAM_TASKS = 16


@lab_table(
    "Micro-batches were appended with distribution mode none, so each task wrote a tiny file "
    "for each day.",
    "small_files",
    "distribution_mode",
)
def small_files(lab: Lab) -> None:
    """Append micro-batches like a stream without a shuffle.

    ``write.distribution-mode=none`` saves a shuffle per batch, but then every task of
    every batch writes a file into each partition it has rows for.
    """
    lab.create("days(time_hour)", {"write.distribution-mode": "none"})
    for day, hour in itertools.product(range(1, 5), range(5, 23, 3)):
        batch = f"month = 1 AND day = {day} AND hour BETWEEN {hour} AND {hour + 2}"
        lab.insert(batch, "/*+ REPARTITION(4) */ *")


@lab_table(
    "Three months were loaded in well-sized files, but two were streamed, and nearly all "
    "files are tiny files of these two months.",
    "small_files",
    "distribution_mode",
)
def skewed_small_files(lab: Lab) -> None:
    """Load three months, each with a file of late arrivals, but stream the last two months.

    The stream does not shuffle, and each task of each batch writes a file: nearly all of
    the table's files are in two months, and most of its bytes are in the others.
    """
    lab.create("months(time_hour)")
    for days in ("day <= 26", "day > 26"):
        lab.insert(f"month BETWEEN 8 AND 10 AND {days}")
    lab.set({"write.distribution-mode": "none"})
    for month, day in itertools.product((11, 12), range(1, 32, 6)):
        batch = f"month = {month} AND day BETWEEN {day} AND {day + 5}"
        lab.insert(batch, f"/*+ REPARTITION({STREAM_TASKS}) */ *")


@lab_table(
    "The files were written with another target size and are more than twice the current target.",
    "oversized_files",
)
def oversized_files(lab: Lab) -> None:
    """Load with a larger target, then lower the target: existing files keep their size.

    A writer that cannot roll its files, or a target set in another job, has the same effect.
    """
    lab.create("origin", target_size_bytes=64 * TARGET_SIZE_BYTES, rolls=False)
    lab.insert("month <= 4")
    lab.set(SIZES)


@lab_table(
    "It is partitioned by hours of delay, and most flights have no delay.", "skewed_partitions"
)
def skewed_partitions(lab: Lab) -> None:
    """Partition by a value that most rows share: hours of delay, which is 0 for most flights."""
    lab.create("truncate(60, dep_delay)")
    lab.insert("month = 1 AND dep_delay IS NOT NULL")


@lab_table(
    "It has more than a hundred columns; the columns that queries filter by come last and "
    "have no bounds.",
    "metrics_missing",
    "columns_past_metrics_limit",
    "too_many_metrics",
)
def wide_table(lab: Lab) -> None:
    """Put the one-hot columns of a feature table before the columns that people filter by.

    Iceberg collects metrics only for the first hundred columns, so the columns added
    last have no bounds, while every manifest entry has the bounds of a hundred others.
    """
    destinations = lab.sql("SELECT DISTINCT dest FROM {flights} ORDER BY dest").collect()
    one_hot = {
        f"to_{dest.lower()}": f"IF(dest = {literal(dest)}, distance, 0)" for (dest,) in destinations
    }
    last = ["tailnum", "carrier", "origin", "dest"]
    first = [name for name in flights.COLUMNS if name not in last]
    columns = {
        **{name: flights.COLUMNS[name] for name in first},
        **dict.fromkeys(one_hot, "int"),
        **dict.fromkeys(last, "string"),
    }
    ddl = ", ".join(f"{identifier(name)} {kind}" for name, kind in columns.items())
    lab.create(
        "days(time_hour), origin",
        {FILTER_COLUMNS: "tailnum,carrier"},
        columns=ddl,
        target_size_bytes=TARGET_SIZE_BYTES // 4,
        rolls=False,
    )
    lab.insert("month = 1", ", ".join([*first, *one_hot.values(), *last]))


@lab_table(
    "The target file size is 6 KiB, which is little more than a footer, and compaction leaves "
    "such files alone.",
    "target_too_small",
)
def target_too_small(lab: Lab) -> None:
    """Give a target for files that is as small as their footers, and write with many tasks."""
    lab.create(target_size_bytes=6 * 1024)
    lab.insert("month = 1 AND day = 1", "/*+ REPARTITION(120) */ *")


@lab_table(
    "Its files look well-sized, but bloom filters fill them, and they hold few rows.",
    "bytes_outside_columns",
)
def bloom_filters(lab: Lab) -> None:
    """Turn bloom filters on, and leave out how many distinct values they have to hold.

    Each file then has a filter of the largest size for each of these columns, however few rows it
    has.
    """
    blooms = {
        f"write.parquet.bloom-filter-enabled.column.{column}": "true"
        for column in ("flight_id", "tailnum", "flight")
    }
    lab.create("", blooms, target_size_bytes=16 * TARGET_SIZE_BYTES, rolls=False)
    lab.insert("month = 1 AND day = 1", "/*+ REPARTITION(4) */ *")


_SENSORS = 100


@lab_table(
    "It has a column for each of 100 sensors, and each row group has little of a column.",
    "thin_column_chunks",
)
def thin_columns(lab: Lab) -> None:
    """Give each sensor a column of its own: a row group of the usual size has little of each."""
    columns = ", ".join(f"sensor_{n} int" for n in range(_SENSORS))
    lab.create(
        "",
        {"write.metadata.metrics.default": "none"},
        columns=columns,
        target_size_bytes=4 * TARGET_SIZE_BYTES,
    )
    values = ", ".join(f"hash(flight_id + {n})" for n in range(_SENSORS))
    lab.insert("month = 1 AND day = 1", values)


@lab_table("One task writes all files of each load, one after the other.", "one_writing_task")
def one_writing_task(lab: Lab) -> None:
    """Write each load with a single task, which writes several full files one after the other."""
    lab.create()
    for months in ("month = 1", "month = 2"):
        lab.insert(months, "/*+ COALESCE(1) */ *")


@lab_table(
    "Queries filter by aircraft, and every file covers nearly the full range of aircraft.",
    "unclustered_filter_columns",
)
def unclustered(lab: Lab) -> None:
    """Load rows in the order of arrival, although queries filter by aircraft.

    Every file then has nearly the full range of tail numbers, and no filter skips a file.
    """
    lab.create("", {FILTER_COLUMNS: "tailnum"})
    lab.insert("month <= 6", "/*+ COALESCE(1) */ *")


@lab_table(
    "It is now partitioned by month, but earlier files are still partitioned by airport.",
    "old_partition_spec",
)
def evolved(lab: Lab) -> None:
    """Change the schema and the partitioning, and rewrite nothing.

    Iceberg keeps old files in their old spec, where filters on the new partition fields skip
    nothing.
    """
    lab.create("origin")
    lab.insert("month = 1")
    lab.sql("ALTER TABLE {t} RENAME COLUMN tailnum TO tail_number")
    lab.sql("ALTER TABLE {t} DROP COLUMN minute")
    lab.sql("ALTER TABLE {t} ALTER COLUMN distance TYPE bigint")
    lab.sql("ALTER TABLE {t} ADD COLUMN on_time boolean AFTER arr_delay")
    lab.sql("ALTER TABLE {t} REPLACE PARTITION FIELD origin WITH months(time_hour)")
    columns = [name for name in flights.COLUMNS if name not in {"minute", "tailnum"}]
    lab.sql(
        f"INSERT INTO {{t}} ({', '.join(columns)}, tail_number, on_time) SELECT "
        f"{', '.join(columns)}, tailnum, arr_delay <= 0 FROM {{flights}} WHERE month = 4"
    )


@lab_table(
    "Writers failed before they committed, and their files still take up space.", "orphan_files"
)
def orphan_files(lab: Lab) -> None:
    """Stop three writers after they wrote their files and before they commit.

    Nothing references the files, and only `remove_orphan_files` removes them.
    """
    lab.create("origin", target_size_bytes=8 * TARGET_SIZE_BYTES, rolls=False)
    lab.pyiceberg_table().append(lab.days(0, 31))
    committed = set(lab.location.rglob("*"))
    for day in range(31, 34):
        writer = lab.pyiceberg_table().transaction()
        writer.append(lab.days(day))
        del writer  # Files, manifest and manifest list are written, but there is no commit.
    long_ago = time.time() - TEN_DAYS_S
    for orphan in set(lab.location.rglob("*")) - committed:
        os.utime(orphan, (long_ago, long_ago))


_COLUMNS = (
    "carrier string, flight int, origin string, time_hour timestamp, dest string, tailnum string, "
    "dep_delay int, arr_delay int, distance int"
)
_NAMES = ", ".join(column.split()[0] for column in _COLUMNS.split(", "))
# A MERGE that changes existing rows writes position deletes and does not rewrite files.
_MERGE_ON_READ = {"format-version": "2", "write.merge.mode": "merge-on-read"}


@lab_table(
    "It is partitioned by day, and a day is far smaller than one file of the target size; a "
    "MERGE by its natural key opens a file for each day.",
    "over_partitioned",
)
def delays(lab: Lab) -> None:
    """Load a winter of flights, one file per day; carrier, number, airport and scheduled hour
    identify a flight.
    """
    lab.create("days(time_hour)", _MERGE_ON_READ, columns=_COLUMNS)
    lab.insert("month <= 3", _NAMES)


@lab_table("Healthy: it has corrections for three days, to be merged into delays.")
def delay_corrections(lab: Lab) -> None:
    """Load an airline's corrections: a third of three days' flights with other delays, and some
    missing flights.
    """
    lab.create("days(time_hour)", _MERGE_ON_READ, columns=_COLUMNS)
    flown = "month = 2 AND day BETWEEN 10 AND 12"
    names = _NAMES.replace("arr_delay", "coalesce(arr_delay, 0) + 5 AS arr_delay")
    added = _NAMES.replace("flight,", "flight + 10000 AS flight,", 1)
    lab.sql(
        f"INSERT INTO {{t}} SELECT {names} FROM {{flights}} WHERE {flown} AND flight % 3 = 0 "
        f"UNION ALL SELECT {added} FROM {{flights}} WHERE {flown} AND flight % 40 = 1"
    )


_URLS_COLUMNS = (
    "url string, flight_id bigint, time_hour timestamp, tailnum string, dest string, dep_delay "
    "int, arr_delay int, distance int"
)
_URL = (
    "concat('https://tracking.example.org/v1/airports/', origin, '/carriers/', carrier, "
    "'/flights/', lpad(flight, 4, '0'), '/', flight_date)"
)


@lab_table(
    "It is sorted by URL, but all URLs begin with the same 41 characters, and bounds keep "
    "only the first 16.",
    "unclustered_filter_columns",
)
def urls(lab: Lab) -> None:
    """Sort a tracker's requests by URL, which queries filter by, and keep the default metrics.

    Bounds are truncated to 16 characters (``truncate(16)``), and the first 41 are the same in every
    URL: all files have the same bounds, and the sort order helps no query.
    """
    # An open row group holds long strings uncompressed, which would end the file far below the
    # target size.
    lab.create(
        "",
        {
            FILTER_COLUMNS: "url",
            "write.parquet.row-group-size-bytes": str(TARGET_SIZE_BYTES // 8),
        },
        columns=_URLS_COLUMNS,
    )
    lab.sql("ALTER TABLE {t} WRITE ORDERED BY url")
    rest = ", ".join(part.split()[0] for part in _URLS_COLUMNS.split(", ")[1:])
    lab.insert("month <= 6", f"{_URL}, {rest}")
