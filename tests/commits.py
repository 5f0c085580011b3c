"""A table's commits in their order, which no clock tells: two may share a millisecond, and a clock
may step back.
"""

from icekit.api import Lake
from icekit.common.sql import Identifier
from icekit.health.facts.metadata_file import load_metadata
from icekit.iceberg.metadata import Json


def in_order(lake: Lake, table: Identifier) -> list[Json]:
    """Every snapshot that the table knows, oldest first; without Spark."""
    snapshots: list[Json] = load_metadata(lake.tables.source(table)).get("snapshots") or []
    # Format version 1 has no sequence numbers: there the metadata's own order stays.
    return sorted(snapshots, key=lambda snapshot: int(snapshot.get("sequence-number") or 0))


def since(lake: Lake, table: Identifier, start: int) -> dict[int, Json]:
    """The snapshots from a place in their order on, by id."""
    return {int(snapshot["snapshot-id"]): snapshot for snapshot in in_order(lake, table)[start:]}
