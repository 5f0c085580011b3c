"""The reader of the specification, on tables whose right rows are written down here.

Numbers of fields are names here: 1 is ``id`` in every table.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import re
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rigs.torture.handmade import Entry, Table, column, struct_of, with_id
from rigs.torture.reader.schema import LAST_UPDATED, ROW_ID, NotReadable
from rigs.torture.reader.table import rows_of_table, rows_with_lineage

ID = with_id("id", pa.int64(), 1)
NAME = with_id("name", pa.string(), 2)
PLAIN = struct_of(column(1, "id", "long"), column(2, "name", "string"))
#: Partitioned by the identity of column 2.
BY_NAME = {0: ((2, 1000, "name", "identity", "string"),)}


def plain(folder: Path, **options: Any) -> Table:
    return Table(folder, [PLAIN], **options)


def ids(table: Table) -> list[Any]:
    """The values of column 1, each as often as it is there."""
    rows = rows_of_table(table.write())
    return sorted((dict(row)[1] for row in rows.elements()), key=repr)


def values(table: Table, field_id: int) -> list[Any]:
    rows = rows_of_table(table.write())
    return sorted((dict(row)[field_id] for row in rows.elements()), key=repr)


def three(table: Table, **options: Any) -> Entry:
    """A data file of the ids 1, 2 and 3."""
    return table.parquet({ID: [1, 2, 3], NAME: ["a", "b", None]}, **options)


def keys(table: Table, *numbers: int | None, **options: Any) -> Entry:
    return table.parquet({ID: list(numbers)}, content=2, equality_ids=(1,), **options)


# Columns


def test_columns_are_selected_by_id_whatever_they_are_called_and_wherever_they_stand(
    tmp_path: Path,
) -> None:
    table = Table(tmp_path, [struct_of(column(2, "label", "string"), column(1, "number", "long"))])
    table.commit(table.parquet({with_id("label", pa.int64(), 1): [5], NAME: ["x"]}))

    assert rows_of_table(table.write()) == {((1, 5), (2, "x")): 1}


def test_a_column_that_came_later_has_its_initial_default_in_older_files(tmp_path: Path) -> None:
    schema = struct_of(
        column(1, "id", "long"),
        column(3, "plain", "int"),
        column(4, "amount", "decimal(9, 2)", initial_default="14.20"),
        column(5, "day", "date", initial_default="1970-01-02"),
        column(6, "moment", "timestamptz", initial_default="1969-12-31T23:59:59.999999+00:00"),
        column(7, "raw", "binary", initial_default="00ff"),
    )
    table = Table(tmp_path, [schema], version=3)
    table.commit(table.parquet({ID: [1]}))

    assert rows_of_table(table.write()) == {
        ((1, 1), (3, None), (4, 1420), (5, 1), (6, -1), (7, b"\x00\xff")): 1
    }


def test_a_struct_that_came_later_is_null_and_a_field_in_an_older_struct_has_its_default(
    tmp_path: Path,
) -> None:
    x = column(4, "x", "int")
    y = column(5, "y", "int", initial_default=0)
    late = column(6, "late", struct_of(column(7, "z", "int", initial_default=9)))
    filled = column(
        8, "filled", struct_of(column(9, "w", "int", initial_default=3)), initial_default={}
    )
    schema = struct_of(column(1, "id", "long"), column(3, "s", struct_of(x, y)), late, filled)
    inner = pa.struct([with_id("x", pa.int32(), 4)])
    table = Table(tmp_path, [schema], version=3)
    table.commit(table.parquet({ID: [1, 2], with_id("s", inner, 3): [{"x": 3}, None]}))

    assert rows_of_table(table.write()) == {
        ((1, 1), (3, ((4, 3), (5, 0))), (6, None), (8, ((9, 3),))): 1,
        ((1, 2), (3, None), (6, None), (8, ((9, 3),))): 1,
    }


def test_values_are_promoted_at_any_depth(tmp_path: Path) -> None:
    schema = struct_of(
        column(1, "id", "long"),
        column(3, "list", {"type": "list", "element-id": 4, "element": "long"}),
        column(
            5, "map", {"type": "map", "key-id": 6, "key": "long", "value-id": 7, "value": "double"}
        ),
        column(8, "wide", "decimal(20, 2)"),
        column(9, "day", "timestamp"),
    )
    of_ints = pa.list_(with_id("element", pa.int32(), 4))
    of_floats = pa.map_(
        pa.field("key", pa.int32(), False, {"PARQUET:field_id": "6"}),
        with_id("value", pa.float32(), 7),
    )
    table = Table(tmp_path, [schema], version=3)
    table.commit(
        table.parquet(
            {
                with_id("id", pa.int32(), 1): [1],
                with_id("list", of_ints, 3): [[3, None]],
                with_id("map", of_floats, 5): [[(2, 0.5), (1, float("nan"))]],
                with_id("wide", pa.decimal128(9, 2), 8): [1],
                with_id("day", pa.date32(), 9): [-1],
            }
        )
    )

    assert rows_of_table(table.write()) == {
        (
            (1, 1),
            (3, (3, None)),
            (5, ((1, "nan"), (2, (0.5).hex()))),
            (8, 100),
            (9, -86_400_000_000),
        ): 1
    }


def test_zero_and_minus_zero_are_two_values_and_a_missing_list_is_no_empty_one(
    tmp_path: Path,
) -> None:
    schema = struct_of(
        column(1, "id", "double"),
        column(3, "list", {"type": "list", "element-id": 4, "element": "int"}),
    )
    of_ints = pa.list_(with_id("element", pa.int32(), 4))
    table = Table(tmp_path, [schema])
    columns = {
        with_id("id", pa.float64(), 1): [0.0, -0.0],
        with_id("list", of_ints, 3): [[], None],
    }
    table.commit(table.parquet(columns))

    assert rows_of_table(table.write()) == {
        ((1, (0.0).hex()), (3, ())): 1,
        ((1, (-0.0).hex()), (3, None)): 1,
    }


def test_a_column_that_the_file_lacks_has_its_identity_partitions_value(tmp_path: Path) -> None:
    table = plain(tmp_path, specs=BY_NAME)
    table.commit(
        table.parquet({ID: [1]}, partition={"name": "p"}),
        table.parquet({ID: [2]}, partition={"name": None}),
    )

    assert rows_of_table(table.write()) == {((1, 1), (2, "p")): 1, ((1, 2), (2, None)): 1}


def test_a_file_without_ids_is_read_by_the_name_mapping(tmp_path: Path) -> None:
    mapping = [
        {"field-id": 1, "names": ["id", "record_id"]},
        {"field-id": 3, "names": ["s"], "fields": [{"field-id": 4, "names": ["lat"]}]},
    ]
    schema = struct_of(
        column(1, "id", "long"), column(3, "location", struct_of(column(4, "latitude", "int")))
    )
    table = Table(
        tmp_path, [schema], properties={"schema.name-mapping.default": json.dumps(mapping)}
    )
    inner = pa.struct([("lat", pa.int32()), ("other", pa.int32())])
    table.commit(
        table.parquet(
            {pa.field("record_id", pa.int64()): [1], pa.field("s", inner): [{"lat": 8, "other": 9}]}
        )
    )

    assert rows_of_table(table.write()) == {((1, 1), (3, ((4, 8),))): 1}


# Formats


def test_an_avro_file_has_the_values_of_its_types(tmp_path: Path) -> None:
    def of(name: str, kind: Any, field_id: int) -> dict[str, Any]:
        return {"name": name, "type": ["null", kind], "field-id": field_id}

    def fixed(name: str, size: int, **more: Any) -> dict[str, Any]:
        return {"type": "fixed", "name": name, "size": size, **more}

    pair = {
        "type": "record",
        "name": "k6_v7",
        "fields": [
            {"name": "key", "type": "int", "field-id": 6},
            {"name": "value", "type": ["null", "string"], "field-id": 7},
        ],
    }
    avro = {
        "type": "record",
        "name": "table",
        "fields": [
            of("old_id", "int", 1),
            of("day", {"type": "int", "logicalType": "date"}, 2),
            of("moment", {"type": "long", "logicalType": "timestamp-micros"}, 3),
            of("amount", fixed("d9", 4, logicalType="decimal", precision=9, scale=2), 4),
            of("map", {"type": "array", "items": pair, "logicalType": "map"}, 5),
            of("u", fixed("uuid_fixed", 16, logicalType="uuid"), 8),
            of("real", "float", 9),
        ],
    }
    row = {
        "old_id": 1,
        "day": dt.date(1969, 12, 31),
        "moment": dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC),
        "amount": decimal.Decimal("-1.50"),
        "map": [{"key": 2, "value": None}, {"key": 1, "value": "a"}],
        "u": uuid.UUID(int=7).bytes,
        "real": -0.0,
    }
    schema = struct_of(
        column(1, "id", "long"),
        column(2, "day", "date"),
        column(3, "moment", "timestamp"),
        column(4, "amount", "decimal(9, 2)"),
        column(
            5, "map", {"type": "map", "key-id": 6, "key": "int", "value-id": 7, "value": "string"}
        ),
        column(8, "u", "uuid"),
        column(9, "real", "double"),
    )
    table = Table(tmp_path, [schema])
    table.commit(table.avro(avro, [row, dict.fromkeys(row)]))
    ids = {"type": "record", "name": "table", "fields": [of("id", "int", 1)]}
    table.commit(table.avro(ids, [{"id": None}], content=2, equality_ids=(1,)))

    assert rows_of_table(table.write()) == {
        (
            (1, 1),
            (2, -1),
            (3, -1),
            (4, -150),
            (5, ((1, "a"), (2, None))),
            (8, uuid.UUID(int=7).bytes),
            (9, (-0.0).hex()),
        ): 1
    }


def test_an_orc_file_has_the_values_of_its_types(tmp_path: Path) -> None:
    schema = struct_of(
        column(1, "id", "long"),
        column(2, "moment", "timestamptz"),
        column(
            3,
            "s",
            struct_of(column(4, "list", {"type": "list", "element-id": 5, "element": "int"})),
        ),
    )
    mapping = [
        {"field-id": 1, "names": ["id"]},
        {"field-id": 2, "names": ["moment"]},
        {
            "field-id": 3,
            "names": ["s"],
            "fields": [
                {
                    "field-id": 4,
                    "names": ["list"],
                    "fields": [{"field-id": 5, "names": ["element"]}],
                }
            ],
        },
    ]
    table = Table(
        tmp_path, [schema], properties={"schema.name-mapping.default": json.dumps(mapping)}
    )
    columns = {
        "id": pa.array([1, 2], pa.int32()),
        "moment": pa.array([1_000_001, None], pa.timestamp("us", "UTC")),
        "s": pa.array([{"list": [3, None]}, None], pa.struct([("list", pa.list_(pa.int32()))])),
    }
    table.commit(table.orc(pa.table(columns)))

    assert rows_of_table(table.write()) == {
        ((1, 1), (2, 1_000_001), (3, ((4, (3, None)),))): 1,
        ((1, 2), (2, None), (3, None)): 1,
    }


# Manifests


def test_deleted_entries_are_not_read_and_existing_ones_keep_their_number(tmp_path: Path) -> None:
    table = plain(tmp_path)
    table.commit(three(table))
    old = table.parquet({ID: [2, 9]}, status=0, sequence_number=1)
    gone = table.parquet({ID: [7]}, status=2, sequence_number=1)
    table.commit(keys(table, 2)).commit(old, gone)

    assert ids(table) == [1, 3, 9]


def test_files_of_version_1_are_older_than_every_delete(tmp_path: Path) -> None:
    table = plain(tmp_path, version=1)
    table.commit(three(table))
    table.version = 2
    table.commit(keys(table, 2))

    assert ids(table) == [1, 3]


def test_a_data_file_that_is_there_twice_has_no_defined_rows(tmp_path: Path) -> None:
    table = plain(tmp_path)
    entry = three(table)
    table.commit(entry).commit(entry)

    with pytest.raises(NotReadable, match="twice"):
        rows_of_table(table.write())


# Deletes by position


def test_positions_delete_rows_of_the_file_that_they_name_in_their_commit_and_before_it(
    tmp_path: Path,
) -> None:
    table = plain(tmp_path)
    first = three(table)
    second = table.parquet({ID: [11, 12, 13]})
    later = table.parquet({ID: [21, 22, 23]})
    table.commit(first)
    table.commit(
        second, table.positions([(first.path, 0), (second.path, 2), (later.path, 1)])
    ).commit(later)

    assert ids(table) == [11, 12, 2, 21, 22, 23, 3]


def test_positions_delete_only_in_their_own_partition_and_the_file_that_they_refer_to(
    tmp_path: Path,
) -> None:
    table = plain(tmp_path, specs=BY_NAME)
    here = three(table, partition={"name": "a"})
    elsewhere = table.parquet({ID: [11, 12]}, partition={"name": "b"})
    table.commit(here, elsewhere)
    deletes = [(here.path, 0), (elsewhere.path, 0)]
    table.commit(table.positions(deletes, partition={"name": "b"}))
    table.commit(
        table.positions(
            [(here.path, 1)], partition={"name": "a"}, referenced_data_file=elsewhere.path
        )
    )

    assert ids(table) == [1, 12, 2, 3]


def test_a_vector_replaces_the_position_deletes_of_its_data_file_alone(tmp_path: Path) -> None:
    table = plain(tmp_path)
    with_vector = three(table)
    without = table.parquet({ID: [11, 12]})
    table.commit(with_vector, without)
    table.commit(table.positions([(with_vector.path, 0), (without.path, 0)]))
    table.version = 3
    table.commit(table.vector(with_vector.path, [1]))

    assert ids(table) == [1, 12, 3]


def test_a_vector_older_than_its_data_file_or_of_another_partition_does_not_apply(
    tmp_path: Path,
) -> None:
    table = plain(tmp_path, version=3, specs=BY_NAME)
    late = three(table, partition={"name": "a"})
    stray = table.parquet({ID: [11, 12]}, partition={"name": "a"})
    table.commit(table.vector(late.path, [0], partition={"name": "a"}))
    table.commit(late, stray, table.vector(stray.path, [0], partition={"name": "b"}))

    assert ids(table) == [1, 11, 12, 2, 3]


def test_a_vector_reaches_beyond_32_bits_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    table = plain(tmp_path, version=3)
    data = three(table)
    vector = table.vector(data.path, [0, 2, 2**40])
    table.commit(data, vector)
    assert ids(table) == [2]

    content = bytearray(Path(vector.path).read_bytes())
    content[-1] ^= 1
    Path(vector.path).write_bytes(content)
    with pytest.raises(NotReadable, match="no vector"):
        rows_of_table(table.write())


# Deletes by key


def test_keys_delete_rows_of_older_commits_alone(tmp_path: Path) -> None:
    table = plain(tmp_path)
    table.commit(three(table))
    table.commit(keys(table, 2, 12), table.parquet({ID: [2]}))
    table.commit(table.parquet({ID: [12]}))

    assert ids(table) == [1, 12, 2, 3]


def test_keys_delete_in_their_own_partition_and_without_partitions_everywhere(
    tmp_path: Path,
) -> None:
    specs = {**BY_NAME, 1: (), 2: BY_NAME[0]}
    table = plain(tmp_path, specs=specs)
    table.commit(
        table.parquet({ID: [1, 2, 3]}, partition={"name": "a"}),
        table.parquet({ID: [1, 2, 3]}, partition={"name": "b"}),
    )
    table.commit(keys(table, 1, partition={"name": "a"}))
    table.commit(keys(table, 2, partition={"name": "b"}), spec=2)
    table.commit(keys(table, 3), spec=1)

    assert ids(table) == [1, 2, 2]


def test_a_null_key_deletes_rows_without_a_value_and_all_columns_must_be_equal(
    tmp_path: Path,
) -> None:
    table = plain(tmp_path)
    table.commit(three(table))
    table.commit(
        table.parquet({ID: [3, 1], NAME: [None, "b"]}, content=2, equality_ids=(1, 2)),
        table.parquet({NAME: ["a"], ID: [2]}, content=2, equality_ids=(2,)),
    )

    assert ids(table) == [2]


def nested(folder: Path, *schemas: dict[str, Any]) -> Table:
    """A table with a struct (3) of k (4) and x (5): k is 1, 2 and null, and a row has no struct."""
    inner = pa.struct([with_id("k", pa.int32(), 4), with_id("x", pa.string(), 5)])
    rows = [{"k": 1, "x": "a"}, {"k": 2, "x": "b"}, {"k": None, "x": "c"}, None]
    table = Table(folder, list(schemas))
    return table.commit(table.parquet({ID: [1, 2, 3, 4], with_id("s", inner, 3): rows}))


def nested_keys(table: Table, *numbers: int | None) -> Entry:
    inner = pa.struct([with_id("k", pa.int32(), 4)])
    rows = [{"k": number} for number in numbers]
    return table.parquet({with_id("s", inner, 3): rows}, content=2, equality_ids=(4,))


WITH_STRUCT = struct_of(
    column(1, "id", "long"),
    column(3, "s", struct_of(column(4, "k", "int"), column(5, "x", "string"))),
)


def test_a_key_in_a_struct_deletes_and_a_missing_struct_has_a_null_key(tmp_path: Path) -> None:
    table = nested(tmp_path, WITH_STRUCT)
    table.commit(nested_keys(table, 2, None))

    assert ids(table) == [1]


def test_a_key_in_a_struct_that_was_renamed_and_promoted_deletes(tmp_path: Path) -> None:
    renamed = struct_of(
        column(1, "id", "long"), column(3, "new", struct_of(column(4, "key", "long")))
    )
    table = nested(tmp_path, WITH_STRUCT, renamed)
    table.commit(nested_keys(table, 2))

    assert ids(table) == [1, 3, 4]


@pytest.mark.parametrize(
    "other_column",
    [
        pytest.param(column(3, "s", struct_of(column(5, "x", "string"))), id="the field"),
        pytest.param(column(2, "name", "string"), id="the struct"),
    ],
)
def test_a_key_that_was_dropped_still_deletes(tmp_path: Path, other_column: dict[str, Any]) -> None:
    table = nested(tmp_path, WITH_STRUCT, struct_of(column(1, "id", "long"), other_column))
    table.commit(nested_keys(table, 2))

    assert ids(table) == [1, 3, 4]


def test_a_key_that_came_later_is_its_default_in_older_rows(tmp_path: Path) -> None:
    late = column(3, "late", "int", initial_default=5)
    table = Table(tmp_path, [PLAIN, struct_of(column(1, "id", "long"), late)], version=3)
    late_field = with_id("late", pa.int32(), 3)
    table.commit(three(table)).commit(table.parquet({ID: [4, 5], late_field: [5, None]}))
    table.commit(table.parquet({late_field: [5]}, content=2, equality_ids=(3,)))

    assert ids(table) == [5]


# Row ids


def test_rows_inherit_their_ids_and_numbers_or_keep_those_in_the_file(tmp_path: Path) -> None:
    table = plain(tmp_path, version=3)
    stored = {
        with_id("_row_id", pa.int64(), ROW_ID): [77, None],
        with_id("_last_updated_sequence_number", pa.int64(), LAST_UPDATED): [1, None],
    }
    table.commit(
        three(table, first_row_id=300, sequence_number=1, status=0),
        table.parquet({ID: [4]}),
        table.parquet({ID: [5, 6], **stored}),
        first_row_id=100,
    )
    table.commit(table.parquet({ID: [7]}), first_row_id=None)

    lineage = rows_with_lineage(table.write())

    assert {dict(row)[1]: of_row for row, of_row in lineage} == {
        1: (300, 1),
        2: (301, 1),
        3: (302, 1),
        4: (100, 1),
        5: (77, 1),
        6: (102, 1),
        7: (None, None),
    }


def test_the_reader_shares_no_code_with_what_it_judges() -> None:
    modules = (Path(__file__).parent / "reader").glob("*.py")
    imports = re.findall(
        r"^\s*(?:from|import) (\w+)", "\n".join(path.read_text() for path in modules), re.MULTILINE
    )

    assert {"fastavro", "pyarrow", "pyroaring"} <= {*imports}
    assert {"icekit", "pyiceberg", "pyspark", "tests"}.isdisjoint(imports)
