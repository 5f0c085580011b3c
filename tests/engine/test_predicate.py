"""A condition that a person states is one boolean expression over the table's columns, or an error
that says what is wrong with it.
"""

from collections.abc import Iterator

import pytest

import icekit.engine.predicate
from icekit.api import Lake
from icekit.compact.equality_deletes.plan import plan_conversion
from icekit.engine.predicate import LONGEST, read_predicate
from icekit.errors import EXIT_MISCONFIGURED, ParameterError
from icekit.sql import identifier
from icekit.tune.queries import read_filters
from icekit.units import shorten

pytestmark = pytest.mark.spark
NAME = ("scratch_predicates", "rows")
ESCAPES = [
    "id = 1) OR (1=1",
    "id = 1 LIMIT 1",
    "id = 1 GROUP BY id",
    "id = 1 ORDER BY id",
    "id = 1 UNION ALL SELECT id FROM lake.scratch_predicates.rows",
    "id = 1; DROP TABLE lake.scratch_predicates.rows",
    "id = 1 AS x",
]
NO_CONDITION = [
    ("", "it is empty"),
    (" \n ", "it is empty"),
    ("id = 1 -- all of it", "comment"),
    ("id = 1 /* all of it */", "comment"),
    ("id = 1 /* all of it", "comment"),
    ("name = 'open", "as one expression"),
    ("`id = 1", "as one expression"),
    ("(id = 1", "as one expression"),
    ("id = 1 \u2014 2", "as one expression"),
    ("n\u00e4me = 1", "back quoted"),
    ("id = 1\x00", "control character"),
    ("name = '${spark.app.name}'", "value of a setting"),
    ("id", "not true or false"),
    ("nmae = 'a'", "did you mean name"),
    ("no_function(id) = 1", "no_function"),
    ("id = ?", "parameter marker"),
    ("EXISTS (SELECT 1 FROM lake.scratch_predicates.rows)", "subquery"),
    ("id IN (SELECT 1)", "subquery"),
    ("id = (SELECT max(id) FROM lake.scratch_predicates.rows)", "subquery"),
    ("count(*) > 1", "aggregate"),
    ("row_number() OVER (ORDER BY id) = 1", "window function"),
    ("explode(array(true))", "generator"),
    ("rand() < 0.5", "each time it is evaluated"),
    ("(" * 2_000 + "id = 1" + ")" * 2_000, "nested 2,000 times"),
    ("abs(" * 500 + "id" + ")" * 500 + " = 1", "nested 500 times"),
    ("CASE WHEN id = 1 THEN " * 200 + "true" + " END" * 200, "nested 200 times"),
    (" OR ".join(f"id = {i}" for i in range(3_000)), "operators"),
    ("id" + " + 1" * 5_000 + " = 1", "operators"),
    ("NOT " * 5_000 + "id = 1", "operators"),
    ("rows.id = 1", "rows.id names a table"),
    ("lake.scratch_predicates.rows.id = 1", "names a table"),
    ("`rows` . `id` = 1", "names a table"),
    ("current_user() = name", "it has current_user"),
    ("name = SESSION_USER", "it has SESSION_USER"),
    ("name = user", "it has user"),
    ("name = current_catalog ()", "it has current_catalog"),
    ("java_method('java.lang.System', 'lineSeparator') = name", "each time it is evaluated"),
]
# What only Iceberg refuses: each is a condition, and none that files can be chosen by.
NOT_FOR_FILES = [
    "length(name) = 3",
    "name LIKE '%a'",
    "id + 1 = 2",
    "isnan(CAST(id AS double))",
    "_file = 'a'",
]


@pytest.fixture(scope="module")
def table(lake: Lake) -> Iterator[Lake]:
    """A lake with a table of the tests' own, which nothing here writes to."""
    lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, NAME[0])}")
    name = identifier(*lake.sql_name(NAME))
    lake.spark.sql(
        f"CREATE OR REPLACE TABLE {name} USING iceberg AS SELECT id, string(id) AS name, id AS "
        "`odd name` FROM range(10)"
    )
    yield lake
    lake.spark.sql(f"DROP TABLE {name} PURGE")


def read(lake: Lake, text: str) -> str:
    return read_predicate(lake.spark, lake.spark.table(identifier(*lake.sql_name(NAME))), text)


@pytest.mark.parametrize(
    ("text", "why"), [(text, "as one expression") for text in ESCAPES] + NO_CONDITION
)
def test_what_is_no_condition_of_a_row_is_refused_by_name(table: Lake, text: str, why: str) -> None:
    with pytest.raises(ParameterError) as refused:
        read(table, text)

    said = str(refused.value)
    assert refused.value.exit_status == EXIT_MISCONFIGURED
    assert said.startswith(f"The filter {shorten(text, 200)!r} cannot be used: ")
    assert why in said
    assert "SQLSTATE" not in said


def test_a_condition_is_taken_whatever_its_values_hold(table: Lake) -> None:
    rows = table.spark.table(identifier(*table.sql_name(NAME)))
    texts = {
        "name = '-- /* ; ) OR (' OR id = 1": 1,
        "`odd name` IN (1, 2) AND name <> 'it''s'": 2,
        "name = r'\\' OR id < 3": 3,
        "id = 1 OR\n\tid = 2": 2,
        "_file LIKE '%.parquet'": 10,
        "exists(array(named_struct('a', id)), x -> x.a = 1)": 1,
        "name = 'rows.id' OR name = 'current_user()' OR id = 1.0": 1,
        f"id IN ({', '.join(f'-{i}' for i in range(2_000))}, 3)": 2,
        "id < 4 AND current_date() > DATE '2020-01-01'": 4,
    }

    for text, expected in texts.items():
        stated = read(table, text)
        assert stated == f"({text})"
        assert rows.where(f"{stated} AND {stated}").count() == expected


def test_a_text_that_is_compared_as_a_number_and_is_none_is_refused(table: Lake) -> None:
    with pytest.raises(ParameterError, match="cannot be cast"):
        read(table, "id = 'x'")


def test_what_only_the_session_has_is_refused(table: Lake) -> None:
    table.spark.sql("DECLARE OR REPLACE VARIABLE icekit_variable BIGINT DEFAULT 7")
    table.spark.udf.register("icekit_function", lambda value: value, "bigint")
    try:
        for text in (
            "id = icekit_variable",
            "session.icekit_variable = id",
            "icekit_function(id) = 1",
        ):
            with pytest.raises(ParameterError, match="that only this session has"):
                read(table, text)
    finally:
        table.spark.sql("DROP TEMPORARY VARIABLE icekit_variable")
        table.spark.sql("DROP TEMPORARY FUNCTION icekit_function")


def test_what_the_engine_cannot_read_at_all_is_refused_with_its_reason(table: Lake) -> None:
    with pytest.raises(ParameterError, match=r"cannot be used: \w.*\w\. Give one") as refused:
        read(table, "x -> x")

    assert "An error occurred while calling" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "`user.id x` = 42",
        "`user` = 'a'",
        "user = 'a'",
        "`a``b.c` = 1",
        "address.user = 'a'",
        "`address` . `zip` = 1",
    ],
)
def test_columns_named_like_functions_of_the_session_or_with_dots_are_taken(text: str) -> None:
    assert (
        icekit.engine.predicate._of_elsewhere(text, ["user.id x", "user", "a`b.c", "address"])
        is None
    )


def test_a_condition_too_long_to_plan_is_refused_by_its_size(table: Lake) -> None:
    with pytest.raises(ParameterError, match=r"characters, and Spark is too slow") as refused:
        read(table, f"id IN ({', '.join(map(str, range(LONGEST)))})")

    assert len(str(refused.value)) < 1_000


def test_what_is_refused_is_told_once_and_not_traced(
    table: Lake, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ParameterError):
        read(table, "no_such = 1")

    assert "SQLQueryContextLogger" not in capfd.readouterr().err


@pytest.mark.parametrize("text", ESCAPES)
def test_no_filter_escapes_its_place(table: Lake, text: str) -> None:
    facts = table.observe(NAME)

    with pytest.raises(ParameterError, match="as one expression"):
        read_filters(table, facts, sql=[text])
    with pytest.raises(ParameterError, match="as one expression"):
        table.tune("write-mode", NAME, read_filter=text)
    with pytest.raises(ParameterError, match="as one expression"):
        plan_conversion(table, NAME, where=text)


@pytest.mark.parametrize("text", NOT_FOR_FILES)
def test_a_condition_that_iceberg_cannot_choose_files_by_is_refused_by_name(
    table: Lake, text: str
) -> None:
    with pytest.raises(
        ParameterError, match="Iceberg cannot select partitions with the filter"
    ) as refused:
        plan_conversion(table, NAME, where=text)

    assert repr(text) in str(refused.value)


def test_a_statement_that_changes_rows_is_no_query_to_read_filters_of(table: Lake) -> None:
    name = identifier(*table.sql_name(NAME))

    with pytest.raises(ParameterError, match="a statement that changes data"):
        read_filters(
            table,
            table.observe(NAME),
            sql=[
                f"WITH one AS (SELECT 1 AS id) DELETE FROM {name} WHERE id IN (SELECT id FROM one)"
            ],
        )

    assert table.spark.table(name).count() == 10
