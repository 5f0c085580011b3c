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
from icekit.health.facts.rollup import kind_of, sort_key
from icekit.health.facts.snapshot_statistics import statistics_ages
from icekit.health.facts.spark_entries import Partitions, aggregate
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
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.manifests import Record, live_count
from icekit.iceberg.metadata import statistics_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from icekit.engine.lake import Lake

#: A choice: the most data files and delete files that Spark looks up, with two requests to the
#: storage for each.
MOST_CHECKED = 1_000_000
#: A choice: the files that one task looks up.
_FILES_PER_TASK = 500


#: A file that metadata names: its role, path, size and snapshot; without a size, only its existence
#: can be checked.
Reference = tuple[Role, str, int | None, int | None]


# What a file is by its kind; all other kinds are delete files.
_ROLES_BY_KIND = {Kind.DATA: Role.DATA, Kind.DELETION_VECTORS: Role.VECTOR}


def role_of(file_record: Record) -> Role:
    """What a file is, from its manifest entry."""
    kind = kind_of(file_record.get("content") or 0, file_record["file_format"])
    return _ROLES_BY_KIND.get(kind, Role.DELETES)


@frozen
class ObservedSnapshot(Head):
    """What is looked up: a table's metadata, its observed snapshot, and the manifests of that
    snapshot.
    """

    manifests: Sequence[Record]
    specs_by_id: Mapping[int, PartitionSpec]

    def metadata_references(self) -> Iterator[Reference]:
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
            if list_path := snapshot.get("manifest-list"):
                yield Role.MANIFEST_LIST, list_path, None, snapshot["snapshot-id"]
        newest_statistics_ids = {
            age.snapshot_id for age in statistics_ages(self.metadata, self.snapshot)
        }
        for statistics_file in statistics_files(self.metadata):
            if statistics_file["snapshot-id"] in newest_statistics_ids:
                yield (
                    Role.STATISTICS,
                    statistics_file["statistics-path"],
                    statistics_file["file-size-in-bytes"],
                    statistics_file["snapshot-id"],
                )

    def newest_before(self, snapshot_ids: Iterable[int | None]) -> int | None:
        """The newest snapshot of the lineage from before all these; None without one, or if one is
        not in the lineage.
        """
        lineage_ids = [lineage_snapshot["snapshot-id"] for lineage_snapshot in self.lineage()]
        lineage_indexes = [
            lineage_ids.index(snapshot_id) if snapshot_id in lineage_ids else len(lineage_ids)
            for snapshot_id in snapshot_ids
        ]
        older_index = max(lineage_indexes, default=len(lineage_ids)) + 1
        return lineage_ids[older_index] if older_index < len(lineage_ids) else None


def missing_files(
    lake: Lake, table: Identifier, observed_snapshot: ObservedSnapshot
) -> MissingFiles:
    """Look up every referenced file by the table's own FileIO in Spark's tasks.

    Says in ``unchecked`` why it could not.
    """
    if (live_file_count := sum(map(live_count, observed_snapshot.manifests))) > MOST_CHECKED:
        return MissingFiles(
            unchecked=f"there are {count(live_file_count, 'file')}, and icekit looks up at most "
            f"{MOST_CHECKED:,}"
        )
    if not has_bridge(lake.spark):
        return MissingFiles(unchecked="Spark Connect gives no access to the table's storage")
    try:
        return _missing_in_spark(
            lake.spark, lake.sql_name(table), observed_snapshot, live_file_count
        )
    except Exception as error:
        return MissingFiles(unchecked=complaint(error))


def _missing_in_spark(
    spark: SparkSession,
    table: Identifier,
    observed_snapshot: ObservedSnapshot,
    live_file_count: int,
) -> MissingFiles:
    partition_reader = Partitions(observed_snapshot.specs_by_id)
    live_entries = metadata_table(spark, table, "entries", observed_snapshot.snapshot_id).where(
        "status < 2"
    )
    is_vector_sql = "upper(data_file.file_format) = 'PUFFIN'"
    file_references = live_entries.selectExpr(
        "data_file.file_path AS path",
        f"if({is_vector_sql}, NULL, data_file.file_size_in_bytes) AS size",
        f"CASE WHEN data_file.content = 0 THEN {Role.DATA.rank} WHEN {is_vector_sql} THEN "
        f"{Role.VECTOR.rank} ELSE {Role.DELETES.rank} END AS role",
        "data_file.record_count AS records",
        "snapshot_id",
        *partition_reader.entry_columns(live_entries),
    )
    metadata_references = spark.createDataFrame(
        [
            (role.rank, *reference_fields, 0)
            for role, *reference_fields in observed_snapshot.metadata_references()
        ],
        "role bigint, path string, size bigint, snapshot_id bigint, records bigint",
    )
    all_references = file_references.unionByName(metadata_references, allowMissingColumns=True)
    references_with_lengths = with_lengths(
        spark, table, all_references.repartition(max(1, -(-live_file_count // _FILES_PER_TASK)))
    )
    # An encrypted file is longer than what its entry says.
    size_condition_sql = "" if encryption_class(load_table(spark, table)) else " OR length <> size"
    missing_rows = references_with_lengths.where(f"length < 0{size_condition_sql}").persist()
    try:
        return _summary(missing_rows, partition_reader, observed_snapshot)
    finally:
        missing_rows.unpersist()


def _summary(
    missing_rows: DataFrame, partition_reader: Partitions, observed_snapshot: ObservedSnapshot
) -> MissingFiles:
    """Count what is missing; the driver receives counts and examples alone."""
    summands_sql = "if(length < 0, 1L, 0L)", "if(length < 0, 0L, 1L)", "records"
    role_rows = aggregate(missing_rows, ["role"], *map("sum({})".format, summands_sql)).collect()
    missing_counts = [
        MissingCount(ROLES[role], *row) for role, *row in sorted(map(tuple, role_rows))
    ]
    if not missing_counts:
        return MissingFiles()
    snapshot_id_rows = missing_rows.where(f"role < {Role.MANIFEST_LIST.rank}").select("snapshot_id")
    gone_data_rows = missing_rows.where(f"role = {Role.DATA.rank} AND length < 0")
    partition_rows = aggregate(
        gone_data_rows, partition_reader.partition_columns, "count(*) AS count"
    )
    worst_partition_rows = partition_rows.orderBy("count", ascending=False).limit(MOST_PARTITIONS)
    added_snapshot_rows = snapshot_id_rows.distinct().limit(MOST_PARTITIONS).collect()
    return MissingFiles(
        tuple(missing_counts),
        tuple(
            _examples(
                missing_rows.orderBy("role", "path", "records").limit(EXAMPLES), partition_reader
            )
        ),
        tuple(
            sorted(
                partition_reader.rows(worst_partition_rows, "count"),
                key=lambda pair: (-pair[1], sort_key(pair[0])),
            )
        ),
        observed_snapshot.newest_before(row[0] for row in added_snapshot_rows),
    )


def _examples(missing_rows: DataFrame, partition_reader: Partitions) -> Iterator[MissingFile]:
    arrow_table: pa.Table = arrow_of(missing_rows)
    partition_mask = arrow_table.column("spec_id").is_valid()
    row_partitions = iter(partition_reader.read(arrow_table.filter(partition_mask)))
    for row in arrow_table.to_pylist():
        yield MissingFile(
            ROLES[row["role"]],
            row["path"],
            None if row["spec_id"] is None else next(row_partitions),
            row["records"],
            row["snapshot_id"],
            row["size"],
            None if row["length"] < 0 else row["length"],
        )
