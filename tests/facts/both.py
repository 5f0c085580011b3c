"""Observe a table by both collectors."""

from icekit.api import Lake
from icekit.facts import TableFacts
from tests.tables import Table


def observed_both_ways(lake: Lake, table: str, **options: object) -> TableFacts:
    by_spark = lake.observe(table, collector="spark", **options)
    without_jvm = lake.observe(table, collector="local", **options)

    assert by_spark.collector == "spark"
    assert without_jvm.collector == "local"
    assert by_spark == without_jvm
    return without_jvm


def facts_of(table: Table, **options: object) -> TableFacts:
    return observed_both_ways(table.lake, ".".join(table.name), **options)
