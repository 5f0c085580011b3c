"""What Iceberg says of a scan's filters is read back as conditions on columns."""

import pytest

from icekit.facts.definition import Column
from icekit.tune.filters import (
    All,
    Anything,
    Either,
    Filter,
    Leaf,
    Node,
    Unreadable,
    filters_of,
    sql,
)
from icekit.tune.filters import parse as parse_with
from icekit.tune.queries import _rewritable
from tests.factories import table_facts

COLUMNS = {
    c.name: c
    for c in (
        Column(1, "time_hour", "timestamptz", False, 0, "full"),
        Column(2, "tailnum", "string", False, 1, "full"),
        Column(3, "flight_date", "date", False, 2, "full"),
        Column(4, "delay", "int", False, 3, "full"),
        Column(5, "delay of it", "int", False, 4, "full"),
        Column(7, "raw", "binary", False, 5, "full"),
        Column(6, "plane.id", "long", False, 5, "full", ("plane", "id")),
    )
}


def parse(text: str, unknown: set[str] | None = None) -> Node:
    return parse_with(text, COLUMNS, set() if unknown is None else unknown)


TABLE = (
    "IcebergScan(table=lake.lab.t, schemaId=0, snapshotId=8, branch=null, filters={}, "
    "runtimeFilters=, groupedBy=)"
)


def test_conditions_are_split_where_the_language_goes_on_and_not_inside_texts() -> None:
    tree = parse("time_hour >= 1357344000000000, tailnum = 'N1'4, UA', delay IS NULL")

    assert tree == All(
        (
            Leaf("time_hour", ">=", (1357344000000000,)),
            Leaf("tailnum", "=", ("N1'4, UA",)),
            Leaf("delay", "is null"),
        ),
    )


def test_either_in_and_prefix_are_read() -> None:
    tree = parse("(flight_date = 15737 OR tailnum IN ('UA', 'AA')), tailnum LIKE 'N1%'")

    assert tree == All(
        (
            Either((Leaf("flight_date", "=", (15737,)), Leaf("tailnum", "in", ("UA", "AA")))),
            Leaf("tailnum", "prefix", ("N1",)),
        ),
    )


def test_what_is_negated_or_only_not_null_may_be_anything() -> None:
    assert parse("NOT (tailnum = 'N1')") == Anything()
    assert parse("NOT (tailnum IN ('N1', 'N2')), delay = 5") == Leaf("delay", "=", (5,))
    assert parse("tailnum IS NOT NULL") == Anything()


def test_names_with_spaces_and_dots_are_known_by_the_schema() -> None:
    assert parse("delay of it = 5, plane.id > 7") == All(
        (Leaf("delay of it", "=", (5,)), Leaf("plane.id", ">", (7,)))
    )


def test_bytes_are_read_as_facts_keep_them() -> None:
    tree = parse("raw = X'3AFF'")

    assert tree == Leaf("raw", "=", ("3aff",))
    assert sql(tree, COLUMNS) == "`raw` = X'3aff'"


def test_a_column_that_is_not_there_may_be_anything_and_is_named() -> None:
    unknown: set[str] = set()

    assert parse("gone = 5, delay = 6, bucket[4](time_hour) = 1", unknown) == Leaf(
        "delay", "=", (6,)
    )
    assert unknown == {"gone"}


def test_a_text_that_is_cut_off_is_refused() -> None:
    for text in ("tailnum = 'N1", "(delay = 5", "delay = ", "what is this"):
        with pytest.raises(Unreadable):
            parse(text)


def test_filters_are_found_in_a_scans_description() -> None:
    assert filters_of(TABLE.format("delay = 5, tailnum = 'a, b'")) == "delay = 5, tailnum = 'a, b'"
    assert filters_of(TABLE.format("")) == ""
    assert filters_of("FileScan parquet") == ""


def test_a_tree_is_written_as_sql_with_literals_of_the_columns_types() -> None:
    tree = parse(
        "(flight_date = 15737 OR plane.id IN (1, 2)), time_hour < 1357344000000000, tailnum LIKE "
        "'O'H%'"
    )

    assert sql(tree, COLUMNS) == (
        "((`flight_date` = DATE '2013-02-01') OR (`plane`.`id` IN (1L, 2L))) AND (`time_hour` < "
        "TIMESTAMP '2013-01-05 00:00:00+00:00') AND (startswith(`tailnum`, 'O\\'H'))"
    )


def test_a_filter_knows_its_columns() -> None:
    tree = parse("time_hour IS NOT NULL, delay = 5, tailnum LIKE 'N%'")
    asked = Filter(tree)

    assert asked.columns == ("delay", "tailnum")


def test_what_a_log_says_is_bytes_and_is_none_becomes_no_sql() -> None:
    tree = parse("raw = X'00'OR'1'='1'")

    with pytest.raises(ValueError, match="hexadecimal"):
        sql(tree, COLUMNS)


DAY = 86_400_000_000


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("year(time_hour) = 20", 7305 * DAY, 7670 * DAY),
        ("month(time_hour) = 1", 31 * DAY, 59 * DAY),
        ("day(time_hour) = 2", 2 * DAY, 3 * DAY),
        ("hour(time_hour) = 25", DAY + DAY // 24, DAY + DAY // 12),
        ("year(time_hour) = -1", -365 * DAY, 0),
    ],
)
def test_a_partition_transform_of_a_column_is_a_range_of_it(text: str, low: int, high: int) -> None:
    column = text.partition("(")[2].partition(")")[0]

    assert parse(text) == All((Leaf(column, ">=", (low,)), Leaf(column, "<", (high,))))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("year(flight_date) < 20", Leaf("flight_date", "<", (7305,))),
        ("year(flight_date) <= 20", Leaf("flight_date", "<", (7670,))),
        ("year(flight_date) > 20", Leaf("flight_date", ">=", (7670,))),
        ("year(flight_date) >= 20", Leaf("flight_date", ">=", (7305,))),
        ("day(time_hour) IS NULL", Leaf("time_hour", "is null")),
        ("truncate[2](tailnum) = 'N1'", Anything()),
        ("day(flight_date) IN (1, 2)", Either((All((Leaf("flight_date", ">=", (1,)), Leaf("flight_date", "<", (2,)))), All((Leaf("flight_date", ">=", (2,)), Leaf("flight_date", "<", (3,))))))),
        ("bucket[4](plane.id) = 1", Anything()),
        ("year(time_hour) != 20", Anything()),
        ("year(time_hour) = 99999", Anything()),
        ("truncate[10](delay) < 20", Anything()),
    ],
)  # fmt: skip
def test_comparisons_of_transforms_are_read_as_far_as_bounds_decide_them(
    text: str, tree: object
) -> None:
    unknown: set[str] = set()

    assert parse(text, unknown) == tree
    assert unknown == set()


def test_a_transform_of_an_unknown_column_is_named() -> None:
    unknown: set[str] = set()

    assert parse("year(gone) = 20, delay = 3", unknown) == Leaf("delay", "=", (3,))
    assert unknown == {"year(gone)"}


def test_a_function_of_time_is_told_with_the_form_that_iceberg_receives() -> None:
    facts = table_facts()

    assert list(_rewritable(facts, "year(event_time) IN (1990) AND carrier = 'year(x)'")) == [
        "year(event_time) does not reach Iceberg, so it skips nothing. A range of event_time "
        "does, and so does `prod`.system.years(event_time), which counts from 1970."
    ]
    assert [
        note.partition(" does")[0] for note in _rewritable(facts, "DATE(event_time) = '2026-01-01'")
    ] == ["date(event_time)"]
    assert (
        list(
            _rewritable(
                facts,
                "lake.system.years(event_time) = 20 AND month(event_time) = 1 AND year(carrier) = "
                "1",
            )
        )
        == []
    )
