"""Answer how scans of a table are planned and where its files are: planning modes and rewritten
manifests tried, the session's limits stated.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from icekit.answer.grid import COUNT, NUMBER, SECONDS
from icekit.engine.bridge import lent, load_table, session_value
from icekit.engine.cluster import cluster_of
from icekit.engine.metadata_tables import metadata_table_sql
from icekit.engine.planner import is_scan_of, nodes, query_of
from icekit.errors import StatementRefused
from icekit.facts.model import TableFacts
from icekit.options.commands import PlanningOptions
from icekit.sandbox.trial import Sandbox, Trial
from icekit.sql import Identifier, call, display_name, identifier, literal
from icekit.tune.answer import (
    Answer,
    Change,
    InForce,
    Measure,
    Measurements,
    in_force,
    overriding,
    to_set,
)
from icekit.tune.experiment import Experiment, Figures, mean, unchanged
from icekit.tune.filters import Asked, leaves
from icekit.tune.queries import read_filters, sample
from icekit.units import count, elapsed, percent, plain, raised, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW, LOCAL, DISTRIBUTED, REWRITTEN = (
    "now",
    "in the driver",
    "on the executors",
    "manifests rewritten",
)
OPENED, PLANNING, MANIFESTS = (
    "manifests that a query opens",
    "time to plan a full scan",
    "data manifests",
)
_MEASURES = (Measure(OPENED, NUMBER), Measure(PLANNING, SECONDS), Measure(MANIFESTS, COUNT))
_MODES = {LOCAL: "local", DISTRIBUTED: "distributed"}
_MODE, _SESSION_MODE = "read.data-planning-mode", "spark.sql.iceberg.data-planning-mode"
_DELETE_MODE, _SESSION_DELETE_MODE = (
    "read.delete-planning-mode",
    "spark.sql.iceberg.delete-planning-mode",
)
#: Choices: the share and the seconds of planning that a change must save, and the manifests.
_GAIN, _SECONDS, _MANIFESTS_SAVED = 0.25, 1.0, 8
#: The most filters to plan, those with the greatest weight; and the most files of a scan that
# Spark plans, as it keeps a task for each.
_MOST_FILTERS, _MOST_FILES = 20, 500_000
#: Requests per second that S3 allows for one prefix before it splits it, and a choice: the seconds
# of one small request.
_GETS_PER_SECOND, _PUTS_PER_SECOND, _REQUEST_SECONDS = 5_500, 3_500, 0.02
_OBJECT_STORES = frozenset({"s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss"})
#: What LocationProviders adds to a path with write.object-storage.enabled (since 1.7).
_HASHED = "/[01]{4}/[01]{4}/[01]{4}/[01]{8}/"


def tune_planning(trial: Trial, options: PlanningOptions) -> Answer:
    """Plan full scans and the filters of queries in each planning mode and with rewritten
    manifests, on zero-copy clones.

    ``filters`` (predicates or queries) and a Spark ``event_log`` give the filters of queries;
    without them, the declared columns do. Raises :class:`~icekit.errors.ParameterError`.
    """
    lake, facts, spark = trial.lake, trial.facts, trial.lake.spark
    queries = read_filters(lake, facts, options.filters, options.event_log)
    unbound = [leaf for f in queries.filters for leaf in leaves(f.tree) if not leaf.is_bound]
    drawn = sample(lake, facts, sorted({leaf.column for leaf in unbound}))
    asked = queries.asked(drawn, facts.by_name, _MOST_FILTERS)
    rewrite = partial(_rewrite_manifests, size_in_bytes=facts.manifests.data_bytes)
    experiment = Experiment(
        trial=trial,
        variants={NOW: unchanged, LOCAL: unchanged, DISTRIBUTED: unchanged, REWRITTEN: rewrite},
        measures=_MEASURES,
    )
    with experiment.open():
        plan = partial(_plan, asked=asked)
        experiment.measure("the planning", plan, rounds=options.repeats + 1)
    mode = in_force(
        (_SESSION_MODE, session_value(spark, _SESSION_MODE)),
        (_MODE, facts.properties.get(_MODE)),
        ("the default", "auto"),
    )
    measured = experiment.measured
    changes = (
        *planning_mode(facts, measured, mode),
        manifests(facts, measured),
        object_storage(facts, storage_of(spark, facts, lake.sql_name(facts.table))),
    )
    unknown = (
        "" if asked else " The filters of your queries are not known: full scans were planned."
    )
    return experiment.answer(
        "planning",
        _verdict(measured, changes) + unknown,
        changes,
        (*queries.notes, _session_note(spark)),
        advised=_advised(changes),
    )


def _rewrite_manifests(box: Sandbox, size_in_bytes: int) -> None:
    box.run(
        call(box.lake.name, "rewrite_manifests", table=display_name(box.table)),
        expected_bytes=size_in_bytes,
    )
    # The snapshot counts files, but not the manifests that were written.
    box.budget.bytes_written += size_in_bytes


def _plan(variant: str, box: Sandbox, asked: Asked) -> Figures:
    """Count the manifests that each filter opens (a full scan without filters), and time a full
    scan as Spark plans it.
    """
    facts = box.observe()
    opened = [(f.weight, box.plan(where).manifests) for f, where in asked]
    opened = opened or [(1.0, box.plan().manifests)]
    figures = {OPENED: mean(opened), MANIFESTS: facts.manifests.data_count}
    if facts.data.file_count <= _MOST_FILES:
        mode = _MODES.get(variant)
        settings = dict.fromkeys((_SESSION_MODE, _SESSION_DELETE_MODE), mode) if mode else {}
        with box.budget.watching(box.lake.spark), lent(box.lake.spark, settings):
            figures[PLANNING] = _seconds_to_plan(box.lake.spark, box.name)
    return figures


def _seconds_to_plan(spark: SparkSession, table: Identifier) -> float:
    # Spark plans the scan during optimization, to estimate its size.
    started = time.monotonic()
    query = query_of(spark, f"SELECT * FROM {identifier(*table)}")
    scan = next((n.scan() for n in nodes(query.executedPlan()) if is_scan_of(n, table)), None)
    if scan is None:
        raise StatementRefused(
            "Spark plans a full scan without reading the table, so there is nothing to measure."
        )
    scan.toBatch().planInputPartitions()
    return time.monotonic() - started


def _session_note(spark: SparkSession) -> str:
    jvm: Any = spark._jvm
    runtime = jvm.java.lang.Runtime.getRuntime()
    threads = int(jvm.org.apache.iceberg.util.ThreadPools.WORKER_THREAD_POOL_SIZE)
    context: Any = spark.sparkContext._jsc.sc()
    result_bytes = int(context.conf().getSizeAsBytes("spark.driver.maxResultSize", "1G"))
    # The limit: ``BaseDistributedDataScan``.
    return (
        f"The driver has {count(int(runtime.availableProcessors()), 'core')}, "
        f"{size(int(runtime.maxMemory()))} of heap and {count(threads, 'planning thread')} "
        f"(iceberg.worker.num-threads); spark.driver.maxResultSize is {size(result_bytes)}: Iceberg "
        "plans in the driver below 256 MiB."
    )


def _saves(measured: Measurements, after: str) -> bool:
    seconds = measured.pair(PLANNING, NOW, after)
    return seconds is not None and seconds[0] - seconds[1] >= max(_SECONDS, _GAIN * seconds[0])


def planning_mode(facts: TableFacts, measured: Measurements, mode: InForce) -> tuple[Change, ...]:
    """Plan in the other place where that saves a quarter of the time and a second; a session's
    setting takes precedence.
    """
    now = mode.value or "auto"
    seconds = measured.pair(PLANNING, LOCAL, DISTRIBUTED)
    if seconds is None:
        return (Change(_MODE, now, now, "The planning modes were not measured."),)
    local, distributed = seconds
    times = (
        f"A full scan is planned in {elapsed(local)} in the driver and in {elapsed(distributed)} "
        "on the executors"
    )
    best = LOCAL if local <= distributed else DISTRIBUTED
    if not _saves(measured, best):
        return (Change(_MODE, now, now, f"{times}."),)
    properties = {
        **({_DELETE_MODE: _MODES[best]} if facts.has_deletes else {}),
        _MODE: _MODES[best],
    }
    change = to_set(facts, properties, f"{times}; it is {now} now ({mode.origin}).", now=now)
    return (change, *overriding(mode))


def manifests(facts: TableFacts, measured: Measurements) -> Change:
    """Rewrite the manifests where a query then opens half as many and planning takes a second
    less.
    """
    existing = f"{facts.manifests.data_count:,}, {size(facts.manifests.data_bytes)}"
    kept = partial(Change, MANIFESTS, existing, existing)
    opened, number = measured.pair(OPENED, NOW, REWRITTEN), measured.value(REWRITTEN, MANIFESTS)
    if opened is None or number is None:
        return kept("A rewrite of the manifests was not tried.")
    before, after = opened
    why = (
        f"A query opens {plain(before)} of {facts.manifests.data_count:,} data manifests now and "
        f"{plain(after)} of {number:,} after a rewrite"
    )
    is_less = before - after >= max(_MANIFESTS_SAVED, before / 2)
    if not (is_less and _saves(measured, REWRITTEN)):
        return kept(
            f"{why}. A rewrite is advised if that is half or less, and saves {_SECONDS:g} s or more "
            "of planning."
        )
    sql = call(facts.catalog, "rewrite_manifests", table=display_name(facts.table))
    return Change(
        MANIFESTS, existing, f"{number:,}", f"{why}. The rewrite does not touch data files.", (sql,)
    )


@dataclass(frozen=True, slots=True)
class Storage:
    """Where the live files are: ``largest_prefix_share`` of them under one prefix of the data
    folder, ``hashed_share`` with a hash in their path; ``file_io`` is the class that reads them.

    ``gets_per_second`` is the most that this session's task slots request, ``puts_per_commit`` the
    most files that a recent commit added.
    """

    scheme: str
    file_io: str
    file_count: int
    largest_prefix_share: float
    hashed_share: float
    gets_per_second: float
    puts_per_commit: int

    @property
    def is_at_risk(self) -> bool:
        """Tell whether one prefix of an object store may get more requests than S3 allows, from its
        share of the files.
        """
        share = (1 - self.hashed_share) * self.largest_prefix_share
        puts_per_second = min(float(self.puts_per_commit), self.gets_per_second)
        is_above = (
            self.gets_per_second * share > _GETS_PER_SECOND
            or puts_per_second * share > _PUTS_PER_SECOND
        )
        return self.scheme in _OBJECT_STORES and is_above


def storage_of(spark: SparkSession, facts: TableFacts, table: Identifier) -> Storage:
    """Count the files by prefix, in Spark; ``table`` includes its catalog."""
    data = facts.properties.get("write.data.path") or f"{facts.location.rstrip('/')}/data"
    rest = f"substring(file_path, {len(data) + 2})"
    # Files directly in the data folder share one prefix; those outside it count by their own
    # folder.
    prefix = (
        f"CASE WHEN NOT startswith(file_path, {literal(data + '/')}) THEN "
        f"regexp_extract(file_path, '^(.*)/[^/]+$', 1) WHEN instr({rest}, '/') > 0 THEN "
        f"split_part({rest}, '/', 1) ELSE '' END"
    )
    row = spark.sql(
        f"WITH g AS (SELECT count(*) AS n, count_if(file_path RLIKE {literal(_HASHED)}) AS hashed "
        f"FROM {metadata_table_sql(spark, table, 'files')} GROUP BY {prefix}) SELECT "
        "coalesce(sum(n), 0) AS n, coalesce(max(n), 0) AS largest, coalesce(sum(hashed), 0) AS "
        "hashed FROM g"
    ).collect()[0]
    files = int(row.n)
    scheme = re.match(r"([a-z][a-z0-9+.-]*):", facts.location, re.I)
    return Storage(
        scheme=scheme[1].lower() if scheme else "file",
        file_io=str(load_table(spark, table).io().getClass().getSimpleName()),
        file_count=files,
        largest_prefix_share=int(row.largest) / max(files, 1),
        hashed_share=int(row.hashed) / max(files, 1),
        gets_per_second=cluster_of(spark).tasks / _REQUEST_SECONDS,
        puts_per_commit=max(
            (
                (c.added_data_files or 0) + (c.added_delete_files or 0)
                for c in facts.history.commits
            ),
            default=0,
        ),
    )


def object_storage(facts: TableFacts, storage: Storage) -> Change:
    """Spread files over hashed paths where one prefix may get more requests than S3 allows."""
    name = "write.object-storage.enabled"
    now = (facts.properties.get(name) or "false").lower()
    stored = f"The table is stored on {storage.scheme}: ({storage.file_io})"
    why = f"{stored}, which does not throttle requests by prefix."
    if storage.scheme in _OBJECT_STORES:
        why = (
            f"{stored}: {percent(storage.largest_prefix_share)} of "
            f"{count(storage.file_count, 'file')} are under one prefix, "
            f"{percent(storage.hashed_share)} have a hash in their path; this session's task slots "
            f"make at most {storage.gets_per_second:,.0f} requests per second, and S3 allows "
            f"{_GETS_PER_SECOND:,} reads and {_PUTS_PER_SECOND:,} writes for one prefix."
        )
    if now == "true" or not storage.is_at_risk:
        return Change(name, now, now, why)
    effect = (
        "new files are no longer in one folder per partition; existing files stay where they are "
        "until they are rewritten"
    )
    return to_set(facts, {name: "true"}, why, now=now, side_effect=effect)


def _advised(changes: Sequence[Change]) -> str | None:
    """The variant with the changes, as far as one was tried."""
    proposed = {change.setting: change.proposed for change in changes if change.is_change}
    if MANIFESTS in proposed:
        return REWRITTEN
    return next((name for name, mode in _MODES.items() if mode == proposed.get(_MODE)), None)


def _verdict(measured: Measurements, changes: Sequence[Change]) -> str:
    steps = [
        "rewrite the manifests" if c.setting == MANIFESTS else f"set {c.setting} to {c.proposed}"
        for c in changes
        if c.is_change
    ]
    opened, seconds = measured.value(NOW, OPENED), measured.value(NOW, PLANNING)
    if not steps:
        opens = "" if opened is None else f" A query opens {plain(opened)} data manifests."
        timed = "" if seconds is None else f" A full scan is planned in {elapsed(seconds)}."
        return f"No change.{opens}{timed}"
    return f"{raised(' and '.join(steps))}{measured.gain(NOW, _advised(changes))}."
