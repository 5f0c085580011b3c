"""The equality deletes of one key in a group of files, and the columns that their reading adds."""

from collections.abc import Iterable
from typing import Any

from icekit.common import frozen
from icekit.common.sql import free_prefix, identifier
from icekit.engine.staging import Staging
from icekit.rows.deletes.keys import KeyColumn


class RowColumns:
    """The names of the columns that a rewrite adds to a table's rows while it reads them; ``names``
    are the table's own columns, none of which begins like these.
    """

    def __init__(self, column_names: Iterable[str]) -> None:
        self.prefix = free_prefix("icekit", column_names)
        #: The path of a row's file, and its data sequence number.
        self.file = f"{self.prefix} file"
        self.sequence = f"{self.prefix} sequence"
        #: The same in a list of files.
        self.listed_file = f"{self.prefix} listed file"
        self.listed_sequence = f"{self.prefix} listed sequence"
        #: The sequence number of the newest delete of a key; of a row, whether it is deleted.
        self.deleted = f"{self.prefix} deleted"
        #: Whether a row's file is read twice.
        self.is_compared = f"{self.prefix} is compared"
        self.hash = f"{self.prefix} hash"
        self.sampled = f"{self.prefix} sampled"


@frozen
class Key:
    """The equality deletes of one key in a group, whose files are of one partition: Java's list of
    the delete files, the key's columns, what reads only these from the files, and the names of the
    columns that a rewrite adds.
    """

    key_index: int
    delete_files: Any
    columns: tuple[KeyColumn, ...]
    records: int
    staging: Staging
    row_columns: RowColumns

    @property
    def is_read_correctly(self) -> bool:
        """Whether Iceberg's own reader applies these deletes rightly in every query."""
        return all(column.is_read_correctly for column in self.columns)

    @property
    def delete_columns(self) -> list[str]:
        """The columns of a frame of these deletes."""
        return [f"{self.row_columns.prefix} key {i}" for i in range(len(self.columns))]

    @property
    def row_values_sql(self) -> list[str]:
        """SQL for the key of a row of the table."""
        return [identifier(*column.path_names) for column in self.columns]

    @property
    def delete_values_sql(self) -> list[str]:
        """SQL for the same key of a row of a delete file."""
        return [column.sql for column in self.columns]
