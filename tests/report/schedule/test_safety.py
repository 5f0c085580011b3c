"""What a pass may not do: write in a dry run, run beside another pass, go on over a missing proof,
or let one table end it.
"""

import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from icekit.api import Lake, connect
from icekit.common.errors import HistoryUnusable, RunDisproved, Status, TableClaimed
from icekit.engine.interrupting import Stopped
from icekit.maintain.action import CONVERT
from icekit.maintain.plan import Plan
from icekit.maintain.prediction import EQUALITY_DELETE, Prediction
from icekit.maintain.record.claims import ActionRecord, RunRecord
from icekit.maintain.record.ledger import open_ledger
from icekit.maintain.record.results import Actual
from icekit.maintain.run.blocked import (
    clear_blocking_runs,
    find_blocking_runs,
    refuse_blocked,
    stored_plan,
)
from icekit.maintain.run.outcome import ActionOutcome, Outcome
from icekit.maintain.run.verbs import interrupted_run
from icekit.report.result import ReportRun
from icekit.report.schedule.one_pass import _Pass, run_id_prefix, run_policy
from icekit.report.schedule.result import PassResult, Step, TableResult
from tests.commands import command
from tests.maintain.tables import contents
from tests.offline import IDS, lake_in
from tests.report.schedule.lakes import (
    COMPACT,
    NOW,
    PLAN,
    REWRITE,
    lake,
    passing,
    policy,
    unrendered,
)

__all__ = ["lake", "unrendered"]

STOPPED = RunRecord("r", "lake.db.a", None, Status.STOPPED, 5, None, stored_plan(PLAN), None)


def action(run_id: str, status: Status) -> ActionRecord:
    return ActionRecord(run_id, "1", 0, "lake.db.a", None, status, 1, REWRITE.prediction, None, None, (7,), 5, 6, None)  # fmt: skip


@pytest.mark.parametrize("status", [Status.STOPPED, Status.FAILED, Status.RUNNING])
def test_a_run_that_was_not_proved_holds_its_table_until_a_person_clears_it(
    lake: Lake, tmp_path: Path, status: Status
) -> None:
    one, table = passing(lake, tmp_path)
    one.ledger.save_run(
        dataclasses.replace(STOPPED, status=status, error="the proof could not be made")
    )
    one.ledger.save_action(action("r", Status.UNPROVED))

    steps = list(one._steps(table))
    assert [
        (step.status, "r was not proved (the proof could not be made)" in step.summary)
        for step in steps[:1]
    ] == [(Status.UNPROVED, True)]
    # A person may run; only passes wait.
    refuse_blocked(one.ledger, "lake.db.a", None)
    assert find_blocking_runs(lake, ("db", "b"), one.ledger) == ()

    assert [
        run.run_id for run in clear_blocking_runs(lake, ("db", "a"), "r", ledger=one.ledger)
    ] == ["r"]
    assert [step.status for step in one._steps(table)] == [Status.NOTHING]


def test_the_newest_attempt_decides_whether_a_run_was_proved(lake: Lake, tmp_path: Path) -> None:
    one, _ = passing(lake, tmp_path)
    one.ledger.save_run(dataclasses.replace(STOPPED, status=Status.FAILED))
    one.ledger.save_action(action("r", Status.UNPROVED))
    one.ledger.save_action(action("r", Status.DONE))
    assert one.ledger.unproved_runs() == ()
    one.ledger.save_action(action("r", Status.UNPROVED))
    one.ledger.save_run(dataclasses.replace(STOPPED, status=Status.DONE))
    assert one.ledger.unproved_runs() == ()


def test_a_pass_resumes_its_own_run_only_and_not_over_the_missing_proof_of_another(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, table = passing(lake, tmp_path)
    own = f"{run_id_prefix(one.rules['all'], 'compact')}0123"
    started = itertools.count(5)
    monkeypatch.setattr(
        _Pass,
        "_run",
        lambda _self, _table, command, record, _stop: Step(
            command, Status.DONE, "resumed", record and record.run_id
        ),
    )
    other = policy(COMPACT.replace("{}", "{min_files: 2}"), tmp_path / "p.yaml").rules[0]
    of_other_rule = f"{run_id_prefix(other, 'compact')}0123"
    for run_id, expected in (("persons", None), (of_other_rule, None), (own, own)):
        one.ledger.save_run(dataclasses.replace(STOPPED, run_id=run_id, started_ms=next(started)))
        assert next(iter(one._steps(table))).run_id == expected
    # Its own missing proof is made by resuming it.
    one.ledger.save_action(action(own, Status.UNPROVED))
    assert [step.status for step in one._steps(table)][:2] == [Status.DONE, Status.UNPROVED]
    one.ledger.save_run(dataclasses.replace(STOPPED, run_id="persons", status=Status.DISPROVED))
    assert [step.status for step in one._steps(table)][:2] == [Status.DISPROVED, Status.UNPROVED]
    # After another run on the table the plan of the first is an old one.
    one.ledger.save_run(
        dataclasses.replace(STOPPED, run_id="later", status=Status.DONE, started_ms=100)
    )
    assert interrupted_run(lake, ("db", "a"), one.ledger) is None


def test_no_action_begins_when_the_time_of_the_pass_is_over(lake: Lake, tmp_path: Path) -> None:
    one, table = passing(lake, tmp_path)
    one.deadline = NOW
    assert one._step(table, "compact").status is Status.WAITS
    with pytest.raises(Stopped):
        one._progress("a report ends between two tables")


def test_a_dry_run_writes_nothing_and_a_pass_writes_pages_and_one_document(
    lake: Lake, tmp_path: Path
) -> None:
    wanted = policy(COMPACT, tmp_path / "p.yaml")
    own = f"{run_id_prefix(wanted.rules[0], 'compact')}0123"
    open_ledger(wanted.ledger).save_run(dataclasses.replace(STOPPED, run_id=own))
    before = contents(tmp_path)

    made = run_policy(wanted, dry_run=True, say=lambda _: None)

    assert {one.table: one.status for one in made.tables} == {
        "db.a": Status.PLANNED,
        "db.b": Status.NOTHING,
    }
    assert made.tables[0].steps[0].summary == f"run {own} is unfinished; a pass resumes it"
    assert contents(tmp_path) == before


def test_of_two_passes_of_a_policy_the_second_does_nothing(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(f"ledger: ledger.db\nrules:\n  - match: '**'\n{COMPACT}")
    with open_ledger(str(tmp_path / "ledger.db")).hold(
        f"The pass of policy p into {tmp_path}/reports", "other"
    ):
        with pytest.raises(TableClaimed):
            run_policy(policy(COMPACT, tmp_path / "p.yaml"), say=print)
        status, printed = command("schedule", "run", str(tmp_path / "p.yaml"))
    assert (status, "is claimed by run other" in printed) == (0, True)
    assert not (tmp_path / "reports").exists()


def test_a_lake_that_is_gone_ends_the_pass_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path / "gone"))
    with pytest.raises(Exception, match="gone"):
        run_policy(policy(COMPACT, tmp_path / "p.yaml"), say=lambda _: None)


@pytest.mark.usefixtures("lake", "unrendered")
def test_what_goes_wrong_on_a_table_is_said_once_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps(_: _Pass, one: TableResult) -> Any:
        raise ValueError("odd") if one.table == "db.a" else RunDisproved("look at it", "r")

    monkeypatch.setattr(_Pass, "_steps", steps)
    said: list[str] = []
    made = run_policy(policy(COMPACT, tmp_path / "p.yaml"), say=said.append)
    assert {one.table: (one.status, one.steps) for one in made.tables} == {
        "db.a": ("crashed", [Step("run", Status.CRASHED, "ValueError: odd")]),
        "db.b": (Status.FAILED, [Step("run", Status.FAILED, "look at it")]),
    }
    assert len([line for line in said if line.startswith("db.a: crashed: Traceback")]) == 1, said
    assert made.exit_status == 3


LOST = "The history was not written: the disk is full."


@pytest.mark.parametrize(
    "report",
    [
        Mock(return_value=ReportRun((), Path(), 2, problems=(LOST,))),
        Mock(side_effect=HistoryUnusable(LOST)),
    ],
    ids=["noted", "raised"],
)
@pytest.mark.usefixtures("lake")
def test_a_history_that_was_not_written_is_a_problem_of_the_pass_and_leaves_its_result(
    report: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icekit.report.service.report", report)
    made = run_policy(policy(file=tmp_path / "p.yaml"), say=lambda _: None)
    assert [one.status for one in made.tables] == ["waits", "waits"]
    assert made.exit_status == 2
    assert made.problems == [LOST]
    assert json.loads((tmp_path / "reports" / "pass.json").read_text())["problems"] == [LOST]


def converting(files: int, size: int) -> Plan:
    """A conversion that reads this many files, half of them deletes."""
    data = files - files // 2
    half = Prediction(files // 2, size, data, unit=EQUALITY_DELETE, data_files_read=data)
    return dataclasses.replace(
        PLAN,
        actions=(dataclasses.replace(REWRITE, procedure=CONVERT, prediction=half),),
        converts=True,
    )


@pytest.mark.parametrize(
    ("budget", "status"),
    [("10 files", Status.DONE), ("9 files", "waits"), ("1000 B", Status.DONE), ("999 B", "waits")],
)
def test_what_a_run_read_is_taken_from_the_budget_and_a_conversion_beyond_it_waits(
    lake: Lake, tmp_path: Path, budget: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, table = passing(lake, tmp_path, "    execute: true\n    convert: {}\n", budget=budget)
    plan = converting(10, 1000)
    outcome = Outcome(
        plan,
        "r",
        (ActionOutcome(plan.actions[0], Status.DONE, 1, Actual(10, 1000, 4, 30, 5, 1, 5, 4)),),
    )
    monkeypatch.setattr(_Pass, "_plan", lambda *_: plan)
    monkeypatch.setattr("icekit.report.schedule.one_pass.run", lambda *_, **__: outcome)

    assert one._step(table, "convert").status == status
    if status == "done":
        assert one._step(table, "convert") == Step(
            "convert", Status.WAITS, "the budget of this pass is spent"
        )


def test_the_most_serious_of_all_decides_the_exit_status() -> None:
    def exits(*statuses: Status, problems: Sequence[str] = (), interrupted: bool = False) -> int:
        tables = [TableResult("db.a", "all", status) for status in statuses]
        result = PassResult("p", "lake", NOW, tables=tables, problems=list(problems))
        result.end(1.0, interrupted=interrupted)
        return result.exit_status

    assert [exits(status) for status in Status] == [3, 3, 2, *[1] * 5, *[0] * 11]
    assert exits() == 0
    assert exits(Status.DONE, Status.FAILED) == 1
    assert exits(Status.FAILED, Status.MISCONFIGURED) == 2
    assert exits(Status.DONE, problems=["x"]) == 2
    assert exits(Status.CRASHED, interrupted=True) == 130
    table = TableResult("db.a", "all")
    table.end(Status.UNHEALTHY, "")
    for status in (Status.DONE, Status.FAILED):
        table.add(Step("compact", status, ""))
    assert table.status is Status.FAILED


@pytest.mark.parametrize(
    ("fewest", "saves", "status"), [(2, True, Status.PLANNED), (4, False, Status.NOTHING)]
)
def test_a_limit_of_a_rules_compaction_holds_for_its_plans_and_for_the_order_of_tables(
    tmp_path: Path, fewest: int, saves: bool, status: Status
) -> None:
    """Three small files are no finding by themselves."""
    with lake_in(tmp_path / "lake") as catalog:
        table = catalog.create_table("db.a", IDS)
        for id in range(3):
            table.append(pa.table({"id": [id]}))
        text = f"    compact: {{leave_alone: 0 minutes, min_files: {fewest}}}\n"
        connected = connect(None)
        one, result = passing(connected, tmp_path, text)
        one._look(result)
        steps = [step.status for step in one._steps(result)]
        connected.close()

    assert (result.saved > 0, steps) == (saves, [status])
