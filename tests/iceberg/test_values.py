"""Single values are read and written as the Iceberg spec does."""

import uuid
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    UUIDType,
)

from icekit.iceberg.definition import PartitionField, PartitionSpec
from icekit.iceberg.partition import Scalar
from icekit.iceberg.values import (
    from_bytes,
    partition_path,
    partition_value_text,
    result_type,
    to_scalar,
)


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (IntegerType(), -5, -5),
        (LongType(), 2**40, 2**40),
        (FloatType(), 1.5, 1.5),
        (DoubleType(), -2.25, -2.25),
        (BooleanType(), True, True),
        (DateType(), 15706, 15706),
        (TimestampType(), -1, -1),
        (StringType(), "üñï", "üñï"),
        (BinaryType(), b"\x00\xff", "00ff"),
        (DecimalType(20, 3), Decimal("-12.345"), Decimal("-12.345")),
        # More digits than arithmetic keeps.
        (DecimalType(38, 3), Decimal(f"{9 * 10**34}.678"), Decimal(f"{9 * 10**34}.678")),
        (UUIDType(), uuid.UUID(int=7), uuid.UUID(int=7).hex),
    ],
)
def test_bounds_are_decoded_as_another_implementation_encodes_them(
    kind: PrimitiveType, value: Any, read: Scalar
) -> None:
    assert from_bytes(str(kind), to_bytes(kind, value)) == read


def test_a_bound_written_before_its_column_was_widened_is_read() -> None:
    assert from_bytes("double", to_bytes(FloatType(), 0.5)) == 0.5


def test_a_type_without_an_order_is_refused() -> None:
    with pytest.raises(ValueError, match="variant"):
        from_bytes("variant", b"")


@pytest.mark.parametrize(
    ("transform", "source", "value", "text"),
    [
        ("year", "date", 43, "2013"),
        ("month", "date", 516, "2013-01"),
        ("month", "date", -1, "1969-12"),
        ("day", "timestamp", 15706, "2013-01-01"),
        ("hour", "timestamp", -1, "1969-12-31-23"),
        ("identity", "timestamptz", 0, "1970-01-01T00:00:00+00:00"),
        ("identity", "boolean", True, "true"),
        ("bucket[16]", "string", 3, "3"),
        ("identity", "string", None, "null"),
    ],
)
def test_partition_values_read_as_iceberg_writes_them(
    transform: str, source: str, value: Scalar, text: str
) -> None:
    assert partition_value_text(transform, result_type(transform, source), value) == text


def test_a_partition_path_keeps_values_with_slashes_apart() -> None:
    spec = PartitionSpec(
        0,
        (
            PartitionField(1000, "s", "identity", 1, "s", "string"),
            PartitionField(1001, "n", "identity", 2, "n", "int"),
        ),
    )

    assert partition_path(spec, ("a/b=c", 1)) == "s=a%2Fb%3Dc/n=1"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (Decimal("1.50"), "1.50"),
        (b"\xff", "ff"),
        (True, True),
        (None, None),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
    ],
)
def test_decoded_values_are_brought_to_one_form(value: object, kept: Scalar) -> None:
    assert to_scalar(value) == kept
