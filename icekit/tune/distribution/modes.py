"""Say which distribution mode each operation has, how many files it makes, and which commits made the small files. Pure.

Source: ``SparkWriteConf`` of Iceberg 1.12. An option or a session's ``spark.sql.iceberg.distribution-mode``
overrides the properties of every operation; ``hash`` without a partitioning and ``range`` without a
partitioning or an order come to ``none`` for appends and copy-on-write merges.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icekit.diagnose.findings import Thresholds
from icekit.engine.metadata_tables import CONTENT, metadata_table
from icekit.facts.model import TableFacts
from icekit.facts.rollup import min_file_size
from icekit.resolve.listing import partition_text
from icekit.tune.advisory_size.trial import DISTRIBUTION_SESSION, Chain
from icekit.tune.advisory_size.written import RECENT, SCATTERED
from icekit.tune.answer import InForce, in_force
from icekit.units import count

if TYPE_CHECKING:
    from icekit.catalog import Lake


NONE, HASH, RANGE = "none", "hash", "range"
MODES = (NONE, HASH, RANGE)
OPERATIONS = ("append", "delete", "update", "merge")


@dataclass(frozen=True, slots=True)
class Mode:
    """The mode of an operation: ``value`` is what the engine does, ``why`` one clause.

    ``brings_together`` says by what rows are brought together. ``fanout`` tells whether a task keeps a
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
    why = f"{found.origin} says {stated}, which needs a partitioning{' or an order' if stated == RANGE else ''}" if void else found.origin
    fanout = (facts.setting("write.spark.fanout.enabled") or "false").lower() == "true"
    return Mode(operation, value, found, why, _by(facts, operation, value, partitioned), fanout)


def _by(facts: TableFacts, operation: str, mode: str, partitioned: bool) -> str:
    """By what rows are brought together (SparkWriteUtil)."""
    if mode == NONE:
        return "nothing: a task writes what it has"
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


# --- When the table has enough small files again for a rewrite, at the present cadence. Pure
#
# A partition is sick when a default rewrite would take it: ``min-input-files`` files under 0.75 of the target in it
# (as icekit's finding ``small_files``). Each visit of a commit leaves so many.


_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Cadence:
    """How the table is appended to: commits and small files a day, and the bytes of a visit to a partition.

    ``visits`` is how often a partition is visited by the commits looked at, on average. None where the
    snapshots do not tell.
    """

    commits_per_day: float | None
    partitions_per_commit: float
    bytes_per_visit: float
    visits: float
    days: float | None


@dataclass(frozen=True, slots=True)
class Until:
    """When a partition has enough small files: after so many visits, and days; None where never."""

    small_files_per_visit: float
    visits: int | None
    days: float | None


def cadence(facts: TableFacts) -> Cadence | None:
    """The cadence of the recent appends; None without any."""
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
    """When a partition that is visited at this rhythm has enough small files for a rewrite."""
    wanted = (thresholds or Thresholds()).min_input_files
    if small_files_per_visit <= 0:
        return Until(small_files_per_visit, None, None)
    visits = math.ceil(wanted / small_files_per_visit)
    if rhythm.commits_per_day is None or rhythm.days is None:
        return Until(small_files_per_visit, visits, None)
    per_day = rhythm.visits / rhythm.days
    return Until(small_files_per_visit, visits, visits / per_day if per_day else None)


def commits_for(target_bytes: int, bytes_per_visit: float) -> int | None:
    """How many such commits in one give a partition a file of the target size; None where a visit brings nothing."""
    return math.ceil(target_bytes / bytes_per_visit) if bytes_per_visit > 0 else None


# --- Trace small files to the commits that made them: which writer, which operation, and what it looks like
#
# Spark groups the live files by the snapshot that added them; the driver gets the worst few commits.


#: Commits that are listed.
WORST = 10


@dataclass(frozen=True, slots=True)
class Cohort:
    """The live data files that one commit added; ``small_files`` are under the limit of a default rewrite.

    ``operation`` and ``writer`` are None where the snapshot has expired or does not say.
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
        """What the figures look like; no commit records its distribution mode."""
        if self.files >= SCATTERED * (max(self.partitions, 1) + self.size_in_bytes // self.target_bytes):
            return f"none: {count(round(self.files_per_partition), 'task')} wrote into each partition"
        if self.partitions > 1 or self.small_files:
            return "rows were brought together: a small commit"
        return "one task, or a small commit"


@dataclass(frozen=True, slots=True)
class Cohorts:
    """The worst commits, and the totals over all: ``commit_count`` commits left ``small_files`` of ``files`` live data files."""

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


# --- How many files a commit makes under each mode, from how its rows lie. Pure


#: Where the writer begins another file, as a share of the target: the open row group counts uncompressed
#: (ParquetWriter.length); measured at 0.86 to 0.97.
ROLLS_AT = 0.93


@dataclass(frozen=True, slots=True)
class CommitSpread:
    """How the rows of a commit lie before any shuffle.

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
        """Tell whether hardly any partition is in several tasks, so that a shuffle would save nothing."""
        return self.pairs <= self.partitions + self.tasks - 1 and self.pairs <= 1.25 * self.partitions


@dataclass(frozen=True, slots=True)
class Predicted:
    """Files of a commit under a mode, with the sum they come from."""

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
            f"one task for each of {spread.partitions:,} partitions, more for what is larger than the advisory size",
        )
    )
    cut = spread.hash_files + max(0, chunks - 1)
    found.append(Predicted(RANGE, cut, f"{chunks:,} tasks, whose bounds cut up to {max(0, chunks - 1):,} partitions"))
    return tuple(found)
