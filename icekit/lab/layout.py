"""Tables whose data files are laid out badly: sizes, partitions, columns, leftovers."""

from __future__ import annotations

import os
import time

from icekit.lab import flights
from icekit.lab.workbench import FILTER_COLUMNS, Lab, LabTable

TEN_DAYS_S = 10 * 24 * 3600


def _small_files(lab: Lab) -> None:
    """Append micro-batches as a stream does that was told not to shuffle.

    ``write.distribution-mode=none`` saves a shuffle for each batch, and then every task of
    every batch leaves a file in each partition it has rows for.
    """
    lab.create("days(time_hour)", {"write.distribution-mode": "none"})
    for batch in range(6 * 6):
        first_day, quarter = divmod(batch, 6)
        lab.sql(
            f"INSERT INTO {{t}} SELECT /*+ REPARTITION(4) */ * FROM {{flights}} "
            f"WHERE flight_date = DATE '2013-01-01' + {first_day} AND hour BETWEEN {4 * quarter} AND {4 * quarter + 3}"
        )


def _oversized_files(lab: Lab) -> None:
    """Load by the default target, then lower the target: existing files keep their size.

    The same comes of a writer that cannot roll its files, or of a target set in another job.
    """
    lab.create("months(time_hour)", {"write.target-file-size-bytes": str(2048 * lab.target_size_bytes)})
    lab.sql("INSERT INTO {t} SELECT * FROM {flights}")
    lab.set({"write.target-file-size-bytes": str(lab.target_size_bytes)})


def _skewed_partitions(lab: Lab) -> None:
    """Partition by a value that most rows share: hours of delay, which most flights have none of."""
    lab.create("truncate(60, dep_delay)")
    lab.sql("INSERT INTO {t} SELECT * FROM {flights}")


def _wide_table(lab: Lab) -> None:
    """Put a feature table's one-hot columns before the columns that people filter by.

    Iceberg infers metrics for the first hundred columns only, so that the columns added
    last have no bounds, while every file's entry carries the bounds of a hundred others.
    """
    destinations = [row["dest"] for row in lab.spark.table("icekit_lab_flights").select("dest").distinct().orderBy("dest").collect()]
    one_hot = {f"to_{dest.lower()}": f"CAST(dest = '{dest}' AS INT) * distance" for dest in destinations}
    last = ["tailnum", "carrier", "origin", "dest"]
    first = [name for name in flights.COLUMNS if name not in last]
    columns = {**{name: flights.COLUMNS[name] for name in first}, **dict.fromkeys(one_hot, "int"), **{name: "string" for name in last}}
    lab.create("months(time_hour)", {FILTER_COLUMNS: "tailnum,carrier"}, columns=", ".join(f"{name} {kind}" for name, kind in columns.items()))
    lab.sql(f"INSERT INTO {{t}} SELECT {', '.join([*first, *one_hot.values(), *last])} FROM {{flights}} WHERE month <= 3")


def _unclustered(lab: Lab) -> None:
    """Load rows in the order they came in, where queries ask for an aircraft.

    Every file then has the smallest and the largest tail number, and none is ever skipped.
    """
    lab.create("", {FILTER_COLUMNS: "tailnum"})
    lab.sql("INSERT INTO {t} SELECT * FROM {flights}")


def _evolved(lab: Lab) -> None:
    """Change schema and partitioning as the table's use changes, and rewrite nothing.

    Iceberg keeps old files in their old spec, where the new partitioning does not prune.
    """
    lab.create("months(time_hour)")
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 3")
    lab.sql("ALTER TABLE {t} RENAME COLUMN tailnum TO tail_number")
    lab.sql("ALTER TABLE {t} DROP COLUMN minute")
    lab.sql("ALTER TABLE {t} ALTER COLUMN distance TYPE bigint")
    lab.sql("ALTER TABLE {t} ADD COLUMN on_time boolean AFTER arr_delay")
    lab.sql("ALTER TABLE {t} REPLACE PARTITION FIELD months(time_hour) WITH days(time_hour)")
    columns = [name for name in flights.COLUMNS if name not in {"minute", "tailnum"}]
    lab.sql(
        f"INSERT INTO {{t}} ({', '.join(columns)}, tail_number, on_time) "
        f"SELECT {', '.join(columns)}, tailnum, arr_delay <= 0 FROM {{flights}} WHERE month = 4 AND day <= 7"
    )


def _orphan_files(lab: Lab) -> None:
    """Let three writers die after writing their files and before committing them.

    Nothing references what they wrote, and nothing but `remove_orphan_files` removes it.
    """
    lab.create("origin")
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 6")
    committed = set(lab.location.rglob("*"))
    for day in range(181, 184):
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
        "Its partitioning was refined from months to days and most of its files still lie in months.",
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
