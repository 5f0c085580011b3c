"""Cut file sizes into buckets around the target in force."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

# rewrite_data_files leaves a file alone when 0.75 x target <= size <= 1.8 x target
# (SizeBasedFileRewritePlanner, MIN_FILE_SIZE_DEFAULT_RATIO and MAX_FILE_SIZE_DEFAULT_RATIO).
MIN_SIZE_RATIO = 0.75
MAX_SIZE_RATIO = 1.8
_RATIOS = (*(2.0**-k for k in range(14, 0, -1)), 1.0, *(2.0**k for k in range(2, 8)))


def edges(target_bytes: int, ratios: Iterable[float] = ()) -> tuple[int, ...]:
    """Inclusive lower edges of the size buckets, ascending from 0.

    Halvings and doublings of the target, Iceberg's own two limits, and any ``ratios`` that
    thresholds ask for: so that a count on either side of a limit is exact.
    """
    cut = {0}
    cut.update(int(target_bytes * ratio) for ratio in _RATIOS)
    for ratio in (MIN_SIZE_RATIO, MAX_SIZE_RATIO, *ratios):
        # A file of exactly the limit is left alone on either side; no bucket is a single byte.
        if ratio <= 1:
            cut.add(min_file_size(target_bytes, ratio))
        else:
            cut.discard(max_file_size(target_bytes, ratio))
            cut.add(max_file_size(target_bytes, ratio) + 1)
    return tuple(sorted(cut))


def min_file_size(target_bytes: int, ratio: float = MIN_SIZE_RATIO) -> int:
    """The smallest size that is left alone."""
    return int(target_bytes * ratio)


def max_file_size(target_bytes: int, ratio: float = MAX_SIZE_RATIO) -> int:
    """The largest size that is left alone."""
    return int(target_bytes * ratio)


def bucket_of(size_in_bytes: int, cut: tuple[int, ...]) -> int:
    """The lower edge of the bucket that a size falls into."""
    return cut[bisect_right(cut, size_in_bytes) - 1]
