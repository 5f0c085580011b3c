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

from icekit.iceberg.key_bounds import KeyBounds, Spans

# The deletes of a partition are compared with its data one sequence number at a time up to this
# many, and in as many blocks beyond; in fewer where these would be more comparisons.
_BLOCKS = 256
_COMPARISONS = 2_560_000

#: The number of a partition, and a sequence number.
Key = tuple[int, int]


class RuledOut(NamedTuple):
    """By partition number and range of sequence numbers: deletes that apply to no data, and how
    many files and records of later deletes do not apply to data.
    """

    deletes: set[Key]
    data: dict[Key, tuple[int, int]]


class _Span(NamedTuple):
    """The values that files may have in a column, as ranks, and whether nulls: without values,
    ``low`` is above and ``high`` below all ranks.
    """

    low: int
    high: int
    has_null: bool

    def meets(self, other: _Span) -> bool:
        """Whether both may have a value in common; nulls meet nulls."""
        in_range = self.low <= other.high and other.low <= self.high
        return in_range or (self.has_null and other.has_null)

    def joined(self, other: _Span) -> _Span:
        """What both may have together."""
        return _Span(
            min(self.low, other.low),
            max(self.high, other.high),
            self.has_null or other.has_null,
        )


@dataclass
class _Reach:
    """How many files and records of deletes may apply to each row of data."""

    files: list[int]
    records: list[int]


def rule_out(
    data: KeyBounds,
    deletes: Mapping[tuple[int, ...], KeyBounds],
    everywhere: Collection[int],
    is_exact: bool,
) -> RuledOut:
    """Compare data with deletes by their key; deletes of the partitions ``everywhere`` may apply to
    all data.

    Deletes apply to data of a lower sequence number; by ranges of them (not ``is_exact``), also to
    data of the same range. Deletes that are older than all data are left out before.
    """
    keys = list(data.rows)
    # Data is older too than deletes of the same range.
    earlier = 0 if is_exact else 1
    of_data = [(partition, sequence - earlier) for partition, sequence in keys]
    met: set[Key] = set()
    reach = _Reach([0] * len(keys), [0] * len(keys))
    for keyed in deletes.values():
        met |= _meet(data, of_data, keyed, everywhere, reach)
    # Files are not counted by key: those of a partition and sequence number may apply if those of
    # one key may.
    later = _later(of_data, _met_files(deletes, met), everywhere)
    left_out = {
        key: (later.files[row] - reach.files[row], later.records[row] - reach.records[row])
        for row, key in enumerate(keys)
    }
    return RuledOut(
        {key for keyed in deletes.values() for key in keyed.rows} - met,
        {key: counts for key, counts in left_out.items() if any(counts)},
    )


class _MetFiles(NamedTuple):
    """The delete files of a partition and sequence number that may apply to some data."""

    key: Key
    files: int
    records: int


def _met_files(deletes: Mapping[tuple[int, ...], KeyBounds], met: set[Key]) -> list[_MetFiles]:
    return [
        _MetFiles(key, keyed.files[row], keyed.records[row])
        for keyed in deletes.values()
        for key, row in keyed.rows.items()
        if key in met
    ]


def _later(of_data: Sequence[Key], met: Sequence[_MetFiles], everywhere: Collection[int]) -> _Reach:
    """All files and records of deletes that are later than each row of data."""
    later = _Reach([0] * len(of_data), [0] * len(of_data))
    for rows, others in _scopes(of_data, [each.key for each in met], everywhere):
        ordered = sorted((met[other] for other in others), key=lambda each: each.key[1])
        sequences = [each.key[1] for each in ordered]
        files = [0, *accumulate(each.files for each in ordered)]
        records = [0, *accumulate(each.records for each in ordered)]
        for row in rows:
            until = bisect_right(sequences, of_data[row][1])
            later.files[row] += files[-1] - files[until]
            later.records[row] += records[-1] - records[until]
    return later


def _scopes(
    data: Sequence[Key], deletes: Sequence[Key], everywhere: Collection[int]
) -> Iterator[tuple[list[int], list[int]]]:
    """The rows of data and of deletes that are compared: partition by partition."""
    of_all = [row for row, (partition, _) in enumerate(deletes) if partition in everywhere]
    if of_all:
        yield list(range(len(data))), of_all
    data_rows = _by_partition(data)
    for partition, rows in _by_partition(deletes).items():
        if partition in data_rows and partition not in everywhere:
            yield data_rows[partition], rows


def _by_partition(keys: Iterable[Key]) -> dict[int, list[int]]:
    """The rows of each partition."""
    rows = defaultdict[int, list[int]](list)
    for row, (partition, _) in enumerate(keys):
        rows[partition].append(row)
    return rows


def _meet(
    data: KeyBounds,
    of_data: Sequence[Key],
    deletes: KeyBounds,
    everywhere: Collection[int],
    reach: _Reach,
) -> set[Key]:
    """The deletes that may apply to some data, whose partitions and sequence numbers are
    ``of_data``; adds their files and records to the rows of data in ``reach``.
    """
    columns = [_ranked(data.columns[column], spans) for column, spans in deletes.columns.items()]
    of_deletes = list(deletes.rows)
    met: set[Key] = set()
    for data_rows, delete_rows in _scopes(of_data, of_deletes, everywhere):
        rows = sorted(data_rows, key=lambda row: of_data[row][1])
        sequences = [of_data[row][1] for row in rows]
        in_scope = [_Ranked([each.data[row] for row in rows], each.deletes) for each in columns]
        remaining_rows = sorted(delete_rows, key=lambda row: -of_deletes[row][1])
        # How much data is older than each delete.
        older = {row: bisect_left(sequences, of_deletes[row][1]) for row in remaining_rows}
        remaining_rows = [row for row in remaining_rows if older[row]]
        for of_column in in_scope:
            joined = list(accumulate(of_column.data, _Span.joined))
            remaining_rows = [
                row
                for row in remaining_rows
                if of_column.deletes[row].meets(joined[older[row] - 1])
            ]
        files_reached = [0] * len(rows)
        records_reached = [0] * len(rows)
        for block in _blocks(remaining_rows, len(rows)):
            places = _reached(in_scope, older[block[0]], block)
            files = [0, *accumulate(deletes.files[row] for row in block)]
            records = [0, *accumulate(deletes.records[row] for row in block)]
            later = len(block)
            before_all = bisect_left(places, older[block[-1]])
            for place in places[:before_all]:
                files_reached[place] += files[later]
                records_reached[place] += records[later]
            newest_first = [-of_deletes[row][1] for row in block]
            for place in places[before_all:]:
                later = bisect_left(newest_first, -sequences[place])
                files_reached[place] += files[later]
                records_reached[place] += records[later]
            if places:
                most = bisect_left(newest_first, -sequences[places[0]])
                met.update(of_deletes[row] for row in block[:most])
        for place, row in enumerate(rows):
            reach.files[row] += files_reached[place]
            reach.records[row] += records_reached[place]
    return met


def _blocks(rows: Sequence[int], data_rows: int) -> Iterator[Sequence[int]]:
    """Rows of deletes in order, in blocks of nearly equal sizes."""
    number = min(len(rows), _BLOCKS, max(1, _COMPARISONS // data_rows))
    for block in range(number):
        yield rows[len(rows) * block // number : len(rows) * (block + 1) // number]


class _Ranked(NamedTuple):
    """The spans of data and of deletes in one column of a key."""

    data: Sequence[_Span]
    deletes: Sequence[_Span]


def _reached(columns: Sequence[_Ranked], older: int, block: Sequence[int]) -> Sequence[int]:
    """Of the first, ``older`` spans of data, the places of those that have a value in common with
    the deletes of a block together, in every column.
    """
    places: Sequence[int] = range(older)
    for of_column in columns:
        low, high, has_null = reduce(_Span.joined, (of_column.deletes[row] for row in block))
        # As _Span.meets: these are most of the comparisons.
        data = of_column.data
        if len(places) < older:
            data = [data[place] for place in places]
        places = [
            place
            for place, (its_low, its_high, its_null) in zip(places, data, strict=False)
            if (its_low <= high and low <= its_high) or (has_null and its_null)
        ]
    return places


def _ranked(data: Spans, deletes: Spans) -> _Ranked:
    """The spans of both in one column of a key."""
    values = sorted({*data.low, *data.high, *deletes.low, *deletes.high} - {None})
    ranks = {value: rank for rank, value in enumerate(values)}
    below = -1
    above = len(values)

    def ranked(spans: Spans) -> list[_Span]:
        made = []
        for low, high, has_null, has_value, is_bounded in zip(*spans, strict=True):
            if not has_value:
                made.append(_Span(above + 1, below - 1, bool(has_null)))
            elif not is_bounded:
                made.append(_Span(below, above, bool(has_null)))
            else:
                made.append(_Span(ranks[low], ranks[high], bool(has_null)))
        return made

    return _Ranked(ranked(data), ranked(deletes))
