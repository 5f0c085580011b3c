"""Define a lab table, and the workbench that builders use.

Builders describe only what happens to a table. The workbench creates tables, writes with either
engine, and marks complete tables.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from icekit.common import frozen
from icekit.common.errors import MetadataUnreadable, TableNotFound
from icekit.common.sql import identifier, literal, set_properties_sql
from icekit.learn.lab import NAMESPACE, lake_folder
from rigs.lab import flights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.engine.lake import Lake

FLIGHTS = "icekit_lab_flights"
FILTER_COLUMNS = "icekit.filter-columns"
COMPLETE = "icekit.lab.complete"
TARGET = "write.target-file-size-bytes"

#: Properties of a table whose owner keeps few metadata files.
TRIMMED = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}

# Goes up when a builder changes, so that tables of an older lab are built again.
VERSION = 5
_MARK = f"version {VERSION}"

TARGET_SIZE_BYTES = 256 * 1024
#: The properties with which files end at the lab's target size.
SIZES = {TARGET: str(TARGET_SIZE_BYTES), "write.parquet.row-group-size-bytes": str(128 * 1024)}


@frozen
class LabTable:
    """One table of the lab.

    ``illness`` describes the problem in one sentence, ``findings`` are the names of the expected
    findings (none for a healthy table), and ``build`` builds it from scratch.
    """

    name: str
    illness: str
    findings: frozenset[str]
    build: Callable[[Lab], None]


#: Every table of the lab, by name.
TABLES: dict[str, LabTable] = {}


def lab_table(illness: str, *findings: str) -> Callable[[Callable[[Lab], None]], Any]:
    """Register a builder under its own name as a table of the lab."""

    def register(build: Callable[[Lab], None]) -> Callable[[Lab], None]:
        TABLES[build.__name__] = LabTable(build.__name__, illness, frozenset(findings), build)
        return build

    return register


@frozen
class Lab:
    """The workbench: the lake, both engines, the file of flights, and the current table."""

    lake: Lake
    spark: SparkSession
    catalog: Any
    flights_path: Path
    name: str
    namespace: str = NAMESPACE

    @property
    def location(self) -> Path:
        """The table's folder."""
        return folder_of(self.lake, self.name, self.namespace)

    @property
    def sql_name(self) -> str:
        """The table, quoted for Spark SQL."""
        return identifier(self.lake.name, self.namespace, self.name)

    @property
    def java(self) -> Any:
        """Iceberg's Java packages, in Spark's driver."""
        jvm: Any = self.spark._jvm
        return jvm.org.apache.iceberg

    def sql(self, statement: str) -> Any:
        """Run a statement in Spark; ``{t}`` stands for the table and ``{flights}`` for all
        flights.
        """
        return self.spark.sql(statement.format(t=self.sql_name, flights=identifier(FLIGHTS)))

    def insert(self, where: str, what: str = "*") -> None:
        """Append the flights that a condition selects, in one commit of Spark; ``what`` are columns
        and hints.
        """
        self.sql(f"INSERT INTO {{t}} SELECT {what} FROM {{flights}} WHERE {where}")

    def append_days(self, count: int) -> None:
        """Append the first days of the year with pyiceberg, each in a commit of its own."""
        table = self.pyiceberg_table()
        for day in range(count):
            table.append(self.days(day))
        self.refresh()

    def call(self, procedure: str, *arguments: str) -> None:
        """Run one of Iceberg's procedures on the table; ``arguments`` are SQL."""
        table = literal(f"{self.namespace}.{self.name}")
        given = ", ".join([f"table => {table}", *arguments])
        self.sql(f"CALL {identifier(self.lake.name)}.system.{procedure}({given})")

    def create(
        self,
        partitioned_by: str = "",
        properties: Mapping[str, str] | None = None,
        *,
        columns: str = flights.DDL,
        target_size_bytes: int = TARGET_SIZE_BYTES,
        rolls: bool = True,
    ) -> None:
        """Create the table; ``partitioned_by`` is SQL and may be empty.

        ``rolls`` is for tables whose files end at the target size. Spark compares the target with a
        file's current length plus the uncompressed size of the open row group, so a
        small target needs small row groups. pyiceberg has no such setting.
        """
        sizes = {**(SIZES if rolls else {}), TARGET: str(target_size_bytes)}
        pairs = ", ".join(
            f"{literal(key)} = {literal(value)}"
            for key, value in {**sizes, **(properties or {})}.items()
        )
        partitioning = f"PARTITIONED BY ({partitioned_by})" if partitioned_by else ""
        self.sql(
            f"CREATE TABLE {{t}} ({columns}) USING iceberg {partitioning} TBLPROPERTIES ({pairs})"
        )

    def set(self, properties: Mapping[str, str]) -> None:
        """Set table properties, which writes a metadata file but no snapshot."""
        self.spark.sql(
            set_properties_sql((self.lake.name, self.namespace, self.name), dict(properties))
        )

    def days(self, first: int, count: int = 1) -> Any:
        """The flights of ``count`` days as an Arrow table; day 0 is 1 January."""
        start, end = day_of(first), day_of(first + count)
        filters = [("flight_date", ">=", start), ("flight_date", "<", end)]
        return pq.read_table(self.flights_path, filters=filters)

    def pyiceberg_table(self) -> Any:
        """The table as pyiceberg sees it now."""
        return self.catalog.load_table((self.namespace, self.name))

    def java_table(self) -> Any:
        """The table as Iceberg's Java API sees it now."""
        return self.java.spark.Spark3Util.loadIcebergTable(self.spark._jsparkSession, self.sql_name)

    def java_file(self, builder: Any, io: Any, path: Path, partition: str, metrics: Any) -> Any:
        """A Parquet file as a commit of Iceberg's Java API takes it: of this builder, in the
        partition with this path, with the metrics that a ``MetricsConfig`` asks for.
        """
        written = io.newInputFile(str(path))
        return (
            builder.withInputFile(written)
            .withFormat("parquet")
            .withPartitionPath(partition)
            .withMetrics(self.java.parquet.ParquetUtil.fileMetrics(written, metrics))
            .build()
        )

    def refresh(self) -> None:
        """Tell Spark, which caches tables, that another writer has committed."""
        self.sql("REFRESH TABLE {t}")

    def start(self) -> None:
        """Remove the table of an older or killed build, and every file in its folder."""
        # Not DROP TABLE … PURGE, which needs the metadata, which somebody may have deleted, and
        # leaves behind what no snapshot references. This forgets the table, in Spark's cache too.
        catalog = self.java.spark.Spark3Util.loadIcebergCatalog(
            self.spark._jsparkSession, self.lake.name
        )
        catalog.dropTable(
            self.java.catalog.TableIdentifier.parse(f"{self.namespace}.{self.name}"), False
        )
        shutil.rmtree(self.location, ignore_errors=True)

    def finish(self) -> None:
        """Mark the table as complete: the last step of a build."""
        self.refresh()
        self.set({COMPLETE: _MARK})


def day_of(number: int) -> date:
    """A day of the year; 0 is 1 January."""
    return date(2013, 1, 1) + timedelta(days=number)


def is_complete(lake: Lake, name: str) -> bool:
    """Tell whether the table exists and is complete, of this version of the lab."""
    try:
        source = lake.tables.source((NAMESPACE, name))
        metadata = json.loads(source.read(source.metadata_location))
    except (TableNotFound, MetadataUnreadable, ValueError):
        return False
    return bool(metadata["properties"].get(COMPLETE) == _MARK)


def folder_of(lake: Lake, name: str, namespace: str = NAMESPACE) -> Path:
    """The folder of a table in the embedded lake."""
    return lake_folder(lake) / "warehouse" / namespace / name


def on_disk(location: str) -> Path:
    """The path of a file of the embedded lake, which engines spell as a path or a ``file:`` URI."""
    return Path(location.removeprefix("file://").removeprefix("file:"))
