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
from icekit.rows.deletes.applies import ruled_out
from icekit.rows.deletes.keys import DeleteKeys, KeySet, keys_of
from icekit.rows.deletes.listing import DeleteListing, File, Scope

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
    slices: tuple[int, int]
    deletes: Sequence[File]
    data: Sequence[File]
    keys: DeleteKeys
    key_sets: Sequence[KeySet]
    #: The deletes that Iceberg's scan rules out for some data files
    # (:func:`icekit.rows.deletes.applies.ruled_out`); None if there are none.
    ruled_out: DataFrame | None

    @property
    def is_last(self) -> bool:
        """Whether this is the last part of the data files."""
        return self.slices[0] == self.slices[1] - 1

    def deletes_of(self, key_set: KeySet) -> list[tuple[int, File, int]]:
        """The delete files of a key set: each with its place in ``deletes`` and its place among
        those of its partition, or among the global ones.
        """
        files = []
        seen: Counter[int] = Counter()
        for index, file in enumerate(self.deletes):
            if _key(file) == (key_set.is_global, key_set.field_ids):
                files.append((index, file, seen[file.part]))
            seen[file.part] += 1
        return files

    def equality_deletes(self) -> list[Any]:
        """``deletes`` as files of Iceberg's API."""
        return [
            self.snapshot_deletes.listing.java.deleteFile(index)
            for index in range(len(self.deletes))
        ]

    @property
    def data_records(self) -> int:
        """The rows of the data files, deleted ones too."""
        return sum(file.records for file in self.data)


def remaining(
    spark: SparkSession,
    name: Identifier,
    *,
    branch: str | None = None,
    partitions: Collection[Partition] | None = None,
    up_to: int | None = None,
) -> SnapshotDeletes | None:
    """Roll up the equality deletes of the current table (named with its catalog); None for a table
    without snapshots.

    ``partitions`` takes only the deletes of those partitions (None: all). ``up_to`` leaves out
    deletes of later sequence numbers.
    """
    table = guarded_table(spark, load_latest_table(spark, name))
    # First: the manifest list of an encrypted table cannot be read here.
    if encryption := encryption_class(table):
        raise ConversionRefused(
            f"The table's files are encrypted ({encryption}), and a conversion would write "
            "unencrypted delete files."
        )
    metadata = metadata_of(spark, table)
    refs = metadata.get("refs") or {}
    branches = sorted(ref for ref, points in refs.items() if points["type"] == "branch")
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
    listing = DeleteListing(spark, table, snapshot_id, specs_by_id, up_to)
    expected = None
    # Without a list: format version 1 with its manifests inline, and so without deletes.
    if location := snapshot.get("manifest-list"):
        expected = file_counts(manifest_list(read_bytes(table.io(), location), location))
    check_file_counts(spark, name, snapshot_id, expected, listing.counted)
    by_partition = [
        s for s in listing.scopes if chosen_partitions is None or s.partition in chosen_partitions
    ]
    return SnapshotDeletes(metadata, snapshot, table, specs_by_id, listing, by_partition)


def find(
    spark: SparkSession, snapshot_deletes: SnapshotDeletes | None, slices: tuple[int, int] = (0, 1)
) -> ConversionInputs | None:
    """List the equality deletes that :func:`remaining` rolled up, and the data files they apply to;
    None if there are none.

    ``slices`` takes a part of the data files, (2, 5) the third of five. Raises
    :class:`~icekit.common.errors.ConversionRefused` for keys that cannot be converted.
    """
    if snapshot_deletes is None or not snapshot_deletes.scopes:
        return None
    deletes, data = snapshot_deletes.listing.files(snapshot_deletes.scopes, slices)
    _check_listed(snapshot_deletes, deletes, data, is_whole=slices[1] == 1)
    _check_partitions(snapshot_deletes.specs, {file.spec_id for file in (*deletes, *data)})
    _check_deletes(deletes)
    keys = keys_of(snapshot_deletes.metadata, (i for file in deletes for i in file.field_ids))
    key_sets: list[KeySet] = []
    for (is_global, ids), of_key in groupby(sorted(deletes, key=_key), _key):
        files = list(of_key)
        key_sets.append(
            KeySet(
                len(key_sets),
                tuple(keys.columns[i] for i in ids),
                is_global,
                sum(file.records for file in files),
                max(file.sequence for file in files),
            )
        )
    left_out = None
    if data:
        left_out = ruled_out(
            spark,
            snapshot_deletes.table,
            snapshot_deletes.snapshot_id,
            data,
            deletes,
            tasks=snapshot_deletes.listing.tasks,
        )
    return ConversionInputs(snapshot_deletes, slices, deletes, data, keys, key_sets, left_out)


def _key(delete: File) -> tuple[bool, tuple[int, ...]]:
    return delete.is_global, delete.field_ids


def _check_listed(
    snapshot_deletes: SnapshotDeletes,
    deletes: Sequence[File],
    data: Sequence[File],
    *,
    is_whole: bool,
) -> None:
    """Check that everything counted was also listed: an overlooked data file would get its deleted
    rows back.
    """
    expected = sum(scope.delete_files for scope in snapshot_deletes.scopes)
    expected_data_files = len(data)
    # Deletes of several unpartitioned specs apply to the same data files.
    if is_whole and not any(scope.is_global for scope in snapshot_deletes.scopes):
        expected_data_files = sum(scope.data_files for scope in snapshot_deletes.scopes)
    if (len(deletes), len(data)) != (expected, expected_data_files):
        raise ConversionRefused(
            f"Counted {count(expected, 'equality delete file')} for {count(expected_data_files, 'data file')}, "
            f"but listed {len(deletes):,} for {len(data):,}. Nothing was changed; run it again."
        )


def _check_deletes(deletes: Sequence[File]) -> None:
    if keyless := [file.path for file in deletes if not file.field_ids]:
        raise ConversionRefused(f"Equality deletes name no key column: {keyless[0]}.")
    if twice := [path for path, n in Counter(file.path for file in deletes).items() if n > 1]:
        raise ConversionRefused(f"An equality delete file is in the table twice: {twice[0]}.")


def _check_partitions(specs: Mapping[int, PartitionSpec], used: Collection[int]) -> None:
    """Refuse partitions for which Iceberg cannot write manifests: 1.12 writes a null for a
    partition field whose column was dropped.
    """
    dropped_fields = sorted({name for i in used for name in specs[i].dropped_column_fields})
    if dropped_fields:
        raise ConversionRefused(
            f"The source column of partition field {', '.join(map(identifier, dropped_fields))} was "
            "dropped, and Iceberg can no longer write delete files for such partitions. Run "
            "icekit compact, which then rewrites the whole table."
        )
