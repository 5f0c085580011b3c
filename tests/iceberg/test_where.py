"""Predicates hold for the rows of their partitions, for no others, and Iceberg's planner
understands them.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from icekit.api import Lake
from icekit.common.sql import Identifier, identifier
from icekit.engine.bridge import elements, load_table
from icekit.engine.planner import filter_expression
from icekit.iceberg.definition import Column, PartitionField, PartitionSpec
from icekit.iceberg.partition import Partition, Scalar
from icekit.iceberg.where import (
    field_expression,
    fields_without_column,
    in_range,
    in_values,
    is_filterable,
    literal_of,
    unit_range_predicates,
    where,
)
from tests.factories import FIRST_DAY
from tests.golden import Golden


def spec(*fields: str) -> PartitionSpec:
    """A spec over columns a, b, … with a transform and a source type each, as "day date"."""
    return PartitionSpec(
        0,
        tuple(
            PartitionField(1000 + i, f"f{i}", transform, i + 1, "abc"[i], kind)
            for i, (transform, kind) in enumerate(field.split() for field in fields)
        ),
    )


def columns(*types: str) -> tuple[Column, ...]:
    return tuple(Column(i + 1, "abc"[i], kind, False, i, "full") for i, kind in enumerate(types))


def of_two(
    kind: str, values: Sequence[tuple[Scalar, Scalar]], transform: str = "identity"
) -> str | None:
    """A predicate over a column of this kind as it is, and an int under the transform."""
    two = {0: spec(f"identity {kind}", f"{transform} int")}
    return where("lake", two, columns(kind, "int"), [Partition(0, pair) for pair in values])


PARTITIONS: list[tuple[str, str, list[Scalar]]] = [
    ("day", "timestamptz", [FIRST_DAY, FIRST_DAY + 1]),
    ("day", "date", [FIRST_DAY, FIRST_DAY + 2]),
    ("day", "date", [None, 0]),
    ("month", "timestamp", [13]),
    ("year", "date", [-1]),
    ("hour", "timestamptz", [25]),
    ("identity", "string", [None]),
    ("identity", "int", [None, 3]),
    ("identity", "string", ["it's `odd`\\"]),
    ("identity", "long", [5, 2]),
    ("bucket[8]", "long", [5, 2]),
    ("bucket[8]", "uuid", [3]),
    ("truncate[2]", "string", ["ab"]),
    ("identity", "float", ["nan"]),
    ("identity", "double", ["nan", 1.5]),
    ("identity", "string", ["nan"]),
    ("identity", "timestamp_ns", [1]),
    ("identity", "timestamptz_ns", [None]),
    ("identity", "int", []),
]


def test_each_transform_and_type_has_a_predicate(golden: Golden) -> None:
    lines = []
    for transform, kind, values in PARTITIONS:
        by, partitions = spec(f"{transform} {kind}"), [Partition(0, (value,)) for value in values]
        lines.append(
            f"{transform} {kind} {values}\n  {where('lake', {0: by}, columns(kind), partitions)}"
        )

    golden("where/predicates.txt", "\n".join(lines))


def test_partitions_of_several_fields_are_put_together() -> None:
    parts = [(x, y) for x in "pq" for y in (1, 2)]
    assert of_two("string", parts) == "`a` IN ('p', 'q') AND `b` IN (1, 2)"
    assert of_two("string", parts[:3]) == "(`a` = 'p' AND `b` IN (1, 2)) OR (`a` = 'q' AND `b` = 1)"
    assert of_two("string", [(None, 1), ("p", 1)]) == "(`a` IS NULL OR `a` = 'p') AND `b` = 1"
    # In the order of their values, nulls first.
    assert of_two("int", [(10, 1), (9, 2), (None, 3)]) == (
        "(`a` IS NULL AND `b` = 3) OR (`a` = 9 AND `b` = 2) OR (`a` = 10 AND `b` = 1)"
    )


def test_a_field_whose_column_is_gone_widens_the_predicate_and_is_named() -> None:
    two = spec("identity string", "identity int")
    assert where("lake", {0: two}, columns("string"), [Partition(0, ("p", 1))]) == "`a` = 'p'"
    assert fields_without_column(two, columns("string")) == ("f1",)
    # An unpartitioned table has none.
    assert where("lake", {0: spec()}, (), [Partition(0, ())]) is None


def test_a_void_field_is_left_out_and_an_unknown_transform_is_named() -> None:
    assert of_two("string", [("p", None)], "void") == "`a` = 'p'"
    three = spec("identity string", "void int", "shiny[3] int")
    assert fields_without_column(three, columns("string", "int", "int")) == ("f2",)


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


VALUES: list[tuple[str, Scalar]] = [
    ("string", "it's"),
    ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
    ("boolean", True),
    ("int", 7),
    ("long", 7),
    ("date", 1),
    ("date", -1),
    ("timestamptz", 1),
    ("timestamptz", -1),
    ("timestamp", 86_400_000_000),
    ("timestamp", 1_500_000),
    ("float", 1.5),
    ("double", "nan"),
    ("decimal(9, 2)", "1.20"),
    ("binary", "00ff"),
    ("fixed[2]", "00ff"),
]


def test_a_value_is_a_literal_of_its_columns_type(golden: Golden) -> None:
    lines = [f"{kind} {value}: {literal_of(kind, value)}" for kind, value in VALUES]

    golden("where/literals.txt", "\n".join(lines))


@pytest.mark.parametrize("kind", ["timestamp_ns", "timestamptz_ns"])
def test_nanoseconds_are_not_taken_for_microseconds(kind: str) -> None:
    with pytest.raises(ValueError, match="end at microseconds"):
        literal_of(kind, 1)
    assert not is_filterable(spec(f"identity {kind}"), Partition(0, (1,)))
    assert is_filterable(spec(f"identity {kind}"), Partition(0, (None,)))


def test_some_values_are_asked_for_in_their_own_order_and_bounds_are_included() -> None:
    assert in_values("t", "int", [10, 9, 2]) == "t IN (2, 9, 10)"
    assert in_values("t", "string", ["b", "10", "9"]) == "t IN ('10', '9', 'b')"
    assert (
        in_values("t", "double", ["nan", 1.5])
        == "t IN (CAST('1.5' AS DOUBLE), CAST('nan' AS DOUBLE))"
    )
    assert in_range("t", "date", 0, 1) == "t >= DATE '1970-01-01' AND t <= DATE '1970-01-02'"


def test_runs_of_months_end_at_the_first_moment_after_them() -> None:
    # Months 23 to 24 are December 1971 and January 1972; 26 is March 1972.
    assert unit_range_predicates("m", "date", "month", [23, 24, 26]) == [
        "(m >= DATE '1971-12-01' AND m < DATE '1972-02-01')",
        "(m >= DATE '1972-03-01' AND m < DATE '1972-04-01')",
    ]


def test_a_uuid_is_a_text_in_a_query() -> None:
    by = {0: spec("bucket[8] uuid")}

    assert (
        where("lake", by, columns("uuid"), [Partition(0, (3,))], is_for_query=True)
        == "`lake`.system.bucket(8, unhex(replace(`a`, '-', ''))) = 3"
    )


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
        # Up to the year 9999: the range of the next value would end in the year 10000, which has no
        # literal.
        ("year", "int", 8028, True),
        ("year", "int", 8029, False),
        ("month", "int", 8029 * 12 + 10, True),
        ("month", "int", 8029 * 12 + 11, False),
        ("day", "date", 2_932_895, True),
        ("day", "date", 2_932_896, False),
        ("hour", "int", 2_932_897 * 24 - 2, True),
        ("hour", "int", 2_932_897 * 24 - 1, False),
        ("identity", "date", 2_932_896, True),
        ("identity", "date", 2_932_897, False),
        ("day", "date", None, True),
    ],
)
def test_values_are_askable_unless_iceberg_has_no_filter_for_them(
    transform: str, kind: str, value: Scalar, expected: bool
) -> None:
    by = spec("identity string", f"{transform} {kind}")

    assert is_filterable(by, Partition(0, ("x", value))) is expected


def test_each_transform_is_an_expression_of_its_own(golden: Golden) -> None:
    fields = [
        "identity int",
        "day date",
        "bucket[8] uuid",
        "truncate[3] string",
        "void int",
        "shiny[3] int",
    ]
    lines = [
        f"{field}: {field_expression('lake', spec(field).fields[0], columns(field.split()[1]))}"
        for field in fields
    ]

    golden("where/expressions.txt", "\n".join(lines))


_SPECS = {
    "{}": ["i", "l", "s", "b", "dt", "tz", "ntz", "dec", "bin", "f", "st.`in.ner`"],
    "years({})": ["dt", "tz", "ntz"],
    "months({})": ["dt", "tz"],
    "days({})": ["dt", "tz", "ntz"],
    "hours({})": ["tz", "ntz"],
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
    spark.sql(
        f"CREATE TABLE {table} (i int, l bigint, s string, b boolean, dt date, tz timestamp, ntz "
        "timestamp_ntz, dec decimal(9, 2), bin binary, f double, st struct<`in.ner`: int>) USING "
        f"iceberg PARTITIONED BY ({transform.format(column)})"
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
        if all(is_filterable(specs[p.spec_id], p) for p in chosen):
            assert _planned(lake, (lake.name, *name), asked or "") == sum(
                g.file_count for g in facts.groups if g.partition in chosen
            ), asked


def _planned(lake: Lake, table: Identifier, asked: str) -> int:
    """How many files the planner of rewrite_data_files selects."""
    jvm: Any = lake.spark._jvm
    planner = jvm.org.apache.iceberg.actions.BinPackRewriteFilePlanner(
        load_table(lake.spark, table), filter_expression(lake.spark, table, asked)
    )
    planner.init({"rewrite-all": "true"})
    return sum(group.inputFileNum() for group in elements(planner.plan().groups()))
