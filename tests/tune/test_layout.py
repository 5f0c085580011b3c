"""The simplest layout of which filters read clearly less is advised; each is written to a clone and
planned by Iceberg.
"""

from dataclasses import replace
from typing import Any

import pytest

from icekit.api import Lake
from icekit.errors import ParameterError
from icekit.facts.definition import Column, PartitionSpec
from icekit.facts.model import TableFacts
from icekit.sandbox.stale import stale_clones
from icekit.tune.answer import Confidence, Measurements
from icekit.tune.ddl import SORT, ZORDER, Field, RowOrder, fields_of
from icekit.tune.filters import All, Filter, Leaf
from icekit.tune.layout import (
    _MEASURES,
    FILES,
    NOW,
    ORDER,
    READ,
    ROWS,
    SIZE,
    SPEC,
    chosen,
    queries_until_paid,
    saves_by_bloom,
)
from icekit.tune.layouts import Layout, coarser_spec, finer_field, layouts
from icekit.tune.queries import Sample
from tests.factories import TARGET, file_group, partition, table_facts

COLUMNS = (
    Column(1, "id", "long", False, 0, "truncate(16)"),
    Column(2, "ts", "timestamp", False, 1, "truncate(16)"),
    Column(3, "kind", "string", False, 2, "truncate(16)"),
)
FACTS = table_facts(columns=COLUMNS)
DAY = 86_400_000_000


def of(column: str, op: str = "=") -> Filter:
    return Filter(Leaf(column, op, (1,)))


def drawn(**columns: list[Any]) -> Sample:
    return columns


def unpartitioned(files: int) -> TableFacts:
    return replace(
        table_facts(columns=COLUMNS, specs=(PartitionSpec(0, ()),)),
        groups=(file_group(*[TARGET] * files, of=partition(spec_id=0)),),
    )


def measured(**shares: float) -> Measurements:
    figures = Measurements(_MEASURES)
    for name, share in shares.items():
        figures.add(name, {READ: share, FILES: 100, SIZE: 1000})
    return figures


def test_sort_orders_of_one_and_two_columns_come_before_a_z_order() -> None:
    filters = [
        Filter(All((Leaf("kind", "=", ("a",)), Leaf("id", "=", (1,)))), 2.0),
        of("kind"),
    ]

    orders = [
        layout.order
        for layout in layouts(FACTS, filters, drawn(kind=["a"], id=[1]))
        if layout.spec == fields_of(FACTS.default_spec)
    ]

    assert orders[:4] == [
        RowOrder(SORT, ("kind",)),
        RowOrder(SORT, ("kind", "id")),
        RowOrder(SORT, ("id", "kind")),
        RowOrder(ZORDER, ("kind", "id")),
    ]


def test_partitions_far_below_the_target_get_a_coarser_time() -> None:
    small = replace(
        FACTS, groups=tuple(file_group(TARGET // 100, of=partition(day)) for day in range(50))
    )

    assert coarser_spec(small, (Field("ts", "day"),)) == (Field("ts", "year"),)
    assert coarser_spec(small, (Field("ts", "day"), Field("kind", "identity")))[0] == Field(  # type: ignore[index]
        "ts", "year"
    )
    assert coarser_spec(small, (Field("kind", "identity"),)) == ()
    assert coarser_spec(FACTS, (Field("ts", "day"),)) is None


@pytest.mark.parametrize(
    ("column", "values", "field"),
    [
        ("ts", [n * DAY for n in range(12)], Field("ts", "day")),
        ("ts", [n * 20 * DAY for n in range(30)], Field("ts", "month")),
        ("kind", ["a", "b", "c"], Field("kind", "identity")),
        ("id", list(range(5_000)), Field("id", "bucket[16]")),
    ],
)
def test_a_finer_field_leaves_two_files_of_the_target_in_each_partition(
    column: str, values: list[Any], field: Field
) -> None:
    assert finer_field(unpartitioned(50), column, [of(column)], drawn(**{column: values})) == field
    assert finer_field(unpartitioned(3), column, [of(column)], drawn(**{column: values})) is None


def test_ranges_of_many_values_get_no_bucket() -> None:
    assert (
        finer_field(unpartitioned(50), "id", [of("id", "<")], drawn(id=list(range(5_000)))) is None
    )


def test_the_simplest_layout_that_reads_little_more_than_the_best_is_chosen() -> None:
    tried = {
        "one": Layout((), RowOrder(SORT, ("id",))),
        "two": Layout((), RowOrder(SORT, ("id", "kind"))),
    }

    assert chosen(measured(now=1.0, one=0.15, two=0.1), tried) == "one"
    assert chosen(measured(now=1.0, one=0.5, two=0.1), tried) == "two"
    assert chosen(measured(now=1.0, one=0.9, two=0.85), tried) is None
    assert chosen(measured(now=0.005, one=0.001), tried) is None, "less than a file"
    assert chosen(Measurements(_MEASURES), tried) is None


def test_a_layout_that_makes_the_data_much_larger_is_not_advised() -> None:
    figures = measured(now=1.0, one=0.1)
    figures.rounds["one"][SIZE] = [1500.0]

    assert chosen(figures, {"one": Layout((), RowOrder(SORT, ("id",)))}) is None


def test_a_coarser_spec_is_advised_for_fewer_files_if_filters_read_no_more() -> None:
    tried = {"coarser": Layout((), is_coarser=True)}
    figures = measured(now=0.3, coarser=0.31)
    figures.rounds["coarser"][FILES] = [10]

    assert chosen(figures, tried) == "coarser"
    figures.rounds["coarser"][READ] = [0.6]
    assert chosen(figures, tried) is None


def test_queries_pay_a_rewrite_back_with_the_bytes_that_they_no_longer_read() -> None:
    assert queries_until_paid(measured(now=1.0, one=0.5), "one") == 4
    assert queries_until_paid(measured(now=0.5, one=0.5), "one") is None


def test_a_bloom_filter_has_to_save_more_rows_than_it_costs_bytes() -> None:
    figures = measured(now=1.0, bloom=1.0)
    figures.add("now", {ROWS: 1000})
    figures.add("bloom", {ROWS: 100})

    assert saves_by_bloom(figures, "bloom")
    figures.rounds["bloom"][SIZE] = [1800.0]
    assert not saves_by_bloom(figures, "bloom")


@pytest.mark.spark
@pytest.mark.lab("unclustered")
def test_an_unsorted_table_is_sorted_by_what_its_queries_filter_by(lake: Lake) -> None:
    before = lake.tables.source(("lab", "unclustered")).metadata_location

    answer = lake.tune("layout", "lab.unclustered", progress=lambda _: None)
    late = lake.tune("layout", "lab.unclustered", reads_per_day=0.001, progress=lambda _: None)

    assert answer.advised == "sorted by tailnum"
    assert (answer.measured.value(NOW, READ) or 0) > 0.9
    assert (answer.measured.value("sorted by tailnum", READ) or 1) < 0.15
    assert "WRITE ORDERED BY `tailnum`" in answer.script.sql[0]
    assert not late.is_change
    assert late.verdict.startswith("No change")
    assert lake.tables.source(("lab", "unclustered")).metadata_location == before
    assert not stale_clones(lake)


@pytest.mark.spark
@pytest.mark.lab("delays")
def test_days_that_are_far_too_small_become_months(lake: Lake) -> None:
    answer = lake.tune(
        "layout", "lab.delays", filters=["carrier = 'UA' AND flight = 15"], progress=lambda _: None
    )

    assert [c.proposed for c in answer.changes if c.setting == SPEC] == ["month(time_hour)"]
    assert (
        "REPLACE PARTITION FIELD days(`time_hour`) WITH months(`time_hour`)" in answer.script.sql[0]
    )
    assert "WITH days(`time_hour`)" in " ".join(answer.script.undo)


@pytest.mark.spark
@pytest.mark.lab("healthy_unpartitioned", "empty")
def test_a_healthy_table_is_left_alone_and_an_empty_one_refused(lake: Lake) -> None:
    answer = lake.tune("layout", "lab.healthy_unpartitioned", progress=lambda _: None)

    assert not answer.is_change
    assert answer.confidence is Confidence.HIGH
    assert [c.setting for c in answer.changes] == [ORDER]
    unknown = lake.tune(
        "layout",
        "lab.healthy_unpartitioned",
        filters=["year(time_hour) = 2013"],
        progress=lambda _: None,
    )
    assert unknown.confidence is Confidence.NONE
    assert any("system.years(time_hour)" in note for note in unknown.notes)
    with pytest.raises(ParameterError, match="no data files"):
        lake.tune("layout", "lab.empty", progress=lambda _: None)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.lab("unclustered")
def test_a_table_larger_than_its_sample_is_tried_on_copies(lake: Lake) -> None:
    answer = lake.tune("layout", "lab.unclustered", sample_bytes="1 MB", progress=lambda _: None)

    assert answer.confidence is Confidence.MEDIUM
    assert (answer.measured.value("sorted by tailnum", READ) or 1) < (
        answer.measured.value(NOW, READ) or 0
    )
