"""Which partitions a filter may match, held against pyiceberg's own projections."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pyiceberg.expressions import EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, StartsWith
from pyiceberg.expressions.visitors import expression_evaluator, inclusive_projection
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, LongType, NestedField, StringType, TimestampType

from icekit.tune.filters import All, Either, Leaf
from icekit.tune.layout.model import Field, FieldValues, function, partitions_that_may_match

TYPES: dict[str, Any] = {"long": LongType(), "string": StringType(), "timestamp": TimestampType(), "date": DateType()}
EXPRESSIONS: dict[str, Any] = {
    "=": EqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
    "prefix": StartsWith,
}


def matched(leaf: Leaf, transform: str, kind: str, partitions: list[Any]) -> list[bool]:
    return [
        bool(hit) for hit in partitions_that_may_match(leaf, [FieldValues.of(Field("c", transform), kind, partitions)], len(partitions))
    ]


def by_pyiceberg(leaf: Leaf, transform: str, kind: str, partitions: list[Any]) -> list[bool]:
    schema = Schema(NestedField(1, "c", TYPES[kind], required=False))
    spec = PartitionSpec(PartitionField(1, 1000, parse_transform(transform), "p"))
    expression = EXPRESSIONS[leaf.op]("c", leaf.values[0])
    projected = inclusive_projection(schema, spec)(expression)
    evaluate = expression_evaluator(Schema(*spec.partition_type(schema).fields), projected, case_sensitive=True)
    return [bool(evaluate(Record(p))) for p in partitions]


MICROS = some.integers(-(10**15), 4 * 10**15)
OPS = some.sampled_from(["=", "<", "<=", ">", ">="])


@given(OPS, MICROS, some.lists(MICROS, min_size=1, max_size=5), some.sampled_from(["hour", "day", "month", "year"]))
def test_times_are_projected_as_iceberg_does(op: str, value: int, rows: list[int], transform: str) -> None:
    of = function(transform, "timestamp")
    assert of is not None
    partitions = [of(v) for v in rows]

    assert matched(Leaf("c", op, (value,)), transform, "timestamp", partitions) == by_pyiceberg(
        Leaf("c", op, (value,)), transform, "timestamp", partitions
    )


@given(OPS, some.integers(-1000, 1000), some.lists(some.integers(-1000, 1000), min_size=1, max_size=5))
@pytest.mark.parametrize("transform", ["identity", "bucket[7]", "truncate[10]"])
def test_numbers_are_projected_as_iceberg_does(transform: str, op: str, value: int, rows: list[int]) -> None:
    of = function(transform, "long")
    assert of is not None
    partitions = [of(v) for v in rows]

    assert matched(Leaf("c", op, (value,)), transform, "long", partitions) == by_pyiceberg(
        Leaf("c", op, (value,)), transform, "long", partitions
    )


@given(some.sampled_from(["=", "prefix"]), some.text("abc", min_size=1, max_size=5), some.lists(some.text("abc", max_size=5), min_size=1))
@pytest.mark.parametrize("transform", ["identity", "bucket[7]", "truncate[2]"])
def test_texts_are_projected_as_iceberg_does(transform: str, op: str, value: str, rows: list[str]) -> None:
    of = function(transform, "string")
    assert of is not None
    partitions = [of(v) for v in rows]

    assert matched(Leaf("c", op, (value,)), transform, "string", partitions) == by_pyiceberg(
        Leaf("c", op, (value,)), transform, "string", partitions
    )


def test_nulls_have_a_partition_of_their_own() -> None:
    assert matched(Leaf("c", "is null"), "bucket[4]", "long", [None, 2]) == [True, False]
    assert matched(Leaf("c", "not null"), "bucket[4]", "long", [None, 2]) == [False, True]
    assert matched(Leaf("c", "=", (5,)), "identity", "long", [None, 5]) == [False, True]


def test_conditions_combine_and_other_columns_rule_nothing_out() -> None:
    fields = [FieldValues.of(Field("c", "identity"), "long", [1, 2, 3])]

    assert partitions_that_may_match(All((Leaf("c", "=", (1,)), Leaf("d", "=", (9,)))), fields, 3).tolist() == [True, False, False]
    assert partitions_that_may_match(Either((Leaf("c", "=", (1,)), Leaf("d", "=", (9,)))), fields, 3).tolist() == [True, True, True]


def test_a_transform_that_is_not_known_rules_nothing_out_but_nulls() -> None:
    assert matched(Leaf("c", "=", (1,)), "void", "long", [7, None]) == [True, False]
    assert function("bucket[4]", "decimal(9, 2)") is None
