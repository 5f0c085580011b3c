"""Resolve equality deletes into position deletes: find, join, write, commit."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from icekit.engine.bridge import lent, load_table, metadata_of
from icekit.engine.compat import arrow_of
from icekit.engine.errors import CommitConflict, is_of_engine
from icekit.engine.metadata_tables import metadata_table
from icekit.errors import ConversionRefused, SnapshotNotFound
from icekit.facts.files import Partition
from icekit.facts.head import Head, since
from icekit.facts.lineage import snapshots_by_id
from icekit.facts.metadata import Json
from icekit.resolve.applies import disagreement
from icekit.resolve.delete_files import (
    Delta,
    Positions,
    Writer,
    commit,
    position_deletes,
)
from icekit.resolve.find import Found, find
from icekit.resolve.join import dead_rows, disagreeing, tasks, words
from icekit.resolve.key_view import KeyView, key_view
from icekit.resolve.listing import Scope, local
from icekit.sql import Identifier, identifier
from icekit.units import count, counted, size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_SETTINGS = {"spark.sql.adaptive.coalescePartitions.enabled": "false"}


def deleted_positions(
    spark: SparkSession, view: KeyView, found: Found, say: Callable[[str], None]
) -> dict[int, Positions]:
    """The deleted positions per data file, by its place in ``found.data``; ``view`` is the key view
    of ``found``.
    """
    records = sum(key_set.records for key_set in found.key_sets)
    spread = max(tasks(records), spark.sparkContext.defaultParallelism)
    say(
        f"  {count(records, 'delete record')} in "
        f"{count(len(found.deletes), 'equality delete file')}, "
        f"{count(found.data_records, 'row')} in "
        f"{count(len(found.data), 'data file')}"
    )
    with lent(spark, {**_SETTINGS, "spark.sql.shuffle.partitions": str(spread)}):
        dead = dead_rows(view, found.key_sets, found.ruled_out)
        with disagreement(lambda: _disagreeing(view, found)):
            return by_file(arrow_of(words(dead, records)))


def _disagreeing(view: KeyView, found: Found) -> list[str]:
    """Some data files that have rows which only the specification deletes."""
    if found.ruled_out is None:
        return []
    return [
        found.data[number].path for number in disagreeing(view, found.key_sets, found.ruled_out)
    ]


def merge(
    spark: SparkSession, name: Identifier, positions: dict[int, Positions], found: Found
) -> tuple[list[Any], dict[int, Positions]]:
    """Merge existing position deletes into the new vectors, because a data file has at most one
    vector; returns the delete files they replace, and the existing positions.
    """
    numbers = {found.data[number].path: number for number in positions}
    if not numbers:
        return [], {}
    own, shared = position_deletes(found.at.listing.java, numbers)
    if not (shared or own):
        return [], {}
    by_path = local(
        spark, {"path": (pa.string(), numbers.keys()), "f": (pa.int32(), numbers.values())}
    )
    listed = metadata_table(spark, name, "position_deletes", found.at.snapshot_id)
    _check_shared(spark, listed, shared)
    old = listed.join(by_path.hint("broadcast"), listed.file_path == by_path.path).select(
        "f", "pos"
    )
    before = by_file(arrow_of(words(old, sum(deleted.count for deleted in positions.values()))))
    for path, deletes in own.items():
        # A vector that is replaced but was not read in full would bring its rows back.
        there_are = before.get(numbers[path], Positions()).count
        if there_are < (expected := max(map(_least, deletes))):
            raise ConversionRefused(
                f"Only {there_are} of {expected} positions deleted earlier could be read for "
                f"{path}. Nothing was changed; run the conversion again."
            )
    for number, deleted in before.items():
        positions[number] = positions[number].with_more(deleted)
    return [delete for deletes in own.values() for delete in deletes], before


def _check_shared(spark: SparkSession, there: DataFrame, shared: Mapping[str, int]) -> None:
    """Check that the metadata table lists all delete files of several data files: readers ignore
    such files once a vector exists.
    """
    if not shared:
        return
    paths = local(spark, {"path": (pa.string(), shared)})
    read, expected = (
        there.join(
            paths.hint("broadcast"), there.delete_file_path == paths.path, "left_semi"
        ).count(),
        sum(shared.values()),
    )
    if read != expected:
        raise ConversionRefused(
            f"Only {read:,} of {expected:,} rows of {count(len(shared), 'position delete file')} "
            "could be read. Nothing was changed; run the conversion again."
        )


def _least(delete: Any) -> int:
    """The minimum number of positions in a delete file of one data file; a vector names each
    once.
    """
    return int(delete.recordCount()) if delete.contentOffset() is not None else 1


def by_file(got: pa.Table) -> dict[int, Positions]:
    """The positions of each data file from the rows of :func:`~icekit.resolve.join.words`."""
    numbers, places, bits = (got.column(name).to_numpy() for name in ("f", "word", "bits"))
    order = np.argsort(numbers, kind="stable")
    numbers, places, bits = numbers[order], places[order], bits[order]
    files, starts = np.unique(numbers, return_index=True)
    ends = [*starts, len(numbers)][1:]
    return {
        int(file): Positions.of(places[start:end], bits[start:end])
        for file, start, end in zip(files, starts, ends, strict=True)
    }


# In the summary of each commit, to recognize it if the catalog's answer is lost.
_MARK = "icekit.commit-id"
#: Iceberg raises these after it has checked the table and made no commit.
_REFUSALS = frozenset({"ValidationException", "CommitFailedException", "IllegalArgumentException"})


@dataclass(frozen=True)
class Pending:
    """What a conversion has written and is about to commit.

    ``view`` is the key view of ``found``, None if its deletes apply to no file. ``dead`` are the
    positions found, by a file's place in ``found.data``, and ``earlier`` those that were deleted
    before, where a deletion vector replaces other deletes. ``written`` are both of them for each
    place, ``added`` the delete files that hold them, in this order; ``removed`` the delete files
    that go. ``slices`` is the part of the data files: (2, 5) the third of five.
    """

    spark: SparkSession
    found: Found
    view: KeyView | None
    dead: Mapping[int, Positions]
    earlier: Mapping[int, Positions]
    written: Mapping[int, Positions]
    added: Sequence[Any]
    removed: Sequence[Any]
    slices: tuple[int, int]

    @property
    def is_last(self) -> bool:
        """Whether the equality deletes go with this commit."""
        return self.slices[0] == self.slices[1] - 1


#: Checks what is about to be committed; returns what the commit's summary says of it, and raises
# if it is not right.
Check = Callable[[Pending], Mapping[str, str]]


def convert(
    spark: SparkSession,
    name: Identifier,
    *,
    branch: str | None = None,
    partitions: Collection[Partition] | None = None,
    up_to: int | None = None,
    slices: int = 1,
    tags: Callable[[Sequence[Scope]], Mapping[str, str]] = lambda _: {},
    check: Check | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Replace a table's equality deletes with position deletes; see
    :func:`~icekit.resolve.find.find` for which are taken.

    One commit, or ``slices`` of them, each for a part of the data files: the last removes the
    equality deletes. Until then all of them apply, so a run that ends early has changed no row. All
    slices use the deletes that the first one found, and the last is committed only if every data
    file with these deletes was in one of the slices; otherwise raises :class:`CommitConflict`.
    ``tags`` gives what the summary of each commit says, from the deletes that were found. ``check``
    sees each commit before it is made; if it raises, nothing is committed, and what was
    written is removed.
    """
    _Conversion(spark, name, branch, tags, check, say).run(partitions, up_to, slices)


class _Conversion:
    """One conversion, and the basis of its slices so far: the equality deletes, the snapshot that
    each was listed at (its id and sequence number), the marks of their commits.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: Identifier,
        branch: str | None,
        tags: Callable[[Sequence[Scope]], Mapping[str, str]],
        check: Check | None,
        say: Callable[[str], None],
    ) -> None:
        self.spark, self.name, self.branch, self.tags, self.check, self.say = (
            spark,
            name,
            branch,
            tags,
            check,
            say,
        )
        self.deletes: set[str] = set()
        self.listed_at: list[tuple[int, int]] = []
        self.marks: set[str] = set()

    def run(self, partitions: Collection[Partition] | None, up_to: int | None, slices: int) -> None:
        """Commit slice by slice."""
        for index in range(slices):
            # Read again for each slice: its snapshot must contain the commits of earlier slices, or
            # the conversion must stop.
            found = find(
                self.spark,
                self.name,
                branch=self.branch,
                partitions=partitions,
                up_to=up_to,
                slices=(index, slices),
            )
            if found is None:
                return
            deletes = {file.path for file in found.deletes}
            if index == 0:
                self.deletes, up_to = deletes, max(file.sequence for file in found.deletes)
            is_last = index == slices - 1
            self._check_before(found, deletes, slices, is_last=is_last)
            self.listed_at.append((found.at.snapshot_id, int(found.at.snapshot.sequenceNumber())))
            mark = uuid.uuid4().hex
            with key_view(self.spark, found) if found.data else nullcontext() as view:
                if self._slice(found, view, mark, (index, slices)):
                    self.marks.add(mark)
        self.spark.sql(f"REFRESH TABLE {identifier(*self.name)}")

    def _check_before(
        self, found: Found, deletes: Collection[str], slices: int, *, is_last: bool
    ) -> None:
        """Check that a slice still fits the earlier ones: their deletes, their commits and, before
        the deletes are removed, all data files they apply to.
        """
        if not self.listed_at:
            return
        if not self.deletes.issuperset(deletes):
            raise CommitConflict("older equality deletes were added while others were converted")
        listed_at, sequences = zip(*self.listed_at, strict=True)
        commits = _since(found, listed_at[0])
        marks = {str((commit.get("summary") or {}).get(_MARK)) for commit in commits}
        # What a slice has seen counts only where the table has come from there.
        known = {listed_at[0], *(int(commit["snapshot-id"]) for commit in commits)}
        if not self.marks <= marks or not known.issuperset(listed_at):
            raise CommitConflict(
                "the table was rolled back while its equality deletes were converted"
            )
        if not is_last:
            return
        files, path = found.at.listing.uncovered(found.at.scopes, sequences, slices)
        if files:
            raise CommitConflict(
                f"another commit added {count(files, 'data file')} to which the equality deletes "
                "apply while they were converted (a compaction may keep an old sequence number): "
                f"{path}"
            )

    def _check_listed_once(self, found: Found, positions: Iterable[int]) -> None:
        """Refuse to delete rows of a data file that the table has more than once."""
        paths = [found.data[number].path for number in positions]
        if twice := found.at.listing.repeated(paths):
            raise ConversionRefused(
                f"{counted(len(twice), 'data file', 'is', 'are')} in the table more than once "
                f"(appended twice), and a position delete would apply to every copy: {twice[0]}. "
                "Rewrite them first (rewrite_data_files with rewrite-all)."
            )

    def _slice(
        self, found: Found, view: KeyView | None, mark: str, slices: tuple[int, int]
    ) -> bool:
        """One commit: the positions found; the last commit also removes the equality deletes. False
        if there was nothing to commit.
        """
        spark, name, at = self.spark, self.name, found.at
        positions = deleted_positions(spark, view, found, self.say) if view else {}
        dead = dict(positions)
        self._check_listed_once(found, positions)
        replaced, earlier = (
            merge(spark, name, positions, found) if at.format_version >= 3 else ([], {})
        )
        hit = [(number, found.data[number], every) for number, every in sorted(positions.items())]
        writer = Writer(spark, at.table, at.listing.java, at.format_version)
        is_committing = False
        is_last = slices[0] == slices[1] - 1
        try:
            added = writer.write(hit)
            removed = [*replaced, *(found.equality_deletes() if is_last else ())]
            if not added and not removed:
                return False
            kind = "deletion vector" if at.format_version >= 3 else "position delete file"
            self.say(
                f"  {count(len(added), kind)} for "
                f"{count(sum(every.count for *_, every in hit), 'deleted row')}, "
                f"{size(writer.bytes_written)}"
            )
            pending = Pending(
                spark,
                found,
                view,
                dead=dead,
                earlier=earlier,
                written=dict(sorted(positions.items())),
                added=added,
                removed=removed,
                slices=slices,
            )
            checked = self.check(pending) if self.check else {}
            is_committing = True
            delta = Delta(
                start=at.snapshot_id,
                branch=self.branch,
                added=added,
                removed=removed,
                touched=[file.path for _, file, _ in hit],
                tags={**self.tags(at.scopes), **checked, _MARK: mark},
            )
            commit(spark, at.table, delta)
        except Exception as error:
            # A commit whose answer was lost may still be made: the files it names must exist.
            if not is_committing or _is_refused(spark, name, error, mark):
                writer.take_back()
            raise
        return True


def _since(found: Found, start: int) -> Sequence[Json]:
    """The commits after a snapshot; a conflict if the snapshot is no longer an ancestor."""
    at = Head(found.at.metadata, snapshots_by_id(found.at.metadata)[found.at.snapshot_id])
    try:
        return since(at, start)
    except SnapshotNotFound:
        raise CommitConflict(
            "the table was rolled back, or its snapshots expired, while its equality deletes were "
            "converted"
        ) from None


def _is_refused(spark: SparkSession, name: Identifier, error: Exception, mark: str) -> bool:
    """Whether a commit was certainly not made: Iceberg refused it, or nothing was sent, and no
    snapshot has its mark.

    A file that stays costs some bytes; removing a file that a commit names destroys the table.
    """
    if is_of_engine(error):
        cause: Any = getattr(error, "java_exception", None)
        # PySpark has its own name for Iceberg's argument checks.
        name_of_it = (
            type(error).__name__ if cause is None else str(cause.getClass().getSimpleName())
        )
        if name_of_it not in _REFUSALS:
            return False
    try:
        table = load_table(spark, name)
        table.refresh()
        metadata = metadata_of(spark, table)
    except Exception:
        return False
    return all(
        (snapshot.get("summary") or {}).get(_MARK) != mark
        for snapshot in metadata.get("snapshots") or ()
    )
