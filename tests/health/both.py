"""Observe a table by both collectors."""

from typing import Any

from icekit.health import TableFacts
from tests.tables import Table


def facts_of(table: Table, **options: Any) -> TableFacts:
    by_spark = table.lake.observe(table.name, collector="spark", **options)
    without_jvm = table.lake.observe(table.name, collector="local", **options)

    assert (by_spark.collector, without_jvm.collector) == ("spark", "local")
    assert by_spark == without_jvm
    # Spark's listing of storage has no sizes of all files.
    assert options.get("storage") or by_spark.storage_use == without_jvm.storage_use
    return without_jvm
