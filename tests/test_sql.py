"""Names and literals reach SQL in one way, and as what they are."""

from __future__ import annotations

import datetime as dt

import pytest

from icekit import sql
from icekit.errors import InvalidName


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("db.t", ("db", "t")),
        ("a.b.c.t", ("a", "b", "c", "t")),
        ("db.`my.table`", ("db", "my.table")),
        ("db.`back``tick`", ("db", "back`tick")),
        ("db.with space", ("db", "with space")),
        ('db.o\'dd "quotes"', ("db", 'o\'dd "quotes"')),
        ("db.täble", ("db", "täble")),
        ("db.t; DROP TABLE x", ("db", "t; DROP TABLE x")),
    ],
)
def test_a_name_is_read_as_its_parts_and_written_back(text: str, parts: tuple[str, ...]) -> None:
    assert sql.parse_identifier(text) == parts
    assert sql.parse_identifier(sql.identifier(*parts)) == parts
    assert sql.parse_identifier(sql.display_name(parts)) == parts


@pytest.mark.parametrize("text", ["", "t", ".t", "db.", "db..t", "db.`t", "db.`t`x", "db.\0"])
def test_what_is_no_name_is_refused_with_advice(text: str) -> None:
    with pytest.raises(InvalidName, match=r"write it as|put a dot|close it|names no namespace"):
        sql.parse_identifier(text)


def test_identifiers_cannot_end_their_own_quotes() -> None:
    assert sql.identifier("lake", "a`; DROP TABLE b; --") == "`lake`.`a``; DROP TABLE b; --`"


def test_literals_cannot_end_their_own_quotes() -> None:
    assert sql.literal("it's \\ here\n") == r"'it\'s \\ here\n'"
    assert [sql.literal(v) for v in (None, True, 3, 0.5)] == ["NULL", "true", "3", "0.5"]


@pytest.mark.parametrize("name", ["my-table", "größe", "2024", "a b", "it's"])
def test_a_name_that_spark_reads_only_in_backticks_is_shown_in_them(name: str) -> None:
    assert sql.display_name(("db", name)) == f"db.`{name}`"


def test_a_call_names_its_arguments() -> None:
    statement = sql.call("lake", "rewrite_data_files", table="db.t", options={"min-input-files": "2"})

    assert statement == "CALL `lake`.system.rewrite_data_files(table => 'db.t', options => map('min-input-files', '2'))"


def test_properties_are_set_with_both_sides_quoted() -> None:
    assert sql.set_properties(("lake", "db", "t"), {"a.b": "it's"}) == r"ALTER TABLE `lake`.`db`.`t` SET TBLPROPERTIES ('a.b' = 'it\'s')"


def test_a_literal_is_not_taken_for_a_variable() -> None:
    assert sql.literal("${spark.app.name}") == "'\\u0024{spark.app.name}'"


def test_a_moment_is_a_typed_literal_in_utc() -> None:
    berlin = dt.datetime(2026, 1, 31, 6, 0, 0, 123_000, tzinfo=dt.timezone(dt.timedelta(hours=1)))

    assert sql.literal(berlin) == "TIMESTAMP '2026-01-31 05:00:00.123000+00:00'"


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        sql.literal(dt.datetime(2026, 1, 31))  # noqa: DTZ001


def test_a_list_of_names_is_an_array_with_each_quoted() -> None:
    statement = sql.call("lake", "rewrite_manifests", table="db.t", sort_by=("day", "it's"))

    assert statement == r"CALL `lake`.system.rewrite_manifests(table => 'db.t', sort_by => array('day', 'it\'s'))"


def test_a_text_is_split_at_semicolons_that_are_no_part_of_a_name_or_a_literal() -> None:
    text = r"ALTER TABLE `a;``b` SET TBLPROPERTIES ('x;y' = 'it\'s; so'); ALTER TABLE t WRITE UNORDERED;"

    assert sql.statements(text) == (
        r"ALTER TABLE `a;``b` SET TBLPROPERTIES ('x;y' = 'it\'s; so')",
        "ALTER TABLE t WRITE UNORDERED",
    )
    assert sql.statements("") == ()
