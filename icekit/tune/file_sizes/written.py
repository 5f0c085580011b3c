"""Choose the rows of a trial, write them and measure the result: files by Iceberg's metadata, the shuffle by Spark's own metrics.

Files are rolled up by Spark; what the driver gets is one row.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from icekit.engine.compat import at_snapshot
from icekit.engine.metadata_tables import metadata_table
from icekit.engine.planner import kind, metric, nodes_with_searches, ran_command
from icekit.facts.files import FileGroup, Kind
from icekit.facts.model import Commit, TableFacts
from icekit.facts.rollup import min_file_size
from icekit.facts.where import where
from icekit.resolve.listing import partition_text
from icekit.sandbox.trial import Committed, Sandbox
from icekit.sql import Identifier, identifier, literal
from icekit.units import count, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.catalog import Lake


#: How close the mean must be to the target.
TOLERANCE = 0.15
#: Below so many target sizes in a partition its last file decides the mean: the writer begins another file at about
#: 93 % of the target, and 12 ÷ 13 of that is within 15 %.
ENOUGH = 12


@dataclass(frozen=True, slots=True)
class Shuffle:
    """The shuffle before a writer, in bytes.

    ``size_in_bytes`` went over the wire, ``planned_bytes`` is what adaptive execution took it for
    (Spark keeps sizes of map outputs to within a tenth, rounded up), ``row_bytes`` the rows in memory.
    ``tasks`` wrote files; ``split_count`` of them came of a partition that was split. ``spilled_bytes``
    are of sorting.
    """

    size_in_bytes: int
    planned_bytes: int
    row_bytes: int
    tasks: int
    split_count: int
    spilled_bytes: int


@dataclass(frozen=True, slots=True)
class Written:
    """The files of one commit; ``target_bytes`` is the target size in force.

    ``small_*`` are under the limit of a default rewrite; ``fewest`` are the files if each partition touched were cut at 85 % of the target, ``enough_*`` those of
    partitions with at least :data:`ENOUGH` target sizes. Delete files have their own columns. ``shuffle`` is None
    if rows were not shuffled. Times are wall-clock seconds.
    """

    target_bytes: int
    files: int
    size_in_bytes: int
    records: int
    min_bytes: int | None
    max_bytes: int | None
    small_files: int
    small_bytes: int
    partitions: int
    fewest: int
    enough_files: int
    enough_bytes: int
    largest_partition_bytes: int
    delete_files: int
    delete_bytes: int
    seconds: float
    shuffle: Shuffle | None

    @property
    def mean_bytes(self) -> float | None:
        """Mean size of a data file."""
        return self.size_in_bytes / self.files if self.files else None

    @property
    def enough_mean(self) -> float | None:
        """Mean size of a data file in partitions with enough data; None without such partitions."""
        return self.enough_bytes / self.enough_files if self.enough_files else None

    @property
    def well_sized_share(self) -> float | None:
        """The share of the bytes in files that a default rewrite does not consider small."""
        return 1 - self.small_bytes / self.size_in_bytes if self.size_in_bytes else None

    @property
    def ratio(self) -> float | None:
        """Shuffle bytes, as adaptive execution counts them, per byte of data and delete file."""
        total = self.size_in_bytes + self.delete_bytes
        return self.shuffle.planned_bytes / total if self.shuffle and total else None

    @property
    def hits(self) -> bool:
        """Tell whether the sizes are right: no more files than at 85 % of the target, and none far above it."""
        mean = self.enough_mean
        within = mean is None or abs(mean / self.target_bytes - 1) <= TOLERANCE
        return self.files <= self.fewest and within

    @property
    def is_fine(self) -> bool:
        """Tell whether there is little to gain: the sizes are right, except perhaps for a last file or two."""
        share = self.well_sized_share
        return self.hits or (self.files <= (1 + TOLERANCE) * self.fewest and share is not None and share >= 1 - TOLERANCE)

    @property
    def is_too_few(self) -> bool:
        """Tell whether every partition got less than one target size, so that no setting makes a full file."""
        return self.largest_partition_bytes < self.target_bytes


def write(box: Sandbox, rows: TrialRows, target_bytes: int, settings: Mapping[str, str] | None = None) -> Written:
    """Write a trial's rows to a sandbox under temporary session settings, and measure the commit."""
    with view_of(box.lake.spark, rows) as view:
        sql = f"INSERT INTO {identifier(*box.name)} SELECT * FROM {identifier(view)}"
        return measured(box, box.run(sql, expected_bytes=rows.size_in_bytes, settings=settings), target_bytes)


@contextlib.contextmanager
def view_of(spark: SparkSession, rows: TrialRows) -> Iterator[str]:
    """The name of a temporary view of a trial's rows: the SQL of Spark 3.5 takes no options of a read."""
    frame = spark.read.options(**rows.options).table(identifier(*rows.table))
    if rows.where:
        frame = frame.where(rows.where)
    if rows.tasks:
        frame = frame.repartition(rows.tasks)
    view = f"icekit_{uuid.uuid4().hex}"
    frame.createTempView(view)
    try:
        yield view
    finally:
        spark.catalog.dropTempView(view)


def measured(box: Sandbox, done: Committed, target_bytes: int) -> Written:
    """Measure a commit to a sandbox."""
    if not done.snapshots:
        return Written(target_bytes=target_bytes, **_NOTHING, seconds=done.seconds, shuffle=None)
    made = _files(box.lake, box.name, int(done.snapshots[-1]["snapshot-id"]), target_bytes)
    return Written(target_bytes=target_bytes, **made, seconds=done.seconds, shuffle=_shuffle(ran_command(done.frame)))


_NOTHING: dict[str, Any] = {
    **dict.fromkeys(("min_bytes", "max_bytes")),
    **dict.fromkeys(
        (
            *("files", "size_in_bytes", "records", "small_files", "small_bytes", "partitions", "fewest", "enough_files", "enough_bytes"),
            *("largest_partition_bytes", "delete_files", "delete_bytes"),
        ),
        0,
    ),
}


def _files(lake: Lake, table: Identifier, snapshot_id: int, target: int) -> dict[str, Any]:
    """The files that a snapshot added, rolled up by partition and then in all."""
    cut = max(1, int(target * (1 - TOLERANCE)))
    entries = metadata_table(lake.spark, table, "entries", snapshot_id)
    row = lake.spark.sql(
        f"""SELECT coalesce(sum(n), 0) AS files, coalesce(sum(b), 0) AS size_in_bytes, coalesce(sum(r), 0) AS records,
              min(lo) AS min_bytes, max(hi) AS max_bytes, coalesce(sum(small), 0) AS small_files, coalesce(sum(sb), 0) AS small_bytes,
              count_if(n > 0) AS partitions, coalesce(sum(ceil(b / {cut})), 0) AS fewest,
              coalesce(sum(IF(b >= {ENOUGH * target}, n, 0)), 0) AS enough_files,
              coalesce(sum(IF(b >= {ENOUGH * target}, b, 0)), 0) AS enough_bytes,
              coalesce(max(b), 0) AS largest_partition_bytes,
              coalesce(sum(dn), 0) AS delete_files, coalesce(sum(db), 0) AS delete_bytes
            FROM (SELECT count_if(c = 0) AS n, sum(IF(c = 0, s, 0)) AS b, sum(IF(c = 0, k, 0)) AS r, min(IF(c = 0, s, NULL)) AS lo,
                    max(IF(c = 0, s, NULL)) AS hi, count_if(c = 0 AND s < {min_file_size(target)}) AS small, sum(IF(c = 0 AND s < {min_file_size(target)}, s, 0)) AS sb,
                    count_if(c > 0) AS dn, sum(IF(c > 0, s, 0)) AS db
                  FROM (SELECT data_file.content AS c, data_file.file_size_in_bytes AS s,
                          data_file.record_count AS k, data_file.spec_id AS spec, {partition_text(entries)} AS p
                        FROM {{entries}} WHERE status = 1 AND snapshot_id = {literal(snapshot_id)})
                  GROUP BY spec, p)""",
        entries=entries,
    ).collect()[0]
    return {name: None if value is None else int(value) for name, value in row.asDict().items()}


def _shuffle(plan: Any) -> Shuffle | None:
    """The last shuffle before the writer, from the metrics of the plan that was run; None where there is none."""
    if plan is None:
        return None
    spilled = 0
    read: dict[str, int] = {}
    for node in nodes_with_searches(plan):
        name = kind(node)
        if name == "SortExec":
            spilled += metric(node, "spillSize")
        elif name == "AQEShuffleReadExec" and not read:
            read = {k: metric(node, k) for k in ("numPartitions", "partitionDataSize", "numSkewedSplits")}
        elif name == "ShuffleExchangeExec":
            if "RoundRobin" in str(node.outputPartitioning().toString()):
                # Of the trial's own rows, not of the writer.
                return None
            whole = metric(node, "shuffleBytesWritten")
            tasks = read.get("numPartitions") or metric(node, "numPartitions")
            return Shuffle(
                whole, read.get("partitionDataSize") or whole, metric(node, "dataSize"), tasks, read.get("numSkewedSplits", 0), spilled
            )
    return None


# --- Choose the rows that a trial writes: those of a typical commit, and enough for several files of the target size
#
# Both are rows of the table itself, read as the writer got them if that is known: one task per file that
# the commit wrote, or splits of a quarter of the target size.


#: The number of recent commits from which a typical one is chosen.
RECENT = 20
#: Spark's split of a large file; a writer's task reads about as much.
_SPLIT_BYTES = 128 * 2**20
_MIN_SPLIT_BYTES = 64 * 2**10
#: A commit that brought rows together leaves fewer files than this for each partition and each target size.
SCATTERED = 2.0
#: A little more than enough, as what is rewritten may be smaller.
_ROOM = 1.25
_ALONE = str(2**40)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRows:
    """Rows of a table to write, which have ``size_in_bytes`` in it now.

    ``options`` are those of the read, ``where`` is SQL that filters it, and ``tasks`` get the rows in no particular order, if it is not 0.
    ``as_written`` tells whether the tasks are those of the writer that wrote the rows first.
    """

    described: str
    table: Identifier
    size_in_bytes: int
    records: int
    partitions: int | None
    as_written: bool
    options: Mapping[str, str] = field(default_factory=dict)
    where: str = ""
    tasks: int = 0


def usual(facts: TableFacts, *, sample_bytes: int, tasks: int) -> TrialRows | None:
    """The rows of a recent append of median size; None if the snapshots have none, or it is too large.

    ``tasks`` read the rows of a commit that grouped its rows, because their original distribution is not known.
    """
    found = [(before, commit) for before, commit in pairwise(facts.history.commits) if _is_append(commit)][-RECENT:]
    if not found:
        return None
    ordered = sorted(found, key=lambda pair: pair[1].added_records or 0)
    before, commit = ordered[(len(ordered) - 1) // 2]
    added = commit.added_bytes or 0
    if added > sample_bytes:
        return None
    # Files that the bytes alone explain are not scattered.
    scattered = (commit.added_data_files or 1) >= SCATTERED * (max(commit.changed_partitions or 1, 1) + added // facts.target_bytes)
    options = {"start-snapshot-id": str(before.snapshot_id), "end-snapshot-id": str(commit.snapshot_id)}
    if scattered:
        # One task for each file: the tasks that wrote them.
        options["file-open-cost"] = _ALONE
    how = "one task per file that it wrote" if scattered else f"read by {count(max(1, tasks), 'task')} in no particular order"
    return TrialRows(
        described=f"the rows of a typical commit ({commit.added_records or 0:,} rows, {how})",
        table=facts.sql_name,
        size_in_bytes=added,
        records=commit.added_records or 0,
        partitions=commit.changed_partitions,
        as_written=scattered,
        options=options,
        tasks=0 if scattered else max(1, tasks),
    )


def aim(facts: TableFacts, sample_bytes: int) -> int:
    """The target size for the trial: the table's own, or a smaller one if the sample has too few files of that size."""
    largest = max((g.size_in_bytes for g in facts.of_kind(Kind.DATA)), default=0)
    wanted = ENOUGH * facts.target_bytes * _ROOM
    if largest < wanted or wanted <= sample_bytes:
        return facts.target_bytes
    return max(1, int(sample_bytes / ENOUGH / _ROOM))


def large(facts: TableFacts, data_files: str, *, target_bytes: int, sample_bytes: int, shuffled: bool = True) -> TrialRows | None:
    """Rows of the largest partitions, enough for several files of the target size where the table has them; None without rows.

    Where they are to be ``shuffled`` they are read by tasks of a quarter of the target, as Spark's splits of
    128 MB are of 512 MB; without a shuffle a task's split is what decides, and is the session's own.
    ``data_files`` is SQL for that metadata table.
    """
    groups = sorted((g for g in facts.of_kind(Kind.DATA) if g.size_in_bytes), key=lambda g: -g.size_in_bytes)
    if not groups:
        return None
    wanted = min(sample_bytes, int(ENOUGH * target_bytes * _ROOM))
    taken = _taken(groups, wanted)
    total = sum(g.size_in_bytes for g in taken)
    whole = len(taken) == len(groups)
    predicate = None if whole else where(facts.catalog, facts.specs_by_id, facts.columns, [g.partition for g in taken], of_rows=True)
    if predicate is None:
        total = sum(g.size_in_bytes for g in groups)
    share = min(1.0, wanted / total) if total else 1.0
    conditions = [f"({predicate})"] if predicate else []
    if share < 0.9:
        # Whole files, so that rows stay as near each other as they are; of a few that are large, rows.
        paths = f"SELECT file_path FROM {data_files} WHERE pmod(xxhash64(file_path), 1000) < {max(1, round(share * 1000))}"
        many = facts.data.file_count * share >= ENOUGH * 4
        conditions.append(f"_file IN ({paths})" if many else f"rand(7) < {share:.6f}")
    else:
        share = 1.0
    split = max(_MIN_SPLIT_BYTES, min(_SPLIT_BYTES, target_bytes // 4))
    # The current snapshot is read without its id: with it, Spark reads the columns of the snapshot, not those that the table has now.
    at = at_snapshot(facts.snapshot_id or 0) if facts.ref else {}
    options = {**at, **({"split-size": str(split), "file-open-cost": "0"} if shuffled else {})}
    rows = round(share * sum(g.record_count for g in (taken if predicate else groups)))
    kept = f"{rows:,} rows of {count(len(taken), 'partition')}" if predicate or len(groups) > 1 else f"{rows:,} rows"
    return TrialRows(
        described=f"{kept} in one commit ({size(share * total)} in the table now, read by tasks of {size(split) if shuffled else 'one split'})",
        table=facts.sql_name,
        size_in_bytes=round(share * total),
        records=rows,
        partitions=len(taken),
        as_written=False,
        options=options,
        where=" AND ".join(conditions),
    )


def _taken(groups: Sequence[FileGroup], wanted: int) -> list[FileGroup]:
    """The smallest group that has enough by itself, else the largest ones until there is enough."""
    alone = [g for g in groups if g.size_in_bytes >= wanted]
    if alone:
        return [alone[-1]]
    taken: list[FileGroup] = []
    reached = 0
    for group in groups:
        if reached + group.size_in_bytes > wanted and taken:
            continue
        taken.append(group)
        reached += group.size_in_bytes
        if len(taken) == ENOUGH:
            break
    return taken


def _is_append(commit: Commit) -> bool:
    return commit.operation == "append" and bool(commit.added_data_files) and bool(commit.added_records)
