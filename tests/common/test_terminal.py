"""A terminal is told what is waited for; a pipe is not."""

import contextlib
import io
import itertools
import os
import pty
import queue
import re
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from icekit.common import terminal
from icekit.common.terminal import (
    counter,
    is_command_attended,
    report_waiting,
    show_progress,
    stderr_to_file,
)
from tests.kernels import kernel


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say at once what is waited for."""
    monkeypatch.setattr(terminal, "PATIENCE", 0)


@contextlib.contextmanager
def a_terminal() -> Iterator[Iterator[str]]:
    """Standard error is a terminal for a while; yields the lines that its user reads."""
    user, process = pty.openpty()
    read: queue.SimpleQueue[str] = queue.SimpleQueue()

    def reads() -> None:
        # Always, as a terminal that nobody reads holds up who writes; the last writer's end is an
        # error on Linux.
        with os.fdopen(user, encoding="utf-8") as screen, contextlib.suppress(OSError):
            for line in screen:
                read.put(line)

    reader = threading.Thread(target=reads)
    reader.start()
    with os.fdopen(process, "w", encoding="utf-8") as stderr, contextlib.redirect_stderr(stderr):
        yield iter(read.get, None)
    reader.join()


def test_a_terminal_reads_what_is_waited_for_also_while_standard_error_is_a_file() -> None:
    with (
        a_terminal() as lines,
        report_waiting("starting Spark", at_once=True),
        stderr_to_file(),
    ):
        assert next(lines) == "icekit: starting Spark…\n"
        assert next(lines).startswith("icekit: starting Spark… ")


def test_somebody_at_a_terminal_may_read_what_a_command_prints_and_nobody_in_cron(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ICEKIT_ATTENDED", raising=False)
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{stream}", io.StringIO())
    assert not is_command_attended()
    with a_terminal():
        assert is_command_attended()
    monkeypatch.setenv("ICEKIT_ATTENDED", "yes")
    assert is_command_attended()


def test_of_two_waits_the_inner_one_is_named() -> None:
    with a_terminal() as lines, report_waiting("building"):
        assert next(lines).startswith("icekit: building… ")
        with report_waiting("starting Spark"):
            next(line for line in lines if line.startswith("icekit: starting Spark… "))
        next(line for line in lines if line.startswith("icekit: building… "))


def test_a_pipe_reads_nothing() -> None:
    with (
        contextlib.redirect_stderr(io.StringIO()) as pipe,
        report_waiting("starting Spark", at_once=True),
    ):
        pass
    assert pipe.getvalue() == ""


def until_done(lines: Iterator[str]) -> list[str]:
    read = []
    for line in lines:
        read.append(line)
        if "done" in line:
            break
    return read


def test_a_counter_is_one_line_that_is_empty_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "COUNTING_SECONDS", 0.01)
    counts, has_counted = itertools.count(), threading.Event()

    def what() -> str:
        number = next(counts)
        if number == 2:
            has_counted.set()
        return f"listing \x1b[2J: {number} files"

    with a_terminal() as lines:
        with show_progress(what):
            assert has_counted.wait(10)
        print("done", file=sys.stderr)
    # Each carriage return ends a line here.
    empty, first, second, third, *_, last = until_done(lines)

    assert empty == "\n"
    assert [first, second, third] == [
        f"\x1b[Kicekit: listing \N{REPLACEMENT CHARACTER}[2J: {number} files\n"
        for number in range(3)
    ]
    assert last == "\x1b[Kdone\n"


def test_what_is_done_at_once_and_a_pipe_have_no_counter() -> None:
    with a_terminal() as lines:
        with show_progress(lambda: "listing"):
            pass
        print("done", file=sys.stderr)
    assert until_done(lines) == ["done\n"]
    with contextlib.redirect_stderr(io.StringIO()) as pipe, show_progress(lambda: "listing"):
        pass
    assert pipe.getvalue() == ""


def test_in_a_notebook_the_running_cell_says_what_is_waited_for_and_forgets_it() -> None:
    code = """
import time
from icekit.common import terminal
terminal.PATIENCE = 0.1
with terminal.report_waiting("starting Spark", at_once=True):
    time.sleep(1)
"""
    with kernel() as asked:
        shown, unseen = (
            [
                message["content"]["data"]["text/plain"]
                for message in asked.run(code, **metadata)
                if message["msg_type"] in {"display_data", "update_display_data"}
            ]
            for metadata in ({"cellId": "a"}, {})
        )
    assert shown[:2] == ["", "icekit: starting Spark…"]
    assert any(re.fullmatch("icekit: starting Spark… [01] s", line) for line in shown)
    assert shown[-1] == ""
    assert unseen == []


def test_a_counter_of_many_says_how_many_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "COUNTING_SECONDS", 0.01)
    with a_terminal() as lines:
        with counter("reading tables", 1200) as count_to:
            assert "icekit: reading tables: 0 of 1,200" in next(
                line for line in lines if line.strip()
            )
            count_to(1200)
            assert any("1,200 of 1,200" in line for line in lines)
            # What it waits for has no line of its own.
            with show_progress(lambda: "inner"):
                time.sleep(0.1)
        print("done", file=sys.stderr)
    assert not any("inner" in line for line in until_done(lines))
