"""Commit position deletes and deletion vectors that no writer would: of other paths, partitions and
counts.
"""

import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.deletes.tables import Table


def data_file(table: Table) -> str:
    return str(table.sql("SELECT min(file_path) FROM {t}.data_files")[0][0])


def delete_by(
    table: Table,
    rows: list[tuple[str | None, int]],
    *,
    of: str | None = None,
    has_bounds: bool = False,
    part: Any = None,
) -> str:
    """Commit a position delete file that holds these rows, and says that it is of one data file, or
    has bounds; returns its path.
    """
    path = table.location / "data" / f"{uuid.uuid4().hex}.parquet"
    fields = [("file_path", pa.string(), 2147483546), ("pos", pa.int64(), 2147483545)]
    schema = pa.schema(
        [pa.field(name, kind, metadata={"PARQUET:field_id": str(i)}) for name, kind, i in fields]
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table({"file_path": [p for p, _ in rows], "pos": [n for _, n in rows]}, schema=schema),
        path,
    )
    made = _builder(table, str(path), "parquet", path.stat().st_size, len(rows))
    if of is not None:
        made = made.withReferencedDataFile(of)
    if has_bounds:
        names = sorted(str(name) for name, _ in rows)
        lower, upper = ({2147483546: _buffer(table, name)} for name in (names[0], names[-1]))
        made = made.withMetrics(table.java.Metrics(len(rows), None, None, None, None, lower, upper))
    _commit(table, made, part)
    return str(path)


def _commit(table: Table, made: Any, part: Any) -> None:
    """Commit the delete file of a builder, in this partition of the table's newest spec."""
    loaded = table.files.table()
    if part is not None:
        made = made.withPartition(table.files._partition(loaded.spec(), part))
    loaded.newRowDelta().addDeletes(made.build()).commit()
    table.files.refresh()


def _builder(table: Table, path: str, format: str, size: int, records: int) -> Any:
    """What builds a file of position deletes under the table's newest spec."""
    made = table.java.FileMetadata.deleteFileBuilder(table.files.table().spec())
    made = made.ofPositionDeletes().withPath(path).withFormat(format)
    return made.withFileSizeInBytes(size).withRecordCount(records)


def _buffer(table: Table, text: str) -> Any:
    return table.java.types.Conversions.toByteBuffer(table.java.types.Types.StringType.get(), text)


def vector_of(
    table: Table,
    where: str,
    of: str,
    part: Any = None,
    *,
    offset: int | None = None,
    records: int = 1,
) -> None:
    """Commit the deletion vector that a DELETE writes, as one of another partition, or at another
    place of its file.
    """
    start = table.files.table().currentSnapshot().snapshotId()
    add_vector(table, where, of, part, back_to=start, offset=offset, records=records)


def add_vector(
    table: Table,
    where: str,
    of: str,
    part: Any = None,
    *,
    back_to: int,
    offset: int | None = None,
    records: int = 1,
) -> None:
    """Commit the deletion vector that a DELETE writes now on top of another snapshot."""
    table.sql(f"DELETE FROM {{t}} WHERE {where}")
    path, at, length, size = table.sql(
        "SELECT file_path, content_offset, content_size_in_bytes, file_size_in_bytes FROM "
        "{t}.delete_files ORDER BY content_offset"
    )[0]
    table.files.table().manageSnapshots().setCurrentSnapshot(back_to).commit()
    made = _builder(table, path, "puffin", size, records)
    made = made.withContentSizeInBytes(length).withReferencedDataFile(of)
    _commit(table, made.withContentOffset(at if offset is None else offset), part)
