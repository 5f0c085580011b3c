"""Build the lab: tables with one known problem each, from a year of real flights.

Many commits of real writers (Spark, pyiceberg, and Iceberg's Java API as Flink uses it) create
each table; nothing writes metadata directly. The target file size is 256 KiB times the
scale (``write.target-file-size-bytes``) instead of 512 MB, so that a table that fits on a laptop
has the shape of a large one. Every table has exactly the findings that its :class:`LabTable`
names; the healthy tables have none.

A table is built on demand, skipped if it exists, and built from scratch after a killed
build, with another scale or after a change to the lab. The lab keeps a copy of each finished table,
and :func:`reset` restores it after any change.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from icekit.engine.bridge import lent
from icekit.errors import ParameterError
from icekit.lab import flights
from icekit.lab.registry import TABLES, is_kept, keep, reset, table_of
from icekit.lab.workbench import FLIGHTS, NAMESPACE, Lab, LabTable, embedded, is_complete, open_catalog
from icekit.sql import identifier
from icekit.terminal import never_silent
from icekit.units import count

if TYPE_CHECKING:
    from icekit.catalog import Lake

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
    scale: int = 1,
    rebuild: bool = False,
    progress: Callable[[str], None] = print,
) -> list[str]:
    """Build the lab's tables, or the named ones; returns the names of the tables that were built.

    ``scale`` multiplies both rows and target file size (scale 1: 336,776 flights). Complete
    tables are left alone unless ``rebuild`` is set. Raises
    :class:`~icekit.errors.ParameterError` for a name that is not in :data:`TABLES`, a scale
    below 1, or a catalog other than the embedded lake.
    """
    if scale < 1:
        raise ParameterError(f"scale is {scale}, but it multiplies the rows and must be 1 or more.")
    wanted = [table_of(name) for name in dict.fromkeys(names if names is not None else TABLES)]
    embedded(lake)
    todo = [table for table in wanted if rebuild or not is_complete(lake, table.name, scale)]
    for table in wanted:
        if table not in todo:
            progress(f"{table.name:<28} exists")
    if not todo:
        return []
    started = time.monotonic()
    with contextlib.ExitStack() as until_built:
        with never_silent("writing the flights"):
            make = until_built.enter_context(bench(lake, scale, embedded(lake) / "lab-flights"))
        progress(f"{'(Spark and the flights)':<28} {time.monotonic() - started:5.1f} s")
        for place, table in enumerate(todo, 1):
            begun = time.monotonic()
            name = f"[{place}/{len(todo)}] {NAMESPACE}.{table.name}"
            with never_silent(name):
                make(table.name)
            progress(f"{name:<38} {time.monotonic() - begun:5.1f} s  {table.illness}")
    progress(f"{count(len(todo), 'table')} in {time.monotonic() - started:.0f} s")
    return [table.name for table in todo]


@contextlib.contextmanager
def bench(lake: Lake, scale: int, folder: Path) -> Iterator[Callable[[str], None]]:
    """Write the flights into a folder, start both engines, and give a function that builds a table by name; clean up afterwards."""
    flights.source()  # a missing package is reported before Spark starts
    spark = lake.spark
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed build
    catalog = open_catalog(lake)
    try:
        flights.write(folder, scale)
        with lent(spark, _SESSION):
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, NAMESPACE)}")
            spark.read.parquet(str(folder)).createOrReplaceTempView(FLIGHTS)
            yield lambda name: _make(Lab(lake, spark, catalog, folder, scale, name))
    finally:
        spark.catalog.dropTempView(FLIGHTS)
        catalog.close()
        shutil.rmtree(folder, ignore_errors=True)


def _make(lab: Lab) -> None:
    """Build one table from scratch, and keep a copy of it."""
    lab.start()
    table_of(lab.name).build(lab)
    lab.finish()
    keep(lab.lake, lab.name)


__all__ = ["NAMESPACE", "TABLES", "Lab", "LabTable", "build", "is_kept", "reset"]
