"""Tell which equality deletes a scan leaves out by the bounds of their keys
(DeleteFileIndex.canContainEqDeletesForFile).

What is left out of the files of one partition and sequence number together is left out of each of
them, so what is said to apply is an upper bound: exact if a commit adds one data file and one
delete file to a partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from icekit.health.key_bounds import Keyed, Spans

# The deletes of a partition are compared with its data one sequence number at a time up to this
# many, and in as many blocks beyond.
_BLOCKS = 256


class RuledOut(NamedTuple):
    """By partition number and range of sequence numbers: deletes that apply to no data, and how
    many files and records of later deletes do not apply to data.
    """

    deletes: set[tuple[int, int]]
    data: dict[tuple[int, int], tuple[int, int]]


def rule_out(
    data: Keyed,
    deletes: Mapping[tuple[int, ...], Keyed],
    everywhere: Collection[int],
    is_exact: bool,
) -> RuledOut:
    """Compare data with deletes by their key; deletes of the partitions ``everywhere`` may apply to
    all data.

    Deletes apply to data of a lower sequence number; by ranges of them (not ``is_exact``), also to
    data of the same range. Deletes that are older than all data are left out before.
    """
    of_data = _places(data)
    if not is_exact:
        of_data[:, 1] -= 1  # older than deletes of the same range too
    met: set[tuple[int, int]] = set()
    reach = np.zeros((len(data.rows), 2), np.int64)
    for keyed in deletes.values():
        met |= _meet(data, of_data, keyed, everywhere, reach)
    # Files are not counted by key: those of a partition and sequence number may apply if those of
    # one key may.
    kept = np.array(
        [
            (*key, keyed.files[row], keyed.records[row])
            for keyed in deletes.values()
            for key, row in keyed.rows.items()
            if key in met
        ],
        np.int64,
    ).reshape(-1, 4)
    later = np.zeros_like(reach)
    for rows, others in _scopes(of_data, kept[:, :2], everywhere):
        ordered = others[np.argsort(kept[others, 1], kind="stable")]
        totals = np.concatenate((np.zeros((1, 2), np.int64), np.cumsum(kept[ordered, 2:], axis=0)))
        until = np.searchsorted(kept[ordered, 1], of_data[rows, 1], "right")
        later[rows] += totals[-1] - totals[until]
    keys, left_out = list(data.rows), later - reach
    return RuledOut(
        {key for keyed in deletes.values() for key in keyed.rows} - met,
        {
            keys[row]: (int(left_out[row, 0]), int(left_out[row, 1]))
            for row in np.flatnonzero(left_out.any(axis=1)).tolist()
        },
    )


def _places(keyed: Keyed) -> Any:
    return np.array(list(keyed.rows), np.int64).reshape(-1, 2)


def _scopes(data: Any, deletes: Any, everywhere: Collection[int]) -> Iterable[tuple[Any, Any]]:
    """The rows of data and of deletes that are compared, given the (partition, sequence number) of
    each: partition by partition.
    """
    is_global = np.isin(deletes[:, 0], list(everywhere))
    if is_global.any():
        yield np.arange(len(data)), np.flatnonzero(is_global)
    rows_of = _by_partition(data)
    for partition, rows in _by_partition(deletes).items():
        if partition in rows_of and partition not in everywhere:
            yield rows_of[partition], rows


def _by_partition(places: Any) -> dict[int, Any]:
    """The rows of each partition."""
    order = np.argsort(places[:, 0], kind="stable")
    partitions, starts = np.unique(places[order, 0], return_index=True)
    # Without rows there is no partition, and yet one split.
    return dict(zip(partitions.tolist(), np.split(order, starts[1:]), strict=False))


def _meet(
    data: Keyed, of_data: Any, deletes: Keyed, everywhere: Collection[int], reach: Any
) -> set[tuple[int, int]]:
    """The deletes that may apply to some data, whose (partition, sequence number) are ``of_data``;
    adds their files and records to the rows of data in ``reach``.
    """
    columns = [_ranked(data.columns[column], spans) for column, spans in deletes.columns.items()]
    of_deletes = _places(deletes)
    sizes = np.stack(
        [np.frombuffer(each, np.int64) for each in (deletes.files, deletes.records)], axis=1
    )
    met: set[tuple[int, int]] = set()
    for rows, others in _scopes(of_data, of_deletes, everywhere):
        rows = rows[np.argsort(of_data[rows, 1])]
        others = others[np.argsort(-of_deletes[others, 1])]
        numbers = of_data[rows, 1]
        # How much data is older than each delete.
        older = np.searchsorted(numbers, of_deletes[others, 1])
        may_apply = older > 0
        for held, own in columns:
            may_apply &= ~_apart(
                held.at(rows).accumulated().at(np.maximum(older - 1, 0)), own.at(others)
            )
        others = others[may_apply]
        if len(others):
            # From the newest on, the first ones are later than data.
            first = np.searchsorted(-of_deletes[others, 1], -numbers)
            is_met, reached = _pairs(
                first, [(held.at(rows), own.at(others)) for held, own in columns], sizes[others]
            )
            reach[rows] += reached
            met.update(map(tuple, of_deletes[others[is_met]].tolist()))
    return met


def _pairs(
    later_counts: Any, columns: Sequence[tuple[_Column, _Column]], sizes: Any
) -> tuple[Any, Any]:
    """Which deletes, newest first, apply to any data, and the sums of ``sizes`` that apply to each:
    of the deletes that are later, whose number is in ``later_counts``.
    """
    is_met = np.zeros(len(sizes), bool)
    reached = np.zeros((len(later_counts), sizes.shape[1]), np.int64)
    for block in np.array_split(np.arange(len(sizes)), min(len(sizes), _BLOCKS)):
        later = np.clip(later_counts - block[0], 0, len(block))
        for held, own in columns:
            later[_apart(held, own.at(block).together())] = 0
        is_met[block[: later.max()]] = True
        reached += np.concatenate((np.zeros_like(sizes[:1]), np.cumsum(sizes[block], axis=0)))[
            later
        ]
    return is_met, reached


class _Column(NamedTuple):
    """The spans of many rows; values are ranks."""

    low: Any
    high: Any
    has_null: Any
    has_value: Any
    is_bounded: Any

    def at(self, place: Any) -> _Column:
        return _Column(*[each[place] for each in self])

    def accumulated(self) -> _Column:
        """What each row and those before it hold together."""
        return _Column(*[how.accumulate(each) for how, each in zip(_TOGETHER, self, strict=True)])

    def together(self) -> _Column:
        """What all rows hold together."""
        return _Column(*[how.reduce(each) for how, each in zip(_TOGETHER, self, strict=True)])


_TOGETHER = (np.minimum, np.maximum, np.logical_or, np.logical_or, np.logical_and)


def _apart(data: _Column, deletes: _Column) -> Any:
    """Whether no row of these files can have a value that these deletes delete.

    Nulls meet nulls; files of nothing but nulls meet nothing else, even without bounds.
    """
    are_apart = (
        data.is_bounded
        & deletes.is_bounded
        & ((deletes.low > data.high) | (data.low > deletes.high))
    )
    return ~(data.has_null & deletes.has_null) & (~data.has_value | ~deletes.has_value | are_apart)


def _ranked(data: Spans, deletes: Spans) -> tuple[_Column, _Column]:
    """The spans of both in one column of a key."""
    values = sorted({*data.low, *data.high, *deletes.low, *deletes.high} - {None})
    ranks = {value: rank for rank, value in enumerate(values)}

    def column(spans: Spans) -> _Column:
        # Without a value, above all and below all.
        ends = [
            np.array([ranks.get(value, without) for value in of], np.int64)
            for of, without in ((spans.low, len(values)), (spans.high, -1))
        ]
        return _Column(*ends, *(np.frombuffer(each, bool) for each in spans[2:]))

    return column(data), column(deletes)
