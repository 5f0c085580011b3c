"""Read a snapshot under equality deletes, without the heap that the engine's own reading needs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from icekit.common.errors import CloneRefused, ReadersDisagree
from icekit.common.sql import Identifier
from icekit.common.units import count
from icekit.engine.bridge import iceberg_version, load_latest_table
from icekit.engine.causes import is_engine_error
from icekit.engine.cluster import Executor, cluster_of
from icekit.engine.compat import reads_dropped_keys
from icekit.engine.errors import reason
from icekit.engine.staging import Staging
from icekit.health.facts.head import Head
from icekit.iceberg.definition import PartitionSpec
from icekit.iceberg.key_fields import misread_fields
from icekit.iceberg.metadata import Json, snapshots_by_id, specs, summary_of
from icekit.rows.deletes.listing import DeleteListing, Scope
from icekit.rows.deletes.resolved import ResolvedSnapshot, resolved_snapshot
from icekit.rows.proof.fingerprint import Fingerprint, prints, row_hash, summed_up

if TYPE_CHECKING:
    from icekit.engine.lake import Lake


@dataclass(frozen=True)
class Reader:
    """A table with its metadata from when the proof began."""

    lake: Lake
    table: Identifier
    head: Head
    read: Mapping[int, ResolvedSnapshot] = field(default_factory=dict)
    #: The snapshots whose rows nobody can tell, with the reason.
    unreadable: Mapping[int, str] = field(default_factory=dict)

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
HEAP_SHARE = 0.2
RECORD_HEAP_BYTES = 600


def most_records(executor: Executor) -> int:
    """Deletes of a data file that Iceberg's own reader holds with ease, in each task."""
    return int(HEAP_SHARE * executor.heap_bytes / (RECORD_HEAP_BYTES * executor.cores))


def shown(staging: Staging, tasks: Any) -> tuple[int, int] | None:
    """The rows of some scan tasks that Iceberg's own reader gives to a query of all columns, and to
    one of none; None where it fails at their deletes.

    A reader that applies deletes rightly gives both the same.
    """
    try:
        with staging.staged_rows(tasks) as rows:
            whole_rows = summed_up(rows, row_hash(rows.schema)).row_count
            return whole_rows, rows.count()
    except Exception as error:
        if not is_engine_error(error):
            raise
        return None


def disagreement_of(files: int, with_columns: int, without: int) -> str:
    """What is said where the two answers of :func:`shown` differ."""
    return (
        f"Of {count(files, 'data file')} under equality deletes, Iceberg's own reader gives "
        f"{count(with_columns, 'row')} to a query of all columns, and {without:,} to a query of "
        "none, so it cannot tell which rows are deleted. Nothing was committed. Run `icekit "
        "convert`, which finds the deleted rows by a join, and then compact."
    )


def read_by_iceberg(
    staging: Staging, tasks: Any, hash_sql: str, *, asks_twice: bool
) -> Fingerprint:
    """The rows of some scan tasks, as Iceberg's own reader reads them; ``asks_twice`` raises
    :class:`ReadersDisagree` for a reader whose answer depends on the query, which proves nothing.
    """
    with staging.staged_rows(tasks) as rows:
        if not asks_twice:
            return summed_up(rows, hash_sql)
        whole_rows = rows.selectExpr("true AS k0", f"{hash_sql} AS h")
        no_column = rows.selectExpr("false AS k0", "0L AS h")
        by_query = prints(whole_rows.unionAll(no_column))
    read = by_query.get((True,), Fingerprint())
    row_count = by_query.get((False,), Fingerprint()).row_count
    if read.row_count != row_count:
        raise ReadersDisagree(disagreement_of(int(tasks.size()), read.row_count, row_count))
    return read


@contextlib.contextmanager
def resolving(reader: Reader, snapshot_ids: Sequence[int]) -> Iterator[Reader]:
    """The reader, with the snapshots before and after some commits to read without the engine's own
    sets of equality deletes: where they are large, or Iceberg's own reader misreads them.
    """
    lake = reader.lake
    snapshots = reader.snapshots
    version = iceberg_version(lake.spark, lake.name)
    most_deletes = most_records(cluster_of(lake.spark).executor)
    commits = [snapshots[each] for each in snapshot_ids if each in snapshots]
    parents = [snapshots.get(commit.get("parent-snapshot-id")) for commit in commits]
    sides = {
        int(side["snapshot-id"])
        for side in (*commits, *parents)
        if side is not None and _may_have_equality_deletes(side)
    }
    with contextlib.ExitStack() as stack:
        read: dict[int, ResolvedSnapshot] = {}
        unreadable: dict[int, str] = {}
        refusal = ""
        for side in sorted(sides):
            try:
                listing = _listing(reader, side)
            except Exception:
                # Iceberg's own reader may still read it; if not, its commit is not provable.
                continue
            misread = misread_fields(
                reader.head.metadata,
                listing.key_ids,
                reads_dropped_keys=reads_dropped_keys(version),
            )
            if not misread and _most_applied(listing.scopes) <= most_deletes:
                continue
            stripped_table = None
            why = refusal or "icekit cannot resolve them either"
            try:
                if not refusal:
                    stripped_table = stack.enter_context(
                        resolved_snapshot(lake, reader.table, side, listing.key_ids)
                    )
            except CloneRefused as refused:
                why = refusal = str(refused)
            except Exception as error:
                why = reason(error)
            if stripped_table is not None:
                read[side] = stripped_table
            elif misread:
                unreadable[side] = (
                    f"snapshot {side} has equality deletes by {', '.join(misread.values())}, which "
                    f"Iceberg's own reader misreads, and {why}"
                )
        yield replace(reader, read=read, unreadable=unreadable)


def _listing(reader: Reader, snapshot_id: int) -> DeleteListing:
    spark = reader.lake.spark
    return DeleteListing(spark, load_latest_table(spark, reader.name), snapshot_id, reader.specs)


def _most_applied(scopes: Sequence[Scope]) -> int:
    """The most records of equality deletes that a reader of a data file may have to hold."""
    applied = [scope for scope in scopes if scope.data_files]
    everywhere = sum(scope.delete_records for scope in applied if scope.is_global)
    return everywhere + max(
        (scope.delete_records for scope in applied if not scope.is_global), default=0
    )


def _may_have_equality_deletes(snapshot: Json) -> bool:
    """Whether a snapshot may have equality deletes: a writer may not count them."""
    total = str(summary_of(snapshot).get("total-equality-deletes", ""))
    return not total.isdecimal() or int(total) > 0
