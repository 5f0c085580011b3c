"""Find the positions of the rows that equality deletes delete, and put those that were deleted before to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from icekit.engine.metadata_tables import metadata_table
from icekit.engine.session import lent
from icekit.errors import ConversionRefused
from icekit.resolve.delete_files import Present
from icekit.resolve.find import Found
from icekit.resolve.join import dead_rows, tasks, words
from icekit.resolve.listing import local
from icekit.resolve.vectors import Positions
from icekit.resolve.view import key_view
from icekit.sql import Identifier
from icekit.units import count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SETTINGS = {"spark.sql.adaptive.coalescePartitions.enabled": "false"}


def deleted_positions(spark: SparkSession, name: Identifier, found: Found, say: Callable[[str], None]) -> dict[int, Positions]:
    """The deleted positions per data file, by its place in ``found.data``."""
    records = sum(key_set.records for key_set in found.key_sets)
    spread = max(tasks(records), spark.sparkContext.defaultParallelism)
    say(f"  {records:,} delete rows in {len(found.deletes):,} files, {sum(f.records for f in found.data):,} rows in {len(found.data):,}")
    with (
        key_view(spark, name, found.at.metadata, found.keys, found.entries) as view,
        lent(spark, {**_SETTINGS, "spark.sql.shuffle.partitions": str(spread)}),
    ):
        return by_file(words(dead_rows(spark, view, found.key_sets), records))


def merge(spark: SparkSession, name: Identifier, known: Present, positions: dict[int, Positions], found: Found) -> list[Any]:
    """Take what position deletes there are into the new vectors, as a data file has at most one; returns what they replace."""
    numbers = {found.data[number].path: number for number in positions}
    touched = [path for path in numbers if path in known.of_data_file]
    if not (known.shared or touched):
        return []
    by_path = local(spark, {"path": (pa.string(), numbers.keys()), "f": (pa.int32(), numbers.values())})
    there = metadata_table(spark, name, "position_deletes", found.at.snapshot_id)
    _check_shared(spark, there, known.shared)
    old = there.join(by_path.hint("broadcast"), there.file_path == by_path.path).select("f", "pos")
    before = by_file(words(old, sum(deleted.count for deleted in positions.values())))
    for path in touched:
        # A vector that is replaced and was not read whole would give its rows back.
        there_are = before.get(numbers[path], Positions()).count
        if there_are < (expected := max(map(_least, known.of_data_file[path]))):
            raise ConversionRefused(
                f"{there_are} of {expected} positions that were deleted before could be read for {path}; nothing was changed. Run it again."
            )
    for number, deleted in before.items():
        positions[number] = positions[number].with_more(deleted)
    return [delete for path in touched for delete in known.of_data_file[path]]


def _check_shared(spark: SparkSession, there: DataFrame, shared: Mapping[str, int]) -> None:
    """See that the metadata table knows all delete files of several data files: no reader looks at them beside a vector."""
    if not shared:
        return
    paths = local(spark, {"path": (pa.string(), shared)})
    read, expected = there.join(paths.hint("broadcast"), there.delete_file_path == paths.path, "left_semi").count(), sum(shared.values())
    if read != expected:
        raise ConversionRefused(
            f"{read:,} of {expected:,} rows of {count(len(shared), 'position delete file')} could be read; nothing was changed. Run it again."
        )


def _least(delete: Any) -> int:
    """The fewest positions that a delete file of one data file has; a vector names each once."""
    return int(delete.recordCount()) if delete.contentOffset() is not None else 1


def by_file(frame: DataFrame) -> dict[int, Positions]:
    """The positions of each data file out of a frame of :func:`~icekit.resolve.join.words`."""
    got = frame.toArrow()
    numbers, places, bits = (got.column(name).to_numpy() for name in ("f", "word", "bits"))
    order = np.argsort(numbers, kind="stable")
    numbers, places, bits = numbers[order], places[order], bits[order]
    files, starts = np.unique(numbers, return_index=True)
    ends = [*starts, len(numbers)][1:]
    return {int(file): Positions.of(places[start:end], bits[start:end]) for file, start, end in zip(files, starts, ends, strict=True)}
