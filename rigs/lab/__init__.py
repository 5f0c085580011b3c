"""Build the lab: tables with one known problem each, from a year of real flights.

Many commits of real writers (Spark, pyiceberg, and Iceberg's Java API as Flink uses it) create
each table; only those of :mod:`rigs.lab.damaged` need a file that was
changed or removed by hand.
The target file size is 256 KiB (``write.target-file-size-bytes``) instead of 512
MB, so that a table that fits on a laptop has the shape of a large one. Every table has exactly the
findings that its :class:`LabTable` names; the healthy tables have none.

``python -m rigs.lab`` writes them into the archives that :mod:`icekit.learn.lab` unpacks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from icekit.common.errors import require_known
from icekit.common.sql import identifier
from icekit.common.terminal import report_waiting
from icekit.common.units import count
from icekit.engine.bridge import temporary_settings
from icekit.engine.tables import EmbeddedTables
from icekit.learn.lab import NAMESPACE, lake_folder
from rigs.lab import damaged, deletes, flights, tables  # noqa: F401 - they register
from rigs.lab.workbench import (
    FLIGHTS,
    TABLES,
    Lab,
    LabTable,
    is_complete,
)

if TYPE_CHECKING:
    from icekit.engine.lake import Lake

# Fixed settings, so that the files do not depend on the machine: otherwise the number of
# cores decides how many tasks share a partition, and thus how many files it has.
_SESSION = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}


def build(
    lake: Lake,
    names: Iterable[str] | None = None,
    *,
    rebuild: bool = False,
    progress: Callable[[str], None] = print,
) -> list[str]:
    """Build the lab's tables, or the named ones; returns the names of the tables that were built.

    Complete tables are left alone unless ``rebuild`` is set. Raises
    :class:`~icekit.common.errors.ParameterError` for a name that is not in :data:`TABLES`, or a
    catalog other than the embedded lake.
    """
    wanted = [table_of(name) for name in dict.fromkeys(names if names is not None else TABLES)]
    lake_folder(lake)
    todo = []
    for table in wanted:
        if rebuild or not is_complete(lake, table.name):
            todo.append(table)
        else:
            progress(f"{table.name:<28} exists")
    if not todo:
        return []
    started = time.monotonic()
    with bench(lake, lake_folder(lake) / "lab-flights.parquet") as make:
        progress(f"{'(Spark and the flights)':<28} {time.monotonic() - started:5.1f} s")
        for number, table in enumerate(todo, 1):
            begun = time.monotonic()
            name = f"[{number}/{len(todo)}] {NAMESPACE}.{table.name}"
            with report_waiting(name):
                make(table.name)
            progress(f"{name:<38} {time.monotonic() - begun:5.1f} s  {table.illness}")
    progress(f"{count(len(todo), 'table')} in {time.monotonic() - started:.0f} s")
    return [table.name for table in todo]


@contextlib.contextmanager
def bench(lake: Lake, path: Path) -> Iterator[Callable[[str], None]]:
    """Write the flights into a file, start both engines, and give a function that builds a table
    by name; clean up afterwards.
    """
    flights.source()  # a missing package is reported before Spark starts
    spark = lake.spark
    catalog = EmbeddedTables(lake_folder(lake)).catalog(lake.name)
    try:
        with report_waiting("writing the flights"):
            flights.write(path)
        with temporary_settings(spark, _SESSION):
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, NAMESPACE)}")
            spark.read.parquet(str(path)).createOrReplaceTempView(FLIGHTS)

            def make(name: str) -> None:
                lab = Lab(lake, spark, catalog, path, name)
                lab.start()
                table_of(name).build(lab)
                lab.finish()

            yield make
    finally:
        spark.catalog.dropTempView(FLIGHTS)
        catalog.close()
        path.unlink(missing_ok=True)


def table_of(name: str) -> LabTable:
    """A lab table by name; raises ParameterError with the nearest names."""
    require_known(name, TABLES, "lab table")
    return TABLES[name]


__all__ = ["NAMESPACE", "TABLES", "bench", "build"]
