"""Find the equality deletes of the current table, and the data files they apply to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.errors import ConversionRefused, SnapshotNotFound
from icekit.common.sql import Identifier, identifier
from icekit.common.units import count
from icekit.engine.bridge import (
    encryption_class,
    guarded_table,
    load_latest_table,
    metadata_of,
    read_bytes,
)
from icekit.health.facts.head import Head
from icekit.health.facts.metadata_file import check_metadata
from icekit.health.facts.spark import check_file_counts
from icekit.iceberg.definition import PartitionSpec
from icekit.iceberg.manifests import file_counts, manifest_list
from icekit.iceberg.metadata import choose_snapshot
from icekit.iceberg.metadata import specs as specs_of
from icekit.iceberg.partition import Partition
from icekit.rows.deletes.keys import DeleteKeys, KeySet, delete_keys
from icekit.rows.deletes.listing import DeleteListing, File, Scope
from icekit.rows.deletes.ruled_out import ruled_out_deletes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@frozen
class SnapshotDeletes(Head):
    """A table at a snapshot, and its equality deletes by partition."""

    table: Any
    specs: Mapping[int, PartitionSpec]
    listing: DeleteListing
    scopes: Sequence[Scope]

    @property
    def snapshot_id(self) -> int:
        """The snapshot's id; a table without snapshots has no deletes."""
        assert self.snapshot is not None
        return int(self.snapshot["snapshot-id"])

    @property
    def format_version(self) -> int:
        """The format version of the table."""
        return int(self.metadata["format-version"])


@frozen
class ConversionInputs:
    """The input of a conversion: the table at a snapshot, its equality deletes and the data files
    they apply to: all, or a part of them (``slices``: (2, 5) is the third of five).
    """

    snapshot_deletes: SnapshotDeletes
    data_slice: tuple[int, int]
    delete_files: Sequence[File]
    data_files: Sequence[File]
    keys: DeleteKeys
    key_sets: Sequence[KeySet]
    #: The deletes that Iceberg's scan rules out for some data files
    # (:func:`icekit.rows.deletes.ruled_out.ruled_out_deletes`); None if there are none.
    ruled_out: DataFrame | None

    @property
    def is_last(self) -> bool:
        """Whether this is the last part of the data files."""
        return self.data_slice[0] == self.data_slice[1] - 1

    def deletes_of(self, key_set: KeySet) -> list[tuple[int, File, int]]:
        """The delete files of a key set: each with its place in ``deletes`` and its place among
        those of its partition, or among the global ones.
        """
        numbered_files = []
        count_by_partition: Counter[int] = Counter()
        for delete_index, delete_file in enumerate(self.delete_files):
            if _key_of(delete_file) == (key_set.is_global, key_set.field_ids):
                numbered_files.append(
                    (delete_index, delete_file, count_by_partition[delete_file.partition_number])
                )
            count_by_partition[delete_file.partition_number] += 1
        return numbered_files

    def equality_deletes(self) -> list[Any]:
        """``deletes`` as files of Iceberg's API."""
        return [
            self.snapshot_deletes.listing.java.deleteFile(delete_index)
            for delete_index in range(len(self.delete_files))
        ]

    @property
    def data_records(self) -> int:
        """The rows of the data files, deleted ones too."""
        return sum(data_file.records for data_file in self.data_files)


def remaining_deletes(
    spark: SparkSession,
    table_name: Identifier,
    *,
    branch: str | None = None,
    partitions: Collection[Partition] | None = None,
    max_sequence: int | None = None,
) -> SnapshotDeletes | None:
    """Roll up the equality deletes of the current table (named with its catalog); None for a table
    without snapshots.

    ``partitions`` takes only the deletes of those partitions (None: all). ``max_sequence`` leaves
    out deletes of later sequence numbers.
    """
    table = guarded_table(spark, load_latest_table(spark, table_name))
    # First: the manifest list of an encrypted table cannot be read here.
    if encryption_name := encryption_class(table):
        raise ConversionRefused(
            f"The table's files are encrypted ({encryption_name}), and a conversion would write "
            "unencrypted delete files."
        )
    metadata = metadata_of(spark, table)
    refs = metadata.get("refs") or {}
    branches = sorted(ref for ref, ref_target in refs.items() if ref_target["type"] == "branch")
    if branch and branch not in branches:
        raise SnapshotNotFound(
            f"{branch!r} is not a branch of the table; its branches are {', '.join(branches)}."
        )
    snapshot, _ = choose_snapshot(metadata, branch)
    if snapshot is None:
        return None
    check_metadata(metadata, str(table.operations().current().metadataFileLocation()))
    specs_by_id = {spec.spec_id: spec for spec in specs_of(metadata)}
    snapshot_id = int(snapshot["snapshot-id"])
    chosen_partitions = None if partitions is None else set(partitions)
    listing = DeleteListing(spark, table, snapshot_id, specs_by_id, max_sequence)
    expected_counts = None
    # Without a list: format version 1 with its manifests inline, and so without deletes.
    if manifest_list_path := snapshot.get("manifest-list"):
        expected_counts = file_counts(
            manifest_list(read_bytes(table.io(), manifest_list_path), manifest_list_path)
        )
    check_file_counts(spark, table_name, snapshot_id, expected_counts, listing.counted)
    scopes = [
        s for s in listing.scopes if chosen_partitions is None or s.partition in chosen_partitions
    ]
    return SnapshotDeletes(metadata, snapshot, table, specs_by_id, listing, scopes)


def find_inputs(
    spark: SparkSession,
    snapshot_deletes: SnapshotDeletes | None,
    data_slice: tuple[int, int] = (0, 1),
) -> ConversionInputs | None:
    """List the equality deletes that :func:`remaining_deletes` rolled up, and the data files they
    apply to; None if there are none.

    ``data_slice`` takes a part of the data files, (2, 5) the third of five. Raises
    :class:`~icekit.common.errors.ConversionRefused` for keys that cannot be converted.
    """
    if snapshot_deletes is None or not snapshot_deletes.scopes:
        return None
    delete_files, data_files = snapshot_deletes.listing.files_of(
        snapshot_deletes.scopes, data_slice
    )
    _check_listed(snapshot_deletes, delete_files, data_files, is_whole=data_slice[1] == 1)
    _check_partitions(
        snapshot_deletes.specs, {file.spec_id for file in (*delete_files, *data_files)}
    )
    _check_deletes(delete_files)
    keys = delete_keys(
        snapshot_deletes.metadata, (i for file in delete_files for i in file.field_ids)
    )
    key_sets: list[KeySet] = []
    for (is_global, ids), files_of_key in groupby(sorted(delete_files, key=_key_of), _key_of):
        key_files = list(files_of_key)
        key_sets.append(
            KeySet(
                len(key_sets),
                tuple(keys.columns[i] for i in ids),
                is_global,
                sum(file.records for file in key_files),
                max(file.sequence_number for file in key_files),
            )
        )
    ruled_out = None
    if data_files:
        ruled_out = ruled_out_deletes(
            spark,
            snapshot_deletes.table,
            snapshot_deletes.snapshot_id,
            data_files,
            delete_files,
            scan_tasks=snapshot_deletes.listing.tasks,
        )
    return ConversionInputs(
        snapshot_deletes, data_slice, delete_files, data_files, keys, key_sets, ruled_out
    )


def _key_of(delete_file: File) -> tuple[bool, tuple[int, ...]]:
    return delete_file.is_global, delete_file.field_ids


def _check_listed(
    snapshot_deletes: SnapshotDeletes,
    delete_files: Sequence[File],
    data_files: Sequence[File],
    *,
    is_whole: bool,
) -> None:
    """Check that everything counted was also listed: an overlooked data file would get its deleted
    rows back.
    """
    expected_delete_files = sum(scope.delete_files for scope in snapshot_deletes.scopes)
    expected_data_files = len(data_files)
    # Deletes of several unpartitioned specs apply to the same data files.
    if is_whole and not any(scope.is_global for scope in snapshot_deletes.scopes):
        expected_data_files = sum(scope.data_files for scope in snapshot_deletes.scopes)
    if (len(delete_files), len(data_files)) != (expected_delete_files, expected_data_files):
        raise ConversionRefused(
            f"Counted {count(expected_delete_files, 'equality delete file')} for "
            f"{count(expected_data_files, 'data file')}, but listed {len(delete_files):,} for "
            f"{len(data_files):,}. Nothing was changed; run it again."
        )


def _check_deletes(delete_files: Sequence[File]) -> None:
    if keyless_paths := [
        delete_file.path for delete_file in delete_files if not delete_file.field_ids
    ]:
        raise ConversionRefused(f"Equality deletes name no key column: {keyless_paths[0]}.")
    if repeated_paths := [
        delete_path
        for delete_path, n in Counter(delete_file.path for delete_file in delete_files).items()
        if n > 1
    ]:
        raise ConversionRefused(
            f"An equality delete file is in the table twice: {repeated_paths[0]}."
        )


def _check_partitions(specs_by_id: Mapping[int, PartitionSpec], spec_ids: Collection[int]) -> None:
    """Refuse partitions for which Iceberg cannot write manifests: 1.12 writes a null for a
    partition field whose column was dropped.
    """
    dropped_fields = sorted(
        {field_name for i in spec_ids for field_name in specs_by_id[i].dropped_column_fields}
    )
    if dropped_fields:
        raise ConversionRefused(
            f"The source column of partition field {', '.join(map(identifier, dropped_fields))} "
            "was dropped, and Iceberg can no longer write delete files for such partitions. Run "
            "icekit compact, which then rewrites the whole table."
        )
