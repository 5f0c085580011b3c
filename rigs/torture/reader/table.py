"""The rows of a snapshot by the specification of Iceberg, for versions 1 to 3.

Written from the text of the specification, for small tables: it reads whole files, skips nothing by
statistics or partitions, and uses no code of Iceberg, pyiceberg or icekit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rigs.torture.reader.arrow import read_orc, read_parquet
from rigs.torture.reader.avro import read_avro
from rigs.torture.reader.deletes import EqualityDeletes, PositionDeletes
from rigs.torture.reader.metadata import DATA, File, Metadata, files_of, local, read_metadata
from rigs.torture.reader.projection import project
from rigs.torture.reader.schema import (
    LAST_UPDATED,
    ROW_ID,
    Struct,
    with_mapped_ids,
)

#: A row's columns by field id, in the order of these ids.
Row = tuple[tuple[int, Any], ...]
Rows = Counter[Row]
#: A row's id and the sequence number of its last update.
Lineage = tuple[int | None, int | None]

_READERS = {"parquet": read_parquet, "orc": read_orc, "avro": read_avro}


@dataclass(frozen=True)
class TableRow:
    """A live row, and where it is."""

    row: Row
    lineage: Lineage
    file: File
    position: int


def rows_of_table(location: str, snapshot_id: int | None = None) -> Rows:
    """The rows of a table by its metadata file; of a snapshot by the schema of that time."""
    return Counter(each.row for each in live_rows(read_metadata(location), snapshot_id))


def rows_with_lineage(location: str) -> Counter[tuple[Row, Lineage]]:
    """The current rows of a table, each with its row id and last update."""
    return Counter((each.row, each.lineage) for each in live_rows(read_metadata(location)))


def schema_at(metadata: Metadata, snapshot_id: int | None) -> Struct:
    """The schema that a snapshot is read with; the current one without a snapshot."""
    if snapshot_id is None:
        return metadata.current_schema
    schema_id = metadata.snapshots[snapshot_id].get("schema-id")
    return metadata.current_schema if schema_id is None else metadata.schemas[int(schema_id)]


def live_rows(metadata: Metadata, snapshot_id: int | None = None) -> list[TableRow]:
    """The rows of a snapshot (of the current one, and today's schema, without), in no order."""
    schema = schema_at(metadata, snapshot_id)
    snapshot_id = metadata.current_snapshot_id if snapshot_id is None else snapshot_id
    if snapshot_id is None:
        return []
    files = files_of(metadata, snapshot_id)
    read = _Reader(metadata).read
    position_deletes = PositionDeletes(files, read)
    equality_deletes = EqualityDeletes(metadata, files, read)
    rows = []
    for file in files:
        if file.content != DATA:
            continue
        deleted = position_deletes.of(file)
        key_sets = equality_deletes.of(file)
        constants = _identity_values(metadata, file)
        source, stored_rows = read(file)
        for position, stored in enumerate(stored_rows):
            if position in deleted:
                continue
            if any(keys.has(stored, source, constants) for keys in key_sets):
                continue
            row = project(stored, source, schema, constants)
            rows.append(TableRow(row, _lineage(stored, source, file, position), file, position))
    return rows


class _Reader:
    """Reads files of a table, with the ids of its name mapping where they have none."""

    def __init__(self, metadata: Metadata) -> None:
        self._name_mapping = metadata.name_mapping

    def read(self, file: File) -> tuple[Struct, list[dict[str, Any]]]:
        schema, rows = _READERS[file.format](local(file.path))
        if self._name_mapping:
            schema = with_mapped_ids(schema, self._name_mapping)
        return schema, rows


def _identity_values(metadata: Metadata, file: File) -> Mapping[int, Any]:
    """Values of the source columns of identity partitions, as the manifest has them."""
    partition = dict(file.partition)
    return {
        field.source_id: partition[field.id]
        for field in metadata.specs[file.spec_id]
        if field.transform == "identity" and field.id in partition and field.source_id is not None
    }


def _lineage(stored: Mapping[str, Any], source: Struct, file: File, position: int) -> Lineage:
    if file.first_row_id is None:
        return None, None
    row_id = _stored_number(stored, source, ROW_ID)
    updated = _stored_number(stored, source, LAST_UPDATED)
    return (
        file.first_row_id + position if row_id is None else row_id,
        file.sequence_number if updated is None else updated,
    )


def _stored_number(stored: Mapping[str, Any], source: Struct, field_id: int) -> int | None:
    field = source.field(field_id)
    if field is None:
        return None
    number: int | None = stored[field.name]
    return number
