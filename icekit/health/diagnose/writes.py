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

# Choices: the files of one task in one commit, from which on more tasks would help; the commits of
# a stream, and the seconds that they take at least; the recent commits that write vectors again.
_FILES = 3
_COMMITS = 100
_STREAM_SECONDS = 300
_REWRITES = 5


def one_writing_task(context: Context) -> Finding | None:
    """Commits of several full files into one partition, which a single task wrote, one after the
    other.

    The first part of a Spark or Flink file's name is the task that wrote it. Small commits into
    several partitions need no more than one.
    """
    facts = context.facts
    writes = [
        write
        for write in facts.metrics_sample.writes
        if write.file_count >= _FILES and write.partition_count == 1
    ]
    full = context.min_file_size * 2 / 3
    single_task_writes = [
        w for w in writes if w.task_count == 1 and w.size_in_bytes >= w.file_count * full
    ]
    if len(single_task_writes) < 2 or 2 * len(single_task_writes) < len(writes):
        return None
    append = facts.distribution[0]
    remedy = (
        "Let the job that writes have more tasks (repartition its rows before the write), or "
        "write with write.distribution-mode=range and an order."
    )
    if append.mode == "hash":
        # All rows of a partition go to one task, unless adaptive execution splits it.
        remedy = (
            "Add a bucket of an evenly distributed column to the partition spec: as many tasks as "
            "buckets, and as many more partitions. Or write ordered by a column with "
            "write.distribution-mode=range: tasks get equal shares, but Spark samples the rows "
            "first. Or set the mode to none: no shuffle, and each task writes a file into each "
            "partition that it has rows of."
        )
    files = sum(write.file_count for write in single_task_writes)
    total = sum(write.size_in_bytes for write in single_task_writes)
    return context.finding(
        figure=f"{files / len(single_task_writes):,.1f} files each",
        evidence=f"{len(single_task_writes):,} of {count(len(writes), 'sampled write')} had one task for "
        f"{files / len(single_task_writes):,.1f} files of {size(total / files)} on average, with "
        f"write.distribution-mode={append.mode} ({append.origin})",
        threshold=f"half of the sampled writes of {_FILES} files or more into one partition, and "
        "two of them",
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

    seconds: float
    bytes_per_partition: float

    def interval_ms(self, size_in_bytes: int) -> float | None:
        """The time between commits at which a file per partition would have this size; None if it
        is more than a day, which nobody waits for.
        """
        interval = 1000 * self.seconds * size_in_bytes / max(self.bytes_per_partition, 1)
        return interval if interval <= _DAY_MS else None


def that_wrote_rows(commits: Iterable[Commit]) -> list[Commit]:
    """The commits that added data files, without rewrites (``replace``)."""
    return [c for c in commits if c.added_data_files and c.added_bytes and c.operation != "replace"]


def append_rhythm(appends: Sequence[Commit]) -> AppendRhythm | None:
    """The rhythm of commits, oldest first; None with fewer than two."""
    if len(appends) < 2:
        return None
    lasted = (appends[-1].committed_at_ms - appends[0].committed_at_ms) / 1000
    per_partition = statistics.median(
        _added(c) / max(1, c.changed_partitions or 1) for c in appends
    )
    return AppendRhythm(lasted / (len(appends) - 1), per_partition)


def frequent_commits(context: Context) -> Finding | None:
    """A stream that commits so often that no file gets near the target, with the interval at which
    files would.
    """
    facts = context.facts
    limits = context.thresholds
    appends = that_wrote_rows(facts.history.commits)[-_COMMITS:]
    rhythm = append_rhythm(appends) if len(appends) >= _COMMITS else None
    if rhythm is None:
        return None
    gap = rhythm.seconds
    lasted = rhythm.seconds * (len(appends) - 1)
    added = statistics.median(_added(c) / (c.added_data_files or 1) for c in appends)
    if gap >= limits.commit_seconds or lasted < _STREAM_SECONDS or added >= context.min_file_size:
        return None
    # A file per partition and commit would then have the size that a rewrite leaves alone.
    interval = rhythm.interval_ms(context.min_file_size)
    less = ""
    if interval is not None:
        less = (
            f". With one commit every {span(interval)}, a file per partition would have "
            f"{size(context.min_file_size)}"
        )
    return context.finding(
        figure=f"{span(gap * 1000)} apart",
        evidence=f"the last {len(appends):,} commits that wrote rows came {span(gap * 1000)} apart "
        f"with files of {size(added)} (median){less}",
        threshold=f"{_COMMITS} commits less than {span(limits.commit_seconds * 1000)} apart, over "
        f"{span(_STREAM_SECONDS * 1000)} or more",
        effect="Each commit adds small files, a manifest and a snapshot: compaction and expiry "
        "have to run as often as files pile up, and conflict with the writer more.",
        remedy="Commit less often (the trigger of a Spark stream, the checkpoint interval of "
        "Flink), as far as readers can wait, and compact what is written meanwhile.",
    )


def _added(commit: Commit) -> int:
    return commit.added_bytes or 0


def distribution_mode(context: Context) -> Finding | None:
    """Recent appends that wrote several small files into each partition they touched."""
    facts = context.facts
    limits = context.thresholds
    if facts.default_spec.is_unpartitioned or not limits.recent_commits:
        return None
    recent = [
        (c.added_data_files, c.changed_partitions, c.added_bytes)
        for c in facts.history.commits[-limits.recent_commits :]
        if c.operation == "append" and c.added_data_files and c.changed_partitions and c.added_bytes
    ]
    # One file per partition and one per target size are not a problem: the bytes alone explain
    # them.
    scattered = [
        (f, p, b)
        for f, p, b in recent
        if f > limits.files_per_partition_per_commit * (p + b / facts.target_bytes)
    ]
    if not scattered or len(scattered) * 2 < len(recent):
        return None
    per_partition = statistics.median(f / p for f, p, _ in scattered)
    mean_bytes = statistics.median(b / f for f, _, b in scattered)
    append = facts.distribution[0]
    remedy = (
        "Spark shuffles the rows, but into small tasks: check that adaptive execution is on and "
        "that no session or write option overrides the table's distribution."
    )
    if append.mode == "none":
        remedy = (
            "Let Spark group the rows by partition before it writes: one more shuffle, and about "
            "one file per partition and commit."
        )
    return context.finding(
        figure=f"{per_partition:,.1f} files per partition",
        evidence=f"{_of_last(len(scattered), len(recent))} appends wrote "
        f"{per_partition:,.1f} files per partition (median), {size(mean_bytes)} each, with "
        f"write.distribution-mode={append.mode} ({append.origin})",
        threshold=f"{limits.files_per_partition_per_commit:g} × one file per partition and one "
        "per target size written",
        effect="Every task writes its own file into every partition it has rows for: tasks × "
        "partitions files, however few the rows.",
        remedy=remedy,
        sql=(context.alter({"write.distribution-mode": "hash"}),) if append.mode == "none" else (),
    )


def _of_last(number: int, total: int) -> str:
    return f"each of the last {total:,}" if number == total else f"{number:,} of the last {total:,}"


def identifiers_not_unique(context: Context) -> Finding | None:
    """Commits with several records of one identifier, as retries and upserts that do not remove
    their own earlier rows leave them.

    Only what the bounds of sampled files prove; identifiers that are far apart can repeat without
    it. A table with position deletes or deletion vectors is not judged, because they may delete the
    repeated records.
    """
    facts = context.facts
    sample = context.facts.metrics_sample
    if not sample.repeated or any(
        facts.total(kind).file_count for kind in (Kind.POSITION_DELETES, Kind.DELETION_VECTORS)
    ):
        return None
    worst = max(sample.repeated, key=lambda each: each.record_count - each.most)
    names = ", ".join(identifier(*facts.by_name[name].names) for name in sample.identifiers)
    return context.finding(
        sample.identifiers,
        figure=f"{worst.record_count - worst.most:,} repeated",
        evidence=f"{count(len(sample.repeated), 'sampled commit')} added more records than "
        f"identifiers ({', '.join(sample.identifiers)}): snapshot {worst.snapshot_id} added "
        f"{count(worst.record_count, 'record')} with at most "
        f"{count(worst.most, 'different identifier')}, by the bounds of the columns",
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
            f"SELECT {names}, count(*) AS row_count FROM {context.table} GROUP BY "
            f"{names} HAVING count(*) > 1",
        ),
    )


def vectors_rewritten(context: Context) -> Finding | None:
    """Deletion vectors that nearly every commit of deletes writes again, because a data file has at
    most one.
    """
    facts = context.facts
    limits = context.thresholds
    changes = [
        c
        for c in facts.history.commits[-limits.recent_commits :]
        if c.added_delete_files and c.operation in {"delete", "overwrite"}
    ]
    # A commit that removes data files drops their vectors without writing them again.
    again = [
        c
        for c in changes
        if (c.removed_delete_files or 0) >= limits.vectors_rewritten * (c.added_delete_files or 0)
        and not c.removed_data_files
    ]
    if facts.format_version < 3 or len(again) < _REWRITES or 2 * len(again) < len(changes):
        return None
    written_count = sum(c.added_delete_files or 0 for c in again)
    replaced = sum(min(c.removed_delete_files or 0, c.added_delete_files or 0) for c in again)
    return context.finding(
        figure=f"{percent(replaced / written_count)} of {written_count:,}",
        evidence=f"{_of_last(len(again), len(changes))} commits with deletes wrote "
        f"deletion vectors mostly of data files that had one: {percent(replaced / written_count)} of "
        f"{count(written_count, 'vector')} replaced an earlier one",
        threshold=f"{percent(limits.vectors_rewritten)} of the vectors of a commit, in "
        f"{_REWRITES} commits and half of those with deletes",
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
    manager = context.facts.other_optimizer
    if manager is None:
        return None
    return context.finding(
        severity=Severity.INFO,
        figure=manager.name,
        evidence=manager.evidence,
        threshold="one property or location that only such a service has",
        source=f"the documentation of {manager.name}",
        effect="Two optimizers rewrite the same files: each makes the other's commits fail, and "
        "the service may undo what icekit does.",
        remedy=f"Let {manager.name} maintain the table, or turn its maintenance off for this "
        "table, before icekit changes anything.",
    )
