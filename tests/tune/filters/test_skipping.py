"""Files are skipped by bounds as Iceberg skips them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from icekit.tune.filters import All, Anything, Either, Leaf, Node, bounds_of, may_match, truncated

NUMBERS: list[list[Any]] = [[1, 2, 3], [10, None], [None], []]


def matched(node: Node, groups: list[list[Any]]) -> list[bool]:
    return [bool(hit) for hit in may_match(node, {"c": bounds_of(groups)}, len(groups))]


def test_a_value_is_looked_for_between_the_bounds() -> None:
    assert matched(Leaf("c", "=", (2,)), NUMBERS) == [True, False, False, False]
    assert matched(Leaf("c", "in", (3, 10)), NUMBERS) == [True, True, False, False]
    assert matched(Leaf("c", "<", (1,)), NUMBERS) == [False, False, False, False]
    assert matched(Leaf("c", ">=", (3,)), NUMBERS) == [True, True, False, False]


def test_nulls_are_counted() -> None:
    assert matched(Leaf("c", "is null"), NUMBERS) == [False, True, True, False]
    assert matched(Leaf("c", "not null"), NUMBERS) == [True, True, False, False]


def test_conditions_combine() -> None:
    two, ten = Leaf("c", "=", (2,)), Leaf("c", "=", (10,))

    assert matched(All((two, ten)), NUMBERS) == [False, False, False, False]
    assert matched(Either((two, ten)), NUMBERS) == [True, True, False, False]
    assert matched(All((Anything(), two)), NUMBERS) == [True, False, False, False]
    assert matched(Leaf("other", "=", (5,)), NUMBERS) == [True] * 4
    assert matched(Leaf("c", "="), NUMBERS) == [True] * 4


def test_a_prefix_is_compared_as_far_as_it_goes() -> None:
    groups = [["apple", "axe"], ["b"], ["ap"]]

    assert matched(Leaf("c", "prefix", ("app",)), groups) == [True, False, False]


@pytest.mark.parametrize("op", ["=", "in", "<=", ">="])
def test_a_text_that_ends_in_nul_is_the_bound_that_it_equals(op: str) -> None:
    assert matched(Leaf("c", op, ("a\x00",)), [["a\x00"]]) == [True]
    # It is more than the text without, and less than the one with another.
    assert matched(Leaf("c", ">", ("a\x00",)), [["a"], ["a\x00"], ["a\x00\x00"]]) == [False, False, True]
    assert matched(Leaf("c", "<", ("a\x00",)), [["a"], ["a\x00"], ["a\x00\x00"]]) == [True, False, False]


def test_truncated_bounds_of_texts_with_one_long_prefix_skip_nothing() -> None:
    groups = [[f"https://example.org/{n:04}"] for n in range(5)]
    bounds = bounds_of(groups)

    asked = Leaf("c", "=", ("https://example.org/0003",))
    assert may_match(asked, {"c": bounds}, 5).sum() == 1
    assert may_match(asked, {"c": truncated(bounds, 16)}, 5).sum() == 5
    assert may_match(asked, {"c": truncated(bounds, 24)}, 5).sum() == 1


def test_a_decimal_is_compared_as_a_number() -> None:
    assert matched(Leaf("c", "=", ("10.5",)), [[9.0, 11.0], [100.0]]) == [True, False]


@example([["\x00"]], "\x00", 1)
@given(some.lists(some.lists(some.text(max_size=5), max_size=4), min_size=1, max_size=5), some.text(max_size=5), some.integers(1, 4))
def test_truncating_never_skips_a_file_that_has_the_value(groups: list[list[str]], value: str, length: int) -> None:
    bounds = truncated(bounds_of(groups), length)
    for node in (Leaf("c", "=", (value,)), Leaf("c", "prefix", (value,)), Leaf("c", "<=", (value,)), Leaf("c", ">=", (value,))):
        hit = may_match(node, {"c": bounds}, len(groups))
        for place, group in enumerate(groups):
            holds = {
                "=": value in group,
                "prefix": any(v.startswith(value) for v in group),
                "<=": any(v <= value for v in group),
                ">=": any(v >= value for v in group),
            }[node.op]
            assert hit[place] or not holds
