"""Resolve equality deletes into position deletes: list, join, write, commit."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JNetworkError

from icekit.catalog.session import lent
from icekit.errors import ConversionRefused, SnapshotNotFound
from icekit.facts.bridge import load_table
from icekit.facts.metadata import specs as specs_of
from icekit.facts.model import Partition, PartitionSpec
from icekit.resolve.delete_files import Placed, Present, Writer, commit, partitions_of, placed, present
from icekit.resolve.join import KeySet, dead_rows, tasks, words
from icekit.resolve.keys import Keys, keys_of
from icekit.resolve.listing import File, Scope, files, local, repeated, scopes
from icekit.resolve.vectors import Positions
from icekit.resolve.view import DATA, Entry, key_view
from icekit.sql import Identifier, identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# In the summary of each commit, to know it by when the catalog's answer is lost.
_MARK = "icekit.commit-id"
_NO_ANSWER = re.compile(r"CommitStateUnknown|Service|REST|Timeout|IO|SQL|Interrupted|Thrift|Socket|Connect|^TException")
_SETTINGS = {"spark.sql.adaptive.coalescePartitions.enabled": "false"}


@dataclass(frozen=True)
class Found:
    """What a conversion has to do with: the snapshot, its equality deletes and the data files under them."""

    table: Any
    snapshot: Any
    snapshot_id: int
    metadata: Mapping[str, Any]
    format_version: int
    deletes: Sequence[File]
    data: Sequence[File]
    keys: Keys
    key_sets: Sequence[KeySet]
    kinds: Mapping[tuple[bool, tuple[int, ...]], int]
    specs: Mapping[int, PartitionSpec]

    @property
    def entries(self) -> list[Entry]:
        """The files as a key view lists them: data files by their place, delete files by their key set."""
        data = [Entry(file, place, DATA) for place, file in enumerate(self.data)]
        return [*data, *(Entry(file, -1, self.kind(file)) for file in self.deletes)]

    def kind(self, file: File) -> int:
        """The number of a delete file's key set."""
        return self.kinds[self.is_global(file), file.field_ids]

    def is_global(self, file: File) -> bool:
        """Tell whether a delete file applies to every partition."""
        return self.specs[file.spec_id].is_unpartitioned


def find(
    spark: SparkSession,
    name: Identifier,
    *,
    branch: str | None = None,
    partitions: Collection[Partition] | None = None,
    up_to: int | None = None,
    slices: tuple[int, int] = (0, 1),
) -> Found | None:
    """List the equality deletes of a table (named with its catalog) and the data files under them; None if there are none.

    ``partitions`` takes only those partitions' deletes (None: all). ``up_to`` leaves out those
    of later sequence numbers; ``slices`` takes a part of the data files, (2, 5) the third of five. Raises :class:`~icekit.errors.ConversionRefused` for keys that
    cannot be converted.
    """
    at = remaining(spark, name, branch=branch, partitions=partitions, up_to=up_to)
    if at is None or not at.scopes:
        return None
    table, metadata, known = at.table, at.metadata, at.specs
    _check_plain(table)
    deletes, data = files(spark, name, at.snapshot_id, known, at.scopes, up_to, slices)
    _check_partitions(known, {file.spec_id for file in (*deletes, *data)})
    keys = keys_of(metadata, (i for file in deletes for i in file.field_ids))
    sets: dict[tuple[bool, tuple[int, ...]], list[File]] = {}
    for file in deletes:
        sets.setdefault((known[file.spec_id].is_unpartitioned, file.field_ids), []).append(file)
    ordered = sorted(sets.items(), key=lambda item: item[0])
    key_sets = [
        KeySet(kind, tuple(keys.columns[i] for i in ids), is_global, sum(f.records for f in some), max(f.sequence for f in some))
        for kind, ((is_global, ids), some) in enumerate(ordered)
    ]
    return Found(
        table,
        at.snapshot,
        at.snapshot_id,
        metadata,
        int(metadata["format-version"]),
        deletes,
        data,
        keys,
        key_sets,
        {key: kind for kind, (key, _) in enumerate(ordered)},
        known,
    )


@dataclass(frozen=True)
class At:
    """A table at a snapshot, and its equality deletes by partition."""

    table: Any
    snapshot: Any
    snapshot_id: int
    metadata: Mapping[str, Any]
    specs: Mapping[int, PartitionSpec]
    scopes: Sequence[Scope]


def remaining(
    spark: SparkSession,
    name: Identifier,
    *,
    branch: str | None = None,
    partitions: Collection[Partition] | None = None,
    up_to: int | None = None,
) -> At | None:
    """Roll up the equality deletes of a table as it is now, as :func:`find` takes them; None for one without snapshots."""
    spark.sql(f"REFRESH TABLE {identifier(*name)}")
    table = load_table(spark, name)
    if branch and (branch not in (refs := dict(table.refs())) or not refs[branch].isBranch()):
        raise SnapshotNotFound(
            f"{branch!r} is no branch of the table; there are {', '.join(sorted(r for r in refs if refs[r].isBranch()))}."
        )
    snapshot = table.snapshot(branch) if branch else table.currentSnapshot()
    if snapshot is None:
        return None
    jvm: Any = spark._jvm
    metadata = json.loads(jvm.org.apache.iceberg.TableMetadataParser.toJson(table.operations().current()))
    known = {spec.spec_id: spec for spec in specs_of(metadata)}
    snapshot_id = int(snapshot.snapshotId())
    chosen = None if partitions is None else set(partitions)
    found = [s for s in scopes(spark, name, snapshot_id, known, up_to) if chosen is None or s.partition in chosen]
    return At(table, snapshot, snapshot_id, metadata, known, found)


def _check_plain(table: Any) -> None:
    encryption = table.encryption().getClass().getSimpleName()
    if encryption != "PlaintextEncryptionManager":
        raise ConversionRefused(f"The table's files are encrypted ({encryption}); converting them would write delete files in the clear.")


def _check_partitions(specs: Mapping[int, PartitionSpec], used: Collection[int]) -> None:
    """Refuse what Iceberg cannot write manifests of: 1.12 writes a null for the value of a partition field whose column is gone."""
    gone = sorted({field.name for i in used for field in specs[i].fields if field.source is None and field.transform != "void"})
    if gone:
        raise ConversionRefused(
            f"The column that partition field {', '.join(map(identifier, gone))} was made of was dropped, and Iceberg writes no delete file "
            "for such partitions any more; compact them into the current partitioning."
        )


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
    """Put position deletes in the place of a table's equality deletes; see :func:`find` for what is taken.

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
    known = present(found.table, found.snapshot, jvm, [f.path for f in found.deletes], positions=found.format_version >= 3)
    missing = len(found.deletes) - len(known.equality)
    if missing:
        raise ConversionRefused(f"{missing} equality delete files are in no manifest that can be read; nothing was changed.")
    start = found.snapshot_id
    positions = _positions(spark, name, found, say) if found.data else {}
    if twice := repeated(spark, name, start, [found.data[number].path for number in positions]):
        raise ConversionRefused(
            f"{len(twice)} data files are in the table more than once (they were appended twice), and a delete by position would reach every copy: "
            f"{twice[0]}. Rewrite them first (rewrite_data_files with rewrite-all)."
        )
    replaced = _merge(spark, name, start, known, positions, found) if found.format_version >= 3 else []
    hit = [(found.data[number], deleted) for number, deleted in sorted(positions.items())]
    writer, is_committing = Writer(spark, found.table, found.format_version), False
    try:
        where = _partitions(found, known, [file for file, _ in hit], jvm)
        added = writer.write([(file, deleted, where[file.path]) for file, deleted in hit])
        removed = [*replaced, *(known.equality.values() if is_last else ())]
        if not added and not removed:
            return False
        say(f"  {len(added):,} position deletes for {sum(d.count for _, d in hit):,} rows, {writer.bytes_written:,} bytes")
        is_committing = True
        commit(spark, found.table, start=start, branch=branch, added=added, removed=removed, touched=[f.path for f, _ in hit], tags=tags)
    except Exception as error:
        # A commit whose answer was lost may yet be made: what it names must be there.
        if not is_committing or _is_refused(error):
            writer.take_back()
        raise
    return True


class CommitConflict(Exception):
    """Another commit has undone what this conversion rests on; it is tried again from the table as it is."""


def _check_ancestry(found: Found, marks: Sequence[str]) -> None:
    """See that the commits made before are still there: after a rollback the equality deletes must stay."""
    if not marks:
        return
    wanted, snapshot = set(marks), found.snapshot
    while snapshot is not None and wanted:
        wanted.discard(dict(snapshot.summary()).get(_MARK))
        parent = snapshot.parentId()
        snapshot = found.table.snapshot(parent) if parent is not None else None
    if wanted:
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


def _positions(spark: SparkSession, name: Identifier, found: Found, say: Callable[[str], None]) -> dict[int, Positions]:
    """The deleted positions per data file, by its place in ``found.data``."""
    records = sum(key_set.records for key_set in found.key_sets)
    spread = max(tasks(records), spark.sparkContext.defaultParallelism)
    say(f"  {records:,} delete rows in {len(found.deletes):,} files, {sum(f.records for f in found.data):,} rows in {len(found.data):,}")
    with (
        key_view(spark, name, found.metadata, found.keys, found.entries) as view,
        lent(spark, {**_SETTINGS, "spark.sql.shuffle.partitions": str(spread)}),
    ):
        return by_file(words(dead_rows(spark, view, found.key_sets), records))


def by_file(frame: DataFrame) -> dict[int, Positions]:
    """The positions of each data file out of a frame of :func:`~icekit.resolve.join.words`."""
    got = frame.toArrow()
    numbers, places, bits = (got.column(name).to_numpy() for name in ("f", "word", "bits"))
    order = np.argsort(numbers, kind="stable")
    numbers, places, bits = numbers[order], places[order], bits[order]
    files, starts = np.unique(numbers, return_index=True)
    ends = [*starts, len(numbers)][1:]
    return {int(file): Positions.of(places[start:end], bits[start:end]) for file, start, end in zip(files, starts, ends, strict=True)}


def _partitions(found: Found, known: Present, hit: Sequence[File], jvm: Any) -> dict[str, Placed]:
    """The partition of each data file: that of a delete file of its partition, where there is one."""
    table, specs = found.table, found.table.specs()
    some = {f.part: known.equality[f.path] for f in found.deletes if not found.is_global(f)}
    by_part = {part: placed(jvm, table, delete) for part, delete in some.items()}
    where: dict[str, Placed] = {f.path: by_part[f.part] for f in hit if f.part in by_part}
    where |= {f.path: None for f in hit if specs[f.spec_id].isUnpartitioned()}
    rest = [f.path for f in hit if f.path not in where]
    return {**where, **partitions_of(table, found.snapshot, jvm, rest)} if rest else where


def _merge(
    spark: SparkSession, name: Identifier, snapshot_id: int, known: Present, positions: dict[int, Positions], found: Found
) -> list[Any]:
    """Take what position deletes there are into the new vectors, as a data file has at most one; returns what they replace."""
    numbers = {found.data[number].path: number for number in positions}
    touched = [path for path in numbers if path in known.of_data_file]
    if not (known.shared_position_files or touched):
        return []
    by_path = local(spark, {"path": (pa.string(), numbers.keys()), "f": (pa.int32(), numbers.values())})
    there = spark.sql(f"SELECT file_path, pos FROM {identifier(*name, 'position_deletes')} VERSION AS OF {snapshot_id}")
    old = there.join(by_path.hint("broadcast"), there.file_path == by_path.path).select("f", "pos")
    for number, before in by_file(words(old, sum(deleted.count for deleted in positions.values()))).items():
        positions[number] = positions[number].with_more(before)
    return [delete for path in touched for delete in known.of_data_file[path]]
