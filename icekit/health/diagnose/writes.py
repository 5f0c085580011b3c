"""Check how the table is written, as its history shows it: by how many tasks, into how many files,
how often, and what else manages it.
"""

import statistics
from collections.abc import Iterable, Sequence

from icekit.common import frozen
from icekit.common.sql import identifier
from icekit.common.units import count, percent, size, span
from icekit.health.diagnose.findings import CHOICE, Context, Finding, Severity
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.snapshots import Commit

# Choices: the fewest files of one task in one commit with which more tasks would help; the fewest
# commits of a stream, and the seconds that they take at least; the fewest recent commits that write
# vectors again.
_MIN_FILES = 3
_MIN_COMMITS = 100
_MIN_STREAM_SECONDS = 300
_MIN_REWRITING_COMMITS = 5


def one_writing_task(context: Context) -> Finding | None:
    """Commits of several full files into one partition, which a single task wrote, one after the
    other.

    The first part of a Spark or Flink file's name is the task that wrote it. Small commits into
    several partitions need no more than one.
    """
    facts = context.facts
    sampled_writes = [
        write
        for write in facts.metrics_sample.writes
        if write.file_count >= _MIN_FILES and write.partition_count == 1
    ]
    min_full_bytes = context.min_file_size * 2 / 3
    single_task_writes = [
        write
        for write in sampled_writes
        if write.task_count == 1 and write.size_in_bytes >= write.file_count * min_full_bytes
    ]
    if len(single_task_writes) < 2 or 2 * len(single_task_writes) < len(sampled_writes):
        return None
    append_distribution = facts.distribution[0]
    remedy = (
        "Let the job that writes have more tasks (repartition its rows before the write), or "
        "write with write.distribution-mode=range and an order."
    )
    if append_distribution.mode == "hash":
        # All rows of a partition go to one task, unless adaptive execution splits it.
        remedy = (
            "Add a bucket of an evenly distributed column to the partition spec: as many tasks as "
            "buckets, and as many more partitions. Or write ordered by a column with "
            "write.distribution-mode=range: tasks get equal shares, but Spark samples the rows "
            "first. Or set the mode to none: no shuffle, and each task writes a file into each "
            "partition that it has rows of."
        )
    file_count = sum(write.file_count for write in single_task_writes)
    total_written_bytes = sum(write.size_in_bytes for write in single_task_writes)
    return context.finding(
        figure=f"{file_count / len(single_task_writes):,.1f} files each",
        evidence=f"{len(single_task_writes):,} of {count(len(sampled_writes), 'sampled write')} "
        f"had one task for {file_count / len(single_task_writes):,.1f} files of "
        f"{size(total_written_bytes / file_count)} on average, with "
        f"write.distribution-mode={append_distribution.mode} ({append_distribution.origin})",
        threshold=f"half of the sampled writes of {_MIN_FILES} files or more into one partition, "
        "and two of them",
        source=f"{CHOICE}; the task is in the name of each file",
        effect="One task writes what many could write at once: the commit takes as many times "
        "longer.",
        remedy=remedy,
    )


_DAY_MS = 86_400_000


@frozen
class AppendRhythm:
    """How commits with new files follow each other: the mean seconds between them, and the median
    bytes that one adds to a partition.
    """

    interval_seconds: float
    median_partition_bytes: float

    def interval_ms_for_file_size(self, file_size: int) -> float | None:
        """The time between commits at which a file per partition would have this size; None if it
        is more than a day, which nobody waits for.
        """
        needed_interval_ms = (
            1000 * self.interval_seconds * file_size / max(self.median_partition_bytes, 1)
        )
        return needed_interval_ms if needed_interval_ms <= _DAY_MS else None


def row_writing_commits(commits: Iterable[Commit]) -> list[Commit]:
    """The commits that added data files, without rewrites (``replace``)."""
    return [c for c in commits if c.added_data_files and c.added_bytes and c.operation != "replace"]


def append_rhythm(appends: Sequence[Commit]) -> AppendRhythm | None:
    """The rhythm of commits, oldest first; None with fewer than two."""
    if len(appends) < 2:
        return None
    duration_seconds = (appends[-1].committed_at_ms - appends[0].committed_at_ms) / 1000
    median_partition_bytes = statistics.median(
        _added_bytes(c) / max(1, c.changed_partitions or 1) for c in appends
    )
    return AppendRhythm(duration_seconds / (len(appends) - 1), median_partition_bytes)


def frequent_commits(context: Context) -> Finding | None:
    """A stream that commits so often that no file gets near the target, with the interval at which
    files would.
    """
    facts = context.facts
    thresholds = context.thresholds
    appends = row_writing_commits(facts.history.commits)[-_MIN_COMMITS:]
    commit_rhythm = append_rhythm(appends) if len(appends) >= _MIN_COMMITS else None
    if commit_rhythm is None:
        return None
    interval_seconds = commit_rhythm.interval_seconds
    stream_seconds = commit_rhythm.interval_seconds * (len(appends) - 1)
    median_file_bytes = statistics.median(
        _added_bytes(c) / (c.added_data_files or 1) for c in appends
    )
    if (
        interval_seconds >= thresholds.commit_seconds
        or stream_seconds < _MIN_STREAM_SECONDS
        or median_file_bytes >= context.min_file_size
    ):
        return None
    # A file per partition and commit would then have the size that a rewrite leaves alone.
    needed_interval_ms = commit_rhythm.interval_ms_for_file_size(context.min_file_size)
    interval_text = ""
    if needed_interval_ms is not None:
        interval_text = (
            f". With one commit every {span(needed_interval_ms)}, a file per partition would have "
            f"{size(context.min_file_size)}"
        )
    return context.finding(
        figure=f"{span(interval_seconds * 1000)} apart",
        evidence=f"the last {len(appends):,} commits that wrote rows came "
        f"{span(interval_seconds * 1000)} apart with files of {size(median_file_bytes)} "
        f"(median){interval_text}",
        threshold=f"{_MIN_COMMITS} commits less than {span(thresholds.commit_seconds * 1000)} "
        f"apart, over {span(_MIN_STREAM_SECONDS * 1000)} or more",
        effect="Each commit adds small files, a manifest and a snapshot: compaction and expiry "
        "have to run as often as files pile up, and conflict with the writer more.",
        remedy="Commit less often (the trigger of a Spark stream, the checkpoint interval of "
        "Flink), as far as readers can wait, and compact what is written meanwhile.",
    )


def _added_bytes(commit: Commit) -> int:
    return commit.added_bytes or 0


def distribution_mode(context: Context) -> Finding | None:
    """Recent appends that wrote several small files into each partition they touched."""
    facts = context.facts
    thresholds = context.thresholds
    if facts.default_spec.is_unpartitioned or not thresholds.recent_commits:
        return None
    recent_appends = [
        (c.added_data_files, c.changed_partitions, c.added_bytes)
        for c in facts.history.commits[-thresholds.recent_commits :]
        if c.operation == "append" and c.added_data_files and c.changed_partitions and c.added_bytes
    ]
    # One file per partition and one per target size are not a problem: the bytes alone explain
    # them.
    scattered_appends = [
        (f, p, b)
        for f, p, b in recent_appends
        if f > thresholds.files_per_partition_per_commit * (p + b / facts.target_bytes)
    ]
    if not scattered_appends or len(scattered_appends) * 2 < len(recent_appends):
        return None
    files_per_partition = statistics.median(f / p for f, p, _ in scattered_appends)
    median_file_bytes = statistics.median(b / f for f, _, b in scattered_appends)
    append_distribution = facts.distribution[0]
    remedy = (
        "Spark shuffles the rows, but into small tasks: check that adaptive execution is on and "
        "that no session or write option overrides the table's distribution."
    )
    if append_distribution.mode == "none":
        remedy = (
            "Let Spark group the rows by partition before it writes: one more shuffle, and about "
            "one file per partition and commit."
        )
    return context.finding(
        figure=f"{files_per_partition:,.1f} files per partition",
        evidence=f"{_of_last_text(len(scattered_appends), len(recent_appends))} appends wrote "
        f"{files_per_partition:,.1f} files per partition (median), {size(median_file_bytes)} each, "
        f"with write.distribution-mode={append_distribution.mode} ({append_distribution.origin})",
        threshold=f"{thresholds.files_per_partition_per_commit:g} × one file per partition and one "
        "per target size written",
        effect="Every task writes its own file into every partition it has rows for: tasks × "
        "partitions files, however few the rows.",
        remedy=remedy,
        sql=(context.alter_statement({"write.distribution-mode": "hash"}),)
        if append_distribution.mode == "none"
        else (),
    )


def _of_last_text(part_count: int, total_count: int) -> str:
    return (
        f"each of the last {total_count:,}"
        if part_count == total_count
        else f"{part_count:,} of the last {total_count:,}"
    )


def identifiers_not_unique(context: Context) -> Finding | None:
    """Commits with several records of one identifier, as retries and upserts that do not remove
    their own earlier rows leave them.

    Only what the bounds of sampled files prove; identifiers that are far apart can repeat without
    it. A table with position deletes or deletion vectors is not judged, because they may delete the
    repeated records.
    """
    facts = context.facts
    metrics_sample = context.facts.metrics_sample
    if not metrics_sample.repeated or any(
        facts.total(kind).file_count for kind in (Kind.POSITION_DELETES, Kind.DELETION_VECTORS)
    ):
        return None
    worst_commit = max(
        metrics_sample.repeated,
        key=lambda repeated_commit: repeated_commit.record_count - repeated_commit.most,
    )
    columns_sql = ", ".join(
        identifier(*facts.by_name[column_name].names) for column_name in metrics_sample.identifiers
    )
    return context.finding(
        metrics_sample.identifiers,
        figure=f"{worst_commit.record_count - worst_commit.most:,} repeated",
        evidence=f"{count(len(metrics_sample.repeated), 'sampled commit')} added more records than "
        f"identifiers ({', '.join(metrics_sample.identifiers)}): snapshot "
        f"{worst_commit.snapshot_id} added {count(worst_commit.record_count, 'record')} with at "
        f"most {count(worst_commit.most, 'different identifier')}, by the bounds of the columns",
        threshold="one sampled commit with more records than identifiers",
        source="table spec, Identifier Field IDs: they identify a row, but nothing checks it; an "
        "equality delete applies only to earlier commits",
        effect="Upserts, MERGE and readers that expect one row for each identifier see several; "
        "the next upsert of such an identifier deletes all of them.",
        remedy="The query lists the identifiers that several rows have. Decide which row of each "
        "to keep, delete the others, and have the writer drop all but the last row of an "
        "identifier before it commits. If rows may share an identifier, remove it: ALTER TABLE … "
        "DROP IDENTIFIER FIELDS.",
        sql=(
            f"SELECT {columns_sql}, count(*) AS row_count FROM {context.table_sql} GROUP BY "
            f"{columns_sql} HAVING count(*) > 1",
        ),
    )


def vectors_rewritten(context: Context) -> Finding | None:
    """Deletion vectors that nearly every commit of deletes writes again, because a data file has at
    most one.
    """
    facts = context.facts
    thresholds = context.thresholds
    delete_commits = [
        c
        for c in facts.history.commits[-thresholds.recent_commits :]
        if c.added_delete_files and c.operation in {"delete", "overwrite"}
    ]
    # A commit that removes data files drops their vectors without writing them again.
    rewriting_commits = [
        c
        for c in delete_commits
        if (c.removed_delete_files or 0)
        >= thresholds.vectors_rewritten * (c.added_delete_files or 0)
        and not c.removed_data_files
    ]
    if (
        facts.format_version < 3
        or len(rewriting_commits) < _MIN_REWRITING_COMMITS
        or 2 * len(rewriting_commits) < len(delete_commits)
    ):
        return None
    written_vector_count = sum(c.added_delete_files or 0 for c in rewriting_commits)
    replaced_vector_count = sum(
        min(c.removed_delete_files or 0, c.added_delete_files or 0) for c in rewriting_commits
    )
    return context.finding(
        figure=f"{percent(replaced_vector_count / written_vector_count)} of "
        f"{written_vector_count:,}",
        evidence=f"{_of_last_text(len(rewriting_commits), len(delete_commits))} commits with "
        "deletes wrote deletion vectors mostly of data files that had one: "
        f"{percent(replaced_vector_count / written_vector_count)} of "
        f"{count(written_vector_count, 'vector')} replaced an earlier one",
        threshold=f"{percent(thresholds.vectors_rewritten)} of the vectors of a commit, in "
        f"{_MIN_REWRITING_COMMITS} commits and half of those with deletes",
        source=f"{CHOICE}; table spec, version 3: at most one deletion vector per data file",
        effect="Each of these commits reads the vector of every file that it touches and writes "
        "all of it again, with the positions that earlier commits deleted.",
        remedy="Delete in fewer, larger statements, or compact between them, which drops the "
        "vectors with their rows. If most files are hit by each commit, "
        f"{context.command('tune write-mode')} compares copy-on-write.",
    )


def managed_elsewhere(context: Context) -> Finding | None:
    """A service that compacts and expires the table by itself, by the properties and places that it
    leaves.
    """
    other_optimizer = context.facts.other_optimizer
    if other_optimizer is None:
        return None
    return context.finding(
        severity=Severity.INFO,
        figure=other_optimizer.name,
        evidence=other_optimizer.evidence,
        threshold="one property or location that only such a service has",
        source=f"the documentation of {other_optimizer.name}",
        effect="Two optimizers rewrite the same files: each makes the other's commits fail, and "
        "the service may undo what icekit does.",
        remedy=f"Let {other_optimizer.name} maintain the table, or turn its maintenance off for "
        "this table, before icekit changes anything.",
    )
