"""Prove from the commits of a run that no row changed: by what was checked before them, or by
comparing rows.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from icekit.engine.bridge import iceberg_version
from icekit.engine.cluster import caches_deletes
from icekit.engine.compat import where_then
from icekit.engine.errors import explain
from icekit.errors import MetadataUnreadable, ParameterError, ReadersDisagree
from icekit.facts import metadata
from icekit.facts.definition import PartitionField, PartitionSpec
from icekit.facts.files import Partition, Scalar
from icekit.facts.lineage import lineage, snapshots_by_id
from icekit.facts.metadata import Json
from icekit.facts.metadata_file import load_metadata
from icekit.facts.values import partition_path
from icekit.facts.where import transformed, where
from icekit.prove.changes import Changes, changes
from icekit.prove.checked import CHECKED_POSITIONS_TAG, CHECKED_TAG, CheckedPositions, CheckedRows
from icekit.prove.fingerprint import LINEAGE, Fingerprint, fingerprint, shared
from icekit.prove.proof import CHECKED, SCANNED, CommitProof, Mismatch, Proof, verdict
from icekit.prove.readers import Reader, existing_sides, may_have_more, resolving
from icekit.resolve.applies import disagreement
from icekit.resolve.dangling import removed
from icekit.sql import Identifier, call, display_name, identifier
from icekit.units import count

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from icekit.catalog import Lake


#: A commit that changed more partitions is compared over the complete table: Spark would take
# longer to plan a : longer predicate than to read the rows.
MAX_PARTITIONS = 1000
_AT_ONCE = 4
_CACHE = (
    "The executor cache of delete files is on in this session, and with it Spark can ignore "
    "equality deletes (apache/iceberg issue 15039). Prove again in a session with "
    "spark.sql.iceberg.executor-cache.enabled=false."
)


def prove_commits(
    lake: Lake,
    table: Identifier,
    snapshot_ids: Sequence[int],
    *,
    sample: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    resolve: bool | None = None,
) -> Proof:
    """Compare the rows before and after each commit, deletes applied; ``table`` is without its
    catalog.

    Each commit is compared with its own parent, so other commits in between do not
    matter. Rows are compared in the partitions where the commit added or removed a data or
    delete file, of any spec; in the complete table if those are more than
    :data:`MAX_PARTITIONS`, cannot be selected by a predicate, or do not account for all its files.
    ``sample`` compares this many of each commit's partitions, chosen by ``seed``. ``progress`` is
    called with (commits compared, of how many).

    A snapshot whose equality deletes easily fit the heap is read with Iceberg's own sets of
    deletes: the strongest evidence. If they do not, or if ``resolve`` says so, it is read from a
    clone without them, and rows whose key has a younger delete are dropped by a plain anti-join of
    the table's own rows; this shares only the list of files and the reading of delete files with a
    conversion. Where no clone can be made (it needs the right to create a table), it is read in the
    first way.

    A commit is not provable if it, its parent or their files are gone; that is
    never reported as fine. Raises the errors of :mod:`icekit.errors`.
    """
    if sample is not None and sample < 1:
        raise ParameterError(
            f"A sample of {sample} partitions proves nothing. Give 1 or more, or None for all."
        )
    started = time.monotonic()
    meta = load_metadata(lake.tables.source(table))
    specs = {spec.spec_id: spec for spec in metadata.specs(meta)}
    reader = Reader(lake, table, meta, specs, snapshots_by_id(meta), {})
    proofs: list[CommitProof] = []
    try:
        # The session may cache an older version of the table without these snapshots.
        lake.spark.sql(f"REFRESH TABLE {identifier(*reader.name)}")
    except Exception as error:
        raise explain(error, reader.name) from error
    # Most of a small commit's proof is planning in the driver, so several run at once.
    with resolving(reader, snapshot_ids, resolve) as reader, ThreadPoolExecutor(_AT_ONCE) as pool:
        for proof in pool.map(lambda i: _prove(reader, i, sample, seed), snapshot_ids):
            proofs.append(proof)
            if progress is not None:
                progress(len(proofs), len(snapshot_ids))
    return Proof(
        table=display_name(table),
        commits=tuple(proofs),
        ok=verdict(proofs),
        mode="sampled" if any(p.is_partial for p in proofs) else "full",
        seconds=time.monotonic() - started,
        rows_read=sum((p.rows_before or 0) + (p.rows_after or 0) for p in proofs),
        caution=_caution(lake, reader, snapshot_ids),
    )


@dataclass(frozen=True)
class _Side:
    """A snapshot to read: its columns, the rows to compare and the keys to group by, in its own
    names.
    """

    snapshot_id: int
    schema: StructType
    where: str | None
    by: tuple[str, ...]

    def read(
        self, reader: Reader, *, grouped: bool, lineage: bool
    ) -> Mapping[tuple[Scalar, ...], Fingerprint]:
        by = self.by if grouped else ()
        return fingerprint(
            reader.lake.spark,
            reader.name,
            snapshot_id=self.snapshot_id,
            where=self.where,
            by=by,
            schema=self.schema,
            stripped=reader.read.get(self.snapshot_id),
            lineage=lineage,
        )


def _prove(reader: Reader, snapshot_id: int, sample: int | None, seed: int) -> CommitProof:
    commit = reader.snapshots.get(snapshot_id)
    if commit is None:
        return CommitProof(
            snapshot_id,
            None,
            provable=False,
            reason="the commit has expired, or never belonged to this table",
        )
    parent_id = commit.get("parent-snapshot-id")
    if parent_id is None:
        return CommitProof(
            snapshot_id, None, provable=False, reason="it has no parent to compare with"
        )
    parent = reader.snapshots.get(parent_id)
    if parent is None:
        return CommitProof(
            snapshot_id, parent_id, provable=False, reason=f"its parent {parent_id} has expired"
        )
    try:
        with disagreement():
            return _compare(reader, parent, commit, sample, seed)
    except ReadersDisagree as error:
        return CommitProof(snapshot_id, parent_id, provable=False, reason=str(error))
    except Exception as error:
        explained = explain(error, reader.name)
        if isinstance(explained, MetadataUnreadable):
            return CommitProof(snapshot_id, parent_id, provable=False, reason=str(explained))
        raise explained from error


def _chosen(
    changed: tuple[Partition, ...], sample: int | None, seed: int, snapshot_id: int
) -> tuple[Partition, ...]:
    """The partitions to compare: different for each commit and seed, the same when repeated."""
    if sample is None or sample >= len(changed):
        return changed
    chance = random.Random(f"{seed} {snapshot_id}")
    return tuple(changed[i] for i in sorted(chance.sample(range(len(changed)), sample)))


def _compare(
    reader: Reader, parent: Json, commit: Json, sample: int | None, seed: int
) -> CommitProof:
    parent_id, snapshot_id = parent["snapshot-id"], commit["snapshot-id"]
    changed = changes(reader.lake.spark, reader.name, parent_id, snapshot_id, reader.specs)
    chosen = _chosen(changed.partitions, sample, seed, snapshot_id)
    schemas = [
        metadata.schema_of(reader.meta, snapshot.get("schema-id")) for snapshot in (parent, commit)
    ]
    before_columns, after_columns, left_out = shared(*schemas)
    predicates, reason = _predicates(reader, changed, chosen, schemas)
    fields, keys = _keys(reader, schemas)
    sides = [
        _Side(side["snapshot-id"], columns, _where(reader, side, predicate), by)
        for side, columns, predicate, by in zip(
            (parent, commit), (before_columns, after_columns), predicates, keys, strict=True
        )
    ]
    lineage = _has_lineage(parent, commit, schemas)
    before, after = _read(reader, sides, grouped=not reason, lineage=lineage)
    if not reason and _may_disagree(reader, chosen):
        rows = tuple(sum(side.values(), Fingerprint()).row_count for side in (before, after))
        if before != after or not changed.holds(rows, metadata.columns(reader.meta, schemas[1])):
            reason = "rows may be in other partitions than their values say"
            sides = [replace(side, where=None) for side in sides]
            before, after = _read(reader, sides, grouped=False, lineage=lineage)
    mismatches: list[Mismatch] = []
    if before != after:
        before, after, mismatches = _differences(reader, sides, fields)
    later = _later_commits(reader, snapshot_id)
    rollback = call(
        reader.lake.name,
        "rollback_to_snapshot",
        table=display_name(reader.table),
        snapshot_id=parent_id,
    )
    return CommitProof(
        snapshot_id,
        parent_id,
        provable=True,
        reason=reason,
        partitions_compared=len(changed.partitions) if reason else len(chosen),
        partitions_changed=len(changed.partitions),
        whole_table=bool(reason),
        before=sum(before.values(), Fingerprint()),
        after=sum(after.values(), Fingerprint()),
        mismatches=tuple(sorted(mismatches, key=lambda mismatch: mismatch.partition)),
        columns_left_out=left_out,
        rollback_sql=rollback if mismatches and later is not None else None,
        later_commits=later or 0,
    )


_Prints = Mapping[tuple[Scalar, ...], Fingerprint]


def _differences(
    reader: Reader, sides: Sequence[_Side], fields: Sequence[PartitionField]
) -> tuple[_Prints, _Prints, list[Mismatch]]:
    """Both sides by partition, and those that differ: in their rows, or only in row lineage.

    A complete table may have more partitions than the driver should hold; they are read only if the
    table differs.
    """
    before, after = _read(reader, sides, grouped=True, lineage=False)
    of_lineage = before == after
    if of_lineage:
        before, after = _read(reader, sides, grouped=True, lineage=True)
    spec = PartitionSpec(-1, tuple(fields))
    pairs = {
        key: (before.get(key, Fingerprint()), after.get(key, Fingerprint()))
        for key in {*before, *after}
    }
    mismatches = [
        Mismatch(partition_path(spec, key) or "whole table", *pair, of_lineage)
        for key, pair in pairs.items()
        if pair[0] != pair[1]
    ]
    return before, after, mismatches


def _read(
    reader: Reader, sides: Sequence[_Side], *, grouped: bool, lineage: bool
) -> Sequence[_Prints]:
    """Read the parent and the commit, at the same time."""
    with ThreadPoolExecutor(len(sides)) as pool:
        return list(
            pool.map(lambda side: side.read(reader, grouped=grouped, lineage=lineage), sides)
        )


def _has_lineage(parent: Json, commit: Json, schemas: Sequence[Json]) -> bool:
    """Whether every row of both sides has an id: an upgraded table gets row ids with its next
    commit.
    """
    named = {field["name"].lower() for schema in schemas for field in schema["fields"]}
    return all(
        snapshot.get("first-row-id") is not None for snapshot in (parent, commit)
    ) and named.isdisjoint(LINEAGE)


def _may_disagree(reader: Reader, partitions: Sequence[Partition]) -> bool:
    """Whether a file may hold rows with other values than its partition's: an identity value is
    read from the partition itself.
    """
    return any(
        field.transform not in {"identity", "void"}
        for partition in partitions
        for field in reader.specs[partition.spec_id].fields
    )


def _predicates(
    reader: Reader, found: Changes, chosen: Sequence[Partition], schemas: Sequence[Json]
) -> tuple[Sequence[str | None], str]:
    """The rows to compare at the parent and at the commit; and, if all rows are compared, why."""
    if not found.is_complete:
        return (None, None), "its files are not those of its parent plus its own changes"
    if len(chosen) > MAX_PARTITIONS:
        return (None, None), f"it changed more than {MAX_PARTITIONS:,} partitions"
    catalog = reader.lake.name
    predicates = [
        where(catalog, reader.specs, metadata.columns(reader.meta, schema), chosen, of_rows=True)
        for schema in schemas
    ]
    if None not in predicates:
        return predicates, ""
    unpartitioned = any(reader.specs[partition.spec_id].is_unpartitioned for partition in chosen)
    return (
        (None, None),
        "it changed unpartitioned files"
        if unpartitioned
        else "no predicate selects the partitions it changed",
    )


def _where(reader: Reader, snapshot: Json, predicate: str | None) -> str | None:
    """A predicate in a snapshot's own names, as this Iceberg can read it."""
    if predicate is None or snapshot.get("schema-id") == reader.meta.get("current-schema-id"):
        return predicate
    return where_then(predicate, iceberg_version(reader.lake.spark, reader.lake.name))


def _keys(
    reader: Reader, schemas: Sequence[Json]
) -> tuple[list[PartitionField], list[tuple[str, ...]]]:
    """The fields of the current spec that rows of both sides can be grouped by, and the SQL for
    each side.
    """
    default = reader.specs.get(reader.meta.get("default-spec-id", 0), PartitionSpec(0, ()))
    columns = [metadata.columns(reader.meta, schema) for schema in schemas]
    fields: list[PartitionField] = []
    keys: tuple[list[str], list[str]] = ([], [])
    for field in default.fields:
        before, after = (transformed(reader.lake.name, field, each) for each in columns)
        if before is not None and after is not None:
            fields.append(field)
            keys[0].append(before)
            keys[1].append(after)
    return fields, [tuple(keys[0]), tuple(keys[1])]


def _later_commits(reader: Reader, snapshot_id: int) -> int | None:
    """How many commits of the current lineage come after one; None if it is not in the lineage."""
    ancestors = lineage(
        reader.snapshots, reader.snapshots.get(reader.meta.get("current-snapshot-id"))
    )
    return next(
        (
            count
            for count, snapshot in enumerate(ancestors)
            if snapshot["snapshot-id"] == snapshot_id
        ),
        None,
    )


def _caution(lake: Lake, reader: Reader, snapshot_ids: Sequence[int]) -> str | None:
    conf = lake.session_conf()
    if conf is None or not caches_deletes(conf):
        return None
    # What a join applies is not in the cache.
    sides = [
        side
        for side in existing_sides(reader, snapshot_ids)
        if side["snapshot-id"] not in reader.read
    ]
    return _CACHE if any(may_have_more(side, 0) for side in sides) else None


def prove_rewrites(
    lake: Lake,
    table: Identifier,
    snapshot_ids: Sequence[int],
    known: Mapping[int, Json] | None = None,
) -> Proof:
    """The proof of commits of rewrites and conversions: those checked before they were made say
    what was checked, and the rest are compared in full.

    A commit that only dropped delete files is proved by the scan of the snapshot before it, which
    gives none of them to a data file. ``known`` are commits as the table had them, for those that
    have expired since.
    """
    started = time.monotonic()
    snapshots = snapshots_by_id(load_metadata(lake.tables.source(table)))
    name = lake.sql_name(table)
    quick: dict[int, CommitProof] = {}
    read = 0
    scanned: set[int] = set()
    for snapshot_id in snapshot_ids:
        commit = snapshots.get(snapshot_id) or (known or {}).get(snapshot_id) or {}
        summary, parent_id = commit.get("summary") or {}, commit.get("parent-snapshot-id")
        if checked := _checked_before(snapshot_id, parent_id, summary):
            quick[snapshot_id], rows_read = checked
            read += rows_read
        elif (
            snapshot_id in snapshots
            and "removed-delete-files" in summary
            and not _CHANGES.intersection(summary)
        ):
            gone, needed = _removed(lake, name, parent_id, snapshot_id)
            if gone and not needed:
                statement = (
                    f"dropped {count(gone, 'delete file')}; a scan of the table before it gives "
                    "none of them to a data file"
                )
                quick[snapshot_id] = CommitProof(
                    snapshot_id, parent_id, provable=True, statement=statement
                )
                scanned.add(snapshot_id)
    rest = [i for i in snapshot_ids if i not in quick]
    compared = prove_commits(lake, table, rest) if rest else None
    by_id = {
        **quick,
        **{proof.snapshot_id: proof for proof in (compared.commits if compared else ())},
    }
    commits = tuple(by_id[i] for i in snapshot_ids)
    modes = [CHECKED] if len(quick) > len(scanned) or not commits else []
    modes += [SCANNED] if scanned else []
    return Proof(
        table=display_name(table),
        commits=commits,
        ok=verdict(commits),
        mode=", ".join([*modes, *([compared.mode] if compared else [])]),
        seconds=time.monotonic() - started,
        rows_read=read + (compared.rows_read if compared else 0),
        caution=compared.caution if compared else None,
    )


def _checked_before(
    snapshot_id: int, parent_id: int | None, summary: Mapping[str, str]
) -> tuple[CommitProof, int] | None:
    """The proof of a commit that was checked before it was made, by its own summary, and the rows
    that were read for it; None without such a check, or if the commit is not what was checked.
    """
    proof = CommitProof(snapshot_id, parent_id, provable=True)
    if CHECKED_TAG in summary:
        checked = CheckedRows.of(summary[CHECKED_TAG])
        rows = checked.rows
        if int(summary.get("added-records") or 0) != rows.row_count:
            return None
        proof = replace(proof, before=rows, after=rows)
        return (
            replace(proof, statement=str(checked), is_sampled=checked.is_sampled),
            checked.read,
        )
    if CHECKED_POSITIONS_TAG not in summary or _DATA_CHANGES.intersection(summary):
        return None
    positions = CheckedPositions.of(summary[CHECKED_POSITIONS_TAG])
    if int(summary.get("added-position-deletes") or 0) != positions.positions:
        return None
    return (
        replace(proof, statement=str(positions), is_sampled=positions.is_sampled),
        positions.sampled + 2 * positions.of_files,
    )


def _removed(
    lake: Lake, name: Identifier, parent_id: int | None, snapshot_id: int
) -> tuple[int, int]:
    """The delete files that a commit removed, and those of them that applied before it; no files
    where that cannot be asked.
    """
    if parent_id is None:
        return 0, 0
    try:
        return removed(lake.spark, name, parent_id, snapshot_id)
    except Exception:
        # An expired parent, or a file that is gone: the full comparison says so.
        return 0, 0


# Keys of a summary that a commit without them did not do.
_DATA_CHANGES = {"added-data-files", "deleted-data-files"}
_CHANGES = _DATA_CHANGES | {"added-delete-files", CHECKED_TAG, CHECKED_POSITIONS_TAG}
