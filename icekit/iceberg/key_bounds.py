"""Gather what the files of one partition and sequence number may hold in the columns of the keys
of equality deletes; both collectors do.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from icekit.iceberg.values import base_type

# Bounds of other types leave nothing out: versions of Iceberg order UUIDs differently, and a NaN
# has no order.
_COMPARED = frozenset(
    "int long date time timestamp timestamptz timestamp_ns timestamptz_ns decimal string binary "
    "fixed boolean".split()
)


class KeyColumn(NamedTuple):
    """A column of a key: its type, whether all schemas of the table require it, and its dotted
    name.
    """

    type: str
    required: bool
    name: str


def comparable_key_columns(
    columns: Mapping[int, KeyColumn], field_ids_by_key: Iterable[Iterable[int]]
) -> dict[int, KeyColumn]:
    """The columns of keys whose bounds may leave deletes out, by field id."""
    ids = sorted({field_id for key in field_ids_by_key for field_id in key})
    return {
        field_id: columns[field_id]
        for field_id in ids
        if field_id in columns and base_type(columns[field_id].type) in _COMPARED
    }


def long_array() -> array[int]:
    """An array of 64-bit numbers."""
    return array("q")


class ColumnSpans(NamedTuple):
    """What the files of each row may hold in one column: the range of the values, whether nulls or
    values, and whether the range is complete.
    """

    low: list[Any]
    high: list[Any]
    has_null: bytearray
    has_value: bytearray
    is_bounded: bytearray

    def add_row(self) -> None:
        """Begin a row without files."""
        for values_by_row, empty_value in zip(self, (None, None, 0, 0, 1), strict=True):
            values_by_row.append(empty_value)

    def add_file(
        self,
        row: int,
        low: Any,
        high: Any,
        null_count: int | None,
        value_count: int | None,
        is_required: bool,
    ) -> None:
        """Add a file: its decoded bounds, and its counts of nulls and of all values; None for what
        its entry does not say.
        """
        has_null = not is_required and (null_count is None or null_count > 0)
        if has_null and null_count is not None and null_count == value_count:
            self.has_null[row] = 1
            return
        self.merge(row, low, high, has_null, True, low is not None and high is not None)

    def merge(
        self, row: int, low: Any, high: Any, has_null: int, has_value: int, is_bounded: int
    ) -> None:
        """Add files that were put together before."""
        self.has_null[row] |= has_null
        self.has_value[row] |= has_value
        self.is_bounded[row] &= is_bounded
        if low is not None and (self.low[row] is None or low < self.low[row]):
            self.low[row] = low
        if high is not None and (self.high[row] is None or high > self.high[row]):
            self.high[row] = high


@dataclass
class KeyBounds:
    """Data files, or equality delete files of one key, by the number of their partition and by
    sequence number: a row for each.
    """

    spans_by_column: Mapping[int, ColumnSpans]
    row_by_partition_sequence: dict[tuple[int, int], int] = field(default_factory=dict)
    file_counts: array[int] = field(default_factory=long_array)
    record_counts: array[int] = field(default_factory=long_array)

    @classmethod
    def of_columns(cls, column_ids: Iterable[int]) -> KeyBounds:
        """No files yet, for some columns."""
        return cls(
            {column_id: ColumnSpans([], [], *map(bytearray, (0, 0, 0))) for column_id in column_ids}
        )

    def row(self, partition_number: int, sequence_number: int) -> int:
        """The row of a partition and sequence number, which is added if it is new."""
        row = self.row_by_partition_sequence.get((partition_number, sequence_number))
        if row is None:
            row = self.row_by_partition_sequence[partition_number, sequence_number] = len(
                self.row_by_partition_sequence
            )
            self.file_counts.append(0)
            self.record_counts.append(0)
            for spans in self.spans_by_column.values():
                spans.add_row()
        return row

    def by_sequence_ranges(self, range_width: int) -> KeyBounds:
        """The same by ranges of sequence numbers."""
        ranged_bounds = KeyBounds.of_columns(self.spans_by_column)
        for (partition_number, sequence_number), row in self.row_by_partition_sequence.items():
            ranged_row = ranged_bounds.row(
                partition_number, range_end(sequence_number, range_width)
            )
            ranged_bounds.file_counts[ranged_row] += self.file_counts[row]
            ranged_bounds.record_counts[ranged_row] += self.record_counts[row]
            for column_id, spans in self.spans_by_column.items():
                ranged_bounds.spans_by_column[column_id].merge(
                    ranged_row, *(values_by_row[row] for values_by_row in spans)
                )
        return ranged_bounds


def range_end(sequence_number: int, range_width: int) -> int:
    """The highest sequence number of the range that contains ``sequence_number``."""
    return -(-sequence_number // range_width) * range_width
