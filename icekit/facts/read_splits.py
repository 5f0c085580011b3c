"""Say how many bytes one read task takes, and what opening a file counts for."""

from __future__ import annotations

from icekit.facts.model import TableFacts

#: TableProperties.SPLIT_SIZE_DEFAULT and SPLIT_OPEN_FILE_COST_DEFAULT.
SPLIT_BYTES, OPEN_FILE_COST = 128 * 2**20, 4 * 2**20


def split_bytes(facts: TableFacts) -> int:
    """The bytes that one read task takes (``read.split.target-size``); an unusable value counts as the default."""
    return _usable(facts, "read.split.target-size", SPLIT_BYTES, least=1)


def open_file_cost(facts: TableFacts) -> int:
    """The bytes that Iceberg counts for opening a file when it packs read tasks; an unusable value counts as the default."""
    return _usable(facts, "read.split.open-file-cost", OPEN_FILE_COST)


def _usable(facts: TableFacts, name: str, default: int, least: int = 0) -> int:
    stated = facts.properties.get(name, "")
    return int(stated) if stated.isdecimal() and int(stated) >= least else default
