"""Match rows with the equality deletes of one key, by a hash that Spark can look up."""

from collections.abc import Iterable, Sequence
from typing import Any

from icekit.common import frozen
from icekit.common.sql import free_prefix, identifier
from icekit.deletes.join import same_value
from icekit.deletes.keys import KeyColumn
from icekit.engine.staging import Staging


class RowColumns:
    """The names of the columns that a rewrite adds to a table's rows while it reads them; ``names``
    are the table's own columns, none of which begins like these.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.prefix = free_prefix("icekit", names)
        #: A row's data file, as its number or its path.
        self.file = f"{self.prefix} file"
        #: The same in a list of files, and the order of each.
        self.listed_file = f"{self.prefix} listed file"
        self.listed_order = f"{self.prefix} listed order"
        #: The order of a row's file, see :func:`icekit.deletes.applies.order_of`.
        self.order = f"{self.prefix} order"
        #: The order of the newest delete of a key; in a sample, whether a row is deleted.
        self.deleted = f"{self.prefix} deleted"
        #: Whether a row's file is read twice.
        self.is_compared = f"{self.prefix} is compared"
        #: The place of a row among all, which a shuffle loses.
        self.position = f"{self.prefix} position"
        self.hash = f"{self.prefix} hash"
        self.sampled = f"{self.prefix} sampled"


@frozen
class Key:
    """The equality deletes of one key in a group, whose files are of one partition: Java's list of
    the delete files, the key's columns, what reads only these from the files, and the names of the
    columns that a rewrite adds.
    """

    number: int
    files: Any
    columns: tuple[KeyColumn, ...]
    records: int
    staging: Staging
    row_columns: RowColumns

    @property
    def is_read_right(self) -> bool:
        """Whether Iceberg's own reader applies these deletes rightly in every query."""
        return all(column.is_read_right for column in self.columns)

    @property
    def ruled_out(self) -> str:
        """The column with the deletes that a row's file is ruled out for."""
        return f"{self.row_columns.prefix}_ruled_out_{self.number}"

    @property
    def sampled(self) -> str:
        """The column with the identity of a row in the sample of this key."""
        return f"{self.row_columns.sampled} {self.number}"

    @property
    def names(self) -> list[str]:
        """The columns of a frame of these deletes."""
        return [f"{self.row_columns.prefix} key {i}" for i in range(len(self.columns))]

    @property
    def values(self) -> list[str]:
        """SQL for the key of a row of the table."""
        return [identifier(*column.names) for column in self.columns]

    @property
    def deleted_values(self) -> list[str]:
        """SQL for the same key of a row of a delete file."""
        return [column.sql for column in self.columns]

    def hash(self, values: Sequence[str]) -> str:
        """SQL for a 64-bit hash of the key in these values."""
        # xxhash64 skips nulls, so it cannot tell which column has one.
        nullable = [] if len(values) == 1 else zip(self.columns, values, strict=True)
        missing = [f"isnull({value})" for column, value in nullable if not column.required]
        return f"xxhash64({', '.join([*missing, *values])})"

    def matches(self) -> str:
        """SQL for whether a delete deletes a row; written so that Spark looks up the hash and only
        filters on the rest.
        """
        same = [
            same_value(value, identifier(name), required=column.required)
            for column, value, name in zip(self.columns, self.values, self.names, strict=True)
        ]
        deleted = identifier(self.row_columns.deleted)
        newer = " AND ".join([f"{deleted} > {identifier(self.row_columns.order)}", *same])
        return f"{self.hash(self.values)} = {identifier(self.row_columns.hash)} AND {newer}"
