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
from icekit.rows.deletes.applies import EVERYWHERE, FILE, OWN, order_of, unless_ruled_out
from icekit.rows.deletes.convert import convert
from icekit.rows.deletes.find import ConversionInputs, find, remaining
from icekit.rows.deletes.join import (
    ROW_ORDER,
    ROW_PART,
    deduplicated,
    newest_of,
    row_key,
    with_join_hint,
    with_newest,
)
from icekit.rows.deletes.key_view import KeyView
from icekit.rows.deletes.keys import with_fields
from icekit.rows.deletes.listing import local
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
    with clone(lake, table, snapshot) as copy:
        name = lake.sql_name(copy.table)
        convert(lake.spark, name)
        yield lake.spark.table(identifier(*name))


def require_readable(lake: Lake, table: Identifier, refusal: str) -> None:
    """Raise :class:`~icekit.common.errors.ConversionRefused` for a table with columns that the
    engine cannot read; ``refusal`` says what it cannot do then.
    """
    columns = unsupported_columns(head(lake, table).metadata, lake.engine)
    if any(column.ability is Ability.READ for column in columns):
        raise ConversionRefused(f"{engine_limits(lake.engine, columns)}, so {refusal}.")


@frozen
class ResolvedSnapshot:
    """A clone without its equality deletes, and the steps that drop the rows they delete.

    Rows come as Iceberg reads them, with their own key columns; rows whose key is among
    the deletes of a higher sequence number are dropped. Shared with a conversion are the list of
    files, with their sequence numbers and partitions, and the reading of delete files.
    """

    table: Identifier
    selected: Sequence[str]
    keys: str
    finish: Callable[[DataFrame], DataFrame]


@contextlib.contextmanager
def resolved_snapshot(
    lake: Lake, table: Identifier, snapshot_id: int, field_ids: Collection[int]
) -> Iterator[ResolvedSnapshot | None]:
    """A snapshot read as the specification defines it; None if it has no equality deletes, keys
    that cannot be resolved, or a file twice.

    ``field_ids`` are those of the keys: the clone has them even if they were dropped, and the
    columns as they were then. Select
    ``selected`` (the snapshot's columns) and the struct ``keys`` of ``table``, then ``finish`` the
    frame, in which the fields of that struct are the last columns: it drops deleted rows, and those
    columns.
    """
    with contextlib.ExitStack() as stack:
        changed = partial(_with_schema_of, snapshot_id=snapshot_id, field_ids=field_ids)
        copy = stack.enter_context(clone(lake, table, snapshot_id, change_metadata=changed))
        name = lake.sql_name(copy.table)
        try:
            inputs = find(lake.spark, remaining(lake.spark, name))
        except ConversionRefused:
            inputs = None
        selected = _selected(inputs) if inputs else None
        if inputs is None or selected is None:
            yield None
            return
        _strip(inputs)
        lake.spark.sql(f"REFRESH TABLE {identifier(*name)}")
        view = KeyView(lake.spark, inputs, stack)
        columns = [f"_file AS {identifier(_FILE)}"]
        columns += [
            f"{identifier(*c.names)} AS {identifier(row_key(c.field_id))}"
            for c in inputs.keys.columns.values()
        ]
        keys = f"struct({', '.join(columns)})"
        yield ResolvedSnapshot(
            name, selected, keys, lambda frame: _without_deleted(view, inputs, frame)
        )


def _with_schema_of(metadata: Json, snapshot_id: int, field_ids: Collection[int]) -> Json:
    """The metadata with a current schema that has the columns of a snapshot, by their names and
    types then, these fields, and those of today's that specs and sort orders need.
    """
    then = schema_of(metadata, snapshots_by_id(metadata)[snapshot_id].get("schema-id"))
    sources = {
        source_id
        for each in (*metadata.get("partition-specs", ()), *metadata.get("sort-orders", ()))
        for field in each["fields"]
        for source_id in field.get("source-ids", [field.get("source-id")])
    }
    sources &= {leaf.field_id for leaf in leaves(schema_of(metadata))}
    with_columns = {**metadata, "current-schema-id": then.get("schema-id", 0)}
    return with_fields(with_columns, {*field_ids, *sources})


def _selected(inputs: ConversionInputs) -> list[str] | None:
    """SQL for the columns that the snapshot of a clone was written with; None if a row does not
    tell which file it is of.
    """
    # A row identifies its file, but not which of two copies with different sequence numbers.
    if inputs.snapshot_deletes.listing.repeated([file.path for file in inputs.data]):
        return None
    snapshot = inputs.snapshot_deletes.snapshot or {}
    columns = schema_of(inputs.snapshot_deletes.metadata, snapshot.get("schema-id"))["fields"]
    return [identifier(column["name"]) for column in columns]


def _strip(inputs: ConversionInputs) -> None:
    """Remove the equality deletes from a clone, only in its metadata."""
    delta = inputs.snapshot_deletes.table.newRowDelta()
    for delete in inputs.equality_deletes():
        delta.removeDeletes(delete)
    delta.commit()


def _without_deleted(view: KeyView, inputs: ConversionInputs, frame: DataFrame) -> DataFrame:
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        _FILE: (pa.string(), [f.path for f in inputs.data]),
        FILE: (pa.int32(), list(range(len(inputs.data)))),
        ROW_ORDER: (pa.int64(), [order_of(f.sequence) for f in inputs.data]),
        ROW_PART: (pa.int32(), [f.part for f in inputs.data]),
    }
    files = local(frame.sparkSession, columns)
    if inputs.ruled_out is not None:
        files = files.join(inputs.ruled_out, FILE, "left")
    # Files younger than every delete are not listed, and lose no rows.
    rows = frame.join(files.hint("broadcast"), _FILE, "left")
    for key_set in inputs.key_sets:
        deletes = with_join_hint(deduplicated(view, key_set), key_set.records)
        rows = with_newest(rows, key_set, deletes)
        newest = identifier(newest_of(key_set))
        is_deleted = f"{newest} IS NOT NULL"
        if inputs.ruled_out is not None:
            words = identifier(EVERYWHERE if key_set.is_global else OWN)
            is_deleted = unless_ruled_out(is_deleted, newest, words, identifier(_FILE))
        rows = rows.where(f"NOT {is_deleted}")
    added_columns = [*files.columns, *(row_key(i) for i in inputs.keys.columns)]
    return rows.drop(*added_columns, *map(newest_of, inputs.key_sets))
