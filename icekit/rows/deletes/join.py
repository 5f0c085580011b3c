"""Find the rows that equality deletes delete: one join on keys that Spark can spill, over a view
that holds only keys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from icekit.common.sql import identifier
from icekit.rows.deletes.applies import EVERYWHERE, OWN, order_of, unless_ruled_out
from icekit.rows.deletes.applies import FILE as RULED_FILE
from icekit.rows.deletes.find import ConversionInputs
from icekit.rows.deletes.key_view import FILE, PART, SEQUENCE, KeyView
from icekit.rows.deletes.keys import KeySet

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Most distinct keys that one task holds in memory (some 150 bytes each): deduplicated keys
#: spread evenly, whatever the skew, so this bounds a task's memory and not the table's size.
KEYS_PER_TASK = 400_000
#: Up to this many deletes, every task gets all of them, and no row is shuffled.
BROADCAST_KEYS = 200_000
_LEAST_TASKS = 4
#: In rows for a plain join: the order and the partition of a row's file.
ROW_ORDER = "icekit order"
ROW_PART = "icekit part"


def dead_rows(view: KeyView, inputs: ConversionInputs) -> DataFrame:
    """The deleted rows, as ``f`` (number of the data file) and ``pos`` (bigint); a row may appear
    twice.

    A row is deleted by a delete with its key and a higher sequence number (and of its partition,
    unless the delete is global). The query fails at a row with a delete that is ``ruled_out`` for
    its file.
    """
    return reduce(
        lambda first, second: first.unionAll(second),
        (_dead(view, key_set, inputs.ruled_out) for key_set in inputs.key_sets),
    )


def rows_of_keys(
    view: KeyView,
    key_sets: Sequence[KeySet],
    sample: str = "true",
    read_deletes: DataFrame | None = None,
) -> DataFrame:
    """Rows as ``f``, ``pos`` and ``dead``: whether a plain join on the keys themselves finds a
    newer delete, of any key set.

    ``sample`` is SQL (see :func:`sampled`) that takes only rows with some keys of the first key
    set; the deletes of the others are read in full. ``given`` are the deletes of the first set (see
    :func:`deduplicated`), :func:`with_join_hint`, if they have been read.
    """
    first = key_sets[0]
    keys = {column.field_id: column.sql for key_set in key_sets for column in key_set.columns}
    rows = view.data.where(sample).selectExpr(
        FILE,
        "_pos AS pos",
        f"{SEQUENCE} AS {identifier(ROW_ORDER)}",
        f"{PART} AS {identifier(ROW_PART)}",
        *(f"{sql} AS {identifier(row_key(field_id))}" for field_id, sql in keys.items()),
    )
    for key_set in key_sets:
        deletes = read_deletes
        if deletes is None or key_set is not first:
            delete_filter = sample if key_set.columns == first.columns else "true"
            deletes = with_join_hint(deduplicated(view, key_set, delete_filter), key_set.records)
        rows = with_newest(rows, key_set, deletes)
    is_deleted = " OR ".join(
        f"{identifier(newest_of(key_set))} IS NOT NULL" for key_set in key_sets
    )
    return rows.selectExpr(FILE, "pos", f"({is_deleted}) AS dead")


def row_key(field_id: int) -> str:
    """The column with a key column's value in rows for :func:`with_newest`."""
    return f"icekit key {field_id}"


def newest_of(key_set: KeySet) -> str:
    """The column that :func:`with_newest` adds."""
    return f"icekit newest {key_set.kind}"


def with_newest(rows: DataFrame, key_set: KeySet, deletes: DataFrame) -> DataFrame:
    """Rows with the order of the newest delete of their key, if it is newer than they are, by a
    plain join on the keys themselves; null without one.

    Rows have :data:`ROW_ORDER` and :data:`ROW_PART` of their file, and each :func:`row_key`;
    ``deletes`` are :func:`deduplicated` and :func:`with_join_hint`.
    """
    names = [f"icekit deleted {name}" for name in _identity(key_set)]
    deletes = deletes.toDF(*names, newest_of(key_set))
    equal = deletes[newest_of(key_set)] > rows[ROW_ORDER]
    values = [row_key(column.field_id) for column in key_set.columns]
    if not key_set.is_global:
        values.insert(0, ROW_PART)
    for value, name in zip(values, names, strict=True):
        equal = rows[value].eqNullSafe(deletes[name]) & equal
    return rows.join(deletes, equal, "left").drop(*names)


def sampled(values: Sequence[str], salt: int, one_in: int) -> str:
    """SQL for whether a row, or a delete, has one of the sampled keys: one in so many, by a hash
    with a salt of the key's ``values``, which are SQL.
    """
    return "true" if one_in == 1 else f"pmod(xxhash64({salt}, {', '.join(values)}), {one_in}) = 0"


def words(deleted_rows: DataFrame, records: int, *extra_columns: str) -> DataFrame:
    """Positions of rows as ``f``, ``word`` (bigint) and ``bits`` (bigint): 64 positions per word; a
    row counts once.

    SnapshotDeletes most one bit per row, plus as much again for the word numbers, so the driver can hold a
    batch. Positions with different values in the columns ``more`` are kept apart.
    """
    from pyspark.sql import functions as F

    # Only numbers, so that Spark aggregates in generated code; grouped by 32,768 positions first.
    numbered_rows = deleted_rows.selectExpr(
        "f",
        "shiftright(pos, 15) AS b",
        "shiftright(pos, 6) AS word",
        "shiftleft(1L, CAST(pos & 63 AS int)) AS bit",
        *extra_columns,
    )
    gathered = (
        numbered_rows.repartition(max(tasks(records) // 4, _LEAST_TASKS), "f", "b")
        .groupBy("f", "b", "word", *extra_columns)
        .agg(F.bit_or("bit").alias("bits"))
    )
    return gathered.select("f", "word", "bits", *extra_columns)


def tasks(records: int) -> int:
    """The number of tasks that the deletes are spread over."""
    return max(1, math.ceil(records / KEYS_PER_TASK))


def deduplicated(view: KeyView, key_set: KeySet, where: str = "true") -> DataFrame:
    """Each deleted key once (``k0``, ``k1`` …, and ``p`` unless global), with its highest sequence
    number ``s``; ``where`` takes only some.
    """
    rows = view.deletes(key_set).where(where).selectExpr(SEQUENCE, *_keys(key_set))
    return rows.groupBy(*_identity(key_set)).agg(_max(SEQUENCE))


def with_join_hint(deletes: DataFrame, records: int) -> DataFrame:
    """SnapshotDeletes most so many deletes, for a plain join: if they are few, every task gets all of them."""
    return deletes.hint("broadcast" if records <= BROADCAST_KEYS else "merge")


def _identity(key_set: KeySet) -> dict[str, str]:
    """SQL by name for what identifies a key: its columns, and the number of its partition."""
    partition = {} if key_set.is_global else {PART: PART}
    return partition | {f"k{i}": column.sql for i, column in enumerate(key_set.columns)}


def _keys(key_set: KeySet) -> list[str]:
    """The columns of :func:`_identity`."""
    return [f"{value} AS {name}" for name, value in _identity(key_set).items()]


def _dead(view: KeyView, key_set: KeySet, ruled_out: DataFrame | None) -> DataFrame:
    """Join on a 64-bit hash of the key, which Spark looks up as a number, and then compare the keys
    themselves.
    """
    from pyspark.sql import functions as F

    names = list(_identity(key_set))
    hashed = f"xxhash64({', '.join(names)}) AS h"
    rows = (
        view.data.where(f"{SEQUENCE} < {order_of(key_set.max_sequence, 0)}L")
        .selectExpr(FILE, "_pos AS pos", SEQUENCE, *_keys(key_set))
        .selectExpr("*", hashed)
    )
    deletes = view.deletes(key_set).selectExpr(SEQUENCE, *_keys(key_set))
    deletes = deletes.selectExpr("*", hashed)
    few = key_set.records <= BROADCAST_KEYS
    if not few:
        # By hash alone, as the join needs it: all deletes of a key are then in one task, and
        # pre-aggregation gains nothing.
        deletes = deletes.repartition(
            max(tasks(key_set.records), rows.sparkSession.sparkContext.defaultParallelism), "h"
        )
    once = (
        deletes.groupBy("h", *names)
        .agg(_max(SEQUENCE))
        .hint("broadcast" if few else "shuffle_hash")
    )
    on = F.expr(f"r.h = d.h AND {_matches(key_set, names)}")
    if ruled_out is None:
        return rows.alias("r").join(once.alias("d"), on, "left_semi").select(FILE, "pos")
    # A delete of each key, so that no row is doubled. The words come to what was found, so that the
    # shuffle does not move them.
    matched = (
        rows.alias("r").join(once.alias("d"), on).select(f"r.{FILE}", "r.pos", f"d.{SEQUENCE}")
    )
    placed_rows = matched.join(
        ruled_out.hint("broadcast"), matched[FILE] == ruled_out[RULED_FILE], "left"
    )
    words = identifier(EVERYWHERE if key_set.is_global else OWN)
    return placed_rows.where(unless_ruled_out("true", SEQUENCE, words, FILE)).select(FILE, "pos")


def _max(column: str) -> Column:
    from pyspark.sql import functions as F

    return F.max(column).alias(column)


def _matches(key_set: KeySet, names: Sequence[str]) -> str:
    """SQL for what else a row and a delete with one hash must agree in; written so that Spark joins
    on the hash and only filters on the keys.
    """
    # Not as equalities: Spark would join on all of them, and look up strings.
    same = []
    for i, column in enumerate(key_set.columns):
        nulls = "false" if column.required else f"isnull(r.k{i}) AND isnull(d.k{i})"
        same.append(f"coalesce(r.k{i} = d.k{i}, {nulls})")
    if PART in names:
        same.append(f"r.{PART} BETWEEN d.{PART} AND d.{PART}")
    return " AND ".join([f"d.{SEQUENCE} > r.{SEQUENCE}", *same])
