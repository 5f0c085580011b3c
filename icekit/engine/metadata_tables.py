"""Read the current state of a table's metadata tables, which only this module names in a query."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from icekit.common.sql import Identifier, identifier
from icekit.engine.bridge import java_object, load_table
from icekit.engine.compat import sql_package

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: SQL for the content of an entry (0 data, 1 position deletes, 2 equality deletes) that no engine
# pushes into a scan: Iceberg 1.11 leaves out all delete manifests under a filter such as
# ``data_file.content <> 1``.
CONTENT = "data_file.content + 0"


def metadata_table(
    spark: SparkSession, table: Identifier, metadata_name: str, snapshot_id: int | None = None
) -> DataFrame:
    """A metadata table (``entries``, ``all_files`` …) of a table that is named with its catalog;
    ``snapshot_id`` reads that snapshot.

    First refreshes the session catalog's cache: a stale copy of the table does not
    know a newer snapshot, and Iceberg then reads ``VERSION AS OF`` as empty, without an error.
    """
    return spark.sql(
        f"SELECT * FROM {metadata_table_sql(spark, table, metadata_name, snapshot_id)}"
    )


def metadata_table_sql(
    spark: SparkSession, table: Identifier, metadata_name: str, snapshot_id: int | None = None
) -> str:
    """SQL for what :func:`metadata_table` reads, refreshed now; for a statement that is run at
    once.
    """
    spark.sql(f"REFRESH TABLE {identifier(*table)}")
    if any("." in name_part for name_part in table):
        # Iceberg's CachingCatalog takes the dot for a namespace's, and keeps the metadata tables of
        # a table that was refreshed.
        spark.sql(f"REFRESH TABLE {identifier(*table, metadata_name)}")
    version_clause = "" if snapshot_id is None else f" VERSION AS OF {snapshot_id}"
    return f"{identifier(*table, metadata_name)}{version_clause}"


def frame_of_paths(spark: SparkSession, paths: Iterable[str]) -> DataFrame:
    """A frame of paths from the driver, as ``file_path``."""
    return spark.createDataFrame([(path,) for path in paths], "file_path string")


def sample_paths(files: DataFrame, max_paths: int) -> list[str]:
    """At most this many of the paths in ``file_path``, in the order of a hash, so that each run
    takes the same ones.
    """
    return [
        str(row[0])
        for row in files.selectExpr("file_path", "xxhash64(file_path) AS h")
        .orderBy("h", "file_path")
        .limit(max_paths)
        .collect()
    ]


def with_lengths(spark: SparkSession, table: Identifier, files: DataFrame) -> DataFrame:
    """The frame with ``length``: the bytes of the file whose path is in its first column, from the
    table's own FileIO; -1 if it does not exist.

    Spark's tasks ask the storage, one or two requests for each file; a request that fails ends
    them. Needs the bridge.
    """
    from pyspark.sql import DataFrame

    iceberg_table = load_table(spark, table)
    lengths_plan = java_object(spark, iceberg_table, "Lengths", iceberg_table).of(
        files._jdf.queryExecution().analyzed()
    )
    return DataFrame(sql_package(spark).Dataset.ofRows(spark._jsparkSession, lengths_plan), spark)
