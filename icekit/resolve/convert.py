"""Resolve equality deletes into position deletes: find, join, write, commit."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JNetworkError

from icekit.errors import ConversionRefused
from icekit.facts.model import Partition
from icekit.facts.snapshots import lineage, snapshots_by_id
from icekit.resolve.delete_files import Placed, Present, Writer, commit, partitions_of, placed, present
from icekit.resolve.find import Found, find
from icekit.resolve.listing import File, repeated
from icekit.resolve.positions import deleted_positions, merge
from icekit.sql import Identifier, identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In the summary of each commit, to know it by when the catalog's answer is lost.
_MARK = "icekit.commit-id"
_NO_ANSWER = re.compile(r"CommitStateUnknown|Service|REST|Timeout|IO|SQL|Interrupted|Thrift|Socket|Connect|^TException")


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
    equality deletes. Until then they all apply, so a run that ends early has changed no row.
    """
    marks: list[str] = []
    for place in range(slices):
        # Anew for each: the commits before it are in its snapshot, or it must not go on.
        found = find(spark, name, branch=branch, partitions=partitions, up_to=up_to, slices=(place, slices))
        if found is None:
            return
        _check_ancestry(found, marks)
        mark = uuid.uuid4().hex
        if _one(spark, name, found, branch, {**(tags or {}), _MARK: mark}, say, is_last=place == slices - 1):
            marks.append(mark)
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
        if not is_committing or _is_refused(error):
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


def _check_ancestry(found: Found, marks: Sequence[str]) -> None:
    """See that the commits made before are still there: after a rollback the equality deletes must stay."""
    if not marks:
        return
    snapshots = snapshots_by_id(found.at.metadata)
    there = {(commit.get("summary") or {}).get(_MARK) for commit in lineage(snapshots, snapshots.get(found.at.snapshot_id))}
    if not there.issuperset(marks):
        raise CommitConflict("the table was rolled back while its equality deletes were converted")


def _is_refused(error: Exception) -> bool:
    """Tell whether a commit was surely not made: Iceberg said why, and it was not for want of an answer."""
    cause: Any = getattr(error, "java_exception", None)
    said = []
    while cause is not None:
        said.append(str(cause.getClass().getSimpleName()))
        cause = cause.getCause()
    # Without a Java cause it is Python's own error, or Spark's wrapping of one of Iceberg's checks: nothing was sent.
    return not isinstance(error, Py4JNetworkError) and not any(_NO_ANSWER.search(name) for name in said)
