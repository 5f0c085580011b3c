"""What passes did is remembered, also after a kill; one pass of a policy runs at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from icekit.errors import EXIT_HEALTHY, EXIT_UNHEALTHY, LedgerUnusable
from icekit.schedule.result import PastAction, health_in, kept, same_report
from icekit.schedule.state import AnotherPass, Failure, StartedRun, State, TableRecord, TableState, one_at_a_time, state_path
from icekit.schedule.study import Watermark
from tests.schedule.lakes import begin
from tests.schedule.making import health, policy, result, step

SEEN = Watermark("u", 2**62, 5)
ROOT = Path(__file__).parents[2]


def test_nothing_is_remembered_without_a_file_and_reading_makes_none(tmp_path: Path) -> None:
    state = State(tmp_path / "s.db")
    assert (state.table("a.b"), state.failed(), state.told("r")) == (TableRecord(), (), {})
    assert list(tmp_path.iterdir()) == []


def test_a_table_counts_as_passed_only_when_it_is_said(tmp_path: Path) -> None:
    state = State(tmp_path / "s.db")
    state.apply("a.b", None, last={"n": 1})
    assert state.table("a.b") == TableRecord(last={"n": 1})
    state.apply("a.b", "take")
    state.apply("a.b", "pass", last={"n": 2}, seen=SEEN)
    state.apply("a.b", None, last={"n": 3})
    assert state.table("a.b") == TableRecord(TableState.IDLE, seen=SEEN, last={"n": 3})


def test_the_run_that_began_stays_until_it_has_ended_and_what_was_not_proved_until_it_is_cleared(tmp_path: Path) -> None:
    state, run, failure = State(tmp_path / "s.db"), StartedRun("r", "compact", "m"), Failure("compact", "not proved", "m", 5, 2, "r")
    begin(state, "a.b", run)
    assert (state.table("a.b"), state.failed()) == (TableRecord(TableState.UNFINISHED, run), ())
    held = state.apply("a.b", "hold", failure=failure)
    assert held == state.table("a.b") == TableRecord(TableState.UNPROVED, failure=failure)
    assert state.apply("a.b", "pass", seen=SEEN).failure == failure
    assert state.failed() == ("a.b",)
    assert state.apply("a.b", "clear") == TableRecord(TableState.CLEARED, seen=SEEN)
    assert state.failed() == ()


def test_an_event_that_is_not_declared_changes_nothing_that_is_kept(tmp_path: Path) -> None:
    state, run = State(tmp_path / "s.db"), StartedRun("r", "compact", "m")
    begin(state, "a.b", run)
    with pytest.raises(RuntimeError, match="a bug in icekit: a table that is unfinished takes no event 'begin'"):
        state.apply("a.b", "begin", run=StartedRun("another", "compact", "m"))
    assert state.table("a.b") == TableRecord(TableState.UNFINISHED, run)


def test_the_last_actions_are_remembered_newest_first_and_the_oldest_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icekit.schedule.state._ACTIONS", 5)
    state = State(tmp_path / "s.db")
    assert state.lately() == ()
    for n in range(8):
        state.acted(PastAction.by(step(said=f"{n} files", run_id=f"r{n}", files_in=n, seconds=1.5), "a.b", 1000 + n))
    assert [one.run_id for one in state.lately()] == ["r7", "r6", "r5", "r4", "r3"]
    assert state.lately(1) == (PastAction(1007, "a.b", "compact", "done", "7 files", "r7", files_in=7, seconds=1.5),)


def test_a_record_of_an_earlier_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    state = State(tmp_path / "s.db")
    state.apply("a.b", "take")
    with contextlib.closing(sqlite3.connect(state.path)) as db:
        db.execute("PRAGMA user_version = 0")
        db.execute("CREATE TABLE notes (kind TEXT, name TEXT, document TEXT)")
        db.executemany("INSERT INTO notes VALUES (?, ?, '{}')", [("trouble", "a.held"), ("begun", "a.begun"), ("begun", "a.held")])
        db.commit()
    before = state.path.read_bytes()

    for use in (lambda: state.table("a.b"), lambda: state.tell("r", {"a.b": None})):
        with pytest.raises(
            LedgerUnusable,
            match=r"schema 0 was written by an earlier icekit.*First look at the failed or unfinished runs on a.begun, a.held, then",
        ):
            use()

    assert state.path.read_bytes() == before


def test_what_was_told_is_kept_by_receiver(tmp_path: Path) -> None:
    state = State(tmp_path / "s.db")
    state.tell("r", {"a.b": {"mark": "x", "at_ms": 1}, "a.c": {"mark": "y", "at_ms": 1}})
    state.tell("r", {"a.b": None})
    assert (state.told("r"), state.told("other")) == ({"a.c": {"mark": "y", "at_ms": 1}}, {})


def test_a_file_of_another_kind_is_refused_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_text("not a database at all, but long enough to be read as one" * 20)
    with pytest.raises(LedgerUnusable, match="give another file"):
        State(tmp_path / "s.db").table("a.b")


def test_a_short_text_is_no_empty_record(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")

    with pytest.raises(LedgerUnusable, match="not a database"):
        State(path).apply("a.b", "take")

    assert path.read_text() == "mine"


def test_another_programs_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()

    with pytest.raises(LedgerUnusable, match="another program's database"):
        State(path).apply("a.b", "take")

    assert path.read_bytes() == before


def test_a_record_that_may_only_be_read_is_read_and_an_empty_file_is_an_empty_memory(tmp_path: Path) -> None:
    state = State(tmp_path / "s.db")
    state.path.touch()
    assert state.table("a.b") == TableRecord()
    state.apply("a.b", None, seen=SEEN)
    state.path.chmod(0o444)
    assert state.table("a.b").seen == SEEN


def test_a_report_is_not_made_again_for_a_table_that_only_waits() -> None:
    rule, other = policy().tables[0], policy("    fail_on: critical\n").tables[0]
    waits = kept(result(status="waits", health=health()), rule, 7)
    assert same_report(waits, rule, 7) == health()
    assert same_report(waits, rule, 8) is None
    assert same_report(waits, other, 7) is None
    assert same_report(kept(result(), rule, 7), rule, 7) is None
    assert health_in({"health": {"from": "another version"}}) is None


def test_each_policy_has_a_record_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ICEKIT_LEDGER", str(tmp_path / "ledger.db"))
    one, two = state_path(policy(output="a")), state_path(policy(output="b"))
    assert one.parent == two.parent == tmp_path
    assert one != two


def test_one_pass_at_a_time_and_a_killed_one_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    code = f"import pathlib, sys; from icekit.schedule.state import one_at_a_time\nwith one_at_a_time(pathlib.Path({str(path)!r})):\n print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(AnotherPass, match=rf"running since .* \(process {holder.pid} on ") as held, one_at_a_time(path):
            pass
        assert held.value.exit_status == EXIT_HEALTHY
        with (
            pytest.raises(AnotherPass, match="Check what it is waiting for, and end its process") as overlong,
            one_at_a_time(path, longest=0),
        ):
            pass
        assert overlong.value.exit_status == EXIT_UNHEALTHY
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with one_at_a_time(path):
            pass
    finally:
        holder.kill()
        holder.communicate()
