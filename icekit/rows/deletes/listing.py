"""List the equality deletes of a snapshot, and the data files that they may delete rows from."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icekit.common import frozen
from icekit.engine.bridge import java_object
from icekit.engine.compat import frame_of
from icekit.iceberg.definition import PartitionSpec
from icekit.iceberg.manifests import FileCounts
from icekit.iceberg.partition import Partition
from icekit.iceberg.values import partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@frozen
class Scope:
    """The equality deletes of one partition, or the global ones of an unpartitioned spec, and the
    data files they may apply to.

    ``number`` is its number in its listing, where global deletes come last. ``data_*`` count the
    data files older than the newest of these deletes: for global deletes in the complete table,
    else in the partition.
    """

    partition: Partition
    scope_index: int
    is_global: bool
    max_sequence: int
    delete_files: int
    delete_records: int
    delete_bytes: int
    data_files: int
    data_records: int
    data_bytes: int


@frozen
class AppliedDeletes:
    """The deletes of a scope that a scan gives to data files, and these data files: without those
    deletes that the bounds of their keys rule out.
    """

    data_files: int = 0
    data_records: int = 0
    delete_files: int = 0
    delete_records: int = 0


@frozen
class File:
    """A data file or an equality delete file (``field_ids`` are its key's), and the number of its
    partition; -1 for global deletes.
    """

    path: str
    field_ids: tuple[int, ...]
    size_bytes: int
    records: int
    sequence_number: int
    spec_id: int
    partition_number: int

    @property
    def is_global(self) -> bool:
        """Whether a delete file applies to every partition."""
        return self.partition_number == -1


class DeleteListing:
    """The equality deletes of a snapshot, rolled up by partition as ``scopes``, and the number of
    all its files as ``counted``; ``java`` has the files that were listed last.

    ``table`` is an object of Iceberg's API. ``up_to`` leaves out deletes of later sequence numbers.
    ``tasks``, a Java list of scan tasks of the snapshot, restricts the listing to their files. The
    driver receives a row per partition.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: Any,
        snapshot_id: int,
        specs_by_id: Mapping[int, PartitionSpec],
        max_sequence: int | None = None,
        *,
        scan_tasks: Any = None,
    ) -> None:
        self.tasks = scan_tasks
        sequence_limit = 2**63 - 1 if max_sequence is None else max_sequence
        self.java = java_object(
            spark, table, "Listing", table, snapshot_id, sequence_limit, scan_tasks
        )
        self.counted = FileCounts(*json.loads(self.java.counted()))
        #: The field ids of all keys.
        self.key_ids = frozenset[int](json.loads(self.java.keyIds()))
        self.scopes = tuple(
            Scope(
                partition_of(spec_id, partition_values),
                scope_index,
                specs_by_id[spec_id].is_unpartitioned,
                newest,
                *sums,
            )
            for scope_index, (spec_id, partition_values, newest, sums) in enumerate(
                json.loads(self.java.scopes())
            )
        )

    def files_of(
        self, scopes: Iterable[Scope], data_slice: tuple[int, int] = (0, 1)
    ) -> tuple[list[File], list[File]]:
        """The equality delete files of some scopes, and the data files older than their newest; of
        these a part: (2, 5) is the third of five.

        The driver holds a row per file of a batch, not of the table.
        """
        delete_files: list[File] = []
        data_files: list[File] = []
        for file_path, *figures, key in json.loads(
            self.java.list(_indexes_text(scopes), *data_slice)
        ):
            target_files = data_files if key is None else delete_files
            target_files.append(File(file_path, tuple(key or ()), *figures))
        return delete_files, data_files

    def uncovered_paths(
        self, scopes: Iterable[Scope], sequence_numbers: Sequence[int], slice_count: int
    ) -> list[str]:
        """The data files with some scopes' deletes that the earlier slices have not seen.

        ``sequence_numbers`` has, for each earlier slice, the sequence number of the snapshot that
        it was listed at. A rewrite may give its files the sequence number that the rewrite started
        from, so that deletes older than the files apply to them.
        """
        return list(
            json.loads(
                self.java.uncovered(
                    _indexes_text(scopes), zero_joined(sequence_numbers), slice_count
                )
            )
        )

    def repeated_paths(self, data_paths: Collection[str]) -> list[str]:
        """The given data files that the snapshot holds more than once (appended twice), with
        different sequence numbers.
        """
        return list(json.loads(self.java.repeated(zero_joined(data_paths))))

    def applied_by_scope(self) -> Mapping[int, AppliedDeletes]:
        """What a scan applies of each scope's deletes, by the scope's number; plans a scan of the
        whole table.
        """
        return {
            scope_index: AppliedDeletes(*sums)
            for scope_index, sums in json.loads(self.java.applied())
        }

    def matching_partitions(
        self, iceberg_expression: Any, *, case_sensitive: bool
    ) -> tuple[frozenset[Partition], bool]:
        """The partitions with equality deletes that may hold rows of an Iceberg expression, and
        whether any were left out.

        An expression that no partition field answers selects every partition; then none are left
        out. Raises Iceberg's error for a column that does not exist.
        """
        scope_indexes, is_narrowed = json.loads(self.java.where(iceberg_expression, case_sensitive))
        return frozenset(
            self.scopes[scope_index].partition for scope_index in scope_indexes
        ), is_narrowed


def frame_of_columns(
    spark: SparkSession, columns: Mapping[str, tuple[pa.DataType, Iterable[Any]]]
) -> DataFrame:
    """A frame of values from the driver, sent as Arrow: rows would be unpacked by Python
    processes.
    """
    return frame_of(
        spark,
        pa.table(
            {
                column_name: pa.array(list(values), arrow_type)
                for column_name, (arrow_type, values) in columns.items()
            }
        ),
    )


def zero_joined(values: Iterable[object]) -> str:
    """Values as text for Java, with a zero between them."""
    return "\0".join(map(str, values))


def files_text(files: Iterable[File]) -> str:
    """Path, number of the partition and sequence number of each file, :func:`zero_joined`."""
    return zero_joined(
        file_value
        for file in files
        for file_value in (file.path, file.partition_number, file.sequence_number)
    )


def _indexes_text(scopes: Iterable[Scope]) -> str:
    return zero_joined(scope.scope_index for scope in scopes)


def data_under_deletes(scopes: Sequence[Scope]) -> tuple[int, int, int]:
    """The data files that the deletes of some scopes apply to, their bytes and their rows."""
    # Global deletes of two specs apply to the same data files, and are converted separately from
    # those of partitions.
    global_scopes = sorted((s for s in scopes if s.is_global), key=lambda s: s.data_files)
    widest_scopes = global_scopes[-1:] or scopes
    return (
        sum(s.data_files for s in widest_scopes),
        sum(s.data_bytes for s in widest_scopes),
        sum(s.data_records for s in widest_scopes),
    )


def conversion_reads(scopes: Sequence[Scope], slice_count: int = 1) -> tuple[int, int]:
    """The files that one commit of a conversion reads, and their bytes: all the deletes, and its
    slice of the data files that they apply to.
    """
    data_files, data_bytes, _ = data_under_deletes(scopes)
    return (
        data_files // slice_count + sum(s.delete_files for s in scopes),
        data_bytes // slice_count + sum(s.delete_bytes for s in scopes),
    )
