"""Find the rows that equality deletes delete, by one join that Spark can spill."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icekit.resolve.keys import KeyColumn
from icekit.resolve.vectors import BUCKET
from icekit.resolve.view import DATA, FILE, KIND, PART, SEQUENCE
from icekit.sql import Identifier, identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Distinct keys that one task holds in memory at most (some 150 bytes each): deduplicated, they
#: spread evenly, whatever the skew, so this bounds a task's memory and not the table's size.
KEYS_PER_TASK = 400_000
#: Up to so many deletes every task gets all of them, and no row is shuffled.
BROADCAST_KEYS = 200_000


@dataclass(frozen=True, slots=True)
class KeySet:
    """Delete files with one key: ``kind`` is their number in the key view; global ones apply to every partition."""

    kind: int
    columns: tuple[KeyColumn, ...]
    is_global: bool
    records: int
    max_sequence: int


def dead_rows(spark: SparkSession, view: Identifier, key_sets: Sequence[KeySet], slices: tuple[int, int] = (0, 1)) -> DataFrame:
    """The rows that are deleted, as ``f`` (number of the data file) and ``pos`` (bigint); a row may come twice.

    A row is deleted by a delete of its key of a higher sequence number (and of its partition,
    unless that is global). ``slices`` takes only every n-th data file.
    """
    found = [spark.sql(_dead(view, key_set, slices)) for key_set in key_sets]
    union = found[0]
    for more in found[1:]:
        union = union.unionAll(more)
    return union


def bitmaps(dead: DataFrame, records: int) -> DataFrame:
    """Deleted positions as ``f``, ``bucket`` and ``bits``: a bitmap of 32,768 positions each, in which a row counts once."""
    from pyspark.sql import functions as F

    # One number per bitmap, so that Spark sorts by a number and not by a row.
    numbered = dead.select(
        (F.shiftleft(F.col("f").cast("bigint"), 32) + F.shiftright("pos", BUCKET.bit_length() - 1)).alias("g"),
        F.col("pos").bitwiseAND(BUCKET - 1).alias("bit"),
    )
    gathered = numbered.repartition(tasks(records), "g").groupBy("g").agg(F.expr("bitmap_construct_agg(bit)").alias("bits"))
    return gathered.select(
        F.shiftright("g", 32).cast("int").alias("f"), F.col("g").bitwiseAND((1 << 32) - 1).cast("int").alias("bucket"), "bits"
    )


def tasks(records: int) -> int:
    """Into how many tasks the deletes are spread."""
    return max(1, math.ceil(records / KEYS_PER_TASK))


def deduplicated(view: Identifier, key_set: KeySet) -> str:
    """SQL for each deleted key once (``k0``, ``k1`` …, and ``p`` unless global), with its highest sequence number ``s``."""
    names = ", ".join(f"k{i}" for i in range(len(key_set.columns)))
    scope = "" if key_set.is_global else f"{PART}, "
    rows = f"SELECT {SEQUENCE}, {scope}{_keys(key_set)} FROM {identifier(*view)} WHERE {KIND} = {key_set.kind}"
    return f"SELECT {scope}{names}, max({SEQUENCE}) AS {SEQUENCE} FROM ({rows}) GROUP BY {scope}{names}"


def _keys(key_set: KeySet) -> str:
    return ", ".join(f"{column.sql} AS k{i}" for i, column in enumerate(key_set.columns))


def _dead(view: Identifier, key_set: KeySet, slices: tuple[int, int]) -> str:
    scope = "" if key_set.is_global else f"{PART}, "
    equal = [f"r.k{i} {'=' if column.required else '<=>'} d.k{i}" for i, column in enumerate(key_set.columns)]
    if not key_set.is_global:
        equal.insert(0, f"r.{PART} = d.{PART}")
    hint = "BROADCAST(d)" if key_set.records <= BROADCAST_KEYS else "SHUFFLE_HASH(d)"
    place, of = slices
    sliced = f" AND {FILE} % {of} = {place}" if of > 1 else ""
    rows = (
        f"SELECT {FILE}, _pos AS pos, {SEQUENCE}, {scope}{_keys(key_set)} FROM {identifier(*view)} "
        f"WHERE {KIND} = {DATA} AND {SEQUENCE} < {key_set.max_sequence}L{sliced}"
    )
    return (
        f"SELECT /*+ {hint} */ r.{FILE} AS f, r.pos FROM ({rows}) r LEFT SEMI JOIN ({deduplicated(view, key_set)}) d "
        f"ON {' AND '.join(equal)} AND d.{SEQUENCE} > r.{SEQUENCE}"
    )
