"""A print tells rows apart, and does not tell their order."""

from collections.abc import Callable, Iterator

import pytest

from icekit.api import Lake
from icekit.rows.proof.fingerprint import MODULUS, Fingerprint, fingerprint, row_hash
from tests.versions import variants

pytestmark = [pytest.mark.spark, pytest.mark.core("*")]

Printed = Callable[[str], Fingerprint]


@pytest.fixture
def printed(lake: Lake) -> Iterator[Printed]:
    """The print of a query's rows."""

    def of(query: str) -> Fingerprint:
        lake.spark.sql(query).createOrReplaceTempView("printed")
        return fingerprint(lake.spark, ("printed",))[()]

    yield of
    lake.spark.catalog.dropTempView("printed")


def test_two_prints_added_are_the_print_of_the_union(printed: Printed) -> None:
    one, other = (
        printed("SELECT * FROM VALUES (1, 'a'), (2, 'b')"),
        printed("SELECT * FROM VALUES (3, 'c'), (1, 'a')"),
    )

    assert one + other == printed("SELECT * FROM VALUES (1, 'a'), (1, 'a'), (2, 'b'), (3, 'c')")
    assert Fingerprint(1, MODULUS - 1) + Fingerprint(2, 3) == Fingerprint(3, 2)
    assert printed("SELECT 1 AS a WHERE false") == Fingerprint()


def test_the_sum_is_that_of_the_unsigned_hashes(lake: Lake, printed: Printed) -> None:
    query = "SELECT id, CAST(id AS STRING) AS text FROM range(1000)"
    hashed = row_hash(lake.spark.sql(query).schema)
    summed = lake.spark.sql(
        f"SELECT sum(CAST({hashed} AS DECIMAL(38, 0)) + if({hashed} < 0, 18446744073709551616, "
        f"0)) FROM ({query})"
    )

    assert printed(query) == Fingerprint(1000, int(summed.collect()[0][0]))


def test_order_and_number_of_tasks_do_not_matter(lake: Lake) -> None:
    rows = lake.spark.range(10_000).selectExpr("id", "id % 7 AS a", "array(id, null) AS b")
    prints = set()
    for ordered in (rows.coalesce(1), rows.repartition(5), rows.orderBy("a", rows.id.desc())):
        ordered.createOrReplaceTempView("permuted")
        prints.add(fingerprint(lake.spark, ("permuted",))[()])

    assert len(prints) == 1


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("a duplicated row", "(1, 'a'), (1, 'a'), (2, 'b'), (3, 'c')"),
        ("a row in place of another", "(1, 'a'), (1, 'a'), (3, 'c')"),
        ("one cell", "(1, 'a'), (2, 'x'), (3, 'c')"),
        ("cells swapped between rows", "(1, 'b'), (2, 'a'), (3, 'c')"),
        ("a cell that became null", "(1, 'a'), (2, null), (3, 'c')"),
        ("a lost row", "(1, 'a'), (2, 'b')"),
    ],
)
def test_damage_changes_the_print(printed: Printed, what: str, changed: str) -> None:
    assert printed(f"SELECT * FROM VALUES {changed} AS t(id, text)") != printed(
        "SELECT * FROM VALUES (1, 'a'), (2, 'b'), (3, 'c') AS t(id, text)"
    )


# Values of one type, no two of which are the same.
DISTINCT = {
    "struct<a: int, b: int>": (
        "named_struct('a', 1, 'b', null), named_struct('a', null, 'b', 1), "
        "named_struct('a', 1, 'b', 1), named_struct('a', null, 'b', null)"
    ),
    "boolean": "true, false, null",
    "string": "'', '0', 'a', 'a ', 'A', 'ä', null",
    "binary": "X'', X'00', X'0000', null",
    "double": "0D, 1D, double('NaN'), double('Infinity'), -double('Infinity'), null",
    "decimal(38, 2)": "0, 1, 0.01, -1, null, 123456789012345678901234567890.12",
    "timestamp": "'2013-01-01 00:00:00Z', '2013-01-01 00:00:00.000001Z', null",
    "timestamp_ntz": "'2013-01-01 00:00:00', '1969-12-31 23:59:59.5', null",
    "date": "'2013-01-01', '1970-01-01', null",
    "struct<a: int, b: struct<c: int>>": (
        "named_struct('a', 1, 'b', named_struct('c', null)), "
        "named_struct('a', null, 'b', named_struct('c', 1)), "
        "named_struct('a', null, 'b', named_struct('c', null)), "
        "named_struct('a', null, 'b', null), null"
    ),
    "array<int>": (
        "array(), array(null), array(null, null), array(0), array(1, null), array(null, 1), "
        "array(1, 2), array(2, 1), null"
    ),
    "array<array<int>>": (
        "array(), array(array()), array(array(), array()), array(null), array(array(1), array(2)), "
        "array(array(1, 2)), array(array(1, 2), array()), array(array(), array(1, 2)), null"
    ),
    "map<string, int>": (
        "map(), map('a', 1), map('a', null), map('b', 1), map('a', 1, 'b', 2), "
        "map('a', 2, 'b', 1), null"
    ),
    "map<string, array<struct<x: int, y: map<int, string>>>>": (
        "map('a', array(named_struct('x', 1, 'y', map(1, 'p', 2, 'q')))), "
        "map('a', array(named_struct('x', 1, 'y', map(1, 'q', 2, 'p')))), "
        "map('a', array(named_struct('x', 1, 'y', null))), "
        "map('a', array(named_struct('x', 1, 'y', map()))), "
        "map('a', array(null)), map('a', array()), map('a', null), map()"
    ),
    "variant": (
        "parse_json('1'), parse_json('1.5'), parse_json('\"1\"'), parse_json('null'), "
        "parse_json('{}'), parse_json('[]'), parse_json('{\"a\":1}'), "
        "parse_json('{\"a\":null}'), parse_json('{\"a\":[1,2]}'), parse_json('{\"a\":[2,1]}'), "
        "CAST(DATE '2013-01-01' AS variant), CAST('2013-01-01' AS variant), null"
    ),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=variants) if kind == "variant" else kind for kind in DISTINCT]
)
def test_different_values_have_different_prints(lake: Lake, kind: str) -> None:
    values = f"CAST(array({DISTINCT[kind]}) AS array<{kind}>)"
    rows = lake.spark.sql(f"SELECT explode({values}) AS v")

    hashes = [row[0] for row in rows.selectExpr(row_hash(rows.schema)).collect()]

    assert len({*hashes}) == len(hashes) > 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0D", "-0D"),
        ("array(0F)", "array(-0F)"),
        ("double('NaN')", "sqrt(-1D)"),
        ("map('a', 1, 'b', null)", "map('b', null, 'a', 1)"),
        (
            "CAST('2013-01-01 00:00:00+00:00' AS timestamp)",
            "CAST('2013-01-01 05:30:00+05:30' AS timestamp)",
        ),
        pytest.param(
            'parse_json(\'{"a": 1, "b": 2}\')', 'parse_json(\'{"b":2,"a":1}\')', marks=variants
        ),
    ],
)
def test_values_that_sql_calls_equal_have_equal_prints(
    printed: Printed, one: str, other: str
) -> None:
    assert printed(f"SELECT {one} AS v") == printed(f"SELECT {other} AS v")


def test_a_schema_says_which_columns_to_compare_and_as_what(lake: Lake, printed: Printed) -> None:
    lake.spark.sql("SELECT 1 AS a, 2.5F AS b, 'left out' AS c").createOrReplaceTempView("narrow")
    promoted = lake.spark.sql("SELECT 1L AS a, 2.5D AS b")

    assert fingerprint(lake.spark, ("narrow",), schema=promoted.schema)[()] == printed(
        "SELECT 1L AS a, 2.5D AS b"
    )


def test_odd_names_are_names_like_others(printed: Printed) -> None:
    odd = (
        "named_struct('x.y', 1, 'it''s `odd`', 2) AS `s.t \"u\"`, 3 AS `back``tick`, 4 AS `e0`, "
        "array(5) AS `k0`, 6 AS h"
    )

    assert printed(f"SELECT {odd}") == printed(
        "SELECT named_struct('a', 1, 'b', 2) AS s, 3 AS c, 4 AS d, array(5) AS f, 6 AS g"
    )
