"""Names and literals reach SQL in one way, and as what they are."""

import datetime as dt
import time

import pytest

from icekit.common import sql
from icekit.common.errors import InvalidName
from tests.golden import Golden


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("db.t", ("db", "t")),
        ("a.b.c.t", ("a", "b", "c", "t")),
        ("db.`my.table`", ("db", "my.table")),
        ("db.`back``tick`", ("db", "back`tick")),
        ("db.with space", ("db", "with space")),
        ("`my db`.t", ("my db", "t")),
        ('db.o\'dd "quotes"', ("db", 'o\'dd "quotes"')),
        ("db.täble", ("db", "täble")),
        ("db.t; DROP TABLE x", ("db", "t; DROP TABLE x")),
    ],
)
def test_a_name_is_read_as_its_parts_and_written_back(text: str, parts: tuple[str, ...]) -> None:
    assert sql.parse_identifier(text) == parts
    assert sql.parse_identifier(sql.identifier(*parts)) == parts
    assert sql.parse_identifier(sql.display_name(parts)) == parts


TABLES = [
    ("db", "t"),
    ("db", "a.t"),
    ("db", "a", "t"),
    ("db", "a", "b", "t"),
    ("db.a", "t"),
    ("a b", "t*"),
    ("a b", "tx"),
]


@pytest.mark.parametrize(
    ("pattern", "taken"),
    [
        ("db.*", [("db", "t"), ("db", "a.t")]),
        ("db.a.*", [("db", "a", "t")]),
        ("db.*.t", [("db", "a", "t")]),
        ("*.t", [("db", "t"), ("db.a", "t")]),
        ("db.?.t", [("db", "a", "t")]),
        ("db.[a-c]*", [("db", "a.t")]),
        ("db.`a.t`", [("db", "a.t")]),
        ("`db.a`.*", [("db.a", "t")]),
        ("db.a.t", [("db", "a", "t")]),
        ("db.**", TABLES[:4]),
        ("**.t", [("db", "t"), ("db", "a", "t"), ("db", "a", "b", "t"), ("db.a", "t")]),
        ("**", TABLES),
        ("`a b`.*", [("a b", "t*"), ("a b", "tx")]),
        ("a b.`t*`", [("a b", "t*")]),
        ("`**`.*", []),
        ("lake.db.*", [("db", "t"), ("db", "a.t")]),
        ("lake.*", []),
        ("DB.*", []),
    ],
)
def test_a_star_stays_within_one_level_of_a_name(pattern: str, taken: list[sql.Identifier]) -> None:
    assert [name for name in TABLES if sql.matches(pattern, name, "lake")] == taken


def test_a_pattern_has_a_wildcard_outside_backticks() -> None:
    assert all(map(sql.is_pattern, ("db.*", "db.t?", "`a b`.[xy]", "**")))
    assert not any(map(sql.is_pattern, ("db.t", "db.`t*`", "`?`.`[a]`")))


@pytest.mark.parametrize(
    "text",
    ["", "t", ".t", "db.", "db..t", "db.`t", "db.`t`x", "db.\0", "db.a`b", "db.a`b.`c`", ".a.b"],
)
def test_what_is_no_name_and_no_pattern_is_refused_with_advice(text: str) -> None:
    for read in (sql.parse_identifier, sql.pattern_levels):
        with pytest.raises(InvalidName, match=r"Write it as|has no namespace"):
            read(text)


def test_identifiers_cannot_end_their_own_quotes() -> None:
    assert sql.identifier("lake", "a`; DROP TABLE b; --") == "`lake`.`a``; DROP TABLE b; --`"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("it's \\ here\n", r"'it\'s \\ here\n'"),
        ("a\rb", r"'a\rb'"),
        # Not taken for a variable.
        ("${spark.app.name}", r"'\u0024{spark.app.name}'"),
        (None, "NULL"),
        (True, "true"),
        (False, "false"),
        (3, "3"),
        (0.5, "0.5"),
    ],
)
def test_a_literal_cannot_end_its_own_quotes(value: str | float | None, written: str) -> None:
    assert sql.literal(value) == written


@pytest.mark.parametrize("name", ["my-table", "größe", "2024", "a b", "it's"])
def test_a_name_that_spark_reads_only_in_backticks_is_shown_in_them(name: str) -> None:
    assert sql.display_name(("db", name)) == f"db.`{name}`"


def test_a_moment_is_a_typed_literal_in_utc_wherever_it_and_the_machine_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        written = [
            sql.literal(dt.datetime(2026, 1, 31, 6, 0, 0, 123_000, zone))
            for zone in (dt.UTC, dt.timezone(dt.timedelta(hours=1)))
        ]
    time.tzset()

    assert written == [
        "TIMESTAMP '2026-01-31 06:00:00.123000+00:00'",
        "TIMESTAMP '2026-01-31 05:00:00.123000+00:00'",
    ]


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        sql.literal(dt.datetime(2026, 1, 31))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("location", "more"),
    [
        *(
            (f"{scheme}://b/t", {"prefix_listing": True})
            for scheme in ("s3", "s3a", "gs", "abfss", "wasbs")
        ),
        *((path, {}) for path in ("file:/tmp/s3/t", "hdfs://name/gs:/t", "/tmp/t")),
    ],
)
def test_orphans_in_an_object_store_are_listed_by_prefix_and_others_by_folder(
    location: str, more: dict[str, bool]
) -> None:
    assert sql.orphan_arguments("db.t", location) == {"table": "db.t", "dry_run": True} | more


@pytest.mark.parametrize(
    ("transform", "written"),
    [
        ("identity", "`a`"),
        ("day", "days(`a`)"),
        ("hour", "hours(`a`)"),
        ("bucket[16]", "bucket(16, `a`)"),
        ("truncate[3]", "truncate(3, `a`)"),
    ],
)
def test_a_transform_is_written_as_sparks_ddl_has_it(transform: str, written: str) -> None:
    assert sql.transform_sql("`a`", transform) == written


SHUFFLE, PLANNING = "spark.sql.shuffle.partitions", "spark.sql.iceberg.planning-mode"


def test_a_statement_quotes_names_and_values_where_spark_needs_it(golden: Golden) -> None:
    statements = [
        sql.unset_properties_sql(("lake", "t"), ["a", "it's"]),
        sql.set_properties_sql(("lake", "db", "t"), {"a.b": "it's", "c": "2"}),
        # A setting is in backticks where Spark reads it only in them.
        sql.set_session_sql(SHUFFLE, "2"),
        sql.set_session_sql(PLANNING, "local"),
        sql.reset_session_sql(SHUFFLE),
        sql.reset_session_sql(PLANNING),
        sql.call_sql(
            "lake",
            "p",
            table="db.t",
            retain_last=10,
            dry_run=False,
            sort_by=("day", "it's"),
            options={"a": "1", "b": "2"},
        ),
        # Whatever is printed of it gets a new sequence number.
        sql.call_sql("lake", "rewrite_data_files", table="db.t"),
    ]

    golden("statements.sql", "\n".join(statements))
