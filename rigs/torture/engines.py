"""The rows of a table as engines read them, in the form of the reader of the specification."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icekit.common.sql import Identifier, identifier
from rigs.torture.reader.arrow import rows_of
from rigs.torture.reader.metadata import local
from rigs.torture.reader.projection import project
from rigs.torture.reader.schema import Field, ListOf, MapOf, Struct, with_mapped_ids
from rigs.torture.reader.table import Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_by_spark(spark: SparkSession, table: Identifier, schema: Struct) -> Rows:
    """The rows that Spark reads with Iceberg's own reader, as the table is now."""
    name = identifier(*table)
    spark.sql(f"REFRESH TABLE {name}")
    return rows_of_frame(spark.sql(f"SELECT * FROM {name}"), schema)


def rows_of_frame(frame: Any, schema: Struct) -> Rows:
    """The rows of a DataFrame with a table's columns."""
    if hasattr(frame, "toArrow"):
        return rows_in(frame.toArrow(), schema)
    # Spark 3.5 has it under another name, without a schema where there are no rows.
    batches = frame._collect_as_arrow()
    return rows_in(pa.Table.from_batches(batches), schema) if batches else Counter()


def has_duckdb() -> bool:
    """Whether DuckDB and its extensions for Iceberg are installed (from PyPI)."""
    modules = ("duckdb", "duckdb_extension_iceberg", "duckdb_extension_avro")
    return all(importlib.util.find_spec(module) is not None for module in modules)


class DuckDB:
    """Reads tables by their metadata files, in a process of its own: it crashes on some."""

    def __init__(self, folder: Path) -> None:
        self._answer = folder / "duckdb.arrow"
        self._child: subprocess.Popen[str] | None = None

    def read(self, metadata_file: str, schema: Struct) -> Rows:
        """The rows that DuckDB reads."""
        child = self._started()
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps([str(local(metadata_file)), str(self._answer)]) + "\n")
        child.stdin.flush()
        line = child.stdout.readline()
        if not line:
            raise RuntimeError(f"DuckDB ended with status {child.wait()}")
        error = json.loads(line)
        if error:
            raise RuntimeError(error)
        with pa.OSFile(str(self._answer)) as source:
            return rows_in(pa.ipc.open_file(source).read_all(), schema)

    def _started(self) -> subprocess.Popen[str]:
        if self._child is None or self._child.poll() is not None:
            self.close()
            self._child = subprocess.Popen(
                [sys.executable, "-m", "rigs.torture.duckdb_child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return self._child

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            with contextlib.suppress(BrokenPipeError):
                self._child.communicate()
            self._child = None


def read_by_pyiceberg(metadata_file: str, schema: Struct) -> Rows:
    """The rows that pyiceberg reads; it refuses equality deletes."""
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(metadata_file)
    return rows_in(table.scan().to_arrow(), schema)


def rows_in(table: pa.Table, schema: Struct) -> Rows:
    """An engine's answer, its columns by name."""
    struct, rows = rows_of(table)
    struct = with_mapped_ids(struct, [_mapping(field) for field in schema.fields])
    return Counter(project(row, struct, schema, {}) for row in rows)


def _mapping(field: Field) -> dict[str, Any]:
    """A field as an entry of a name mapping."""
    inner: tuple[Field, ...] = ()
    match field.type:
        case Struct(fields):
            inner = fields
        case ListOf(element):
            inner = (element,)
        case MapOf(key, value):
            inner = (key, value)
    return {
        "field-id": field.id,
        "names": [field.name],
        "fields": [_mapping(each) for each in inner],
    }
