"""Make a table of ordinary small files, once: rows that are all different, written by pyarrow and
registered by Spark.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from icekit.api import Lake
from icekit.common.errors import IcekitError
from icekit.common.sql import call_sql, identifier, set_properties_sql, unset_properties_sql
from icekit.health.facts.metadata_file import load_metadata
from rigs.bench.upserts import customer_keys
from rigs.soak.table import desk, folder

NAMESPACE = "bench"
#: Rows of a file of about half a megabyte; all partitions have as many files.
ROWS, PARTITIONS = 5_600, 8
_TYPES = {
    "id": pa.int64(),
    "p": pa.int32(),
    "at": pa.timestamp("us", tz="UTC"),
    "account": pa.int64(),
    "customer": pa.string(),
    "note": pa.string(),
    "country": pa.string(),
    "price": pa.float64(),
    "amount": pa.float64(),
    "quantity": pa.int32(),
}
_DDL = (
    "id BIGINT, p INT, at TIMESTAMP, account BIGINT, customer STRING, note STRING, country STRING, "
    "price DOUBLE, amount DOUBLE, quantity INT"
)
_FEW_VALUES = ["p", "country", "quantity"]
_POOL_ROWS = 400_000
_COMPLETE = "icekit.bench.complete"
# Changes with what is made here, so that a table of an older one is made again.
_VERSION = "1"


def make_small_files(lake: Lake, file_count: int) -> str:
    """Make the table unless it is there; returns its name."""
    name = f"small_files_{file_count}"
    table = f"{NAMESPACE}.{name}"
    mark = f"{_VERSION}: {ROWS} rows, {PARTITIONS} partitions"
    if _mark_of(lake, name) == mark:
        return table
    started = time.monotonic()
    spark, sql_name = lake.spark, (lake.name, NAMESPACE, name)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, NAMESPACE)}")
    desk(lake, name, NAMESPACE).start()
    spark.sql(f"CREATE TABLE {identifier(*sql_name)} ({_DDL}) USING iceberg PARTITIONED BY (p)")
    data = folder(lake, name, NAMESPACE) / "data"
    _write(data, file_count)
    source = identifier("parquet", str(data))
    parallelism = os.cpu_count() or 1
    add_files = call_sql(
        lake.name, "add_files", table=table, source_table=source, parallelism=parallelism
    )
    spark.sql(add_files).collect()
    # The files have field ids, and need no names.
    spark.sql(unset_properties_sql(sql_name, ["schema.name-mapping.default"]))
    spark.sql(set_properties_sql(sql_name, {_COMPLETE: mark}))
    print(f"made {table} in {time.monotonic() - started:.0f} s", file=sys.stderr)
    return table


def _mark_of(lake: Lake, name: str) -> str | None:
    try:
        metadata = load_metadata(lake.tables.source((NAMESPACE, name)))
    except IcekitError:
        return None
    mark: str | None = metadata["properties"].get(_COMPLETE)
    return mark


def _write(data: Path, file_count: int) -> None:
    for partition in range(PARTITIONS):
        (data / f"p={partition}").mkdir(parents=True)
    pool = _pool()

    def write(number: int) -> None:
        # Ids and times follow the partitions, as with days.
        partition = number * PARTITIONS // file_count
        path = data / f"p={partition}" / f"{number:05}.parquet"
        rows = _rows(number, partition, pool)
        pq.write_table(rows, path, compression="zstd", use_dictionary=_FEW_VALUES)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(write, range(file_count)))


def _pool() -> pa.Table:
    """What is expensive to make: values that the files draw their rows from."""
    random = np.random.default_rng(7)
    numbers = np.arange(_POOL_ROWS)
    notes = [customer_keys(numbers + place * _POOL_ROWS) for place in (1, 2, 3)]
    countries = pa.array([f"country {number}" for number in range(200)])
    columns = {
        "customer": customer_keys(numbers),
        "note": pc.binary_join_element_wise(*notes, " "),
        "country": countries.take(pa.array(random.integers(0, len(countries), _POOL_ROWS))),
        "price": np.round(random.random(_POOL_ROWS) * 100, 2),
        "amount": random.random(_POOL_ROWS) * 1000,
        "quantity": random.integers(1, 20, _POOL_ROWS, np.int32),
    }
    return pa.table(columns)


def _rows(number: int, partition: int, pool: pa.Table) -> pa.Table:
    """The rows of one file: new numbers, times and accounts, and a stretch of the pool."""
    random = np.random.default_rng((7, number))
    stretch = pool.slice(int(random.integers(_POOL_ROWS - ROWS)), ROWS)
    first = number * ROWS
    moments = 1_700_000_000_000_000 + first * 1_000 + random.integers(0, 60_000_000, ROWS)
    columns = {name: stretch[name] for name in stretch.column_names} | {
        "id": np.arange(first, first + ROWS),
        "p": np.full(ROWS, partition, np.int32),
        "at": pa.array(moments, pa.int64()).cast(_TYPES["at"]),
        "account": random.integers(0, 10_000_000, ROWS),
    }
    fields = [
        pa.field(name, kind, metadata={"PARQUET:field_id": str(field_id)})
        for field_id, (name, kind) in enumerate(_TYPES.items(), 1)
    ]
    return pa.table([columns[name] for name in _TYPES], pa.schema(fields))
