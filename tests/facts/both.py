"""Observe a table by both collectors."""

from icekit.api import Lake
from icekit.facts import TableFacts


def observed_both_ways(lake: Lake, table: str, **options: object) -> TableFacts:
    by_spark = lake.observe(table, collector="spark", **options)
    without_jvm = lake.observe(table, collector="local", **options)

    assert by_spark.collector == "spark"
    assert without_jvm.collector == "local"
    assert by_spark == without_jvm
    return without_jvm
