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
from icekit.common.commands.tune import PlanningOptions
from icekit.common.sql import Identifier, identifier, literal
from icekit.common.units import capitalized, count, elapsed, percent, plain_number, size
from icekit.common.view import COUNT, NUMBER, SECONDS
from icekit.engine.bridge import load_table, temporary_settings
from icekit.engine.cluster import cluster_of
from icekit.engine.metadata_tables import metadata_table_sql
from icekit.engine.planner import is_scan_of, query_execution, walk_plan
from icekit.health.facts.model import TableFacts
from icekit.sandbox.trial import Sandbox, Trial
from icekit.tune import ddl
from icekit.tune.answer import (
    Answer,
    Change,
    Measure,
    Measurements,
    SettingInForce,
    property_and_session_changes,
    property_change,
    setting_in_force,
)
from icekit.tune.experiment import Experiment, Figures, mean_plan_figures, set_up_nothing
from icekit.tune.filters import SqlFilters
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
    query_filters = read_filters(lake, facts, options.filters, options.event_log)
    sql_filters = query_filters.sql_filters(lake, facts, _MOST_FILTERS)
    experiment = Experiment(
        trial=trial,
        variants={
            NOW: set_up_nothing,
            LOCAL: set_up_nothing,
            DISTRIBUTED: set_up_nothing,
            REWRITTEN: _rewrite_manifests,
        },
        measures=_MEASURES,
    )
    with experiment.open():
        planning_workload = partial(_measure_planning, sql_filters=sql_filters)
        experiment.measure("the planning", planning_workload, min_rounds=options.repeats + 1)
    default_mode_setting = SettingInForce(_MODE, "auto", "the default")
    mode_setting = setting_in_force(spark, facts, _SESSION_MODE, _MODE, default_mode_setting)
    measurements = experiment.measurements
    changes = (
        *planning_mode_changes(facts, measurements, mode_setting),
        manifests_change(facts, measurements),
        object_storage_change(facts, storage_of(spark, facts, lake.sql_name(facts.table))),
    )
    unknown_filters_note = (
        ""
        if sql_filters
        else " The filters of your queries are not known: full scans were planned."
    )
    proposed_by_setting = {
        change.setting: change.proposed for change in changes if change.is_change
    }
    advised_variant = (
        REWRITTEN if MANIFESTS in proposed_by_setting else proposed_by_setting.get(_MODE)
    )
    return experiment.answer(
        "planning",
        _planning_verdict(measurements, changes, advised_variant) + unknown_filters_note,
        changes,
        (*query_filters.notes, _session_note(spark)),
        advised=advised_variant,
    )


def _rewrite_manifests(box: Sandbox) -> None:
    box.run(ddl.rewrite_manifests_sql(box.name), expected_bytes=box.observe().manifests.data_bytes)


def _measure_planning(variant: str, box: Sandbox, sql_filters: SqlFilters) -> Figures:
    """Count the manifests that each filter opens (a full scan without filters), and time a full
    scan as Spark plans it.
    """
    facts = box.observe()
    mean_opened_manifests = mean_plan_figures(box, sql_filters)["manifests"]
    figures = {OPENED: mean_opened_manifests, MANIFESTS: facts.manifests.data_count}
    if facts.data.file_count <= _MOST_FILES:
        is_planning_mode = variant in (LOCAL, DISTRIBUTED)
        mode_settings = (
            dict.fromkeys((_SESSION_MODE, _SESSION_DELETE_MODE), variant)
            if is_planning_mode
            else {}
        )
        with (
            box.budget.cancel_jobs_when_spent(box.lake.spark),
            temporary_settings(box.lake.spark, mode_settings),
        ):
            figures[PLANNING] = _seconds_to_plan(box.lake.spark, box.name)
    return figures


def _seconds_to_plan(spark: SparkSession, table: Identifier) -> float:
    # Spark plans the scan during optimization, to estimate its size.
    start_seconds = time.monotonic()
    execution = query_execution(spark, f"SELECT * FROM {identifier(*table)}")
    iceberg_scan = next(
        n.scan() for n in walk_plan(execution.executedPlan()) if is_scan_of(n, table)
    )
    iceberg_scan.toBatch().planInputPartitions()
    return time.monotonic() - start_seconds


def _session_note(spark: SparkSession) -> str:
    jvm: Any = spark._jvm
    jvm_runtime = jvm.java.lang.Runtime.getRuntime()
    planning_thread_count = int(jvm.org.apache.iceberg.util.ThreadPools.WORKER_THREAD_POOL_SIZE)
    spark_context: Any = spark.sparkContext._jsc.sc()
    max_result_bytes = int(spark_context.conf().getSizeAsBytes("spark.driver.maxResultSize", "1G"))
    # The limit: ``BaseDistributedDataScan``.
    return (
        f"The driver has {count(int(jvm_runtime.availableProcessors()), 'core')}, "
        f"{size(int(jvm_runtime.maxMemory()))} of heap and "
        f"{count(planning_thread_count, 'planning thread')} (iceberg.worker.num-threads); "
        f"spark.driver.maxResultSize is {size(max_result_bytes)}: Iceberg plans in the driver "
        "below 256 MiB."
    )


def _saves_time(measurements: Measurements, variant: str) -> bool:
    planning_seconds_pair = measurements.figure_pair(PLANNING, NOW, variant)
    if planning_seconds_pair is None:
        return False
    seconds_now, seconds_after = planning_seconds_pair
    return seconds_now - seconds_after >= max(_SECONDS, _GAIN * seconds_now)


def planning_mode_changes(
    facts: TableFacts, measurements: Measurements, mode_setting: SettingInForce
) -> list[Change]:
    """Plan in the other place where that saves a quarter of the time and a second; a session's
    setting takes precedence.
    """
    mode_now = mode_setting.value or "auto"
    planning_seconds_pair = measurements.figure_pair(PLANNING, LOCAL, DISTRIBUTED)
    if planning_seconds_pair is None:
        return [Change(_MODE, mode_now, mode_now, "The planning modes were not measured.")]
    local_seconds, distributed_seconds = planning_seconds_pair
    times_sentence = (
        f"A full scan is planned in {elapsed(local_seconds)} in the driver and in "
        f"{elapsed(distributed_seconds)} on the executors"
    )
    best_mode = LOCAL if local_seconds <= distributed_seconds else DISTRIBUTED
    if not _saves_time(measurements, best_mode):
        return [Change(_MODE, mode_now, mode_now, f"{times_sentence}.")]
    property_names = (_DELETE_MODE, _MODE) if facts.has_deletes else (_MODE,)
    properties = dict.fromkeys(property_names, best_mode)
    why = f"{times_sentence}; it is {mode_now} now ({mode_setting.origin})."
    return property_and_session_changes(facts, mode_setting, properties, why, now=mode_now)


def manifests_change(facts: TableFacts, measurements: Measurements) -> Change:
    """Rewrite the manifests where a query then opens half as many and planning takes a second
    less.
    """
    manifests_now_text = f"{facts.manifests.data_count:,}, {size(facts.manifests.data_bytes)}"
    no_change_because = partial(Change, MANIFESTS, manifests_now_text, manifests_now_text)
    opened_count_pair = measurements.figure_pair(OPENED, NOW, REWRITTEN)
    manifest_count_after = measurements.value(REWRITTEN, MANIFESTS)
    if opened_count_pair is None or manifest_count_after is None:
        return no_change_because("A rewrite of the manifests was not tried.")
    opened_count_now, opened_count_after = opened_count_pair
    why = (
        f"A query opens {plain_number(opened_count_now)} of {facts.manifests.data_count:,} data "
        f"manifests now and {plain_number(opened_count_after)} of {manifest_count_after:,} after "
        "a rewrite"
    )
    has_far_fewer_opens = opened_count_now - opened_count_after >= max(
        _MANIFESTS_SAVED, opened_count_now / 2
    )
    if not (has_far_fewer_opens and _saves_time(measurements, REWRITTEN)):
        return no_change_because(
            f"{why}. A rewrite is advised if that is half or less, and saves {_SECONDS:g} s or "
            "more of planning."
        )
    sql = ddl.rewrite_manifests_sql(facts.sql_name)
    return Change(
        MANIFESTS,
        manifests_now_text,
        f"{manifest_count_after:,}",
        f"{why}. The rewrite does not touch data files.",
        (sql,),
    )


@frozen
class TableStorage:
    """Where the live files are: ``largest_prefix_share`` of them under one prefix of the data
    folder; ``file_io_class`` is the name of the class that reads them.

    ``max_gets_per_second`` is the most that this session's task slots request.
    """

    scheme: str
    file_io_class: str
    largest_prefix_share: float
    max_gets_per_second: float

    @property
    def may_be_throttled(self) -> bool:
        """Tell whether one prefix of an object store may get more requests than S3 allows, from its
        share of the files.
        """
        prefix_gets_per_second = self.max_gets_per_second * self.largest_prefix_share
        return self.scheme in _OBJECT_STORES and prefix_gets_per_second > _GETS_PER_SECOND


def storage_of(spark: SparkSession, facts: TableFacts, table: Identifier) -> TableStorage:
    """Count the files by prefix, in Spark; ``table`` includes its catalog."""
    data_location = facts.properties.get("write.data.path") or f"{facts.location.rstrip('/')}/data"
    # The files that are in no folder of the data folder count as one prefix.
    prefix_pattern = literal(rf"^\Q{data_location}\E/([^/]+)/")
    row = spark.sql(
        "SELECT coalesce(max(n) / sum(n), 0) AS share FROM (SELECT count(*) AS n FROM "
        f"{metadata_table_sql(spark, table, 'files')} GROUP BY regexp_extract(file_path, "
        f"{prefix_pattern}, 1))"
    ).collect()[0]
    scheme_match = re.match(r"([a-z][a-z0-9+.-]*):", facts.location, re.I)
    return TableStorage(
        scheme=scheme_match[1].lower() if scheme_match else "file",
        file_io_class=str(load_table(spark, table).io().getClass().getSimpleName()),
        largest_prefix_share=float(row.share),
        max_gets_per_second=cluster_of(spark).cores / _REQUEST_SECONDS,
    )


def object_storage_change(facts: TableFacts, table_storage: TableStorage) -> Change:
    """Spread files over hashed paths where one prefix may get more requests than S3 allows."""
    property_name = "write.object-storage.enabled"
    value_now = (facts.properties.get(property_name) or "false").lower()
    why = (
        f"The table is stored on {table_storage.scheme}: ({table_storage.file_io_class}), "
        f"{percent(table_storage.largest_prefix_share)} of its files under one prefix; this "
        f"session's task slots make at most {table_storage.max_gets_per_second:,.0f} requests per "
        f"second. S3 allows {_GETS_PER_SECOND:,} reads per second for one prefix; file systems "
        "have no such limit."
    )
    if value_now == "true" or not table_storage.may_be_throttled:
        return Change(property_name, value_now, value_now, why)
    side_effect = (
        "new files are no longer in one folder per partition; existing files stay where they are "
        "until they are rewritten"
    )
    return property_change(
        facts, {property_name: "true"}, why, now=value_now, side_effect=side_effect
    )


def _planning_verdict(
    measurements: Measurements, changes: Sequence[Change], advised_variant: str | None
) -> str:
    step_texts = [
        "rewrite the manifests" if c.setting == MANIFESTS else f"set {c.setting} to {c.proposed}"
        for c in changes
        if c.is_change
    ]
    if not step_texts:
        return (
            f"No change. A query opens {plain_number(measurements.value(NOW, OPENED) or 0)} data "
            "manifests."
        )
    return f"{capitalized(' and '.join(step_texts))}{measurements.gain_text(NOW, advised_variant)}."
