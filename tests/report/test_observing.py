"""The observing of one table for a report: its time, and the tag by which its Spark work ends."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from icekit.catalog.lake import in_time
from icekit.engine.interrupting import Stopped
from icekit.errors import IcekitError
from icekit.options.commands import ReportOptions
from icekit.report.observing import observed
from tests.factories import table_facts


class Context:
    """What of a SparkContext the tags need."""

    def __init__(self) -> None:
        self.tags: set[str] = set()
        self.addJobTag, self.removeJobTag = self.tags.add, self.tags.discard


class Session:
    """A session in this process."""

    def __init__(self) -> None:
        self._sc = self.sparkContext = Context()


class Remote:
    """A session of Spark Connect, which has no context; it is known by where its class comes
    from.
    """

    __module__ = "pyspark.sql.connect.session"

    def __init__(self) -> None:
        self.tags: set[str] = set()
        self.addTag, self.removeTag = self.tags.add, self.tags.discard


@pytest.mark.parametrize("seconds", [None, 30])
@pytest.mark.parametrize("session", [Session, Remote])
def test_a_tables_tag_is_on_its_jobs_and_on_no_later_ones(
    session: type[Any], seconds: float | None
) -> None:
    spark = session()
    lake: Any = SimpleNamespace(spark=spark, session_conf=dict)
    tags = spark.sparkContext.tags if session is Session else spark.tags
    seen: list[set[str]] = []

    def collect(taken: Any, *_: object, **__: object) -> Any:
        assert taken.spark is spark
        seen.append(set(tags))
        return table_facts()

    def refused(taken: Any, *_: object, **__: object) -> Any:
        collect(taken)
        raise IcekitError("there is no such table")

    options = ReportOptions.of({"timeout": seconds})
    observed(lake, ("db", "t"), options, collect=collect)
    with pytest.raises(IcekitError):
        observed(lake, ("db", "t"), options, collect=refused)

    assert [len(each) for each in seen] == [1, 1]
    assert tags == set()


def test_work_that_nobody_waits_for_gets_no_spark_and_its_time_is_over_once() -> None:
    lake: Any = SimpleNamespace(spark=Session(), spark_is_running=True)
    told: list[BaseException] = []
    may_go, gone = threading.Event(), threading.Event()

    def work(taken: Any) -> None:
        may_go.wait(600)
        try:
            assert taken.spark
        except BaseException as error:
            told.append(error)
        gone.set()

    with pytest.raises(TimeoutError):
        in_time(lake, 0.05, work)
    may_go.set()
    gone.wait(600)
    assert [type(error) for error in told] == [Stopped]
    assert in_time(lake, None, lambda taken: taken.spark) is lake.spark
