"""Partitions are filtered, sorted and bounded."""

from __future__ import annotations

import pytest

from icekit.errors import ParameterError
from icekit.facts.model import Kind
from icekit.facts.rollup import ORDERS, partition_figures, select
from tests.factories import FIRST_DAY, KIB, MIB, file_group, partition, table_facts

FEW_LARGE = file_group(*[400 * MIB] * 2, of=partition(FIRST_DAY))
MANY_SMALL = file_group(*[64 * KIB] * 9, of=partition(FIRST_DAY + 1))
MIDDLE = file_group(*[8 * MIB] * 3, of=partition(FIRST_DAY + 2))
DELETES = file_group(KIB, kind=Kind.POSITION_DELETES, of=partition(FIRST_DAY + 2), records_per_file=77)
FIGURES = partition_figures(table_facts(groups=(FEW_LARGE, MANY_SMALL, MIDDLE, DELETES)))


def test_data_and_deletes_of_a_partition_are_counted_apart() -> None:
    third = FIGURES[2]

    assert (third.path, third.data_file_count, third.size_in_bytes) == ("event_day=2026-01-03", 3, 24 * MIB)
    assert (third.delete_file_count, third.delete_record_count) == (1, 77)
    assert third.mean_bytes == 8 * MIB


def test_a_partition_with_deletes_alone_has_no_mean_and_sorts_last_by_it() -> None:
    figures = partition_figures(table_facts(groups=(MIDDLE, file_group(KIB, kind=Kind.EQUALITY_DELETES, of=partition(FIRST_DAY + 9)))))

    found = select(figures, by="smallest mean file size")

    assert [p.mean_bytes for p in found.rows] == [8 * MIB, None]


@pytest.mark.parametrize(
    ("by", "days"),
    [
        ("most data files", [2, 3, 1]),
        ("most bytes", [1, 3, 2]),
        ("smallest mean file size", [2, 3, 1]),
        ("most delete records", [3, 1, 2]),
    ],
)
def test_each_order_puts_what_is_worst_first(by: str, days: list[int]) -> None:
    assert [p.path for p in select(FIGURES, by=by).rows] == [f"event_day=2026-01-0{day}" for day in days]
    assert by in ORDERS


def test_every_word_must_be_in_the_path_in_any_case() -> None:
    assert [p.path for p in select(FIGURES, "EVENT -02").rows] == ["event_day=2026-01-02"]
    nothing = select(FIGURES, "event nowhere")
    assert (nothing.rows, nothing.matched, nothing.total) == ((), 0, 3)


def test_what_comes_out_is_bounded_and_says_how_many_there_were() -> None:
    found = select(FIGURES, "event", limit=1)

    assert (len(found.rows), found.matched, found.total) == (1, 3, 3)


def test_an_unknown_order_is_refused_with_the_nearest() -> None:
    with pytest.raises(ParameterError, match="did you mean most bytes"):
        select(FIGURES, by="most byte")
