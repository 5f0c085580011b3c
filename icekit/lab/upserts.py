"""Tables fed by an upsert stream, with the equality deletes that Flink writes.

No Spark or pyiceberg writer makes equality deletes, so the stream is played through
Iceberg's Java API, which is what Flink commits with.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from icekit.lab.workbench import FLIGHTS, Lab, LabTable
from icekit.sql import identifier

_LONG_STREAM_COMMITS = 32
_STATUSES = ("scheduled", "boarding", "departed", "landed")


class UpsertStream:
    """A writer that commits, for each partition, a data file and the keys it replaces.

    As with Flink, one commit's data and equality delete files share a sequence number, so
    that the deletes reach older rows only, and all files carry bounds. ``prefix`` begins the
    files' names: a second stream on one table must not write over those of the first.
    """

    def __init__(self, lab: Lab, keys: tuple[str, ...], prefix: str = "") -> None:
        self._lab = lab
        self._keys = keys
        self._prefix = prefix
        self._java = lab.java
        self._table = self._java.spark.Spark3Util.loadIcebergTable(lab.spark._jsparkSession, lab.sql_name)
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
    """Stream a day's flights when they are scheduled and when they have landed, and corrections.

    Each commit leaves one data file and one equality delete file in each bucket, and each
    data file is read together with every later delete file of its bucket.
    """
    lab.create("bucket(4, flight_id)", {"format-version": "2"})
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month = 1 AND day <= 15")
    bucket = f"{identifier(lab.lake.name, 'system', 'bucket')}(4, flight_id)"
    _stream(lab, ("flight_id",), "flight_id_bucket", bucket, commits=24, first_day=15, corrected_one_in=10)


def _well_sized_equality_deletes(lab: Lab) -> None:
    """Start the stream on a table that was compacted: half a year in well-sized files.

    The default `rewrite_data_files` looks at sizes, and counts only deletes that point at
    one file, so it never selects these files, however many deletes they are read with.
    """
    lab.create("origin", {"format-version": "2"})
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 6")
    _stream(lab, ("flight_id", "origin"), "origin", "origin", commits=2, first_day=181, corrected_one_in=100)


def _long_upsert_stream(lab: Lab) -> None:
    """Let a stream write the status of flights, a sixth of the year's at each commit, for hours without maintenance.

    Keys are texts, as in most streams. Each data file is read with every later delete file of
    its airport, so that a stock read or rewrite of the oldest holds more delete rows than a
    small executor has heap for.
    """
    columns = "flight_key STRING, origin STRING, status STRING, delay INT, updated_at TIMESTAMP"
    lab.create("origin", {"format-version": "2"}, columns=columns)
    key = "concat_ws('/', flight_date, origin, dest, carrier, flight, coalesce(tailnum, 'unknown'), flight_id)"
    year: Any = lab.spark.sql(
        f"SELECT {key} AS flight_key, origin, CAST(arr_delay AS int) AS delay, time_hour AS updated_at FROM {FLIGHTS} ORDER BY flight_id"
    ).toArrow()
    stream, random = UpsertStream(lab, ("origin", "flight_key")), np.random.default_rng(2013)
    for commit in range(_LONG_STREAM_COMMITS):
        rows = year.take(np.sort(random.choice(year.num_rows, year.num_rows // 6, replace=False)))
        status = pa.array([_STATUSES[commit % len(_STATUSES)]] * rows.num_rows)
        rows = rows.append_column("status", status).select(["flight_key", "origin", "status", "delay", "updated_at"])
        stream.commit((f"origin={origin}", rows.filter(pc.equal(rows["origin"], origin))) for origin in ("EWR", "JFK", "LGA"))


def _stream(lab: Lab, keys: tuple[str, ...], field: str, transform: str, *, commits: int, first_day: int, corrected_one_in: int) -> None:
    """Commit once a day: the day's flights as scheduled, those of the day before as flown, and corrections.

    Corrections are what makes the deletes of a commit apply to old files: the keys in a
    delete file then range over all flights, and readers skip delete files by that range.
    """
    stream = UpsertStream(lab, keys)
    start, end = (f"DATE '2013-01-01' + {day}" for day in (first_day - 1, first_day + commits))
    arrow: Any = lab.spark.sql(
        f"SELECT *, {transform} AS part FROM {FLIGHTS} WHERE flight_date < {end} "
        f"AND (flight_date >= {start} OR flight_id % {corrected_one_in} = 0) ORDER BY flight_id"
    ).toArrow()
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
    """The rows as they are known before take-off."""
    for name in ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"):
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.nulls(rows.num_rows, pa.int32()))
    return rows


TABLES = (
    LabTable(
        "equality_deletes",
        "An upsert stream leaves a small data file and an equality delete file per bucket and commit, and every scan merges them all.",
        frozenset({"equality_deletes", "small_files", "executor_cache"}),
        _equality_deletes,
    ),
    LabTable(
        "well_sized_equality_deletes",
        "Its files have a good size and so the default compaction never touches them, yet each is read with equality deletes.",
        frozenset({"equality_deletes", "deletes_default_rewrite_ignores", "executor_cache"}),
        _well_sized_equality_deletes,
    ),
    LabTable(
        "long_upsert_stream",
        "A stream with text keys has upserted for hours, and a stock read of its equality deletes no longer fits a small executor's heap.",
        frozenset({"equality_deletes", "deletes_default_rewrite_ignores", "dangling_deletes", "executor_cache"}),
        _long_upsert_stream,
    ),
)
