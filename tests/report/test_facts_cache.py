"""The observing of one table for a report: its time, and the tag by which its Spark work ends."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from icekit.common.commands.observe import ReportOptions
from icekit.common.errors import IcekitError
from icekit.engine.interrupting import Stopped
from icekit.engine.lake import run_in_time
from icekit.report.facts_cache import FactsCache
from tests.factories import table_facts


def session(tags: set[str]) -> Any:
    """A session in this process, with what of a SparkContext the tags need."""
    context = SimpleNamespace(
        addJobTag=tags.add, removeJobTag=tags.discard, cancelJobsWithTag=tags.clear
    )
    return SimpleNamespace(_sc=context, sparkContext=context)


def remote_session(tags: set[str]) -> Any:
    """A session of Spark Connect, which has no context; it is known by where its class comes
    from.
    """
    remote = type("Remote", (SimpleNamespace,), {"__module__": "pyspark.sql.connect.session"})
    return remote(addTag=tags.add, removeTag=tags.discard, interruptTag=tags.clear)


@pytest.mark.parametrize("seconds", [None, 30])
@pytest.mark.parametrize("start", [session, remote_session])
def test_a_tables_tag_is_on_its_jobs_and_on_no_later_ones(
    start: Callable[[set[str]], Any], seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags: set[str] = set()
    lake: Any = SimpleNamespace(spark=start(tags), session_conf=dict)
    results = [table_facts(), IcekitError("there is no such table")]
    seen: list[set[str]] = []

    def observe(taken: Any, *_: object, **__: object) -> Any:
        assert taken.spark is lake.spark
        seen.append(set(tags))
        if isinstance(result := results.pop(0), IcekitError):
            raise result
        return result

    monkeypatch.setattr("icekit.report.facts_cache.observe", observe)
    options = ReportOptions.of({"timeout": seconds})
    FactsCache().facts_and_findings(lake, ("db", "t"), options)
    with pytest.raises(IcekitError):
        FactsCache().facts_and_findings(lake, ("db", "t"), options)

    assert [len(each) for each in seen] == [1, 1]
    assert tags == set()


def test_work_that_nobody_waits_for_gets_no_spark_and_its_time_is_over_once() -> None:
    lake: Any = SimpleNamespace(spark=session(set()), spark_is_running=True)
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
        run_in_time(lake, 0.05, work)
    may_go.set()
    gone.wait(600)
    assert [type(error) for error in told] == [Stopped]
    assert run_in_time(lake, None, lambda taken: taken.spark) is lake.spark
