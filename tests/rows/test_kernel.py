"""The kernel writes exactly the rows that live by the specification, in today's schema; what it
cannot do exactly it refuses, and leaves nothing behind.
"""

import datetime as dt
import json
import re
import uuid
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icekit.rows.deletes.delete_files import PATH_ID, POSITION_ID, vector_blob
from icekit.rows.kernel import kernel
from icekit.rows.kernel.current_schema import LAST_UPDATED, ROW_ID, in_current_schema
from icekit.rows.kernel.refusals import KernelRefused, RuledOut
from tests.child import python
from tests.rows.parquet import Files, column, read, writer

pytest.importorskip("duckdb")

UTC = dt.UTC
# Of each type of a key: values of which no two are equal; a null is in each, too.
KEYS: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "boolean": (pa.bool_(), [False, True]),
    "int": (pa.int32(), [-(2**31), -1, 0, 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    "decimal": (pa.decimal128(9, 2), [Decimal("-0.01"), Decimal("0.00"), Decimal("9999999.99")]),
    "large decimal": (pa.decimal128(38, 3), [Decimal("-1e34"), Decimal("0.001"), Decimal("1e34")]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("us"), [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)]),  # noqa: DTZ001
    "timestamptz": (pa.timestamp("us", "UTC"), [dt.datetime(1960, 1, 1, 0, 0, 0, 1, UTC)]),
    "string": (pa.string(), ["", "ß", "ss", "a\0b", "a", "A", "é", "e\u0301"]),
    "binary": (pa.binary(), [b"", b"\0", b"\xff", b"\0\0"]),
    "fixed": (pa.binary(4), [b"\0\0\0\0", b"\xff\0\0\0"]),
    "uuid": (pa.binary(16), [uuid.UUID(int=0).bytes, uuid.UUID(int=2**127).bytes]),
}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def table_of(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    return pa.table(
        [pa.array([row[i] for row in rows], each.type) for i, each in enumerate(schema)],
        schema=schema,
    )


@pytest.mark.parametrize("name", KEYS)
def test_a_key_deletes_the_rows_that_have_it_and_no_other(name: str, files: Files) -> None:
    kind, values = KEYS[name]
    schema = pa.schema([column("k", kind, 1), column("n", pa.int64(), 2)])
    keys = pa.schema([column("k", kind, 1)])
    every = [None, *values]
    files.add(table_of(schema, [(value, i) for i, value in enumerate(every * 2)]), 1)
    for index, key in enumerate(every):
        files.deletes.clear()
        files.delete(table_of(keys, [(key,)]), 2, [1])

        live = [row["n"] for row in files.live(writer(schema, {1: kind}))]

        assert live == [i for i in range(2 * len(every)) if i % len(every) != index]


def test_a_delete_applies_to_older_files_only(files: Files) -> None:
    schema = pa.schema([column("k", pa.int64(), 1), column("n", pa.int64(), 2)])
    for sequence in (1, 2, 3):
        files.add(table_of(schema, [(5, sequence), (6, sequence)]), sequence)
    keys = pa.schema([column("k", pa.int64(), 1)])
    files.delete(table_of(keys, [(5,)]), 1, [1])
    files.delete(table_of(keys, [(5,)]), 3, [1])
    files.delete(table_of(keys, [(6,), (5,)]), 2, [1])

    assert [tuple(row.values()) for row in files.live(writer(schema, {1: pa.int64()}))] == [
        (6, 2),
        (5, 3),
        (6, 3),
    ]


def test_every_part_of_a_key_counts_and_each_key_set_by_itself(files: Files) -> None:
    schema = pa.schema([column("a", pa.int64(), 1), column("b", pa.string(), 2)])
    rows = [(1, "x"), (1, "y"), (1, None), (None, "x"), (None, None), (2, "z")]
    files.add(table_of(schema, rows), 1)
    files.delete(table_of(schema, [(1, None), (None, "x")]), 2, [1, 2])
    files.delete(table_of(schema.remove(0).set(0, schema.field(1)), [("z",)]), 2, [2])

    live = files.live(writer(schema, {1: pa.int64(), 2: pa.string()}))

    assert [tuple(row.values()) for row in live] == [(1, "x"), (1, "y"), (None, None)]


def test_keys_are_compared_in_the_type_of_today(files: Files) -> None:
    old = pa.schema([column("k", pa.int32(), 1), column("d", pa.decimal128(5, 2), 2)])
    new = pa.schema([column("key", pa.int64(), 1), column("d", pa.decimal128(20, 2), 2)])
    files.add(table_of(old, [(1, Decimal("1.10")), (2, Decimal("2.20"))]), 1)
    files.add(table_of(new, [(1, Decimal("1.10")), (2**40, Decimal("3.30"))]), 2)
    files.delete(table_of(new, [(1, Decimal("1.10"))]), 3, [1, 2])
    files.delete(table_of(old, [(2, Decimal("2.20"))]), 3, [1, 2])

    live = files.live(writer(new, {1: pa.int64(), 2: pa.decimal128(20, 2)}))

    assert live == [{"key": 2**40, "d": Decimal("3.30")}]


def test_a_key_inside_a_struct_that_is_null_is_null(files: Files) -> None:
    inner = pa.struct([column("k", pa.int64(), 2), column("other", pa.string(), 3)])
    schema = pa.schema([column("s", inner, 1)])
    rows = [
        ({"k": 1, "other": "a"},),
        (None,),
        ({"k": None, "other": "b"},),
        ({"k": 2, "other": "c"},),
    ]
    files.add(table_of(schema, rows), 1)
    keys = pa.schema([column("s", pa.struct([column("k", pa.int64(), 2)]), 1)])
    files.delete(table_of(keys, [({"k": None},), ({"k": 1},)]), 2, [2])

    assert files.live(writer(schema, {2: pa.int64()})) == [{"s": {"k": 2, "other": "c"}}]


def test_a_key_column_that_a_file_lacks_is_null_there(files: Files) -> None:
    new = pa.schema([column("n", pa.int64(), 1), column("k", pa.string(), 2)])
    files.add(table_of(new.remove(1), [(1,)]), 1)
    files.add(table_of(new, [(2, None), (3, "a")]), 1)
    files.delete(table_of(pa.schema([new.field(1)]), [(None,)]), 2, [2])

    assert files.live(writer(new, {2: pa.string()})) == [{"n": 3, "k": "a"}]


def test_rows_come_in_the_schema_of_today(files: Files) -> None:
    old_struct = pa.struct([column("x", pa.int32(), 11), column("gone", pa.string(), 12)])
    new_struct = pa.struct([column("more", pa.string(), 13), column("y", pa.int64(), 11)])
    old = pa.schema(
        [
            column("a", pa.int32(), 1),
            column("dropped", pa.string(), 2),
            column("f", pa.float32(), 3),
            column("s", old_struct, 4),
            column("l", pa.list_(column("element", pa.int64(), 6)), 5),
        ]
    )
    new = pa.schema(
        [
            column("l", pa.list_(column("element", pa.int64(), 6)), 5),
            column("a b.c", pa.int64(), 1),
            column("added", pa.string(), 7),
            column("f", pa.float64(), 3),
            column("s", new_struct, 4),
        ]
    )
    files.add(
        table_of(
            old, [(1, "q", 0.1, {"x": 5, "gone": "g"}, [1, None]), (None, "r", None, None, None)]
        ),
        1,
    )

    first, second = files.live(writer(new))

    assert first == {
        "l": [1, None],
        "a b.c": 1,
        "added": None,
        "f": pa.scalar(0.1, pa.float32()).as_py(),
        "s": {"more": None, "y": 5},
    }
    assert set(second.values()) == {None}
    (file,) = files.new()
    ids = [each.metadata[b"PARQUET:field_id"] for each in pq.ParquetFile(file).schema_arrow]
    assert ids == [b"5", b"1", b"7", b"3", b"4"]


def test_values_stay_as_they_are(files: Files) -> None:
    """A NaN, a negative zero, repeated keys of a map, empty and null collections."""
    entry = (column("key", pa.string(), 4).with_nullable(False), column("value", pa.int64(), 5))
    schema = pa.schema(
        [column("d", pa.float64(), 1), column("m", pa.map_(*entry), 2), column("u", pa.uuid(), 3)]
    )
    old = schema.set(2, column("u", pa.binary(16), 3))
    rows = [
        (float("nan"), [("a", 1), ("a", 2)], uuid.UUID(int=1).bytes),
        (-0.0, [], None),
        (None, None, uuid.UUID(int=2**128 - 1).bytes),
    ]
    files.add(table_of(old, rows), 1)

    live = files.live(writer(schema))

    assert repr(live[0]["d"]) == "nan"
    assert str(live[1]["d"]) == "-0.0"
    assert [row["m"] for row in live] == [[("a", 1), ("a", 2)], [], None]
    assert [row["u"] for row in live] == [uuid.UUID(int=1), None, uuid.UUID(int=2**128 - 1)]


def test_positions_and_vectors_delete_rows_of_their_file(files: Files) -> None:
    from pyroaring import BitMap64

    schema = pa.schema([column("n", pa.int64(), 1)])
    paths = [files.add(table_of(schema, [(10 * i + j,) for j in range(8)]), 1) for i in range(3)]
    places = pa.schema(
        [column("file_path", pa.string(), PATH_ID), column("pos", pa.int64(), POSITION_ID)]
    )
    path = files.path("positions")
    rows = [(paths[0], 0), (paths[1], 1), (paths[1], 1), (paths[2], 7), ("elsewhere", 3)]
    pq.write_table(table_of(places, rows), path)
    blob = vector_blob(BitMap64([2, 3]))
    (files.folder / "vector").write_bytes(b"head" + blob)
    files.position_deletes.append((path, [0, 1, 2]))
    # A vector replaces all other position deletes of its file.
    files.vectors.append((1, str(files.folder / "vector"), 4, len(blob)))

    answer = files.resolved(writer(schema))

    live = [row["n"] for row in read(answer["files"][0]["path"])]
    assert live == [*range(1, 8), 10, 11, *range(14, 18), *range(20, 27)]
    assert answer["read"] == len(live)


def test_the_values_of_a_partition_take_the_place_of_the_file_s(files: Files) -> None:
    schema = pa.schema([column("n", pa.int64(), 1), column("day", pa.date32(), 2)])
    files.add(table_of(schema.remove(1), [(1,)]), 1, constants={"2": "2024-02-29"})
    files.add(table_of(schema, [(2, dt.date(1999, 1, 1))]), 1, constants={"2": "2024-02-29"})
    keys = pa.schema([schema.field(1)])
    files.delete(table_of(keys, [(dt.date(1999, 1, 1),)]), 2, [2])

    day = dt.date(2024, 2, 29)
    assert files.live(writer(schema, {2: pa.date32()})) == [
        {"n": 1, "day": day},
        {"n": 2, "day": day},
    ]


def test_a_row_keeps_its_lineage(files: Files) -> None:
    lineage = [column("_row_id", pa.int64(), ROW_ID), column("_last", pa.int64(), LAST_UPDATED)]
    schema = pa.schema([column("n", pa.int64(), 1), *lineage])
    plain = pa.schema([schema.field(0)])
    files.add(table_of(plain, [(1,), (2,), (3,)]), 4, first_row_id=100)
    files.add(table_of(schema, [(4, 7, 2), (5, None, None)]), 5, first_row_id=200)
    files.delete(table_of(plain, [(2,)]), 6, [1])

    live = files.live(writer(schema, {1: pa.int64()}))

    assert [tuple(row.values()) for row in live] == [
        (1, 100, 4),
        (3, 102, 4),
        (4, 7, 2),
        (5, 201, 5),
    ]


def test_new_files_share_the_rows_and_say_where_their_row_groups_begin(files: Files) -> None:
    schema = pa.schema([column("n", pa.int64(), 1)])
    files.add(table_of(schema, [(n,) for n in range(20)]), 1)

    answer = files.resolved(writer(schema), files=2, chosen=[0])

    assert [each["rows"] for each in answer["files"]] == [10, 10]
    for each in answer["files"]:
        group = pq.ParquetFile(each["path"]).metadata.row_group(0).column(0)
        assert each["offsets"] == [group.dictionary_page_offset or group.data_page_offset]
        assert Path(each["path"]).stat().st_size == each["bytes"]
    assert answer["chosen"] == [[0, 20, answer["sum"]]]


def test_no_file_is_written_where_no_row_lives(files: Files) -> None:
    schema = pa.schema([column("n", pa.int64(), 1)])
    files.add(table_of(schema, [(1,)]), 1)
    files.delete(table_of(schema, [(1,)]), 2, [1])

    assert files.resolved(writer(schema, {1: pa.int64()}))["files"] == []
    assert files.new() == []


def test_more_deletes_than_memory_are_spilled(files: Files) -> None:
    schema = pa.schema([column("k", pa.string(), 1)])
    keys = [(f"a key that takes some bytes: {n:030}",) for n in range(400_000)]
    files.add(table_of(schema, keys), 1)
    files.delete(table_of(schema, keys[::2]), 2, [1])

    assert (
        files.resolved(writer(schema, {1: pa.string()}, memory_bytes=48 << 20))["rows"] == 200_000
    )


def test_too_little_memory_to_spill_is_a_refusal(files: Files) -> None:
    schema = pa.schema([column("k", pa.string(), 1)])
    keys = [(f"{n:060}",) for n in range(100_000)]
    files.add(table_of(schema, keys), 1)
    files.delete(table_of(schema, keys), 2, [1])

    with pytest.raises(KernelRefused, match="memory"):
        files.resolved(writer(schema, {1: pa.string()}, memory_bytes=2 << 20))


def test_what_is_not_exact_is_refused_and_leaves_no_file(files: Files) -> None:
    schema = pa.schema([column("n", pa.int64(), 1), column("s", pa.string(), 2)])
    good = table_of(schema, [(1, "a")])
    other = schema.set(0, column("n", pa.string(), 1))
    cases: dict[str, dict[str, Any]] = {
        "no field ids": {"rows_of_file": pa.table({"n": [1], "s": ["a"]})},
        "another number of rows": {"rows": 2},
        "type changed": {"rows_of_file": table_of(other, [("1", "a")])},
    }
    for because, more in cases.items():
        broken = Files(files.folder / because.replace(" ", "-"))
        broken.folder.mkdir()
        broken.add(good, 1)
        broken.add(more.pop("rows_of_file", good), 1, **more)
        with pytest.raises(KernelRefused, match=because):
            broken.live(writer(schema))
        assert broken.new() == []


def test_a_delete_that_the_scan_rules_out_for_a_file_is_no_delete(files: Files) -> None:
    schema = pa.schema([column("n", pa.int64(), 1)])
    files.add(table_of(schema, [(1,)]), 1)
    path = files.add(table_of(schema, [(1,), (2,)]), 1)
    files.delete(table_of(schema, [(3,)]), 2, [1])
    files.delete(table_of(schema, [(1,)]), 2, [1])
    (own,) = json.loads(files.part())["deletes"]

    for words in ([None, [1]], [None, None]):
        live = files.live(writer(schema, {1: pa.int64()}), deletes=[{**own, "ruled_out": words}])
        assert live == [{"n": 2}]
    with pytest.raises(RuledOut, match=re.escape(path)):
        files.live(writer(schema, {1: pa.int64()}), deletes=[{**own, "ruled_out": [None, [2]]}])


def test_files_of_a_part_that_fails_are_removed(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([column("n", pa.int64(), 1)])
    for n in range(3):
        files.add(table_of(schema, [(n,)]), 1)
    adapted = in_current_schema

    def broken(*given: Any) -> pa.RecordBatch:
        rows = adapted(*given)
        if rows.column(0).to_pylist() == [2]:
            raise OSError("the disk is full")
        return rows

    monkeypatch.setattr(kernel, "in_current_schema", broken)

    with pytest.raises(OSError, match="full"):
        files.live(writer(schema), files=3)
    assert files.new() == []


OLD = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.sampled_from([None, "a", "b"]))
)


@settings(max_examples=60, deadline=None)
@given(
    data=st.lists(st.tuples(st.integers(1, 4), OLD), min_size=1, max_size=4),
    deletes=st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from([(1,), (2,), (1, 2)]), OLD), max_size=4
    ),
)
def test_random_histories_leave_the_rows_of_the_specification(
    tmp_path_factory: pytest.TempPathFactory, data: Any, deletes: Any
) -> None:
    files = Files(tmp_path_factory.mktemp("random"))
    schema = pa.schema([column("k", pa.int64(), 1), column("s", pa.string(), 2)])
    for sequence, rows in data:
        files.add(table_of(schema, rows), sequence)
    for sequence, ids, rows in deletes:
        files.delete(table_of(schema, rows), sequence, ids)
    expected = [
        row
        for sequence, rows in data
        for row in rows
        if not any(
            newer > sequence and all(key[i - 1] == row[i - 1] for i in ids)
            for newer, ids, keys in deletes
            for key in keys
        )
    ]

    live = files.live(writer(schema, {1: pa.int64(), 2: pa.string()}))

    assert [tuple(row.values()) for row in live] == expected


def test_executors_need_not_have_icekit(tmp_path: Path, files: Files) -> None:
    """They get the source of the kernel with a task."""
    from pyspark import cloudpickle

    from icekit.rows.kernel.job import _part_task

    schema = pa.schema([column("n", pa.int64(), 1)])
    files.add(table_of(schema, [(1,), (2,)]), 1)
    files.delete(table_of(schema, [(1,)]), 2, [1])
    task = tmp_path / "task"
    work = _part_task(kernel.resolve, writer(schema, {1: pa.int64()}))
    task.write_bytes(cloudpickle.dumps(work))  # type: ignore[no-untyped-call]
    (tmp_path / "part").write_text(files.part())
    code = (
        "import pickle, sys\n"
        "sys.modules['icekit'] = None\n"
        "import pyspark\n"
        "class Task:\n"
        "    get = staticmethod(lambda: Task())\n"
        "    taskAttemptId = partitionId = lambda self: 3\n"
        "pyspark.TaskContext = Task\n"
        f"task = pickle.load(open({str(task)!r}, 'rb'))\n"
        f"print(task(open({str(tmp_path / 'part')!r}).read()))\n"
    )

    answer = json.loads(python("-c", code, check=True).stdout)

    assert answer["rows"] == 1
