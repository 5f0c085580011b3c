"""Name every table of the lab, and put tables back as they were built."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from icekit.errors import ParameterError, nearest
from icekit.lab import tables
from icekit.lab.workbench import NAMESPACE, VERSION, LabTable, embedded, folder_of
from icekit.sql import identifier

if TYPE_CHECKING:
    from icekit.catalog import Lake


TABLES: Mapping[str, LabTable] = MappingProxyType(
    {
        table.name: table
        for table in (
            *tables.HEALTHY,
            *tables.LAYOUT,
            *tables.URLS,
            *tables.MERGES,
            *tables.DELETES,
            *tables.UPSERTS,
            *tables.HISTORY,
        )
    }
)


def table_of(name: str) -> LabTable:
    """A lab table by its name; raises ParameterError with the nearest names."""
    if name not in TABLES:
        raise ParameterError(f"The lab has no table {name!r}{nearest(name, TABLES) or '; it has ' + ', '.join(TABLES) + '.'}")
    return TABLES[name]


# --- Put lab tables back as they were built, in the time that it takes to link their files
#
# Iceberg never writes into a file that is there. So a second name for each file of a finished table (a hard link) is a
# copy of it that takes no space, and that no compaction, expiry, orphan removal or DROP can reach: those remove names.


#: The folder of kept copies, in the lake and outside its warehouse, where no procedure lists files.
KEPT = "lab-kept"
_DOCUMENT = "kept.json"
_COLUMNS = ("catalog_name", "table_namespace", "table_name", "metadata_location", "previous_metadata_location", "iceberg_type")
_OF_TABLE = "catalog_name = ? AND table_namespace = ? AND table_name = ?"


def keep(lake: Lake, name: str) -> None:
    """Keep a lab table as it is now, so that :func:`reset` can put it back; a build does so when it has finished.

    Links every file of the table's folder (copies it where the storage has no links) and notes
    the catalog's pointer. Starts no Spark.
    """
    home = embedded(lake) / KEPT
    staged = home / f".{name}-{os.getpid()}"
    shutil.rmtree(staged, ignore_errors=True)
    files, size_in_bytes = _link(folder_of(lake, name), staged / name)
    with _catalog(embedded(lake)) as database:
        found = database.execute(f"SELECT {', '.join(_COLUMNS)} FROM iceberg_tables WHERE {_OF_TABLE}", [lake.name, NAMESPACE, name])
        row = found.fetchone()
    said = {"version": VERSION, "row": dict(zip(_COLUMNS, row, strict=True)), "files": files, "size_in_bytes": size_in_bytes}
    (staged / _DOCUMENT).write_text(json.dumps(said, indent=1), encoding="utf-8")
    shutil.rmtree(home / name, ignore_errors=True)
    staged.rename(home / name)


def is_kept(lake: Lake, name: str) -> bool:
    """Tell whether :func:`reset` can put a lab table back: a copy of this version of the lab is there, and this lake's own."""
    return _document(lake, name) is not None


def reset(lake: Lake, names: Iterable[str] | None = None, *, progress: Callable[[str], None] = print) -> list[str]:
    """Put the lab's tables, or those named, back as they were built; return their names.

    What was done to them since is gone: rows, commits, settings, files in their folders. A table that
    was dropped comes back. Starts no Spark; a session that runs is told to forget what it has cached.
    A session of another process may show the old table for some seconds, and should be started again.

    Raises :class:`~icekit.errors.ParameterError` for a name that is not of the lab, a table that has no
    copy, a copy that is not whole, and a catalog other than the embedded lake.
    """
    path = embedded(lake)
    known = [name for name in TABLES if is_kept(lake, name)]
    wanted = list(dict.fromkeys(known if names is None else names))
    for name in wanted:
        if table_of(name).name not in known:
            raise ParameterError(f"No copy of lab.{name} is kept; build it with `icekit lab --rebuild {name}`.")
    if not wanted:
        raise ParameterError(f"No lab table is kept in {path}; build the lab with `make lab`, which keeps a copy of each.")
    for name in wanted:
        begun = time.monotonic()
        _put_back(lake, path, name)
        progress(f"{name:<28} {time.monotonic() - begun:5.2f} s  as it was built")
    return wanted


def _put_back(lake: Lake, path: Path, name: str) -> None:
    kept = _document(lake, name)
    assert kept is not None
    location = folder_of(lake, name)
    staged, old = (location.with_name(f".{name}-{end}-{os.getpid()}") for end in ("kept", "old"))
    for leftover in (staged, old):
        shutil.rmtree(leftover, ignore_errors=True)
    # Linked before anything is taken away: what cannot be put back whole stays as it is.
    if _link(path / KEPT / name / name, staged) != (kept["files"], kept["size_in_bytes"]):
        shutil.rmtree(staged, ignore_errors=True)
        raise ParameterError(f"The copy of lab.{name} is not whole; build it with `icekit lab --rebuild {name}`.")
    if location.exists():
        location.rename(old)
    staged.rename(location)
    row = kept["row"]
    with _catalog(path) as database:
        database.execute(f"DELETE FROM iceberg_tables WHERE {_OF_TABLE}", [lake.name, NAMESPACE, name])
        marks = ", ".join("?" for _ in _COLUMNS)
        database.execute(f"INSERT INTO iceberg_tables ({', '.join(_COLUMNS)}) VALUES ({marks})", [row[column] for column in _COLUMNS])
    shutil.rmtree(old, ignore_errors=True)
    if lake.spark_is_running:
        lake.spark.sql(f"REFRESH TABLE {identifier(lake.name, NAMESPACE, name)}")


def _document(lake: Lake, name: str) -> dict[str, Any] | None:
    """What was noted of a copy; None without one, and for one of another version of the lab or of a lake that has moved."""
    folder = embedded(lake) / KEPT / name
    try:
        said: dict[str, Any] = json.loads((folder / _DOCUMENT).read_text(encoding="utf-8"))
        location = str(said["row"]["metadata_location"]).removeprefix("file://").removeprefix("file:")
        here = Path(location).is_relative_to(folder_of(lake, name))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return said if said["version"] == VERSION and here else None


def _link(source: Path, target: Path) -> tuple[int, int]:
    """Give every file under a folder a second name under another; how many there are, and their bytes."""
    files = size_in_bytes = 0
    for folder, _, names in os.walk(source):
        there = target / Path(folder).relative_to(source)
        there.mkdir(parents=True)
        for name in names:
            file = os.path.join(folder, name)  # noqa: PTH118 - thousands of them
            try:
                os.link(file, there / name)
            except OSError:
                shutil.copy2(file, there / name)
            files, size_in_bytes = files + 1, size_in_bytes + os.stat(file).st_size  # noqa: PTH116
    return files, size_in_bytes


@contextlib.contextmanager
def _catalog(path: Path) -> Iterator[sqlite3.Connection]:
    """The embedded catalog's database, in one transaction; waits for whoever writes to it."""
    with contextlib.closing(sqlite3.connect(path / "catalog.db", timeout=30)) as database, database:
        yield database
