"""Rows in Arrow have the hashes that Spark gives them."""

import datetime as dt
import random
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icekit.api import Lake
from icekit.rows.kernel.hashes import RowSums
from icekit.rows.proof.fingerprint import Fingerprint, fingerprint_of, row_hash

pytestmark = [pytest.mark.spark, pytest.mark.core]

R = random.Random(7)
START = dt.datetime(1960, 1, 1, tzinfo=dt.UTC)


def _day() -> dt.date:
    return START.date() + dt.timedelta(R.randint(0, 40_000))


def _moment() -> dt.datetime:
    return START + dt.timedelta(microseconds=R.randint(0, 10**16))


def _text() -> str:
    lengths = (0, 1, 2, 3, 4, 5, 7, 8, 9, 20, 31, 32, 33, 40, 63, 64, 100)
    return "".join(R.choice("aßx€y😀") for _ in range(R.choice(lengths)))


def _large_decimal() -> Decimal:
    borders = [0, -1, 127, 128, -128, -129, 255, 256, 32_767, -32_768, 32_768, 10**38 - 1]
    number = R.choice([*borders, R.randint(-(10**37), 10**37)])
    # Exactly: arithmetic would round to 28 digits.
    return Decimal(f"{number}E-3")


def _entries() -> list[tuple[str, int | None]]:
    return [(key, R.choice([None, 5])) for key in R.sample("abcd", R.randint(0, 3))]


COLUMNS: dict[str, tuple[pa.DataType, Any]] = {
    "boolean": (pa.bool_(), lambda: R.random() < 0.5),
    "int": (pa.int32(), lambda: R.choice([-(2**31), -1, 0, 2**31 - 1])),
    "long": (pa.int64(), lambda: R.choice([-(2**63), -1, 0, 2**63 - 1])),
    "float": (pa.float32(), lambda: R.choice([0.0, -0.0, float("nan"), 1.5, float("-inf")])),
    "double": (pa.float64(), lambda: R.choice([0.0, -0.0, float("nan"), -2.25, 1e300])),
    "date": (pa.date32(), _day),
    "timestamp": (pa.timestamp("us"), lambda: _moment().replace(tzinfo=None)),
    "timestamptz": (pa.timestamp("us", "UTC"), _moment),
    "string": (pa.string(), _text),
    "binary": (pa.binary(), lambda: R.randbytes(R.randint(0, 70))),
    "decimal": (pa.decimal128(9, 2), lambda: Decimal(R.randint(-(10**8), 10**8)).scaleb(-2)),
    "large decimal": (pa.decimal128(38, 3), _large_decimal),
    "struct": (
        pa.struct([("a", pa.int32()), ("s", pa.string())]),
        lambda: {"a": R.choice([None, 1]), "s": R.choice([None, "q"])},
    ),
    "list": (pa.list_(pa.string()), lambda: R.choices([None, "a", "bb"], k=R.randint(0, 4))),
    "lists": (
        pa.list_(pa.list_(pa.int64())),
        lambda: R.choices([None, [], [1], [2, None]], k=R.randint(0, 4)),
    ),
    "map": (pa.map_(pa.string(), pa.int64()), _entries),
}


def _rows(kind: pa.DataType, value: Any, count: int = 600) -> pa.Array:
    return pa.array([None if R.random() < 0.1 else value() for _ in range(count)], kind)


def _sums(rows: pa.Table) -> Fingerprint:
    sums = RowSums()
    for batch in rows.to_batches(max_chunksize=170):
        sums.add(batch)
    return Fingerprint(sums.rows, sums.hash_sum)


def test_rows_of_every_type_have_the_hash_that_spark_gives_them(lake: Lake, tmp_path: Path) -> None:
    rows = pa.table({name: _rows(*how) for name, how in COLUMNS.items()})
    path = tmp_path / "rows.parquet"
    pq.write_table(rows, path)
    frame = lake.spark.read.parquet(f"file:{path}")

    for name in COLUMNS:
        one = frame.select(name)
        assert _sums(rows.select([name])) == fingerprint_of(one, row_hash(one.schema)), name
    assert _sums(rows) == fingerprint_of(frame, row_hash(frame.schema))


def test_a_uuid_has_the_hash_of_its_text(lake: Lake) -> None:
    values = [uuid.uuid4() for _ in range(20)]
    texts = ", ".join(f"('{value}')" for value in values)
    frame = lake.spark.sql(f"SELECT * FROM VALUES {texts}, (CAST(NULL AS STRING)) AS v(u)")
    storage = pa.array([*(value.bytes for value in values), None], pa.binary(16))
    rows = pa.table({"u": pa.ExtensionArray.from_storage(pa.uuid(), storage)})

    assert _sums(rows) == fingerprint_of(frame, row_hash(frame.schema))
