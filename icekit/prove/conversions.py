"""Prove that a conversion of equality deletes changed no row, without the heap that the engine's own reading takes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from icekit.engine.cluster import cluster_of
from icekit.facts.collect import load_metadata
from icekit.facts.metadata import specs
from icekit.facts.snapshots import snapshots_by_id
from icekit.prove.commits import prove_commits
from icekit.prove.proof import Proof
from icekit.resolve.listing import scopes
from icekit.resolve.reading import Stripped, stripped
from icekit.sql import Identifier

if TYPE_CHECKING:
    from icekit.catalog import Lake

#: Of the heap, what the engine's own sets of deletes may take before they are not used for a
#: proof, and what a delete record takes there at most (a composite key of long strings).
HEAP_SHARE, RECORD_HEAP_BYTES = 0.2, 600


def prove_conversion(
    lake: Lake, table: Identifier, snapshot_ids: Sequence[int], *, sample: int | None = None, resolve: bool | None = None
) -> Proof:
    """Compare the rows before and after each commit of a conversion; see :func:`~icekit.prove.commits.prove_commits`.

    Where a snapshot's equality deletes fit the heap well, Spark reads it with Iceberg's own
    sets of deletes: the strongest witness. Where they do not, or ``resolve`` says so, it is read on
    a clone without them, and loses the rows whose key has a younger delete by a plain anti-join
    of the table's own rows; only the list of files and the reading of delete files are the
    conversion's.
    """
    meta = load_metadata(lake.tables.source(table))
    by_id = snapshots_by_id(meta)
    known = {spec.spec_id: spec for spec in specs(meta)}
    sides: set[int] = set()
    for snapshot_id in snapshot_ids:
        commit = by_id.get(snapshot_id)
        parent = by_id.get(commit.get("parent-snapshot-id")) if commit else None
        sides |= {int(s["snapshot-id"]) for s in (commit, parent) if s is not None}
    cluster = cluster_of(lake.spark)
    with contextlib.ExitStack() as stack:
        read: dict[int, Stripped] = {}
        for side in sorted(sides):
            found = scopes(lake.spark, lake.sql_name(table), side, known)
            everywhere = sum(s.delete_records for s in found if s.is_global)
            worst = max((s.delete_records for s in found if not s.is_global), default=0) + everywhere
            large = worst * RECORD_HEAP_BYTES * cluster.cores_per_executor > HEAP_SHARE * cluster.heap_bytes
            if (large if resolve is None else resolve) and found:
                made = stack.enter_context(stripped(lake, table, side))
                if made is not None:
                    read[side] = made
        return prove_commits(lake, table, snapshot_ids, sample=sample, read=read)
