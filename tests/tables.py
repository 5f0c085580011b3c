"""A table of a test's own, and what writes to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from icekit.api import Lake
from icekit.common.sql import Identifier, identifier
from tests.commits import in_order
from tests.damage import on_disk
from tests.deletes.writing import Commit, Files, Part


class Table:
    """A table, what writes to it, and what of it is asked for."""

    COLUMNS = "id bigint, name string"
    BY = ""
    #: As :meth:`create` takes them.
    PROPERTIES: ClassVar[Mapping[str, str]] = {}

    def __init__(self, lake: Lake, namespace: str, name: str) -> None:
        self.lake = lake
        self.spark = lake.spark
        self.name: Identifier = (namespace, name)
        self.full = lake.sql_name(self.name)
        self.sql_name = identifier(*self.full)
        self.files = Files(lake.spark, self.full)

    def create(
        self,
        columns: str | None = None,
        by: str | None = None,
        version: int = 2,
        **properties: str,
    ) -> Self:
        """Create the table; keyword arguments are properties, with ``_`` for ``.`` and ``__`` for
        ``-``.
        """
        given = {"format-version": version, **self.PROPERTIES, **properties}
        pairs = ", ".join(
            f"'{key.replace('__', '-').replace('_', '.')}' = '{value}'"
            for key, value in given.items()
        )
        by = self.BY if by is None else by
        self.sql(
            f"CREATE TABLE {{t}} ({columns or self.COLUMNS}) USING iceberg "
            f"{f'PARTITIONED BY ({by})' if by else ''} TBLPROPERTIES ({pairs})"
        )
        return self

    @property
    def java(self) -> Any:
        """Iceberg's own classes."""
        jvm: Any = self.spark._jvm
        return jvm.org.apache.iceberg

    def sql(self, statement: str) -> list[Any]:
        return self.spark.sql(statement.replace("{t}", self.sql_name)).collect()

    def insert(self, rows: str) -> Self:
        """Append rows in one file a partition."""
        self.sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ * FROM {rows}")
        return self

    def call(self, procedure: str, *arguments: str) -> None:
        """Call a procedure of Iceberg's own."""
        given = ", ".join([f"table => '{'.'.join(self.name)}'", *arguments])
        self.sql(f"CALL {identifier(self.lake.name)}.system.{procedure}({given})")

    def commit(self) -> Commit:
        return self.files.commit()

    def data(self, rows: str, part: Part | None = None, **options: Any) -> Self:
        """Commit one data file."""
        self.commit().data(rows, part, **options).done()
        return self

    def append(self, file: Any) -> Self:
        """Commit a data file that is written already."""
        self.files.table().newAppend().appendFile(file).commit()
        self.files.refresh()
        return self

    def append_path(self, path: str, records: int) -> None:
        """Commit the data file at this path, with a number of records that may be wrong."""
        builder = self.java.DataFiles.builder(self.files.table().spec()).withPath(path)
        builder = builder.withFormat("parquet").withRecordCount(records)
        self.append(builder.withFileSizeInBytes(on_disk(path).stat().st_size).build())

    def delete(self, by: Any, rows: str, part: Part | None = None, **options: Any) -> Self:
        """Commit one equality delete file."""
        self.commit().deletes(by, rows, part, **options).done()
        return self

    def snapshots(self) -> list[int]:
        """Every snapshot that the table knows, oldest first."""
        return [int(snapshot["snapshot-id"]) for snapshot in in_order(self.lake, self.name)]

    def delete_files(self, at: str = "") -> int:
        return int(self.sql(f"SELECT count(*) FROM {{t}}.delete_files {at}")[0][0])

    @property
    def location(self) -> Path:
        metadata = self.lake.tables.source(self.name).metadata_location
        return on_disk(metadata).parents[1]
