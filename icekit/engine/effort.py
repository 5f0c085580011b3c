"""Measure what a block of work costs in a unit that other load on the machine hardly changes: the
CPU time of its tasks where that is all there is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import elements, java_object
from icekit.engine.cluster import is_local
from icekit.engine.interrupting import new_job_tag, tag_jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Seconds that a CPU worked for the tasks: the same on a quiet and on a busy machine.
CPU = "CPU time"
#: Seconds that the tasks took, all of them added up: waiting for the storage is included.
TASKS = "task time"

_WAIT_MILLISECONDS = 60_000


@dataclass(slots=True)
class Effort:
    """What a block of work took: seconds by the clock, and its cost, in seconds of the unit that it
    was measured in.
    """

    seconds: float = 0.0
    cost: float = 0.0


def cost_unit(spark: SparkSession, location: str) -> str:
    """The unit to measure work on a table in, by where its tasks run and where its files are.

    The CPU time of tasks lacks the wait for a remote storage, and on a cluster also the time of the
    threads that read delete files. So it is for a local session with local files; elsewhere the
    time of the tasks counts.
    """
    return CPU if is_local(spark) and location.startswith(("file:", "/")) else TASKS


@contextlib.contextmanager
def measure_effort(spark: SparkSession, unit: str) -> Iterator[Effort]:
    """Measure the block: its clock, and what the Spark jobs that this thread starts in it cost;
    filled in when the block ends.

    Spark keeps the figures of its last 1,000 jobs and stages (``spark.ui.retainedJobs`` and
    ``retainedStages``); older ones of a block count nothing.
    """
    effort = Effort()
    tag = new_job_tag()
    thread_meter = delete_thread_meter(spark) if unit == CPU else None
    start_cpu_nanos = int(thread_meter.cpuNanos()) if thread_meter is not None else 0
    with tag_jobs(spark, tag):
        start_time = time.monotonic()
        yield effort
        effort.seconds = time.monotonic() - start_time
    effort.cost = _task_seconds(spark, tag, unit)
    if thread_meter is not None:
        effort.cost += (int(thread_meter.cpuNanos()) - start_cpu_nanos) / 1e9


def _task_seconds(spark: SparkSession, tag: str, unit: str) -> float:
    """Seconds that the tasks of the jobs with a tag worked."""
    java_context: Any = spark.sparkContext._jsc.sc()
    java_context.listenerBus().waitUntilEmpty(_WAIT_MILLISECONDS)
    status_tracker = java_context.statusTracker()
    status_store = java_context.statusStore()
    job_infos = [
        status_tracker.getJobInfo(job) for job in elements(status_tracker.getJobIdsForTag(tag))
    ]
    stage_ids = {
        stage_id
        for job_info in job_infos
        if job_info.isDefined()
        for stage_id in elements(job_info.get().stageIds())
    }
    stage_attempts = [
        status_store.lastStageAttempt(stage_id)
        for stage_id in stage_ids
        if status_tracker.getStageInfo(stage_id).isDefined()
    ]
    return sum(
        int(a.executorCpuTime()) / 1e9 if unit == CPU else int(a.executorRunTime()) / 1e3
        for a in stage_attempts
    )


def delete_thread_meter(spark: SparkSession) -> Any:
    """What tells the CPU time so far (``cpuNanos``) of the threads of this JVM in which Iceberg
    reads delete files.
    """
    return java_object(spark, spark._jsparkSession, "DeleteThreads")
