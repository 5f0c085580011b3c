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
    start_time = time.monotonic()
    table_snapshots = snapshots_by_id(head(lake, table).metadata)
    checks = []
    for snapshot_id in snapshot_ids:
        parent_id = (table_snapshots.get(snapshot_id) or {}).get("parent-snapshot-id")
        if parent_id is None or parent_id not in table_snapshots:
            checks.append(Check(None, f"commit {snapshot_id} or its parent has expired"))
            continue
        # The first commit after an upgrade to format version 3 gives all rows their ids.
        has_row_ids = table_snapshots[parent_id].get("first-row-id") is not None
        entries_before = _entries(lake, table, parent_id, has_row_ids=has_row_ids)
        entries_after = _entries(lake, table, snapshot_id, has_row_ids=has_row_ids)
        entries_sentence = (
            f"the same {count(entries_after.row_count, 'live entry', 'live entries')} as before, "
            "with their statistics"
        )
        if entries_before != entries_after:
            entries_sentence = (
                f"{entries_before.row_count:,} live entries before, {entries_after.row_count:,} "
                "after, NOT THE SAME"
            )
        checks.append(
            Check(entries_before == entries_after, f"commit {snapshot_id}: {entries_sentence}")
        )
    return _proof(table, "rewrite_manifests", checks, start_time)


def _proof(
    table: Identifier,
    procedure: str,
    checks: Sequence[Check],
    start_time: float,
    removed_texts: Sequence[str] = (),
) -> Proof:
    """The proof of a procedure by what it had to keep; ``removed_texts`` say what it removed for
    good.
    """
    prefixed_checks = tuple(Check(check.ok, f"{procedure}: {check.statement}") for check in checks)
    seconds = time.monotonic() - start_time
    return Proof(
        display_name(table),
        (),
        seconds,
        maintenance_checks=prefixed_checks,
        removals=tuple(removed_texts),
    )


def _entries(lake: Lake, table: Identifier, snapshot_id: int, *, has_row_ids: bool) -> Fingerprint:
    from pyspark.sql import functions as F

    entries = metadata_table(lake.spark, lake.sql_name(table), "entries", snapshot_id).where(
        "status < 2"
    )
    if not has_row_ids:
        entries = entries.withColumn("data_file", F.col("data_file").dropFields("first_row_id"))
    # The readable metrics are derived from the statistics.
    compared_entries = entries.select(
        "snapshot_id", "sequence_number", "file_sequence_number", "data_file"
    )
    return fingerprint_of(compared_entries, row_hash(compared_entries.schema))


def prove_history(
    lake: Lake,
    table: Identifier,
    remaining_ids: Sequence[int],
    ref_names: Sequence[str],
    summary: ExpirySummary,
    writer_keys: tuple[str, ...] = (),
    *,
    has_removed_more: bool,
) -> Proof:
    """Check what an expiry had to keep: refs, snapshots, their manifests, a sample of their files,
    the states of writers and staged writes.

    ``remaining_ids`` are the snapshots and ``ref_names`` the refs that had to stay; ``summary`` has
    the states and staged writes. Another job may remove them at any time, which is no loss.
    ``has_removed_more`` says that the engine counted more snapshots than the expiry named, or that
    its count is not known.
    """
    start_time = time.monotonic()
    metadata = head(lake, table).metadata
    existing_snapshots = snapshots_by_id(metadata)
    missing_count = sum(snapshot_id not in existing_snapshots for snapshot_id in remaining_ids)
    snapshots_check = Check(True, f"all {len(remaining_ids):,} snapshots that should stay exist")
    if missing_count:
        why = (
            "it is not known whether this expiry or another removed them"
            if has_removed_more
            else "this expiry did not name them"
        )
        missing_sentence = (
            f"{missing_count:,} of {count(len(remaining_ids), 'snapshot')} that should stay are no "
            f"longer in the table; {why}"
        )
        snapshots_check = Check(None if has_removed_more else True, missing_sentence)
    current_refs = metadata.get("refs") or {}
    broken_refs = [
        name for name, ref in current_refs.items() if ref["snapshot-id"] not in existing_snapshots
    ]
    present_text = ", ".join(name for name in ref_names if name in current_refs) or "no ref"
    dropped_refs = [name for name in ref_names if name not in current_refs and name != "main"]
    dropped_text = f"; no longer in the table: {', '.join(dropped_refs)}" if dropped_refs else ""
    refs_sentence = (
        f"the snapshots of {', '.join(broken_refs)} are GONE"
        if broken_refs
        else f"{present_text} protected and present{dropped_text}"
    )
    checks = [
        snapshots_check,
        Check(not broken_refs, refs_sentence),
        *_writer_state_checks(
            metadata, summary, stated_keys(writer_keys), has_removed_more=has_removed_more
        ),
        *_readable_checks(lake, table),
    ]
    return _proof(table, "expire_snapshots", checks, start_time, summary.removal_sentences)


def _writer_state_checks(
    metadata: Json,
    summary: ExpirySummary,
    other_keys: Sequence[WriterKeys],
    *,
    has_removed_more: bool,
) -> Sequence[Check]:
    """Whether each writer still finds its state, or a newer one, as it looks for it, and whether
    the staged writes that stay can be published.
    """
    newest_ms_by_state = {
        (branch, state.writer, state.ids): state.committed_ms
        for state in WriterLog(metadata, other_keys).states()
        for branch in state.branches
    }
    lost_states = [
        state.text
        for state in (each.state for each in summary.states_kept)
        if any(
            newest_ms_by_state.get((branch, state.writer, state.ids), -1) < state.committed_ms
            for branch in state.branches
            if branch not in summary.refs_removed
        )
    ]
    ok = None if has_removed_more else True
    checks = []
    if lost_states:
        why = f"no longer found, which this expiry did not name: {'; '.join(lost_states)}"
        checks.append(
            Check(ok, f"{count(len(lost_states), 'state of a writer', 'states of writers')} {why}")
        )
    elif summary.states_kept:
        writers_text = count(len(summary.states_kept), "writer")
        checks.append(Check(True, f"{writers_text} found their state again, as they look for it"))
    snapshots = snapshots_by_id(metadata)
    missing_writes = [
        staged_write.text
        for staged_write in summary.staged_kept
        if staged_write.snapshot_id not in snapshots
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
            if not (lost_states or missing_writes)
        ),
    ]


def prove_live(
    lake: Lake,
    table: Identifier,
    removal_checks: Sequence[Check] = (),
    removed_texts: Sequence[str] = (),
) -> Proof:
    """Check, after a removal of orphan files, that every manifest of the table can be read and that
    a sample of the files they name is in storage; ``removal_checks`` are those of the removal
    itself.
    """
    start_time = time.monotonic()
    all_checks = [*removal_checks, *_readable_checks(lake, table)]
    return _proof(table, "remove_orphan_files", all_checks, start_time, removed_texts)


def _readable_checks(lake: Lake, table: Identifier) -> Sequence[Check]:
    """Every kept snapshot's manifest list and manifests, and some of the files that they name.

    What another job has removed from the table meanwhile is not missed: after a failure, the
    metadata is read again.
    """
    table_name = lake.sql_name(table)
    problem_text = ""
    for _ in range(_LOOKS):
        location_before = lake.tables.source(table).metadata_location
        try:
            return _manifest_checks(lake, table)
        except Exception as error:
            explained_error = explain(error, table_name)
            if not isinstance(explained_error, IcekitError):
                raise explained_error from error
            problem_text = str(explained_error)
        if lake.tables.source(table).metadata_location == location_before:
            return [Check(False, f"a manifest of a kept snapshot cannot be read: {problem_text}")]
    return [
        Check(
            None,
            f"other commits came during each of {_LOOKS} looks at the manifests ({problem_text})",
        )
    ]


def _manifest_checks(lake: Lake, table: Identifier) -> Sequence[Check]:
    spark = lake.spark
    table_name = lake.sql_name(table)
    live_paths = live_files(lake, table).distinct()
    sampled_paths = sample_paths(live_paths, SAMPLE)
    file_count = live_paths.count()
    manifests_check = Check(
        True, f"all manifests of all snapshots are readable; they name {count(file_count, 'file')}"
    )
    io = load_table(spark, table_name).io()
    missing_paths = [path for path in sampled_paths if not io.newInputFile(path).exists()]
    if not missing_paths:
        return [
            manifests_check,
            Check(True, f"{len(sampled_paths):,} of them were checked in storage and exist"),
        ]
    # Named in metadata that is read after the look: another job's expiry stops naming a file before
    # it removes it.
    paths_still_named = referenced_paths(
        lake, table, lookup_files(spark, frame_of_paths(spark, missing_paths)), len(missing_paths)
    )
    existing_count = len(sampled_paths) - len(missing_paths)
    files_sentence = (
        f"{existing_count:,} of them were checked in storage and exist; another job removed "
        f"{len(missing_paths):,} from the table meanwhile"
    )
    if paths_still_named:
        files_sentence = (
            f"{count(len(paths_still_named), 'file')} of {len(sampled_paths):,} checked in storage "
            f"are GONE, for example {paths_still_named[0]}"
        )
    return [manifests_check, Check(not paths_still_named, files_sentence)]
