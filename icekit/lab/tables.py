"""Build the lab's tables: deletes, upserts, metadata, layout, columns, a pair for a MERGE, and healthy tables."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from icekit.engine.compat import arrow_of
from icekit.lab import flights
from icekit.lab.flights import ROWS
from icekit.lab.workbench import FILTER_COLUMNS, FLIGHTS, Lab, LabTable
from icekit.sql import identifier, literal

MERGE_ON_READ = {"write.delete.mode": "merge-on-read", "write.update.mode": "merge-on-read", "write.merge.mode": "merge-on-read"}


def _position_deletes(lab: Lab) -> None:
    """Update and delete rows with merge-on-read, month after month, without compaction.

    Each statement adds position delete files for the data files it touches, and
    every later scan has to read and merge them.
    """
    lab.create("months(time_hour)", {**MERGE_ON_READ, "format-version": "2"})
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 4")
    lab.sql("DELETE FROM {t} WHERE dep_time IS NULL")
    lab.sql("UPDATE {t} SET arr_delay = 0 WHERE carrier = 'VX'")
    lab.sql("DELETE FROM {t} WHERE carrier = 'US'")


def _deletion_vectors(lab: Lab) -> None:
    """The same in format v3, in which a data file has at most one deletion vector."""
    lab.create("months(time_hour)", {**MERGE_ON_READ, "format-version": "3"})
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 4")
    lab.sql("DELETE FROM {t} WHERE dep_time IS NULL")
    lab.sql(
        "MERGE INTO {t} USING (SELECT * FROM {flights} WHERE month <= 4 AND carrier = 'VX') s ON {t}.flight_id = s.flight_id "
        "WHEN MATCHED THEN UPDATE SET arr_delay = s.arr_delay + 1"
    )
    lab.sql("DELETE FROM {t} WHERE carrier = 'US'")


def _dangling_deletes(lab: Lab) -> None:
    """Compact only the recent months, and leave their position deletes behind.

    A compaction rewrites data without the deleted rows; the delete files stay, without any data
    to apply to, as long as another partition has older data.
    """
    lab.create("months(time_hour)", {**MERGE_ON_READ, "format-version": "2"})
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 4")
    lab.sql("DELETE FROM {t} WHERE month >= 3 AND carrier IN ('F9', 'YV', 'HA', 'OO')")
    lab.sql("DELETE FROM {t} WHERE month >= 3 AND dep_time IS NULL AND dest = 'ORD'")
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month = 5")
    lab.call("rewrite_data_files", "where => 'month >= 3', options => map('rewrite-all', 'true')")


def _vectors_rewritten(lab: Lab) -> None:
    """Delete one airline after another from files that have rows of all of them: each statement replaces the vector of each file."""
    lab.create("months(time_hour)", {**MERGE_ON_READ, "format-version": "3"})
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 2")
    for carrier in ("AS", "F9", "FL", "HA", "VX", "YV"):
        lab.sql(f"DELETE FROM {{t}} WHERE carrier = '{carrier}'")


DELETES = (
    LabTable(
        "position_deletes",
        "Rows were deleted and updated with merge-on-read in format v2, so readers merge many position deletes.",
        frozenset({"position_deletes", "v2_position_deletes"}),
        _position_deletes,
    ),
    LabTable(
        "deletion_vectors",
        "Rows were deleted and updated with merge-on-read in format v3, so most data files have a deletion vector.",
        frozenset({"deletion_vectors"}),
        _deletion_vectors,
    ),
    LabTable(
        "vectors_rewritten",
        "Each of many small DELETE statements hits nearly every file, and writes the deletion vectors of all earlier ones again.",
        frozenset({"vectors_rewritten"}),
        _vectors_rewritten,
    ),
    LabTable(
        "dangling_deletes",
        "Its data was compacted, but the delete files that applied to the old data files still exist.",
        frozenset({"dangling_deletes"}),
        _dangling_deletes,
    ),
)


# --- Healthy tables, for which a diagnosis must have no findings


def _partitioned(lab: Lab) -> None:
    """Partition by month, send each month to one task, and sort it by time."""
    lab.create("months(time_hour)", {FILTER_COLUMNS: "time_hour"})
    lab.sql("ALTER TABLE {t} WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY time_hour")
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 6")
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month > 6")


def _unpartitioned(lab: Lab) -> None:
    """Sort by the columns that queries filter by, so that they skip files without partitions."""
    lab.create("", {FILTER_COLUMNS: "dest"})
    lab.sql("ALTER TABLE {t} WRITE ORDERED BY dest, time_hour")
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 6")


def _empty(lab: Lab) -> None:
    """Create a table that nobody has written to: no snapshot, no manifest list."""
    lab.create("days(time_hour)")


HEALTHY = (
    LabTable("healthy_partitioned", "Healthy: partitioned by month, sorted, written in well-sized files.", frozenset(), _partitioned),
    LabTable("healthy_unpartitioned", "Healthy: unpartitioned, sorted, written in well-sized files.", frozenset(), _unpartitioned),
    LabTable("empty", "Healthy: it was created but never written to, so it has no snapshot.", frozenset(), _empty),
)


# --- Tables with a problem in their metadata: manifests, snapshots and metadata files


DAYS = 15 * 7


def _fragmented_manifests(lab: Lab) -> None:
    """Append once per day with a writer that does not merge manifests.

    pyiceberg and Flink use fast appends by default: each commit adds its own manifest, and
    a scan opens all of them. Snapshots and metadata files are cleaned up, as a careful
    owner would do; neither reduces the number of manifests.
    """
    lab.create(
        "flight_date",
        {
            "commit.manifest-merge.enabled": "false",
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "10",
        },
        rolls=False,
    )
    table = lab.pyiceberg_table()
    for day in range(DAYS):
        table.append(lab.days(day))
    lab.refresh()
    # All except the last: nobody reads the lab meanwhile. In production, keep days of history.
    lab.call("expire_snapshots", "older_than => now(), retain_last => 1")


def _overlapping_manifests(lab: Lab) -> None:
    """Load week after week, each load with corrections for a day of every earlier week.

    A scan skips a manifest by its range of partitions. Here each manifest has its own week
    and a day of the first week, so that a query for an early day opens all manifests.
    """
    # A target size for manifests as small as that for files, so that these count as full.
    lab.create("flight_date", {"commit.manifest.target-size-bytes": str(8 * 1024)}, rolls=False)
    table = lab.pyiceberg_table()
    for week in range(12):
        corrections = [lab.days(7 * earlier + week % 7).slice(length=20 * lab.scale) for earlier in range(week)]
        table.append(pa.concat_tables([lab.days(7 * week, 7), *corrections]))


def _snapshot_pile_up(lab: Lab) -> None:
    """Commit every day, compact data and manifests, and never expire snapshots.

    Compaction replaces files; earlier snapshots still keep the replaced files.
    """
    lab.create("month", {"write.metadata.previous-versions-max": "1000"}, target_size_bytes=16 * lab.target_size_bytes, rolls=False)
    table = lab.pyiceberg_table()
    for day in range(DAYS):
        table.append(lab.days(day))
    lab.refresh()
    lab.call("rewrite_data_files")
    lab.call("rewrite_manifests")


def _heavy_metadata(lab: Lab) -> None:
    """Keep a large document, such as the report of a data-quality check, in a property of the table."""
    lab.create("months(time_hour)")
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 3")
    rows = lab.days(0, 7).select(["flight_id", "carrier", "origin", "dest"]).to_pylist()
    document = json.dumps(rows)
    lab.set({"quality.report": document * (1 + 2**23 // len(document))})


HISTORY = (
    LabTable(
        "heavy_metadata",
        "A property holds a document of 8 MiB, which each commit writes again and each reader loads.",
        frozenset({"heavy_metadata"}),
        _heavy_metadata,
    ),
    LabTable(
        "fragmented_manifests",
        "Each of many appends added its own manifest, and planning a scan opens all of them. The daily partitions are also too small for one file each.",
        frozenset({"fragmented_manifests", "over_partitioned"}),
        _fragmented_manifests,
    ),
    LabTable(
        "overlapping_manifests",
        "Every load also corrects early days, so each manifest spans nearly all days and scans cannot skip it.",
        frozenset({"overlapping_manifests", "over_partitioned"}),
        _overlapping_manifests,
    ),
    LabTable(
        "snapshot_pile_up",
        "Snapshots never expire, so they keep replaced files, and metadata files pile up.",
        frozenset({"snapshots_piling_up", "metadata_files_piling_up"}),
        _snapshot_pile_up,
    ),
)


# --- Tables whose data files are laid out badly: sizes, partitions, columns, leftovers


TEN_DAYS_S = 10 * 24 * 3600
# A stream with this many tasks writes this many files per batch.
STREAM_TASKS = 16


def _small_files(lab: Lab) -> None:
    """Append micro-batches like a stream without a shuffle.

    ``write.distribution-mode=none`` saves a shuffle per batch, but then every task of
    every batch writes a file into each partition it has rows for.
    """
    lab.create("days(time_hour)", {"write.distribution-mode": "none"})
    for day, hour in itertools.product(range(1, 5), range(5, 23, 3)):
        lab.sql(
            "INSERT INTO {t} SELECT /*+ REPARTITION(4) */ * FROM {flights} "
            f"WHERE month = 1 AND day = {day} AND hour BETWEEN {hour} AND {hour + 2}"
        )


def _skewed_small_files(lab: Lab) -> None:
    """Load the year month by month, each with a file of late arrivals, but stream the last two months.

    The stream does not shuffle, and each task of each batch writes a file: nearly all of
    the table's files are in two months, and most of its bytes are in the others.
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
    """Load with a larger target, then lower the target: existing files keep their size.

    A writer that cannot roll its files, or a target set in another job, has the same effect.
    """
    lab.create("origin", target_size_bytes=64 * lab.target_size_bytes, rolls=False)
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 6")
    lab.set(lab.sizes())


def _skewed_partitions(lab: Lab) -> None:
    """Partition by a value that most rows share: hours of delay, which is 0 for most flights."""
    lab.create("truncate(60, dep_delay)")
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 6 AND dep_delay IS NOT NULL")


def _wide_table(lab: Lab) -> None:
    """Put the one-hot columns of a feature table before the columns that people filter by.

    Iceberg collects metrics only for the first hundred columns, so the columns added
    last have no bounds, while every manifest entry has the bounds of a hundred others.
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
        target_size_bytes=lab.target_size_bytes // 4,
        rolls=False,
    )
    lab.sql(f"INSERT INTO {{t}} SELECT {', '.join([*first, *one_hot.values(), *last])} FROM {{flights}} WHERE month <= 2")


def _target_too_small(lab: Lab) -> None:
    """Give a target for files that is as small as their footers, and write with many tasks."""
    lab.create(target_size_bytes=6 * 1024)
    lab.sql("INSERT INTO {t} SELECT /*+ REPARTITION(120) */ * FROM {flights} WHERE month = 1 AND day = 1")


def _bloom_filters(lab: Lab) -> None:
    """Turn bloom filters on, and leave out how many distinct values they have to hold.

    Each file then has a filter of the largest size for each of these columns, however few rows it has.
    """
    blooms = {f"write.parquet.bloom-filter-enabled.column.{column}": "true" for column in ("flight_id", "tailnum", "flight")}
    lab.create("", blooms, target_size_bytes=16 * lab.target_size_bytes, rolls=False)
    lab.sql("INSERT INTO {t} SELECT /*+ REPARTITION(4) */ * FROM {flights} WHERE month = 1 AND day = 1")


_SENSORS = 100


def _thin_columns(lab: Lab) -> None:
    """Give each sensor a column of its own: a row group of the usual size has little of each."""
    columns = ", ".join(f"sensor_{n} int" for n in range(_SENSORS))
    lab.create("", {"write.metadata.metrics.default": "none"}, columns=columns, target_size_bytes=4 * lab.target_size_bytes)
    values = ", ".join(f"hash(flight_id + {n})" for n in range(_SENSORS))
    lab.sql(f"INSERT INTO {{t}} SELECT {values} FROM {{flights}} WHERE month = 1 AND day = 1")


def _one_writing_task(lab: Lab) -> None:
    """Write each load with a single task, which writes several full files one after the other."""
    lab.create()
    for months in ("month <= 2", "month BETWEEN 3 AND 4"):
        lab.sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ * FROM {{flights}} WHERE {months}")


def _unclustered(lab: Lab) -> None:
    """Load rows in the order of arrival, although queries filter by aircraft.

    Every file then has nearly the full range of tail numbers, and no filter skips a file.
    """
    lab.create("", {FILTER_COLUMNS: "tailnum"})
    lab.sql("INSERT INTO {t} SELECT /*+ COALESCE(1) */ * FROM {flights} WHERE month <= 6")


def _evolved(lab: Lab) -> None:
    """Change the schema and the partitioning, and rewrite nothing.

    Iceberg keeps old files in their old spec, where filters on the new partition fields skip nothing.
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
    """Stop three writers after they wrote their files and before they commit.

    Nothing references the files, and only `remove_orphan_files` removes them.
    """
    lab.create("origin", target_size_bytes=8 * lab.target_size_bytes, rolls=False)
    lab.pyiceberg_table().append(lab.days(0, 31))
    committed = set(lab.location.rglob("*"))
    for day in range(31, 34):
        writer = lab.pyiceberg_table().transaction()
        writer.append(lab.days(day))
        del writer  # Files, manifest and manifest list are written, but there is no commit.
    long_ago = time.time() - TEN_DAYS_S
    for orphan in set(lab.location.rglob("*")) - committed:
        os.utime(orphan, (long_ago, long_ago))


LAYOUT = (
    LabTable(
        "small_files",
        "Micro-batches were appended with distribution mode none, so each task wrote a tiny file for each day.",
        frozenset({"small_files", "distribution_mode"}),
        _small_files,
    ),
    LabTable(
        "skewed_small_files",
        "The year was loaded in well-sized files, but two months were streamed, and nearly all files are tiny files of these two months.",
        frozenset({"small_files", "distribution_mode"}),
        _skewed_small_files,
    ),
    LabTable(
        "oversized_files",
        "The files were written with another target size and are more than twice the current target.",
        frozenset({"oversized_files"}),
        _oversized_files,
    ),
    LabTable(
        "skewed_partitions",
        "It is partitioned by hours of delay, and most flights have no delay.",
        frozenset({"skewed_partitions"}),
        _skewed_partitions,
    ),
    LabTable(
        "wide_table",
        "It has more than a hundred columns; the columns that queries filter by come last and have no bounds.",
        frozenset({"metrics_missing", "columns_past_metrics_limit", "too_many_metrics"}),
        _wide_table,
    ),
    LabTable(
        "target_too_small",
        "The target file size is 6 KiB, which is little more than a footer, and compaction leaves such files alone.",
        frozenset({"target_too_small"}),
        _target_too_small,
    ),
    LabTable(
        "bloom_filters",
        "Its files look well-sized, but bloom filters fill them, and they hold few rows.",
        frozenset({"bytes_outside_columns"}),
        _bloom_filters,
    ),
    LabTable(
        "thin_columns",
        "It has a column for each of 100 sensors, and each row group has little of a column.",
        frozenset({"thin_column_chunks"}),
        _thin_columns,
    ),
    LabTable(
        "one_writing_task",
        "One task writes all files of each load, one after the other.",
        frozenset({"one_writing_task"}),
        _one_writing_task,
    ),
    LabTable(
        "unclustered",
        "Queries filter by aircraft, and every file covers nearly the full range of aircraft.",
        frozenset({"unclustered_filter_columns"}),
        _unclustered,
    ),
    LabTable(
        "evolved",
        "It is now partitioned by month, but earlier files are still partitioned by airport.",
        frozenset({"old_partition_spec"}),
        _evolved,
    ),
    LabTable(
        "orphan_files",
        "Writers failed before they committed, and their files still take up space.",
        frozenset({"orphan_files"}),
        _orphan_files,
    ),
)


# --- A pair of tables for a MERGE: the statement opens all of the many tiny files of one table for a few rows of the other.


_COLUMNS = "carrier string, flight int, origin string, time_hour timestamp, dest string, tailnum string, dep_delay int, arr_delay int, distance int"
_NAMES = ", ".join(column.split()[0] for column in _COLUMNS.split(", "))
# A MERGE that changes existing rows writes position deletes and does not rewrite files.
_MERGE_ON_READ = {"format-version": "2", "write.merge.mode": "merge-on-read"}


def _delays(lab: Lab) -> None:
    """Load a winter of flights, one file per day; carrier, number, airport and scheduled hour identify a flight."""
    lab.create("days(time_hour)", _MERGE_ON_READ, columns=_COLUMNS)
    lab.sql(f"INSERT INTO {{t}} SELECT {_NAMES} FROM {{flights}} WHERE month <= 3")


def _delay_corrections(lab: Lab) -> None:
    """Load an airline's corrections: a third of three days' flights with other delays, and some missing flights."""
    lab.create("days(time_hour)", _MERGE_ON_READ, columns=_COLUMNS)
    # At a larger scale the same flight exists several times, but a MERGE allows one source row for each.
    some = f"month = 2 AND day BETWEEN 10 AND 12 AND flight_id < {ROWS}"
    names = _NAMES.replace("arr_delay", "coalesce(arr_delay, 0) + 5 AS arr_delay")
    added = _NAMES.replace("flight,", "flight + 10000 AS flight,", 1)
    lab.sql(
        f"INSERT INTO {{t}} SELECT {names} FROM {{flights}} WHERE {some} AND flight % 3 = 0 "
        f"UNION ALL SELECT {added} FROM {{flights}} WHERE {some} AND flight % 40 = 1"
    )


MERGES = (
    LabTable(
        "delays",
        "It is partitioned by day, and a day is far smaller than one file of the target size; a MERGE by its natural key opens a file for each day.",
        frozenset({"over_partitioned"}),
        _delays,
    ),
    LabTable(
        "delay_corrections",
        "Healthy: it has corrections for three days, to be merged into delays.",
        frozenset(),
        _delay_corrections,
    ),
)


# --- A table whose filter column is a long string: its bounds are truncated before the values differ


_URLS_COLUMNS = "url string, flight_id bigint, time_hour timestamp, tailnum string, dest string, dep_delay int, arr_delay int, distance int"
_URL = "concat('https://tracking.example.org/v1/airports/', origin, '/carriers/', carrier, '/flights/', lpad(flight, 4, '0'), '/', flight_date)"


def _urls(lab: Lab) -> None:
    """Sort a tracker's requests by URL, which queries filter by, and keep the default metrics.

    Bounds are truncated to 16 characters (``truncate(16)``), and the first 41 are the same in every URL:
    all files have the same bounds, and the sort order helps no query.
    """
    # An open row group holds long strings uncompressed, which would end the file far below the target size.
    lab.create("", {FILTER_COLUMNS: "url", "write.parquet.row-group-size-bytes": str(lab.target_size_bytes // 8)}, columns=_URLS_COLUMNS)
    lab.sql("ALTER TABLE {t} WRITE ORDERED BY url")
    rest = ", ".join(part.split()[0] for part in _URLS_COLUMNS.split(", ")[1:])
    lab.sql(f"INSERT INTO {{t}} SELECT {_URL}, {rest} FROM {{flights}} WHERE month <= 6")


URLS = (
    LabTable(
        "urls",
        "It is sorted by URL, but all URLs begin with the same 41 characters, and bounds keep only the first 16.",
        frozenset({"unclustered_filter_columns"}),
        _urls,
    ),
)


# --- Tables fed by an upsert stream, with the equality deletes that Flink writes
#
# Neither Spark nor pyiceberg writes equality deletes, so the stream uses
# Iceberg's Java API, as Flink does.


_LONG_STREAM_COMMITS = 32
_NEW_ROWS = 20_000
_STATUSES = ("scheduled", "boarding", "departed", "landed")


class UpsertStream:
    """A writer that commits, for each partition, a data file and the keys that it replaces.

    As with Flink, one commit's data files and equality delete files share a sequence number, so
    that the deletes apply only to older rows, and all files have bounds. File names start with
    ``prefix``, so that a second stream on the same table does not overwrite files of the first.
    """

    def __init__(self, lab: Lab, keys: tuple[str, ...], prefix: str = "") -> None:
        self._lab = lab
        self._keys = keys
        self._prefix = prefix
        self._java = lab.java
        self._table = lab.java_table()
        ids = [self._table.schema().findField(key).fieldId() for key in keys]
        gateway: Any = lab.spark.sparkContext._gateway
        self._key_ids = gateway.new_array(gateway.jvm.int, len(ids))
        for place, field_id in enumerate(ids):
            self._key_ids[place] = field_id
        self._metrics = self._java.MetricsConfig.forTable(self._table)
        self._numbers = itertools.count()

    def commit(self, parts: Iterable[tuple[str, Any]]) -> None:
        """Commit upserts, given as partition path and Arrow rows with unique keys."""
        delta = self._table.newRowDelta()
        for partition, rows in parts:
            data = self._java.DataFiles.builder(self._table.spec())
            delta.addRows(self._write(data, partition, rows, "data"))
            deletes = self._java.FileMetadata.deleteFileBuilder(self._table.spec()).ofEqualityDeletes(self._key_ids)
            delta.addDeletes(self._write(deletes, partition, rows.select(list(self._keys)), "deletes"))
        delta.commit()

    def _write(self, builder: Any, partition: str, rows: Any, kind: str) -> Any:
        path = self._lab.location / "data" / partition / f"{self._prefix}{next(self._numbers):05}-{kind}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = [
            field.with_metadata({"PARQUET:field_id": str(self._table.schema().findField(field.name).fieldId())}) for field in rows.schema
        ]
        pq.write_table(rows.cast(pa.schema(fields)), path, compression="zstd")
        written = self._table.io().newInputFile(str(path))
        metrics = self._java.parquet.ParquetUtil.fileMetrics(written, self._metrics)
        return builder.withInputFile(written).withFormat("parquet").withPartitionPath(partition).withMetrics(metrics).build()


def _equality_deletes(lab: Lab) -> None:
    """Stream each day's flights when they are scheduled, when they have landed, and when corrected.

    Each commit writes one data file and one equality delete file into each bucket, and a scan reads
    each data file together with every later delete file of its bucket.
    """
    lab.create("bucket(4, flight_id)", {"format-version": "2"})
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month = 1 AND day <= 15")
    bucket = f"{identifier(lab.lake.name, 'system', 'bucket')}(4, flight_id)"
    _stream(lab, ("flight_id",), ("flight_id_bucket", bucket), commits=24, first_day=15, corrected_one_in=10)


def _well_sized_equality_deletes(lab: Lab) -> None:
    """Start the stream on a compacted table: half a year in well-sized files.

    The default `rewrite_data_files` checks sizes, and counts only deletes that name
    one data file, so it never selects these files, however many deletes apply to them.
    """
    lab.create("origin", {"format-version": "2"})
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 6")
    _stream(lab, ("flight_id", "origin"), ("origin", "origin"), commits=2, first_day=181, corrected_one_in=100)


def _equality_deletes_of_new_keys(lab: Lab) -> None:
    """Append new flights with a writer in upsert mode.

    Before it adds a row, the writer deletes the row's key, although no older row has it. By the ranges of their keys,
    a scan leaves all these delete files out.
    """
    lab.create("origin", {"format-version": "2", "write.upsert.enabled": "true"})
    lab.sql(f"INSERT INTO {{t}} SELECT * FROM {{flights}} WHERE flight_id < {ROWS // 2}")
    later = f"flight_id >= {ROWS // 2} AND flight_id < {ROWS // 2 + 2 * _NEW_ROWS}"
    rows: Any = arrow_of(lab.spark.sql(f"SELECT * FROM {FLIGHTS} WHERE {later} ORDER BY flight_id"))
    stream = UpsertStream(lab, ("flight_id", "origin"))
    for commit in range(2):
        batch = rows.slice(commit * _NEW_ROWS, _NEW_ROWS)
        stream.commit((f"origin={origin}", batch.filter(pc.equal(batch["origin"], origin))) for origin in ("EWR", "JFK", "LGA"))


def _long_upsert_stream(lab: Lab) -> None:
    """Stream the status of flights, a sixth of the year's flights per commit, for hours without maintenance.

    Keys are strings, as in most streams. A scan reads each data file with every later delete file of
    its airport, so that a stock read or rewrite of the oldest holds more delete rows than a
    small executor has heap for.
    """
    columns = "flight_key STRING, origin STRING, status STRING, delay INT, updated_at TIMESTAMP"
    lab.create("origin", {"format-version": "2"}, columns=columns)
    key = "concat_ws('/', flight_date, origin, dest, carrier, flight, coalesce(tailnum, 'unknown'), flight_id)"
    year: Any = arrow_of(
        lab.spark.sql(
            f"SELECT {key} AS flight_key, origin, CAST(arr_delay AS int) AS delay, time_hour AS updated_at FROM {FLIGHTS} ORDER BY flight_id"
        )
    )
    stream, random = UpsertStream(lab, ("origin", "flight_key")), np.random.default_rng(2013)
    for commit in range(_LONG_STREAM_COMMITS):
        rows = year.take(np.sort(random.choice(year.num_rows, year.num_rows // 6, replace=False)))
        status = pa.array([_STATUSES[commit % len(_STATUSES)]] * rows.num_rows)
        rows = rows.append_column("status", status).select(["flight_key", "origin", "status", "delay", "updated_at"])
        stream.commit((f"origin={origin}", rows.filter(pc.equal(rows["origin"], origin))) for origin in ("EWR", "JFK", "LGA"))


def _stream(lab: Lab, keys: tuple[str, ...], partition: tuple[str, str], *, commits: int, first_day: int, corrected_one_in: int) -> None:
    """Commit once per day: the day's flights as scheduled, the previous day's as flown, and corrections.

    Because of the corrections, the deletes of a commit apply to old files: the keys in a
    delete file then range over all flights, and readers skip delete files by that range.
    """
    stream, (field, transform) = UpsertStream(lab, keys), partition
    start, end = (f"DATE '2013-01-01' + {day}" for day in (first_day - 1, first_day + commits))
    arrow: Any = arrow_of(
        lab.spark.sql(
            f"SELECT *, {transform} AS part FROM {FLIGHTS} WHERE flight_date < {end} "
            f"AND (flight_date >= {start} OR flight_id % {corrected_one_in} = 0) ORDER BY flight_id"
        )
    )
    old = arrow.filter(pc.less(arrow["flight_date"], _date(first_day - 1)))
    for commit in range(commits):
        day = first_day + commit
        corrections = old.take(list(range(commit, old.num_rows, commits)))
        batch = pa.concat_tables([corrections, _of_day(arrow, day - 1), _as_scheduled(_of_day(arrow, day))])
        parts = sorted(pc.unique(batch["part"]).to_pylist())
        stream.commit((f"{field}={part}", batch.filter(pc.equal(batch["part"], part)).drop_columns("part")) for part in parts)


def _date(day: int) -> date:
    return date(2013, 1, 1) + timedelta(days=day)


def _of_day(rows: Any, day: int) -> Any:
    return rows.filter(pc.equal(rows["flight_date"], _date(day)))


def _as_scheduled(rows: Any) -> Any:
    """The rows as known before take-off."""
    for name in ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"):
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.nulls(rows.num_rows, pa.int32()))
    return rows


UPSERTS = (
    LabTable(
        "equality_deletes",
        "An upsert stream adds a small data file and an equality delete file per bucket and commit, and every scan merges all of them.",
        frozenset({"equality_deletes", "small_files", "executor_cache"}),
        _equality_deletes,
    ),
    LabTable(
        "well_sized_equality_deletes",
        "Its data files are well-sized, so the default compaction never rewrites them, but equality deletes apply to each of them.",
        frozenset({"equality_deletes", "deletes_default_rewrite_ignores", "executor_cache"}),
        _well_sized_equality_deletes,
    ),
    LabTable(
        "equality_deletes_of_new_keys",
        "A stream of new rows is written in upsert mode, so each data file comes with an equality delete file that deletes nothing.",
        frozenset({"equality_deletes_of_new_keys"}),
        _equality_deletes_of_new_keys,
    ),
    LabTable(
        "long_upsert_stream",
        "A stream with string keys has upserted for hours, and a stock read of its equality deletes no longer fits into a small executor's heap.",
        frozenset({"equality_deletes", "deletes_default_rewrite_ignores", "dangling_deletes", "executor_cache"}),
        _long_upsert_stream,
    ),
)
