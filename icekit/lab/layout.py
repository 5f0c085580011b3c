"""Tables whose data files are laid out badly: sizes, partitions, columns, leftovers."""

from __future__ import annotations

import itertools
import os
import time

from icekit.lab import flights
from icekit.lab.workbench import FILTER_COLUMNS, FLIGHTS, TARGET, Lab, LabTable
from icekit.sql import identifier, literal

TEN_DAYS_S = 10 * 24 * 3600
# What a stream with this many tasks leaves a batch.
STREAM_TASKS = 16


def _small_files(lab: Lab) -> None:
    """Append micro-batches as a stream does that was told not to shuffle.

    ``write.distribution-mode=none`` saves a shuffle for each batch, and then every task of
    every batch leaves a file in each partition it has rows for.
    """
    lab.create("days(time_hour)", {"write.distribution-mode": "none"})
    for day, hour in itertools.product(range(1, 5), range(5, 23, 3)):
        lab.sql(
            "INSERT INTO {t} SELECT /*+ REPARTITION(4) */ * FROM {flights} "
            f"WHERE month = 1 AND day = {day} AND hour BETWEEN {hour} AND {hour + 2}"
        )


def _skewed_small_files(lab: Lab) -> None:
    """Load the year by the month, each with a file of late arrivals, but stream the last two months.

    The stream does not shuffle, and each task of each of its batches leaves a file: nearly all of
    the table's files are in two of its months, and most of its bytes are in the others.
    """
    lab.create("months(time_hour)")
    for days in ("day <= 26", "day > 26"):
        lab.sql(f"INSERT INTO {{t}} SELECT * FROM {{flights}} WHERE month <= 10 AND {days}")
    lab.set({"write.distribution-mode": "none"})
    for month, day in itertools.product((11, 12), range(1, 32, 6)):
        lab.sql(
            f"INSERT INTO {{t}} SELECT /*+ REPARTITION({STREAM_TASKS}) */ * FROM {{flights}} "
            f"WHERE month = {month} AND day BETWEEN {day} AND {day + 5}"
        )


def _oversized_files(lab: Lab) -> None:
    """Load by a larger target, then lower it: existing files keep their size.

    The same comes of a writer that cannot roll its files, or of a target set in another job.
    """
    lab.create("origin", target_size_bytes=64 * lab.target_size_bytes, rolls=False)
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 6")
    lab.set({TARGET: str(lab.target_size_bytes)})


def _skewed_partitions(lab: Lab) -> None:
    """Partition by a value that most rows share: hours of delay, which most flights have none of."""
    lab.create("truncate(60, dep_delay)")
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 6 AND dep_delay IS NOT NULL")


def _wide_table(lab: Lab) -> None:
    """Put a feature table's one-hot columns before the columns that people filter by.

    Iceberg infers metrics for the first hundred columns only, so that the columns added
    last have no bounds, while every file's entry carries the bounds of a hundred others.
    """
    destinations = [row["dest"] for row in lab.spark.table(FLIGHTS).select("dest").distinct().orderBy("dest").collect()]
    one_hot = {f"to_{dest.lower()}": f"IF(dest = {literal(dest)}, distance, 0)" for dest in destinations}
    last = ["tailnum", "carrier", "origin", "dest"]
    first = [name for name in flights.COLUMNS if name not in last]
    columns = {**{name: flights.COLUMNS[name] for name in first}, **dict.fromkeys(one_hot, "int"), **dict.fromkeys(last, "string")}
    ddl = ", ".join(f"{identifier(name)} {kind}" for name, kind in columns.items())
    lab.create(
        "days(time_hour), origin",
        {FILTER_COLUMNS: "tailnum,carrier"},
        columns=ddl,
        target_size_bytes=64 * lab.target_size_bytes,
        rolls=False,
    )
    lab.sql(f"INSERT INTO {{t}} SELECT {', '.join([*first, *one_hot.values(), *last])} FROM {{flights}} WHERE month <= 2")


def _unclustered(lab: Lab) -> None:
    """Load rows in the order they came in, where queries ask for an aircraft.

    Every file then has the smallest and the largest tail number, and none is ever skipped.
    """
    lab.create("", {FILTER_COLUMNS: "tailnum"})
    lab.sql("INSERT INTO {t} SELECT /*+ COALESCE(1) */ * FROM {flights} WHERE month <= 6")


def _evolved(lab: Lab) -> None:
    """Change schema and partitioning as the table's use changes, and rewrite nothing.

    Iceberg keeps old files in their old spec, where the new partitioning does not prune.
    """
    lab.create("origin")
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 3")
    lab.sql("ALTER TABLE {t} RENAME COLUMN tailnum TO tail_number")
    lab.sql("ALTER TABLE {t} DROP COLUMN minute")
    lab.sql("ALTER TABLE {t} ALTER COLUMN distance TYPE bigint")
    lab.sql("ALTER TABLE {t} ADD COLUMN on_time boolean AFTER arr_delay")
    lab.sql("ALTER TABLE {t} REPLACE PARTITION FIELD origin WITH months(time_hour)")
    columns = [name for name in flights.COLUMNS if name not in {"minute", "tailnum"}]
    lab.sql(
        f"INSERT INTO {{t}} ({', '.join(columns)}, tail_number, on_time) "
        f"SELECT {', '.join(columns)}, tailnum, arr_delay <= 0 FROM {{flights}} WHERE month BETWEEN 4 AND 5"
    )


def _orphan_files(lab: Lab) -> None:
    """Let three writers die after writing their files and before committing them.

    Nothing references what they wrote, and nothing but `remove_orphan_files` removes it.
    """
    lab.create("origin", target_size_bytes=8 * lab.target_size_bytes, rolls=False)
    lab.pyiceberg_table().append(lab.days(0, 31))
    committed = set(lab.location.rglob("*"))
    for day in range(31, 34):
        writer = lab.pyiceberg_table().transaction()
        writer.append(lab.days(day))
        del writer  # Files, manifest and manifest list are written; the commit never comes.
    long_ago = time.time() - TEN_DAYS_S
    for orphan in set(lab.location.rglob("*")) - committed:
        os.utime(orphan, (long_ago, long_ago))


TABLES = (
    LabTable(
        "small_files",
        "Micro-batches were appended without a distribution, so each task left a tiny file in each day.",
        frozenset({"small_files", "distribution_mode"}),
        _small_files,
    ),
    LabTable(
        "skewed_small_files",
        "The year was loaded in files of a good size, but two of its months were streamed and hold nearly all files, tiny ones.",
        frozenset({"small_files", "distribution_mode"}),
        _skewed_small_files,
    ),
    LabTable(
        "oversized_files",
        "The files were written for another target size and are more than twice the one in force.",
        frozenset({"oversized_files"}),
        _oversized_files,
    ),
    LabTable(
        "skewed_partitions",
        "It is partitioned by hours of delay, and most flights have none.",
        frozenset({"skewed_partitions"}),
        _skewed_partitions,
    ),
    LabTable(
        "wide_table",
        "It has more than a hundred columns, and those that queries filter by come last and have no bounds.",
        frozenset({"metrics_missing", "columns_past_metrics_limit", "too_many_metrics"}),
        _wide_table,
    ),
    LabTable(
        "unclustered",
        "Queries ask for an aircraft, and every file holds all aircraft from first to last.",
        frozenset({"unclustered_filter_columns"}),
        _unclustered,
    ),
    LabTable(
        "evolved",
        "It is partitioned by month now, and what was written before still lies in partitions by airport.",
        frozenset({"old_partition_spec"}),
        _evolved,
    ),
    LabTable(
        "orphan_files",
        "Writers died before they committed, and their files still take up space.",
        frozenset({"orphan_files"}),
        _orphan_files,
    ),
)
