"""Spark's work is cancelled by its tag, from another thread, and nobody else's with it."""

import threading
from pathlib import Path

import pytest

import icekit
from icekit.api import Lake
from icekit.engine.interrupting import act_on_request, cancel_jobs, new_job_tag, tag_jobs

#: Hours of work, if nobody cancels it.
ENDLESS = "SELECT sum(hash(a.id, b.id)) FROM range(10000000) a CROSS JOIN range(10000000) b"


def test_one_place_knows_how_to_cancel() -> None:
    package = Path(icekit.__file__).parent
    known = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if "cancelJobsWithTag" in path.read_text()
    }

    assert known == {"engine/interrupting.py"}


@pytest.mark.spark
def test_work_is_cancelled_from_another_thread_and_other_work_is_not(lake: Lake) -> None:
    spark, asked = lake.spark, threading.Event()
    tag = new_job_tag()
    timer = threading.Timer(1.0, asked.set)
    timer.start()

    with (
        pytest.raises(Exception, match=r"(?i)cancel"),
        tag_jobs(spark, tag),
        act_on_request(asked.is_set, lambda: cancel_jobs(spark, tag)),
    ):
        spark.sql(ENDLESS).collect()

    assert asked.is_set()
    assert tag not in spark.sparkContext.getJobTags()
    cancel_jobs(spark, tag)
    assert spark.range(3).count() == 3


@pytest.mark.spark
def test_a_tag_is_gone_also_after_an_error(lake: Lake) -> None:
    tag = new_job_tag()

    with pytest.raises(ZeroDivisionError), tag_jobs(lake.spark, tag):
        raise ZeroDivisionError(lake.spark.sparkContext.getJobTags())

    assert tag not in lake.spark.sparkContext.getJobTags()
