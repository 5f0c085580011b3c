"""The simplest layout of which filters read clearly less is advised; each is written to a clone and
planned by Iceberg.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from icekit.api import Lake
from icekit.health.facts.model import TableFacts
from icekit.iceberg.definition import Column, PartitionSpec
from icekit.sandbox.scratch import stale_clones
from icekit.tune.answer import Answer, Confidence, Measurements
from icekit.tune.ddl import SORT, ZORDER, RowOrder, SpecField, spec_fields_of
from icekit.tune.filters import ColumnCondition, ConditionGroup, Filter
from icekit.tune.layout import (
    _MEASURES,
    FILES,
    NOW,
    READ,
    ROWS,
    SIZE,
    SPEC,
    Layout,
    best_layout_name,
    coarser_spec,
    finer_field,
    is_bloom_worth_it,
    layouts_to_try,
    queries_until_paid,
)
from icekit.tune.queries import ValuesByColumn
from tests.factories import TARGET, file_group, partition, table_facts

COLUMNS = (
    Column(1, "id", "long", False, 0, "truncate(16)"),
    Column(2, "ts", "timestamp", False, 1, "truncate(16)"),
    Column(3, "kind", "string", False, 2, "truncate(16)"),
)
FACTS = table_facts(columns=COLUMNS)
DAY = 86_400_000_000


def of(column: str, op: str = "=") -> Filter:
    return Filter(ColumnCondition(column, op, (1,)))


def drawn(**columns: list[Any]) -> ValuesByColumn:
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
    both = ConditionGroup(
        "AND", (ColumnCondition("kind", "=", ("a",)), ColumnCondition("id", "=", (1,)))
    )

    tried = layouts_to_try(FACTS, [Filter(both, 2.0), of("kind")], drawn(kind=["a"], id=[1]))

    current = spec_fields_of(FACTS.default_spec)
    assert [layout.order for layout in tried if layout.spec == current][:4] == [
        RowOrder(SORT, ("kind",)),
        RowOrder(SORT, ("kind", "id")),
        RowOrder(SORT, ("id", "kind")),
        RowOrder(ZORDER, ("kind", "id")),
    ]


@pytest.mark.parametrize(
    ("column", "sorts", "curves"),
    [
        (Column(3, "kind", "decimal(9, 2)", False, 2, "full"), 3, 0),
        (Column(3, "kind", "int", False, 2, "full", path=("s", "kind")), 3, 0),
        (Column(3, "kind", "int", False, 2, "full", is_in_structs=False), 1, 0),
        (Column(3, "kind", "geometry", False, 2, "full"), 1, 0),
        (Column(3, "kind", "int", False, 2, "full"), 3, 1),
    ],
)
def test_no_order_is_tried_that_iceberg_refuses(column: Column, sorts: int, curves: int) -> None:
    facts = replace(FACTS, columns=(*COLUMNS[:2], column))
    both = ConditionGroup(
        "AND", (ColumnCondition("kind", "=", (1,)), ColumnCondition("id", "=", (1,)))
    )

    tried = layouts_to_try(facts, [Filter(both, 2.0), of("kind")], drawn(kind=[1], id=[1]))

    current = spec_fields_of(facts.default_spec)
    orders = [each.order for each in tried if each.spec == current and each.order is not None]
    assert [sum(order.kind == kind for order in orders) for kind in (SORT, ZORDER)] == [
        sorts,
        curves,
    ]


@pytest.mark.parametrize(
    ("operators", "values", "bloom"),
    [("=", range(50), "kind"), ("<", range(50), ""), ("=", [1] * 50, "")],
    ids=["lookups", "ranges", "few values"],
)
def test_a_bloom_filter_is_tried_for_lookups_of_many_values(
    operators: str, values: Sequence[int], bloom: str
) -> None:
    tried = layouts_to_try(FACTS, [of("kind", operators)], drawn(kind=[*values]))

    assert "".join(layout.bloom_column for layout in tried) == bloom


def test_partitions_far_below_the_target_get_a_coarser_time() -> None:
    groups = (file_group(TARGET // 100, of=partition(day)) for day in range(50))
    small, day, kind = (
        replace(FACTS, groups=tuple(groups)),
        SpecField("ts", "day"),
        SpecField("kind", "identity"),
    )

    assert coarser_spec(small, (day,)) == (SpecField("ts", "year"),)
    assert coarser_spec(small, (day, kind)) == (SpecField("ts", "year"), kind)
    assert coarser_spec(small, (kind,)) == ()
    assert coarser_spec(FACTS, (day,)) is None


@pytest.mark.parametrize(
    ("column", "op", "values", "field"),
    [
        ("ts", "=", [n * DAY for n in range(12)], SpecField("ts", "day")),
        ("ts", "=", [n * 20 * DAY for n in range(30)], SpecField("ts", "month")),
        ("kind", "=", ["a", "b", "c"], SpecField("kind", "identity")),
        ("id", "=", list(range(5_000)), SpecField("id", "bucket[16]")),
        ("id", "<", list(range(5_000)), None),
    ],
)
def test_a_finer_field_leaves_two_files_of_the_target_in_each_partition(
    column: str, op: str, values: list[Any], field: SpecField | None
) -> None:
    filters, sample = [of(column, op)], drawn(**{column: values})

    assert finer_field(unpartitioned(50), column, filters, sample) == field
    assert finer_field(unpartitioned(3), column, filters, sample) is None


@pytest.mark.parametrize(
    ("now", "one", "two", "best"),
    [
        (1.0, 0.15, 0.1, "one"),
        (1.0, 0.5, 0.1, "two"),
        (1.0, 0.9, 0.85, None),
        (0.005, 0.001, 1, None),
    ],
    ids=["little more", "much less", "too little is saved", "less than a file is saved"],
)
def test_the_simplest_layout_that_reads_little_more_than_the_best_is_chosen(
    now: float, one: float, two: float, best: str | None
) -> None:
    tried = {
        "one": Layout((), RowOrder(SORT, ("id",))),
        "two": Layout((), RowOrder(SORT, ("id", "kind"))),
    }
    figures = measured(now=now, one=one, two=two)

    assert best_layout_name(figures, tried) == best
    for name in tried:
        figures.values_by_variant[name][SIZE] = [1500.0]
    assert best_layout_name(figures, tried) is None, "they make the data much larger"


def test_a_coarser_spec_is_advised_for_fewer_files_if_filters_read_no_more() -> None:
    tried = {"coarser": Layout((), is_coarser=True)}
    figures = measured(now=0.3, coarser=0.31)
    figures.values_by_variant["coarser"][FILES] = [10]

    assert best_layout_name(figures, tried) == "coarser"
    figures.values_by_variant["coarser"][READ] = [0.6]
    assert best_layout_name(figures, tried) is None


def test_queries_pay_a_rewrite_back_with_the_bytes_that_they_no_longer_read() -> None:
    assert queries_until_paid(measured(now=1.0, one=0.5), "one") == 4
    assert queries_until_paid(measured(now=0.5, one=0.5), "one") is None


def test_a_bloom_filter_has_to_save_more_rows_than_it_costs_bytes() -> None:
    figures = measured(now=1.0, bloom=1.0)
    figures.add("now", {ROWS: 1000})
    figures.add("bloom", {ROWS: 100})

    assert is_bloom_worth_it(figures, "bloom")
    figures.values_by_variant["bloom"][SIZE] = [1800.0]
    assert not is_bloom_worth_it(figures, "bloom")


def tune(lake: Lake, name: str, **options: Any) -> Answer:
    return lake.tune("layout", f"lab.{name}", progress=lambda _: None, **options)


@pytest.mark.spark
@pytest.mark.lab("unclustered")
def test_an_unsorted_table_is_sorted_by_what_its_queries_filter_by(lake: Lake) -> None:
    before = lake.tables.source(("lab", "unclustered")).metadata_location

    answer, late = tune(lake, "unclustered"), tune(lake, "unclustered", reads_per_day=0.001)

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
    answer = tune(lake, "delays", filters=["carrier = 'UA' AND flight = 15"])

    assert [c.proposed for c in answer.changes if c.setting == SPEC] == ["month(time_hour)"]
    assert (
        "REPLACE PARTITION FIELD days(`time_hour`) WITH months(`time_hour`)" in answer.script.sql[0]
    )
    assert "WITH days(`time_hour`)" in " ".join(answer.script.undo)


@pytest.mark.spark
@pytest.mark.lab("healthy_unpartitioned")
def test_without_a_filter_that_reaches_iceberg_nothing_is_advised(lake: Lake) -> None:
    answer = tune(lake, "healthy_unpartitioned", filters=["year(time_hour) = 2013"])

    assert answer.confidence is Confidence.NONE
    assert any("system.years(time_hour)" in note for note in answer.notes)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.lab("unclustered")
def test_a_table_larger_than_its_sample_is_tried_on_copies(lake: Lake) -> None:
    answer = tune(lake, "unclustered", sample_bytes="1 MB")

    assert answer.confidence is Confidence.MEDIUM
    assert (answer.measured.value("sorted by tailnum", READ) or 1) < (
        answer.measured.value(NOW, READ) or 0
    )
