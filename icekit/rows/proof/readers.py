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
from icekit.rows.proof.fingerprint import Fingerprint, fingerprint_of, fingerprints_by_key, row_hash

if TYPE_CHECKING:
    from icekit.engine.lake import Lake


@dataclass(frozen=True)
class Reader:
    """A table with its metadata from when the proof began."""

    lake: Lake
    table: Identifier
    head: Head
    resolved_by_id: Mapping[int, ResolvedSnapshot] = field(default_factory=dict)
    #: The snapshots whose rows nobody can tell, with the reason.
    unreadable_reasons: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def specs(self) -> Mapping[int, PartitionSpec]:
        """The table's specs, by id."""
        return {spec.spec_id: spec for spec in specs(self.head.metadata)}

    @cached_property
    def snapshots(self) -> Mapping[int | None, Json]:
        """The table's snapshots, by id."""
        return snapshots_by_id(self.head.metadata)

    @property
    def sql_name(self) -> Identifier:
        """The table's name, with its catalog."""
        return self.lake.sql_name(self.table)


#: The share of the heap that the engine's own sets of deletes may take to be used for a
#: proof, and the most that a delete record takes there (a composite key of long strings).
HEAP_SHARE = 0.2
RECORD_HEAP_BYTES = 600


def most_delete_records(executor: Executor) -> int:
    """Deletes of a data file that Iceberg's own reader holds with ease, in each task."""
    return int(HEAP_SHARE * executor.heap_bytes / (RECORD_HEAP_BYTES * executor.cores))


def shown_counts(staging: Staging, scan_tasks: Any) -> tuple[int, int] | None:
    """The rows of some scan tasks that Iceberg's own reader gives to a query of all columns, and to
    one of none; None where it fails at their deletes.

    A reader that applies deletes rightly gives both the same.
    """
    try:
        with staging.staged_rows(scan_tasks) as rows:
            counted_rows = fingerprint_of(rows, row_hash(rows.schema)).row_count
            return counted_rows, rows.count()
    except Exception as error:
        if not is_engine_error(error):
            raise
        return None


def disagreement_text(file_count: int, rows_with_columns: int, rows_without: int) -> str:
    """What is said where the two answers of :func:`shown_counts` differ."""
    return (
        f"Of {count(file_count, 'data file')} under equality deletes, Iceberg's own reader gives "
        f"{count(rows_with_columns, 'row')} to a query of all columns, and {rows_without:,} to a "
        "query of none, so it cannot tell which rows are deleted. Nothing was committed. Run "
        "`icekit convert`, which finds the deleted rows by a join, and then compact."
    )


def read_by_iceberg(
    staging: Staging, scan_tasks: Any, hash_sql: str, *, asks_twice: bool
) -> Fingerprint:
    """The rows of some scan tasks, as Iceberg's own reader reads them; ``asks_twice`` raises
    :class:`ReadersDisagree` for a reader whose answer depends on the query, which proves nothing.
    """
    with staging.staged_rows(scan_tasks) as rows:
        if not asks_twice:
            return fingerprint_of(rows, hash_sql)
        full_hashes = rows.selectExpr("true AS k0", f"{hash_sql} AS h")
        bare_rows = rows.selectExpr("false AS k0", "0L AS h")
        prints_by_query = fingerprints_by_key(full_hashes.unionAll(bare_rows))
    full_print = prints_by_query.get((True,), Fingerprint())
    bare_count = prints_by_query.get((False,), Fingerprint()).row_count
    if full_print.row_count != bare_count:
        raise ReadersDisagree(
            disagreement_text(int(scan_tasks.size()), full_print.row_count, bare_count)
        )
    return full_print


@contextlib.contextmanager
def with_resolved_snapshots(reader: Reader, snapshot_ids: Sequence[int]) -> Iterator[Reader]:
    """The reader, with the snapshots before and after some commits to read without the engine's own
    sets of equality deletes: where they are large, or Iceberg's own reader misreads them.
    """
    lake = reader.lake
    snapshots = reader.snapshots
    version = iceberg_version(lake.spark, lake.name)
    most_deletes = most_delete_records(cluster_of(lake.spark).executor)
    commits = [snapshots[snapshot_id] for snapshot_id in snapshot_ids if snapshot_id in snapshots]
    parents = [snapshots.get(commit.get("parent-snapshot-id")) for commit in commits]
    side_ids = {
        int(snapshot["snapshot-id"])
        for snapshot in (*commits, *parents)
        if snapshot is not None and _may_have_equality_deletes(snapshot)
    }
    with contextlib.ExitStack() as stack:
        resolved_by_id: dict[int, ResolvedSnapshot] = {}
        unreadable_reasons: dict[int, str] = {}
        clone_refusal = ""
        for side_id in sorted(side_ids):
            try:
                delete_listing = _listing(reader, side_id)
            except Exception:
                # Iceberg's own reader may still read it; if not, its commit is not provable.
                continue
            misread_titles = misread_fields(
                reader.head.metadata,
                delete_listing.key_ids,
                reads_dropped_keys=reads_dropped_keys(version),
            )
            if not misread_titles and _most_applied_records(delete_listing.scopes) <= most_deletes:
                continue
            resolved_side = None
            unreadable_reason = clone_refusal or "icekit cannot resolve them either"
            try:
                if not clone_refusal:
                    resolved_side = stack.enter_context(
                        resolved_snapshot(lake, reader.table, side_id, delete_listing.key_ids)
                    )
            except CloneRefused as refused:
                unreadable_reason = clone_refusal = str(refused)
            except Exception as error:
                unreadable_reason = reason(error)
            if resolved_side is not None:
                resolved_by_id[side_id] = resolved_side
            elif misread_titles:
                unreadable_reasons[side_id] = (
                    f"snapshot {side_id} has equality deletes by "
                    f"{', '.join(misread_titles.values())}, which Iceberg's own reader misreads, "
                    f"and {unreadable_reason}"
                )
        yield replace(reader, resolved_by_id=resolved_by_id, unreadable_reasons=unreadable_reasons)


def _listing(reader: Reader, snapshot_id: int) -> DeleteListing:
    spark = reader.lake.spark
    return DeleteListing(
        spark, load_latest_table(spark, reader.sql_name), snapshot_id, reader.specs
    )


def _most_applied_records(scopes: Sequence[Scope]) -> int:
    """The most records of equality deletes that a reader of a data file may have to hold."""
    applied_scopes = [scope for scope in scopes if scope.data_files]
    global_records = sum(scope.delete_records for scope in applied_scopes if scope.is_global)
    return global_records + max(
        (scope.delete_records for scope in applied_scopes if not scope.is_global), default=0
    )


def _may_have_equality_deletes(snapshot: Json) -> bool:
    """Whether a snapshot may have equality deletes: a writer may not count them."""
    total_text = str(summary_of(snapshot).get("total-equality-deletes", ""))
    return not total_text.isdecimal() or int(total_text) > 0
