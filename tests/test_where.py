"""Predicates hold for the rows of their partitions, for no others, and Iceberg's planner understands them."""

from __future__ import annotations

from typing import Any

import pytest

from icekit.catalog import Lake
from icekit.facts.model import Column, Partition, PartitionField, PartitionSpec
from icekit.sql import identifier
from icekit.where import askable, transformed, unfiltered_fields, where
from tests.factories import FIRST_DAY


def spec(*fields: tuple[str, str], spec_id: int = 0) -> PartitionSpec:
    """A spec over columns a, b, … with the (transform, source type) given."""
    return PartitionSpec(spec_id, tuple(PartitionField(1000 + i, f"f{i}", t, i + 1, "abc"[i], kind) for i, (t, kind) in enumerate(fields)))


def columns(*types: str) -> tuple[Column, ...]:
    return tuple(Column(i + 1, "abc"[i], kind, False, i, "full") for i, kind in enumerate(types))


def predicate(transform: str, kind: str, *values: Any) -> str | None:
    return where("lake", {0: spec((transform, kind))}, columns(kind), [Partition(0, (v,)) for v in values])


def test_consecutive_days_become_one_range() -> None:
    assert predicate("day", "timestamptz", FIRST_DAY, FIRST_DAY + 1) == (
        "`a` >= TIMESTAMP '2026-01-01 00:00:00+00:00' AND `a` < TIMESTAMP '2026-01-03 00:00:00+00:00'"
    )


def test_days_apart_become_ranges_apart() -> None:
    assert predicate("day", "date", FIRST_DAY, FIRST_DAY + 2) == (
        "(`a` >= DATE '2026-01-01' AND `a` < DATE '2026-01-02') OR (`a` >= DATE '2026-01-03' AND `a` < DATE '2026-01-04')"
    )


def test_months_years_and_hours_begin_where_they_do() -> None:
    assert predicate("month", "timestamp", 13) == "`a` >= TIMESTAMP_NTZ '1971-02-01 00:00:00' AND `a` < TIMESTAMP_NTZ '1971-03-01 00:00:00'"
    assert predicate("year", "date", -1) == "`a` >= DATE '1969-01-01' AND `a` < DATE '1970-01-01'"
    assert predicate("hour", "timestamptz", 25) == (
        "`a` >= TIMESTAMP '1970-01-02 01:00:00+00:00' AND `a` < TIMESTAMP '1970-01-02 02:00:00+00:00'"
    )


def test_a_null_partition_is_asked_for_by_is_null() -> None:
    assert predicate("identity", "string", None) == "`a` IS NULL"
    assert predicate("identity", "int", None, 3) == "`a` IS NULL OR `a` = 3"


def test_values_are_quoted() -> None:
    assert predicate("identity", "string", "it's `odd`\\") == r"`a` = 'it\'s `odd`\\'"


def test_buckets_are_asked_through_the_catalogs_function() -> None:
    assert predicate("bucket[8]", "long", 5, 2) == "`lake`.system.bucket(8, `a`) IN (2, 5)"


def test_partitions_of_several_fields_are_put_together() -> None:
    two = spec(("identity", "string"), ("identity", "int"))
    parts = [Partition(0, (x, y)) for x in "pq" for y in (1, 2)]
    assert where("lake", {0: two}, columns("string", "int"), parts) == "`a` IN ('p', 'q') AND `b` IN (1, 2)"
    assert where("lake", {0: two}, columns("string", "int"), parts[:3]) == "(`a` = 'p' AND `b` IN (1, 2)) OR (`a` = 'q' AND `b` = 1)"


def test_a_null_among_values_does_not_bind_wider_than_its_field() -> None:
    two = spec(("identity", "string"), ("identity", "int"))
    parts = [Partition(0, (None, 1)), Partition(0, ("p", 1))]
    assert where("lake", {0: two}, columns("string", "int"), parts) == "(`a` IS NULL OR `a` = 'p') AND `b` = 1"


def test_an_unpartitioned_table_has_no_predicate() -> None:
    assert where("lake", {0: PartitionSpec(0, ())}, (), [Partition(0, ())]) is None


def test_no_partition_at_all_is_false() -> None:
    assert where("lake", {0: spec(("identity", "int"))}, columns("int"), []) == "false"


def test_a_field_whose_column_is_gone_widens_the_predicate_and_is_named() -> None:
    two = spec(("identity", "string"), ("identity", "int"))
    assert where("lake", {0: two}, columns("string"), [Partition(0, ("p", 1))]) == "`a` = 'p'"
    assert unfiltered_fields(two, columns("string")) == ("f1",)


def test_a_void_field_is_left_out() -> None:
    two = spec(("identity", "string"), ("void", "int"))
    assert where("lake", {0: two}, columns("string", "int"), [Partition(0, ("p", None))]) == "`a` = 'p'"
    assert unfiltered_fields(two, columns("string", "int")) == ()


def test_nested_sources_and_names_with_dots_are_told_apart() -> None:
    fields = (PartitionField(1000, "x", "identity", 1, "a.b", "int"), PartitionField(1001, "y", "identity", 2, "a.b", "int"))
    known = (Column(1, "a.b", "int", False, 0, "full", ("a", "b")), Column(2, "a.b", "int", False, 1, "full"))
    assert where("lake", {0: PartitionSpec(0, fields)}, known, [Partition(0, (1, 2))]) == "`a`.`b` = 1 AND `a.b` = 2"


def test_a_partition_field_is_an_expression_over_a_row() -> None:
    field = spec(("truncate[10]", "int")).fields[0]
    assert transformed("lake", field, columns("int")) == "`lake`.system.truncate(10, `a`)"
    assert transformed("lake", field, ()) is None


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
def test_every_transform_selects_its_own_files_and_rows(lake: Lake, scratch: str, transform: str, column: str) -> None:
    spark, name = lake.spark, (scratch, "where of 'it'")
    table = identifier(lake.name, *name)
    by = column if transform == "identity" else transform.format(column) if "{}" in transform else f"{transform}({column})"
    spark.sql(
        f"CREATE TABLE {table} (i int, l bigint, s string, b boolean, dt date, tz timestamp, ntz timestamp_ntz, dec decimal(9, 2), "
        f"bin binary, f double, st struct<`in.ner`: int>) USING iceberg PARTITIONED BY ({by})"
    )
    spark.sql(
        f"INSERT INTO {table} SELECT CAST(id - 3 AS int), id * 7 - 9, concat('it''s %_', id), id % 2 = 0, date_add(DATE '1969-12-30', CAST(id * 20 AS int)), "
        "TIMESTAMP '1969-12-31 22:30:00+00:00' + make_interval(0, 0, 0, 0, CAST(id * 37 AS int)), TIMESTAMP_NTZ '2020-01-31 23:59:59.999999' + make_interval(0, 0, 0, 0, CAST(id * 37 AS int)), "
        "CAST(id * 1.37 - 2 AS decimal(9, 2)), CAST(concat('x', id) AS binary), IF(id = 4, double('NaN'), id / 7), struct(CAST(id % 5 AS int)) FROM range(8) "
        "UNION ALL SELECT null, null, null, null, null, null, null, null, null, null, null"
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
            assert _planned(lake, table, asked) == sum(g.file_count for g in facts.groups if g.partition in chosen), asked


def _planned(lake: Lake, table: str, asked: str | None) -> int:
    """How many files the planner of rewrite_data_files selects."""
    jvm: Any = lake.spark._jvm
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(lake.spark._jsparkSession, table)
    converter = jvm.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
    resolved = converter.collectResolvedSparkExpression(lake.spark._jsparkSession, table, asked)
    planner = jvm.org.apache.iceberg.actions.BinPackRewriteFilePlanner(loaded, converter.convertToIcebergExpression(resolved))
    planner.init({"rewrite-all": "true"})
    groups = planner.plan().groups().iterator()
    count = 0
    while groups.hasNext():
        count += groups.next().inputFileNum()
    return count
