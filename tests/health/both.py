"""Observe a table by both collectors."""

from icekit.health import TableFacts
from tests.tables import Table


def facts_of(table: Table, **options: object) -> TableFacts:
    by_spark, without_jvm = (
        table.lake.observe(table.name, collector=collector, **options)
        for collector in ("spark", "local")
    )

    assert (by_spark.collector, without_jvm.collector) == ("spark", "local")
    assert by_spark == without_jvm
    return without_jvm
