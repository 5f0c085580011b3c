"""Read the current state of a table's metadata tables, which only this module names in a query, and
list the files in its folders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from icekit.engine.bridge import compiled, has_bridge, load_table
from icekit.engine.compat import classic
from icekit.sql import Identifier, identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: SQL for the content of an entry (0 data, 1 position deletes, 2 equality deletes) that no engine
# pushes into a scan: Iceberg 1.11 leaves out all delete manifests under a filter such as
# ``data_file.content <> 1``.
CONTENT = "data_file.content + 0"


def metadata_table(
    spark: SparkSession, table: Identifier, name: str, snapshot_id: int | None = None
) -> DataFrame:
    """A metadata table (``entries``, ``all_files`` …) of a table that is named with its catalog;
    ``snapshot_id`` reads that snapshot.

    First refreshes the session catalog's cache: a stale copy of the table does not
    know a newer snapshot, and Iceberg then reads ``VERSION AS OF`` as empty, without an error.
    """
    return spark.sql(f"SELECT * FROM {metadata_table_sql(spark, table, name, snapshot_id)}")


def metadata_table_sql(
    spark: SparkSession, table: Identifier, name: str, snapshot_id: int | None = None
) -> str:
    """SQL for what :func:`metadata_table` reads, refreshed now; for a statement that is run at
    once.
    """
    spark.sql(f"REFRESH TABLE {identifier(*table)}")
    if any("." in part for part in table):
        # Iceberg's CachingCatalog takes the dot for a namespace's, and keeps the metadata tables of
        # a table that was refreshed.
        spark.sql(f"REFRESH TABLE {identifier(*table, name)}")
    version = "" if snapshot_id is None else f" VERSION AS OF {snapshot_id}"
    return f"{identifier(*table, name)}{version}"


def spread(files: DataFrame, most: int) -> list[str]:
    """At most this many of the paths in ``file_path``, in the order of a hash, so that each run
    takes the same ones.
    """
    return [
        str(row[0])
        for row in files.selectExpr("file_path", "xxhash64(file_path) AS h")
        .orderBy("h", "file_path")
        .limit(most)
        .collect()
    ]


def files_below(spark: SparkSession, table: Identifier, folder: str, since_ms: int) -> DataFrame:
    """The files in a folder of a table and in its subfolders, written since a moment: ``path``,
    ``modified_at_ms``. Opens none.

    Spark's executors list them, without names that begin with ``_`` or ``.``. Storage for which
    Spark has no file system (``s3://`` with S3FileIO) is listed by the table's own FileIO, on the
    driver. Raises Spark's errors.
    """
    from pyspark.sql import functions as F

    if not has_bridge(spark) or _has_file_system(spark, folder):
        listed = (
            spark.read.format("binaryFile")
            .options(recursiveFileLookup="true", ignoreMissingFiles="true", __globPaths__="false")
            .load(folder)
        )
        return listed.select(
            "path", F.unix_millis("modificationTime").alias("modified_at_ms")
        ).where(F.col("modified_at_ms") >= since_ms)
    jvm: Any = spark._jvm
    loaded = load_table(spark, table)
    listing = compiled(jvm, loaded, "Storage", loaded).since(f"{folder.rstrip('/')}/", since_ms)
    dataset = spark._jsparkSession.createDataset(
        listing, jvm.org.apache.spark.sql.Encoders.STRING()
    ).toDF()
    lines = type(spark.range(0))(dataset, spark)
    return lines.selectExpr(
        "substring(value, instr(value, ' ') + 1) AS path",
        "CAST(substring_index(value, ' ', 1) AS BIGINT) AS modified_at_ms",
    )


def _has_file_system(spark: SparkSession, folder: str) -> bool:
    """Whether Spark itself can list a folder and read the files in it."""
    if urlsplit(folder).scheme in {"", "file"}:
        return True
    context: Any = spark.sparkContext
    try:
        context._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(
            urlsplit(folder).scheme, context._jsc.hadoopConfiguration()
        )
    except Exception:
        return False
    return True


def with_lengths(spark: SparkSession, table: Identifier, files: DataFrame) -> DataFrame:
    """The frame with ``length``: the bytes of the file whose path is in its first column, from the
    table's own FileIO; -1 if it does not exist.

    Spark's tasks ask the storage, one or two requests for each file; a request that fails ends
    them. Needs the bridge.
    """
    from pyspark.sql import DataFrame

    loaded = load_table(spark, table)
    plan = compiled(spark._jvm, loaded, "Lengths", loaded).of(
        files._jdf.queryExecution().analyzed()
    )
    return DataFrame(classic(spark).Dataset.ofRows(spark._jsparkSession, plan), spark)
