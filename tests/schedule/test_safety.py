"""What a policy may not do: go on by an old rule, with somebody's run, over a failed proof, in quiet hours, or beyond a budget."""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from icekit.api import Lake
from icekit.compact.claims import DISPROVED, ActionRecord, RunRecord
from icekit.compact.ledger import open_ledger
from icekit.compact.model import CONVERT, EQUALITY_DELETE, Action, Plan, Prediction
from icekit.compact.outcome import ActionOutcome, Actual, Outcome
from icekit.engine.interrupting import Stop
from icekit.facts.head import head
from icekit.run import clear
from icekit.run.checkpointed import kept as kept_plan
from icekit.schedule.act import Table, TableWork, act, shares, still, stopped_by, unfinished
from icekit.schedule.act import stop as stop_all
from icekit.schedule.one_pass import run_policy
from icekit.schedule.policy import SchedulePolicy
from icekit.schedule.result import Step, ran
from icekit.schedule.state import Failure, StartedRun, State, TableRecord, TableState, mark, state_path
from icekit.schedule.study import Offer, Permit, Share, Studied
from tests.schedule.lakes import begin, by, lake, one_pass
from tests.schedule.making import NOW, NOW_MS, health, policy

__all__ = ["lake"]

UTC = ZoneInfo("UTC")
COMPACT = "    compact: {execute: true}\n"
DUE = TableRecord(TableState.DUE)
HOUR = dt.timedelta(hours=1)
REWRITE = Action("1", "rewrite_data_files", "lake", ("db", "a"), "small files", Prediction(files_in=10, bytes_in=1000, files_out=1))


def plan(table: str = "a") -> Plan:
    return Plan("lake", ("db", table), None, None, None, (dataclasses.replace(REWRITE, table=("db", table)),))


def action(status: str) -> ActionRecord:
    """The only action of run ``own``."""
    return ActionRecord("own", "1", 0, "lake.db.a", None, status, 1, REWRITE.sql, {}, None, (7,), 5, 6, None)  # fmt: skip


def work(lake: Lake | None, wanted: SchedulePolicy, **changed: Any) -> tuple[TableWork, list[Step]]:
    steps: list[Step] = []
    made = TableWork(lake, ("db", "a"), wanted.tables[0], wanted.ledger, lambda: Permit(True), lambda: NOW, lambda _: None, lambda _: None, steps.append)  # type: ignore[arg-type]  # fmt: skip
    return dataclasses.replace(made, **changed), steps


def test_a_run_goes_on_only_by_a_rule_that_says_what_it_said_when_the_run_began() -> None:
    def rule(section: str, more: str = "") -> Any:
        return policy(f"    maintain: {{{section}}}\n{more}").tables[0]

    then = rule("execute: true, keep: 1 day")
    begun = StartedRun("r", "maintain", mark(then, "maintain"))
    assert still(begun, then, "maintain") is None
    assert still(begun, rule("execute: true, keep: 1 day, prove: 5"), "maintain") is None
    for now in (
        rule("execute: true, keep: 30 days"),
        rule("execute: true, keep: 1 day, procedures: [rewrite_manifests]"),
        rule("execute: true, keep: 1 day", "    thresholds: {snapshots: 5000}\n"),
    ):
        assert still(begun, now, "maintain") == "the rule for maintain has changed"
    assert still(begun, rule("keep: 1 day"), "maintain") == "the rule no longer says execute: true for maintain"
    assert still(begun, policy().tables[0], "maintain") == "the rule no longer says execute: true for maintain"
    assert still(begun, then, "compact") == "it is a different action than recorded"


def test_a_pass_goes_on_with_its_own_run_and_with_no_other(lake: Lake, tmp_path: Path) -> None:
    wanted = by(tmp_path, COMPACT)
    said: list[str] = []
    doing, _ = work(lake, wanted, permit=lambda: Permit(False, "not now"), say=said.append)
    own = StartedRun("own", "compact", mark(wanted.tables[0], "compact"))
    record = RunRecord("own", "lake.db.a", None, "stopped", 5, None, None, kept_plan(plan()), "host", 1, None)
    book = open_ledger(wanted.ledger)
    book.save_run(record)

    waits = unfinished(doing, own)
    assert waits is not None
    assert (waits.status, waits.run_id) == ("waits", "own")
    changed = by(tmp_path, "    compact: {execute: true, budget: 1 GB}\n").tables[0]
    assert unfinished(dataclasses.replace(doing, rule=changed), own) is None
    assert "run own of an earlier pass is not resumed, because the rule for compact has changed" in said[-1]
    # A person's run on the same table, begun after the policy's: neither is the policy's to go on with.
    book = open_ledger(wanted.ledger)
    book.save_run(dataclasses.replace(record, run_id="persons", started_ms=NOW_MS))
    assert unfinished(doing, own) is None


def test_what_was_not_proved_is_left_alone_until_a_person_clears_it(lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from icekit.cli.main import main

    (tmp_path / "p.yaml").write_text(f"version: 1\nstate: passes.db\ntables:\n  - name: all\n    match: '**'\n{COMPACT}")
    wanted = by(tmp_path, COMPACT)
    state = State(state_path(wanted))
    state.apply("db.a", "hold", failure=Failure("compact", "10 files → 1 file; not proved", "m", 0))
    passing = one_pass(wanted)
    one = Table(("db", "a"), wanted.tables[0], studied=Studied({"compact": plan()}))

    passing._look(one)
    passing._work(one, Share())
    assert (state.table("db.a").state, one.is_over, passing._result(one).status) == (TableState.UNPROVED, False, "failed")
    assert "icekit schedule clear POLICY db.a" in one.why
    passing._keep(one)
    again = Table(("db", "a"), wanted.tables[0])
    passing._look(again)
    # Not due, and still no table that is well.
    assert (again.is_over, again.status, again.steps[0].said) == (True, "failed", one.steps[0].said)

    assert main(["schedule", "clear", str(tmp_path / "p.yaml"), "db.x"]) == 2
    assert "blocked: db.a" in capsys.readouterr().err
    assert main(["schedule", "clear", str(tmp_path / "p.yaml"), "db.a"]) == 0
    # Due by its trigger or not.
    cleared = Table(("db", "a"), wanted.tables[0])
    passing._look(cleared)
    assert (cleared.may_run, cleared.steps, cleared.why) == (True, [], "it was cleared")
    passing._keep(cleared)
    later = Table(("db", "a"), wanted.tables[0])
    passing._look(later)
    assert later.status == "not due"


def test_what_failed_is_tried_again_later_and_later_or_once_its_rule_has_changed() -> None:
    rule, other = policy(COMPACT).tables[0], policy("    compact: {execute: true, budget: 1 GB}\n").tables[0]
    trouble = Failure("compact", "the commit was refused", mark(rule, "compact"), NOW_MS)
    waits = [dataclasses.replace(trouble, times=n).rests_until(rule) for n in (1, 2, 3, 4, 5000)]
    assert [None if end is None else (end - NOW) / HOUR for end in waits] == [3, 6, 12, 20, 20]
    assert trouble.rests_until(other) is None

    one = Table(("db", "a"), rule, TableRecord(TableState.FAILED, failure=trouble))
    one.keep_back(NOW + HOUR, UTC)
    assert (one.status, one.steps[0].said) == ("failed", trouble.said)
    assert one.why.startswith("it failed 1 time; icekit tries again from Wed 15:00 UTC on")
    later = Table(("db", "a"), rule, TableRecord(TableState.FAILED, failure=trouble))
    later.keep_back(NOW + 3 * HOUR, UTC)
    assert (later.is_over, later.steps) == (False, [])


def test_each_failure_is_noted_as_it_comes_and_counted(lake: Lake, tmp_path: Path) -> None:
    wanted = by(tmp_path, COMPACT)
    marked, now = mark(wanted.tables[0], "compact"), [NOW]
    passing = one_pass(wanted, clock=lambda: now[0])
    for times in (1, 2):
        one = Table(("db", "a"), wanted.tables[0])
        passing._look(one)
        passing._work_on(one).begin(StartedRun(f"r{times}", "compact", marked))
        passing._note(one, Step("compact", "failed", "refused", run_id=f"r{times}"))
        failure = Failure("compact", "refused", marked, int(now[0].timestamp() * 1000), times, f"r{times}")
        record = passing.state.table("db.a")
        assert (record.state, record.run, record.failure) == (TableState.FAILED, None, failure)
        now[0] += 4 * HOUR
    well = Table(("db", "a"), wanted.tables[0], health=health("healthy"))
    now[0] += 4 * HOUR
    passing._look(well)
    passing._keep(well)
    assert (passing.state.table("db.a").state, passing.state.failed()) == (TableState.IDLE, ())


def test_a_trial_that_failed_keeps_no_other_action_from_the_table_and_is_tried_again_later(lake: Lake, tmp_path: Path) -> None:
    wanted = by(tmp_path, "    compact: {trial: true}\n    maintain: {execute: true}\n")
    passing, one = one_pass(wanted), Table(("db", "a"), wanted.tables[0])
    passing._look(one)
    passing._note(one, Step("compact", "failed", "the trial changed rows"))
    passing._work_on(one).begin(StartedRun("r", "maintain", "m"))
    assert passing.state.table("db.a").state is TableState.UNFINISHED
    passing._note(one, Step("maintain", "done", "3 snapshots expired", run_id="r"))
    passing._keep(one)

    record = passing.state.table("db.a")
    assert (record.state, record.run, record.failure and record.failure.action, record.seen) == (TableState.FAILED, None, "compact", None)
    again = Table(("db", "a"), wanted.tables[0])
    passing._look(again)
    assert again.why.startswith("it failed 1 time; icekit tries again from Wed 15:00 UTC on")


def test_a_run_that_was_not_proved_is_held_also_when_its_pass_was_killed_before_it_knew(lake: Lake, tmp_path: Path) -> None:
    wanted = by(tmp_path, COMPACT)
    passing, marked = one_pass(wanted), mark(wanted.tables[0], "compact")
    begin(passing.state, "db.a", StartedRun("own", "compact", marked))
    record = RunRecord("own", "lake.db.a", None, "failed", 5, 6, None, kept_plan(plan()), "host", 1, "the proof could not be made")
    book = open_ledger(wanted.ledger)
    book.save_run(record)
    book.save_action(action("unproved"))

    one = Table(("db", "a"), wanted.tables[0])
    passing._look(one)

    assert [(step.status, step.is_unproved, step.run_id) for step in one.steps] == [("failed", True, "own")]
    assert one.steps[0].said == "run own of an earlier pass was not proved: the proof could not be made"
    assert (one.may_run, passing.state.table("db.a").state) == (False, TableState.UNPROVED)
    # A run that a person has looked at, and one that ended well, hold nothing back.
    for status, of_action in (("cleared", "disproved"), ("done", "done")):
        book = open_ledger(wanted.ledger)
        book.save_run(dataclasses.replace(record, status=status))
        book.save_action(action(of_action))
        doing, _ = work(lake, wanted)
        assert unfinished(doing, StartedRun("own", "compact", marked)) is None
    # What is not resumed, as its rule has changed, is not proved by that.
    book = open_ledger(wanted.ledger)
    book.save_run(dataclasses.replace(record, status="stopped"))
    book.save_action(action("unproved"))
    step = unfinished(doing, StartedRun("own", "compact", "another rule's"))
    assert step is not None
    assert step.is_unproved


@pytest.mark.slow
def test_a_run_that_only_waits_is_no_action_and_its_table_is_reported_on_once(lake: Lake, tmp_path: Path) -> None:
    wanted = by(tmp_path, "    hours: 22:00-23:00\n" + COMPACT)
    said: list[str] = []
    passing = one_pass(wanted, say=said.append)
    begin(passing.state, "db.a", StartedRun("own", "compact", mark(wanted.tables[0], "compact")))
    book = open_ledger(wanted.ledger)
    book.save_run(RunRecord("own", "lake.db.a", None, "stopped", 5, None, None, kept_plan(plan()), "host", 1, None))

    for _ in range(2):
        said.clear()
        made = {one.table: one for one in passing.go().tables}["db.a"]
        assert len([line for line in said if line.startswith("[") and "db.a: healthy" in line]) == 1, said
        assert [(step.status, step.run_id) for step in made.steps] == [("waits", "own")]
        assert (made.before, passing.state.lately(), passing.state.table("db.a").state) == (None, (), TableState.UNFINISHED)
        passing = one_pass(wanted, say=said.append)


def test_a_dry_run_remembers_nothing(lake: Lake, tmp_path: Path) -> None:
    wanted = by(tmp_path, COMPACT)
    state, run = State(state_path(wanted)), StartedRun("own", "compact", mark(wanted.tables[0], "compact"))
    begin(state, "db.a", run)
    before = state.path.read_bytes()

    found = {one.table: one for one in run_policy(wanted, dry_run=True, say=lambda _: None).tables}

    assert {name: one.status for name, one in found.items()} == {"db.a": "reported", "db.b": "reported"}
    assert state.path.read_bytes() == before


@pytest.mark.slow
def test_what_goes_wrong_on_a_table_is_said_once(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any, **__: Any) -> None:
        raise ValueError("odd")

    monkeypatch.setattr("icekit.schedule.one_pass.act", breaks)
    said: list[str] = []
    made = one_pass(by(tmp_path), say=said.append).go()
    assert {one.status for one in made.tables} == {"crashed"}
    assert len([line for line in said if line.startswith("db.a: crashed: ValueError: odd")]) == 1, said


@pytest.mark.parametrize("execute", ["true", "false"])
def test_nothing_is_tried_on_a_clone_in_a_dry_run_or_without_leave(execute: str) -> None:
    wanted = policy(f"    compact: {{execute: {execute}, trial: true}}\n")
    # There is no lake to try anything on.
    dry, steps = work(None, wanted)
    act(dry, Studied({"compact": plan()}), Share(), dry_run=True)
    assert [step.status for step in steps] == ["planned"]
    waiting, steps = work(None, wanted, permit=lambda: Permit(False, "outside its hours"))
    act(waiting, Studied({"compact": plan()}), Share(), dry_run=False)
    assert [step.status for step in steps] == ["waits" if execute == "true" else "planned"]


def test_quiet_hours_that_begin_in_a_pass_end_what_is_read(lake: Lake, tmp_path: Path) -> None:
    wanted = by(tmp_path, "    quiet_hours: 12:30-13:00\n    compact: {}\n")
    now = [NOW]
    passing = one_pass(wanted, clock=lambda: now[0])
    one, resumed = (Table(("db", name), wanted.tables[0]) for name in ("a", "b"))
    passing._look(one)
    passing._look(resumed)
    resumed.steps.append(Step("compact", "done", "10 files → 1 file", run_id="r"))
    now[0] += HOUR / 2

    passing._report([one, resumed], after=False)
    assert not (tmp_path / "out").exists()
    assert (one.status, one.why) == ("quiet", "quiet hours until Wed 13:00 UTC")
    passing._report([resumed], after=True)
    assert [step.status for step in resumed.steps] == ["done", "waits"]
    # It has been changed and not been looked at since: the next pass does that.
    assert passing.state.table("db.b").seen is None
    assert resumed.why == "its first pass; not reported on again: quiet hours until Wed 13:00 UTC"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../../up", "x" * 300])
def test_the_trace_of_a_crash_stays_in_the_output_whatever_the_table_is_called(lake: Lake, tmp_path: Path, name: str) -> None:
    wanted = by(tmp_path)
    one = Table(("db", name), wanted.tables[0])
    with one_pass(wanted)._on(one):
        int("odd")
    [trace] = (tmp_path / "out").iterdir()
    assert "ValueError: invalid literal" in trace.read_text()
    assert (one.status, str(trace) in one.why) == ("crashed", True)


def test_a_trace_that_cannot_be_written_does_not_end_the_pass(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file where the folder should be")
    one = Table(("db", "a"), by(tmp_path).tables[0])
    with one_pass(by(tmp_path))._on(one):
        int("odd")
    assert (one.status, one.why) == ("crashed", "ValueError: invalid literal for int() with base 10: 'odd'")


def test_a_pass_whose_catalog_is_gone_leaves_word_for_whoever_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path / "gone"))
    wanted = by(tmp_path, f"junit: {tmp_path}/j.xml\n")
    with pytest.raises(Exception, match="gone"):
        run_policy(wanted, say=lambda _: None)
    assert "<error" in (tmp_path / "j.xml").read_text()
    assert '"failure": ' in (tmp_path / "out" / "pass.json").read_text()


def test_a_step_that_was_stopped_is_told_by_who_stopped_it() -> None:
    step, noted = Step("compact", "stopped", "3 files → 1 file", run_id="r"), list[Step]()

    def by_whom(*reasons: Any) -> Step:
        stop = Stop()
        for reason in reasons:
            stop.set(reason)
        return stopped_by(stop, step, "its hours ended at Thu 06:00 UTC", noted.append)

    assert by_whom("clock").said == "3 files → 1 file; stopped because its hours ended at Thu 06:00 UTC; the next pass continues it"
    # A lost claim is that table's matter, and no other's.
    lost = by_whom("claim", "clock")
    assert (lost.status, lost.run_id, noted) == ("busy", "r", [])
    with pytest.raises(KeyboardInterrupt):
        by_whom("clock", "person")
    assert [(one.status, one.run_id) for one in noted] == [("stopped", "r")]


def test_a_pass_that_is_stopped_keeps_what_it_has_done(lake: Lake, tmp_path: Path) -> None:
    wanted = by(tmp_path)
    state, failed = State(state_path(wanted)), Failure("compact", "refused", "an earlier rule's", 0)
    tables = [
        Table(
            ("db", name),
            wanted.tables[0],
            state.apply(f"db.{name}", "take", failure=failed if name == "b" else None),
            health=health("healthy"),
        )
        for name in ("a", "b")
    ]

    def say(line: str) -> None:
        if line == "db.b: it failed 1 time; trying again":
            raise KeyboardInterrupt

    passing = one_pass(wanted, say=say)
    with pytest.raises(KeyboardInterrupt):
        passing._work_through(tables, {})
    stop_all(tables)
    assert [(one.written, passing._result(one).status) for one in tables] == [("db.a", "reported"), ("db.b", "stopped")]
    kept_now = state.table("db.a").last
    assert kept_now is not None
    assert kept_now["status"] == "reported"


def test_a_budget_is_shared_among_those_who_may_run_and_what_was_resumed_is_paid_from_it(lake: Lake, tmp_path: Path) -> None:
    text = "    hours: 22:00-23:00\n    exclude: db.b\n    compact: {execute: true}\n  - name: day\n    match: db.b\n    compact: {execute: true}\n"
    wanted = by(tmp_path, text, budget="1000 B")
    passing = one_pass(wanted)
    night, day = (
        Table(("db", name), rule, DUE, studied=Studied({}, (Offer(wins, 400, 4),)))
        for name, rule, wins in zip(("a", "b"), wanted.tables, (90, 10), strict=True)
    )
    assert shares(wanted.budget, [night, day], passing._permit) == {"db.b": Share(400, None)}
    assert passing._work_on(night).permit().why.startswith("outside its hours")
    day.steps.append(Step("compact", "done", "", run_id="r", bytes_in=700, files_in=7))
    assert shares(wanted.budget, [night, day], passing._permit)["db.b"].is_nothing
    # Also where the table has nothing left to do in this pass.
    resumed = Table(("db", "c"), wanted.tables[0], steps=day.steps)
    resumed.end("timed out", "its report took too long")
    day.steps = []
    assert shares(wanted.budget, [resumed, day], passing._permit)["db.b"].is_nothing


def converting(files: int, size: int) -> Plan:
    """A conversion that reads so many files, half of them deletes."""
    half = Prediction(files // 2, size, files - files // 2, unit=EQUALITY_DELETE)
    return dataclasses.replace(plan(), actions=(dataclasses.replace(REWRITE, procedure=CONVERT, prediction=half),), converts=True)


@pytest.mark.parametrize(("budget", "waits"), [("10 files", False), ("9 files", True), ("1000 B", False), ("999 B", True)])
def test_a_conversion_is_paid_from_the_budget_or_waits(lake: Lake, tmp_path: Path, budget: str, waits: bool) -> None:
    wanted = by(tmp_path, "    convert: {execute: true}\n    compact: {execute: true}\n", budget=budget)
    one, other = (Table(("db", name), wanted.tables[0], DUE, studied=Studied({}, (Offer(10, 10, 1),))) for name in ("a", "b"))
    one.studied = Studied({"convert": converting(10, 1000)})

    shared = shares(wanted.budget, [one, other], one_pass(wanted)._permit)
    assert [(step.action, step.status) for step in one.steps] == ([("convert", "waits")] if waits else [])
    assert ("convert" in one.studied.plans) is not waits
    # What it leaves is for the others.
    assert shared["db.b"].is_nothing is not waits


def test_a_conversion_that_was_resumed_is_paid_from_the_budget(lake: Lake, tmp_path: Path) -> None:
    wanted = by(tmp_path, COMPACT, budget="1200 B")
    made = converting(10, 1000)
    resumed = Outcome(made, "r", (ActionOutcome(made.actions[0], "done", 1, Actual(10, 1000, 4, 30, 5, 1, 5, 4)),))
    one, other = (Table(("db", name), wanted.tables[0], DUE, studied=Studied({}, (Offer(10, 400, 4),))) for name in ("a", "b"))
    one.steps.append(ran("convert", resumed))

    assert (one.steps[0].files_in, one.steps[0].bytes_in, one.steps[0].bytes_out) == (10, 1000, 30)
    assert "10 files, 1 KiB read, 30 B written" in one.steps[0].said
    assert all(share.is_nothing for share in shares(wanted.budget, [one, other], one_pass(wanted)._permit).values())


@pytest.mark.spark
def test_a_pass_runs_nothing_on_a_table_whose_last_run_was_disproved_and_clearing_clears_both(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from icekit.cli.main import main

    (tmp_path / "p.yaml").write_text(
        f"version: 1\nstate: passes.db\nledger: {tmp_path}/ledger.db\ntables:\n  - name: all\n    match: '**'\n{COMPACT}"
    )
    wanted = by(tmp_path, COMPACT)
    uuid = head(lake, ("db", "a")).metadata["table-uuid"]
    held = RunRecord("persons", "lake.db.a", uuid, DISPROVED, 5, 6, None, {}, "host", 1, "a row is missing")
    book = open_ledger(wanted.ledger)
    book.save_run(held)
    passing, one = one_pass(wanted), Table(("db", "a"), wanted.tables[0])
    made = dataclasses.replace(plan(), table_uuid=uuid)

    passing._look(one)
    act(passing._work_on(one), Studied({"compact": made, "maintain": made}), Share(), dry_run=False)
    assert [(step.action, step.status, step.is_unproved) for step in one.steps] == [("compact", "failed", True)]
    assert "persons" in one.steps[0].said
    assert "a row is missing" in one.steps[0].said
    again = Table(("db", "a"), wanted.tables[0])
    passing._look(again)
    assert (again.record.state, again.may_run) == (TableState.UNPROVED, False)
    # Since the person has looked.
    unseen = dataclasses.replace(held, run_id="unseen", started_ms=7, error="two rows are missing")
    book = open_ledger(wanted.ledger)
    book.save_run(unseen)

    assert main(["schedule", "clear", str(tmp_path / "p.yaml"), "db.a"]) == 0
    said = capsys.readouterr().out
    assert "is cleared: the next pass" not in said
    assert "run unseen (two rows are missing), with `icekit compact lake.db.a --clear unseen`" in said
    book = open_ledger(wanted.ledger)
    assert book.disproved() == (unseen,)
    clear(lake, ("db", "a"), "unseen", ledger=book)

    passing.state.apply("db.a", "hold", failure=Failure("compact", "not proved", "m", 0, run_id="mine"))
    assert main(["schedule", "clear", str(tmp_path / "p.yaml"), "db.a"]) == 0
    assert "is cleared: the next pass may run on it again" in capsys.readouterr().out


def test_a_history_that_was_not_written_is_a_problem_of_the_pass(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = "The history was not written: the disk is full."
    monkeypatch.setattr(
        "icekit.schedule.one_pass.reported",
        lambda _policy, _rule, tables, **_: ({one: ("healthy", health(), None) for one in tables}, [lost]),
    )

    made = one_pass(by(tmp_path)).go()

    assert (made.exit_status, made.problems) == (2, (lost,))
