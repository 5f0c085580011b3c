"""Find the distribution mode of each operation, the files it makes, and the commits that made the small files. Pure.

Source: ``SparkWriteConf`` of Iceberg 1.12. An option or a session's ``spark.sql.iceberg.distribution-mode``
overrides the properties of every operation; ``hash`` without a partitioning and ``range`` without a
partitioning or an order become ``none`` for appends and copy-on-write merges.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from icekit.diagnose.findings import Thresholds
from icekit.engine.metadata_tables import CONTENT, metadata_table
from icekit.facts.files import Kind
from icekit.facts.model import TableFacts
from icekit.facts.rollup import min_file_size
from icekit.facts.where import transformed
from icekit.resolve.listing import partition_text
from icekit.sandbox.trial import Sandbox, Trial
from icekit.sql import identifier
from icekit.tune import ddl
from icekit.tune.card import OPTION, SESSION, Advice, InForce, in_force, overriding, to_set
from icekit.tune.file_sizes.advisory_size import DISTRIBUTION_SESSION, Chain, said
from icekit.tune.file_sizes.written import RECENT, SCATTERED, TrialRows, Written, measured, view_of, write
from icekit.tune.write_mode.history import MERGE_ON_READ, Workload
from icekit.units import count, percent, raised, size

if TYPE_CHECKING:
    from icekit.catalog import Lake

NONE, HASH, RANGE = "none", "hash", "range"
MODES = (NONE, HASH, RANGE)
OPERATIONS = ("append", "delete", "update", "merge")


@dataclass(frozen=True, slots=True)
class Mode:
    """The mode of an operation: ``value`` is the mode that the engine uses, ``why`` one clause.

    ``brings_together`` says how rows are grouped. ``fanout`` tells whether a task keeps a
    file open for each partition, so that its rows need no sorting.
    """

    operation: str
    value: str
    in_force: InForce
    why: str
    brings_together: str
    fanout: bool


def modes(facts: TableFacts, session: Mapping[str, str | None] | None = None, options: Mapping[str, str] | None = None) -> tuple[Mode, ...]:
    """The modes of all operations, appends first; ``session`` are its settings, ``options`` those of the write."""
    return tuple(_mode(facts, operation, session or {}, options or {}) for operation in OPERATIONS)


def _mode(facts: TableFacts, operation: str, session: Mapping[str, str | None], options: Mapping[str, str]) -> Mode:
    told = next(d for d in facts.distribution if d.operation == operation)
    name = "write.distribution-mode" if operation == "append" else f"write.{operation}.distribution-mode"
    found = in_force(
        "distribution mode",
        option=("distribution-mode", options),
        session=[(DISTRIBUTION_SESSION, session.get(DISTRIBUTION_SESSION))],
        properties=[(name, facts.properties.get(name))],
        default=(told.origin if name not in facts.properties else "default", told.mode if name not in facts.properties else None),
    )
    partitioned, ordered = not facts.default_spec.is_unpartitioned, bool(facts.sort_order)
    stated = (found.value or told.mode).lower()
    adjusts = operation == "append" or (operation == "merge" and _write_mode(facts, operation) == "copy-on-write")
    void = adjusts and ((stated == HASH and not partitioned) or (stated == RANGE and not partitioned and not ordered))
    value = NONE if void else stated
    why = f"{found.origin} is {stated}, which needs a partitioning{' or an order' if stated == RANGE else ''}" if void else found.origin
    fanout = (facts.setting("write.spark.fanout.enabled") or "false").lower() == "true"
    return Mode(operation, value, found, why, _by(facts, operation, value, partitioned), fanout)


def _by(facts: TableFacts, operation: str, mode: str, partitioned: bool) -> str:
    """How rows are grouped (SparkWriteUtil)."""
    if mode == NONE:
        return "nothing: each task writes its own rows"
    if mode == RANGE:
        fields = [f.source for f in facts.sort_order]
        return (
            "ranges of " + ", ".join([*(["the partition"] if partitioned else []), *fields])
            if fields or partitioned
            else "ranges of the data file"
        )
    if operation in {"delete", "update"} and _write_mode(facts, operation) == "copy-on-write":
        return "the partition" if partitioned else "the data file that rows come from"
    if operation != "append" and _write_mode(facts, operation) == "merge-on-read" and not partitioned:
        return "the data file that rows come from"
    return "the partition"


def _write_mode(facts: TableFacts, operation: str) -> str:
    return (facts.setting(f"write.{operation}.mode") or "copy-on-write").lower()


# --- When the table has enough small files again for a rewrite, at the current rate of commits. Pure
#
# A partition needs a rewrite when a default rewrite would take it: ``min-input-files`` files under 0.75 of the target in it
# (as in icekit's finding ``small_files``). Each visit of a commit adds some.


_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Cadence:
    """The rate of appends: commits and small files per day, and the bytes that a commit adds to a partition.

    ``visits`` is how many of these commits write to a partition, on average. None if the
    snapshots do not say.
    """

    commits_per_day: float | None
    partitions_per_commit: float
    bytes_per_visit: float
    visits: float
    days: float | None


@dataclass(frozen=True, slots=True)
class Until:
    """When a partition has enough small files: after this many visits, and days; None if never."""

    small_files_per_visit: float
    visits: int | None
    days: float | None


def cadence(facts: TableFacts) -> Cadence | None:
    """The rate of recent appends; None without any."""
    found = [c for c in facts.history.commits if c.operation == "append" and c.added_data_files][-RECENT:]
    if not found:
        return None
    days = (found[-1].committed_at_ms - found[0].committed_at_ms) / _DAY_MS
    per_day = (len(found) - 1) / days if days > 0 else None
    touched = sum(c.changed_partitions or 1 for c in found)
    live = max(1, sum(1 for g in facts.groups if g.kind.value == "data" and g.partition.spec_id == facts.default_spec_id))
    # At most as many partitions as there are share these visits.
    distinct = min(live, touched)
    return Cadence(per_day, touched / len(found), sum(c.added_bytes or 0 for c in found) / touched, touched / distinct, days or None)


def until_sick(rhythm: Cadence, small_files_per_visit: float, thresholds: Thresholds | None = None) -> Until:
    """When a partition at this rate of commits has enough small files for a rewrite."""
    wanted = (thresholds or Thresholds()).min_input_files
    if small_files_per_visit <= 0:
        return Until(small_files_per_visit, None, None)
    visits = math.ceil(wanted / small_files_per_visit)
    if rhythm.commits_per_day is None or rhythm.days is None:
        return Until(small_files_per_visit, visits, None)
    per_day = rhythm.visits / rhythm.days
    return Until(small_files_per_visit, visits, visits / per_day if per_day else None)


def commits_for(target_bytes: int, bytes_per_visit: float) -> int | None:
    """How many such commits combined give a partition a file of the target size; None if a visit adds nothing."""
    return math.ceil(target_bytes / bytes_per_visit) if bytes_per_visit > 0 else None


# --- Trace small files to the commits that made them: which writer, which operation, and what it looks like
#
# Spark groups the live files by the snapshot that added them; the driver gets the worst few commits.


#: Commits that are listed.
WORST = 10


@dataclass(frozen=True, slots=True)
class Cohort:
    """The live data files that one commit added; ``small_files`` are below the limit of a default rewrite.

    ``operation`` and ``writer`` are None if the snapshot has expired or does not say.
    """

    snapshot_id: int
    files: int
    small_files: int
    size_in_bytes: int
    partitions: int
    operation: str | None
    writer: str | None
    committed_at_ms: int | None
    target_bytes: int

    @property
    def files_per_partition(self) -> float:
        """Live files for each partition that has any."""
        return self.files / max(self.partitions, 1)

    @property
    def looks_like(self) -> str:
        """A guess from the figures, because commits do not record their distribution mode."""
        if self.files >= SCATTERED * (max(self.partitions, 1) + self.size_in_bytes // self.target_bytes):
            return f"none: {count(round(self.files_per_partition), 'task')} wrote into each partition"
        if self.partitions > 1 or self.small_files:
            return "rows were grouped: a small commit"
        return "one task, or a small commit"


@dataclass(frozen=True, slots=True)
class Cohorts:
    """The worst commits, and totals over all: ``commit_count`` commits wrote ``files`` live data files, of which ``small_files`` are small."""

    worst: tuple[Cohort, ...]
    commit_count: int
    files: int
    small_files: int

    @property
    def traced(self) -> int:
        """Small files of the commits listed."""
        return sum(c.small_files for c in self.worst)


def cohorts(lake: Lake, facts: TableFacts) -> Cohorts:
    """Group the live data files of the facts' snapshot by the commit that added them."""
    if facts.snapshot_id is None:
        return Cohorts((), 0, 0, 0)
    entries = metadata_table(lake.spark, lake.sql_name(facts.table), "entries", facts.snapshot_id)
    place = partition_text(entries)
    small = min_file_size(facts.target_bytes)
    rows = lake.spark.sql(
        f"""SELECT *, count(*) OVER () AS commits, sum(files) OVER () AS all_files, sum(small_files) OVER () AS all_small
            FROM (SELECT snapshot_id, count(*) AS files, count_if(data_file.file_size_in_bytes < {small}) AS small_files,
                    sum(data_file.file_size_in_bytes) AS size_in_bytes, approx_count_distinct({place}, 0.01) AS partitions
                  FROM {{entries}} WHERE status < 2 AND {CONTENT} = 0 GROUP BY snapshot_id)
            ORDER BY small_files DESC, snapshot_id LIMIT {WORST}""",
        entries=entries,
    ).collect()
    known = {c.snapshot_id: c for c in facts.history.commits}
    found = []
    for row in rows:
        commit = known.get(row.snapshot_id)
        found.append(
            Cohort(
                snapshot_id=row.snapshot_id,
                files=int(row.files),
                small_files=int(row.small_files),
                size_in_bytes=int(row.size_in_bytes),
                partitions=int(row.partitions),
                operation=commit.operation if commit else None,
                writer=commit.writer if commit else None,
                committed_at_ms=commit.committed_at_ms if commit else None,
                target_bytes=facts.target_bytes,
            )
        )
    first = rows[0] if rows else None
    return Cohorts(
        tuple(c for c in found if c.small_files),
        int(first.commits) if first else 0,
        int(first.all_files) if first else 0,
        int(first.all_small) if first else 0,
    )


# --- How many files a commit makes under each mode, from the distribution of its rows. Pure


#: Where the writer begins another file, as a share of the target: the open row group counts uncompressed
#: (ParquetWriter.length); measured at 0.86 to 0.97.
ROLLS_AT = 0.93


@dataclass(frozen=True, slots=True)
class CommitSpread:
    """The distribution of a commit's rows before any shuffle.

    ``pairs`` are the (task, partition) pairs that have rows, ``none_files`` and ``hash_files`` the files
    if each pair, or each partition, were cut where the writer begins another file. ``largest_share`` is that of the
    largest partition, of all rows.
    """

    tasks: int
    partitions: int
    rows: int
    pairs: int
    none_files: int
    hash_files: int
    largest_share: float
    row_bytes: float

    @property
    def is_clustered(self) -> bool:
        """Tell whether almost no partition is in several tasks, so that a shuffle would save nothing."""
        return self.pairs <= self.partitions + self.tasks - 1 and self.pairs <= 1.25 * self.partitions


@dataclass(frozen=True, slots=True)
class Predicted:
    """Files of a commit under a mode, with the calculation."""

    mode: str
    files: int
    how: str


def predict(spread: CommitSpread, chain: Chain, ratio: float) -> tuple[Predicted, ...]:
    """The files under none, hash and range; ``ratio`` is of shuffle bytes to file bytes.

    Range draws its bounds from a sample, so that each bound may cut a partition in two.
    """
    shuffled = int(spread.rows * spread.row_bytes * ratio)
    task = chain.task_bytes(shuffled)
    chunks = max(1, -(-shuffled // max(task, 1))) if shuffled else 0
    if not (chain.adaptive and chain.coalesces):
        chunks = min(chain.shuffle_partitions, max(spread.rows, 1))
    none = f"{spread.pairs:,} of {spread.tasks:,} × {spread.partitions:,} pairs of task and partition have rows"
    found = [Predicted(NONE, spread.none_files, none)]
    # Splitting follows the advisory size, which is below the target where it asks for small tasks.
    file_bytes = max(1.0, min(chain.target_bytes, chain.advisory_bytes / ratio if chain.splits and chain.adaptive else chain.target_bytes))
    largest = spread.rows * spread.largest_share * spread.row_bytes
    more = max(0, round(largest / file_bytes) - max(1, math.ceil(largest / (ROLLS_AT * chain.target_bytes))))
    found.append(
        Predicted(
            HASH,
            spread.hash_files + more,
            f"one task for each of {spread.partitions:,} partitions, more for partitions larger than the advisory size",
        )
    )
    cut = spread.hash_files + max(0, chunks - 1)
    found.append(Predicted(RANGE, cut, f"{chunks:,} tasks, whose bounds cut up to {max(0, chunks - 1):,} partitions"))
    return tuple(found)


# --- Try each distribution mode with the same rows, and compare predicted with actual files


@dataclass(frozen=True, slots=True)
class TriedMode:
    """A mode with its predicted (None: not predicted) and actual files."""

    mode: str
    predicted: Predicted | None
    written: Written


@dataclass(frozen=True, slots=True)
class ModeTrial:
    """The modes tried with the rows of one commit; ``in_force`` is the one that the operation has now."""

    operation: str
    described: str
    in_force: str
    spread: CommitSpread | None
    tried: tuple[TriedMode, ...]

    def of(self, mode: str) -> TriedMode | None:
        """The result of a mode; None if it was not tried."""
        return next((t for t in self.tried if t.mode == mode), None)


def spread_of(trial: Trial, source: TrialRows) -> CommitSpread:
    """Count the pairs of task and partition that have rows, as the writer would meet them; one row comes back."""
    facts = trial.facts
    terms = [transformed(facts.catalog, field, facts.columns) for field in facts.default_spec.fields]
    parts = ", ".join(t for t in terms if t is not None)
    place = f"xxhash64({parts})" if parts else "0L"
    width = row_bytes(facts)
    cut = max(1.0, ROLLS_AT * facts.target_bytes)
    with trial.budget.watching(trial.lake.spark), view_of(trial.lake.spark, source) as view:
        row = trial.lake.spark.sql(
            f"""SELECT coalesce(max(t), -1) + 1 AS tasks, count(*) AS partitions, coalesce(sum(n), 0) AS rows, coalesce(sum(pairs), 0) AS pairs,
                  coalesce(sum(f), 0) AS none_files, coalesce(sum(ceil(n * {width} / {cut})), 0) AS hash_files, max(n) AS most
                FROM (SELECT p, max(t) AS t, count(*) AS pairs, sum(n) AS n, sum(ceil(n * {width} / {cut})) AS f
                      FROM (SELECT spark_partition_id() AS t, {place} AS p, count(*) AS n FROM {identifier(view)} GROUP BY 1, 2) GROUP BY p)"""
        ).collect()[0]
    rows = int(row.rows)
    return CommitSpread(
        tasks=int(row.tasks),
        partitions=int(row.partitions),
        rows=rows,
        pairs=int(row.pairs),
        none_files=int(row.none_files),
        hash_files=int(row.hash_files),
        largest_share=int(row.most or 0) / rows if rows else 0.0,
        row_bytes=width,
    )


def row_bytes(facts: TableFacts) -> float:
    """What a row takes in a file of a good size: small files are footers for the most part. All files tell where there are no others."""
    buckets = [b for g in facts.of_kind(Kind.DATA) for b in g.buckets]
    good = [b for b in buckets if b.min_bytes >= min_file_size(facts.target_bytes) and b.record_count] or buckets
    return max(1.0, sum(b.size_in_bytes for b in good) / max(sum(b.record_count for b in good), 1))


def try_modes(trial: Trial, box: Sandbox, source: TrialRows, chain: Chain) -> ModeTrial:
    """Write the same rows under each mode that the table can have; the session's mode is lent, so that it wins over the table's."""
    facts = trial.facts
    spread = spread_of(trial, source)
    made: dict[str, Written] = {}
    for mode in possible(facts):
        made[mode] = write(box, source, facts.target_bytes, {DISTRIBUTION_SESSION: mode})
        trial.progress(f"distribution mode {mode}: {said(made[mode])}")
    # The ratio of a shuffle that was seen; Iceberg's guess until one was.
    ratio = next((w.ratio for w in made.values() if w.ratio), None) or chain.ratio
    predicted = {p.mode: p for p in predict(spread, chain, ratio)}
    tried = tuple(TriedMode(mode, predicted[mode], written) for mode, written in made.items())
    return ModeTrial("append", source.described, chain.mode, spread, tried)


def try_statement(trial: Trial, workload: Workload, now: str) -> ModeTrial:
    """Run a row-level statement under none, hash and range, each in a sandbox of its own, as each changes the rows; ``now`` is in force."""
    facts, operation = trial.facts, workload.operation
    is_delete_only = operation == "delete" and (facts.setting("write.delete.mode") or "") == MERGE_ON_READ
    target = facts.int_setting("write.delete.target-file-size-bytes") if is_delete_only else facts.target_bytes
    found = []
    for mode in MODES:
        with trial.sandbox() as box:
            done = box.run(workload.statements[0](box.name), settings={DISTRIBUTION_SESSION: mode})
            written = measured(box, done, target)
        trial.progress(f"{operation} under {mode}: {said(written)}, {count(written.delete_files, 'delete file')}")
        # A shuffle in the search for what changes is none of the writer's.
        found.append(TriedMode(mode, None, replace(written, shuffle=None) if mode == NONE else written))
    return ModeTrial(operation, workload.described, now, None, tuple(found))


def possible(facts: TableFacts) -> tuple[str, ...]:
    """The modes that differ for appends: hash needs a partitioning, range a partitioning or an order."""
    partitioned, ordered = not facts.default_spec.is_unpartitioned, bool(facts.sort_order)
    return (NONE, *((HASH,) if partitioned else ()), *((RANGE,) if partitioned or ordered else ()))


_SETTING = "write.distribution-mode"
#: A shuffle that saves at most this share of the files is not worth it.
MARGIN = 0.15
#: Nor is a shuffle that saves at most this many files of a commit.
FILES_SPARED = 1
#: A partition with more than this share of a commit's rows makes its task the last to finish.
SKEWED = 0.5


def advised_mode(facts: TableFacts, mode: Mode, trial: ModeTrial | None) -> str:
    """The mode that a table's appends should have; the mode in force if no other is better."""
    there, hashed = (trial.of(mode.value), trial.of(HASH)) if trial else (None, None)
    if there is None or hashed is None or mode.value == HASH:
        return mode.value
    # A sorted table has its order for its readers.
    if mode.value == RANGE and facts.sort_order:
        return RANGE
    saved = there.written.files - hashed.written.files
    return HASH if saved > max(FILES_SPARED, MARGIN * hashed.written.files) else mode.value


def advise(facts: TableFacts, mode: Mode, trial: ModeTrial | None) -> tuple[Advice, ...]:
    """Advice on the distribution of appends."""
    if facts.default_spec.is_unpartitioned and not facts.sort_order:
        said = "Without a partitioning or an order, rows cannot be grouped, so each task of the writer writes its own files. Only the job itself can write fewer, with a repartition before the write."
        return (Advice(_SETTING, mode.value, mode.value, said),)
    if trial is None:
        return (Advice(_SETTING, mode.value, mode.value, f"Not tried; in force because of {mode.why}."),)
    value = advised_mode(facts, mode, trial)
    there, better = trial.of(mode.value), trial.of(value)
    if there is None or better is None or value == mode.value:
        return (Advice(_SETTING, mode.value, mode.value, _leave(mode, trial)),)
    evidence = f"{_files(there)} under {mode.value}, {_files(better)} under {value}, tried with {trial.described}"
    verified = (
        f"predicted {_predicted(there)} and {_predicted(better)} files; the result was {there.written.files:,} and {better.written.files:,}"
    )
    decides = mode.in_force.decides
    found: list[Advice] = []
    if facts.properties.get(_SETTING, "").lower() != value:
        breaks = "rows are shuffled once before they are written, which takes time and adds latency to a stream"
        found.append(
            to_set(
                facts,
                {_SETTING: value},
                current=mode.value,
                evidence=f"{evidence}.",
                verified=f"{verified}.",
                breaks=breaks,
            )
        )
    if decides is not None and decides.where in {SESSION, OPTION}:
        found.append(overriding(decides, f"{evidence}.", verified=f"{verified}."))
    return tuple(found)


def advise_order(facts: TableFacts, columns: tuple[str, ...]) -> tuple[Advice, ...]:
    """Advice on the sort order for filters on ``columns``, whose bounds skip no files; empty without such columns."""
    if not columns:
        return ()
    partitioned = not facts.default_spec.is_unpartitioned
    how = "each task then sorts its rows of a partition" if partitioned else "rows are then shuffled by range, so files barely overlap"
    now = ", ".join(f.source for f in facts.sort_order) or None
    return (
        Advice(
            "sort order",
            now,
            now,
            f"Filters on {', '.join(columns)} skip no files. With a sort order, {how}, and each write sorts its rows. Not tried here: run icekit tune layout, "
            f"which tries {ddl.write_order(facts.sql_name, facts.by_name, columns, by_partition=partitioned)}.",
        ),
    )


def skew(trial: ModeTrial | None) -> str | None:
    """A sentence on a partition with most of a commit's rows; None without one."""
    if trial is None or trial.spread is None or trial.spread.partitions < 2 or trial.spread.largest_share < SKEWED:
        return None
    hashed = trial.of(HASH)
    shuffle = hashed.written.shuffle if hashed else None
    split = f"; adaptive execution split it into {count(shuffle.split_count, 'task')}" if shuffle and shuffle.split_count else ""
    return f"One partition has {percent(trial.spread.largest_share)} of the rows: under hash one task would write them{split}. Range would divide them evenly."


def _leave(mode: Mode, trial: ModeTrial) -> str:
    there, hashed = trial.of(mode.value), trial.of(HASH)
    made = f"{_files(there)} under {mode.value}" if there else f"{mode.value} was not tried"
    if mode.value == NONE and hashed is not None:
        return f"{raised(made)}, {_files(hashed)} under hash, so a shuffle would save nothing{' (the rows are already clustered)' if trial.spread and trial.spread.is_clustered else ''}."
    others = ", ".join(f"{_files(t)} under {t.mode}" for t in trial.tried if t.mode != mode.value)
    return f"{raised(made)}{f', {others}' if others else ''}, tried with {trial.described}."


def _files(tried: TriedMode) -> str:
    mean = tried.written.mean_bytes
    return f"{count(tried.written.files, 'file')}{f' of {size(mean)}' if mean is not None else ''}"


def _predicted(tried: TriedMode) -> str:
    return "an unknown number of" if tried.predicted is None else f"{tried.predicted.files:,}"
