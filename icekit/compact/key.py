"""Match rows with the equality deletes of one key, by a hash that Spark can look up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from icekit.resolve.join import same_value
from icekit.resolve.keys import KeyColumn, key_sql
from icekit.sql import identifier

#: Columns that a rewrite adds while it reads.
FILE, LISTED, KNOWN, ORDER, CHOSEN, HASH, DELETED, SAMPLED, SALTED, ROW = (
    f"icekit {name}"
    for name in (
        "file",
        "listed",
        "known",
        "order",
        "chosen",
        "hash",
        "deleted",
        "sampled",
        "salted",
        "row",
    )
)


@dataclass(frozen=True, slots=True)
class Key:
    """The equality deletes of one key in a group, whose files are of one partition: Java's list of
    the delete files, and the key's columns.
    """

    number: int
    files: Any
    columns: tuple[KeyColumn, ...]
    records: int

    @property
    def ruled_out(self) -> str:
        """The column with the deletes that a row's file is ruled out for."""
        return f"ruled_out_{self.number}"

    @property
    def sampled(self) -> str:
        """The column with the identity of a row in the sample of this key."""
        return f"{SAMPLED} {self.number}"

    @property
    def names(self) -> list[str]:
        """The columns of a frame of these deletes."""
        return [f"icekit key {i}" for i in range(len(self.columns))]

    @property
    def values(self) -> list[str]:
        """SQL for the key of a row of the table."""
        return [key_sql(column.names) for column in self.columns]

    @property
    def can_be_hashed(self) -> bool:
        """Whether two hashes can stand for the key: a nested field has nulls of several kinds."""
        return all(len(column.names) == 1 for column in self.columns)

    def hash(self, values: Sequence[str], salt: int | None = None) -> str:
        """SQL for a 64-bit hash of the key in these values; with a ``salt``, for a second one,
        whose collisions nobody can forge.
        """
        arguments = []
        for column, value in zip(self.columns, values, strict=True):
            # xxhash64 skips nulls, so it cannot tell which column has one.
            missing = [] if column.required or len(values) == 1 else [f"isnull({value})"]
            is_text = salt is not None and column.type.startswith(
                ("string", "uuid", "binary", "fixed")
            )
            arguments += [*missing, f"sha2(CAST({value} AS binary), 256)" if is_text else value]
        salted = [] if salt is None else [f"{salt}L"]
        return f"xxhash64({', '.join([*salted, *arguments])})"

    def matches(
        self, salt: int | None = None, narrow: Callable[[str, str, str], str] | None = None
    ) -> str:
        """SQL for whether a delete deletes a row; written so that Spark looks up the hash and only
        filters on the rest.

        With a ``salt``, the deletes have a second hash in place of their keys. ``narrow`` is a
        function of :mod:`icekit.resolve.applies`.
        """
        same = [
            same_value(value, identifier(name), required=column.required)
            for column, value, name in zip(self.columns, self.values, self.names, strict=True)
        ]
        if salt is not None:
            # Not as an equality: with two of them, Spark makes no table of long keys.
            same = [f"coalesce({self.hash(self.values, salt)} = {identifier(SALTED)}, false)"]
        newer = " AND ".join([f"{identifier(DELETED)} > {identifier(ORDER)}", *same])
        if narrow is not None:
            newer = narrow(newer, identifier(DELETED), self.ruled_out)
        return f"{self.hash(self.values)} = {identifier(HASH)} AND {newer}"
