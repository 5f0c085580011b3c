"""Resolve equality deletes into position deletes: find, join, write, commit."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from icekit.common import frozen
from icekit.common.errors import ConversionRefused, SnapshotNotFound
from icekit.common.sql import Identifier, identifier
from icekit.common.units import count, count_with_verb
from icekit.engine.bridge import elements, java_object, load_table, metadata_of, temporary_settings
from icekit.engine.causes import is_engine_error, java_classes
from icekit.engine.compat import arrow_of
from icekit.engine.errors import CommitConflict
from icekit.engine.metadata_tables import metadata_table
from icekit.engine.staging import Staging
from icekit.health.facts.head import commits_since
from icekit.iceberg.definition import position_deletes_name_clashes
from icekit.iceberg.dropped_fields import (
    fields_blocking_position_deletes,
    unreadable_position_deletes_reason,
)
from icekit.iceberg.metadata import summary_of
from icekit.iceberg.partition import Partition
from icekit.rows.deletes.by_kernel import positions_by_kernel
from icekit.rows.deletes.conversion_inputs import ConversionInputs, find_inputs, remaining_deletes
from icekit.rows.deletes.delete_files import (
    DeleteFileWriter,
    position_deletes,
    positions_of_words,
    vector_positions,
)
from icekit.rows.deletes.join import dead_rows, position_words, task_count
from icekit.rows.deletes.key_view import KeyView
from icekit.rows.deletes.listing import Scope, files_text, frame_of_columns, zero_joined
from icekit.rows.deletes.ruled_out import ruled_out_as_disagreement
from icekit.rows.kernel.table_settings import KernelUnavailable

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import DataFrame, SparkSession


def deleted_positions(
    spark: SparkSession, key_view: KeyView, inputs: ConversionInputs, meanwhile: Callable[[], None]
) -> dict[int, BitMap64]:
    """The deleted positions per data file, by its place in ``inputs.data_files``; ``key_view`` is
    the key view of ``inputs``, by which Spark finds them where the kernel cannot. ``meanwhile`` is
    Spark's work while the kernel finds them.
    """
    with contextlib.suppress(KernelUnavailable):
        return positions_by_kernel(spark, inputs, meanwhile)
    delete_count = sum(key_set.records for key_set in inputs.key_sets)
    spread = max(task_count(delete_count), spark.sparkContext.defaultParallelism)
    spark_settings = {
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.shuffle.partitions": str(spread),
    }
    with temporary_settings(spark, spark_settings):
        deleted_rows = dead_rows(key_view, inputs)
        with ruled_out_as_disagreement(lambda number: inputs.data_files[int(number)].path):
            return positions_by_file(arrow_of(position_words(deleted_rows, delete_count)))


def merge_earlier_positions(
    spark: SparkSession,
    table_name: Identifier,
    positions: dict[int, BitMap64],
    inputs: ConversionInputs,
) -> tuple[list[Any], dict[int, BitMap64]]:
    """Merge existing position deletes into the new vectors, because a data file has at most one
    vector; returns the delete files they replace, and the existing positions.
    """
    numbers_by_path = {
        inputs.data_files[file_number].path: file_number for file_number in positions
    }
    if not numbers_by_path:
        return [], {}
    deletes_by_path, rows_by_shared_path = position_deletes(
        inputs.snapshot_deletes.listing.java, numbers_by_path
    )
    if not (rows_by_shared_path or deletes_by_path):
        return [], {}
    if inputs.snapshot_deletes.listing.tasks is None:
        # A guess: as many as were found now.
        found_count = sum(map(len, positions.values()))
        earlier_positions = _earlier_positions(
            spark,
            table_name,
            numbers_by_path,
            deletes_by_path,
            rows_by_shared_path,
            inputs,
            found_count,
        )
    else:
        earlier_positions = _earlier_positions_of_tasks(spark, numbers_by_path, inputs)
    for data_path, delete_files in deletes_by_path.items():
        # A vector that is replaced but was not read in full would bring its rows back. It names
        # each position once; other files may name one again.
        expected_count = max(
            int(delete_file.recordCount()) if _is_vector(delete_file) else 1
            for delete_file in delete_files
        )
        read_count = len(earlier_positions.get(numbers_by_path[data_path], ()))
        if read_count < expected_count:
            raise ConversionRefused(
                f"Only {read_count} of {expected_count} positions deleted earlier could be read "
                f"for {data_path}. Nothing was changed; run it again."
            )
    for file_number, file_positions in earlier_positions.items():
        # Not in place: the positions found are compared with these before the commit.
        positions[file_number] = positions[file_number] | file_positions
    return [
        delete_file for delete_files in deletes_by_path.values() for delete_file in delete_files
    ], earlier_positions


def _is_vector(delete_file: Any) -> bool:
    """Whether a delete file (an object of Iceberg's API) is a deletion vector."""
    return delete_file.contentOffset() is not None


def _earlier_positions_of_tasks(
    spark: SparkSession, numbers_by_path: Mapping[str, int], inputs: ConversionInputs
) -> dict[int, BitMap64]:
    """The positions that the listing's tasks delete in some data files, which have
    ``numbers_by_path`` by their paths; by these numbers.
    """
    staging = Staging(spark, inputs.snapshot_deletes.table)
    paths_and_blobs = list(
        elements(
            staging.java.vectors(
                inputs.snapshot_deletes.listing.tasks, zero_joined(numbers_by_path)
            )
        )
    )
    return {
        numbers_by_path[str(data_path)]: vector_positions(bytes(blob))
        for data_path, blob in zip(paths_and_blobs[::2], paths_and_blobs[1::2], strict=True)
    }


def _earlier_positions(
    spark: SparkSession,
    table_name: Identifier,
    numbers_by_path: Mapping[str, int],
    deletes_by_path: Mapping[str, Sequence[Any]],
    rows_by_shared_path: Mapping[str, int],
    inputs: ConversionInputs,
    position_count: int,
) -> dict[int, BitMap64]:
    """The same of the whole snapshot, by one query that is spread as for so many
    ``position_count``: of the delete files that are each data file's own, and of those that several
    data files share.
    """
    paths_with_vector = {
        data_path
        for data_path, delete_files in deletes_by_path.items()
        if any(map(_is_vector, delete_files))
    }
    files_frame = frame_of_columns(
        spark,
        {
            "path": (pa.string(), numbers_by_path.keys()),
            "f": (pa.int32(), numbers_by_path.values()),
            "has_vector": (
                pa.bool_(),
                [data_path in paths_with_vector for data_path in numbers_by_path],
            ),
        },
    )
    if field_names := position_deletes_name_clashes(
        inputs.snapshot_deletes.specs.values(), inputs.snapshot_deletes.format_version
    ):
        raise ConversionRefused(
            "Iceberg cannot read the positions that are deleted already, which the new deletion "
            "vectors must hold, because a partition field has the name of a column of its table "
            f"position_deletes ({', '.join(field_names)}). Run icekit compact, which applies all "
            "deletes."
        )
    if field_names := fields_blocking_position_deletes(inputs.snapshot_deletes.specs.values()):
        raise ConversionRefused(
            "The new deletion vectors must hold the positions that are deleted already, but "
            f"{unreadable_position_deletes_reason(field_names)}. Run icekit compact, which "
            "applies all deletes."
        )
    position_rows = metadata_table(
        spark, table_name, "position_deletes", inputs.snapshot_deletes.snapshot_id
    )
    _check_shared_deletes(spark, position_rows, rows_by_shared_path)
    joined_rows = position_rows.join(
        files_frame.hint("broadcast"), position_rows.file_path == files_frame.path
    )
    if paths_with_vector:
        # A vector replaces all other position deletes of its data file.
        joined_rows = joined_rows.where("NOT has_vector OR content_offset IS NOT NULL")
    return positions_by_file(
        arrow_of(position_words(joined_rows.select("f", "pos"), position_count))
    )


def _check_shared_deletes(
    spark: SparkSession, position_rows: DataFrame, rows_by_shared_path: Mapping[str, int]
) -> None:
    """Check that the metadata table lists all delete files of several data files: readers ignore
    such files once a vector exists.
    """
    if not rows_by_shared_path:
        return
    shared_files = frame_of_columns(spark, {"path": (pa.string(), rows_by_shared_path)})
    row_count = position_rows.join(
        shared_files.hint("broadcast"),
        position_rows.delete_file_path == shared_files.path,
        "left_semi",
    ).count()
    expected_count = sum(rows_by_shared_path.values())
    if row_count != expected_count:
        raise ConversionRefused(
            f"Only {row_count:,} of {expected_count:,} rows of "
            f"{count(len(rows_by_shared_path), 'position delete file')} "
            "could be read. Nothing was changed; run it again."
        )


def positions_by_file(word_table: pa.Table) -> dict[int, BitMap64]:
    """The positions of each data file from the rows of
    :func:`~icekit.rows.deletes.join.position_words`.
    """
    import numpy as np

    file_numbers = word_table.column("f").to_numpy()
    word_numbers = word_table.column("word").to_numpy()
    word_bits = word_table.column("bits").to_numpy()
    sort_order = np.lexsort((word_numbers, file_numbers))
    file_numbers = file_numbers[sort_order]
    word_numbers = word_numbers[sort_order]
    word_bits = word_bits[sort_order]
    distinct_numbers, starts = np.unique(file_numbers, return_index=True)
    ends = [*starts, len(file_numbers)][1:]
    return {
        int(file_number): positions_of_words(
            word_numbers[start_index:end], word_bits[start_index:end]
        )
        for file_number, start_index, end in zip(distinct_numbers, starts, ends, strict=True)
    }


# In the summary of each commit, to recognize it if the catalog's answer is lost.
_MARK = "icekit.commit-id"
# Outermost exceptions of a call that has committed nothing.
_REFUSALS = {
    "org.apache.iceberg.exceptions.ValidationException",
    "org.apache.iceberg.exceptions.CommitFailedException",
    "java.lang.IllegalArgumentException",
}


@frozen
class WrittenDeletes:
    """What a conversion has written, before its commit; or what a rewrite reads with, which no
    commit gets.

    ``found_positions`` are those of deleted rows, by a file's index in ``inputs.data_files``, and
    ``earlier_positions`` those that were deleted before, where a deletion vector replaces other
    deletes. ``written_positions`` are both of them for each index, ``written_delete_files`` the
    delete files that hold them, in this order; ``removed_delete_files`` the delete files that go.
    """

    inputs: ConversionInputs
    found_positions: Mapping[int, BitMap64]
    earlier_positions: Mapping[int, BitMap64]
    written_positions: Mapping[int, BitMap64]
    written_delete_files: Sequence[Any]
    removed_delete_files: Sequence[Any]

    @property
    def data_paths(self) -> list[str]:
        """The data files that ``written_delete_files`` refer to."""
        return [self.inputs.data_files[file_number].path for file_number in self.written_positions]


def conversion_of(spark: SparkSession, staging: Staging, written_deletes: WrittenDeletes) -> Any:
    """The Java object that tells what a scan would read after the commit; ``staging`` is of the
    table.
    """
    return java_object(
        spark,
        staging.table,
        "Conversion",
        staging.java,
        list(written_deletes.written_delete_files),
        list(written_deletes.removed_delete_files),
        files_text(written_deletes.inputs.delete_files),
    )


class Check(Protocol):
    """Checks one commit of a conversion."""

    def look_up(self) -> None:
        """Do what can be done before the positions are known."""

    def run(self, written_deletes: WrittenDeletes) -> Mapping[str, str]:
        """Check what is about to be committed; returns what the commit's summary says of it, and
        raises if it is not right.
        """


#: Makes the check of a commit from what was found, and its key view.
MakeCheck = Callable[["SparkSession", ConversionInputs, KeyView | None], Check]


def write_deletes(
    spark: SparkSession,
    table_name: Identifier,
    inputs: ConversionInputs,
    writer: DeleteFileWriter,
    check: MakeCheck | None,
) -> tuple[WrittenDeletes, Mapping[str, str]]:
    """Write the delete files that replace equality deletes, and check them; also returns what the
    summary of a commit says of the check. ``writer`` can remove them.
    """
    with ExitStack() as stack:
        key_view = KeyView(spark, inputs, stack) if inputs.data_files else None
        commit_check = None if check is None else check(spark, inputs, key_view)
        meanwhile = commit_check.look_up if commit_check else (lambda: None)
        positions_by_number = (
            deleted_positions(spark, key_view, inputs, meanwhile) if key_view else {}
        )
        found_positions = dict(positions_by_number)
        _check_listed_once(inputs, positions_by_number)
        has_vectors = inputs.snapshot_deletes.format_version >= 3
        replaced_files, earlier_positions = (
            merge_earlier_positions(spark, table_name, positions_by_number, inputs)
            if has_vectors
            else ([], {})
        )
        written_positions = dict(sorted(positions_by_number.items()))
        written_delete_files = writer.write(
            [
                (n, inputs.data_files[n], file_positions)
                for n, file_positions in written_positions.items()
            ]
        )
        removed_delete_files = [
            *replaced_files,
            *(inputs.equality_deletes() if inputs.is_last else ()),
        ]
        written_deletes = WrittenDeletes(
            inputs,
            found_positions,
            earlier_positions,
            written_positions,
            written_delete_files,
            removed_delete_files,
        )
        is_idle = not written_delete_files and not removed_delete_files
        return written_deletes, {} if commit_check is None or is_idle else commit_check.run(
            written_deletes
        )


def commit(
    written_deletes: WrittenDeletes, branch: str | None, summary_tags: Mapping[str, str]
) -> None:
    """Replace equality deletes with position deletes in one commit, which fails if another commit
    interferes; its summary has ``summary_tags``.

    The touched data files, and the files to be removed, must still exist. Deletes committed
    since the snapshot that the files were found at stay, and apply.
    """
    snapshot_deletes = written_deletes.inputs.snapshot_deletes
    row_delta = (
        snapshot_deletes.table.newRowDelta()
        .validateFromSnapshot(snapshot_deletes.snapshot_id)
        .validateDeletedFiles()
    )
    if written_deletes.data_paths:
        row_delta = row_delta.validateDataFilesExist(written_deletes.data_paths)
    for delete_file in written_deletes.written_delete_files:
        row_delta.addDeletes(delete_file)
    for delete_file in written_deletes.removed_delete_files:
        row_delta.removeDeletes(delete_file)
    for tag, tag_value in summary_tags.items():
        row_delta.set(tag, tag_value)
    if branch:
        row_delta = row_delta.toBranch(branch)
    row_delta.commit()


def convert(
    spark: SparkSession,
    table_name: Identifier,
    *,
    branch: str | None = None,
    partitions: Collection[Partition] | None = None,
    max_sequence: int | None = None,
    slices: int = 1,
    summary_tags_of: Callable[[Sequence[Scope]], Mapping[str, str]] = lambda _: {},
    check: MakeCheck | None = None,
    before_commit: Callable[[], None] = lambda: None,
) -> None:
    """Replace a table's equality deletes with position deletes; see
    :func:`~icekit.rows.deletes.conversion_inputs.remaining_deletes` for which are taken.

    One commit, or ``slices`` of them, each for a part of the data files: the last removes the
    equality deletes. Until then all of them apply, so a run that ends early has changed no row. All
    slices use the deletes that the first one found, and the last is committed only if every data
    file with these deletes was in one of the slices; otherwise raises :class:`CommitConflict`.
    ``summary_tags_of`` gives what the summary of each commit says, from the deletes that were
    found. ``check`` makes the check of each commit, and ``before_commit`` is called after it; if
    one of them raises, nothing is committed, and what was written is removed.
    """
    conversion = _Conversion(spark, table_name, branch, summary_tags_of, check, before_commit)
    for slice_index in range(slices):
        # Read again for each slice: its snapshot must contain the commits of earlier slices, or
        # the conversion must stop.
        snapshot_deletes = remaining_deletes(
            spark, table_name, branch=branch, partitions=partitions, max_sequence=max_sequence
        )
        inputs = find_inputs(spark, snapshot_deletes, (slice_index, slices))
        if inputs is None:
            return
        if slice_index == 0:
            max_sequence = max(delete_file.sequence_number for delete_file in inputs.delete_files)
        conversion.convert_slice(inputs)
    spark.sql(f"REFRESH TABLE {identifier(*table_name)}")


@dataclass
class _Conversion:
    """One conversion, and the basis of its slices so far: the equality deletes, the snapshot that
    each was listed at (its id and sequence number), the marks of their commits.
    """

    spark: SparkSession
    table_name: Identifier
    branch: str | None
    summary_tags_of: Callable[[Sequence[Scope]], Mapping[str, str]]
    make_check: MakeCheck | None
    before_commit: Callable[[], None]
    delete_paths: set[str] = field(default_factory=set)
    listed_snapshots: list[tuple[int, int]] = field(default_factory=list)
    commit_marks: set[str] = field(default_factory=set)

    def convert_slice(self, inputs: ConversionInputs) -> None:
        """Commit one slice."""
        delete_paths = {delete_file.path for delete_file in inputs.delete_files}
        if not self.listed_snapshots:
            self.delete_paths = delete_paths
        elif not self.delete_paths.issuperset(delete_paths):
            raise CommitConflict("older equality deletes were added while others were converted")
        else:
            self._check_earlier_slices(inputs)
        self.listed_snapshots.append(
            (inputs.snapshot_deletes.snapshot_id, inputs.snapshot_deletes.sequence_number)
        )
        self._commit_slice(inputs)

    def _check_earlier_slices(self, inputs: ConversionInputs) -> None:
        """Check that a slice still fits the earlier ones: their commits and, before the deletes are
        removed, all data files they apply to.
        """
        snapshot_ids, sequence_numbers = zip(*self.listed_snapshots, strict=True)
        try:
            commits = commits_since(inputs.snapshot_deletes, snapshot_ids[0])
        except SnapshotNotFound:
            raise CommitConflict(
                "the table was rolled back, or its snapshots expired, while its equality deletes "
                "were converted"
            ) from None
        marks = {str(summary_of(commit).get(_MARK)) for commit in commits}
        # What a slice has seen counts only where the table has come from there.
        lineage_ids = {snapshot_ids[0], *(int(commit["snapshot-id"]) for commit in commits)}
        if not self.commit_marks <= marks or not lineage_ids.issuperset(snapshot_ids):
            raise CommitConflict(
                "the table was rolled back while its equality deletes were converted"
            )
        if not inputs.is_last:
            return
        if uncovered_paths := inputs.snapshot_deletes.listing.uncovered_paths(
            inputs.snapshot_deletes.scopes, sequence_numbers, inputs.data_slice[1]
        ):
            raise CommitConflict(
                f"another commit added {count(len(uncovered_paths), 'data file')} to which the "
                "equality deletes apply while they were converted (a compaction may keep an old "
                f"sequence number): {uncovered_paths[0]}"
            )

    def _commit_slice(self, inputs: ConversionInputs) -> None:
        """One commit: the positions found; the last commit also removes the equality deletes."""
        spark = self.spark
        table_name = self.table_name
        snapshot_deletes = inputs.snapshot_deletes
        writer = DeleteFileWriter(spark, snapshot_deletes)
        commit_mark = uuid.uuid4().hex
        is_committing = False
        try:
            written_deletes, check_summary_tags = write_deletes(
                spark, table_name, inputs, writer, self.make_check
            )
            if (
                not written_deletes.written_delete_files
                and not written_deletes.removed_delete_files
            ):
                return
            self.before_commit()
            is_committing = True
            commit(
                written_deletes,
                self.branch,
                {
                    **self.summary_tags_of(snapshot_deletes.scopes),
                    **check_summary_tags,
                    _MARK: commit_mark,
                },
            )
        except Exception as error:
            # A commit whose answer was lost may still be made: the files it names must exist.
            if not is_committing or _is_commit_absent(spark, table_name, error, commit_mark):
                writer.take_back()
            raise
        self.commit_marks.add(commit_mark)


def _check_listed_once(inputs: ConversionInputs, file_numbers: Iterable[int]) -> None:
    """Refuse to delete rows of a data file that the table has more than once."""
    data_paths = [inputs.data_files[file_number].path for file_number in file_numbers]
    if repeated_paths := inputs.snapshot_deletes.listing.repeated_paths(data_paths):
        raise ConversionRefused(
            f"{count_with_verb(len(repeated_paths), 'data file', 'is', 'are')} in the table more "
            "than once (appended twice), and a position delete would apply to every copy: "
            f"{repeated_paths[0]}. Rewrite them first (rewrite_data_files with rewrite-all)."
        )


def is_refused_by_iceberg(error: Exception) -> bool:
    """Whether Iceberg raised an error after it has checked the table and made no commit."""
    return not _REFUSALS.isdisjoint(java_classes(error)[:1])


def _is_commit_absent(
    spark: SparkSession, table_name: Identifier, error: Exception, commit_mark: str
) -> bool:
    """Whether a commit was certainly not made: Iceberg refused it, or nothing was sent, and no
    snapshot has its mark.

    A file that stays costs some bytes; removing a file that a commit names destroys the table.
    """
    if is_engine_error(error) and not is_refused_by_iceberg(error):
        return False
    try:
        table = load_table(spark, table_name)
        table.refresh()
        metadata = metadata_of(spark, table)
    except Exception:
        return False
    return all(
        summary_of(snapshot).get(_MARK) != commit_mark
        for snapshot in metadata.get("snapshots") or ()
    )
