"""What Iceberg says of a scan's filters is read back as conditions on columns; many queries of a
few kinds keep the weight of each kind, whatever their values.
"""

import re
from functools import partial
from typing import Any

import pytest

from icekit.common.commands.tune import QUESTION_OPTIONS
from icekit.common.errors import ParameterError
from icekit.iceberg.definition import Column
from icekit.tune.filters import (
    ANYTHING,
    ColumnCondition,
    ConditionGroup,
    FilterTree,
    filter_sql,
    filters_of,
)
from icekit.tune.filters import parse_filters as parse_with
from icekit.tune.queries import MOST_VALUES, _function_notes, filters_by_frequency
from tests.factories import table_facts

NAMES = {
    "time_hour": "timestamptz",
    "tailnum": "string",
    "flight_date": "date",
    "delay": "int",
    "delay of it": "int",
    "raw": "binary",
    "plane.id": "long",
}
COLUMNS = {
    name: Column(n, name, kind, False, n, "full", tuple(name.split(".")))
    for n, (name, kind) in enumerate(NAMES.items())
}
both, either = partial(ConditionGroup, "AND"), partial(ConditionGroup, "OR")


def parse(text: str, unknown: set[str] | None = None) -> FilterTree:
    return parse_with(text, COLUMNS, set() if unknown is None else unknown)


TABLE = (
    "IcebergScan(table=lake.lab.t, schemaId=0, snapshotId=8, branch=null, filters={}, "
    "runtimeFilters=, groupedBy=)"
)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        # Conditions are split where the language goes on, and not inside texts.
        (
            "time_hour >= 1357344000000000, tailnum = 'N1'4, UA', delay IS NULL",
            both(
                (
                    ColumnCondition("time_hour", ">=", (1357344000000000,)),
                    ColumnCondition("tailnum", "=", ("N1'4, UA",)),
                    ColumnCondition("delay", "is null"),
                )
            ),
        ),
        (
            "(flight_date = 15737 OR tailnum IN ('UA', 'AA')), tailnum LIKE 'N1%'",
            both(
                (
                    either(
                        (
                            ColumnCondition("flight_date", "=", (15737,)),
                            ColumnCondition("tailnum", "in", ("UA", "AA")),
                        )
                    ),
                    ColumnCondition("tailnum", "prefix", ("N1",)),
                )
            ),
        ),
        ("NOT (tailnum = 'N1')", ANYTHING),
        ("(delay = 5 OR NOT (delay = 6))", ANYTHING),
        ("NOT (tailnum IN ('N1', 'N2')), delay = 5", ColumnCondition("delay", "=", (5,))),
        ("tailnum IS NOT NULL", ANYTHING),
        # Names with spaces and dots are known by the schema.
        (
            "delay of it = 5, plane.id > 7",
            both(
                (ColumnCondition("delay of it", "=", (5,)), ColumnCondition("plane.id", ">", (7,)))
            ),
        ),
        ("raw = X'3AFF'", ColumnCondition("raw", "=", ("3aff",))),
        ("year(flight_date) <= 20", ColumnCondition("flight_date", "year <=", (20,))),
        ("day(time_hour) IN (1, 2)", ColumnCondition("time_hour", "day in", (1, 2))),
        ("day(time_hour) IS NULL", ColumnCondition("time_hour", "is null")),
        ("truncate[2](tailnum) = 'N1'", ANYTHING),
        ("bucket[4](plane.id) = 1", ANYTHING),
        ("year(time_hour) != 20", ANYTHING),
    ],
)
def test_conditions_are_read_as_far_as_bounds_decide_them(text: str, tree: FilterTree) -> None:
    unknown: set[str] = set()

    assert parse(text, unknown) == tree
    assert unknown == set()


def test_a_column_that_is_not_there_may_be_anything_and_is_named() -> None:
    unknown: set[str] = set()

    tree = parse("gone = 5, year(gone) = 20, delay = 6, bucket[4](time_hour) = 1", unknown)

    assert tree == ColumnCondition("delay", "=", (6,))
    assert unknown == {"gone", "year(gone)"}


def test_a_text_that_is_cut_off_is_refused() -> None:
    for text in ("tailnum = 'N1", "(delay = 5", "delay = ", "what is this"):
        with pytest.raises(ValueError, match=re.escape(text)):
            parse(text)


def test_filters_are_found_in_a_scans_description() -> None:
    assert filters_of(TABLE.format("delay = 5, tailnum = 'a, b'")) == "delay = 5, tailnum = 'a, b'"
    assert filters_of(TABLE.format("")) == ""
    assert filters_of("FileScan parquet") == ""


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        (
            "(flight_date = 15737 OR plane.id IN (1, 2)), time_hour < 1357344000000000, tailnum "
            "LIKE 'O'H%'",
            "((`flight_date` = DATE '2013-02-01') OR (`plane`.`id` IN (1L, 2L))) AND (`time_hour` "
            "< TIMESTAMP '2013-01-05 00:00:00+00:00') AND (startswith(`tailnum`, 'O\\'H'))",
        ),
        ("raw = X'3AFF'", "`raw` = X'3aff'"),
        ("delay IS NULL", "`delay` IS NULL"),
        (
            "year(flight_date) = 20",
            "`flight_date` >= DATE '1990-01-01' AND `flight_date` < DATE '1991-01-01'",
        ),
        (
            "hour(time_hour) = -1",
            "`time_hour` >= TIMESTAMP '1969-12-31 23:00:00+00:00' AND `time_hour` < TIMESTAMP "
            "'1970-01-01 00:00:00+00:00'",
        ),
        ("month(flight_date) < 1", "`flight_date` < DATE '1970-02-01'"),
        ("month(flight_date) <= 1", "`flight_date` < DATE '1970-03-01'"),
        ("month(flight_date) > 1", "`flight_date` >= DATE '1970-03-01'"),
        ("month(flight_date) >= 1", "`flight_date` >= DATE '1970-02-01'"),
    ],
)
def test_a_tree_is_written_as_sql_with_literals_of_the_columns_types(
    text: str, predicate: str
) -> None:
    assert filter_sql(parse(text), COLUMNS) == predicate


@pytest.mark.parametrize("text", ["raw = X'00'OR'1'='1'", "year(time_hour) = 99999"])
def test_what_has_no_literal_becomes_no_sql(text: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        filter_sql(parse(text), COLUMNS)


@pytest.mark.parametrize(
    ("text", "reached", "function", "form"),
    [
        ("year(event_time) IN (2024) AND carrier = 'year(x)'", (), "year", "years(event_time),"),
        ("YEAR(`event_time`) = 2024", ("event_time",), "YEAR", "years(`event_time`),"),
        ("date(event_time) IN ('2024-01-01', '2024-02-01')", (), "date", "days(event_time)."),
    ],
)
def test_a_function_of_time_is_answered_with_the_form_that_reaches_iceberg(
    text: str, reached: tuple[str, ...], function: str, form: str
) -> None:
    (note,) = _function_notes(table_facts(), text, set(reached))

    assert note.startswith(f"{function}(")
    assert "A range of" in note
    assert f"and so does `prod`.system.{form}" in note


def test_other_functions_are_not_answered() -> None:
    other = "lake.system.years(event_time) = 20 AND month(event_time) = 1 AND year(carrier) = 1"

    assert not [*_function_notes(table_facts(), other, set())]
    # Spark makes a range of it.
    assert not [*_function_notes(table_facts(), "date(event_time) = '2024-01-01'", {"event_time"})]


def test_lookups_that_are_each_asked_once_outweigh_a_few_that_are_asked_twice() -> None:
    lookups = [ColumnCondition("id", "=", (n,)) for n in range(10_000)]
    days = [ColumnCondition("day", "=", (n,)) for n in range(250)]

    kept = filters_by_frequency([*lookups, *days, *days])

    weights = {
        column: sum(f.weight for f in kept if f.columns == (column,)) for column in ("id", "day")
    }
    assert weights == {"id": 10_000.0, "day": 500.0}
    assert len(kept) == 2 * MOST_VALUES


@pytest.mark.parametrize("given", ["id = 7", [["id = 7"]]])
def test_filters_are_a_list_of_texts_under_every_question(given: Any) -> None:
    for question in ("layout", "metrics-columns", "planning"):
        with pytest.raises(ParameterError, match="filters must be a list of strings"):
            QUESTION_OPTIONS[question].of({"filters": given})
