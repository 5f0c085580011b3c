"""Match rows with the equality deletes of one key, by a hash that Spark can look up."""

from collections.abc import Sequence
from typing import Any

from icekit.common import frozen
from icekit.common.sql import identifier
from icekit.deletes.applies import unless_ruled_out
from icekit.deletes.join import same_value
from icekit.deletes.keys import KeyColumn, key_sql

#: Columns that a rewrite adds while it reads.
FILE, LISTED, KNOWN, ORDER, CHOSEN, HASH, DELETED, SAMPLED, ROW = (
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
        "row",
    )
)


@frozen
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

    def hash(self, values: Sequence[str]) -> str:
        """SQL for a 64-bit hash of the key in these values."""
        # xxhash64 skips nulls, so it cannot tell which column has one.
        nullable = [] if len(values) == 1 else zip(self.columns, values, strict=True)
        missing = [f"isnull({value})" for column, value in nullable if not column.required]
        return f"xxhash64({', '.join([*missing, *values])})"

    def matches(self, *, rules_out: bool = False) -> str:
        """SQL for whether a delete deletes a row; written so that Spark looks up the hash and only
        filters on the rest.

        ``rules_out``: it fails at a delete that is ruled out for the row's file
        (:func:`icekit.deletes.applies.unless_ruled_out`).
        """
        same = [
            same_value(value, identifier(name), required=column.required)
            for column, value, name in zip(self.columns, self.values, self.names, strict=True)
        ]
        newer = " AND ".join([f"{identifier(DELETED)} > {identifier(ORDER)}", *same])
        if rules_out:
            newer = unless_ruled_out(newer, identifier(DELETED), self.ruled_out, identifier(FILE))
        return f"{self.hash(self.values)} = {identifier(HASH)} AND {newer}"
