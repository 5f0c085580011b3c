"""Find every file that a snapshot reaches, and which snapshots reach a file; by metadata tables alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.engine.metadata_tables import metadata_table
from icekit.facts.model import PartitionSpec
from icekit.prove.erasure_rows import path_key_column
from icekit.sql import Identifier, identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATA, POSITION_DELETES, EQUALITY_DELETES = "data", "position deletes", "equality deletes"
EXAMPLE_SNAPSHOTS = 3


@dataclass(frozen=True, slots=True)
class Held:
    """What one snapshot reaches of the files asked for: how many of each kind, and their rows."""

    data_file_count: int = 0
    equality_delete_file_count: int = 0
    position_delete_file_count: int = 0
    data_row_count: int = 0


@dataclass(frozen=True, slots=True)
class Reach:
    """By path: how many snapshots reach it, and a few of them. By snapshot: what it holds."""

    paths: Mapping[str, tuple[int, tuple[int, ...]]]
    snapshots: Mapping[int, Held]


def reachable_files(spark: SparkSession, table: Identifier, specs: Sequence[PartitionSpec], columns: Mapping[str, int]) -> DataFrame:
    """Every file of every snapshot, once: ``key``, ``path``, ``kind``, ``format``, ``equality_ids``, ``added_by`` and partition values.

    Of ``columns`` (names and field ids) those that some spec partitions by identity are there
    under their own names with the prefix ``=``.
    """
    from pyspark.sql import functions as F

    files = metadata_table(spark, table, "all_files")
    values = []
    fields = _partition_fields(files)
    for column, field_id in columns.items():
        names = {f.name for spec in specs for f in spec.fields if f.source_id == field_id and f.transform == "identity"} & set(fields)
        if names:
            values.append(F.coalesce(*(F.col(f"partition.{identifier(name)}") for name in sorted(names))).alias(f"={column}"))
    kind = F.when(F.col("content") == 0, DATA).when(F.col("content") == 2, EQUALITY_DELETES).otherwise(POSITION_DELETES)
    picked = files.select(
        path_key_column(F.col("file_path")).alias("key"),
        F.col("file_path").alias("path"),
        kind.alias("kind"),
        F.upper("file_format").alias("format"),
        "equality_ids",
        *values,
    )
    # A manifest that was rewritten lists its files again.
    return picked.groupBy("key").agg(*(F.first(F.col(identifier(c)), ignorenulls=True).alias(c) for c in picked.columns if c != "key"))


def _partition_fields(files: DataFrame) -> list[str]:
    if "partition" not in files.columns:
        return []
    struct: Any = files.schema["partition"].dataType
    return list(struct.names)


def reach_of(spark: SparkSession, table: Identifier, files: Sequence[tuple[str, str, int]]) -> Reach:
    """Which snapshots reach the files, given as (path, kind, rows).

    Each manifest is read once, however many snapshots share it: ``all_entries`` tells a
    row's manifest through ``input_file_name()``, and ``all_manifests`` the snapshots of
    each manifest.
    """
    from pyspark.sql import functions as F

    if not files:
        return Reach({}, {})
    asked = spark.createDataFrame(list(files), "path string, kind string, row_count bigint")
    entries = (
        metadata_table(spark, table, "all_entries")
        .where("status < 2")
        .selectExpr("input_file_name() AS manifest", "data_file.file_path AS path")
    )
    manifests = metadata_table(spark, table, "all_manifests").selectExpr("path AS manifest", "reference_snapshot_id AS snapshot").distinct()
    held = (
        entries.join(F.broadcast(asked), "path")
        .join(manifests, "manifest")
        .select("path", "kind", "row_count", "snapshot")
        .distinct()
        .persist()
    )
    try:
        by_path = held.groupBy("path").agg(F.count("*"), F.slice(F.sort_array(F.collect_list("snapshot")), 1, EXAMPLE_SNAPSHOTS))
        paths = {row[0]: (int(row[1]), tuple(row[2])) for row in by_path.collect()}
        data = F.col("kind") == DATA
        counts = [F.count_if(F.col("kind") == kind) for kind in (DATA, EQUALITY_DELETES, POSITION_DELETES)]
        by_snapshot = held.groupBy("snapshot").agg(*counts, F.sum(F.when(data, F.col("row_count")).otherwise(0)))
        snapshots = {row[0]: Held(*map(int, row[1:])) for row in by_snapshot.collect()}
    finally:
        held.unpersist()
    return Reach(paths, snapshots)


def unreferenced_files(spark: SparkSession, location: str, reachable: DataFrame) -> DataFrame:
    """Files under a location that no snapshot reaches: ``key``, ``path``, ``modified_at_ms``.

    Spark lists and opens nothing. It leaves out names that begin with ``_`` or ``.``.
    """
    from pyspark.sql import functions as F

    listed = spark.read.format("binaryFile").options(recursiveFileLookup="true", __globPaths__="false").load(location)
    found = listed.select(path_key_column(F.col("path")).alias("key"), "path", F.unix_millis("modificationTime").alias("modified_at_ms"))
    return found.join(reachable.select("key"), "key", "left_anti")
