"""How many files a commit makes under each mode, from how its rows lie. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from icekit.tune.advisory_size.chain import Chain
from icekit.tune.distribution.modes import HASH, NONE, RANGE

#: Where the writer begins another file, as a share of the target: the open row group counts uncompressed
#: (ParquetWriter.length); measured at 0.86 to 0.97.
ROLLS_AT = 0.93


@dataclass(frozen=True, slots=True)
class Spread:
    """How the rows of a commit lie before any shuffle.

    ``pairs`` are the (task, partition) pairs that have rows, ``none_files`` and ``hash_files`` the files
    if each pair, or each partition, were cut where the writer begins another file. ``largest_share`` is that of the
    largest partition, of all rows.
    """

    tasks: int
    partitions: int
    rows: int
    pairs: int
    none_files: int
    hash_files: int
    largest_share: float
    row_bytes: float

    @property
    def is_clustered(self) -> bool:
        """Tell whether hardly any partition is in several tasks, so that a shuffle would save nothing."""
        return self.pairs <= self.partitions + self.tasks - 1 and self.pairs <= 1.25 * self.partitions


@dataclass(frozen=True, slots=True)
class Predicted:
    """Files of a commit under a mode, with the sum they come from."""

    mode: str
    files: int
    how: str


def predict(spread: Spread, chain: Chain, ratio: float) -> tuple[Predicted, ...]:
    """The files under none, hash and range; ``ratio`` is of shuffle bytes to file bytes.

    Range draws its bounds from a sample, so that each bound may cut a partition in two.
    """
    shuffled = int(spread.rows * spread.row_bytes * ratio)
    task = chain.task_bytes(shuffled)
    chunks = max(1, -(-shuffled // max(task, 1))) if shuffled else 0
    if not (chain.adaptive and chain.coalesces):
        chunks = min(chain.shuffle_partitions, max(spread.rows, 1))
    none = f"{spread.pairs:,} of {spread.tasks:,} × {spread.partitions:,} pairs of task and partition have rows"
    found = [Predicted(NONE, spread.none_files, none)]
    # Splitting follows the advisory size, which is below the target where it asks for small tasks.
    file_bytes = max(1.0, min(chain.target_bytes, chain.advisory_bytes / ratio if chain.splits and chain.adaptive else chain.target_bytes))
    largest = spread.rows * spread.largest_share * spread.row_bytes
    more = max(0, round(largest / file_bytes) - max(1, math.ceil(largest / (ROLLS_AT * chain.target_bytes))))
    found.append(
        Predicted(
            HASH,
            spread.hash_files + more,
            f"one task for each of {spread.partitions:,} partitions, more for what is larger than the advisory size",
        )
    )
    cut = spread.hash_files + max(0, chunks - 1)
    found.append(Predicted(RANGE, cut, f"{chunks:,} tasks, whose bounds cut up to {max(0, chunks - 1):,} partitions"))
    return tuple(found)
