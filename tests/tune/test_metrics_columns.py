"""Metrics follow from what filters use, and are advised where a trial shows fewer files or much
smaller manifests.
"""

from dataclasses import replace

import pytest

from icekit.api import Lake
from icekit.facts.definition import Column, SortField
from icekit.sandbox.stale import stale_clones
from icekit.tune.answer import Confidence, Measurements
from icekit.tune.filters import Filter, Leaf
from icekit.tune.metrics_columns import (
    _MEASURES,
    BOUNDS,
    BYTES_OF,
    DEFAULT,
    NOW,
    READ,
    USED,
    EntryBytes,
    chosen,
    needed_mode,
    needed_modes,
    proposals,
    rank,
    roles,
)
from tests.factories import table_facts

WIDE = (
    *(Column(n, f"c{n}", "double", False, n, "truncate(16)") for n in range(1, 81)),
    Column(90, "url", "string", False, 90, "truncate(16)"),
    Column(91, "late", "string", False, 91, "none"),
)
FACTS = table_facts(columns=WIDE)
LONG = [f"https://example.org/shop/items/{n:04}" for n in range(50)]


def of(column: str, op: str = "=") -> Filter:
    return Filter(Leaf(column, op, ("x",) if op == "=" else ()))


def entry(columns: int = 82) -> EntryBytes:
    return dict.fromkeys((c.field_id for c in WIDE[:columns]), 1.0)


def test_modes_are_ranked_by_what_they_keep() -> None:
    modes = ["none", "counts", "truncate(16)", "truncate(24)", "full"]

    assert sorted(modes, key=rank) == modes


def test_a_column_is_used_by_filters_order_partitions_and_delete_keys() -> None:
    facts = replace(FACTS, sort_order=(SortField("c1", "identity", "asc", "nulls-first"),))

    assert roles(facts, ["url", "c1"])["c1"] == ("filter", "sort order")
    assert roles(facts, ["url"])["url"] == ("filter",)


def test_bounds_are_as_long_as_it_takes_to_tell_values_apart() -> None:
    assert needed_mode(["a", "b"]) == "truncate(16)"
    assert needed_mode(LONG) == "truncate(48)"
    assert needed_mode(["x" * 200 + str(n) for n in range(9)]) == "full"


def test_a_filter_column_gets_the_length_of_its_values_and_one_asked_for_nulls_only_counts() -> (
    None
):
    modes = needed_modes(FACTS, [of("url"), of("late", "is null")], {"url": LONG})

    assert modes["url"] == "truncate(48)"
    assert modes["late"] == "counts"


def test_unused_statistics_go_where_they_are_many_and_used_ones_stay() -> None:
    found = proposals(FACTS, {"url": "truncate(48)"}, entry())

    assert found[BOUNDS] == {"write.metadata.metrics.column.url": "truncate(48)"}
    assert found[USED][DEFAULT] == "none"
    assert found[USED]["write.metadata.metrics.column.url"] == "truncate(48)"
    assert USED not in proposals(FACTS, {"url": "truncate(16)"}, entry(10)), "few columns"
    assert proposals(FACTS, {"url": "truncate(16)"}, {}) == {}


def figures(**read: tuple[float, float]) -> Measurements:
    made = Measurements(_MEASURES)
    for name, (files, size) in {
        NOW: (100, 1000),
        **{k.replace("_", " "): v for k, v in read.items()},
    }.items():
        made.add(name, {READ: files, BYTES_OF: size})
    return made


def test_a_variant_is_advised_if_no_filter_loses_and_files_or_bytes_are_saved() -> None:
    measured = figures(longer_bounds=(50, 1100), only_used_columns=(100, 300))
    reads = {NOW: [100, 100], BOUNDS: [50, 50], USED: [100, 100]}

    assert chosen(measured, reads, [BOUNDS, USED]) == USED
    assert chosen(measured, {**reads, USED: [100, 101]}, [BOUNDS, USED]) == BOUNDS
    assert chosen(measured, {**reads, USED: [100, 101], BOUNDS: [0, 120]}, [BOUNDS, USED]) is None
    assert chosen(figures(longer_bounds=(99.5, 1000)), {NOW: [100], BOUNDS: [99]}, [BOUNDS]) is None


@pytest.mark.spark
@pytest.mark.lab("urls")
def test_long_common_prefixes_get_longer_bounds_and_a_lookup_reads_one_file(lake: Lake) -> None:
    before = lake.tables.source(("lab", "urls")).metadata_location

    answer = lake.tune("metrics-columns", "lab.urls", progress=lambda _: None)

    assert answer.advised == BOUNDS
    assert (
        (answer.measured.value(NOW, READ) or 0)
        > 5
        > 2
        >= (answer.measured.value(BOUNDS, READ) or 9)
    )
    assert "'write.metadata.metrics.column.url' = 'truncate(" in answer.script.sql[0]
    assert lake.tables.source(("lab", "urls")).metadata_location == before
    assert not stale_clones(lake)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.lab("wide_table")
def test_statistics_that_nothing_uses_are_left_out_of_a_wide_table(lake: Lake) -> None:
    answer = lake.tune("metrics-columns", "lab.wide_table", progress=lambda _: None)

    assert answer.advised == USED
    assert (answer.measured.value(USED, BYTES_OF) or 1) < 0.5 * (
        answer.measured.value(NOW, BYTES_OF) or 0
    )
    assert answer.tables["columns"].rows


@pytest.mark.spark
@pytest.mark.lab("healthy_partitioned", "empty")
def test_a_healthy_table_stays_and_one_without_data_or_filters_is_not_judged(lake: Lake) -> None:
    healthy = lake.tune("metrics-columns", "lab.healthy_partitioned", progress=lambda _: None)
    empty = lake.tune("metrics-columns", "lab.empty", progress=lambda _: None)

    assert not healthy.is_change
    assert healthy.confidence == Confidence.HIGH
    assert not empty.is_change
    assert empty.confidence == Confidence.NONE
