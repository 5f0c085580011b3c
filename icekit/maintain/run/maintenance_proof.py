"""Check what maintenance had to keep: manifest entries, refs and snapshots, the states of writers,
live files; reads no rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from icekit.common.errors import IcekitError
from icekit.common.sql import Identifier, display_name
from icekit.common.units import count
from icekit.engine.bridge import load_table
from icekit.engine.errors import explain
from icekit.engine.metadata_tables import frame_of_paths, metadata_table, sample_paths
from icekit.health.facts.head import head
from icekit.health.facts.retention import ExpirySummary
from icekit.health.facts.writer_states import WriterKeys, WriterLog, stated_keys
from icekit.health.storage.file_references import live_files, lookup_files, referenced_paths
from icekit.iceberg.metadata import Json, snapshots_by_id
from icekit.rows.proof.fingerprint import Fingerprint, fingerprint_of, row_hash
from icekit.rows.proof.proof import Check, Proof

if TYPE_CHECKING:
    from icekit.engine.lake import Lake

#: Number of live files to look up in storage: enough to notice that a share of them is gone.
SAMPLE = 200
#: A choice: how often the table is looked at again because other commits came in between.
_LOOKS = 5


def prove_entries(lake: Lake, table: Identifier, snapshot_ids: Sequence[int]) -> Proof:
    """Compare the live manifest entries of each commit with its parent's, in any order.

    ``rewrite_manifests`` must keep these unchanged: each file with its partition, sequence numbers,
    sizes and statistics. Reads every manifest of both sides, and no data file. A commit is not
    provable if it or its parent has expired. ``table`` is without its catalog.
    """
    started = time.monotonic()
    snapshots = snapshots_by_id(head(lake, table).metadata)
    checks = []
    for snapshot_id in snapshot_ids:
        parent_id = (snapshots.get(snapshot_id) or {}).get("parent-snapshot-id")
        if parent_id is None or parent_id not in snapshots:
            checks.append(Check(None, f"commit {snapshot_id} or its parent has expired"))
            continue
        # The first commit after an upgrade to format version 3 gives all rows their ids.
        has_ids = snapshots[parent_id].get("first-row-id") is not None
        before = _entries(lake, table, parent_id, has_ids=has_ids)
        after = _entries(lake, table, snapshot_id, has_ids=has_ids)
        statement = (
            f"the same {count(after.row_count, 'live entry', 'live entries')} as before, with "
            "their statistics"
        )
        if before != after:
            statement = (
                f"{before.row_count:,} live entries before, {after.row_count:,} after, NOT THE SAME"
            )
        checks.append(Check(before == after, f"commit {snapshot_id}: {statement}"))
    return _proof(table, "rewrite_manifests", checks, started)


def _proof(
    table: Identifier,
    procedure: str,
    checks: Sequence[Check],
    started: float,
    removed: Sequence[str] = (),
) -> Proof:
    """The proof of a procedure by what it had to keep; ``removed`` is what it removed for good."""
    prefixed_checks = tuple(Check(check.ok, f"{procedure}: {check.statement}") for check in checks)
    seconds = time.monotonic() - started
    return Proof(
        display_name(table),
        (),
        seconds,
        maintenance_checks=prefixed_checks,
        removals=tuple(removed),
    )


def _entries(lake: Lake, table: Identifier, snapshot_id: int, *, has_ids: bool) -> Fingerprint:
    from pyspark.sql import functions as F

    entries = metadata_table(lake.spark, lake.sql_name(table), "entries", snapshot_id).where(
        "status < 2"
    )
    if not has_ids:
        entries = entries.withColumn("data_file", F.col("data_file").dropFields("first_row_id"))
    # The readable metrics are derived from the statistics.
    frame = entries.select("snapshot_id", "sequence_number", "file_sequence_number", "data_file")
    return fingerprint_of(frame, row_hash(frame.schema))


def prove_history(
    lake: Lake,
    table: Identifier,
    kept: Sequence[int],
    refs: Sequence[str],
    summary: ExpirySummary,
    writer_keys: tuple[str, ...] = (),
    *,
    removed_more: bool,
) -> Proof:
    """Check what an expiry had to keep: refs, snapshots, their manifests, a sample of their files,
    the states of writers and staged writes.

    ``kept`` are the snapshots and ``refs`` the branches and tags that had to stay; ``summary`` has
    the states and staged writes. Another job may remove them at any time, which is no loss.
    ``removed_more`` says that the engine counted more snapshots than the expiry named, or that its
    count is not known.
    """
    started = time.monotonic()
    metadata = head(lake, table).metadata
    existing = snapshots_by_id(metadata)
    missing_count = sum(snapshot_id not in existing for snapshot_id in kept)
    snapshots = Check(True, f"all {len(kept):,} snapshots that should stay exist")
    if missing_count:
        why = (
            "it is not known whether this expiry or another removed them"
            if removed_more
            else "this expiry did not name them"
        )
        missing = (
            f"{missing_count:,} of {count(len(kept), 'snapshot')} that should stay are no longer in the "
            f"table; {why}"
        )
        snapshots = Check(None if removed_more else True, missing)
    now_refs = metadata.get("refs") or {}
    broken = [name for name, ref in now_refs.items() if ref["snapshot-id"] not in existing]
    present = ", ".join(name for name in refs if name in now_refs) or "no ref"
    dropped = [name for name in refs if name not in now_refs and name != "main"]
    also = f"; no longer in the table: {', '.join(dropped)}" if dropped else ""
    statement = (
        f"the snapshots of {', '.join(broken)} are GONE"
        if broken
        else f"{present} protected and present{also}"
    )
    checks = [
        snapshots,
        Check(not broken, statement),
        *_states_found(metadata, summary, stated_keys(writer_keys), removed_more=removed_more),
        *_readable(lake, table),
    ]
    return _proof(table, "expire_snapshots", checks, started, summary.removal_sentences)


def _states_found(
    metadata: Json,
    summary: ExpirySummary,
    other_keys: Sequence[WriterKeys],
    *,
    removed_more: bool,
) -> Sequence[Check]:
    """Whether each writer still finds its state, or a newer one, as it looks for it, and whether
    the staged writes that stay can be published.
    """
    newest_times = {
        (branch, state.writer, state.ids): state.committed_ms
        for state in WriterLog(metadata, other_keys).states()
        for branch in state.branches
    }
    lost = [
        state.text
        for state in (each.state for each in summary.states_kept)
        if any(
            newest_times.get((branch, state.writer, state.ids), -1) < state.committed_ms
            for branch in state.branches
            if branch not in summary.refs_removed
        )
    ]
    ok = None if removed_more else True
    checks = []
    if lost:
        why = f"no longer found, which this expiry did not name: {'; '.join(lost)}"
        checks.append(
            Check(ok, f"{count(len(lost), 'state of a writer', 'states of writers')} {why}")
        )
    elif summary.states_kept:
        states = count(len(summary.states_kept), "writer")
        checks.append(Check(True, f"{states} found their state again, as they look for it"))
    snapshots = snapshots_by_id(metadata)
    missing_writes = [
        write.text for write in summary.staged_kept if write.snapshot_id not in snapshots
    ]
    if missing_writes:
        checks.append(
            Check(
                ok, f"no longer there, which this expiry did not name: {'; '.join(missing_writes)}"
            )
        )
    return [
        *checks,
        *(
            Check(True, sentence)
            for sentence in summary.staying_sentences
            if not (lost or missing_writes)
        ),
    ]


def prove_live(
    lake: Lake, table: Identifier, checks: Sequence[Check] = (), removed: Sequence[str] = ()
) -> Proof:
    """Check, after a removal of orphan files, that every manifest of the table can be read and that
    a sample of the files they name is in storage; ``checks`` are those of the removal itself.
    """
    started = time.monotonic()
    all_checks = [*checks, *_readable(lake, table)]
    return _proof(table, "remove_orphan_files", all_checks, started, removed)


def _readable(lake: Lake, table: Identifier) -> Sequence[Check]:
    """Every kept snapshot's manifest list and manifests, and some of the files that they name.

    What another job has removed from the table meanwhile is not missed: after a failure, the
    metadata is read again.
    """
    name = lake.sql_name(table)
    problem = ""
    for _ in range(_LOOKS):
        location_before = lake.tables.source(table).metadata_location
        try:
            return _look(lake, table)
        except Exception as error:
            explained = explain(error, name)
            if not isinstance(explained, IcekitError):
                raise explained from error
            problem = str(explained)
        if lake.tables.source(table).metadata_location == location_before:
            return [Check(False, f"a manifest of a kept snapshot cannot be read: {problem}")]
    return [
        Check(
            None, f"other commits came during each of {_LOOKS} looks at the manifests ({problem})"
        )
    ]


def _look(lake: Lake, table: Identifier) -> Sequence[Check]:
    spark = lake.spark
    name = lake.sql_name(table)
    files = live_files(lake, table).distinct()
    sampled_paths = sample_paths(files, SAMPLE)
    total = files.count()
    readable = Check(
        True, f"all manifests of all snapshots are readable; they name {count(total, 'file')}"
    )
    io = load_table(spark, name).io()
    missing_paths = [path for path in sampled_paths if not io.newInputFile(path).exists()]
    if not missing_paths:
        return [
            readable,
            Check(True, f"{len(sampled_paths):,} of them were checked in storage and exist"),
        ]
    # Named in metadata that is read after the look: another job's expiry stops naming a file before
    # it removes it.
    missed = referenced_paths(
        lake, table, lookup_files(spark, frame_of_paths(spark, missing_paths)), len(missing_paths)
    )
    left = len(sampled_paths) - len(missing_paths)
    statement = (
        f"{left:,} of them were checked in storage and exist; another job removed {len(missing_paths):,} "
        "from the table meanwhile"
    )
    if missed:
        statement = (
            f"{count(len(missed), 'file')} of {len(sampled_paths):,} checked in storage are GONE, for "
            f"example {missed[0]}"
        )
    return [readable, Check(not missed, statement)]
