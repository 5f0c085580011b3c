"""A pass that is asked to end by a signal ends as stopped, whatever breaks on the way out, and the
next one goes on.
"""

import logging
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from py4j import java_gateway
from py4j.protocol import Py4JError, Py4JNetworkError

from icekit.api import Lake
from icekit.common.errors import EXIT_STOPPED, CatalogUnreachable, Status
from icekit.engine.interrupting import (
    Ending,
    Stop,
    Stopped,
    _is_not_from_py4j,
    keep_interrupt_handler,
    sigterm_as_interrupt,
    stop_on_request,
)
from icekit.engine.lake import close_at_end
from icekit.maintain.run.outcome import ActionOutcome, Outcome
from icekit.report.schedule.one_pass import run_policy
from icekit.rows.proof.proof import Check, Proof
from tests.report.schedule.lakes import PLAN, REWRITE, lake, passing, policy

__all__ = ["lake"]

#: What py4j and Spark raise when the JVM is gone, or a call was cut short in the middle of its
# answer.
BROKEN = [
    Py4JNetworkError("Answer from Java side is empty"),
    Py4JError("An error occurred while calling o0.stop"),
    ConnectionRefusedError(111, "Connection refused"),
    ConnectionResetError(104, "Connection reset by peer"),
    AttributeError("'NoneType' object has no attribute 'sc'"),
    TypeError("'JavaPackage' object is not callable"),
    CatalogUnreachable("The catalog did not answer; try again."),
]


@pytest.fixture(autouse=True)
def _py4j_is_heard_again() -> Iterator[None]:
    """What is asked to end hushes py4j for the rest of the process, unless a block is around it."""
    logger, root = logging.getLogger("py4j"), logging.getLogger()
    level = logger.level
    logger.setLevel(logging.NOTSET)
    root.removeFilter(_is_not_from_py4j)
    with warnings.catch_warnings():
        yield
    logger.setLevel(level)
    root.removeFilter(_is_not_from_py4j)


def asked() -> Ending:
    ending = Ending()
    with pytest.raises(KeyboardInterrupt):
        ending.request()
    return ending


def test_a_signal_that_python_has_dropped_is_noticed_at_the_next_step_and_a_later_one_breaks_into_nothing() -> (
    None
):
    ending = asked()
    with pytest.raises(KeyboardInterrupt):
        ending.check()
    ending.acknowledge()
    ending.check()
    ending.request()
    Ending().check()


def test_a_block_within_another_shares_its_ending() -> None:
    with sigterm_as_interrupt() as outer:
        with pytest.raises(KeyboardInterrupt), sigterm_as_interrupt() as inner:
            signal.raise_signal(signal.SIGTERM)
        assert inner is outer
        assert outer.is_requested


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises, as where Python begins."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_is_noted_too_also_a_second_one_and_is_left_alone_where_it_has_another_way() -> None:
    with sigterm_as_interrupt() as ending:
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            ending.acknowledge()
        assert ending.is_requested
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with sigterm_as_interrupt() as ending:
        signal.raise_signal(signal.SIGINT)
        assert not ending.is_requested


@pytest.mark.usefixtures("interruptible")
def test_a_block_keeps_its_handler_for_ctrl_c_when_spark_starts_with_one_of_its_own() -> None:
    with sigterm_as_interrupt() as ending:
        with keep_interrupt_handler():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert ending.is_requested
    with keep_interrupt_handler():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN, "in no block, Spark's is left alone"


@pytest.mark.parametrize("error", BROKEN, ids=lambda e: type(e).__name__)
def test_spark_that_is_gone_is_no_bug_when_it_was_asked_to_go(error: Exception) -> None:
    lake = Mock(**{"close.side_effect": error})
    close_at_end(lake, asked())
    assert not asked().explains(SystemExit(2))
    with pytest.raises(type(error)):
        close_at_end(lake, Ending())


def test_py4j_says_nothing_more_of_a_jvm_that_was_asked_to_go(
    caplog: pytest.LogCaptureFixture,
) -> None:
    close_at_end(Mock(**{"close.side_effect": BROKEN[0]}), asked())
    own = {"pathname": java_gateway.__file__, "levelno": logging.ERROR, "msg": "of py4j itself"}
    # What earlier tests left to the garbage collector may log now too.
    with caplog.at_level(logging.ERROR):
        logging.getLogger().handle(logging.makeLogRecord(own))
        logging.getLogger("py4j.clientserver").error("of py4j's logger")
        logging.getLogger().error("of another's")

    assert "of another's" in caplog.messages
    assert not any(message.startswith("of py4j") for message in caplog.messages)


def test_spark_that_does_not_stop_is_left_to_the_end_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("icekit.engine.lake._GOING_SECONDS", 0.1)
    hanging, ended = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.wait(600)
        ended.set()

    close_at_end(Mock(close=hang), asked())
    assert not ended.is_set()
    hanging.set()
    # A signal while it stops: the pass was whole by then, and says that it was asked to end.
    lake = Mock(**{"close.side_effect": [KeyboardInterrupt, None, None]})
    for is_asked in (True, False):
        ending = Ending()
        close_at_end(lake, ending)
        assert ending.is_requested is is_asked


@pytest.mark.parametrize("error", BROKEN, ids=lambda e: type(e).__name__)
def test_a_pass_whose_spark_went_first_is_stopped_and_its_tables_are_left_to_the_next(
    lake: Lake, tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(line: str) -> None:
        if line.startswith("2 tables of catalog"):
            try:
                signal.raise_signal(signal.SIGTERM)
            except KeyboardInterrupt:
                # As a callback or a finaliser drops it; then the call meets a JVM that is gone.
                raise error from None

    with monkeypatch.context() as changed:
        changed.setattr(type(lake), "close", Mock(side_effect=error))
        made = run_policy(policy(file=tmp_path / "p.yaml"), say=breaks)
    assert made.exit_status == EXIT_STOPPED
    assert made.interrupted is True
    assert {one.status for one in made.tables} == {"waits"}
    assert (tmp_path / "reports" / "pass.json").exists()


def test_a_run_that_the_end_broke_off_is_stopped_and_has_not_failed_unless_its_rows_differ(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    each, table = passing(lake, tmp_path, ending=asked())
    monkeypatch.setattr(type(each), "_plan", lambda *_: PLAN)
    for status, wanted_status in (
        (Status.FAILED, Status.STOPPED),
        (Status.DISPROVED, Status.DISPROVED),
    ):
        lost = Proof("db.a", (), 0.0, maintenance_checks=(Check(False, "lost"),))
        proof = lost if status == Status.DISPROVED else None
        outcome = Outcome(PLAN, "r", (ActionOutcome(REWRITE, status),), proof=proof)
        monkeypatch.setattr(
            "icekit.report.schedule.one_pass.run", lambda *_, outcome=outcome, **__: outcome
        )
        assert each._step(table, "compact").status == wanted_status


def test_the_same_wish_sent_twice_breaks_in_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    ending = asked()
    clock[0] += 2.0
    ending.request()  # to the process, and then to its group
    clock[0] += 30.0
    with pytest.raises(KeyboardInterrupt):
        ending.request()


def test_a_run_under_way_stops_though_what_the_signal_raised_was_dropped() -> None:
    stop = Stop()
    with sigterm_as_interrupt() as ending, stop_on_request(stop.set):
        assert not stop.is_set
        ending.is_requested = True
        with pytest.raises(Stopped):
            stop.sleep(30.0)


def test_py4j_is_heard_again_after_a_block_in_which_it_was_asked_to_end() -> None:
    logger, root = logging.getLogger("py4j"), logging.getLogger()
    before = logger.level, list(root.filters)
    with sigterm_as_interrupt() as ending:
        ending.acknowledge()
        assert (logger.level, list(root.filters)) != before
    assert (logger.level, list(root.filters)) == before
