"""Write what no SQL writes: equality deletes of any key, format and partition, beside data and
position deletes.

Files are made by Iceberg's own writers, as engines with a Java writer make them, and their
rows come from SQL, so that any type can be written.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from icekit.common.sql import Identifier, identifier
from icekit.engine.bridge import load_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A partition by the names of its fields, with values as Iceberg's JSON has them; None is a null.
Part = Mapping[str, Any]


class Commit:
    """Files that are committed together, and so have one sequence number."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._added: list[tuple[str, Any]] = []

    def data(self, rows: str, part: Part | None = None, **options: Any) -> Commit:
        """A data file, as :meth:`Files.data` writes it."""
        self._added.append(("addRows", self._files.data(rows, part, **options)))
        return self

    def deletes(
        self, by: str | Sequence[str | int], rows: str, part: Part | None = None, **options: Any
    ) -> Commit:
        """An equality delete file, as :meth:`Files.deletes` writes it."""
        self._added.append(("addDeletes", self._files.deletes(by, rows, part, **options)))
        return self

    def positions(self, of: Sequence[tuple[str, int]]) -> Commit:
        """A position delete file, as :meth:`Files.positions` writes it."""
        self._added.append(("addDeletes", self._files.positions(of)))
        return self

    def last_data_path(self) -> str:
        """The path of the data file that was added last, to delete rows of it by position."""
        return next(
            str(file.location()) for kind, file in reversed(self._added) if kind == "addRows"
        )

    def done(self, branch: str | None = None) -> None:
        """Commit, as an upsert stream does."""
        table = self._files.table()
        delta = table.newRowDelta()
        for kind, file in self._added:
            delta = getattr(delta, kind)(file)
        if branch:
            delta = delta.toBranch(branch)
        delta.commit()
        self._files.refresh()


class Files:
    """Writes the files of one table (named with its catalog)."""

    def __init__(self, spark: SparkSession, name: Identifier) -> None:
        self._spark, self._name = spark, name
        jvm: Any = spark._jvm
        self._jvm, self._iceberg = jvm, jvm.org.apache.iceberg
        self._numbers = itertools.count()

    def commit(self) -> Commit:
        """Begin a commit."""
        return Commit(self)

    def table(self) -> Any:
        """The table as Iceberg's API knows it, as it is now."""
        table = load_table(self._spark, self._name)
        table.refresh()
        return table

    def refresh(self) -> None:
        """Let Spark see what was committed."""
        self._spark.sql(f"REFRESH TABLE {identifier(*self._name)}")

    def data(
        self,
        rows: str,
        part: Part | None = None,
        *,
        spec: int | None = None,
        format: str = "parquet",
    ) -> Any:
        """Write a data file of the rows of a query, whose columns are the table's, in order."""
        table = self.table()
        return self._write(
            "dataWriteBuilder", rows, table.schema(), table, part, spec, format
        ).toDataFile()

    def deletes(
        self,
        by: str | Sequence[str | int],
        rows: str,
        part: Part | None = None,
        *,
        spec: int | None = None,
        format: str = "parquet",
        extra: Sequence[str | int] = (),
    ) -> Any:
        """Write an equality delete file by some columns, which are those of the query, in the order
        of the table's schema.

        ``extra`` are columns that the file holds and the key does not; columns are named, or given
        by their field ids.
        """
        table = self.table()
        whole = table.schema()
        keys = [by] if isinstance(by, str) else by
        ids = [
            each if isinstance(each, int) else whole.findField(each).fieldId()
            for each in (*keys, *extra)
        ]
        chosen = self._jvm.java.util.HashSet()
        for field_id in ids:
            chosen.add(field_id)
        projected = self._iceberg.types.TypeUtil.select(whole, chosen)
        gateway: Any = self._spark.sparkContext._gateway
        array = gateway.new_array(gateway.jvm.int, len(keys))
        for place, field_id in enumerate(ids[: len(keys)]):
            array[place] = field_id

        def keyed(builder: Any) -> Any:
            return builder.equalityFieldIds(array)

        return self._write(
            "equalityDeleteWriteBuilder", rows, projected, table, part, spec, format, keyed
        ).toDeleteFile()

    def positions(self, of: Sequence[tuple[str, int]]) -> Any:
        """Write a position delete file (of format version 2) of an unpartitioned table for (path,
        position), in order.
        """
        table = self.table()
        registry = self._iceberg.formats.FormatModelRegistry
        builder = registry.positionDeleteWriteBuilder(
            self._iceberg.FileFormat.PARQUET, self._output(table, "parquet")
        )
        writer = builder.spec(table.spec()).build()
        for path, position in of:
            writer.write(self._iceberg.deletes.PositionDelete.create().set(path, position))
        writer.close()
        return writer.toDeleteFile()

    def _write(
        self,
        kind: str,
        rows: str,
        schema: Any,
        table: Any,
        part: Part | None,
        spec: int | None,
        format: str,
        more: Callable[[Any], Any] = lambda builder: builder,
    ) -> Any:
        struct = self._iceberg.spark.SparkSchemaUtil.convert(schema)
        row_class = self._jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")
        file_format = getattr(self._iceberg.FileFormat, format.upper())
        builder = getattr(self._iceberg.formats.FormatModelRegistry, kind)(
            file_format, row_class, self._output(table, format)
        )
        placed = self._placed(builder.schema(schema).engineSchema(struct), table, part, spec)
        # As Flink does, whose bounds let readers skip a delete file.
        writer = more(placed.metricsConfig(self._iceberg.MetricsConfig.forTable(table))).build()
        try:
            for row in self._rows(rows, struct):
                writer.write(row)
        finally:
            writer.close()
        return writer

    def _output(self, table: Any, suffix: str) -> Any:
        name = f"{next(self._numbers):05}-{uuid.uuid4().hex[:8]}.{suffix}"
        output = table.io().newOutputFile(table.locationProvider().newDataLocation(name))
        return self._iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(output)

    def _placed(self, builder: Any, table: Any, part: Part | None, spec: int | None) -> Any:
        found = table.spec() if spec is None else table.specs()[spec]
        builder = builder.spec(found)
        return (
            builder
            if found.isUnpartitioned()
            else builder.partition(self._partition(found, part or {}))
        )

    def _partition(self, spec: Any, part: Part) -> Any:
        """A partition of any values, by way of Iceberg's own JSON of a data file."""
        values = {str(field.fieldId()): part[field.name()] for field in spec.fields()}
        file = {
            "spec-id": spec.specId(),
            "content": "DATA",
            "file-path": "/none.parquet",
            "file-format": "PARQUET",
            "partition": values,
            "file-size-in-bytes": 1,
            "record-count": 1,
        }
        mapper = self._iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper()
        return self._iceberg.ContentFileParser.fromJson(
            mapper.readTree(json.dumps(file)), spec
        ).partition()

    def _rows(self, query: str, struct: Any) -> Any:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        frame = self._spark.sql(query)
        wanted = StructType.fromJson(json.loads(struct.json()))
        if len(wanted.fields) != len(frame.columns):
            raise ValueError(f"{query} gives {frame.columns} for {wanted.names}")
        named = frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))
        cast = named.select(
            *(
                F.col(f"c{i}").cast(field.dataType).alias(f"c{i}")
                for i, field in enumerate(wanted.fields)
            )
        )
        java: Any = cast._jdf
        return java.queryExecution().executedPlan().executeCollect()


def rows_of(values: Sequence[Sequence[str]]) -> str:
    """A query for rows given as SQL expressions."""
    return "SELECT * FROM VALUES " + ", ".join(f"({', '.join(row)})" for row in values)
