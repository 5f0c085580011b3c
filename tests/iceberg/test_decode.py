"""Decoding some fields of a record gives what a full Avro library gives."""

import io
import random
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from icekit.iceberg.decode import record_reader
from tests.avro import array_type, optional, record_type

TYPES: dict[str, tuple[Any, list[Any]]] = {
    "int": ("int", [0, -1, 63, 64, -65, 2**31 - 1, -(2**31)]),
    "long": ("long", [0, 2**63 - 1, -(2**63)]),
    "boolean": ("boolean", [True, False]),
    "float": ("float", [1.5, float("inf")]),
    "double": ("double", [-2.25]),
    "string": ("string", ["", "a", "ä" * 40, "x" * 10_000]),
    "bytes": ("bytes", [b"", b"\x00" * 63, b"\xff" * 64]),
    "fixed": ({"type": "fixed", "name": "five", "size": 5}, [b"12345"]),
    "optional": (optional("long"), [None, 7]),
    "record": (
        record_type("inner", a=optional("string")),
        [{"a": None}, {"a": "b"}],
    ),
    "numbers": (array_type("long"), [[], [5], list(range(-3000, 3000))]),
    "lists": (
        array_type(array_type("string")),
        [[["a"], [], ["b", "c"]]],
    ),
}


def encoded(kind: Any, values: list[Any]) -> tuple[Any, bytes]:
    """A record schema and its bytes, the values with a number before and after each of them."""
    schema = record_type("outer", before="int", it=kind, after="int")
    out = io.BytesIO()
    for place, value in enumerate(values):
        fastavro.schemaless_writer(out, schema, {"before": place, "it": value, "after": -place})
    return schema, out.getvalue()


def decoded(
    schema: Any, data: bytes, count: int, names: set[str] | None = None
) -> list[dict[str, Any]]:
    read = record_reader(schema, None if names is None else dict.fromkeys(names))
    found, at = [], 0
    for _ in range(count):
        record, at = read(data, at)
        found.append(record)
    assert at == len(data)
    return found


@pytest.mark.parametrize("name", TYPES)
def test_every_type_is_read_and_skipped(name: str) -> None:
    kind, values = TYPES[name]
    schema, data = encoded(kind, values)

    assert [r["it"] for r in decoded(schema, data, len(values))] == values
    skipped = decoded(schema, data, len(values), {"before", "after"})
    assert skipped == [{"before": i, "after": -i} for i in range(len(values))]


@pytest.mark.parametrize("item", ["bytes", "long"])
@pytest.mark.parametrize("wanted", [None, (1, 130, 0, -2)])
def test_maps_and_some_of_their_keys_are_read(item: str, wanted: tuple[int, ...] | None) -> None:
    """Also where maps have the keys in another order, none of them, many, or long values."""
    chance = random.Random(1)
    maps: list[Any] = [None, []]
    for size in (1, 2, 3, 70, 2500) * 30:
        keys = chance.sample(range(-3, 3000), size) if chance.random() < 0.5 else range(size)
        longest = chance.choice((0, 5, 63, 64))
        values = {
            key: b"v" * longest if item == "bytes" else chance.randrange(-(2**40), 2**40)
            for key in keys
        }
        maps.append([{"key": key, "value": value} for key, value in values.items()])
    kind = optional(array_type(record_type("pair", key="int", value=item)))
    schema, data = encoded(kind, maps)
    read, at = record_reader(schema, {"before": None, "it": wanted, "after": None}), 0
    for place, pairs in enumerate(maps):
        record, at = read(data, at)
        held = {
            each["key"]: each["value"]
            for each in pairs or ()
            if wanted is None or each["key"] in wanted
        }
        expected = None if pairs is None else held
        assert record == {"before": place, "it": expected, "after": -place}
    assert at == len(data)
    assert decoded(schema, data, len(maps), {"after"})[-1] == {"after": 1 - len(maps)}


def test_decimals_and_uuids_come_as_text_and_other_logical_types_as_stored() -> None:
    number = {
        "type": "fixed",
        "name": "n",
        "size": 16,
        "logicalType": "decimal",
        "precision": 38,
        "scale": 10,
    }
    identity = {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}
    day = {"type": "int", "logicalType": "date"}
    one = uuid.UUID(int=7)
    for kind, value, raw in (
        (
            number,
            Decimal("-1234567890123456789012345678.0000000001"),
            "-1234567890123456789012345678.0000000001",
        ),
        (number, Decimal("0.0000000001"), "0.0000000001"),
        ({**number, "type": "bytes"}, Decimal("2.5"), "2.5000000000"),
        (identity, one.bytes, str(one)),
        (day, -1, -1),
    ):
        schema, data = encoded(kind, [value])
        assert decoded(schema, data, 1)[0]["it"] == raw


def test_arrays_in_several_blocks_are_read_and_skipped() -> None:
    schema, _ = encoded(array_type("int"), [])
    # Two blocks: of two items, then of three whose size in bytes is told (a negative count).
    data = bytes([2, 4, 10, 12, 5, 6, 14, 16, 18, 0, 8])

    assert decoded(schema, data, 1) == [{"before": 1, "it": [5, 6, 7, 8, 9], "after": 4}]
    assert decoded(schema, data, 1, {"after"}) == [{"after": 4}]
