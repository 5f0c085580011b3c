"""Open the place where health is kept: a SQLite file, or an Iceberg table of the catalog."""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from icekit.catalog import Lake
from icekit.history.records import Health

#: Runs of a table that are read back.
LAST = 90
#: The figure that an index draws over time.
DRAWN = "scan_bytes_spared"


@dataclass(frozen=True, slots=True)
class Lately:
    """What an index of very many tables needs of one: its last run, and :data:`DRAWN` of its newest runs, oldest first."""

    last: Health
    points: tuple[int, ...]


class Store(ABC):
    """Health of tables over time; any method raises :class:`~icekit.errors.HistoryUnusable` when it cannot be read or written."""

    @abstractmethod
    def append(self, records: Sequence[Health]) -> int:
        """Append what is not there yet, by run and table, in one commit; returns how many were."""

    @abstractmethod
    def last(self, tables: Sequence[str], count: int = LAST, *, other_than: str = "") -> Mapping[str, Sequence[Health]]:
        """The newest runs of each table, oldest first, at most ``count`` of each; those of run ``other_than`` are left out.

        A table of which nothing is kept is not in the answer; a store that was never written to is empty.
        For a few tables: see :meth:`lately` for all of a lake.
        """

    @abstractmethod
    def lately(self, tables: Sequence[str], count: int = LAST, *, other_than: str = "") -> Mapping[str, Lately]:
        """The last run of each table whole, and one figure of the newest ``count``: bounded, however many tables there are."""


def store(where: str, lake: Lake) -> Store | None:
    """The store that a text names: none if empty, ``table``, or a SQLite file; contacts and makes nothing yet."""
    if not where:
        return None
    if where == "table":
        from icekit.history.iceberg import table_store

        return table_store(lake)
    from icekit.history.sqlite import SqliteStore

    return SqliteStore(Path(where).expanduser())


@contextlib.contextmanager
def opened(where: str, lake: Lake) -> Iterator[Store | None]:
    """As :func:`store`, for a ``with`` block."""
    yield store(where, lake)


def handed_over(records: Sequence[Health] | None, table: str, folder: Path) -> str:
    """Write what is remembered of a table for its notebook; an empty text where that is nothing."""
    if not records:
        return ""
    from icekit.saving import naming, slug

    path = folder / f"{slug(table)}.history.json"
    with naming(path):
        path.write_text(json.dumps([record.plain() for record in records]), encoding="utf-8")
    return str(path)


def remembered(where: str, lake: Lake, table: str, count: int = LAST) -> tuple[Health, ...]:
    """The newest runs of one table, oldest first; ``where`` may also be a ``.json`` file that a report handed over."""
    if where.endswith(".json"):
        return tuple(Health.of_plain(kept) for kept in json.loads(Path(where).read_text(encoding="utf-8")))
    found = store(where, lake)
    return tuple(found.last([table], count).get(table, ())) if found else ()
