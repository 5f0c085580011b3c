"""Read a table's rows with its equality deletes applied, in bounded memory and without changing the table."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icekit.clone import clone
from icekit.facts.metadata import schema_of
from icekit.resolve.convert import Found, convert, find
from icekit.resolve.delete_files import present
from icekit.resolve.join import BROADCAST_KEYS, KeySet, deduplicated
from icekit.resolve.keys import key_sql
from icekit.resolve.listing import local
from icekit.resolve.view import key_view
from icekit.sql import Identifier, identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from icekit.catalog import Lake


@contextlib.contextmanager
def resolved(
    lake: Lake, table: Identifier, snapshot: int | str | None = None, *, say: Callable[[str], None] = lambda _: None
) -> Iterator[DataFrame]:
    """A frame of the rows of a table (or of a snapshot, branch or tag), its equality deletes applied; only valid inside the ``with``.

    The deletes are resolved once, on a zero-copy clone, and every query of the frame is then a
    plain scan. Raises :class:`~icekit.errors.CloneRefused` and :class:`~icekit.errors.ConversionRefused`.
    """
    with clone(lake, table, snapshot) as made:
        name = lake.sql_name(made.table)
        convert(lake.spark, name, say=say)
        yield lake.spark.table(identifier(*name))


@dataclass(frozen=True)
class Stripped:
    """A clone without its equality deletes, and what drops the rows that these delete.

    Nothing of it is shared with a conversion but the list of files: rows come as Iceberg reads
    them, and lose those whose key is among the deletes of a higher sequence number.
    """

    table: Identifier
    columns: Sequence[str]
    finish: Callable[[DataFrame], DataFrame]


_FILE, _SEQUENCE, _PART = "icekit file", "icekit sequence", "icekit part"


@contextlib.contextmanager
def stripped(lake: Lake, table: Identifier, snapshot_id: int) -> Iterator[Stripped | None]:
    """A snapshot to be read as the specification words it; None where it has no equality deletes, or a key that was dropped.

    Select ``columns`` beside what is wanted of ``table``, then ``finish`` the frame: it drops
    deleted rows, and those columns.
    """
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(clone(lake, table, snapshot_id))
        name = lake.sql_name(made.table)
        found = find(lake.spark, name)
        names = {tuple(c.names) for s in found.key_sets for c in s.columns} if found else set()
        if found is None or not all(_has(schema_of(found.metadata)["fields"], path) for path in names):
            yield None
            return
        _strip(lake, found)
        lake.spark.sql(f"REFRESH TABLE {identifier(*name)}")
        deletes = [entry for entry in found.entries if entry.kind >= 0]
        view = stack.enter_context(key_view(lake.spark, name, found.metadata, found.keys, deletes))
        columns = [f"_file AS {identifier(_FILE)}"]
        columns += [f"{key_sql(c.names)} AS {identifier(_key(c.field_id))}" for c in found.keys.columns.values()]
        yield Stripped(name, columns, lambda frame: _without_deleted(lake, view, found, frame))


def _strip(lake: Lake, found: Found) -> None:
    """Take the equality deletes off a clone, in its metadata alone."""
    jvm: Any = lake.spark._jvm
    known = present(found.table, found.snapshot, jvm, [f.path for f in found.deletes], positions=False)
    delta = found.table.newRowDelta()
    for delete in known.equality.values():
        delta.removeDeletes(delete)
    delta.commit()


def _without_deleted(lake: Lake, view: Identifier, found: Found, frame: DataFrame) -> DataFrame:
    spark = lake.spark
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        _FILE: (pa.string(), [f.path for f in found.data]),
        _SEQUENCE: (pa.int64(), [f.sequence for f in found.data]),
        _PART: (pa.int32(), [f.part for f in found.data]),
    }
    files = local(spark, columns)
    # Files that are younger than every delete are not listed, and lose nothing.
    rows = frame.join(files.hint("broadcast"), _FILE, "left")
    for key_set in found.key_sets:
        rows = _anti(lake, view, key_set, rows)
    return rows.drop(_FILE, _SEQUENCE, _PART, *(_key(i) for i in found.keys.columns))


def _anti(lake: Lake, view: Identifier, key_set: KeySet, rows: DataFrame) -> DataFrame:
    deletes = lake.spark.sql(deduplicated(view, key_set))
    equal = rows[_SEQUENCE] < deletes["s"]
    if not key_set.is_global:
        equal = (rows[_PART] == deletes["p"]) & equal
    for place, column in enumerate(key_set.columns):
        equal = rows[_key(column.field_id)].eqNullSafe(deletes[f"k{place}"]) & equal
    return rows.join(deletes.hint("broadcast" if key_set.records <= BROADCAST_KEYS else "merge"), equal, "left_anti")


def _key(field_id: int) -> str:
    return f"icekit key {field_id}"


def _has(fields: Any, path: tuple[str, ...]) -> bool:
    field = next((f for f in fields if f["name"] == path[0]), None)
    return field is not None and (len(path) == 1 or _has(field["type"]["fields"], path[1:]))


__all__ = ["Found", "Stripped", "resolved", "stripped"]
