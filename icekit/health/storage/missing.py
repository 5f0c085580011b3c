"""Find the files that a table references and that are gone from storage, or have another size than
their entries say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from icekit.common import frozen
from icekit.common.sql import Identifier
from icekit.common.units import count
from icekit.engine.bridge import encryption_class, has_bridge, load_table
from icekit.engine.compat import arrow_of
from icekit.engine.errors import complaint
from icekit.engine.metadata_tables import metadata_table, with_lengths
from icekit.health.facts.head import Head
from icekit.health.facts.rollup import sort_key
from icekit.health.facts.snapshot_statistics import statistics_ages
from icekit.health.facts.spark_entries import Partitions, grouped
from icekit.health.facts.storage import (
    EXAMPLES,
    MOST_PARTITIONS,
    ROLES,
    MissingCount,
    MissingFile,
    MissingFiles,
    Role,
)
from icekit.iceberg.definition import PartitionSpec
from icekit.iceberg.manifests import Record, live_count
from icekit.iceberg.metadata import statistics_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from icekit.engine.lake import Lake

#: A choice: the most data files and delete files that Spark looks up, with two requests to the
# storage for each.
MOST_CHECKED = 1_000_000
#: A choice: the files that one task looks up.
_FILES_PER_TASK = 500


#: A file that metadata names: its role, path, size and snapshot; without a size, only its existence
# can be checked.
Reference = tuple[Role, str, int | None, int | None]


@frozen
class Searched(Head):
    """What is looked up: a table's metadata, its observed snapshot, and the manifests of that
    snapshot.
    """

    manifests: Sequence[Record]
    specs: Mapping[int, PartitionSpec]

    def of_metadata(self) -> Iterator[Reference]:
        """Manifests, manifest lists and statistics files: all that metadata names without a
        manifest being read.
        """
        for manifest in self.manifests:
            yield (
                Role.MANIFEST,
                manifest["manifest_path"],
                manifest["manifest_length"],
                manifest.get("added_snapshot_id"),
            )
        for snapshot in self.metadata.get("snapshots") or ():
            if path := snapshot.get("manifest-list"):
                yield Role.MANIFEST_LIST, path, None, snapshot["snapshot-id"]
        newest = {age.snapshot_id for age in statistics_ages(self.metadata, self.snapshot)}
        for file in statistics_files(self.metadata):
            if file["snapshot-id"] in newest:
                yield (
                    Role.STATISTICS,
                    file["statistics-path"],
                    file["file-size-in-bytes"],
                    file["snapshot-id"],
                )

    def before(self, ids: Iterable[int | None]) -> int | None:
        """The newest snapshot of the lineage from before all these; None without one, or if one is
        not in the lineage.
        """
        line = [snapshot["snapshot-id"] for snapshot in self.lineage()]
        indexes = [line.index(each) if each in line else len(line) for each in ids]
        after = max(indexes, default=len(line)) + 1
        return line[after] if after < len(line) else None


def missing_files(lake: Lake, table: Identifier, searched: Searched) -> MissingFiles:
    """Look up every referenced file by the table's own FileIO in Spark's tasks.

    Says in ``unchecked`` why it could not.
    """
    if (files := sum(map(live_count, searched.manifests))) > MOST_CHECKED:
        return MissingFiles(
            unchecked=f"there are {count(files, 'file')}, and icekit looks up at most "
            f"{MOST_CHECKED:,}"
        )
    if not has_bridge(lake.spark):
        return MissingFiles(unchecked="Spark Connect gives no access to the table's storage")
    try:
        return _in_spark(lake.spark, lake.sql_name(table), searched, files)
    except Exception as error:
        return MissingFiles(unchecked=complaint(error))


def _in_spark(
    spark: SparkSession, table: Identifier, searched: Searched, files: int
) -> MissingFiles:
    partitions = Partitions(searched.specs)
    live_entries = metadata_table(spark, table, "entries", searched.snapshot_id).where("status < 2")
    is_vector = "upper(data_file.file_format) = 'PUFFIN'"
    of_files = live_entries.selectExpr(
        "data_file.file_path AS path",
        f"if({is_vector}, NULL, data_file.file_size_in_bytes) AS size",
        f"CASE WHEN data_file.content = 0 THEN {Role.DATA.rank} WHEN {is_vector} THEN "
        f"{Role.VECTOR.rank} ELSE {Role.DELETES.rank} END AS role",
        "data_file.record_count AS records",
        "snapshot_id",
        *partitions.of_entries(live_entries),
    )
    references = spark.createDataFrame(
        [(role.rank, *rest, 0) for role, *rest in searched.of_metadata()],
        "role bigint, path string, size bigint, snapshot_id bigint, records bigint",
    )
    named_files = of_files.unionByName(references, allowMissingColumns=True)
    checked = with_lengths(
        spark, table, named_files.repartition(max(1, -(-files // _FILES_PER_TASK)))
    )
    # An encrypted file is longer than what its entry says.
    compared = "" if encryption_class(load_table(spark, table)) else " OR length <> size"
    missing = checked.where(f"length < 0{compared}").persist()
    try:
        return _summarized(missing, partitions, searched)
    finally:
        missing.unpersist()


def _summarized(missing: DataFrame, partitions: Partitions, searched: Searched) -> MissingFiles:
    """Count what is missing; the driver receives counts and examples alone."""
    sums = "if(length < 0, 1L, 0L)", "if(length < 0, 0L, 1L)", "records"
    counts_by_role = grouped(missing, ["role"], *map("sum({})".format, sums)).collect()
    counts = [MissingCount(ROLES[role], *row) for role, *row in sorted(map(tuple, counts_by_role))]
    if not counts:
        return MissingFiles()
    added = missing.where(f"role < {Role.MANIFEST_LIST.rank}").select("snapshot_id")
    of_data = missing.where(f"role = {Role.DATA.rank} AND length < 0")
    by_partition = grouped(of_data, partitions.scope, "count(*) AS count")
    fullest = by_partition.orderBy("count", ascending=False).limit(MOST_PARTITIONS)
    added_by = added.distinct().limit(MOST_PARTITIONS).collect()
    return MissingFiles(
        tuple(counts),
        tuple(_examples(missing.orderBy("role", "path", "records").limit(EXAMPLES), partitions)),
        tuple(
            sorted(
                partitions.rows(fullest, "count"), key=lambda each: (-each[1], sort_key(each[0]))
            )
        ),
        searched.before(row[0] for row in added_by),
    )


def _examples(missing: DataFrame, partitions: Partitions) -> Iterator[MissingFile]:
    table: pa.Table = arrow_of(missing)
    has_partition = table.column("spec_id").is_valid()
    filed = iter(partitions.read(table.filter(has_partition)))
    for row in table.to_pylist():
        yield MissingFile(
            ROLES[row["role"]],
            row["path"],
            None if row["spec_id"] is None else next(filed),
            row["records"],
            row["snapshot_id"],
            row["size"],
            None if row["length"] < 0 else row["length"],
        )
