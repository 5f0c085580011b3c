"""Prove rewrites and conversions by what was checked before their commits; the rest are compared in full."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from icekit.facts.lineage import snapshots_by_id
from icekit.facts.metadata import Json
from icekit.facts.metadata_file import load_metadata
from icekit.prove.checked import CHECKED_POSITIONS_TAG, CHECKED_TAG, CheckedPositions, CheckedRows
from icekit.prove.commits import prove_commits
from icekit.prove.proof import CHECKED, SCANNED, CommitProof, Proof, verdict
from icekit.resolve.dangling import removed
from icekit.sql import Identifier, display_name
from icekit.units import count

if TYPE_CHECKING:
    from icekit.catalog import Lake


def prove_rewrites(lake: Lake, table: Identifier, snapshot_ids: Sequence[int], known: Mapping[int, Json] | None = None) -> Proof:
    """The proof of commits of rewrites and conversions: those checked before they were made say what was checked, and the rest are compared in full.

    A commit that only dropped delete files is proved by the scan of the snapshot before it, which gives none of them to a data file.
    ``known`` are commits as the table had them, for those that have expired since.
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
        if CHECKED_TAG in summary:
            checked = CheckedRows.of(summary[CHECKED_TAG])
            if int(summary.get("added-records") or 0) == checked.rows.row_count:
                rows, read = checked.rows, read + checked.read
                quick[snapshot_id] = CommitProof(
                    snapshot_id, parent_id, provable=True, before=rows, after=rows, said=str(checked), is_sampled=checked.is_sampled
                )
        elif CHECKED_POSITIONS_TAG in summary:
            positions = CheckedPositions.of(summary[CHECKED_POSITIONS_TAG])
            if int(summary.get("added-position-deletes") or 0) == positions.positions and not _DATA_CHANGES.intersection(summary):
                read += positions.sampled + 2 * positions.of_files
                quick[snapshot_id] = CommitProof(
                    snapshot_id, parent_id, provable=True, said=str(positions), is_sampled=positions.is_sampled
                )
        elif snapshot_id in snapshots and "removed-delete-files" in summary and not _CHANGES.intersection(summary):
            gone, needed = _removed(lake, name, parent_id, snapshot_id)
            if gone and not needed:
                said = f"dropped {count(gone, 'delete file')}; a scan of the table before it gives none of them to a data file"
                quick[snapshot_id] = CommitProof(snapshot_id, parent_id, provable=True, said=said)
                scanned.add(snapshot_id)
    rest = [i for i in snapshot_ids if i not in quick]
    compared = prove_commits(lake, table, rest) if rest else None
    by_id = {**quick, **{proof.snapshot_id: proof for proof in (compared.commits if compared else ())}}
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


def _removed(lake: Lake, name: Identifier, parent_id: int | None, snapshot_id: int) -> tuple[int, int]:
    """The delete files that a commit removed, and those of them that applied before it; no files where that cannot be asked."""
    if parent_id is None:
        return 0, 0
    try:
        return removed(lake.spark, name, parent_id, snapshot_id)
    except Exception:
        # An expired parent, or a file that is gone: the full comparison says so.
        return 0, 0


# Keys of a summary that a commit without them did not do.
_DATA_CHANGES = {"added-data-files", "deleted-data-files"}
_CHANGES = _DATA_CHANGES | {"added-delete-files"}
