"""A statement is read as Spark reads it, and changed by small changes to its own text."""

from collections.abc import Iterator

import pytest
from pyspark.errors import AnalysisException

from icekit.api import Lake
from icekit.common.errors import NotATable, StatementRefused, TableNotFound
from icekit.common.sql import Identifier
from icekit.sandbox.clones import clone
from icekit.tune.statement import Statement, narrow_statement, parse_statement
from tests.tune.merge.targets import Target

pytestmark = pytest.mark.spark

CLONE: Identifier = ("lake", "made", "clone")


@pytest.fixture
def events(lake: Lake, scratch: str) -> Iterator[Target]:
    """A target, and a view of changes."""
    spark = lake.spark
    table = Target(lake, scratch, "st_events").filled(
        columns="id bigint, name string", by="", rows="SELECT id, CAST(id AS string) FROM range(40)"
    )
    spark.sql("CREATE OR REPLACE TEMP VIEW st_changes AS SELECT id, 'new' AS name FROM range(5)")
    yield table
    spark.catalog.dropTempView("st_changes")


def read(lake: Lake, sql: str) -> Statement:
    return parse_statement(lake.spark, sql)


def test_the_parts_of_a_merge_are_those_of_its_text(lake: Lake, events: Target) -> None:
    statement = read(
        lake,
        """-- 😀 `
        MERGE WITH SCHEMA EVOLUTION INTO lake.scratch.st_events AS t
        USING (SELECT * FROM st_changes WHERE name = '😀é)') s
        ON (t.id = s.id /* both ) */) -- why
        WHEN MATCHED THEN UPDATE SET name = s.name ; ;
        """,
    )

    assert statement.kind == "MERGE"
    assert statement.target == ("lake", "scratch", "st_events")
    assert statement.target_alias == "t"
    assert statement.condition_sql == "(t.id = s.id /* both ) */)"
    assert statement.source_sql == "(SELECT * FROM st_changes WHERE name = '😀é)') s"
    assert statement.sql.endswith("name = s.name")


@pytest.mark.parametrize(
    ("source", "source_text"),
    [
        ("st_changes", "st_changes"),
        ("st_changes -- ours\n", "st_changes"),
        ("/* ours */ (SELECT 1 AS id) /* end */", "(SELECT 1 AS id)"),
        ("(SELECT (1) AS id) AS `a ``b`", "(SELECT (1) AS id) AS `a ``b`"),
    ],
)
@pytest.mark.parametrize("condition", ["id BETWEEN 1 AND 2", "(true) OR (false)", "NOT true"])
def test_a_source_and_a_condition_are_complete_and_without_comments_around_them(
    lake: Lake, events: Target, source: str, source_text: str, condition: str
) -> None:
    statement = read(
        lake,
        f"MERGE INTO lake.scratch.st_events AS `t x` USING {source} ON /* if */ {condition} "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE",
    )

    assert statement.target_alias == "t x"
    assert statement.source_sql == source_text
    assert statement.condition_sql == condition
    assert statement.has_not_matched_by_source
    delete = read(lake, f"DELETE FROM lake.scratch.st_events WHERE {condition} -- all")
    assert delete.condition_sql == condition
    assert not delete.has_not_matched_by_source


def test_another_target_changes_nothing_but_the_name(lake: Lake, events: Target) -> None:
    sql = (
        "UPDATE lake.scratch.st_events  AS e /* ! */ SET name = 'lake.scratch.st_events.id'\n "
        "WHERE e.id = 1"
    )

    assert read(lake, sql).sql_for(CLONE) == sql.replace(
        "lake.scratch.st_events  ", "`lake`.`made`.`clone`  "
    )


def test_without_an_alias_the_tables_last_name_is_one_and_columns_of_its_full_name_are_refused(
    lake: Lake, events: Target
) -> None:
    sql = (
        "DELETE FROM lake.scratch.st_events WHERE st_events.id IN (SELECT lake.scratch.st_events.id "
        "FROM lake.scratch.st_events)"
    )

    assert read(lake, sql).sql_for(CLONE) == sql.replace(
        "lake.scratch.st_events", "`lake`.`made`.`clone` AS `st_events`", 1
    )
    qualified = read(lake, sql.replace("WHERE st_events", "WHERE scratch.st_events"))
    with clone(lake, events.name) as copy:
        changed = qualified.sql_for(lake.sql_name(copy.table))
        with pytest.raises(AnalysisException, match="st_events"):
            lake.spark.sql(changed)


@pytest.mark.parametrize(
    "sql",
    [
        "WITH c AS (SELECT * FROM st_changes) MERGE INTO lake.scratch.st_events t USING c ON t.id "
        "= c.id WHEN MATCHED THEN DELETE",
        "MERGE INTO lake.scratch.st_events USING st_changes ON st_events.id = st_changes.id WHEN "
        "MATCHED THEN UPDATE SET name = st_changes.name",
        "UPDATE lake.scratch.st_events SET st_events.name = concat(st_events.name, '!') "
        "WHERE st_events.id < 5",
        "DELETE FROM lake.scratch.st_events",
        "MERGE INTO `lake`.`scratch`.`st_events` USING lake.scratch.st_events s ON "
        "st_events.id = s.id + 1 WHEN MATCHED THEN DELETE",
    ],
)
def test_a_clone_gets_what_the_table_would_get(lake: Lake, events: Target, sql: str) -> None:
    before = events.rows()
    on_clone = events.after(sql)
    assert events.rows() == before

    events.sql(sql)

    assert events.rows() == on_clone != before


def test_a_branch_stays_the_branch_on_another_table(lake: Lake, events: Target) -> None:
    events.sql("ALTER TABLE {t} CREATE BRANCH audit")
    statement = read(lake, "DELETE FROM lake.scratch.st_events.branch_audit WHERE id = 1")

    assert statement.target == ("lake", "scratch", "st_events")
    assert statement.branch == "audit"
    assert (
        statement.sql_for(CLONE)
        == "DELETE FROM `lake`.`made`.`clone`.`branch_audit` AS `branch_audit` WHERE id = 1"
    )


def test_a_condition_is_added_beside_the_statements_own(lake: Lake, events: Target) -> None:
    merge = read(
        lake,
        "MERGE INTO lake.scratch.st_events t USING st_changes s ON t.id = s.id OR false -- "
        "ours\nWHEN MATCHED THEN DELETE",
    )
    bare = read(lake, "DELETE FROM lake.scratch.st_events -- all\n")

    assert (
        "ON (t.id = s.id OR false) AND (t.id < 5) -- ours\nWHEN"
        in narrow_statement(lake.spark, merge, "t.id < 5").sql
    )
    assert narrow_statement(lake.spark, bare, "id < 5").condition_sql == "id < 5"


@pytest.mark.core("*")
@pytest.mark.parametrize("predicate", ["t.id < 5 -- all", "t.id < 5) OR (true", "t.id <"])
def test_a_condition_that_would_change_more_is_refused(
    lake: Lake, events: Target, predicate: str
) -> None:
    statement = read(
        lake,
        "MERGE INTO lake.scratch.st_events t USING st_changes s ON t.id = s.id WHEN MATCHED THEN "
        "DELETE",
    )

    with pytest.raises(StatementRefused):
        narrow_statement(lake.spark, statement, predicate)


def test_names_are_resolved_by_the_sessions_current_catalog_and_variables_are_put_in(
    lake: Lake, events: Target
) -> None:
    spark = lake.spark
    spark.sql("USE lake.scratch")
    spark.conf.set("st.limit", "3")
    try:
        statement = read(lake, "DELETE FROM st_events WHERE id < ${st.limit}")
    finally:
        spark.conf.unset("st.limit")
        spark.sql("USE spark_catalog.default")

    assert statement.target == ("lake", "scratch", "st_events")
    assert statement.condition_sql == "id < 3"


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("", "The text has no statement"),
        ("INSERT INTO lake.scratch.st_events SELECT 1, 'x'", "not a MERGE, UPDATE or DELETE"),
        ("EXPLAIN DELETE FROM lake.scratch.st_events", "not a MERGE, UPDATE or DELETE"),
        (
            "DELETE FROM lake.scratch.st_events; DELETE FROM lake.scratch.st_events",
            "cannot parse the statement",
        ),
        ("DELETE FORM lake.scratch.st_events", "cannot parse the statement: .*FORM"),
        ("DELETE FROM IDENTIFIER('lake.scratch' || '.st_events')", "not a plain name"),
        ("DELETE FROM st_changes WHERE id = 1", "st_changes is a temporary view"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(
    lake: Lake, events: Target, sql: str, said: str
) -> None:
    with pytest.raises(StatementRefused, match=said) as refused:
        read(lake, sql)

    assert "\n" not in str(refused.value)
    assert str(refused.value).endswith(".")


def test_a_target_that_is_missing_or_no_iceberg_table_is_told(lake: Lake, events: Target) -> None:
    with pytest.raises(TableNotFound, match=r"no table scratch\.st_nothing"):
        read(lake, "DELETE FROM lake.scratch.st_nothing")
    with pytest.raises(TableNotFound, match=r"no table scratch\.branch_x"):
        read(lake, "DELETE FROM lake.scratch.branch_x WHERE id = 1")
    lake.spark.sql("CREATE VIEW lake.scratch.st_view AS SELECT 1 AS id")
    try:
        with pytest.raises((NotATable, TableNotFound)):
            read(lake, "DELETE FROM lake.scratch.st_view")
    finally:
        lake.spark.sql("DROP VIEW lake.scratch.st_view")
