"""Measure planning: in the driver and on the executors, with more or fewer threads, and with other manifests."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import lent, load_now, load_table, session_value
from icekit.engine.cluster import cluster_of
from icekit.engine.metadata_tables import metadata_table_sql
from icekit.engine.planner import PlannedScan, is_scan_of, nodes, plan_files, query_of
from icekit.errors import StatementRefused
from icekit.facts.model import TableFacts
from icekit.sandbox.trial import Budget, Sandbox, Trial
from icekit.sql import Identifier, call, display_name, identifier, literal
from icekit.tune.answer import InForce, in_force
from icekit.tune.filters import Filter, predicates
from icekit.units import count, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# --- Decide as Iceberg does where a scan is planned: in the driver, or on Spark's executors. Pure
#
# Source: ``SparkReadConf`` and ``BaseDistributedDataScan`` of Iceberg 1.12.


LOCAL, DISTRIBUTED, AUTO = "local", "distributed", "auto"
#: Below this limit Iceberg always plans in the driver, because executors would send more back.
LEAST_RESULT_BYTES = 256 * 1024 * 1024
#: The most manifest bytes per thread of the driver.
BYTES_PER_THREAD = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ManifestsRead:
    """The data manifests or delete manifests that a scan reads: their number and bytes."""

    count: int
    size_in_bytes: int


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The inputs of the decision.

    ``threads`` plan in the driver (``iceberg.worker.num-threads``), ``parallelism`` is the larger of the
    session's default parallelism and its shuffle partitions, which Iceberg assumes as the parallelism of the
    executors. ``max_result_bytes`` is ``spark.driver.maxResultSize``, 0 for no limit. ``data`` and
    ``deletes`` are the manifests, ``slots`` the actual task slots.
    """

    data: ManifestsRead
    deletes: ManifestsRead
    may_have_equality_deletes: bool
    threads: int
    parallelism: int
    slots: int
    max_result_bytes: int
    data_mode: InForce
    delete_mode: InForce
    driver_cores: int = 0
    driver_heap_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """Where the engine plans one kind of manifests, and the reasons, the deciding one first."""

    kind: str
    place: str
    reasons: tuple[str, ...]


def decide(c: Circumstances) -> tuple[Decision, Decision]:
    """Where data and delete manifests are planned."""
    return _decide("data", c, c.data, c.data_mode), _decide("deletes", c, c.deletes, c.delete_mode)


def is_too_small_a_result(c: Circumstances) -> bool:
    """Tell whether ``spark.driver.maxResultSize`` alone keeps planning in the driver; 0 bytes counts as small to Iceberg too."""
    return c.max_result_bytes < LEAST_RESULT_BYTES


def _decide(kind: str, c: Circumstances, layer: ManifestsRead, mode: InForce) -> Decision:
    if is_too_small_a_result(c):
        said = "0, which means no limit but counts as 0 here" if c.max_result_bytes == 0 else size(c.max_result_bytes)
        return Decision(
            kind,
            LOCAL,
            (f"spark.driver.maxResultSize is {said}, and Iceberg distributes planning only from {size(LEAST_RESULT_BYTES)} on",),
        )
    stated = (mode.value or AUTO).lower()
    if stated == LOCAL:
        return Decision(kind, LOCAL, (f"{mode.origin} says local",))
    if stated == DISTRIBUTED:
        if layer.count:
            return Decision(kind, DISTRIBUTED, (f"{mode.origin} says distributed",))
        return Decision(kind, LOCAL, ("there are no manifests",))
    reasons = tuple(_for_local(c, layer))
    if reasons:
        return Decision(kind, LOCAL, reasons)
    many = f"{count(layer.count, 'manifest')} of {size(layer.size_in_bytes)} are more than {count(c.threads, 'thread')} in the driver should read"
    return Decision(kind, DISTRIBUTED, (many,))


def _for_local(c: Circumstances, layer: ManifestsRead) -> Iterator[str]:
    """The reasons for the driver when the mode is auto: any one is enough."""
    if c.may_have_equality_deletes:
        yield "equality deletes may apply, and they need column statistics of every data file in the driver"
    if not layer.count:
        yield "there are no manifests"
        return
    if c.parallelism <= c.threads:
        yield f"the session's parallelism of {c.parallelism} is no more than the driver's {count(c.threads, 'planning thread')}"
    if layer.count <= 2 * c.threads:
        yield f"{count(layer.count, 'manifest')} are no more than two per thread ({count(c.threads, 'thread')})"
    if layer.size_in_bytes <= BYTES_PER_THREAD * c.threads:
        yield f"{size(layer.size_in_bytes)} of manifests are no more than {size(BYTES_PER_THREAD)} per thread"


_MODES = ("spark.sql.iceberg.data-planning-mode", "spark.sql.iceberg.delete-planning-mode")
#: The numbers of threads to try, up to the number of manifests.
THREADS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds to plan a scan in one way: the minimum of several runs."""

    name: str
    seconds: float


def in_each_mode(spark: SparkSession, table: Identifier, where: str | None, *, repeats: int, budget: Budget) -> tuple[Timing, ...]:
    """Plan a query as Spark does (including Spark's own part), with Iceberg's planning mode set to local and to distributed in turn."""
    seconds: dict[str, list[float]] = {LOCAL: [], DISTRIBUTED: []}
    sql = f"SELECT * FROM {identifier(*table)}{f' WHERE {where}' if where else ''}"
    for _ in range(repeats + 1):
        for mode, found in seconds.items():
            with budget.watching(spark), lent(spark, dict.fromkeys(_MODES, mode)):
                found.append(_plan(spark, table, sql))
    # The first run of each mode is a warm-up.
    return tuple(Timing(mode, min(found[1:])) for mode, found in seconds.items())


def _plan(spark: SparkSession, table: Identifier, sql: str) -> float:
    # Spark plans the scan during optimization, to estimate its size.
    started = time.monotonic()
    query = query_of(spark, sql)
    scan = next((n.scan() for n in nodes(query.executedPlan()) if is_scan_of(n, table)), None)
    if scan is None:
        raise StatementRefused(f"Spark plans {sql} without reading the table, so there is nothing to measure.")
    scan.toBatch().planInputPartitions()
    return time.monotonic() - started


def with_threads(spark: SparkSession, table: Identifier, manifests: int, *, repeats: int, budget: Budget) -> tuple[Timing, ...]:
    """Plan a full scan in the driver with different numbers of threads, up to the number of manifests."""
    jvm: Any = spark._jvm
    loaded = load_now(spark, table)
    found = []
    for number in (n for n in THREADS if n == 1 or n <= manifests):
        pool = jvm.java.util.concurrent.Executors.newFixedThreadPool(number)
        try:
            times = []
            for _ in range(repeats + 1):
                budget.check()
                started = time.monotonic()
                plan_files(spark, loaded.newScan().planWith(pool))
                times.append(time.monotonic() - started)
            found.append(Timing(f"{number}", min(times[1:])))
        finally:
            pool.shutdown()
    return tuple(found)


# --- Try on a clone how a rewrite of the manifests, which clusters them by partition, affects planning


#: The number of filters to plan before and after; the most frequent ones.
MOST_FILTERS = 20


@dataclass(frozen=True, slots=True)
class PlannedFilter:
    """Planning one filter, as SQL (None: a full scan), with the current and with the rewritten manifests."""

    text: str | None
    weight: float
    before: PlannedScan
    after: PlannedScan


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The result of a manifest rewrite; counts and bytes are of data manifests.

    The first of ``reads`` is the full scan.
    """

    count_before: int
    count_after: int
    bytes_before: int
    bytes_after: int
    reads: tuple[PlannedFilter, ...]

    @property
    def mean_before(self) -> float:
        """Mean manifests that a query opens, by the weight of the filters; for a full scan if there are no filters."""
        return _mean((r.before.manifests, r) for r in self.reads)

    @property
    def mean_after(self) -> float:
        """The same after the rewrite."""
        return _mean((r.after.manifests, r) for r in self.reads)

    @property
    def saved_seconds(self) -> float:
        """The planning time that the rewrite saves a full scan, or the mean query if that is more; below 0 if planning takes longer."""
        saved = [(r.before.seconds - r.after.seconds, r) for r in self.reads]
        return max(saved[0][0], _mean(saved))


def _mean(opened: Iterable[tuple[float, PlannedFilter]]) -> float:
    every = list(opened)
    some = [(n, read) for n, read in every if read.text is not None] or every
    weight = sum(read.weight for _, read in some)
    return sum(n * read.weight for n, read in some) / weight if weight else 0.0


def try_rewrite(trial: Trial, box: Sandbox, filters: Sequence[Filter], *, repeats: int) -> Rewritten:
    """Rewrite a clone's manifests and plan the filters before and after; writes only manifests."""
    manifests = trial.facts.manifests
    asked: list[tuple[str | None, float]] = [(None, 1.0)]
    asked += [(where, one.weight) for one, where in predicates(filters[:MOST_FILTERS], trial.facts.by_name)]

    def plan() -> list[PlannedScan]:
        return [min((box.plan(where) for _ in range(repeats)), key=lambda p: p.seconds) for where, _ in asked]

    before = plan()
    box.run(call(box.lake.name, "rewrite_manifests", table=display_name(box.table)), expected_bytes=manifests.data_bytes)
    # The snapshot counts files, but not the manifests that were written.
    box.budget.bytes_written += manifests.data_bytes
    after = plan()
    rewritten = box.observe().manifests
    return Rewritten(
        manifests.data_count,
        rewritten.data_count,
        manifests.data_bytes,
        rewritten.data_bytes,
        tuple(PlannedFilter(text, weight, b, a) for (text, weight), b, a in zip(asked, before, after, strict=True)),
    )


# --- Find where files are stored: under how many prefixes, with which FileIO, and whether requests may be throttled


#: Schemes of stores that limit requests by prefix.
_OBJECT_STORES = {
    "s3": "Amazon S3",
    "s3a": "Amazon S3",
    "s3n": "Amazon S3",
    "gs": "Google Cloud Storage",
    "abfs": "Azure",
    "abfss": "Azure",
    "wasb": "Azure",
    "wasbs": "Azure",
    "oss": "OSS",
}
#: Requests per second that S3 allows for one prefix before it splits the prefix ("Best practices design patterns: optimizing Amazon S3 performance").
GETS_PER_SECOND, PUTS_PER_SECOND = 5_500, 3_500
#: A choice: the time of one small request, in seconds; a task slot then makes at most fifty per second.
REQUEST_SECONDS = 0.02
#: The part that LocationProviders adds to a path with write.object-storage.enabled (since 1.7; before: eight hexadecimal digits).
_HASHED = "/[01]{4}/[01]{4}/[01]{4}/[01]{8}/"


@dataclass(frozen=True, slots=True)
class Storage:
    """Where the live files are stored.

    ``prefix_count`` counts the first folders below the data folder, ``largest_prefix_share`` is the share
    of the files in the largest one; ``hashed_share`` of the files have a hash in their path, ``elsewhere_count`` files are
    outside the table's location. ``gets_per_second`` is the most that this session's task slots can request,
    ``puts_per_commit`` the most files that a recent commit added; there is one commit every ``seconds_between_commits`` (median; None with one commit).
    """

    scheme: str
    file_io: str
    is_enabled: bool
    file_count: int
    folder_count: int
    prefix_count: int
    largest_prefix_share: float
    hashed_share: float
    elsewhere_count: int
    gets_per_second: float
    puts_per_commit: int
    seconds_between_commits: float | None

    @property
    def store(self) -> str | None:
        """The object store, None for a file system."""
        return _OBJECT_STORES.get(self.scheme)

    @property
    def is_at_risk(self) -> bool:
        """Tell whether one prefix may get more requests than S3 allows, from its share of the files: in reads, or in a commit's writes."""
        if self.store is None:
            return False
        share = (1 - self.hashed_share) * self.largest_prefix_share
        # A commit cannot write files faster than its task slots.
        puts_per_second = min(float(self.puts_per_commit), self.gets_per_second)
        return self.gets_per_second * share > GETS_PER_SECOND or puts_per_second * share > PUTS_PER_SECOND


def look(spark: SparkSession, table: Identifier, facts: TableFacts, *, slots: int, file_io: str) -> Storage:
    """Count files by prefix, in Spark; ``table`` includes its catalog."""
    data = facts.properties.get("write.data.path") or f"{facts.location.rstrip('/')}/data"
    folder = "regexp_extract(file_path, '^(.*)/[^/]+$', 1)"
    # The part after the data folder, up to the next slash; files outside it count by their own folder.
    inside = f"startswith(file_path, {literal(data + '/')})"
    rest = f"substring(file_path, {len(data) + 2})"
    # Files of an unpartitioned table are directly in the data folder: one prefix.
    prefix = f"CASE WHEN NOT {inside} THEN {folder} WHEN instr({rest}, '/') > 0 THEN split_part({rest}, '/', 1) ELSE '' END"
    row = spark.sql(
        f"WITH f AS (SELECT {folder} AS folder, {prefix} AS prefix, file_path RLIKE {literal(_HASHED)} AS hashed, "
        f"NOT startswith(file_path, {literal(facts.location.rstrip('/') + '/')}) AS elsewhere FROM {metadata_table_sql(spark, table, 'files')}), "
        "g AS (SELECT prefix, count(*) AS n, count(DISTINCT folder) AS folders, count_if(hashed) AS hashed, count_if(elsewhere) AS elsewhere "
        "FROM f GROUP BY prefix) "
        "SELECT coalesce(sum(n), 0) AS n, coalesce(sum(folders), 0) AS folders, count(*) AS prefixes, coalesce(max(n), 0) AS largest, "
        "coalesce(sum(hashed), 0) AS hashed, coalesce(sum(elsewhere), 0) AS elsewhere FROM g"
    ).collect()[0]
    files = int(row.n)
    added = [(c.added_data_files or 0) + (c.added_delete_files or 0) for c in facts.history.commits]
    return Storage(
        scheme=_scheme(facts.location),
        file_io=file_io,
        is_enabled=(facts.properties.get("write.object-storage.enabled") or "false").lower() == "true",
        file_count=files,
        folder_count=int(row.folders),
        prefix_count=int(row.prefixes),
        largest_prefix_share=int(row.largest) / files if files else 0.0,
        hashed_share=int(row.hashed) / files if files else 0.0,
        elsewhere_count=int(row.elsewhere),
        gets_per_second=slots / REQUEST_SECONDS,
        puts_per_commit=max(added, default=0),
        seconds_between_commits=facts.history.median_seconds_between_commits,
    )


def _scheme(location: str) -> str:
    found = re.match(r"([a-z][a-z0-9+.-]*):", location, re.I)
    return found[1].lower() if found else "file"


# --- Read the inputs of the decision from the session and the table


_SESSION = {"data": "spark.sql.iceberg.data-planning-mode", "delete": "spark.sql.iceberg.delete-planning-mode"}
_PROPERTY = {"data": "read.data-planning-mode", "delete": "read.delete-planning-mode"}


def circumstances(spark: SparkSession, facts: TableFacts) -> Circumstances:
    """The inputs with which Iceberg would plan a full scan of the table in this session."""
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext._jsc.sc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    state: Any = spark._jsparkSession.sessionState()
    parallelism = int(context.defaultParallelism())
    return Circumstances(
        data=ManifestsRead(facts.manifests.data_count, facts.manifests.data_bytes),
        deletes=ManifestsRead(facts.manifests.delete_count, facts.manifests.delete_bytes),
        may_have_equality_deletes=bool(facts.equality_delete_partitions),
        threads=int(jvm.org.apache.iceberg.util.ThreadPools.WORKER_THREAD_POOL_SIZE),
        parallelism=max(parallelism, int(state.conf().numShufflePartitions())),
        slots=cluster_of(spark).tasks,
        max_result_bytes=int(context.conf().getSizeAsBytes("spark.driver.maxResultSize", "1G")),
        data_mode=_mode(spark, facts, "data"),
        delete_mode=_mode(spark, facts, "delete"),
        driver_cores=int(runtime.availableProcessors()),
        driver_heap_bytes=int(runtime.maxMemory()),
    )


def _mode(spark: SparkSession, facts: TableFacts, kind: str) -> InForce:
    return in_force(
        _PROPERTY[kind],
        session=[(_SESSION[kind], session_value(spark, _SESSION[kind]))],
        properties=[(_PROPERTY[kind], facts.properties.get(_PROPERTY[kind]))],
        default=("the default", "auto"),
    )


def file_io(spark: SparkSession, table: Identifier) -> str:
    """The class with which Iceberg reads and writes the table's files (``S3FileIO``, ``HadoopFileIO``)."""
    return str(load_table(spark, table).io().getClass().getSimpleName())
