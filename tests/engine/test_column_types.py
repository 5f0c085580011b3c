"""Canary: the table of types says of the running engine what it does. `make test-matrix` runs it on
each version of Spark and Iceberg.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from icekit.api import Lake
from icekit.engine.bridge import temporary_settings
from icekit.engine.column_types import Ability
from icekit.engine.errors import reason
from icekit.health.facts.column_support import order_refusal, unsupported_columns
from icekit.health.facts.sort_order import column_sql
from icekit.rows.proof.fingerprint import fingerprint_of, reading_settings, row_hash
from tests.versions import ENGINE

pytestmark = [pytest.mark.spark, pytest.mark.matrix]

TYPES = [
    *("boolean", "int", "long", "float", "double", "date", "timestamp", "timestamptz", "string"),
    *("uuid", "fixed[4]", "binary", "decimal(12, 2)", "decimal(38, 3)", "unknown", "variant"),
    *("time", "timestamp_ns", "timestamptz_ns"),
    *("geometry", "geometry(OGC:CRS84)", "geometry(EPSG:3857)", "geometry(SRID:0)"),
    *("geometry(EPSG:4326)", "geometry(srid:5070)", "geography", "geography(OGC:CRS84)"),
    *("geography(OGC:CRS84, spherical)", "geography(OGC:CRS84, vincenty)", "geography(EPSG:4326)"),
]
# Where a type can stand in a column.
PLACES: dict[str, Callable[[str], Any]] = {
    "alone": lambda kind: kind,
    "in a struct": lambda kind: {
        "type": "struct",
        "fields": [
            {"id": 3, "name": "x", "required": False, "type": kind},
            {"id": 4, "name": "y", "required": False, "type": "int"},
        ],
    },
    "in a list": lambda kind: {
        "type": "list",
        "element-id": 3,
        "element": kind,
        "element-required": False,
    },
    "in a map": lambda kind: {
        "type": "map",
        "key-id": 3,
        "key": "string",
        "value-id": 4,
        "value": kind,
        "value-required": False,
    },
}


@pytest.fixture
def spark(lake: Lake) -> Iterator[Any]:
    with temporary_settings(lake.spark, reading_settings()):
        yield lake.spark


def with_column(lake: Lake, scratch: str, kind: Any, file_format: str = "parquet") -> str:
    """A table with one row, and now with a column ``c`` of a type that the row's file does not
    have.
    """
    iceberg: Any = lake.spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    name = f"lake.{scratch}.typed"
    if (scratch, "typed") not in lake.tables.names():
        lake.spark.sql(
            f"CREATE TABLE {name} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version'='3')"
        )
        lake.spark.sql(f"INSERT INTO {name} VALUES (1)")
    table = iceberg.spark.Spark3Util.loadIcebergTable(lake.spark._jsparkSession, name)
    if table.schema().findField("c") is not None:
        table.updateSchema().deleteColumn("c").commit()
    field = {"id": 2, "name": "c", "required": False, "type": kind}
    added = iceberg.SchemaParser.fromJson(
        json.dumps({"type": "struct", "schema-id": 0, "fields": [field]})
    )
    table.updateSchema().unionByNameWith(added).commit()
    table.updateProperties().set("write.format.default", file_format).commit()
    # Spark 4.1 does not read a variant that the schema of the snapshot does not have yet.
    table.newFastAppend().commit()
    return name


def failure_of(work: Callable[[], Any]) -> str:
    """What the engine says against some work; empty if it does it."""
    try:
        work()
    except (Py4JError, PySparkException) as error:
        return reason(error)
    return ""


def lacking(lake: Lake, scratch: str, ability: Ability) -> bool:
    """Whether planning says that the engine lacks an ability for the table."""
    source = lake.tables.source((scratch, "typed"))
    metadata = json.loads(source.read(source.metadata_location))
    columns = unsupported_columns(metadata, lake.engine)
    return any(column.ability is ability for column in columns)


@pytest.mark.parametrize("place", PLACES)
def test_what_planning_calls_readable_is_read_and_hashed_and_nothing_else(
    lake: Lake, spark: Any, scratch: str, place: str
) -> None:
    wrong = {}
    for kind in TYPES:
        name = with_column(lake, scratch, PLACES[place](kind))

        def read(name: str = name) -> None:
            rows = spark.sql(f"SELECT * FROM {name}")
            assert fingerprint_of(rows, row_hash(rows.schema)).row_count == 1

        failure = failure_of(read)
        can_read = ENGINE.can(Ability.READ, kind)
        if (failure == "") != can_read or lacking(lake, scratch, Ability.READ) == can_read:
            wrong[kind] = failure
    assert wrong == {}


def rewrite(lake: Lake, name: str, order: str = "") -> Callable[[], Any]:
    """Iceberg's own rewrite of a table."""
    sorting = f"strategy => 'sort', sort_order => '{order}', " if order else ""
    table = name.partition(".")[2]
    return lambda: lake.spark.sql(
        f"CALL lake.system.rewrite_data_files(table => '{table}', {sorting}options => "
        "map('rewrite-all', 'true'))"
    ).collect()


EMPTY = {
    "type": "struct",
    "fields": [{"id": 3, "name": "x", "required": False, "type": "unknown"}],
}
READABLE = [kind for kind in TYPES if ENGINE.can(Ability.READ, kind)]


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("place", PLACES)
def test_what_planning_calls_writable_is_written_and_nothing_else(
    lake: Lake, spark: Any, scratch: str, place: str, file_format: str
) -> None:
    wrong = {}
    kinds = [PLACES[place](kind) for kind in READABLE]
    for kind in [*kinds, *([EMPTY] if place == "alone" else [])]:
        name = with_column(lake, scratch, kind, file_format)

        is_lacking = lacking(lake, scratch, Ability.WRITE)
        failure = failure_of(rewrite(lake, name))
        if (failure != "") != is_lacking:
            wrong[str(kind)] = failure
    assert wrong == {}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["sort", "zorder", "hilbert"])
def test_what_planning_calls_an_order_is_one_and_nothing_else(
    lake: Lake, spark: Any, scratch: str, strategy: str
) -> None:
    wrong = {}
    for kind in READABLE:
        name = with_column(lake, scratch, kind)
        facts = lake.observe((scratch, "typed"))
        order = "c ASC NULLS FIRST" if strategy == "sort" else f"{strategy}(c, id)"

        is_refused = order_refusal(facts, strategy, ["c", "id"]) is not None
        failure = failure_of(rewrite(lake, name, order))
        if (failure != "") != is_refused:
            wrong[kind] = failure
    assert wrong == {}


COLUMNS = [
    ("id BIGINT, c BIGINT", "c"),
    ("id BIGINT, icezvalue BIGINT", "id"),
    ("id BIGINT, ICEHVALUE BIGINT", "id"),
    ("id BIGINT, `a.b` BIGINT", "a.b"),
    ("id BIGINT, `a``b` BIGINT", "a`b"),
    ("id BIGINT, `a b,(x)` BIGINT", "a b,(x)"),
    ("id BIGINT, s STRUCT<x: INT, y: INT>", "s.x"),
    ("id BIGINT, l ARRAY<INT>", "l.element"),
]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["sort", "zorder", "hilbert"])
@pytest.mark.parametrize(("columns", "column"), COLUMNS)
def test_no_order_by_a_name_is_planned_that_iceberg_refuses(
    lake: Lake, scratch: str, columns: str, column: str, strategy: str
) -> None:
    name = f"lake.{scratch}.typed"
    lake.spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg")
    for _ in range(2):
        lake.spark.sql(f"INSERT INTO {name} VALUES (1, NULL)")
    facts = lake.observe((scratch, "typed"))
    term = column_sql(facts.by_name, column)
    order = f"{term} ASC NULLS FIRST" if strategy == "sort" else f"{strategy}({term})"

    is_refused = order_refusal(facts, strategy, [column]) is not None
    failure = failure_of(rewrite(lake, name, order))
    assert (failure != "") == is_refused, failure


@pytest.mark.skipif(not ENGINE.can(Ability.READ, "geometry"), reason="no geometries here")
def test_geometries_are_told_apart_by_their_bytes_and_their_reference_system(spark: Any) -> None:
    def hashed(x: str, system: int) -> int:
        point = f"ST_SetSrid(ST_GeomFromWKB(X'0101000000{x}0000000000000040'), {system})"
        row = spark.sql(f"SELECT {point} AS c, array({point}) AS d")
        return int(row.selectExpr(row_hash(row.schema)).collect()[0][0])

    one, other = "000000000000F03F", "000000000000F0BF"
    assert hashed(one, 4326) == hashed(one, 4326)
    assert len({hashed(one, 4326), hashed(other, 4326), hashed(one, 3857)}) == 3
