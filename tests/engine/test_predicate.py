"""A condition that a person states is one boolean expression over the table's columns, or an error
that says what is wrong with it.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from icekit.api import Lake
from icekit.common.errors import ParameterError
from icekit.common.sql import identifier
from icekit.common.units import shorten
from icekit.engine.predicate import LONGEST_PREDICATE, read_predicate
from icekit.maintain.planning.conversion import plan_conversion
from icekit.tune.queries import read_filters

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
CAST = "cannot be cast"
NO_CONDITION = [
    ("", "it is empty"),
    (" \n ", "it is empty"),
    ("id = 1 -- all of it", "comment"),
    ("id = 1 /* all of it", "comment"),
    ("name = 'open", "Give one condition"),
    ("(id = 1", "Give one condition"),
    ("id = 1 \u2014 2", "Give one condition"),
    ("id = 1\x00", "Syntax error"),
    ("name = '${spark.app.name}'", "value of a setting"),
    ("id", "boolean"),
    ("nmae = 'a'", "`nmae` cannot be resolved. Did you mean one of the following? [`"),
    ("no_function(id) = 1", "no_function"),
    ("id = ?", "parameter"),
    ("EXISTS (SELECT 1 FROM lake.scratch_predicates.rows)", "subquery"),
    ("id = (SELECT max(id) FROM lake.scratch_predicates.rows)", "subquery"),
    ("count(*) > 1", "WHERE"),
    ("row_number() OVER (ORDER BY id) = 1", "window function"),
    ("explode(array(true))", "generator"),
    ("rand() < 0.5", "each time it is evaluated"),
    ("java_method('java.lang.System', 'lineSeparator') = name", "each time it is evaluated"),
    ("(" * 2_000 + "id = 1" + ")" * 2_000, "Give one condition"),
    ("NOT " * 5_000 + "id = 1", "Give one condition"),
    ("rows.id = 1", "Did you mean one of the following? [`id`"),
    ("lake.scratch_predicates.rows.id = 1", "cannot be resolved"),
    ("id = 'x'", CAST),
    ("x -> x", "Give one condition"),
    (
        f"id IN ({', '.join(map(str, range(LONGEST_PREDICATE)))})",
        "characters, and Spark is too slow",
    ),
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


@pytest.mark.core("*")
@pytest.mark.parametrize(
    ("text", "why"), [(text, "Syntax error at or near") for text in ESCAPES] + NO_CONDITION
)
def test_what_is_no_condition_of_a_row_is_refused_by_name(
    table: Lake, text: str, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    if why == CAST and table.spark.conf.get("spark.sql.ansi.enabled") == "false":
        pytest.skip("Spark 3.5 casts text to NULL")
    with pytest.raises(ParameterError) as refused:
        read(table, text)

    message = str(refused.value)
    assert message.startswith(f"The filter {shorten(text, 200)!r} cannot be used: ")
    assert why in message
    assert not re.search("SQLSTATE|icekit_rows|An error occurred while calling", message)
    assert len(message) < 1_000
    # Told once, and not traced.
    assert "SQLQueryContextLogger" not in capfd.readouterr().err


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
        "name = current_user() OR id = 2": 1,
        "id < 4 AND current_date() > DATE '2020-01-01'": 4,
    }

    for text, expected in texts.items():
        stated = read(table, text)
        assert stated == f"({text})"
        assert rows.where(f"{stated} AND {stated}").count() == expected


#: Spellings that a second reader of SQL would have to know as Spark does. Of each group Spark reads
# the same condition.
SPELLINGS = [
    ["id = 1", "id == 1", "(id) = 1L", "id\n=\t1", "`id` = +1", "ID = 1"],
    ["name = 'it\\'s'", 'name = "it\'s"', 'name = r"it\'s"', "name = 'it\\u0027s'"],
    ["name = 'it''s'", "name = 'it' \"'\" 's'", "name = 'it\\047s'"],
    ["name = 'say \"x\"'", 'name = "say \\"x\\""', "name = r'say \"x\"'"],
    ["name = r'\\d'", "name = '\\\\d'", 'name = R"\\d"'],
    ["name = 'é😀'", "name = '\\u00e9\\U0001F600'"],
    ["name = ';'", "name = '\\u003b'"],
    ["`odd name` = 1", "`odd name` = 1L", "`ODD NAME` = 1"],
    ["id <=> NULL", "id IS NOT DISTINCT FROM NULL"],
    ["id IS NOT NULL", "isnotnull(id)"],
    ["id <> 1", "id != 1", "NOT id = 1", "! id = 1", "NOT (id = 1)"],
    ["id NOT IN (1, 2)", "NOT id IN (1, 2)"],
    ["id BETWEEN 1 AND 2", "id >= 1 AND id <= 2"],
    ["id = 1 OR id = 2 AND id = 3", "id = 1 OR (id = 2 AND id = 3)"],
    ["name LIKE 'a!%' ESCAPE '!'", "name LIKE 'a!%' ESCAPE \"!\""],
    ["name NOT LIKE 'a\\%'", "NOT name LIKE 'a\\%'"],
    ["name RLIKE '^a'", "name REGEXP '^a'", "name RLIKE r'^a'"],
    ["id > 1.10", "id > 1.10BD", "id > 01.10"],
    ["id > 1.5E-2", "id > 0.015D", "id > .15E-1", "id > 15e-3"],
    ["CAST(name AS date) = DATE '2026-01-31'", "date(name) = DATE'2026-01-31'"],
    ["name::timestamp > TIMESTAMP '2026-01-31 10:00:00Z'"],
    [
        "TIMESTAMP '2026-01-31' - INTERVAL 7 DAYS > name",
        "TIMESTAMP '2026-01-31' - INTERVAL '7' DAY > name",
    ],
    [
        "TIMESTAMP '2026-01-31' - INTERVAL '1-2' YEAR TO MONTH > name",
        "TIMESTAMP '2026-01-31' - INTERVAL 1 YEAR 2 MONTHS > name",
    ],
    ["CAST(name AS binary) = X'1A2b'", "CAST(name AS binary) = x'1a2B'"],
    ["substring(name FROM 2 FOR 3) = 'b'", "substring(name, 2, 3) = 'b'"],
    ["split(lower(trim(name)), ',')[0] = 'a'", "split(LOWER(TRIM(name)), ',')[0] = 'a'"],
    ["CASE WHEN id = 1 THEN true ELSE false END", "CASE WHEN id = 1 THEN TRUE ELSE FALSE END"],
]


def test_a_condition_that_is_accepted_reaches_spark_as_it_is_written(table: Lake) -> None:
    rows = table.spark.table(identifier(*table.sql_name(NAME)))

    def plan(condition: str) -> str:
        java: Any = rows.where(condition)
        execution = java._jdf.queryExecution().optimizedPlan()
        return re.sub(r"#\d+L?", "", str(execution.canonicalized()))

    for spellings in SPELLINGS:
        for text in spellings:
            assert read(table, text) == f"({text})"
        assert len({plan(f"({text})") for text in spellings}) == 1, spellings


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("id = = 1", 6),
        ("id = 1; DROP TABLE t", 7),
        ("id = 1 LIMIT 1", 8),
        ("id IN ()", 7),
        ("name = $$a$$", 8),
        ("id = @x", 6),
        ("(id = 1", 8),
    ],
)
def test_a_syntax_error_is_refused_with_its_position(table: Lake, text: str, column: int) -> None:
    with pytest.raises(ParameterError, match=f"in line 1, column {column}\\. "):
        read(table, text)


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


@pytest.mark.parametrize("text", NOT_FOR_FILES)
def test_a_condition_that_iceberg_cannot_choose_files_by_is_refused_by_name(
    table: Lake, text: str
) -> None:
    with pytest.raises(
        ParameterError, match="Iceberg cannot select partitions with the filter"
    ) as refused:
        plan_conversion(table, NAME, where=text)

    assert repr(text) in str(refused.value)


@pytest.mark.core
def test_a_statement_that_changes_rows_is_no_query_to_read_filters_of(table: Lake) -> None:
    name = identifier(*table.sql_name(NAME))

    with pytest.raises(ParameterError, match="a statement that changes data"):
        read_filters(
            table,
            table.observe(NAME),
            filter_texts=[
                f"WITH one AS (SELECT 1 AS id) DELETE FROM {name} WHERE id IN (SELECT id FROM one)"
            ],
        )

    assert table.spark.table(name).count() == 10
