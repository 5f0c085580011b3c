"""Estimate how many files a filter on one value of a column opens, from the bounds of the files."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any, NamedTuple

from icekit.common import frozen
from icekit.common.units import plain_number


class FileRange(NamedTuple):
    """The least and the greatest value of one file in a column, and the file's rows."""

    low: Any
    high: Any
    row_count: int = 1


def mean_file_opens(file_ranges: Sequence[FileRange]) -> float:
    """The mean number of these files that a filter ``column = value`` opens, for the values of
    their rows: 1 if no two ranges overlap, all if they are the same.

    Nobody knows how values are distributed within a file, so that they count as evenly spread over
    its range. 0 without files.
    """
    if not file_ranges:
        return 0.0
    integer_spans = _integer_spans(file_ranges)
    span_sums = _SpanSums(integer_spans)
    row_weights = [max(file_range.row_count, 1) for file_range in file_ranges]
    weighted_opens = sum(
        weight * span_sums.total_overlap_with(low, high) / (high - low)
        for weight, (low, high) in zip(row_weights, integer_spans, strict=True)
    )
    return min(max(weighted_opens / sum(row_weights), 1.0), float(len(file_ranges)))


def file_opens_from_sample(sampled_ranges: Sequence[FileRange], file_count: int) -> float:
    """The mean number of files that such a filter opens among ``file_count``, of which these are a
    random sample.
    """
    return file_opens_from_share(
        mean_file_opens(sampled_ranges) / max(len(sampled_ranges), 1),
        len(sampled_ranges),
        file_count,
    )


def file_opens_from_share(sampled_share: float, sampled_count: int, file_count: int) -> float:
    """The mean number of files that a filter opens among ``file_count``, if it opens a share of
    those that were sampled.
    """
    mean_sample_opens = sampled_share * sampled_count
    if sampled_count < 2 or file_count <= sampled_count:
        return mean_sample_opens
    # A value is always within the range of its own file.
    return 1 + (file_count - 1) * (mean_sample_opens - 1) / (sampled_count - 1)


def mean_overlap(groups: Iterable[Sequence[FileRange]]) -> float | None:
    """The mean share of the other files of its group that a filter on a file's values opens; None
    if no group has two files.
    """
    other_file_opens = 0.0
    pair_count = 0
    for group in groups:
        if len(group) > 1:
            other_file_opens += len(group) * (mean_file_opens(group) - 1)
            pair_count += len(group) * (len(group) - 1)
    return other_file_opens / pair_count if pair_count else None


def _integer_spans(file_ranges: Sequence[FileRange]) -> list[tuple[int, int]]:
    """The ranges as whole numbers that keep the order of the values, and their distances where
    these have any; each up to, and without, its second number.
    """
    lows = [file_range.low for file_range in file_ranges]
    highs = [max(file_range.low, file_range.high) for file_range in file_ranges]
    if isinstance(lows[0], str):
        integer_bounds = _integers_of_texts([*lows, *highs])
    elif isinstance(lows[0], int):
        integer_bounds = [int(value) for value in (*lows, *highs)]
    else:
        integer_bounds = _integers_of_fractions([*lows, *highs])
    range_count = len(file_ranges)
    return [(integer_bounds[i], integer_bounds[range_count + i] + 1) for i in range(range_count)]


def _integers_of_texts(texts: Sequence[str]) -> list[int]:
    encoded_texts = [text.encode() for text in texts]
    lowest_encoded_text = min(encoded_texts)
    highest_encoded_text = max(encoded_texts)
    shared_prefix_length = next(
        (
            i
            for i, (a, b) in enumerate(zip(lowest_encoded_text, highest_encoded_text, strict=False))
            if a != b
        ),
        min(len(lowest_encoded_text), len(highest_encoded_text)),
    )
    suffix_bytes = max(len(text_bytes) for text_bytes in encoded_texts) - shared_prefix_length
    return [
        int.from_bytes(text_bytes[shared_prefix_length:].ljust(suffix_bytes, b"\0"), "big")
        for text_bytes in encoded_texts
    ]


# The steps that a range of numbers with fractions is divided into.
_STEPS = 1 << 60


def _integers_of_fractions(values: Sequence[float | Decimal]) -> list[int]:
    finite_values = [value for value in values if math.isfinite(value)]
    least_value = min(finite_values, default=0)
    value_range = max(finite_values, default=0) - least_value  # type: ignore[operator]

    def step_number(value: Any) -> int:
        if not math.isfinite(value):
            return -1 if value < 0 else _STEPS + 1
        return int((value - least_value) / value_range * _STEPS) if value_range else 0

    return [step_number(value) for value in values]


class _SpanSums:
    """What some spans have in common with another one, in O(log n)."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        span_list = list(spans)
        self.lows = sorted(low for low, _ in span_list)
        self.highs = sorted(high for _, high in span_list)
        self.low_sums = [0, *accumulate(self.lows)]
        self.high_sums = [0, *accumulate(self.highs)]

    def total_overlap_with(self, low: int, high: int) -> int:
        """The lengths that the spans have between two numbers, added up."""
        return self._total_overlap_below(high) - self._total_overlap_below(low)

    def _total_overlap_below(self, value: int) -> int:
        """The lengths that the spans have below a number, added up."""
        spans_begun_count = bisect_left(self.lows, value)
        spans_ended_count = bisect_left(self.highs, value)
        return (spans_begun_count * value - self.low_sums[spans_begun_count]) - (
            spans_ended_count * value - self.high_sums[spans_ended_count]
        )


#: A choice: from here on a filter counts as slower.
_WORSE = 1.1
_LEAST_DIFFERENCE = 0.5


@frozen
class FilterOpens:
    """How many files of an action a filter on one value of a column opens, before and after a
    rewrite.
    """

    column: str
    files_before: int
    opens_before: float
    files_after: int
    opens_after: float

    @property
    def is_worse(self) -> bool:
        """Whether the rewrite makes the filter slower: it opens over a tenth more files, and a
        larger share of them (where large files are split, a filter opens more, and reads no more).
        """
        is_over_limit = self.opens_after > _WORSE * self.opens_before
        is_noticeable = self.opens_after - self.opens_before >= _LEAST_DIFFERENCE
        share_before = self.opens_before / max(self.files_before, 1)
        share_after = self.opens_after / max(self.files_after, 1)
        return is_over_limit and is_noticeable and share_after > _WORSE * share_before

    @property
    def skips_files(self) -> bool:
        """Whether the filter skips files, before or after."""
        skips_before = self.opens_before < _SKIPS * self.files_before
        return skips_before or self.opens_after < _SKIPS * self.files_after

    @property
    def before_text(self) -> str:
        """``1 of 60``."""
        return f"{plain_number(self.opens_before, 2)} of {self.files_before:,}"

    @property
    def after_text(self) -> str:
        """``1 of 12``."""
        return f"{plain_number(self.opens_after, 2)} of {self.files_after:,}"

    @property
    def change_text(self) -> str:
        """``a filter on id opens 1 of 60 files before, 1 of 12 after``."""
        return (
            f"a filter on {self.column} opens {self.before_text} files before, {self.after_text} "
            "after"
        )

    @property
    def warning(self) -> str:
        """``A filter on id opens 12 of 12 files afterwards, and 1 of 60 before``."""
        return (
            f"A filter on {self.column} opens {self.after_text} files afterwards, and "
            f"{self.before_text} before"
        )


# A filter that opens less than this share of the files skips some.
_SKIPS = 0.9
