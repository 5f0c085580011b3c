"""Build the lab's tables with position deletes and deletion vectors, and those fed by an upsert
stream, with the equality deletes that Flink writes.

Neither Spark nor pyiceberg writes equality deletes, so the stream uses Iceberg's Java API, as Flink
does.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from icekit.common.sql import identifier
from icekit.engine.compat import arrow_of
from rigs.lab.flights import ROWS
from rigs.lab.workbench import Lab, day_of, lab_table

MERGE_ON_READ = {
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}


@lab_table(
    "Rows were deleted and updated with merge-on-read in format v2, so readers merge many "
    "position deletes.",
    "position_deletes",
    "v2_position_deletes",
)
def position_deletes(lab: Lab) -> None:
    """Update and delete rows with merge-on-read, month after month, without compaction.

    Each statement adds position delete files for the data files it touches, and
    every later scan has to read and merge them.
    """
    lab.create("months(time_hour)", {**MERGE_ON_READ, "format-version": "2"})
    lab.insert("month <= 4")
    lab.sql("DELETE FROM {t} WHERE dep_time IS NULL")
    lab.sql("UPDATE {t} SET arr_delay = 0 WHERE carrier = 'VX'")
    lab.sql("DELETE FROM {t} WHERE carrier = 'US'")


@lab_table(
    "Rows were deleted and updated with merge-on-read in format v3, so most data files have a "
    "deletion vector.",
    "deletion_vectors",
)
def deletion_vectors(lab: Lab) -> None:
    """The same in format v3, in which a data file has at most one deletion vector."""
    lab.create("months(time_hour)", {**MERGE_ON_READ, "format-version": "3"})
    lab.insert("month <= 4")
    lab.sql("DELETE FROM {t} WHERE dep_time IS NULL")
    lab.sql(
        "MERGE INTO {t} USING (SELECT * FROM {flights} WHERE month <= 4 AND carrier = 'VX') s ON "
        "{t}.flight_id = s.flight_id WHEN MATCHED THEN UPDATE SET arr_delay = s.arr_delay + 1"
    )
    lab.sql("DELETE FROM {t} WHERE carrier = 'US'")


@lab_table(
    "Its data was compacted, but the delete files that applied to the old data files still exist.",
    "dangling_deletes",
    "old_snapshots",
)
def dangling_deletes(lab: Lab) -> None:
    """Compact only the recent months, and leave their position deletes behind.

    A compaction rewrites data without the deleted rows; the delete files stay, without any data
    to apply to, as long as another partition has older data.
    """
    lab.create("months(time_hour)", {**MERGE_ON_READ, "format-version": "2"})
    lab.insert("month <= 2 AND day <= 12")
    lab.sql("DELETE FROM {t} WHERE month = 2 AND carrier IN ('F9', 'YV', 'HA', 'OO')")
    lab.sql("DELETE FROM {t} WHERE month = 2 AND dep_time IS NULL AND dest = 'ORD'")
    lab.insert("month = 3 AND day <= 12")
    lab.call("rewrite_data_files", "where => 'month >= 2'", "options => map('rewrite-all', 'true')")


@lab_table(
    "Each of many small DELETE statements hits nearly every file, and writes the deletion "
    "vectors of all earlier ones again.",
    "vectors_rewritten",
)
def vectors_rewritten(lab: Lab) -> None:
    """Delete one airline after another from files that have rows of all of them: each statement
    replaces the vector of each file.
    """
    lab.create("months(time_hour)", {**MERGE_ON_READ, "format-version": "3"})
    lab.insert("month <= 2")
    for carrier in ("AS", "F9", "FL", "HA", "VX", "YV"):
        lab.sql(f"DELETE FROM {{t}} WHERE carrier = '{carrier}'")


# The stream of a day a commit: its first day of the year, and its days.
_FIRST_DAY, _COMMITS = 15, 24
_LONG_STREAM_COMMITS = 32
_NEW_ROWS = 10_000
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
        gateway: Any = lab.spark.sparkContext._gateway
        self._key_ids = gateway.new_array(gateway.jvm.int, len(keys))
        for index, key in enumerate(keys):
            self._key_ids[index] = self._id_of(key)
        self._metrics = self._java.MetricsConfig.forTable(self._table)
        self._numbers = itertools.count()

    def commit(self, parts: Iterable[tuple[str, Any]]) -> None:
        """Commit upserts, given as partition path and Arrow rows with unique keys."""
        delta = self._table.newRowDelta()
        for partition, rows in parts:
            data = self._java.DataFiles.builder(self._table.spec())
            delta.addRows(self._write(data, partition, rows, "data"))
            deletes = self._java.FileMetadata.deleteFileBuilder(self._table.spec())
            deletes = deletes.ofEqualityDeletes(self._key_ids)
            keys = rows.select(list(self._keys))
            delta.addDeletes(self._write(deletes, partition, keys, "deletes"))
        delta.commit()

    def _id_of(self, column: str) -> int:
        return int(self._table.schema().findField(column).fieldId())

    def _write(self, builder: Any, partition: str, rows: Any, kind: str) -> Any:
        name = f"{self._prefix}{next(self._numbers):05}-{kind}.parquet"
        path = self._lab.location / "data" / partition / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = [
            field.with_metadata({"PARQUET:field_id": str(self._id_of(field.name))})
            for field in rows.schema
        ]
        pq.write_table(rows.cast(pa.schema(fields)), path, compression="zstd")
        return self._lab.java_file(builder, self._table.io(), path, partition, self._metrics)


@lab_table(
    "An upsert stream adds a small data file and an equality delete file per bucket and "
    "commit, and every scan merges all of them.",
    "equality_deletes",
    "small_files",
    "executor_cache",
)
def equality_deletes(lab: Lab) -> None:
    """Stream each day's flights when they are scheduled, when they have landed, and when corrected.

    Each commit writes one data file and one equality delete file into each bucket, and a scan reads
    each data file together with every later delete file of its bucket.
    """
    lab.create("bucket(4, flight_id)", {"format-version": "2"})
    lab.insert("month = 1 AND day <= 15")
    stream = UpsertStream(lab, ("flight_id",))
    start, end = (f"DATE '2013-01-01' + {day}" for day in (_FIRST_DAY - 1, _FIRST_DAY + _COMMITS))
    arrow = _rows(
        lab,
        f"SELECT *, {identifier(lab.lake.name, 'system', 'bucket')}(4, flight_id) AS part "
        f"FROM {{flights}} WHERE flight_date < {end} AND (flight_date >= {start} OR "
        "flight_id % 10 = 0) ORDER BY flight_id",
    )
    old = arrow.filter(pc.less(arrow["flight_date"], day_of(_FIRST_DAY - 1)))
    for commit in range(_COMMITS):
        day = _FIRST_DAY + commit
        # Because of the corrections, the deletes of a commit apply to old files: the keys in a
        # delete file then range over all flights, and readers skip delete files by that range.
        corrections = old.take(list(range(commit, old.num_rows, _COMMITS)))
        batch = pa.concat_tables(
            [corrections, _of_day(arrow, day - 1), _as_scheduled(_of_day(arrow, day))]
        )
        parts = _parts(batch, "flight_id_bucket", "part")
        stream.commit((path, rows.drop_columns("part")) for path, rows in parts)


@lab_table(
    "A stream of new rows is written in upsert mode, so each data file comes with an equality "
    "delete file that deletes nothing.",
    "equality_deletes_of_new_keys",
)
def equality_deletes_of_new_keys(lab: Lab) -> None:
    """Append new flights with a writer in upsert mode.

    Before it adds a row, the writer deletes the row's key, although no older row has it. By the
    ranges of their keys, a scan leaves all these delete files out.
    """
    lab.create("origin", {"format-version": "2", "write.upsert.enabled": "true"})
    first = ROWS // 16
    lab.insert(f"flight_id < {first}")
    later = f"flight_id >= {first} AND flight_id < {first + 2 * _NEW_ROWS}"
    rows = _rows(lab, f"SELECT * FROM {{flights}} WHERE {later} ORDER BY flight_id")
    stream = UpsertStream(lab, ("flight_id", "origin"))
    for commit in range(2):
        stream.commit(_parts(rows.slice(commit * _NEW_ROWS, _NEW_ROWS), "origin"))


@lab_table(
    "A stream with string keys has upserted for hours, and Spark's own read of its equality "
    "deletes no longer fits into a small executor's heap.",
    "equality_deletes",
    "deletes_default_rewrite_ignores",
    "dangling_deletes",
    "executor_cache",
)
def long_upsert_stream(lab: Lab) -> None:
    """Stream the status of flights, a third of half a year's flights per commit, for hours without
    maintenance.

    Keys are strings, as in most streams. A scan reads each data file with every later delete file
    of its airport, so that Spark's own read or rewrite of the oldest holds more delete rows than a
    small executor has heap for.
    """
    columns = "flight_key STRING, origin STRING, status STRING, delay INT, updated_at TIMESTAMP"
    lab.create("origin", {"format-version": "2"}, columns=columns)
    key = (
        "concat_ws('/', flight_date, origin, dest, carrier, flight, coalesce(tailnum, 'unknown'), "
        "flight_id)"
    )
    half_year = _rows(
        lab,
        f"SELECT {key} AS flight_key, origin, CAST(arr_delay AS int) AS delay, time_hour AS "
        "updated_at FROM {flights} WHERE month <= 6 ORDER BY flight_id",
    )
    stream, random = UpsertStream(lab, ("origin", "flight_key")), np.random.default_rng(2013)
    # A flight is in every third commit: the archive of the lab stores equal columns once.
    shuffled = random.permutation(half_year.num_rows)
    shares = [np.sort(shuffled[number::3]) for number in range(3)]
    for commit in range(_LONG_STREAM_COMMITS):
        rows = half_year.take(shares[commit % 3])
        status = pa.array([_STATUSES[commit % len(_STATUSES)]] * rows.num_rows)
        rows = rows.append_column("status", status).select(
            ["flight_key", "origin", "status", "delay", "updated_at"]
        )
        stream.commit(_parts(rows, "origin"))


def _rows(lab: Lab, query: str) -> Any:
    """The rows of a query, as :meth:`Lab.sql` takes it, as an Arrow table."""
    return arrow_of(lab.sql(query))


def _parts(rows: Any, field: str, column: str = "") -> Iterator[tuple[str, Any]]:
    """The rows of each value of a column, by the path of its partition."""
    column = column or field
    for value in sorted(pc.unique(rows[column]).to_pylist()):
        yield f"{field}={value}", rows.filter(pc.equal(rows[column], value))


def _of_day(rows: Any, day: int) -> Any:
    return rows.filter(pc.equal(rows["flight_date"], day_of(day)))


def _as_scheduled(rows: Any) -> Any:
    """The rows as known before take-off."""
    unknown = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
    for name in unknown:
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, name, pa.nulls(rows.num_rows, pa.int32()))
    return rows
