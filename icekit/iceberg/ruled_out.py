"""Tell which equality deletes a scan leaves out by the bounds of their keys
(DeleteFileIndex.canContainEqDeletesForFile).

What is left out of the files of one partition and sequence number together is left out of each of
them, so what is said to apply is an upper bound: exact if a commit adds one data file and one
delete file to a partition.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import NamedTuple

from icekit.iceberg.key_bounds import ColumnSpans, KeyBounds

# The deletes of a partition are compared with its data one sequence number at a time up to this
# many, and in as many blocks beyond; in fewer where these would be more comparisons.
_BLOCKS = 256
_COMPARISONS = 2_560_000

#: The number of a partition, and a sequence number.
PartitionSequence = tuple[int, int]


class RuledOut(NamedTuple):
    """By partition number and range of sequence numbers: deletes that apply to no data, and how
    many files and records of later deletes do not apply to data.
    """

    delete_keys: set[PartitionSequence]
    counts_by_data_key: dict[PartitionSequence, tuple[int, int]]


class _Span(NamedTuple):
    """The values that files may have in a column, as ranks, and whether nulls: without values,
    ``low`` is above and ``high`` below all ranks.
    """

    low: int
    high: int
    has_null: bool

    def meets(self, other: _Span) -> bool:
        """Whether both may have a value in common; nulls meet nulls."""
        has_overlap = self.low <= other.high and other.low <= self.high
        return has_overlap or (self.has_null and other.has_null)

    def union(self, other: _Span) -> _Span:
        """What both may have together."""
        return _Span(
            min(self.low, other.low),
            max(self.high, other.high),
            self.has_null or other.has_null,
        )


@dataclass
class _DeleteCounts:
    """How many files and records of deletes may apply to each row of data."""

    file_counts: list[int]
    record_counts: list[int]


def rule_out_by_bounds(
    data_bounds: KeyBounds,
    deletes_by_key_fields: Mapping[tuple[int, ...], KeyBounds],
    global_partitions: Collection[int],
    has_exact_sequences: bool,
) -> RuledOut:
    """Compare data with deletes by their key; deletes of the partitions ``global_partitions`` may
    apply to all data.

    Deletes apply to data of a lower sequence number; by ranges of them (not
    ``has_exact_sequences``), also to data of the same range. Deletes that are older than all data
    are left out before.
    """
    original_keys = list(data_bounds.row_by_partition_sequence)
    # Data is older too than deletes of the same range.
    sequence_offset = 0 if has_exact_sequences else 1
    data_keys = [(partition, sequence - sequence_offset) for partition, sequence in original_keys]
    applied_keys: set[PartitionSequence] = set()
    applied_counts = _DeleteCounts([0] * len(original_keys), [0] * len(original_keys))
    for delete_bounds in deletes_by_key_fields.values():
        applied_keys |= _applied_deletes(
            data_bounds, data_keys, delete_bounds, global_partitions, applied_counts
        )
    # Files are not counted by key: those of a partition and sequence number may apply if those of
    # one key may.
    later_counts = _later_delete_counts(
        data_keys, _applied_files(deletes_by_key_fields, applied_keys), global_partitions
    )
    excluded_counts_by_key = {
        key: (
            later_counts.file_counts[row] - applied_counts.file_counts[row],
            later_counts.record_counts[row] - applied_counts.record_counts[row],
        )
        for row, key in enumerate(original_keys)
    }
    return RuledOut(
        {
            key
            for delete_bounds in deletes_by_key_fields.values()
            for key in delete_bounds.row_by_partition_sequence
        }
        - applied_keys,
        {key: counts for key, counts in excluded_counts_by_key.items() if any(counts)},
    )


class _AppliedFiles(NamedTuple):
    """The delete files of a partition and sequence number that may apply to some data."""

    key: PartitionSequence
    file_count: int
    record_count: int


def _applied_files(
    deletes_by_key_fields: Mapping[tuple[int, ...], KeyBounds], applied_keys: set[PartitionSequence]
) -> list[_AppliedFiles]:
    return [
        _AppliedFiles(key, delete_bounds.file_counts[row], delete_bounds.record_counts[row])
        for delete_bounds in deletes_by_key_fields.values()
        for key, row in delete_bounds.row_by_partition_sequence.items()
        if key in applied_keys
    ]


def _later_delete_counts(
    data_keys: Sequence[PartitionSequence],
    applied_files: Sequence[_AppliedFiles],
    global_partitions: Collection[int],
) -> _DeleteCounts:
    """All files and records of deletes that are later than each row of data."""
    later_counts = _DeleteCounts([0] * len(data_keys), [0] * len(data_keys))
    for data_row_indexes, file_indexes in _comparable_rows(
        data_keys, [delete_files.key for delete_files in applied_files], global_partitions
    ):
        files_in_order = sorted(
            (applied_files[file_index] for file_index in file_indexes),
            key=lambda delete_files: delete_files.key[1],
        )
        sequence_numbers = [delete_files.key[1] for delete_files in files_in_order]
        file_count_sums = [
            0,
            *accumulate(delete_files.file_count for delete_files in files_in_order),
        ]
        record_count_sums = [
            0,
            *accumulate(delete_files.record_count for delete_files in files_in_order),
        ]
        for row in data_row_indexes:
            first_later_index = bisect_right(sequence_numbers, data_keys[row][1])
            later_counts.file_counts[row] += (
                file_count_sums[-1] - file_count_sums[first_later_index]
            )
            later_counts.record_counts[row] += (
                record_count_sums[-1] - record_count_sums[first_later_index]
            )
    return later_counts


def _comparable_rows(
    data_keys: Sequence[PartitionSequence],
    delete_keys: Sequence[PartitionSequence],
    global_partitions: Collection[int],
) -> Iterator[tuple[list[int], list[int]]]:
    """The rows of data and of deletes that are compared: partition by partition."""
    global_delete_indexes = [
        row
        for row, (partition_number, _) in enumerate(delete_keys)
        if partition_number in global_partitions
    ]
    if global_delete_indexes:
        yield list(range(len(data_keys))), global_delete_indexes
    data_rows_by_partition = _rows_by_partition(data_keys)
    for partition_number, delete_row_indexes in _rows_by_partition(delete_keys).items():
        if partition_number in data_rows_by_partition and partition_number not in global_partitions:
            yield data_rows_by_partition[partition_number], delete_row_indexes


def _rows_by_partition(keys: Iterable[PartitionSequence]) -> dict[int, list[int]]:
    """The rows of each partition."""
    rows_by_partition = defaultdict[int, list[int]](list)
    for row, (partition_number, _) in enumerate(keys):
        rows_by_partition[partition_number].append(row)
    return rows_by_partition


def _applied_deletes(
    data_bounds: KeyBounds,
    data_keys: Sequence[PartitionSequence],
    delete_bounds: KeyBounds,
    global_partitions: Collection[int],
    applied_counts: _DeleteCounts,
) -> set[PartitionSequence]:
    """The deletes that may apply to some data, whose partitions and sequence numbers are
    ``data_keys``; adds their files and records to the rows of data in ``applied_counts``.
    """
    ranked_columns = [
        _ranked_column(data_bounds.spans_by_column[column_id], spans)
        for column_id, spans in delete_bounds.spans_by_column.items()
    ]
    delete_keys = list(delete_bounds.row_by_partition_sequence)
    applied_keys: set[PartitionSequence] = set()
    for data_row_indexes, delete_row_indexes in _comparable_rows(
        data_keys, delete_keys, global_partitions
    ):
        sorted_row_indexes = sorted(data_row_indexes, key=lambda row: data_keys[row][1])
        sequence_numbers = [data_keys[row][1] for row in sorted_row_indexes]
        compared_columns = [
            _RankedSpans(
                [ranked_spans.data[row] for row in sorted_row_indexes], ranked_spans.deletes
            )
            for ranked_spans in ranked_columns
        ]
        remaining_delete_indexes = sorted(delete_row_indexes, key=lambda row: -delete_keys[row][1])
        # How much data is older than each delete.
        older_data_count_by_row = {
            row: bisect_left(sequence_numbers, delete_keys[row][1])
            for row in remaining_delete_indexes
        }
        remaining_delete_indexes = [
            row for row in remaining_delete_indexes if older_data_count_by_row[row]
        ]
        for column_spans in compared_columns:
            running_span_unions = list(accumulate(column_spans.data, _Span.union))
            remaining_delete_indexes = [
                row
                for row in remaining_delete_indexes
                if column_spans.deletes[row].meets(
                    running_span_unions[older_data_count_by_row[row] - 1]
                )
            ]
        file_counts = [0] * len(sorted_row_indexes)
        record_counts = [0] * len(sorted_row_indexes)
        for delete_block in _blocks(remaining_delete_indexes, len(sorted_row_indexes)):
            data_indexes = _overlapping_indexes(
                compared_columns, older_data_count_by_row[delete_block[0]], delete_block
            )
            file_count_sums = [
                0,
                *accumulate(delete_bounds.file_counts[row] for row in delete_block),
            ]
            record_count_sums = [
                0,
                *accumulate(delete_bounds.record_counts[row] for row in delete_block),
            ]
            later_row_count = len(delete_block)
            fully_older_count = bisect_left(data_indexes, older_data_count_by_row[delete_block[-1]])
            for data_index in data_indexes[:fully_older_count]:
                file_counts[data_index] += file_count_sums[later_row_count]
                record_counts[data_index] += record_count_sums[later_row_count]
            negated_sequences = [-delete_keys[row][1] for row in delete_block]
            for data_index in data_indexes[fully_older_count:]:
                later_row_count = bisect_left(negated_sequences, -sequence_numbers[data_index])
                file_counts[data_index] += file_count_sums[later_row_count]
                record_counts[data_index] += record_count_sums[later_row_count]
            if data_indexes:
                applied_row_count = bisect_left(
                    negated_sequences, -sequence_numbers[data_indexes[0]]
                )
                applied_keys.update(delete_keys[row] for row in delete_block[:applied_row_count])
        for data_index, row in enumerate(sorted_row_indexes):
            applied_counts.file_counts[row] += file_counts[data_index]
            applied_counts.record_counts[row] += record_counts[data_index]
    return applied_keys


def _blocks(delete_row_indexes: Sequence[int], data_row_count: int) -> Iterator[Sequence[int]]:
    """Rows of deletes in order, in blocks of nearly equal sizes."""
    block_count = min(len(delete_row_indexes), _BLOCKS, max(1, _COMPARISONS // data_row_count))
    for block_index in range(block_count):
        yield delete_row_indexes[
            len(delete_row_indexes) * block_index // block_count : len(delete_row_indexes)
            * (block_index + 1)
            // block_count
        ]


class _RankedSpans(NamedTuple):
    """The spans of data and of deletes in one column of a key."""

    data: Sequence[_Span]
    deletes: Sequence[_Span]


def _overlapping_indexes(
    columns: Sequence[_RankedSpans], older_data_count: int, delete_block: Sequence[int]
) -> Sequence[int]:
    """Of the first, ``older_data_count`` spans of data, the places of those that have a value in
    common with the deletes of a block together, in every column.
    """
    data_indexes: Sequence[int] = range(older_data_count)
    for column_spans in columns:
        low, high, has_null = reduce(
            _Span.union, (column_spans.deletes[row] for row in delete_block)
        )
        # As _Span.meets: these are most of the comparisons.
        data_spans = column_spans.data
        if len(data_indexes) < older_data_count:
            data_spans = [data_spans[data_index] for data_index in data_indexes]
        data_indexes = [
            data_index
            for data_index, (data_low, data_high, data_has_null) in zip(
                data_indexes, data_spans, strict=False
            )
            if (data_low <= high and low <= data_high) or (has_null and data_has_null)
        ]
    return data_indexes


def _ranked_column(data_spans: ColumnSpans, delete_spans: ColumnSpans) -> _RankedSpans:
    """The spans of both in one column of a key."""
    bound_values = sorted(
        {*data_spans.low, *data_spans.high, *delete_spans.low, *delete_spans.high} - {None}
    )
    rank_by_value = {value: rank for rank, value in enumerate(bound_values)}
    lowest_rank = -1
    highest_rank = len(bound_values)

    def ranked_spans_of(spans: ColumnSpans) -> list[_Span]:
        ranked_spans = []
        for low, high, has_null, has_value, is_bounded in zip(*spans, strict=True):
            if not has_value:
                ranked_spans.append(_Span(highest_rank + 1, lowest_rank - 1, bool(has_null)))
            elif not is_bounded:
                ranked_spans.append(_Span(lowest_rank, highest_rank, bool(has_null)))
            else:
                ranked_spans.append(_Span(rank_by_value[low], rank_by_value[high], bool(has_null)))
        return ranked_spans

    return _RankedSpans(ranked_spans_of(data_spans), ranked_spans_of(delete_spans))
