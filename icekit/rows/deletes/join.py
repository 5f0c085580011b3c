"""Find the rows that equality deletes delete: one join on keys that Spark can spill, over a view
that holds only keys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from icekit.common.sql import identifier
from icekit.rows.deletes.conversion_inputs import ConversionInputs
from icekit.rows.deletes.key_view import FILE, PART, SEQUENCE, KeyView
from icekit.rows.deletes.keys import KeySet
from icekit.rows.deletes.ruled_out import EVERYWHERE, OWN, checked_match_sql, delete_order
from icekit.rows.deletes.ruled_out import FILE as RULED_FILE

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


def dead_rows(key_view: KeyView, inputs: ConversionInputs) -> DataFrame:
    """The deleted rows, as ``f`` (number of the data file) and ``pos`` (bigint); a row may appear
    twice.

    A row is deleted by a delete with its key and a higher sequence number (and of its partition,
    unless the delete is global). The query fails at a row with a delete that is ``ruled_out`` for
    its file.
    """
    return reduce(
        lambda first, second: first.unionAll(second),
        (_dead_rows_of(key_view, key_set, inputs.ruled_out) for key_set in inputs.key_sets),
    )


def rows_of_keys(
    key_view: KeyView,
    key_sets: Sequence[KeySet],
    filter_sql: str = "true",
    first_deletes: DataFrame | None = None,
) -> DataFrame:
    """Rows as ``f``, ``pos`` and ``dead``: whether a plain join on the keys themselves finds a
    newer delete, of any key set.

    ``filter_sql`` (see :func:`sample_sql`) takes only rows with some keys of the first key set; the
    deletes of the others are read in full. ``first_deletes`` are the deletes of the first set (see
    :func:`newest_deletes`), :func:`with_join_hint`, if they have been read.
    """
    first_set = key_sets[0]
    sql_by_field_id = {
        column.field_id: column.sql for key_set in key_sets for column in key_set.columns
    }
    rows = key_view.data.where(filter_sql).selectExpr(
        FILE,
        "_pos AS pos",
        f"{SEQUENCE} AS {identifier(ROW_ORDER)}",
        f"{PART} AS {identifier(ROW_PART)}",
        *(
            f"{sql} AS {identifier(key_column(field_id))}"
            for field_id, sql in sql_by_field_id.items()
        ),
    )
    for key_set in key_sets:
        newest_delete_rows = first_deletes
        if newest_delete_rows is None or key_set is not first_set:
            delete_filter_sql = filter_sql if key_set.columns == first_set.columns else "true"
            newest_delete_rows = with_join_hint(
                newest_deletes(key_view, key_set, delete_filter_sql), key_set.records
            )
        rows = with_newest_of_set(rows, key_set, newest_delete_rows)
    deleted_sql = " OR ".join(
        f"{identifier(newest_column(key_set))} IS NOT NULL" for key_set in key_sets
    )
    return rows.selectExpr(FILE, "pos", f"({deleted_sql}) AS dead")


def key_column(field_id: int) -> str:
    """The column with a key column's value in rows for :func:`with_newest_of_set`."""
    return f"icekit key {field_id}"


def newest_column(key_set: KeySet) -> str:
    """The column that :func:`with_newest_of_set` adds."""
    return f"icekit newest {key_set.set_index}"


def with_newest_delete(
    rows: DataFrame, deletes: DataFrame, key_sql: Sequence[str], order_column: str
) -> DataFrame:
    """Rows with the order of the newest delete of their key, if it is newer than they are, by a
    plain join on the keys themselves; null without one.

    ``key_sql`` is SQL for the key of a row, and ``order_column`` has the order of its file.
    ``deletes`` have columns with the same key, then the order of its newest delete, which the rows
    get; no column of the rows has one of their names.
    """
    from pyspark.sql import functions as F

    *delete_columns, newest = deletes.columns
    is_match = F.col(newest) > F.col(order_column)
    for value_sql, delete_column in zip(key_sql, delete_columns, strict=True):
        is_match = F.expr(value_sql).eqNullSafe(F.col(delete_column)) & is_match
    return rows.join(deletes, is_match, "left").drop(*delete_columns)


def with_newest_of_set(rows: DataFrame, key_set: KeySet, deletes: DataFrame) -> DataFrame:
    """Rows with the newest delete of a key set, as :func:`newest_column`.

    Rows have :data:`ROW_ORDER` and :data:`ROW_PART` of their file, and each :func:`key_column`;
    ``deletes`` are :func:`newest_deletes` and :func:`with_join_hint`.
    """
    delete_columns = [f"icekit deleted {name}" for name in _identity_sql(key_set)]
    named_deletes = deletes.toDF(*delete_columns, newest_column(key_set))
    row_columns = [key_column(column.field_id) for column in key_set.columns]
    if not key_set.is_global:
        row_columns.insert(0, ROW_PART)
    key_sql = [identifier(row_column) for row_column in row_columns]
    return with_newest_delete(rows, named_deletes, key_sql, ROW_ORDER)


def sample_sql(key_columns_sql: Sequence[str], salt: int, one_in: int) -> str:
    """SQL for whether a row, or a delete, has one of the sampled keys: one in so many, by a salted
    hash of the key's columns, which are SQL.
    """
    if one_in == 1:
        return "true"
    return f"pmod(xxhash64({salt}, {', '.join(key_columns_sql)}), {one_in}) = 0"


def position_words(deleted_rows: DataFrame, record_count: int, *extra_columns: str) -> DataFrame:
    """Positions of rows as ``f``, ``word`` (bigint) and ``bits`` (bigint): 64 positions per word; a
    row counts once.

    At most one bit per row, plus as much again for the word numbers, so the driver can hold a
    batch. Positions with different values in ``extra_columns`` are counted apart.
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
    word_rows = (
        numbered_rows.repartition(max(task_count(record_count) // 4, _LEAST_TASKS), "f", "b")
        .groupBy("f", "b", "word", *extra_columns)
        .agg(F.bit_or("bit").alias("bits"))
    )
    return word_rows.select("f", "word", "bits", *extra_columns)


def task_count(record_count: int) -> int:
    """The number of tasks that the deletes are spread over."""
    return max(1, math.ceil(record_count / KEYS_PER_TASK))


def newest_deletes(key_view: KeyView, key_set: KeySet, filter_sql: str = "true") -> DataFrame:
    """Each deleted key once (``k0``, ``k1`` …, and ``p`` unless global), with its highest sequence
    number ``s``; ``filter_sql`` takes only some.
    """
    delete_rows = (
        key_view.deletes(key_set)
        .where(filter_sql)
        .selectExpr(SEQUENCE, *_identity_columns(key_set))
    )
    return delete_rows.groupBy(*_identity_sql(key_set)).agg(_max(SEQUENCE))


def with_join_hint(deletes: DataFrame, record_count: int) -> DataFrame:
    """At most so many deletes, for a plain join: if they are few, every task gets all of them."""
    return deletes.hint("broadcast" if record_count <= BROADCAST_KEYS else "merge")


def _identity_sql(key_set: KeySet) -> dict[str, str]:
    """SQL by name for what identifies a key: its columns, and the number of its partition."""
    sql_by_name = {} if key_set.is_global else {PART: PART}
    return sql_by_name | {f"k{i}": column.sql for i, column in enumerate(key_set.columns)}


def _identity_columns(key_set: KeySet) -> list[str]:
    """The columns of :func:`_identity_sql`."""
    return [
        f"{column_sql} AS {column_name}"
        for column_name, column_sql in _identity_sql(key_set).items()
    ]


def _dead_rows_of(key_view: KeyView, key_set: KeySet, ruled_out: DataFrame | None) -> DataFrame:
    """Join on a 64-bit hash of the key, which Spark looks up as a number, and then compare the keys
    themselves.
    """
    from pyspark.sql import functions as F

    key_names = list(_identity_sql(key_set))
    hash_sql = f"xxhash64({', '.join(key_names)}) AS h"
    data_rows = (
        key_view.data.where(f"{SEQUENCE} < {delete_order(key_set.max_sequence, 0)}L")
        .selectExpr(FILE, "_pos AS pos", SEQUENCE, *_identity_columns(key_set))
        .selectExpr("*", hash_sql)
    )
    delete_rows = key_view.deletes(key_set).selectExpr(SEQUENCE, *_identity_columns(key_set))
    delete_rows = delete_rows.selectExpr("*", hash_sql)
    is_broadcast = key_set.records <= BROADCAST_KEYS
    if not is_broadcast:
        # By hash alone, as the join needs it: all deletes of a key are then in one task, and
        # pre-aggregation gains nothing.
        delete_rows = delete_rows.repartition(
            max(
                task_count(key_set.records), data_rows.sparkSession.sparkContext.defaultParallelism
            ),
            "h",
        )
    deduplicated_deletes = (
        delete_rows.groupBy("h", *key_names)
        .agg(_max(SEQUENCE))
        .hint("broadcast" if is_broadcast else "shuffle_hash")
    )
    on = F.expr(f"r.h = d.h AND {_match_sql(key_set, key_names)}")
    if ruled_out is None:
        return (
            data_rows.alias("r")
            .join(deduplicated_deletes.alias("d"), on, "left_semi")
            .select(FILE, "pos")
        )
    # A delete of each key, so that no row is doubled. The words come to what was found, so that the
    # shuffle does not move them.
    matched_rows = (
        data_rows.alias("r")
        .join(deduplicated_deletes.alias("d"), on)
        .select(f"r.{FILE}", "r.pos", f"d.{SEQUENCE}")
    )
    rows_with_words = matched_rows.join(
        ruled_out.hint("broadcast"), matched_rows[FILE] == ruled_out[RULED_FILE], "left"
    )
    bits_sql = identifier(EVERYWHERE if key_set.is_global else OWN)
    return rows_with_words.where(checked_match_sql("true", SEQUENCE, bits_sql, FILE)).select(
        FILE, "pos"
    )


def _max(column: str) -> Column:
    from pyspark.sql import functions as F

    return F.max(column).alias(column)


def _match_sql(key_set: KeySet, key_names: Sequence[str]) -> str:
    """SQL for what else a row and a delete with one hash must agree in; written so that Spark joins
    on the hash and only filters on the keys.
    """
    # Not as equalities: Spark would join on all of them, and look up strings.
    conditions_sql = []
    for i, column in enumerate(key_set.columns):
        both_null_sql = "false" if column.is_required else f"isnull(r.k{i}) AND isnull(d.k{i})"
        conditions_sql.append(f"coalesce(r.k{i} = d.k{i}, {both_null_sql})")
    if PART in key_names:
        conditions_sql.append(f"r.{PART} BETWEEN d.{PART} AND d.{PART}")
    return " AND ".join([f"d.{SEQUENCE} > r.{SEQUENCE}", *conditions_sql])
