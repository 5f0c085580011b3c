"""Unpack the lab: tables with one known problem each, made from a year of real flights.

The tables come from two archives. The package has the first one; a clone of icekit has the other
one too, and the code that builds them (``rigs/lab``). Unpacking takes no engine. Every table has
exactly the findings that its :class:`LabTable` names; the healthy tables have none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.errors import ParameterError, require_known
from icekit.common.units import count
from icekit.engine.packing import unpack_into
from icekit.engine.tables import EmbeddedTables
from icekit.iceberg.pack import Pack

if TYPE_CHECKING:
    from icekit.engine.lake import Lake

NAMESPACE = "lab"
#: The archive of the package, and what is said about the tables of both.
ARCHIVE = Path(__file__).with_name("lab.icekit.zst")
INDEX = ARCHIVE.with_name("lab.json")
#: The archive that only a clone has.
OTHER_ARCHIVE = Path(__file__).parents[2] / "rigs" / "lab" / "other.icekit.zst"


@frozen
class LabTable:
    """One table of the lab.

    ``illness`` describes the problem in one sentence, and ``findings`` are the names of the
    expected findings (none for a healthy table). ``is_shipped``: the package's own archive has it.
    """

    name: str
    illness: str
    findings: frozenset[str]
    is_shipped: bool


def archive_index() -> dict[str, Any]:
    """What is known of both archives: their tables, their hashes, and what built them."""
    return dict(json.loads(INDEX.read_text(encoding="utf-8")))


@cache
def lab_tables() -> dict[str, LabTable]:
    """Every table of the lab, by name."""
    return {
        table_entry["name"]: LabTable(
            table_entry["name"],
            table_entry["illness"],
            frozenset(table_entry["findings"]),
            table_entry["is-shipped"],
        )
        for table_entry in archive_index()["tables"]
    }


def lab_table(name: str) -> LabTable:
    """A lab table by name; raises ParameterError with the nearest names."""
    require_known(name, lab_tables(), "lab table")
    return lab_tables()[name]


def unpack_lab(
    lake: Lake,
    names: Iterable[str] | None = None,
    *,
    all_archives: bool = False,
    reset: bool = False,
    progress: Callable[[str], None] = print,
) -> list[str]:
    """Put lab tables into the embedded lake; returns the names of those that were unpacked.

    Without names, they are those of the package's archive, or of both with ``all_archives``. Tables
    that exist are left alone; with ``reset`` they become as they were unpacked: later changes are
    lost, and a dropped table comes back. Starts no engine; a running session refreshes its cache.

    Raises :class:`~icekit.common.errors.ParameterError` for a name that is not in the lab, a table
    whose archive is not there, and a catalog other than the embedded lake.
    """
    lake_tables = EmbeddedTables(lake_folder(lake))
    existing_names = {name for name in lake_tables.existing_names() if name[:-1] == (NAMESPACE,)}
    requested_tables = [
        lab_table(name)
        for name in dict.fromkeys(names or _default_names(existing_names, all_archives, reset))
    ]
    tables_to_unpack = []
    for table in requested_tables:
        if reset or (NAMESPACE, table.name) not in existing_names:
            tables_to_unpack.append(table)
        else:
            progress(f"lab.{table.name:<28} exists")
    start_seconds = time.monotonic()
    for archive in (ARCHIVE, OTHER_ARCHIVE):
        archive_tables = {
            (NAMESPACE, t.name): t for t in tables_to_unpack if t.is_shipped == (archive is ARCHIVE)
        }
        if not archive_tables:
            continue
        if not archive.exists():
            first_name = next(iter(archive_tables.values())).name
            raise ParameterError(
                f"lab.{first_name} is not among the tables that icekit is installed with. Run "
                f"`icekit lab {first_name}` in a clone of icekit, which has all of them."
            )
        with Pack(archive) as pack:
            unpack_into(
                lake,
                pack,
                {
                    name: pack_entry
                    for pack_entry in pack.tables
                    if (name := pack_entry.name) in archive_tables
                },
                replace=True,
                progress=lambda name: progress(f"lab.{name[-1]:<28} {lab_table(name[-1]).illness}"),
            )
    if tables_to_unpack:
        progress(
            f"{count(len(tables_to_unpack), 'table')} in {time.monotonic() - start_seconds:.1f} s"
        )
    return [table.name for table in tables_to_unpack]


def _default_names(
    existing_names: Iterable[tuple[str, ...]], all_archives: bool, reset: bool
) -> list[str]:
    """The tables of a call without names: with ``reset`` also those that are there."""
    names_in_lake = {name[-1] for name in existing_names}
    return [
        table.name
        for table in lab_tables().values()
        if all_archives or table.is_shipped or (reset and table.name in names_in_lake)
    ]


def lake_folder(lake: Lake) -> Path:
    """The lake's folder; raises ParameterError for a catalog that is not the embedded lake."""
    if not isinstance(lake.tables, EmbeddedTables):
        raise ParameterError(
            f"The lab is only for the embedded lake, not for catalog {lake.name!r}; call connect() "
            "without a name."
        )
    return lake.tables.path
