"""Find the rows that equality deletes delete, by one join that Spark can spill."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icekit.resolve.keys import KeyColumn
from icekit.resolve.view import DATA, FILE, KIND, PART, SEQUENCE
from icekit.sql import Identifier, identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Distinct keys that one task holds in memory at most (some 150 bytes each): deduplicated, they
#: spread evenly, whatever the skew, so this bounds a task's memory and not the table's size.
KEYS_PER_TASK = 400_000
#: Up to so many deletes every task gets all of them, and no row is shuffled.
BROADCAST_KEYS = 200_000
_LEAST_TASKS = 4


@dataclass(frozen=True, slots=True)
class KeySet:
    """Delete files with one key: ``kind`` is their number in the key view; global ones apply to every partition."""

    kind: int
    columns: tuple[KeyColumn, ...]
    is_global: bool
    records: int
    max_sequence: int


def dead_rows(spark: SparkSession, view: Identifier, key_sets: Sequence[KeySet]) -> DataFrame:
    """The rows that are deleted, as ``f`` (number of the data file) and ``pos`` (bigint); a row may come twice.

    A row is deleted by a delete of its key of a higher sequence number (and of its partition,
    unless that is global).
    """
    found = [_dead(spark, view, key_set) for key_set in key_sets]
    union = found[0]
    for more in found[1:]:
        union = union.unionAll(more)
    return union


def words(dead: DataFrame, records: int) -> DataFrame:
    """Deleted positions as ``f``, ``word`` (bigint) and ``bits`` (bigint): 64 positions each, in which a row counts once.

    At most a bit per row and as much again to say which, so the driver can hold those of a batch.
    """
    from pyspark.sql import functions as F

    # Numbers alone, so that Spark adds up in generated code; gathered by 32,768 positions, of which no row is alone.
    placed = dead.selectExpr("f", "shiftright(pos, 15) AS b", "shiftright(pos, 6) AS word", "shiftleft(1L, CAST(pos & 63 AS int)) AS bit")
    gathered = (
        placed.repartition(max(tasks(records) // 4, _LEAST_TASKS), "f", "b").groupBy("f", "b", "word").agg(F.bit_or("bit").alias("bits"))
    )
    return gathered.select("f", "word", "bits")


def tasks(records: int) -> int:
    """Into how many tasks the deletes are spread."""
    return max(1, math.ceil(records / KEYS_PER_TASK))


def deduplicated(view: Identifier, key_set: KeySet) -> str:
    """SQL for each deleted key once (``k0``, ``k1`` …, and ``p`` unless global), with its highest sequence number ``s``."""
    names = ", ".join(_names(key_set))
    rows = f"SELECT {SEQUENCE}, {_keys(key_set)} FROM {identifier(*view)} WHERE {KIND} = {key_set.kind}"
    return f"SELECT {names}, max({SEQUENCE}) AS {SEQUENCE} FROM ({rows}) GROUP BY {names}"


def _names(key_set: KeySet) -> list[str]:
    """What tells a key: its columns, and the number of its partition."""
    return [*(() if key_set.is_global else (PART,)), *(f"k{i}" for i in range(len(key_set.columns)))]


def _keys(key_set: KeySet) -> str:
    return ", ".join([*(() if key_set.is_global else (PART,)), *(f"{column.sql} AS k{i}" for i, column in enumerate(key_set.columns))])


def _dead(spark: SparkSession, view: Identifier, key_set: KeySet) -> DataFrame:
    """Join by a 64-bit hash of the key, which Spark looks up by number, and then compare the keys themselves."""
    names = _names(key_set)
    hashed = f"xxhash64({', '.join(names)}) AS h"
    older = f"{KIND} = {DATA} AND {SEQUENCE} < {key_set.max_sequence}L"
    rows = spark.sql(
        f"SELECT *, {hashed} FROM (SELECT {FILE}, _pos AS pos, {SEQUENCE}, {_keys(key_set)} FROM {identifier(*view)} WHERE {older})"
    )
    deletes = spark.sql(
        f"SELECT *, {hashed} FROM (SELECT {SEQUENCE}, {_keys(key_set)} FROM {identifier(*view)} WHERE {KIND} = {key_set.kind})"
    )
    few = key_set.records <= BROADCAST_KEYS
    if not few:
        # By hash alone, as the join wants them: a key's deletes are then in one task, and nothing is gained by
        # adding up before they are.
        deletes = deletes.repartition(max(tasks(key_set.records), spark.sparkContext.defaultParallelism), "h")
    once = deletes.groupBy("h", *names).agg(_max(SEQUENCE)).hint("broadcast" if few else "shuffle_hash")
    return rows.alias("r").join(once.alias("d"), _matches(key_set, names), "left_semi").select(FILE, "pos")


def _max(column: str) -> Column:
    from pyspark.sql import functions as F

    return F.max(column).alias(column)


def _matches(key_set: KeySet, names: Sequence[str]) -> Column:
    """The condition of the join; written so that Spark joins by the hash and only filters by the keys."""
    from pyspark.sql import functions as F

    # Not as equations: Spark would join by all of them, and look texts up.
    required = {f"k{i}" for i, column in enumerate(key_set.columns) if column.required}
    same = [f"coalesce(r.{k} = d.{k}, {'false' if k in required else f'isnull(r.{k}) AND isnull(d.{k})'})" for k in names if k != PART]
    if PART in names:
        same.append(f"r.{PART} BETWEEN d.{PART} AND d.{PART}")
    return F.expr(" AND ".join(["r.h = d.h", f"d.{SEQUENCE} > r.{SEQUENCE}", *same]))
