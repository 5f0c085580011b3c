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
from icekit.rows.deletes.applies import disagreement
from icekit.rows.deletes.by_kernel import positions_by_kernel
from icekit.rows.deletes.delete_files import (
    Writer,
    position_deletes,
    positions_of,
    vector_positions,
)
from icekit.rows.deletes.find import ConversionInputs, find, remaining
from icekit.rows.deletes.join import dead_rows, tasks, words
from icekit.rows.deletes.key_view import KeyView
from icekit.rows.deletes.listing import Scope, joined, local, placed
from icekit.rows.kernel.table_writer import KernelUnavailable

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import DataFrame, SparkSession


def deleted_positions(
    spark: SparkSession, view: KeyView, inputs: ConversionInputs, meanwhile: Callable[[], None]
) -> dict[int, BitMap64]:
    """The deleted positions per data file, by its place in ``inputs.data``; ``view`` is the key view
    of ``inputs``, by which Spark finds them where the kernel cannot. ``meanwhile`` is Spark's work
    while the kernel finds them.
    """
    with contextlib.suppress(KernelUnavailable):
        return positions_by_kernel(spark, inputs, meanwhile)
    records = sum(key_set.records for key_set in inputs.key_sets)
    spread = max(tasks(records), spark.sparkContext.defaultParallelism)
    settings = {
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.shuffle.partitions": str(spread),
    }
    with temporary_settings(spark, settings):
        deleted_rows = dead_rows(view, inputs)
        with disagreement(lambda number: inputs.data[int(number)].path):
            return by_file(arrow_of(words(deleted_rows, records)))


def merge(
    spark: SparkSession, name: Identifier, positions: dict[int, BitMap64], inputs: ConversionInputs
) -> tuple[list[Any], dict[int, BitMap64]]:
    """Merge existing position deletes into the new vectors, because a data file has at most one
    vector; returns the delete files they replace, and the existing positions.
    """
    numbers = {inputs.data[number].path: number for number in positions}
    if not numbers:
        return [], {}
    own_deletes, shared_records = position_deletes(inputs.snapshot_deletes.listing.java, numbers)
    if not (shared_records or own_deletes):
        return [], {}
    if inputs.snapshot_deletes.listing.tasks is None:
        # A guess: as many as were found now.
        records = sum(map(len, positions.values()))
        before = _earlier_positions(
            spark, name, numbers, own_deletes, shared_records, inputs, records
        )
    else:
        before = _earlier_positions_of_tasks(spark, numbers, inputs)
    for path, deletes in own_deletes.items():
        # A vector that is replaced but was not read in full would bring its rows back. It names
        # each position once; other files may name one again.
        expected = max(int(delete.recordCount()) if _is_vector(delete) else 1 for delete in deletes)
        positions_read = len(before.get(numbers[path], ()))
        if positions_read < expected:
            raise ConversionRefused(
                f"Only {positions_read} of {expected} positions deleted earlier could be read for "
                f"{path}. Nothing was changed; run it again."
            )
    for number, deleted in before.items():
        # Not in place: the positions found are compared with these before the commit.
        positions[number] = positions[number] | deleted
    return [delete for deletes in own_deletes.values() for delete in deletes], before


def _is_vector(delete: Any) -> bool:
    """Whether a delete file (an object of Iceberg's API) is a deletion vector."""
    return delete.contentOffset() is not None


def _earlier_positions_of_tasks(
    spark: SparkSession, numbers: Mapping[str, int], inputs: ConversionInputs
) -> dict[int, BitMap64]:
    """The positions that the listing's tasks delete in some data files, which have ``numbers`` by
    their paths; by these numbers.
    """
    staging = Staging(spark, inputs.snapshot_deletes.table)
    answers = list(
        elements(staging.java.vectors(inputs.snapshot_deletes.listing.tasks, joined(numbers)))
    )
    return {
        numbers[str(path)]: vector_positions(bytes(blob))
        for path, blob in zip(answers[::2], answers[1::2], strict=True)
    }


def _earlier_positions(
    spark: SparkSession,
    name: Identifier,
    numbers: Mapping[str, int],
    own_deletes: Mapping[str, Sequence[Any]],
    shared_records: Mapping[str, int],
    inputs: ConversionInputs,
    records: int,
) -> dict[int, BitMap64]:
    """The same of the whole snapshot, by one query that is spread as for so many ``records``: of
    the delete files that are each data file's own, and of those that several data files share.
    """
    with_vector = {path for path, deletes in own_deletes.items() if any(map(_is_vector, deletes))}
    by_path = local(
        spark,
        {
            "path": (pa.string(), numbers.keys()),
            "f": (pa.int32(), numbers.values()),
            "has_vector": (pa.bool_(), [path in with_vector for path in numbers]),
        },
    )
    if names := position_deletes_name_clashes(
        inputs.snapshot_deletes.specs.values(), inputs.snapshot_deletes.format_version
    ):
        raise ConversionRefused(
            "Iceberg cannot read the positions that are deleted already, which the new deletion "
            "vectors must hold, because a partition field has the name of a column of its table "
            f"position_deletes ({', '.join(names)}). Run icekit compact, which applies all deletes."
        )
    if names := fields_blocking_position_deletes(inputs.snapshot_deletes.specs.values()):
        raise ConversionRefused(
            "The new deletion vectors must hold the positions that are deleted already, but "
            f"{unreadable_position_deletes_reason(names)}. Run icekit compact, which applies all "
            "deletes."
        )
    position_rows = metadata_table(
        spark, name, "position_deletes", inputs.snapshot_deletes.snapshot_id
    )
    _check_shared(spark, position_rows, shared_records)
    joined_rows = position_rows.join(
        by_path.hint("broadcast"), position_rows.file_path == by_path.path
    )
    if with_vector:
        # A vector replaces all other position deletes of its data file.
        joined_rows = joined_rows.where("NOT has_vector OR content_offset IS NOT NULL")
    return by_file(arrow_of(words(joined_rows.select("f", "pos"), records)))


def _check_shared(
    spark: SparkSession, position_rows: DataFrame, shared_records: Mapping[str, int]
) -> None:
    """Check that the metadata table lists all delete files of several data files: readers ignore
    such files once a vector exists.
    """
    if not shared_records:
        return
    paths = local(spark, {"path": (pa.string(), shared_records)})
    read = position_rows.join(
        paths.hint("broadcast"), position_rows.delete_file_path == paths.path, "left_semi"
    ).count()
    expected = sum(shared_records.values())
    if read != expected:
        raise ConversionRefused(
            f"Only {read:,} of {expected:,} rows of "
            f"{count(len(shared_records), 'position delete file')} could be read. Nothing was "
            "changed; run it again."
        )


def by_file(got: pa.Table) -> dict[int, BitMap64]:
    """The positions of each data file from the rows of :func:`~icekit.rows.deletes.join.words`."""
    import numpy as np

    numbers = got.column("f").to_numpy()
    places = got.column("word").to_numpy()
    bits = got.column("bits").to_numpy()
    order = np.lexsort((places, numbers))
    numbers = numbers[order]
    places = places[order]
    bits = bits[order]
    files, starts = np.unique(numbers, return_index=True)
    ends = [*starts, len(numbers)][1:]
    return {
        int(file): positions_of(places[start:end], bits[start:end])
        for file, start, end in zip(files, starts, ends, strict=True)
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
class NewDeletes:
    """What a conversion has written, before its commit; or what a rewrite reads with, which no
    commit gets.

    ``found_positions`` are those of deleted rows, by a file's index in ``inputs.data``, and
    ``earlier_positions`` those that were deleted before, where a deletion vector replaces other
    deletes. ``written_positions`` are both of them for each index, ``added_files`` the delete files
    that hold them, in this order; ``removed_files`` the delete files that go.
    """

    inputs: ConversionInputs
    found_positions: Mapping[int, BitMap64]
    earlier_positions: Mapping[int, BitMap64]
    written_positions: Mapping[int, BitMap64]
    added_files: Sequence[Any]
    removed_files: Sequence[Any]

    @property
    def data_paths(self) -> list[str]:
        """The data files that ``added_files`` refer to."""
        return [self.inputs.data[number].path for number in self.written_positions]


def conversion_of(spark: SparkSession, staging: Staging, new_deletes: NewDeletes) -> Any:
    """The Java object that tells what a scan would read after the commit; ``staging`` is of the
    table.
    """
    return java_object(
        spark,
        staging.table,
        "Conversion",
        staging.java,
        list(new_deletes.added_files),
        list(new_deletes.removed_files),
        placed(new_deletes.inputs.deletes),
    )


class Check(Protocol):
    """Checks one commit of a conversion."""

    def look_up(self) -> None:
        """Do what can be done before the positions are known."""

    def run(self, new_deletes: NewDeletes) -> Mapping[str, str]:
        """Check what is about to be committed; returns what the commit's summary says of it, and
        raises if it is not right.
        """


#: Makes the check of a commit from what was found, and its key view.
MakeCheck = Callable[["SparkSession", ConversionInputs, KeyView | None], Check]


def write_deletes(
    spark: SparkSession,
    name: Identifier,
    inputs: ConversionInputs,
    writer: Writer,
    check: MakeCheck | None,
) -> tuple[NewDeletes, Mapping[str, str]]:
    """Write the delete files that replace equality deletes, and check them; also returns what the
    summary of a commit says of the check. ``writer`` can remove them.
    """
    with ExitStack() as stack:
        view = KeyView(spark, inputs, stack) if inputs.data else None
        checking = None if check is None else check(spark, inputs, view)
        meanwhile = checking.look_up if checking else (lambda: None)
        positions = deleted_positions(spark, view, inputs, meanwhile) if view else {}
        found_positions = dict(positions)
        _check_listed_once(inputs, positions)
        has_vectors = inputs.snapshot_deletes.format_version >= 3
        replaced, earlier = merge(spark, name, positions, inputs) if has_vectors else ([], {})
        written_positions = dict(sorted(positions.items()))
        added_files = writer.write(
            [(n, inputs.data[n], file_positions) for n, file_positions in written_positions.items()]
        )
        removed_files = [*replaced, *(inputs.equality_deletes() if inputs.is_last else ())]
        new_deletes = NewDeletes(
            inputs, found_positions, earlier, written_positions, added_files, removed_files
        )
        is_idle = not added_files and not removed_files
        return new_deletes, {} if checking is None or is_idle else checking.run(new_deletes)


def commit(new_deletes: NewDeletes, branch: str | None, tags: Mapping[str, str]) -> None:
    """Replace equality deletes with position deletes in one commit, which fails if another commit
    interferes; its summary has ``tags``.

    The touched data files, and the files to be removed, must still exist. Deletes committed
    since the snapshot that the files were found at stay, and apply.
    """
    snapshot_deletes = new_deletes.inputs.snapshot_deletes
    delta = (
        snapshot_deletes.table.newRowDelta()
        .validateFromSnapshot(snapshot_deletes.snapshot_id)
        .validateDeletedFiles()
    )
    if new_deletes.data_paths:
        delta = delta.validateDataFilesExist(new_deletes.data_paths)
    for file in new_deletes.added_files:
        delta.addDeletes(file)
    for file in new_deletes.removed_files:
        delta.removeDeletes(file)
    for key, value in tags.items():
        delta.set(key, value)
    if branch:
        delta = delta.toBranch(branch)
    delta.commit()


def convert(
    spark: SparkSession,
    name: Identifier,
    *,
    branch: str | None = None,
    partitions: Collection[Partition] | None = None,
    up_to: int | None = None,
    slices: int = 1,
    tags: Callable[[Sequence[Scope]], Mapping[str, str]] = lambda _: {},
    check: MakeCheck | None = None,
    before_commit: Callable[[], None] = lambda: None,
) -> None:
    """Replace a table's equality deletes with position deletes; see
    :func:`~icekit.rows.deletes.find.remaining` for which are taken.

    One commit, or ``slices`` of them, each for a part of the data files: the last removes the
    equality deletes. Until then all of them apply, so a run that ends early has changed no row. All
    slices use the deletes that the first one found, and the last is committed only if every data
    file with these deletes was in one of the slices; otherwise raises :class:`CommitConflict`.
    ``tags`` gives what the summary of each commit says, from the deletes that were found. ``check``
    makes the check of each commit, and ``before_commit`` is called after it; if one of them raises,
    nothing is committed, and what was written is removed.
    """
    conversion = _Conversion(spark, name, branch, tags, check, before_commit)
    for index in range(slices):
        # Read again for each slice: its snapshot must contain the commits of earlier slices, or
        # the conversion must stop.
        snapshot_deletes = remaining(spark, name, branch=branch, partitions=partitions, up_to=up_to)
        inputs = find(spark, snapshot_deletes, (index, slices))
        if inputs is None:
            return
        if index == 0:
            up_to = max(file.sequence for file in inputs.deletes)
        conversion.slice(inputs)
    spark.sql(f"REFRESH TABLE {identifier(*name)}")


@dataclass
class _Conversion:
    """One conversion, and the basis of its slices so far: the equality deletes, the snapshot that
    each was listed at (its id and sequence number), the marks of their commits.
    """

    spark: SparkSession
    name: Identifier
    branch: str | None
    tags: Callable[[Sequence[Scope]], Mapping[str, str]]
    check: MakeCheck | None
    before_commit: Callable[[], None]
    deletes: set[str] = field(default_factory=set)
    listed_at: list[tuple[int, int]] = field(default_factory=list)
    marks: set[str] = field(default_factory=set)

    def slice(self, inputs: ConversionInputs) -> None:
        """Commit one slice."""
        deletes = {file.path for file in inputs.deletes}
        if not self.listed_at:
            self.deletes = deletes
        elif not self.deletes.issuperset(deletes):
            raise CommitConflict("older equality deletes were added while others were converted")
        else:
            self._check_earlier(inputs)
        self.listed_at.append(
            (inputs.snapshot_deletes.snapshot_id, inputs.snapshot_deletes.sequence_number)
        )
        self._convert(inputs)

    def _check_earlier(self, inputs: ConversionInputs) -> None:
        """Check that a slice still fits the earlier ones: their commits and, before the deletes are
        removed, all data files they apply to.
        """
        listed_at, sequences = zip(*self.listed_at, strict=True)
        try:
            commits = commits_since(inputs.snapshot_deletes, listed_at[0])
        except SnapshotNotFound:
            raise CommitConflict(
                "the table was rolled back, or its snapshots expired, while its equality deletes "
                "were converted"
            ) from None
        marks = {str(summary_of(commit).get(_MARK)) for commit in commits}
        # What a slice has seen counts only where the table has come from there.
        lineage_ids = {listed_at[0], *(int(commit["snapshot-id"]) for commit in commits)}
        if not self.marks <= marks or not lineage_ids.issuperset(listed_at):
            raise CommitConflict(
                "the table was rolled back while its equality deletes were converted"
            )
        if not inputs.is_last:
            return
        if files := inputs.snapshot_deletes.listing.uncovered(
            inputs.snapshot_deletes.scopes, sequences, inputs.slices[1]
        ):
            raise CommitConflict(
                f"another commit added {count(len(files), 'data file')} to which the equality "
                "deletes apply while they were converted (a compaction may keep an old sequence "
                f"number): {files[0]}"
            )

    def _convert(self, inputs: ConversionInputs) -> None:
        """One commit: the positions found; the last commit also removes the equality deletes."""
        spark = self.spark
        name = self.name
        snapshot_deletes = inputs.snapshot_deletes
        writer = Writer(spark, snapshot_deletes)
        mark = uuid.uuid4().hex
        is_committing = False
        try:
            new_deletes, checked = write_deletes(spark, name, inputs, writer, self.check)
            if not new_deletes.added_files and not new_deletes.removed_files:
                return
            self.before_commit()
            is_committing = True
            commit(
                new_deletes,
                self.branch,
                {**self.tags(snapshot_deletes.scopes), **checked, _MARK: mark},
            )
        except Exception as error:
            # A commit whose answer was lost may still be made: the files it names must exist.
            if not is_committing or _was_not_made(spark, name, error, mark):
                writer.take_back()
            raise
        self.marks.add(mark)


def _check_listed_once(inputs: ConversionInputs, positions: Iterable[int]) -> None:
    """Refuse to delete rows of a data file that the table has more than once."""
    paths = [inputs.data[number].path for number in positions]
    if twice := inputs.snapshot_deletes.listing.repeated(paths):
        raise ConversionRefused(
            f"{count_with_verb(len(twice), 'data file', 'is', 'are')} in the table more than once "
            f"(appended twice), and a position delete would apply to every copy: {twice[0]}. "
            "Rewrite them first (rewrite_data_files with rewrite-all)."
        )


def is_refused(error: Exception) -> bool:
    """Whether Iceberg raised an error after it has checked the table and made no commit."""
    return not _REFUSALS.isdisjoint(java_classes(error)[:1])


def _was_not_made(spark: SparkSession, name: Identifier, error: Exception, mark: str) -> bool:
    """Whether a commit was certainly not made: Iceberg refused it, or nothing was sent, and no
    snapshot has its mark.

    A file that stays costs some bytes; removing a file that a commit names destroys the table.
    """
    if is_engine_error(error) and not is_refused(error):
        return False
    try:
        table = load_table(spark, name)
        table.refresh()
        metadata = metadata_of(spark, table)
    except Exception:
        return False
    return all(
        summary_of(snapshot).get(_MARK) != mark for snapshot in metadata.get("snapshots") or ()
    )
