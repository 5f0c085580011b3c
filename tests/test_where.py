"""Predicates hold for the rows of their partitions, for no others, and Iceberg's planner
understands them.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from icekit.api import Lake
from icekit.facts.definition import Column, PartitionField, PartitionSpec
from icekit.facts.files import Partition, Scalar
from icekit.facts.where import (
    among,
    askable,
    between,
    in_units,
    literal_of,
    transformed,
    unfiltered_fields,
    where,
)
from icekit.sql import identifier
from tests.factories import FIRST_DAY


def spec(*fields: tuple[str, str]) -> PartitionSpec:
    """A spec over columns a, b, … with the (transform, source type) given."""
    return PartitionSpec(
        0,
        tuple(
            PartitionField(1000 + i, f"f{i}", t, i + 1, "abc"[i], kind)
            for i, (t, kind) in enumerate(fields)
        ),
    )


def columns(*types: str) -> tuple[Column, ...]:
    return tuple(Column(i + 1, "abc"[i], kind, False, i, "full") for i, kind in enumerate(types))


def predicate(transform: str, kind: str, *values: Any) -> str | None:
    return where(
        "lake", {0: spec((transform, kind))}, columns(kind), [Partition(0, (v,)) for v in values]
    )


def of_two(
    kind: str, values: Sequence[tuple[Scalar, Scalar]], transform: str = "identity"
) -> str | None:
    """A predicate over a column of this kind as it is, and an int under the transform."""
    two = {0: spec(("identity", kind), (transform, "int"))}
    return where("lake", two, columns(kind, "int"), [Partition(0, pair) for pair in values])


def test_consecutive_days_become_one_range() -> None:
    assert predicate("day", "timestamptz", FIRST_DAY, FIRST_DAY + 1) == (
        "`a` >= TIMESTAMP '2026-01-01 00:00:00+00:00' AND `a` < TIMESTAMP '2026-01-03 "
        "00:00:00+00:00'"
    )


def test_days_apart_become_ranges_apart() -> None:
    assert predicate("day", "date", FIRST_DAY, FIRST_DAY + 2) == (
        "(`a` >= DATE '2026-01-01' AND `a` < DATE '2026-01-02') OR (`a` >= DATE '2026-01-03' AND "
        "`a` < DATE '2026-01-04')"
    )


def test_months_years_and_hours_begin_where_they_do() -> None:
    assert (
        predicate("month", "timestamp", 13)
        == "`a` >= TIMESTAMP_NTZ '1971-02-01 00:00:00' AND `a` < TIMESTAMP_NTZ '1971-03-01 "
        "00:00:00'"
    )
    assert predicate("year", "date", -1) == "`a` >= DATE '1969-01-01' AND `a` < DATE '1970-01-01'"
    assert predicate("hour", "timestamptz", 25) == (
        "`a` >= TIMESTAMP '1970-01-02 01:00:00+00:00' AND `a` < TIMESTAMP '1970-01-02 "
        "02:00:00+00:00'"
    )


def test_a_null_partition_is_asked_for_by_is_null() -> None:
    assert predicate("identity", "string", None) == "`a` IS NULL"
    assert predicate("identity", "int", None, 3) == "`a` IS NULL OR `a` = 3"


def test_values_are_quoted() -> None:
    assert predicate("identity", "string", "it's `odd`\\") == r"`a` = 'it\'s `odd`\\'"


def test_buckets_are_asked_through_the_catalogs_function() -> None:
    assert predicate("bucket[8]", "long", 5, 2) == "`lake`.system.bucket(8, `a`) IN (2, 5)"


def test_partitions_of_several_fields_are_put_together() -> None:
    parts = [(x, y) for x in "pq" for y in (1, 2)]
    assert of_two("string", parts) == "`a` IN ('p', 'q') AND `b` IN (1, 2)"
    assert of_two("string", parts[:3]) == "(`a` = 'p' AND `b` IN (1, 2)) OR (`a` = 'q' AND `b` = 1)"


def test_a_null_among_values_does_not_bind_wider_than_its_field() -> None:
    assert of_two("string", [(None, 1), ("p", 1)]) == "(`a` IS NULL OR `a` = 'p') AND `b` = 1"


def test_an_unpartitioned_table_has_no_predicate() -> None:
    assert where("lake", {0: PartitionSpec(0, ())}, (), [Partition(0, ())]) is None


def test_no_partition_at_all_is_false() -> None:
    assert where("lake", {0: spec(("identity", "int"))}, columns("int"), []) == "false"


def test_a_field_whose_column_is_gone_widens_the_predicate_and_is_named() -> None:
    two = spec(("identity", "string"), ("identity", "int"))
    assert where("lake", {0: two}, columns("string"), [Partition(0, ("p", 1))]) == "`a` = 'p'"
    assert unfiltered_fields(two, columns("string")) == ("f1",)


def test_a_void_field_is_left_out() -> None:
    assert of_two("string", [("p", None)], "void") == "`a` = 'p'"
    assert (
        unfiltered_fields(spec(("identity", "string"), ("void", "int")), columns("string", "int"))
        == ()
    )


def test_nested_sources_and_names_with_dots_are_distinguished() -> None:
    fields = (
        PartitionField(1000, "x", "identity", 1, "a.b", "int"),
        PartitionField(1001, "y", "identity", 2, "a.b", "int"),
    )
    known = (
        Column(1, "a.b", "int", False, 0, "full", ("a", "b")),
        Column(2, "a.b", "int", False, 1, "full"),
    )
    assert (
        where("lake", {0: PartitionSpec(0, fields)}, known, [Partition(0, (1, 2))])
        == "`a`.`b` = 1 AND `a.b` = 2"
    )


def test_a_field_whose_column_is_gone_is_no_expression() -> None:
    field = spec(("truncate[10]", "int")).fields[0]
    assert transformed("lake", field, ()) is None


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        ("string", "it's", r"'it\'s'"),
        ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7", "'f79c3e09-677c-4bbd-a479-3f349cb785e7'"),
        ("boolean", True, "true"),
        ("int", 7, "7"),
        ("long", 7, "7L"),
        ("date", 1, "DATE '1970-01-02'"),
        ("date", -1, "DATE '1969-12-31'"),
        ("timestamptz", 1, "TIMESTAMP '1970-01-01 00:00:00.000001+00:00'"),
        ("timestamptz", -1, "TIMESTAMP '1969-12-31 23:59:59.999999+00:00'"),
        ("timestamp", 86_400_000_000, "TIMESTAMP_NTZ '1970-01-02 00:00:00'"),
        ("timestamp", 1_500_000, "TIMESTAMP_NTZ '1970-01-01 00:00:01.500000'"),
        ("float", 1.5, "CAST('1.5' AS FLOAT)"),
        ("double", "nan", "CAST('nan' AS DOUBLE)"),
        ("decimal(9, 2)", "1.20", "CAST('1.20' AS DECIMAL(9, 2))"),
        ("binary", "00ff", "X'00ff'"),
        ("fixed[2]", "00ff", "X'00ff'"),
    ],
)
def test_a_value_is_a_literal_of_its_columns_type(kind: str, value: Scalar, written: str) -> None:
    assert literal_of(kind, value) == written


@pytest.mark.parametrize("kind", ["timestamp_ns", "timestamptz_ns"])
def test_nanoseconds_are_not_taken_for_microseconds(kind: str) -> None:
    with pytest.raises(ValueError, match="end at microseconds"):
        literal_of(kind, 1)
    assert predicate("identity", kind, 1) is None
    assert predicate("identity", kind, None) == "`a` IS NULL"
    assert not askable(spec(("identity", kind)), Partition(0, (1,)))
    assert askable(spec(("identity", kind)), Partition(0, (None,)))


def test_some_values_are_asked_for_in_their_own_order() -> None:
    assert among("t", "int", [10, 9, 2]) == "t IN (2, 9, 10)"
    assert among("t", "string", ["b", "10", "9"]) == "t IN ('10', '9', 'b')"
    assert (
        among("t", "double", ["nan", 1.5]) == "t IN (CAST('1.5' AS DOUBLE), CAST('nan' AS DOUBLE))"
    )
    assert among("t", "date", [1, 0]) == "t IN (DATE '1970-01-01', DATE '1970-01-02')"


def test_bounds_are_both_included() -> None:
    assert between("t", "date", 0, 1) == "t >= DATE '1970-01-01' AND t <= DATE '1970-01-02'"
    assert between("t", "long", 2, 3) == "t >= 2L AND t <= 3L"


def test_runs_of_months_end_at_the_first_moment_after_them() -> None:
    # Months 23 to 24 are December 1971 and January 1972; 26 is March 1972.
    assert in_units("m", "date", "month", [23, 24, 26]) == [
        "(m >= DATE '1971-12-01' AND m < DATE '1972-02-01')",
        "(m >= DATE '1972-03-01' AND m < DATE '1972-04-01')",
    ]


def test_a_null_beside_times_is_asked_for_too() -> None:
    assert (
        predicate("day", "date", None, 0)
        == "`a` IS NULL OR `a` >= DATE '1970-01-01' AND `a` < DATE '1970-01-02'"
    )


def test_values_of_an_identity_field_have_their_columns_type_and_those_of_a_bucket_are_int() -> (
    None
):
    assert predicate("identity", "long", 5, 2) == "`a` IN (2L, 5L)"
    assert predicate("bucket[8]", "date", 5) == "`lake`.system.bucket(8, `a`) = 5"
    assert predicate("truncate[2]", "string", "ab") == "`lake`.system.truncate(2, `a`) = 'ab'"


@pytest.mark.parametrize("kind", ["float", "double"])
def test_not_a_number_is_asked_for_by_isnan(kind: str) -> None:
    assert predicate("identity", kind, "nan") == "isnan(`a`)"
    assert (
        predicate("identity", kind, "nan", 1.5)
        == f"isnan(`a`) OR `a` = CAST('1.5' AS {kind.upper()})"
    )
    assert predicate("identity", kind, 1.5) == f"`a` = CAST('1.5' AS {kind.upper()})"
    assert predicate("identity", "string", "nan") == "`a` = 'nan'"


def test_a_uuid_is_a_text_in_a_query_and_itself_in_a_procedure() -> None:
    bucket, known, chosen = {0: spec(("bucket[8]", "uuid"))}, columns("uuid"), [Partition(0, (3,))]

    assert where("lake", bucket, known, chosen) == "`lake`.system.bucket(8, `a`) = 3"
    assert (
        where("lake", bucket, known, chosen, of_rows=True)
        == "`lake`.system.bucket(8, unhex(replace(`a`, '-', ''))) = 3"
    )


def test_alternatives_come_in_the_order_of_their_values_nulls_first() -> None:
    assert of_two("int", [(10, 1), (9, 2), (None, 3)]) == (
        "(`a` IS NULL AND `b` = 3) OR (`a` = 9 AND `b` = 2) OR (`a` = 10 AND `b` = 1)"
    )


@pytest.mark.parametrize(
    ("transform", "kind", "last"),
    [
        # The last that can be asked for; the range of the next would end in the year 10000, which
        # has no literal.
        ("year", "int", 8028),
        ("month", "int", 8029 * 12 + 10),
        ("day", "date", 2_932_895),
        ("hour", "int", 2_932_897 * 24 - 2),
        ("identity", "date", 2_932_896),
    ],
)
def test_times_are_askable_up_to_the_year_9999(transform: str, kind: str, last: int) -> None:
    by_time = spec((transform, kind))

    assert askable(by_time, Partition(0, (last,)))
    assert not askable(by_time, Partition(0, (last + 1,)))
    assert askable(by_time, Partition(0, (None,)))


@pytest.mark.parametrize(
    ("transform", "kind", "value", "expected"),
    [
        ("identity", "int", 10**9, True),
        ("bucket[8]", "int", 10**9, True),
        ("truncate[10]", "long", 10**18, True),
        ("identity", "string", "nan", True),
        ("identity", "float", "nan", False),
        ("identity", "double", "nan", False),
        ("identity", "double", 0.5, True),
    ],
)
def test_values_are_askable_unless_iceberg_has_no_filter_for_them(
    transform: str, kind: str, value: Scalar, expected: bool
) -> None:
    assert (
        askable(spec(("identity", "string"), (transform, kind)), Partition(0, ("x", value)))
        is expected
    )


@pytest.mark.parametrize(
    ("transform", "kind", "expression"),
    [
        ("identity", "int", "`a`"),
        ("day", "date", "`lake`.system.days(`a`)"),
        ("bucket[8]", "uuid", "`lake`.system.bucket(8, unhex(replace(`a`, '-', '')))"),
        ("truncate[3]", "string", "`lake`.system.truncate(3, `a`)"),
        ("void", "int", None),
        ("shiny[3]", "int", None),
    ],
)
def test_each_transform_is_an_expression_of_its_own(
    transform: str, kind: str, expression: str | None
) -> None:
    assert transformed("lake", spec((transform, kind)).fields[0], columns(kind)) == expression


def test_a_transform_that_is_not_known_cannot_be_asked_for() -> None:
    assert unfiltered_fields(
        spec(("shiny[3]", "int"), ("day", "date")), columns("int", "date")
    ) == ("f0",)


_SPECS = {
    "identity": ["i", "l", "s", "b", "dt", "tz", "ntz", "dec", "bin", "f", "st.`in.ner`"],
    "years": ["dt", "tz", "ntz"],
    "months": ["dt", "tz"],
    "days": ["dt", "tz", "ntz"],
    "hours": ["tz", "ntz"],
    "bucket(4, {})": ["i", "s", "dt", "st.`in.ner`", "dec", "bin"],
    "truncate(2, {})": ["i", "l", "s", "dec", "bin"],
}


@pytest.mark.spark
@pytest.mark.parametrize(("transform", "column"), [(t, c) for t, cs in _SPECS.items() for c in cs])
def test_every_transform_selects_its_own_files_and_rows(
    lake: Lake, scratch: str, transform: str, column: str
) -> None:
    spark, name = lake.spark, (scratch, "where of 'it'")
    table = identifier(lake.name, *name)
    by = (
        column
        if transform == "identity"
        else transform.format(column)
        if "{}" in transform
        else f"{transform}({column})"
    )
    spark.sql(
        f"CREATE TABLE {table} (i int, l bigint, s string, b boolean, dt date, tz timestamp, ntz "
        "timestamp_ntz, dec decimal(9, 2), bin binary, f double, st struct<`in.ner`: int>) USING "
        f"iceberg PARTITIONED BY ({by})"
    )
    spark.sql(
        f"INSERT INTO {table} SELECT CAST(id - 3 AS int), id * 7 - 9, concat('it''s %_', id), id "
        "% 2 = 0, date_add(DATE '1969-12-30', CAST(id * 20 AS int)), TIMESTAMP '1969-12-31 "
        "22:30:00+00:00' + make_interval(0, 0, 0, 0, CAST(id * 37 AS int)), TIMESTAMP_NTZ "
        "'2020-01-31 23:59:59.999999' + make_interval(0, 0, 0, 0, CAST(id * 37 AS int)), CAST(id "
        "* 1.37 - 2 AS decimal(9, 2)), CAST(concat('x', id) AS binary), IF(id = 4, double('NaN'), "
        "id / 7), struct(CAST(id % 5 AS int)) FROM range(8) UNION ALL SELECT null, null, null, "
        "null, null, null, null, null, null, null, null"
    )
    facts = lake.observe(name, collector="local")
    specs = {s.spec_id: s for s in facts.specs}
    partitions = list(facts.partitions())
    assert len(partitions) > 1
    for chosen in (partitions[:1], partitions[-1:], partitions[:2], partitions[1:]):
        asked = where(lake.name, specs, facts.columns, chosen)
        rows = sum(g.record_count for g in facts.groups if g.partition in chosen)
        assert spark.sql(f"SELECT count(*) FROM {table} WHERE {asked}").first() == (rows,), asked
        if all(askable(specs[p.spec_id], p) for p in chosen):
            assert _planned(lake, table, asked) == sum(
                g.file_count for g in facts.groups if g.partition in chosen
            ), asked


def _planned(lake: Lake, table: str, asked: str | None) -> int:
    """How many files the planner of rewrite_data_files selects."""
    jvm: Any = lake.spark._jvm
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        lake.spark._jsparkSession, table
    )
    converter = jvm.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
    resolved = converter.collectResolvedSparkExpression(lake.spark._jsparkSession, table, asked)
    planner = jvm.org.apache.iceberg.actions.BinPackRewriteFilePlanner(
        loaded, converter.convertToIcebergExpression(resolved)
    )
    planner.init({"rewrite-all": "true"})
    groups = planner.plan().groups().iterator()
    count = 0
    while groups.hasNext():
        count += groups.next().inputFileNum()
    return count
