"""Hold the snapshots of a table: its newest commits, branches and tags, and how far their
statistics are behind.
"""

from dataclasses import field
from typing import Literal

from icekit.common import frozen
from icekit.common.units import count, shorten, time_text

#: Characters of a name or a state in a sentence.
_SHOWN = 60


@frozen
class Commit:
    """One snapshot of the lineage, from its summary; None for a value that the writer left out."""

    snapshot_id: int
    committed_at_ms: int
    operation: str | None
    writer: str | None
    added_data_files: int | None
    added_delete_files: int | None
    added_bytes: int | None
    added_records: int | None
    removed_data_files: int | None
    changed_partitions: int | None
    removed_delete_files: int | None = None


@frozen
class Ref:
    """A branch or tag."""

    name: str
    type: str
    snapshot_id: int


@frozen
class WriterState:
    """How far a writer has committed, in the summary of its newest snapshot on some branches: after
    a restart, the writer reads it there.

    ``job`` tells one job of a writer from another; ``ids`` are all values that do. ``silent_ms`` is
    the time from that snapshot to the newest commit of a branch that is no maintenance.
    ``read_to_id`` is the snapshot up to which the writer has read a branch, if its state says so.
    """

    writer: str
    job: str
    ids: tuple[str, ...]
    state: str
    branches: tuple[str, ...]
    snapshot_id: int
    committed_ms: int
    silent_ms: int
    read_to_id: int | None = None

    @property
    def text(self) -> str:
        """``Flink job 7f1c, checkpoint 41``; on another branch than main also its name."""
        job_name = " ".join(filter(None, (self.writer, shorten(self.job, _SHOWN))))
        branch_text = "" if "main" in self.branches else f" on branch {self.branches[0]}"
        return f"{job_name}{branch_text}, {shorten(self.state, _SHOWN)}"


@frozen
class StagedWrite:
    """A write that was staged for an audit (``spark.wap.id``) and that nobody has published: no
    branch or tag leads to it.
    """

    wap_id: str
    snapshot_id: int
    committed_ms: int
    row_count: int | None

    @property
    def text(self) -> str:
        """``wap.id audit-1, 50 rows, staged 2026-01-02 03:04 UTC``."""
        rows_text = "" if self.row_count is None else f"{count(self.row_count, 'row')}, "
        return (
            f"wap.id {shorten(self.wap_id, _SHOWN)}, {rows_text}staged "
            f"{time_text(self.committed_ms)}"
        )


@frozen
class History:
    """Snapshots of the table, and the newest commits of the lineage, oldest first.

    ``commits`` holds at most :data:`icekit.iceberg.metadata.MAX_COMMITS`. ``expirable_count`` are
    the snapshots that ``icekit maintain`` would expire now without a stated retention; None if that
    is not known. ``past_limits`` are the snapshots that every expiry removes, whatever it names,
    and ``refs_past_limits`` the branches and tags. ``schema_count`` is the number of schemas that
    the metadata keeps. ``writers`` are the states of writers on all branches, ``staged`` the staged
    writes.
    """

    snapshot_count: int = 0
    oldest_snapshot_ms: int | None = None
    newest_snapshot_ms: int | None = None
    median_seconds_between_commits: float | None = None
    commits: tuple[Commit, ...] = ()
    refs: tuple[Ref, ...] = ()
    metadata_log_count: int = 0
    expirable_count: int | None = field(default=None, compare=False)
    past_limits: int = field(default=0, compare=False)
    refs_past_limits: tuple[str, ...] = field(default=(), compare=False)
    schema_count: int = 1
    writers: tuple[WriterState, ...] = field(default=(), compare=False)
    staged: tuple[StagedWrite, ...] = ()


@frozen
class SnapshotStatistics:
    """Statistics that a snapshot has in a file of their own: of the table (Puffin) or of its
    partitions.

    ``columns`` are those with table statistics; empty for all top-level columns of a primitive
    type.
    """

    kind: Literal["table", "partition"]
    columns: tuple[str, ...] = ()


@frozen
class StatisticsAge:
    """How far statistics are behind the observed snapshot: in commits, and in records that these
    added and deleted (compactions do not count).

    ``record_count`` are the table's records, before deletes, at the snapshot of the statistics;
    None if its writer did not count them.
    """

    statistics: SnapshotStatistics
    snapshot_id: int
    commit_count: int
    changed_count: int
    record_count: int | None
