"""Metrics follow from what filters use, and are advised where a trial shows fewer files or much
smaller manifests.
"""

import pytest

from icekit.api import Lake
from icekit.iceberg.definition import Column, SortField
from icekit.sandbox.scratch import stale_clones
from icekit.tune.answer import Measurements
from icekit.tune.filters import ColumnCondition, Filter
from icekit.tune.metrics_columns import (
    _MEASURES,
    BOUNDS,
    BYTES_OF,
    DEFAULT,
    NOW,
    READ,
    SHORT,
    USED,
    best_variant_name,
    mean_entry_bytes,
    mode_rank,
    needed_mode,
    needed_modes,
    outdated_columns,
    variant_properties,
)
from tests.factories import manifest_facts, table_facts
from tests.maintain.tables import Named

WIDE = (
    *(Column(n, f"c{n}", "double", False, n, "truncate(16)") for n in range(1, 81)),
    Column(90, "url", "string", False, 90, "truncate(16)"),
    Column(91, "late", "string", False, 91, "none"),
)
FACTS = table_facts(columns=WIDE)
MODES = ("truncate(16)", "full")
LONG = [f"https://example.org/shop/items/{n:04}" for n in range(50)]


def of(column: str, op: str = "=") -> Filter:
    return Filter(ColumnCondition(column, op, ("x",) if op == "=" else ()))


def test_modes_are_ranked_by_what_they_keep() -> None:
    modes = ["none", "counts", "truncate(16)", "truncate(24)", "full"]

    assert sorted(modes, key=mode_rank) == modes


def test_bounds_are_as_long_as_it_takes_to_tell_values_apart() -> None:
    assert needed_mode(["a", "b"]) == "truncate(16)"
    assert needed_mode(LONG) == "truncate(48)"
    assert needed_mode(["x" * 200 + str(n) for n in range(9)]) == "full"


def test_a_filter_column_gets_the_length_of_its_values_and_one_asked_for_nulls_only_counts() -> (
    None
):
    facts = table_facts(
        columns=WIDE, sort_order=(SortField("c1", "identity", "asc", "nulls-first"),)
    )
    filters = [of("url"), of("late", "is null"), of("c1", "is null")]

    modes = needed_modes(facts, filters, {"url": LONG})

    assert modes == {"url": "truncate(48)", "late": "counts", "c1": "truncate(16)"}


def test_unused_statistics_are_left_out_where_they_are_many_and_used_ones_stay() -> None:
    modes = {"url": "truncate(48)"}
    longer = {"write.metadata.metrics.column.url": "truncate(48)"}
    few = {"columns": WIDE[-2:-1] + WIDE[:9]}

    assert variant_properties(FACTS, modes) == {BOUNDS: longer, USED: {**longer, DEFAULT: "none"}}
    assert variant_properties(table_facts(**few), modes) == {BOUNDS: longer}
    large = table_facts(**few, manifests=manifest_facts(data_bytes=2**30))
    assert variant_properties(large, modes)[USED][DEFAULT] == "none"
    assert variant_properties(table_facts(**few), {"url": "truncate(16)"}) == {}


def test_large_bounds_are_cut_to_what_filters_need() -> None:
    documents = Column(1, "text", "string", False, 0, "full")
    facts = table_facts(columns=(documents, *WIDE[:2]))
    large = {"text": 1.4e6, "c1": 40.0}

    def short(modes: dict[str, str], sizes: dict[str, float]) -> dict[str, str] | None:
        return variant_properties(facts, modes, sizes).get(SHORT)

    setting = "write.metadata.metrics.column.text"
    assert short({}, large) == {setting: "truncate(16)"}, "of no use"
    assert short({"text": "truncate(48)"}, large) == {setting: "truncate(48)"}
    assert short({"text": "counts"}, large) == {setting: "counts"}, "only asked for nulls"
    assert short({"text": "full"}, large) is None, "shorter ones would be equal"
    assert short({}, {"text": 1023.0}) is None


def test_bounds_that_the_mode_in_force_would_cut_are_of_older_files() -> None:
    short, full = (Column(i, mode, "string", False, i, mode) for i, mode in enumerate(MODES))
    facts = table_facts(columns=(short, full))

    assert outdated_columns(facts, {"truncate(16)": 1.4e6, "full": 1.4e6}) == [short]
    assert outdated_columns(facts, {"truncate(16)": 200.0}) == []


def test_shorter_bounds_are_advised_if_manifests_shrink_and_no_filter_reads_more() -> None:
    measured = Measurements(_MEASURES)
    measured.add(NOW, {READ: 3, BYTES_OF: 1_400_000})
    measured.add(SHORT, {READ: 3, BYTES_OF: 900})

    assert best_variant_name(measured) == SHORT


@pytest.mark.spark
def test_a_column_with_large_bounds_gets_shorter_ones(named: Named) -> None:
    table = named("documents").create(
        "id bigint, text string", "", write_metadata_metrics_default="full"
    )
    text = "repeat(sha2(CAST(id AS string), 512), 300)"
    table.sql(f"INSERT INTO {{t}} SELECT id, {text} FROM range(0, 40, 1, 2)")

    answer = table.lake.tune(
        "metrics-columns", table.name, filters=["id = 7"], progress=lambda _: None
    )

    assert answer.advised == SHORT
    assert "'write.metadata.metrics.column.text' = 'truncate(16)'" in answer.script.sql[0]
    assert "the statistics of text take 75 KiB in each manifest entry" in answer.verdict


@pytest.mark.parametrize(
    ("used", "longer", "advised"),
    [
        ((100, 300), (50, 1100), USED),
        ((101, 300), (50, 1100), BOUNDS),
        ((100, 800), (99.5, 1000), None),
    ],
    ids=["smaller manifests", "a filter loses", "little is saved"],
)
def test_a_variant_is_advised_if_filters_do_not_lose_and_files_or_bytes_are_saved(
    used: tuple[float, float], longer: tuple[float, float], advised: str | None
) -> None:
    measured = Measurements(_MEASURES)
    for name, (files, size) in {NOW: (100, 1000), USED: used, BOUNDS: longer}.items():
        measured.add(name, {READ: files, BYTES_OF: size})

    assert best_variant_name(measured) == advised


@pytest.mark.spark
def test_the_statistics_of_nested_columns_are_measured_too(lake: Lake, scratch: str) -> None:
    lake.spark.sql(
        f"CREATE TABLE lake.{scratch}.nested USING iceberg AS SELECT id, "
        "named_struct('text', repeat('x', 20)) AS deep, array(1) AS list FROM range(0, 9, 1, 1)"
    )

    taken = mean_entry_bytes(lake, lake.observe((scratch, "nested")))

    # Values and nulls are counted, column sizes take two bytes; each has a key, as bounds have.
    assert taken["id"] == 2 * 2 + 3 + 2 * (1 + 1 + 8)
    assert taken["deep.text"] == 2 * 2 + 3 + 2 * (1 + 1 + 16)
    assert 0 < taken["list.element"] < taken["id"]


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
    assert any("before compression: url " in note for note in answer.notes)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.lab("wide_table")
def test_statistics_that_nothing_uses_are_left_out_of_a_wide_table(lake: Lake) -> None:
    answer = lake.tune("metrics-columns", "lab.wide_table", progress=lambda _: None)

    assert answer.advised == USED
    assert (answer.measured.value(USED, BYTES_OF) or 1) < 0.5 * (
        answer.measured.value(NOW, BYTES_OF) or 0
    )
