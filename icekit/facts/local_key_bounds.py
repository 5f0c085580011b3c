"""Read the bounds of keys and of paths from the entries of manifests, without a JVM."""

from __future__ import annotations

from collections.abc import Mapping

from icekit.facts.files import Kind
from icekit.facts.key_bounds import KeyColumn, Keyed, decode
from icekit.facts.local_named_deletes import PATH_FIELD_ID
from icekit.facts.manifests import BOUND_FIELDS, FILE_FIELDS, NULL_FIELDS, SIZE_FIELDS, Record, entries
from icekit.facts.rollup import kind_of


class KeyReader:
    """Reads the bounds and null counts of some columns from the entries of a manifest: those of keys, after those of paths if these are wanted."""

    def __init__(self, columns: Mapping[int, KeyColumn], names_paths: bool = False) -> None:
        first = (PATH_FIELD_ID,) if names_paths else ()
        self.skipped = len(first)
        self.columns = [(each, decode(column.type) or bytes, column.required) for each, column in columns.items()]
        self.none = (None,) * (len(first) + len(columns))
        names = (BOUND_FIELDS if self.none else frozenset()) | (
            NULL_FIELDS if any(not c.required for c in columns.values()) else frozenset()
        )
        self.fields = dict.fromkeys(names, (*first, *columns))

    def add(self, file: Record, keyed: Keyed, row: int) -> None:
        """Add a file to a row."""
        none, place, columns = self.none, self.skipped, keyed.columns
        lows, highs = file.get("lower_bounds") or none, file.get("upper_bounds") or none
        nulls, values = file.get("null_value_counts") or none, file.get("value_counts") or none
        for column, read, required in self.columns:
            if column in columns:
                low, high = lows[place], highs[place]
                if low is not None and high is not None:
                    low, high = read(low), read(high)
                columns[column].add(row, low, high, nulls[place], values[place], required)
            place += 1


def delete_columns(raw: bytes, location: str) -> tuple[bool, set[tuple[int, ...]]]:
    """Whether bounds of paths show which data file a position delete file names, and the keys of the equality deletes.

    A first pass without statistics costs a fraction of reading them.
    """
    names_paths, keys = False, set()
    for entry in entries(raw, location, FILE_FIELDS - SIZE_FIELDS):
        file = entry["data_file"]
        kind = kind_of(file["content"], file["file_format"])
        if kind is Kind.EQUALITY_DELETES:
            keys.add(tuple(file.get("equality_ids") or ()))
        elif file.get("referenced_data_file") is None:
            names_paths = True
    return names_paths, keys
