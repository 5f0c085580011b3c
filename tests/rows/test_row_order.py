"""Rows come out of a sort as they went in, in the order that is asked for."""

import itertools
import json
import random
import struct
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icekit.rows.kernel import kernel
from icekit.rows.kernel.duckdb_io import can_store
from icekit.rows.kernel.kernel import resolve
from icekit.rows.kernel.refusals import KernelRefused
from icekit.rows.kernel.row_order import SortColumn, in_order
from tests.rows.parquet import Files, column, writer

SETTINGS = {"threads": 1, "memory_limit": "256MB"}
# A NaN of another engine, and the two zeros, by their bits.
NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_1234))[0]
NAMES = ["first \0 zero", "", "é", "z", "日本"]
# Of each type: values in their order.
VALUES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "boolean": (pa.bool_(), [False, True]),
    "int": (pa.int32(), [-(2**31), -1, 0, 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    "float": (pa.float32(), [float("-inf"), -1.5, 0.0, 2.5, float("inf"), float("nan")]),
    "double": (pa.float64(), [float("-inf"), -1e300, 0.0, 1e-300, float("inf"), NAN]),
    "date": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(2026, 1, 1)]),
    "timestamp": (pa.timestamp("us"), [-(2**61), -1, 0, 2**61]),
    "timestamptz": (
        pa.timestamp("us", "UTC"),
        [datetime(1900, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)],
    ),
    "string": (pa.string(), sorted(NAMES, key=str.encode)),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", b"\x7f", b"\xff"]),
    "fixed": (pa.binary(2), [b"\0\0", b"\0\xff", b"\xff\0"]),
    "uuid": (pa.uuid(), [uuid.UUID(int=1).bytes, uuid.UUID(int=2**127).bytes]),
    "decimal": (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("0.00"), Decimal("1.10")]),
    "large decimal": (
        pa.decimal128(38, 3),
        [Decimal(-(10**34)), Decimal("0.001"), Decimal(10**34)],
    ),
}


def array(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.array(values, kind)


@pytest.mark.parametrize("name", VALUES)
def test_values_of_each_type_stay_as_they_are_and_come_in_order(name: str) -> None:
    kind, values = VALUES[name]
    shuffled = [*values, None, *values]
    random.Random(1).shuffle(shuffled)
    # The same column twice: sorted by, and not.
    columns = [array(kind, [values[0], *shuffled])] * 2
    # A slice of a batch, as files are read.
    rows = pa.record_batch(columns, ["a", "b"]).slice(1)
    twice = [value for value in values for _ in range(2)]

    for descending, nulls_first in itertools.product([False, True], repeat=2):
        order = [SortColumn(0, descending, nulls_first)]
        (batch,) = in_order(iter([rows]), rows.schema, order, SETTINGS)

        expected = twice[::-1] if descending else twice
        expected = [None, *expected] if nulls_first else [*expected, None]
        assert batch.schema == rows.schema
        for there in batch.columns:
            # By their bytes: a NaN is not equal to itself.
            assert bits(there) == bits(array(kind, expected))


def bits(column: pa.Array) -> list[Any]:
    storage = column.storage if isinstance(column, pa.ExtensionArray) else column
    if pa.types.is_timestamp(storage.type):
        storage = storage.view(pa.int64())
    if pa.types.is_floating(storage.type):
        storage = storage.view(pa.int32() if storage.type == pa.float32() else pa.int64())
    values: list[Any] = storage.to_pylist()
    return values


def test_zeros_keep_their_signs() -> None:
    rows = pa.record_batch([pa.array([1.0, -0.0, 0.0, -0.0])], ["a"])

    (batch,) = in_order(iter([rows]), rows.schema, [SortColumn(0, False, True)], SETTINGS)

    there = [str(value) for value in batch.column(0).to_pylist()]
    assert sorted(there[:3]) == ["-0.0", "-0.0", "0.0"]
    assert there[3:] == ["1.0"]


def test_more_rows_than_memory_are_spilled(tmp_path: Path) -> None:
    values = list(range(400_000))
    random.Random(1).shuffle(values)
    rows = pa.table({"id": values, "text": [f"{value:0200}" for value in values]})
    settings = {**SETTINGS, "memory_limit": "48MB", "temp_directory": str(tmp_path)}
    order = [SortColumn(0, True, False)]

    batches = list(in_order(iter(rows.to_batches(10_000)), rows.schema, order, settings))

    there = pa.Table.from_batches(batches)
    assert there.column("id").to_pylist() == list(range(400_000))[::-1]
    assert there.column("text")[0].as_py() == f"{399_999:0200}"


def test_nested_values_are_not_sorted() -> None:
    nested = (
        pa.list_(pa.int64()),
        pa.struct([("a", pa.int64())]),
        pa.map_(pa.string(), pa.int64()),
    )
    assert not any(map(can_store, nested))
    assert all(can_store(kind) for kind, _ in VALUES.values())


def test_a_part_is_written_in_order_without_its_deleted_rows(tmp_path: Path) -> None:
    schema = pa.schema([column("id", pa.int64(), 1), column("name", pa.string(), 2)])
    files = Files(tmp_path)
    for ids in ([5, 3, 9], [4, 8, 1]):
        names = pa.array([f"name {i % 2}" for i in ids])
        files.add(pa.table([pa.array(ids), names], schema=schema), 1)
    files.delete(pa.table([pa.array([3])], schema=pa.schema([schema.field(0)])), 2, [1])
    order = (SortColumn(1, True, False), SortColumn(0, False, True))
    table = writer(schema, {1: pa.int64()}, sort_columns=order)

    written = json.loads(resolve(files.part(files=2), table, str(tmp_path), "0"))

    paths = [each["path"] for each in written["files"]]
    assert [pq.read_table(path).column("id").to_pylist() for path in paths] == [[1, 5, 9], [4, 8]]


def test_rows_that_a_sort_leaves_out_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([column("id", pa.int64(), 1)])
    files = Files(tmp_path)
    for ids in ([5, 3], [4, 8]):
        files.add(pa.table([pa.array(ids)], schema=schema), 1)
    monkeypatch.setattr(kernel, "in_order", lambda rows, *_: iter([next(rows)]))
    table = writer(schema, sort_columns=(SortColumn(0, False, True),))

    with pytest.raises(KernelRefused, match="2 rows were read, but 4 live"):
        files.resolved(table)
    assert not files.new()


def test_the_error_of_the_rows_is_the_error_of_the_sort() -> None:
    schema = pa.schema([("id", pa.int64())])

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([1])], schema=schema)
        raise KernelRefused("a data file with another number of rows than its metadata says")

    with pytest.raises(KernelRefused, match="another number of rows"):
        list(in_order(rows(), schema, [SortColumn(0, False, True)], SETTINGS))
