"""Build the lab: tables with one known problem each, from a year of real flights.

Many commits of real writers (Spark, pyiceberg, and Iceberg's Java API as Flink uses it) create
each table; only those of :mod:`icekit.learn.lab.damaged` need a file that was
changed or removed by hand.
The target file size is 256 KiB (``write.target-file-size-bytes``) instead of 512
MB, so that a table that fits on a laptop has the shape of a large one. Every table has exactly the
findings that its :class:`LabTable` names; the healthy tables have none.

A table is built on demand, skipped if it exists, and built from scratch after a killed
build or after a change to the lab. The lab keeps a copy of each finished table,
and :func:`reset` restores it after any change.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.common.errors import ParameterError, require_known
from icekit.common.sql import identifier
from icekit.common.terminal import never_silent
from icekit.common.units import count
from icekit.engine.bridge import lent
from icekit.engine.tables import EmbeddedTables
from icekit.learn.lab import damaged, deletes, flights, tables  # noqa: F401 - they register
from icekit.learn.lab.workbench import (
    FLIGHTS,
    NAMESPACE,
    TABLES,
    VERSION,
    Lab,
    LabTable,
    embedded,
    folder_of,
    is_complete,
    on_disk,
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
    embedded(lake)
    todo = []
    for table in wanted:
        if rebuild or not is_complete(lake, table.name):
            todo.append(table)
        else:
            progress(f"{table.name:<28} exists")
    if not todo:
        return []
    started = time.monotonic()
    with bench(lake, embedded(lake) / "lab-flights.parquet") as make:
        progress(f"{'(Spark and the flights)':<28} {time.monotonic() - started:5.1f} s")
        for number, table in enumerate(todo, 1):
            begun = time.monotonic()
            name = f"[{number}/{len(todo)}] {NAMESPACE}.{table.name}"
            with never_silent(name):
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
    catalog = EmbeddedTables(embedded(lake)).catalog(lake.name)
    try:
        with never_silent("writing the flights"):
            flights.write(path)
        with lent(spark, _SESSION):
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, NAMESPACE)}")
            spark.read.parquet(str(path)).createOrReplaceTempView(FLIGHTS)

            def make(name: str) -> None:
                lab = Lab(lake, spark, catalog, path, name)
                lab.start()
                table_of(name).build(lab)
                lab.finish()
                keep(lake, name)

            yield make
    finally:
        spark.catalog.dropTempView(FLIGHTS)
        catalog.close()
        path.unlink(missing_ok=True)


def table_of(name: str) -> LabTable:
    """A lab table by name; raises ParameterError with the nearest names."""
    require_known(name, TABLES, "lab table")
    return TABLES[name]


# Iceberg never writes into an existing file. So a second name for each file of a finished table (a
# hard link) is a copy without extra space, which no compaction, expiry, orphan removal or DROP can
# reach: those only remove names. Restoring a table takes the time to link its files.


#: The folder of the copies, in the lake but outside its warehouse, where no procedure lists files.
KEPT = "lab-kept"
_DOCUMENT = "kept.json"


def keep(lake: Lake, name: str) -> None:
    """Keep a copy of the current state of a lab table for :func:`reset`; a finished build does
    this.

    Links every file of the table's folder (copies files if the storage has no links) and saves
    the catalog's pointer. Does not start Spark.
    """
    home = embedded(lake) / KEPT
    staged = home / f".{name}-{os.getpid()}"
    shutil.rmtree(staged, ignore_errors=True)
    files = _link(folder_of(lake, name), staged / name)
    with _catalog(embedded(lake)) as database:
        database.row_factory = sqlite3.Row
        row = database.execute(
            "SELECT * FROM iceberg_tables "
            "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?",
            [lake.name, NAMESPACE, name],
        )
        record = {"version": VERSION, "row": dict(row.fetchone()), "files": files}
    (staged / _DOCUMENT).write_text(json.dumps(record, indent=1), encoding="utf-8")
    shutil.rmtree(home / name, ignore_errors=True)
    staged.rename(home / name)


def is_kept(lake: Lake, name: str) -> bool:
    """Tell whether :func:`reset` can restore a lab table: a copy from this version of the lab and
    this lake exists.
    """
    return _document(lake, name) is not None


def reset(
    lake: Lake, names: Iterable[str] | None = None, *, progress: Callable[[str], None] = print
) -> list[str]:
    """Restore the lab's tables, or the named ones, to their state after the build; returns their
    names.

    All later changes are lost: rows, commits, settings, files in their folders. A dropped table
    comes back. Does not start Spark; a running session refreshes its cache.
    A session of another process may show the old table for some seconds; restart it.

    Raises :class:`~icekit.common.errors.ParameterError` for a name that is not in the lab, a table
    without a copy, an incomplete copy, and a catalog other than the embedded lake.
    """
    path = embedded(lake)
    kept = {name: record for name in TABLES if (record := _document(lake, name)) is not None}
    wanted = list(dict.fromkeys(kept if names is None else names))
    for name in wanted:
        if table_of(name).name not in kept:
            raise ParameterError(
                f"There is no copy of lab.{name}; build it with `icekit lab --rebuild {name}`."
            )
    if not wanted:
        raise ParameterError(
            f"There are no copies of lab tables in {path}; build the lab with `make lab`, which "
            "keeps a copy of each table."
        )
    for name in wanted:
        begun = time.monotonic()
        _put_back(lake, path, name, kept[name])
        progress(f"{name:<28} {time.monotonic() - begun:5.2f} s  restored")
    return wanted


def _put_back(lake: Lake, path: Path, name: str, kept: dict[str, Any]) -> None:
    location = folder_of(lake, name)
    staged, old = (location.with_name(f".{name}-{end}-{os.getpid()}") for end in ("kept", "old"))
    for leftover in (staged, old):
        shutil.rmtree(leftover, ignore_errors=True)
    # Links first, then removes: a table whose copy is incomplete stays unchanged.
    if _link(path / KEPT / name / name, staged) != kept["files"]:
        shutil.rmtree(staged, ignore_errors=True)
        raise ParameterError(
            f"The copy of lab.{name} is incomplete; build it with `icekit lab --rebuild {name}`."
        )
    if location.exists():
        location.rename(old)
    staged.rename(location)
    row = kept["row"]
    with _catalog(path) as database:
        columns = f"({', '.join(row)}) VALUES (:{', :'.join(row)})"
        database.execute(f"INSERT OR REPLACE INTO iceberg_tables {columns}", row)
    shutil.rmtree(old, ignore_errors=True)
    if lake.spark_is_running:
        lake.spark.sql(f"REFRESH TABLE {identifier(lake.name, NAMESPACE, name)}")


def _document(lake: Lake, name: str) -> dict[str, Any] | None:
    """The saved record of a copy; None without a copy, or if the copy is from another version of
    the lab or the lake has moved.
    """
    folder = embedded(lake) / KEPT / name
    try:
        record: dict[str, Any] = json.loads((folder / _DOCUMENT).read_text(encoding="utf-8"))
        location = on_disk(record["row"]["metadata_location"])
        is_here = location.is_relative_to(folder_of(lake, name))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if record["version"] == VERSION and is_here else None


def _link(source: Path, target: Path) -> int:
    """Link every file under ``source`` into ``target``; returns the number of files."""

    def link(file: str, copy: str) -> None:
        try:
            os.link(file, copy)
        except OSError:
            shutil.copy2(file, copy)

    shutil.copytree(source, target, copy_function=link)
    return sum(len(files) for _, _, files in os.walk(target))


@contextlib.contextmanager
def _catalog(path: Path) -> Iterator[sqlite3.Connection]:
    """The embedded catalog's database, in one transaction; waits for other writers."""
    with contextlib.closing(sqlite3.connect(path / "catalog.db", timeout=30)) as database, database:
        yield database


__all__ = ["NAMESPACE", "TABLES", "build", "is_kept", "reset"]
