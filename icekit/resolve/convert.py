"""Resolve equality deletes into position deletes: find, join, write, commit."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from icekit.engine.bridge import load_table, metadata_of
from icekit.errors import ConversionRefused, SnapshotNotFound
from icekit.facts.head import Head, since
from icekit.facts.model import Partition
from icekit.facts.snapshots import snapshots_by_id
from icekit.resolve.delete_files import Placed, Present, Writer, commit, partitions_of, placed, present
from icekit.resolve.find import Found, find
from icekit.resolve.listing import File, repeated, uncovered
from icekit.resolve.positions import deleted_positions, merge
from icekit.sql import Identifier, identifier
from icekit.units import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In the summary of each commit, to know it by when the catalog's answer is lost.
_MARK = "icekit.commit-id"
#: What Iceberg raises when it has looked at the table and made no commit.
_REFUSALS = frozenset({"ValidationException", "CommitFailedException", "IllegalArgumentException"})


class CommitConflict(Exception):
    """Another commit has undone what this conversion rests on; it is tried again from the table as it is."""


def convert(
    spark: SparkSession,
    name: Identifier,
    *,
    branch: str | None = None,
    partitions: Collection[Partition] | None = None,
    up_to: int | None = None,
    slices: int = 1,
    tags: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Put position deletes in the place of a table's equality deletes; see :func:`~icekit.resolve.find.find` for what is taken.

    One commit, or ``slices`` of them, each for a part of the data files: the last removes the
    equality deletes. Until then they all apply, so a run that ends early has changed no row. All
    slices take the deletes that the first one found, and the last is committed only if every
    data file under them was in one of the slices: else raises :class:`CommitConflict`.
    """
    done = _Done()
    for place in range(slices):
        # Read again for each: the commits before it are in its snapshot, or it must not go on.
        found = find(spark, name, branch=branch, partitions=partitions, up_to=up_to, slices=(place, slices))
        if found is None:
            return
        deletes = {file.path for file in found.deletes}
        if place == 0:
            done.deletes, up_to = deletes, max(file.sequence for file in found.deletes)
        is_last = place == slices - 1
        _check_before(spark, name, found, deletes, done, slices, is_last=is_last)
        done.listed_at.append(found.at.snapshot_id)
        mark = uuid.uuid4().hex
        if _one(spark, name, found, branch, {**(tags or {}), _MARK: mark}, say, is_last=is_last):
            done.marks.add(mark)
    spark.sql(f"REFRESH TABLE {identifier(*name)}")


def _one(
    spark: SparkSession,
    name: Identifier,
    found: Found,
    branch: str | None,
    tags: Mapping[str, str],
    say: Callable[[str], None],
    *,
    is_last: bool,
) -> bool:
    """One commit: the positions of what is found; the last also removes the equality deletes. False if there was nothing to commit."""
    jvm: Any = spark._jvm
    at = found.at
    known = present(at.table, at.snapshot, jvm, [f.path for f in found.deletes], positions=at.format_version >= 3)
    missing = len(found.deletes) - len(known.equality)
    if missing:
        raise ConversionRefused(f"{missing} equality delete files are in no manifest that can be read; nothing was changed.")
    positions = deleted_positions(spark, name, found, say) if found.data else {}
    if twice := repeated(spark, name, at.snapshot_id, [found.data[number].path for number in positions]):
        raise ConversionRefused(
            f"{len(twice)} data files are in the table more than once (they were appended twice), and a delete by position would reach every copy: "
            f"{twice[0]}. Rewrite them first (rewrite_data_files with rewrite-all)."
        )
    replaced = merge(spark, name, known, positions, found) if at.format_version >= 3 else []
    hit = [(found.data[number], deleted) for number, deleted in sorted(positions.items())]
    writer, is_committing = Writer(spark, at.table, at.format_version), False
    try:
        where = _partitions(found, known, [file for file, _ in hit], jvm)
        added = writer.write([(file, deleted, where[file.path]) for file, deleted in hit])
        removed = [*replaced, *(known.equality.values() if is_last else ())]
        if not added and not removed:
            return False
        say(f"  {len(added):,} position deletes for {sum(d.count for _, d in hit):,} rows, {writer.bytes_written:,} bytes")
        is_committing = True
        commit(
            spark, at.table, start=at.snapshot_id, branch=branch, added=added, removed=removed, touched=[f.path for f, _ in hit], tags=tags
        )
    except Exception as error:
        # A commit whose answer was lost may yet be made: what it names must be there.
        if not is_committing or _is_refused(spark, name, error, tags[_MARK]):
            writer.take_back()
        raise
    return True


def _partitions(found: Found, known: Present, hit: Sequence[File], jvm: Any) -> dict[str, Placed]:
    """The partition of each data file: that of a delete file of its partition, where there is one."""
    table, specs = found.at.table, found.at.table.specs()
    some = {f.part: known.equality[f.path] for f in found.deletes if not found.is_global(f)}
    by_part = {part: placed(jvm, table, delete) for part, delete in some.items()}
    where: dict[str, Placed] = {f.path: by_part[f.part] for f in hit if f.part in by_part}
    where |= {f.path: None for f in hit if specs[f.spec_id].isUnpartitioned()}
    rest = [f.path for f in hit if f.path not in where]
    return {**where, **partitions_of(table, found.at.snapshot, jvm, rest)} if rest else where


@dataclass
class _Done:
    """What the slices so far were of: the equality deletes, the snapshot that each was listed at, and the marks of their commits."""

    deletes: set[str] = field(default_factory=set)
    listed_at: list[int] = field(default_factory=list)
    marks: set[str] = field(default_factory=set)


def _check_before(
    spark: SparkSession, name: Identifier, found: Found, deletes: Collection[str], done: _Done, slices: int, *, is_last: bool
) -> None:
    """See that a slice still fits those before it: their deletes, their commits and, before the deletes go, all data files under them."""
    if not done.listed_at:
        return
    if not done.deletes.issuperset(deletes):
        raise CommitConflict("older equality deletes were added while others were converted")
    commits, marks = _since(found, done.listed_at[0])
    if not done.marks <= marks:
        raise CommitConflict("the table was rolled back while its equality deletes were converted")
    if not is_last:
        return
    # Newest first: a slice has not seen what was committed after the snapshot it was listed at.
    unseen = [commits[: commits.index(start)] if start in commits else commits for start in done.listed_at]
    files, path = uncovered(spark, name, found.at.snapshot_id, found.at.scopes, unseen, slices)
    if files:
        raise CommitConflict(
            f"another commit put {count(files, 'data file')} under the equality deletes while they were converted "
            f"(a compaction may keep an old sequence number): {path}"
        )


def _since(found: Found, start: int) -> tuple[list[int], set[str]]:
    """The commits after a snapshot, newest first, and the marks in their summaries; a conflict if it is no ancestor any more."""
    at = Head(found.at.metadata, snapshots_by_id(found.at.metadata)[found.at.snapshot_id])
    try:
        commits = since(at, start)[::-1]
    except SnapshotNotFound:
        raise CommitConflict("the table was rolled back, or its snapshots expired, while its equality deletes were converted") from None
    return [int(commit["snapshot-id"]) for commit in commits], {str((commit.get("summary") or {}).get(_MARK)) for commit in commits}


def _is_refused(spark: SparkSession, name: Identifier, error: Exception, mark: str) -> bool:
    """Tell whether a commit was surely not made: Iceberg refused it, or nothing was sent, and no snapshot has its mark.

    A file that stays costs some bytes; one that is removed from under a commit costs the table.
    """
    if isinstance(error, (Py4JError, PySparkException)):
        cause: Any = getattr(error, "java_exception", None)
        # PySpark has a name of its own for what Iceberg checks by its arguments.
        name_of_it = type(error).__name__ if cause is None else str(cause.getClass().getSimpleName())
        if name_of_it not in _REFUSALS:
            return False
    try:
        table = load_table(spark, name)
        table.refresh()
        metadata = metadata_of(spark, table)
    except Exception:
        return False
    return all((snapshot.get("summary") or {}).get(_MARK) != mark for snapshot in metadata.get("snapshots") or ())
