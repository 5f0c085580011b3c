"""Orders and specs are distinguished on a sample by what filters would read."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import replace
from typing import Any

import pytest

from icekit.sandbox.trial import Budget, BudgetSpent
from icekit.tune.filters import All, Filter, Leaf
from icekit.tune.layout.model import HILBERT, SORT, ZORDER, Field, LayoutOrder
from icekit.tune.layout.rows import SampleColumn, SampleRows, Search, best, candidates, is_tiny, is_whole_time, pays
from icekit.tune.queries import Sample

MIB = 1 << 20
DAY = 86_400_000_000


def rows(columns: dict[str, list[Any]], kinds: dict[str, str], *, files: int = 16, modes: dict[str, str] | None = None) -> SampleRows:
    number = len(next(iter(columns.values())))
    return SampleRows.of(Sample(columns, number), kinds, files * MIB, MIB, modes)


def equal(column: str, *values: Any) -> list[Filter]:
    return [Filter(f"{column} = {v}", Leaf(column, "=", (v,))) for v in values]


@pytest.fixture
def square() -> SampleRows:
    """Two numbers that know nothing of each other, in no order."""
    draw = random.Random(1)
    return rows(
        {"a": [draw.randrange(1000) for _ in range(6400)], "b": [draw.randrange(1000) for _ in range(6400)]}, {"a": "int", "b": "int"}
    )


def test_rows_in_no_order_are_all_read_and_sorted_ones_are_not(square: SampleRows) -> None:
    filters = equal("a", 10, 500, 900)

    assert square.read((), None, filters).share == 1.0
    assert square.read((), LayoutOrder(SORT, ("a",)), filters).share == pytest.approx(1 / 16, abs=0.03)
    assert square.read((), LayoutOrder(SORT, ("a",)), equal("b", 10)).share == 1.0


def test_a_curve_serves_two_columns_and_a_sort_one(square: SampleRows) -> None:
    filters = equal("a", 10, 500, 900) + equal("b", 20, 450, 870)

    sort = square.read((), LayoutOrder(SORT, ("a", "b")), filters).share
    curves = [square.read((), LayoutOrder(kind, ("a", "b")), filters).share for kind in (ZORDER, HILBERT)]

    assert sort > 0.5
    assert all(share < 0.4 for share in curves)


def test_a_text_drowns_a_number_on_a_curve() -> None:
    # The bits of a text vary from the first byte on, those of a small number in the last two: the curve sorts by the text.
    draw = random.Random(2)
    mixed = rows(
        {"n": [draw.randrange(1000) for _ in range(6400)], "t": [f"{draw.randrange(16**8):08x}" for _ in range(6400)]},
        {"n": "int", "t": "string"},
    )

    assert mixed.read((), LayoutOrder(ZORDER, ("n", "t")), equal("n", 10, 500, 900)).share > 0.9


def test_columns_are_added_while_they_pay(square: SampleRows) -> None:
    both = Search(square, equal("a", 10, 500, 900) + equal("b", 20, 450, 870), ["a", "b"], 4, 16).choose((), None)
    one = Search(square, equal("a", 10, 500, 900), ["a", "b"], 4, 16).choose((), None)

    assert both.best is not None
    assert both.best.order.kind in {ZORDER, HILBERT}
    assert one.best is not None
    assert one.best.order == LayoutOrder(SORT, ("a",))
    assert len(one.steps) == 2


def test_an_identity_partition_column_is_not_ordered_by(square: SampleRows) -> None:
    found = Search(square, equal("a", 5), ["a"], 4, 16).choose((Field("a", "identity"),), None)

    assert found.best is None


def test_a_change_must_save_a_part_and_half_a_file() -> None:
    assert pays(1.0, 0.2, 16)
    assert not pays(1.0, 0.95, 16)
    assert not pays(1 / 16, 0.5 / 16 + 0.01, 16)


def test_a_column_without_bounds_skips_nothing_unless_it_is_sorted_by() -> None:
    blind = rows({"a": list(range(1600))}, {"a": "int"}, modes={"a": "none"})

    assert blind.read((), None, equal("a", 5)).share == 1.0
    assert blind.read((), LayoutOrder(SORT, ("a",)), equal("a", 5)).share < 0.1


def test_texts_with_one_long_prefix_are_not_distinguished_by_truncated_bounds() -> None:
    urls = [f"https://example.org/{n:05}" for n in range(1600)]

    cut = rows({"u": urls}, {"u": "string"}, modes={"u": "truncate(16)"})
    full = rows({"u": urls}, {"u": "string"}, modes={"u": "full"})

    assert cut.read((), None, equal("u", urls[9])).share == 1.0
    assert full.read((), None, equal("u", urls[9])).share == pytest.approx(1 / 16)


def test_nulls_are_looked_for_where_they_are() -> None:
    half = rows({"a": [None] * 800 + list(range(800))}, {"a": "int"})

    assert half.read((), None, [Filter("a IS NULL", Leaf("a", "is null"))]).share == 0.5
    assert half.read((), None, equal("a", 799)).share == pytest.approx(1 / 16)


def test_files_are_not_told_from_too_few_rows() -> None:
    few = rows({"a": list(range(100))}, {"a": "int"}, files=1000)

    found = few.read((), None, equal("a", 5))

    assert found.is_coarse
    assert found.files == 4


def test_distinct_values_that_were_not_drawn_are_estimated() -> None:
    drawn = SampleColumn.of(list(range(1000)), "long")

    assert drawn.distinct_in_table(1_000_000) > 100_000
    assert SampleColumn.of([1, 2] * 500, "long").distinct_in_table(1_000_000) == 2
    assert SampleColumn.of([None, float("nan"), 1.0], "double").ranks.tolist() == [-1, -1, 0]


def test_a_spec_is_proposed_for_what_filters_ask() -> None:
    draw = random.Random(3)
    events = rows(
        {
            "at": [draw.randrange(64) * DAY + 5 for _ in range(6400)],
            "tenant": [f"t{draw.randrange(8)}" for _ in range(6400)],
            "id": list(range(6400)),
        },
        {"at": "timestamptz", "tenant": "string", "id": "long"},
        files=64,
    )
    filters = [
        Filter("at", Leaf("at", ">=", (60 * DAY,))),
        *equal("tenant", "t1", "t5"),
        *equal("id", 7),
    ]

    specs = candidates(events, (), filters, ["at", "tenant", "id"])

    assert {(Field("at", "day"),), (Field("tenant", "identity"),), (Field("id", "bucket[64]"),)} <= set(specs)
    assert (Field("at", "day"), Field("tenant", "identity")) in specs
    assert specs[0] == ()
    chosen = best(Search(events, filters, [], 1, 16).score(specs, None))
    assert chosen is not None
    assert chosen.fits
    assert chosen.share < 0.5


def test_partitions_that_are_tiny_do_not_fit() -> None:
    events = rows({"at": [n * DAY // 4 for n in range(6400)]}, {"at": "timestamptz"}, files=16)
    filters = [Filter("at", Leaf("at", "=", (3 * DAY,)))]

    scored = {
        c.spec: c
        for c in Search(events, filters, ["at"], 1, 16).score(
            candidates(events, (Field("at", "hour"),), filters, ["at"]), LayoutOrder(SORT, ("at",))
        )
    }

    hours, years = scored[(Field("at", "hour"),)], scored[(Field("at", "year"),)]
    assert is_tiny(hours, events.target_bytes)
    assert not hours.fits
    assert years.fits
    assert not is_tiny(years, events.target_bytes)


def test_a_filter_of_two_columns_reads_what_both_leave(square: SampleRows) -> None:
    both = [Filter("both", All((Leaf("a", "=", (10,)), Leaf("b", "=", (20,)))))]

    assert square.read((Field("a", "bucket[8]"), Field("b", "bucket[2]")), None, both).share < 0.1


def test_no_curve_goes_through_a_column_inside_a_struct(square: SampleRows) -> None:
    filters = equal("a", 10, 500, 900) + equal("b", 20, 450, 870)
    inside = replace(square, nested={"b"})

    kinds = {order.kind for step in Search(inside, filters, ["a", "b"], 2, 16).choose((), None).steps for order, _ in step.shares}

    assert kinds == {SORT}


def test_a_spec_with_a_field_that_cannot_be_worked_out_is_compared_with_nothing(square: SampleRows) -> None:
    unknown, unsampled = (Field("a", "future[3]"),), (Field("a", "identity"), Field("c", "day"))

    assert candidates(square, unknown, equal("a", 10), ["a"]) == [unknown]
    assert candidates(square, unsampled, equal("a", 10), ["a"]) == [unsampled]
    assert len(candidates(square, (), equal("a", 10), ["a"])) > 1


def test_a_prefix_without_a_value_proposes_no_truncation() -> None:
    texts = rows({"t": [f"{n:05}" for n in range(1000)], "n": [None] * 1000}, {"t": "string", "n": "string"})

    found = candidates(texts, (), [Filter("t", Leaf("t", "prefix")), Filter("n", Leaf("n", "prefix"))], ["t", "n"])

    assert not any(f.transform.startswith("truncate") for spec in found for f in spec)


def test_partitions_of_a_spec_are_worked_out_once(square: SampleRows) -> None:
    spec = (Field("a", "bucket[4]"),)

    assert square._partitions(spec) is square._partitions(list(spec))


def test_comparing_ends_where_time_is_up(square: SampleRows) -> None:
    search = Search(square, equal("a", 10), ["a"], 1, 16, Budget(1e-9).check)

    with pytest.raises(BudgetSpent):
        search.choose((), None)
    with pytest.raises(BudgetSpent):
        search.score([()], None)


def by_parts(**kinds: str) -> SampleRows:
    """Three years of hours, with year, month, day and hour in columns of their own."""
    moments = [dt.datetime(2023, 1, 1) + dt.timedelta(hours=5 * n) for n in range(5256)]  # noqa: DTZ001
    columns: dict[str, list[Any]] = {name: [getattr(m, name) for m in moments] for name in ("year", "month", "day", "hour")}
    columns["dt"] = [f"{m:%Y-%m-%d}" for m in moments]
    columns["event_day"] = [int(f"{m:%Y%m%d}") for m in moments]
    return rows(columns, dict.fromkeys(columns, "int") | {"dt": "string"} | kinds)


def identities(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name, "identity") for name in names)


@pytest.mark.parametrize(
    ("names", "is_whole"),
    [
        (("year", "month", "day"), True),
        (("year", "month"), True),
        (("dt", "hour"), True),
        (("event_day", "hour"), True),
        (("event_day",), True),
        (("day",), False),
        (("month",), False),
        (("year", "day"), False),
        (("month", "day"), False),
        (("hour",), False),
        (("year", "month", "hour"), False),
    ],
)
def test_a_part_of_a_time_needs_the_coarser_parts(names: tuple[str, ...], is_whole: bool) -> None:
    assert is_whole_time(identities(*names), by_parts().columns) is is_whole


def test_a_transform_of_a_time_is_a_coarser_part_too() -> None:
    moments = rows({"at": [n * DAY for n in range(100)], "hour": [n % 24 for n in range(100)]}, {"at": "timestamptz", "hour": "int"})

    assert is_whole_time((Field("at", "day"), *identities("hour")), moments.columns)
    assert not is_whole_time((Field("at", "month"), *identities("hour")), moments.columns)
    # A column of that name with other values is no part of a time.
    assert is_whole_time(identities("day"), rows({"day": list(range(100))}, {"day": "int"}).columns)


def test_a_spec_of_year_month_and_day_is_never_cut_down_to_its_days() -> None:
    specs = candidates(by_parts(), identities("year", "month", "day"), equal("day", 7), ["day"])

    assert specs[0] == identities("year", "month", "day")
    assert identities("year", "month") in specs
    assert not [s for s in specs[1:] if Field("day", "identity") in s and not {*identities("year", "month")} <= set(s)]


def test_near_equal_specs_are_told_apart_by_what_their_partitions_rule_out() -> None:
    events = rows({"at": [n % 64 * DAY for n in range(6400)], "id": list(range(6400))}, {"at": "timestamptz", "id": "long"}, files=64)
    filters = [Filter("at", Leaf("at", "=", (3 * DAY,)))]
    scored = Search(events, filters, [], 1, 64).score([(), (Field("at", "day"),)], LayoutOrder(SORT, ("at",)))

    chosen = best(scored)

    assert [round(c.partition_share, 3) for c in scored] == [1.0, round(1 / 64, 3)]
    assert scored[0].share == pytest.approx(scored[1].share)
    assert chosen is not None
    assert chosen.spec == (Field("at", "day"),)


def test_a_year_of_data_adds_partitions_only_where_they_follow_the_time() -> None:
    events = rows({"at": [n % 731 * DAY for n in range(7310)], "id": list(range(7310))}, {"at": "timestamptz", "id": "long"})

    assert events.spread((Field("at", "day"),)).a_year == pytest.approx(366, abs=1)
    assert events.spread((Field("at", "month"),)).a_year == pytest.approx(12, abs=1)
    assert events.spread((Field("id", "bucket[16]"),)).a_year == 0
    assert by_parts().spread(identities("year", "month")).a_year == 12


@pytest.mark.parametrize(("transform", "a_year"), [("year", 1), ("month", 12), ("day", 365), ("hour", 8766)])
def test_data_of_a_few_hours_adds_partitions_by_the_unit_of_their_transform(transform: str, a_year: int) -> None:
    hours = rows({"at": [n % 3 * DAY // 24 for n in range(300)]}, {"at": "timestamptz"})

    assert hours.spread((Field("at", transform),)).a_year == pytest.approx(a_year, rel=0.01)
