"""Name every table of the lab."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from icekit.errors import ParameterError, nearest
from icekit.lab import deletes, healthy, history, layout, merges, upserts, urls
from icekit.lab.workbench import LabTable

TABLES: Mapping[str, LabTable] = MappingProxyType(
    {table.name: table for room in (healthy, layout, urls, merges, deletes, upserts, history) for table in room.TABLES}
)


def table_of(name: str) -> LabTable:
    """A lab table by its name; raises ParameterError with the nearest names."""
    if name not in TABLES:
        raise ParameterError(f"The lab has no table {name!r}{nearest(name, TABLES) or '; it has ' + ', '.join(TABLES) + '.'}")
    return TABLES[name]
