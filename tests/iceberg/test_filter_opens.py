"""How many files a filter opens follows from the ranges of files: one if none overlap, all if all
do.
"""

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from icekit.iceberg.filter_opens import (
    FileRange,
    FilterOpens,
    file_opens_from_share,
    mean_file_opens,
    mean_overlap,
)


def ranges(*pairs: tuple[Any, Any]) -> list[FileRange]:
    return [FileRange(low, high) for low, high in pairs]


DISJOINT = {
    "numbers": [(i * 10, i * 10 + 9) for i in range(60)],
    "large numbers next to each other": [(2**62 + i, 2**62 + i) for i in range(60)],
    "fractions": [(i / 3, i / 3 + 0.2) for i in range(60)],
    "decimals": [(Decimal(i), Decimal(i) + Decimal("0.9")) for i in range(60)],
    "texts": [(f"a long shared start {i:04d}", f"a long shared start {i:04d}~") for i in range(60)],
    "texts of one value": [(f"{i:060d}", f"{i:060d}") for i in range(60)],
    "of very different width": [(3**i, 3 ** (i + 1) - 1) for i in range(60)],
}
WHOLE = {
    "numbers": [(i, 90_000 + i) for i in range(12)],
    "fractions": [(i / 100, 90_000 - i / 100) for i in range(12)],
    "texts": [(f"0{i:x}f3", f"f{i:x}a1") for i in range(12)],
    "one value": [(7, 7)] * 12,
    "one text": [("UA", "UA")] * 12,
    "one fraction": [(0.5, 0.5)] * 12,
    "truth": [(False, True)] * 12,
    "infinite": [(-math.inf, math.inf)] * 12,
}


@pytest.mark.parametrize("pairs", DISJOINT.values(), ids=DISJOINT)
def test_a_filter_opens_one_file_if_no_ranges_overlap(pairs: Sequence[tuple[Any, Any]]) -> None:
    assert mean_file_opens(ranges(*pairs)) == pytest.approx(1)


@pytest.mark.parametrize("pairs", WHOLE.values(), ids=WHOLE)
def test_a_filter_opens_all_files_if_all_ranges_overlap(pairs: Sequence[tuple[Any, Any]]) -> None:
    assert mean_file_opens(ranges(*pairs)) == pytest.approx(12, rel=0.02)


def test_a_filter_opens_what_looking_up_each_value_says() -> None:
    chance = random.Random(1)
    pairs = [(low := chance.randrange(200), low + chance.randrange(40)) for _ in range(30)]
    opened = [
        sum(low <= value <= high for low, high in pairs) / (last - first + 1)
        for first, last in pairs
        for value in range(first, last + 1)
    ]
    assert mean_file_opens(ranges(*pairs)) == pytest.approx(sum(opened) / len(pairs))


def test_a_file_counts_by_its_rows() -> None:
    files = [FileRange(0, 99, 900), FileRange(0, 99, 50), FileRange(100, 199, 50)]
    assert mean_file_opens(files) == pytest.approx(0.95 * 2 + 0.05)


def test_a_sample_stands_for_all_files() -> None:
    assert file_opens_from_share(1 / 300, 300, 10_000) == pytest.approx(1)
    assert file_opens_from_share(1.0, 300, 10_000) == pytest.approx(10_000)
    assert file_opens_from_share(0.5, 12, 12) == 6


def test_overlap_is_of_files_in_one_partition() -> None:
    a_day = ranges((0, 9), (0, 9), (0, 9))
    assert mean_overlap([a_day, ranges((10, 19))]) == pytest.approx(1)
    assert mean_overlap([ranges((0, 9), (10, 19))]) == 0
    assert mean_overlap([ranges((0, 9)), ranges((0, 9))]) is None, "each in a partition of its own"


@pytest.mark.parametrize(
    ("before", "after", "is_worse"),
    [
        ((60, 1), (12, 1), False),
        ((60, 1), (12, 12), True),
        ((60, 12), (12, 12), False),
        ((60, 6), (12, 6.4), False),
        ((60, 6), (12, 6.8), True),
        ((60, 1), (12, 1.3), False),
        ((1, 1), (8, 8), False),
    ],
    ids=[
        "as before",
        "all of them",
        "all of them, before too",
        "less than a tenth more",
        "more than a tenth more",
        "less than half a file more",
        "parts of one file",
    ],
)
def test_a_filter_gets_slower_if_it_opens_over_a_tenth_more(
    before: tuple[int, float], after: tuple[int, float], is_worse: bool
) -> None:
    assert FilterOpens("id", *before, *after).is_worse is is_worse
