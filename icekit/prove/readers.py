"""Read a snapshot under equality deletes, without the heap that the engine's own reading needs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from icekit.common.errors import CloneRefused
from icekit.common.sql import Identifier
from icekit.deletes.listing import DeleteListing, Scope
from icekit.deletes.resolved import Stripped, stripped
from icekit.engine.bridge import load_now
from icekit.engine.cluster import Executor, cluster_of
from icekit.health.definition import PartitionSpec
from icekit.health.head import Head
from icekit.health.metadata import Json, snapshots_by_id, specs, summary_of

if TYPE_CHECKING:
    from icekit.engine.lake import Lake


@dataclass(frozen=True)
class Reader:
    """A table with its metadata from when the proof began."""

    lake: Lake
    table: Identifier
    head: Head
    read: Mapping[int, Stripped] = field(default_factory=dict)

    @cached_property
    def specs(self) -> Mapping[int, PartitionSpec]:
        """The table's specs, by id."""
        return {spec.spec_id: spec for spec in specs(self.head.metadata)}

    @cached_property
    def snapshots(self) -> Mapping[int | None, Json]:
        """The table's snapshots, by id."""
        return snapshots_by_id(self.head.metadata)

    @property
    def name(self) -> Identifier:
        """The table's name, with its catalog."""
        return self.lake.sql_name(self.table)


#: The share of the heap that the engine's own sets of deletes may take to be used for a
#: proof, and the most that a delete record takes there (a composite key of long strings).
HEAP_SHARE, RECORD_HEAP_BYTES = 0.2, 600


def most_records(executor: Executor) -> int:
    """Deletes of a data file that Iceberg's own reader holds with ease, in each task."""
    return int(HEAP_SHARE * executor.heap_bytes / (RECORD_HEAP_BYTES * executor.cores))


@contextlib.contextmanager
def resolving(reader: Reader, snapshot_ids: Sequence[int]) -> Iterator[Reader]:
    """The reader, with the snapshots before and after some commits to read without the engine's own
    sets of equality deletes.
    """
    lake, snapshots = reader.lake, reader.snapshots
    most = most_records(cluster_of(lake.spark).executor)
    commits = [snapshots[each] for each in snapshot_ids if each in snapshots]
    parents = [snapshots.get(commit.get("parent-snapshot-id")) for commit in commits]
    sides = {
        int(side["snapshot-id"])
        for side in (*commits, *parents)
        if side is not None and _may_have_more(side, most)
    }
    with contextlib.ExitStack() as stack:
        read: dict[int, Stripped] = {}
        for side in sorted(sides):
            try:
                if _most_applied(_scopes(reader, side)) <= most:
                    continue
                stripped_table = stack.enter_context(stripped(lake, reader.table, side))
            except CloneRefused:
                break
            except Exception:
                # Iceberg's own reader may still read it; if not, its commit is not provable.
                continue
            if stripped_table is not None:
                read[side] = stripped_table
        yield replace(reader, read=read)


def _scopes(reader: Reader, snapshot_id: int) -> Sequence[Scope]:
    spark = reader.lake.spark
    return DeleteListing(spark, load_now(spark, reader.name), snapshot_id, reader.specs).scopes


def _most_applied(found: Sequence[Scope]) -> int:
    """The most records of equality deletes that a reader of a data file may have to hold."""
    applied = [scope for scope in found if scope.data_files]
    everywhere = sum(scope.delete_records for scope in applied if scope.is_global)
    return everywhere + max(
        (scope.delete_records for scope in applied if not scope.is_global), default=0
    )


def _may_have_more(snapshot: Json, records: int) -> bool:
    """Whether a snapshot may have more equality deletes than so many records: a writer may not
    count them.
    """
    total = str(summary_of(snapshot).get("total-equality-deletes", ""))
    return not total.isdecimal() or int(total) > records
