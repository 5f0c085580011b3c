"""Curves order rows as Iceberg's rewrite does."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from icekit.tune.layout.rows import hilbert, ordered_bits, takes, z_order


def placed(keys: list[Any]) -> list[int]:
    return [int(i) for i in np.lexsort(tuple(reversed(keys)))]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int", [-5, -1, 0, 7, 2**31 - 1]),
        ("double", [-1e9, -2.5, -0.5, 0.0, 1e-3, 4.0]),
        ("string", ["", "a", "ab", "b", "é"]),
        ("boolean", [False, True]),
        ("binary", ["00", "0a", "ff"]),
        ("timestamptz", [-2_000_000, 0, 1_000_000]),
    ],
)
def test_bits_compare_as_values_do(kind: str, values: list[Any]) -> None:
    bits = ordered_bits(values, kind).tolist()

    assert bits == sorted(bits)
    assert len(set(bits)) == len(values)


def test_a_text_counts_by_its_first_eight_bytes_and_a_time_by_its_second() -> None:
    assert len(set(ordered_bits(["https://a", "https://b"], "string").tolist())) == 1
    assert len(set(ordered_bits([1, 999_999], "timestamptz").tolist())) == 1


def test_a_z_order_takes_a_bit_from_each_column_in_turn() -> None:
    square = list(itertools.product(range(4), range(4)))
    bits = [ordered_bits([p[axis] for p in square], "long") for axis in (0, 1)]

    order = [square[i] for i in placed(z_order(bits))]

    assert order[:8] == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]


@pytest.mark.parametrize("axes", [2, 3])
def test_a_hilbert_curve_moves_one_step_at_a_time(axes: int) -> None:
    cube = list(itertools.product(range(4), repeat=axes))
    bits = [ordered_bits([p[axis] for p in cube], "long") for axis in range(axes)]

    order = [cube[i] for i in placed(hilbert(bits))]

    assert sorted(order) == cube
    assert all(sum(abs(a - b) for a, b in zip(p, q, strict=True)) == 1 for p, q in itertools.pairwise(order))


def test_a_decimal_has_no_place_on_a_curve() -> None:
    assert takes("timestamptz")
    assert not takes("decimal(9, 2)")
