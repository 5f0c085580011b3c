"""Load a table's metadata file."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING, Any

from icekit.errors import MetadataUnreadable, first_line
from icekit.facts.lineage import Damaged
from icekit.facts.validation import check

if TYPE_CHECKING:
    from icekit.catalog.tables import TableSource

RESTORE_OLDER = "restore it, or point the catalog at the metadata file before it (register_table)"


def load_metadata(source: TableSource) -> dict[str, Any]:
    """The table's metadata JSON, as from :func:`sized_metadata`."""
    return sized_metadata(source)[0]


def sized_metadata(source: TableSource) -> tuple[dict[str, Any], int]:
    """The table's metadata JSON, compressed or not, and the size of its file.

    Raises :class:`~icekit.errors.MetadataUnreadable` for a file that is not metadata or is damaged;
    the message says where.
    """
    location = source.metadata_location
    raw = source.read(location)
    file_bytes = len(raw)
    try:
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        loaded: dict[str, Any] = json.loads(raw)
    except (ValueError, OSError, EOFError, zlib.error, RecursionError) as error:
        why = "it is empty" if not raw else first_line(error)
        raise MetadataUnreadable(
            f"{location} is not table metadata ({why}); {RESTORE_OLDER}."
        ) from None
    check_metadata(loaded, location)
    return loaded, file_bytes


def check_metadata(loaded: Any, location: str) -> None:
    """Raise :class:`~icekit.errors.MetadataUnreadable` for damaged metadata; ``location`` is the
    path of the metadata file.
    """
    try:
        check(loaded)
    except Damaged as problem:
        raise MetadataUnreadable(
            f"The table metadata {location} is damaged: {problem}; {RESTORE_OLDER}."
        ) from None
