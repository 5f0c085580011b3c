"""Answer how scans of a table are planned and where its files are: planning modes and rewritten
manifests tried, the session's limits stated.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.commands import PlanningOptions
from icekit.common.sql import Identifier, identifier, literal
from icekit.common.units import capitalized, count, elapsed, percent, plain, size
from icekit.common.view import COUNT, NUMBER, SECONDS
from icekit.engine.bridge import load_table, temporary_settings
from icekit.engine.cluster import cluster_of
from icekit.engine.metadata_tables import metadata_table_sql
from icekit.engine.planner import is_scan_of, nodes, query_of
from icekit.health.facts.model import TableFacts
from icekit.sandbox.trial import Sandbox, Trial
from icekit.tune import ddl
from icekit.tune.answer import (
    Answer,
    Change,
    InForce,
    Measure,
    Measurements,
    in_force,
    put_in_force,
    to_set,
)
from icekit.tune.experiment import Experiment, Figures, planned, unchanged
from icekit.tune.filters import Asked
from icekit.tune.queries import read_filters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The variants; the planning modes are called as Iceberg does.
NOW = "now"
LOCAL = "local"
DISTRIBUTED = "distributed"
REWRITTEN = "manifests rewritten"
OPENED = "manifests that a query opens"
PLANNING = "time to plan a full scan"
MANIFESTS = "data manifests"
_MEASURES = (Measure(OPENED, NUMBER), Measure(PLANNING, SECONDS), Measure(MANIFESTS, COUNT))
_MODE = "read.data-planning-mode"
_SESSION_MODE = "spark.sql.iceberg.data-planning-mode"
_DELETE_MODE = "read.delete-planning-mode"
_SESSION_DELETE_MODE = "spark.sql.iceberg.delete-planning-mode"
#: Choices: the share and the seconds of planning that a change must save, and the manifests.
_GAIN = 0.25
_SECONDS = 1.0
_MANIFESTS_SAVED = 8
#: The most filters to plan, those with the greatest weight; and the most files of a scan that
# Spark plans, as it keeps a task for each.
_MOST_FILTERS = 20
_MOST_FILES = 500_000
#: Reads per second that S3 allows for one prefix before it splits it, and a choice: the seconds of
# one small request.
_GETS_PER_SECOND = 5_500
_REQUEST_SECONDS = 0.02
_OBJECT_STORES = frozenset({"s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss"})


def tune_planning(trial: Trial, options: PlanningOptions) -> Answer:
    """Plan full scans and the filters of queries in each planning mode and with rewritten
    manifests, on zero-copy clones.

    ``filters`` (predicates or queries) and a Spark ``event_log`` give the filters of queries;
    without them, the declared columns do. Raises :class:`~icekit.common.errors.ParameterError`.
    """
    lake = trial.lake
    facts = trial.facts
    spark = trial.lake.spark
    queries = read_filters(lake, facts, options.filters, options.event_log)
    asked = queries.asked(lake, facts, _MOST_FILTERS)
    experiment = Experiment(
        trial=trial,
        variants={NOW: unchanged, LOCAL: unchanged, DISTRIBUTED: unchanged, REWRITTEN: _rewrite},
        measures=_MEASURES,
    )
    with experiment.open():
        plan = partial(_plan, asked=asked)
        experiment.measure("the planning", plan, rounds=options.repeats + 1)
    auto = InForce(_MODE, "auto", "the default")
    mode = in_force(spark, facts, _SESSION_MODE, _MODE, auto)
    measured = experiment.measured
    changes = (
        *planning_mode(facts, measured, mode),
        manifests(facts, measured),
        object_storage(facts, storage_of(spark, facts, lake.sql_name(facts.table))),
    )
    unknown = (
        "" if asked else " The filters of your queries are not known: full scans were planned."
    )
    proposed = {change.setting: change.proposed for change in changes if change.is_change}
    advised = REWRITTEN if MANIFESTS in proposed else proposed.get(_MODE)
    return experiment.answer(
        "planning",
        _verdict(measured, changes, advised) + unknown,
        changes,
        (*queries.notes, _session_note(spark)),
        advised=advised,
    )


def _rewrite(box: Sandbox) -> None:
    box.run(ddl.rewrite_manifests(box.name), expected_bytes=box.observe().manifests.data_bytes)


def _plan(variant: str, box: Sandbox, asked: Asked) -> Figures:
    """Count the manifests that each filter opens (a full scan without filters), and time a full
    scan as Spark plans it.
    """
    facts = box.observe()
    opened = planned(box, asked)["manifests"]
    figures = {OPENED: opened, MANIFESTS: facts.manifests.data_count}
    if facts.data.file_count <= _MOST_FILES:
        is_mode = variant in (LOCAL, DISTRIBUTED)
        modes = dict.fromkeys((_SESSION_MODE, _SESSION_DELETE_MODE), variant) if is_mode else {}
        with box.budget.watching(box.lake.spark), temporary_settings(box.lake.spark, modes):
            figures[PLANNING] = _seconds_to_plan(box.lake.spark, box.name)
    return figures


def _seconds_to_plan(spark: SparkSession, table: Identifier) -> float:
    # Spark plans the scan during optimization, to estimate its size.
    started = time.monotonic()
    query = query_of(spark, f"SELECT * FROM {identifier(*table)}")
    scan = next(n.scan() for n in nodes(query.executedPlan()) if is_scan_of(n, table))
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


def planning_mode(facts: TableFacts, measured: Measurements, mode: InForce) -> list[Change]:
    """Plan in the other place where that saves a quarter of the time and a second; a session's
    setting takes precedence.
    """
    now = mode.value or "auto"
    seconds = measured.pair(PLANNING, LOCAL, DISTRIBUTED)
    if seconds is None:
        return [Change(_MODE, now, now, "The planning modes were not measured.")]
    local, distributed = seconds
    times = (
        f"A full scan is planned in {elapsed(local)} in the driver and in {elapsed(distributed)} "
        "on the executors"
    )
    best = LOCAL if local <= distributed else DISTRIBUTED
    if not _saves(measured, best):
        return [Change(_MODE, now, now, f"{times}.")]
    names = (_DELETE_MODE, _MODE) if facts.has_deletes else (_MODE,)
    properties = dict.fromkeys(names, best)
    why = f"{times}; it is {now} now ({mode.origin})."
    return put_in_force(facts, mode, properties, why, now=now)


def manifests(facts: TableFacts, measured: Measurements) -> Change:
    """Rewrite the manifests where a query then opens half as many and planning takes a second
    less.
    """
    existing = f"{facts.manifests.data_count:,}, {size(facts.manifests.data_bytes)}"
    kept = partial(Change, MANIFESTS, existing, existing)
    opened = measured.pair(OPENED, NOW, REWRITTEN)
    number = measured.value(REWRITTEN, MANIFESTS)
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
    sql = ddl.rewrite_manifests(facts.sql_name)
    return Change(
        MANIFESTS, existing, f"{number:,}", f"{why}. The rewrite does not touch data files.", (sql,)
    )


@frozen
class Storage:
    """Where the live files are: ``largest_prefix_share`` of them under one prefix of the data
    folder; ``file_io`` is the class that reads them.

    ``gets_per_second`` is the most that this session's task slots request.
    """

    scheme: str
    file_io: str
    largest_prefix_share: float
    gets_per_second: float

    @property
    def is_at_risk(self) -> bool:
        """Tell whether one prefix of an object store may get more requests than S3 allows, from its
        share of the files.
        """
        gets_per_second = self.gets_per_second * self.largest_prefix_share
        return self.scheme in _OBJECT_STORES and gets_per_second > _GETS_PER_SECOND


def storage_of(spark: SparkSession, facts: TableFacts, table: Identifier) -> Storage:
    """Count the files by prefix, in Spark; ``table`` includes its catalog."""
    data = facts.properties.get("write.data.path") or f"{facts.location.rstrip('/')}/data"
    # The files that are in no folder of the data folder count as one prefix.
    folder = literal(rf"^\Q{data}\E/([^/]+)/")
    row = spark.sql(
        f"SELECT coalesce(max(n) / sum(n), 0) AS share FROM (SELECT count(*) AS n FROM "
        f"{metadata_table_sql(spark, table, 'files')} GROUP BY regexp_extract(file_path, {folder}, "
        "1))"
    ).collect()[0]
    scheme = re.match(r"([a-z][a-z0-9+.-]*):", facts.location, re.I)
    return Storage(
        scheme=scheme[1].lower() if scheme else "file",
        file_io=str(load_table(spark, table).io().getClass().getSimpleName()),
        largest_prefix_share=float(row.share),
        gets_per_second=cluster_of(spark).cores / _REQUEST_SECONDS,
    )


def object_storage(facts: TableFacts, storage: Storage) -> Change:
    """Spread files over hashed paths where one prefix may get more requests than S3 allows."""
    name = "write.object-storage.enabled"
    now = (facts.properties.get(name) or "false").lower()
    why = (
        f"The table is stored on {storage.scheme}: ({storage.file_io}), "
        f"{percent(storage.largest_prefix_share)} of its files under one prefix; this session's "
        f"task slots make at most {storage.gets_per_second:,.0f} requests per second. S3 allows "
        f"{_GETS_PER_SECOND:,} reads per second for one prefix; file systems have no such limit."
    )
    if now == "true" or not storage.is_at_risk:
        return Change(name, now, now, why)
    effect = (
        "new files are no longer in one folder per partition; existing files stay where they are "
        "until they are rewritten"
    )
    return to_set(facts, {name: "true"}, why, now=now, side_effect=effect)


def _verdict(measured: Measurements, changes: Sequence[Change], advised: str | None) -> str:
    steps = [
        "rewrite the manifests" if c.setting == MANIFESTS else f"set {c.setting} to {c.proposed}"
        for c in changes
        if c.is_change
    ]
    if not steps:
        return f"No change. A query opens {plain(measured.value(NOW, OPENED) or 0)} data manifests."
    return f"{capitalized(' and '.join(steps))}{measured.gain(NOW, advised)}."
