"""The ledger in a file: it survives, it is shared, and one run holds a table."""

import contextlib
import os
import signal
import sqlite3
import stat
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from icekit.common import secrets
from icekit.common.errors import ClaimLost, IcekitError, LedgerUnusable, Status, TableClaimed
from icekit.common.owner import Owner
from icekit.maintain.plan import Plan
from icekit.maintain.record.claims import LEASE, ActionRecord
from icekit.maintain.record.ledger import Ledger, default_ledger_path, open_ledger
from icekit.maintain.record.results import Actual
from icekit.maintain.run.blocked import plan_of, stored_plan
from tests.maintain.records import ACTION, RUN, TABLE, Clock, claimed_by, other_process, said


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "state" / "ledger.db")


@pytest.fixture
def timed(tmp_path: Path, clock: Clock) -> Ledger:
    """A ledger by that clock."""
    return Ledger(tmp_path / "ledger.db", clock=clock)


def save(ledger: Ledger, *actions: ActionRecord) -> None:
    for action in actions:
        ledger.save_action(action)


def holders(ledger: Ledger) -> list[str]:
    return [claim.run_id for claim in ledger.claims()]


def sql(path: Path, statement: str, *values: object) -> list[Any]:
    """What another program does to the file."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        return db.execute(statement, values).fetchall()


def tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


# Records.


def test_what_is_saved_comes_back_and_replaces_what_was_saved_before(ledger: Ledger) -> None:
    done = replace(
        ACTION,
        status=Status.DONE,
        actual=Actual(2),
        seconds=1.5,
        snapshot_ids=(8, 2**62),
        started_ms=1,
        ended_ms=2,
    )
    ended = replace(RUN, status=Status.DONE, ended_ms=5)
    ledger.save_run(RUN)
    ledger.save_run(ended)
    ledger.save_action(done)

    # Another version of icekit may have saved more.
    sql(
        ledger.path,
        "UPDATE actions SET document = json_set(document, '$.later', 1, '$.predicted.later', 2)",
    )
    again = Ledger(ledger.path)

    assert again.run("r1") == ended
    assert again.actions("r1") == (done,)


def test_actions_come_by_ordinal_each_with_its_newest_attempt(ledger: Ledger) -> None:
    first = replace(ACTION, action_id="a", ordinal=9, starting_snapshot_id=None)
    running = replace(first, starting_snapshot_id=8, status=Status.RUNNING)
    save(ledger, replace(ACTION, action_id="b", ordinal=10), first, replace(running, attempts=2))
    assert [(a.action_id, a.attempts) for a in ledger.actions("r1")] == [("a", 2), ("b", 1)]

    # Of two records of one attempt, the one written last counts.
    save(ledger, replace(first, run_id="r2"), replace(running, run_id="r2"))
    assert [a.status for a in ledger.actions("r2")] == [Status.RUNNING]


def test_the_last_run_of_a_table_is_the_one_that_began_last(ledger: Ledger) -> None:
    ledger.save_run(replace(RUN, run_id="old", status=Status.FAILED, started_ms=1))
    ledger.save_run(replace(RUN, run_id="new", status=Status.DONE, started_ms=3))
    ledger.save_run(replace(RUN, run_id="elsewhere", table="lake.db.u", started_ms=9))

    run = ledger.last_run(TABLE)
    assert run is not None
    assert run.run_id == "new"
    assert ledger.last_run("lake.db.v") is None


def test_outcomes_are_the_measured_ones_newest_first(ledger: Ledger) -> None:
    done = replace(ACTION, status=Status.DONE, actual=Actual(1))
    save(
        ledger,
        *(replace(done, action_id=f"a{n}", ended_ms=n) for n in (1, 3, 2)),
        replace(done, action_id="unmeasured", actual=None, ended_ms=4),
        replace(done, action_id=Status.FAILED, status=Status.FAILED, ended_ms=5),
        replace(done, action_id="u", table="lake.db.u", ended_ms=6),
    )

    assert [a.action_id for a in ledger.outcomes(TABLE)] == ["a3", "a2", "a1"]
    assert [a.action_id for a in ledger.outcomes(max_count=2)] == ["u", "a3"]


def test_secrets_are_masked(ledger: Ledger) -> None:
    secrets.remember_secrets({"s3.secret-access-key": "ledger-s3cret"})

    ledger.save_run(replace(RUN, error="403 with ledger-s3cret", plan={"why": ["ledger-s3cret"]}))
    ledger.save_action(replace(ACTION, error="postgresql://me:pass-word@host/db"))

    kept = b"".join(path.read_bytes() for path in ledger.path.parent.iterdir())
    assert b"s3cret" not in kept
    assert b"pass-word" not in kept
    assert ledger.actions("r1")[0].error == "postgresql://me:***@host/db"


# The file.


def test_reading_makes_no_file_and_the_first_write_a_folder_for_this_user_alone(
    ledger: Ledger,
) -> None:
    assert (ledger.run("r1"), ledger.actions("r1"), ledger.claims()) == (None, (), ())
    assert ledger.outcomes() == ()
    assert not ledger.path.parent.exists()

    ledger.save_run(RUN)

    assert stat.S_IMODE(ledger.path.parent.stat().st_mode) == 0o700


def test_the_path_is_taken_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ICEKIT_LEDGER", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_ledger_path() == tmp_path / "icekit" / "ledger.db"

    monkeypatch.delenv("XDG_STATE_HOME")
    assert default_ledger_path() == Path.home() / ".local" / "state" / "icekit" / "ledger.db"

    monkeypatch.setenv("ICEKIT_LEDGER", "~/mine.db")
    assert default_ledger_path() == Path.home() / "mine.db"
    assert open_ledger(None).path == open_ledger("").path == default_ledger_path()
    assert open_ledger(str(tmp_path / "x.db")).path == tmp_path / "x.db"


@pytest.mark.parametrize("schema", [1, 99])
def test_a_ledger_of_another_version_is_refused(ledger: Ledger, schema: int) -> None:
    ledger.save_run(RUN)
    sql(ledger.path, f"PRAGMA user_version = {schema}")

    asks: tuple[Callable[[], object], ...] = (
        lambda: ledger.run("r1"),
        lambda: ledger.claim(TABLE, "new", "uuid"),
    )
    for ask in asks:
        with pytest.raises(
            LedgerUnusable, match=rf"another version of icekit \(schema {schema}.*Move it away"
        ):
            ask()


@pytest.mark.parametrize("made", ["CREATE TABLE theirs (x)", "PRAGMA user_version = 7"])
def test_another_programs_database_is_left_alone(ledger: Ledger, made: str) -> None:
    ledger.path.parent.mkdir()
    sql(ledger.path, made)
    before = ledger.path.read_bytes()

    with pytest.raises(LedgerUnusable, match=r"is not an icekit ledger .*another program"):
        ledger.claim("db.t", "r1")
    assert ledger.path.read_bytes() == before


def test_a_corrupt_file_is_named_with_what_to_do(ledger: Ledger) -> None:
    ledger.save_run(RUN)
    sql(ledger.path, "PRAGMA journal_mode = DELETE")
    whole = ledger.path.read_bytes()
    ledger.path.write_bytes(whole[:100] + b"no database any more" * 500)

    for ask in (ledger.claims, lambda: ledger.claim(TABLE, "r1")):
        with pytest.raises(LedgerUnusable, match=r"is corrupt .*Move it away"):
            ask()


@pytest.mark.parametrize(
    "text", ["x", "root:x:0:0:root:/root:/bin/bash\n" * 40], ids=["a letter", "a text"]
)
def test_a_file_that_is_no_ledger_is_left_as_it_is_and_nobody_is_asked_to_move_it(
    ledger: Ledger, text: str
) -> None:
    ledger.path.parent.mkdir()
    ledger.path.write_text(text)

    for ask in (ledger.claims, lambda: ledger.save_run(RUN)):
        with pytest.raises(
            LedgerUnusable, match=r"is not an icekit ledger .*Give another path with --ledger"
        ) as refused:
            ask()
        assert "move" not in str(refused.value)

    assert ledger.path.read_text() == text
    assert [path.name for path in ledger.path.parent.iterdir()] == [ledger.path.name]


def test_a_device_is_no_ledger_though_it_reads_as_an_empty_file() -> None:
    device = Ledger(Path("/dev/null"))

    for ask in (device.claims, lambda: device.claim(TABLE, "r1")):
        with pytest.raises(LedgerUnusable, match="is not an icekit ledger"):
            ask()


@pytest.mark.parametrize(
    "text", ["cookie = 'abc'", "token = 'abcdefghijklmnop1'", "{signature=3, id=7}"]
)
def test_a_plan_that_only_resembles_a_secret_is_kept_whole(text: str) -> None:
    plan = Plan("lake", ("web", "cookie"), "uuid", 1, None, (), notes=(text,))

    assert stored_plan(plan)["notes"] == [text]
    assert plan_of(replace(RUN, plan=stored_plan(plan))) == plan


@pytest.mark.parametrize("path", [".", "file/ledger.db"])
def test_a_place_that_cannot_be_written_to_is_named_with_what_to_do(
    tmp_path: Path, path: str
) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(LedgerUnusable, match="ICEKIT_LEDGER"):
        Ledger(tmp_path / path).save_run(RUN)


def test_a_path_may_hold_what_a_uri_would_read(tmp_path: Path) -> None:
    odd = Ledger(tmp_path / "a?mode=memory&b#c %41.db")
    odd.save_run(RUN)

    assert odd.path.exists()
    assert odd.run("r1") == RUN


def test_a_writer_killed_at_any_moment_leaves_a_ledger_that_works(ledger: Ledger) -> None:
    write = (
        "from icekit.maintain.record.claims import *\nfrom icekit.maintain.plan import Prediction\nn = 0\nwhile True:\n    "
        "ledger.save_action(ActionRecord('k', str(n), n, 't', 7, 'pending', 1, Prediction(), None, "
        "None, (), None, None, 'x' * 5000))\n    print(n, flush=True)\n    n += 1\n"
    )
    for moment in range(4):
        with other_process(write, ledger.path) as process:
            reached = [said(process) for _ in range(1 + 7 * moment)]
            os.kill(process.pid, signal.SIGKILL)
        assert [a.action_id for a in ledger.actions("k")][: len(reached)] == reached
    ledger.save_run(RUN)
    assert ledger.run("r1") == RUN


# Claims.


def test_a_claimed_table_is_refused_with_who_since_when_and_what_to_do(
    timed: Ledger, clock: Clock
) -> None:
    timed.claim(TABLE, "first")
    for _ in range(3):
        clock.now += 60_000
        timed.heartbeat(TABLE, "first")

    with pytest.raises(IcekitError) as refused:
        timed.claim(TABLE, "second")

    assert isinstance(refused.value, TableClaimed)
    for part in (
        "run first",
        "3 minutes ago",
        Owner.this_process().host,
        "continue it with --resume",
    ):
        assert part in str(refused.value)


def test_a_table_is_claimed_by_its_uuid_whatever_it_is_called(ledger: Ledger) -> None:
    ledger.claim(TABLE, "first", "uuid")

    with pytest.raises(
        TableClaimed,
        match=r"other\.db\.t \(which that run knows as lake\.db\.t\) is claimed by run first",
    ):
        ledger.claim("other.db.t", "second", "uuid")
    ledger.claim(TABLE, "third", "another table of that name")
    ledger.heartbeat(TABLE, "first", "uuid")
    ledger.release(TABLE, "first", "uuid")
    ledger.claim("other.db.t", "second", "uuid")


def test_runs_whose_proof_failed_are_found_until_they_are_cleared(ledger: Ledger) -> None:
    held = replace(RUN, status=Status.DISPROVED)
    ledger.save_run(held)
    ledger.save_run(replace(RUN, run_id="r2"))

    assert ledger.disproved_runs() == (held,)
    ledger.save_run(replace(RUN, status=Status.CLEARED))
    assert ledger.disproved_runs() == ()


def test_a_table_is_claimed_again_by_its_run_and_released_by_nobody_else(ledger: Ledger) -> None:
    for table, run_id in ((TABLE, "r1"), (TABLE, "r1"), ("lake.db.u", "r2")):
        ledger.claim(table, run_id)
    ledger.release(TABLE, "r2")
    assert [(c.table, c.run_id) for c in ledger.claims()] == [(TABLE, "r1"), ("lake.db.u", "r2")]

    ledger.release(TABLE, "r1")
    # A heartbeat does not bring it back.
    with pytest.raises(ClaimLost):
        ledger.heartbeat(TABLE, "r1")
    assert holders(ledger) == ["r2"]
    ledger.claim(TABLE, "r2")


def test_a_lease_that_is_over_is_renewed_or_taken_over_and_then_its_run_is_told(
    timed: Ledger, clock: Clock
) -> None:
    timed.claim(TABLE, "first")
    clock.now += 10 * LEASE * 1000
    timed.heartbeat(TABLE, "first")
    assert timed.claims()[0].renewed_ms == clock.now

    clock.now += LEASE * 1000 - 1
    with pytest.raises(TableClaimed):
        timed.claim(TABLE, "second")
    clock.now += 1
    timed.claim(TABLE, "second")

    with pytest.raises(ClaimLost, match="run second"):
        timed.heartbeat(TABLE, "first")
    timed.release(TABLE, "first")
    assert holders(timed) == ["second"]


def test_a_living_process_keeps_its_claim_and_a_killed_one_loses_it_at_once(
    ledger: Ledger,
) -> None:
    with claimed_by(ledger.path, TABLE) as process:
        for run_id in ("mine", "other"):
            with pytest.raises(TableClaimed, match=rf"run other .*process {process.pid}.* ago"):
                ledger.claim(TABLE, run_id)
        os.kill(process.pid, signal.SIGKILL)
        if Owner.this_process().pid_started is None:
            process.wait()
        else:
            # Also while it is a zombie: this process has not asked for its status.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        ledger.claim(TABLE, "mine")

    assert holders(ledger) == ["mine"]


def test_of_several_processes_that_race_for_a_table_one_wins(ledger: Ledger) -> None:
    race = (
        "me = sys.argv[0] + str(__import__('os').getpid())\nprint('ready', flush=True)\nfor line "
        "in sys.stdin:\n    try:\n        ledger.claim(line.strip(), me)\n        print('won', "
        "flush=True)\n    except TableClaimed:\n        print('lost', flush=True)\n"
    )
    with contextlib.ExitStack() as stack:
        racers = [stack.enter_context(other_process(race, ledger.path)) for _ in range(3)]
        assert [said(racer) for racer in racers] == ["ready"] * 3
        for table in range(25):
            for racer in racers:
                tell(racer, f"lake.db.t{table}")
            assert sorted(said(racer) for racer in racers) == ["lost", "lost", "won"]


# Who lives.


def test_an_owner_has_ended_only_if_its_process_would_be_seen_from_here() -> None:
    here = Owner.this_process()
    gone = replace(here, pid=2**22 + 1, pid_started=1)

    assert not here.has_ended()
    assert gone.has_ended()
    assert not replace(gone, host="another").has_ended()
    assert not replace(gone, boot_id="another boot").has_ended()
    assert not replace(gone, pid_namespace="pid:[1]").has_ended()
    # The id is another process's by now; without /proc nobody can tell.
    if here.pid_started is not None:
        assert replace(here, pid_started=here.pid_started - 1).has_ended()


# A claim kept alive.


def eventually(is_lost: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 120
    while not is_lost() and time.monotonic() < deadline:
        time.sleep(0.01)
    return is_lost()


def test_a_held_table_is_renewed_and_then_released_also_when_what_ran_inside_failed(
    ledger: Ledger,
) -> None:
    with (
        contextlib.suppress(ZeroDivisionError),
        ledger.hold(TABLE, "r1", interval_seconds=0.01) as lost,
    ):
        first = ledger.claims()[0].renewed_ms
        assert eventually(lambda: ledger.claims()[0].renewed_ms > first)
        assert not lost()
        raise ZeroDivisionError

    assert ledger.claims() == ()


def test_a_run_whose_table_is_taken_over_is_told_and_leaves_it(ledger: Ledger) -> None:
    future = Ledger(ledger.path, clock=lambda: time.time_ns() // 1_000_000 + LEASE * 1000 + 60_000)

    with ledger.hold(TABLE, "r1", interval_seconds=0.05) as lost:
        future.claim(TABLE, "r2")
        assert eventually(lost)

    assert holders(ledger) == ["r2"]


def test_a_run_that_cannot_renew_for_a_lease_has_lost_its_table(ledger: Ledger) -> None:
    with ledger.hold(TABLE, "r1", interval_seconds=0.01, lease_seconds=0.2) as lost:
        ledger.path.write_bytes(b"no database at all, " * 500)
        assert eventually(lost)
