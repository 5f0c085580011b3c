"""Open the place where health is kept: a SQLite file, or an Iceberg table of the catalog."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
