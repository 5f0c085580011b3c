"""Commit position deletes and deletion vectors that no writer would: of other paths, partitions and
counts.
"""

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.resolve.tables import Table


def data_file(table: Table) -> str:
    return str(table.sql("SELECT min(file_path) FROM {t}.data_files")[0][0])


def delete_by(
    table: Table,
    rows: list[tuple[str | None, int]],
    *,
    of: str | None = None,
    has_bounds: bool = False,
    spec: int | None = None,
    part: Any = None,
) -> str:
    """Commit a position delete file that holds these rows, and says that it is of one data file, or
    has bounds; returns its path.
    """
    loaded: Any = table.files.table()
    path = str(loaded.location()).removeprefix("file:") + f"/data/{uuid.uuid4().hex}.parquet"
    fields = [("file_path", pa.string(), 2147483546), ("pos", pa.int64(), 2147483545)]
    schema = pa.schema(
        [pa.field(name, kind, metadata={"PARQUET:field_id": str(i)}) for name, kind, i in fields]
    )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table({"file_path": [p for p, _ in rows], "pos": [n for _, n in rows]}, schema=schema),
        path,
    )
    jvm: Any = table.spark._jvm
    where = loaded.spec() if spec is None else loaded.specs()[spec]
    made = (
        jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(where)
        .ofPositionDeletes()
        .withPath(path)
        .withFormat("parquet")
    )
    made = made.withFileSizeInBytes(Path(path).stat().st_size).withRecordCount(len(rows))
    if of is not None:
        made = made.withReferencedDataFile(of)
    if has_bounds:
        names = sorted(str(name) for name, _ in rows)
        lower, upper = ({2147483546: _buffer(jvm, name)} for name in (names[0], names[-1]))
        made = made.withMetrics(
            jvm.org.apache.iceberg.Metrics(len(rows), None, None, None, None, lower, upper)
        )
    if part is not None:
        made = made.withPartition(table.files._partition(where, part))
    loaded.newRowDelta().addDeletes(made.build()).commit()
    table.files.refresh()
    return path


def _buffer(jvm: Any, text: str) -> Any:
    return jvm.org.apache.iceberg.types.Conversions.toByteBuffer(
        getattr(jvm, "org.apache.iceberg.types.Types$StringType").get(), text
    )


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
    loaded: Any = table.files.table()
    start = loaded.currentSnapshot().snapshotId()
    table.sql(f"DELETE FROM {{t}} WHERE {where}")
    path, at, length, size = table.sql(
        "SELECT file_path, content_offset, content_size_in_bytes, file_size_in_bytes FROM "
        "{t}.delete_files ORDER BY content_offset"
    )[0]
    loaded = table.files.table()
    loaded.manageSnapshots().rollbackTo(start).commit()
    jvm: Any = table.spark._jvm
    made = (
        jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(loaded.spec())
        .ofPositionDeletes()
        .withPath(path)
        .withFormat("puffin")
    )
    made = (
        made.withFileSizeInBytes(size)
        .withRecordCount(records)
        .withContentSizeInBytes(length)
        .withReferencedDataFile(of)
    )
    made = made.withContentOffset(at if offset is None else offset)
    if part is not None:
        made = made.withPartition(table.files._partition(loaded.spec(), part))
    loaded.newRowDelta().addDeletes(made.build()).commit()
    table.files.refresh()
