"""Read a table's rows with its equality deletes applied, in bounded memory; the table stays as it
is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icekit.common import frozen
from icekit.common.errors import ConversionRefused
from icekit.common.sql import Identifier, display_name, identifier
from icekit.engine.column_types import Ability
from icekit.health.facts.column_support import engine_limits, unsupported_columns
from icekit.health.facts.head import head
from icekit.iceberg.metadata import Json, leaves, schema_of, snapshots_by_id
from icekit.rows.deletes.conversion_inputs import ConversionInputs, find_inputs, remaining_deletes
from icekit.rows.deletes.convert import convert
from icekit.rows.deletes.join import (
    ROW_ORDER,
    ROW_PART,
    key_column,
    newest_column,
    newest_deletes,
    with_join_hint,
    with_newest_of_set,
)
from icekit.rows.deletes.key_view import KeyView
from icekit.rows.deletes.keys import with_fields
from icekit.rows.deletes.listing import frame_of_columns
from icekit.rows.deletes.ruled_out import EVERYWHERE, FILE, OWN, checked_match_sql, delete_order
from icekit.sandbox.clones import clone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from icekit.engine.lake import Lake


_FILE = "icekit file"


@contextlib.contextmanager
def resolved(
    lake: Lake,
    table: Identifier,
    snapshot: int | str | None = None,
) -> Iterator[DataFrame]:
    """A frame of the rows of a table (or of a snapshot, branch or tag), its equality deletes
    applied; valid only inside the ``with``.

    The deletes are resolved once, on a zero-copy clone, and every query of the frame is then a
    plain scan. Raises :class:`~icekit.common.errors.CloneRefused` and
    :class:`~icekit.common.errors.ConversionRefused`.
    """
    require_readable(lake, table, f"the rows of {display_name(table)} cannot be read")
    with clone(lake, table, snapshot) as table_clone:
        clone_name = lake.sql_name(table_clone.table)
        convert(lake.spark, clone_name)
        yield lake.spark.table(identifier(*clone_name))


def require_readable(lake: Lake, table: Identifier, refusal: str) -> None:
    """Raise :class:`~icekit.common.errors.ConversionRefused` for a table with columns that the
    engine cannot read; ``refusal`` says what it cannot do then.
    """
    unsupported = unsupported_columns(head(lake, table).metadata, lake.engine)
    if any(column.ability is Ability.READ for column in unsupported):
        raise ConversionRefused(f"{engine_limits(lake.engine, unsupported)}, so {refusal}.")


@frozen
class ResolvedSnapshot:
    """A clone without its equality deletes, and the steps that drop the rows they delete.

    Rows come as Iceberg reads them, with their own key columns; rows whose key is among
    the deletes of a higher sequence number are dropped. Shared with a conversion are the list of
    files, with their sequence numbers and partitions, and the reading of delete files.
    """

    table: Identifier
    selected_sql: Sequence[str]
    keys_sql: str
    without_deleted_rows: Callable[[DataFrame], DataFrame]


@contextlib.contextmanager
def resolved_snapshot(
    lake: Lake, table: Identifier, snapshot_id: int, field_ids: Collection[int]
) -> Iterator[ResolvedSnapshot | None]:
    """A snapshot read as the specification defines it; None if it has no equality deletes, keys
    that cannot be resolved, or a file twice.

    ``field_ids`` are those of the keys: the clone has them even if they were dropped, and the
    columns as they were then. Select
    ``selected_sql`` (the snapshot's columns) and the struct ``keys_sql`` of ``table``, then call
    ``without_deleted_rows`` with the
    frame, in which the fields of that struct are the last columns: it drops deleted rows, and those
    columns.
    """
    with contextlib.ExitStack() as stack:
        with_key_columns = partial(_with_schema_of, snapshot_id=snapshot_id, field_ids=field_ids)
        table_clone = stack.enter_context(
            clone(lake, table, snapshot_id, change_metadata=with_key_columns)
        )
        clone_name = lake.sql_name(table_clone.table)
        try:
            inputs = find_inputs(lake.spark, remaining_deletes(lake.spark, clone_name))
        except ConversionRefused:
            inputs = None
        selected_sql = _selected_columns_sql(inputs) if inputs else None
        if inputs is None or selected_sql is None:
            yield None
            return
        _remove_equality_deletes(inputs)
        lake.spark.sql(f"REFRESH TABLE {identifier(*clone_name)}")
        key_view = KeyView(lake.spark, inputs, stack)
        key_columns_sql = [f"_file AS {identifier(_FILE)}"]
        key_columns_sql += [
            f"{identifier(*c.path_names)} AS {identifier(key_column(c.field_id))}"
            for c in inputs.keys.columns.values()
        ]
        keys_sql = f"struct({', '.join(key_columns_sql)})"
        yield ResolvedSnapshot(
            clone_name,
            selected_sql,
            keys_sql,
            lambda frame: _without_deleted(key_view, inputs, frame),
        )


def _with_schema_of(metadata: Json, snapshot_id: int, field_ids: Collection[int]) -> Json:
    """The metadata with a current schema that has the columns of a snapshot, by their names and
    types then, these fields, and those of today's that specs and sort orders need.
    """
    snapshot_schema = schema_of(metadata, snapshots_by_id(metadata)[snapshot_id].get("schema-id"))
    source_ids = {
        source_id
        for spec_or_order in (
            *metadata.get("partition-specs", ()),
            *metadata.get("sort-orders", ()),
        )
        for field in spec_or_order["fields"]
        for source_id in field.get("source-ids", [field.get("source-id")])
    }
    source_ids &= {leaf.field_id for leaf in leaves(schema_of(metadata))}
    changed_metadata = {**metadata, "current-schema-id": snapshot_schema.get("schema-id", 0)}
    return with_fields(changed_metadata, {*field_ids, *source_ids})


def _selected_columns_sql(inputs: ConversionInputs) -> list[str] | None:
    """SQL for the columns that the snapshot of a clone was written with; None if a row does not
    tell which file it is of.
    """
    # A row identifies its file, but not which of two copies with different sequence numbers.
    if inputs.snapshot_deletes.listing.repeated_paths(
        [data_file.path for data_file in inputs.data_files]
    ):
        return None
    snapshot = inputs.snapshot_deletes.snapshot or {}
    snapshot_columns = schema_of(inputs.snapshot_deletes.metadata, snapshot.get("schema-id"))[
        "fields"
    ]
    return [identifier(column["name"]) for column in snapshot_columns]


def _remove_equality_deletes(inputs: ConversionInputs) -> None:
    """Remove the equality deletes from a clone, only in its metadata."""
    row_delta = inputs.snapshot_deletes.table.newRowDelta()
    for delete_file in inputs.equality_deletes():
        row_delta.removeDeletes(delete_file)
    row_delta.commit()


def _without_deleted(key_view: KeyView, inputs: ConversionInputs, frame: DataFrame) -> DataFrame:
    file_columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        _FILE: (pa.string(), [f.path for f in inputs.data_files]),
        FILE: (pa.int32(), list(range(len(inputs.data_files)))),
        ROW_ORDER: (pa.int64(), [delete_order(f.sequence_number) for f in inputs.data_files]),
        ROW_PART: (pa.int32(), [f.partition_number for f in inputs.data_files]),
    }
    file_rows = frame_of_columns(frame.sparkSession, file_columns)
    if inputs.ruled_out is not None:
        file_rows = file_rows.join(inputs.ruled_out, FILE, "left")
    # Files younger than every delete are not listed, and lose no rows.
    live_rows = frame.join(file_rows.hint("broadcast"), _FILE, "left")
    for key_set in inputs.key_sets:
        key_deletes = with_join_hint(newest_deletes(key_view, key_set), key_set.records)
        live_rows = with_newest_of_set(live_rows, key_set, key_deletes)
        newest_sql = identifier(newest_column(key_set))
        deleted_sql = f"{newest_sql} IS NOT NULL"
        if inputs.ruled_out is not None:
            bits_sql = identifier(EVERYWHERE if key_set.is_global else OWN)
            deleted_sql = checked_match_sql(deleted_sql, newest_sql, bits_sql, identifier(_FILE))
        live_rows = live_rows.where(f"NOT {deleted_sql}")
    added_columns = [*file_rows.columns, *(key_column(i) for i in inputs.keys.columns)]
    return live_rows.drop(*added_columns, *map(newest_column, inputs.key_sets))
