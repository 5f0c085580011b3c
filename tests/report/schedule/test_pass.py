"""A pass on real tables: it changes what its rules allow and nothing twice, what fails stops
nothing, what was cut short goes on.
"""

import dataclasses
import datetime as dt
import gc
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from icekit.api import Lake
from icekit.common.errors import EXIT_STOPPED, Status
from icekit.engine import session
from icekit.report.schedule.one_pass import run_policy
from icekit.report.schedule.reading import parse_policy
from icekit.report.schedule.result import PassResult, TableResult
from tests.commands import command
from tests.maintain.tables import FILES, Named, contents, scattered
from tests.report.schedule.lakes import unrendered

__all__ = ["unrendered"]

# A thread of papermill's leaves its event loop to the garbage collector, which is let loose here
# and not in another test.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed event loop:ResourceWarning"),
]

MIDNIGHT = dt.datetime(2026, 1, 14, 0, 0, tzinfo=dt.UTC)
TEXT = """output: out
ledger: ledger.db
budget: 1 GB
hours: 22:00-06:00
rules:
  - name: own
    match: scratch.*
    execute: true
    fail_on: critical
    compact: {leave_alone: 0 minutes}
"""


@pytest.fixture(autouse=True)
def _somebody_elses_session(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a notebook: a pass leaves a session running that it has not started."""
    monkeypatch.setattr(session, "_own_spark", None)
    yield
    gc.collect()


def passed(
    folder: Path,
    text: str = TEXT,
    hour: int = 23,
    *,
    dry_run: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[PassResult, dict[str, TableResult]]:
    """One pass at an hour of a day, and its results by table."""
    policy = parse_policy(text, folder / "p.yaml")
    made = run_policy(
        policy, dry_run=dry_run, clock=lambda: MIDNIGHT + dt.timedelta(hours=hour), say=say
    )
    return made, {one.table: one for one in made.tables}


def test_a_pass_does_not_start_a_rewrite_that_makes_a_filter_slower(
    named: Named, lake: Lake, tmp_path: Path
) -> None:
    table = scattered(named("slower"), icekit_filter__columns="id")

    _, tables = passed(tmp_path)

    (step,) = tables["scratch.slower"].steps
    assert step.status is Status.NOTHING
    assert step.summary.startswith("A filter on other opens ")
    assert "icekit compact scratch.slower --execute" in step.summary
    assert table.file_count() == FILES


def test_a_pass_changes_what_its_rules_allow_in_its_hours_and_nothing_twice(
    named: Named, lake: Lake, tmp_path: Path
) -> None:
    sick, broken = (named(name).create().fill() for name in ("sick", "broken"))
    rows, here = sick.rows(), sick.snapshot_id()
    broken.data_files()[0].unlink()

    said: list[str] = []
    made, found = passed(tmp_path, hour=12, dry_run=True, say=said.append)
    assert list(tmp_path.glob("*")) == []
    assert made.exit_status == 0
    assert sorted(found) == ["scratch.broken", "scratch.sick"]
    assert sick.snapshot_id() == here
    assert found["scratch.sick"].status == "planned"
    assert any(
        "CALL `lake`.system.rewrite_data_files(table => 'scratch.sick'" in line for line in said
    )

    made, found = passed(tmp_path, hour=12)
    assert made.exit_status == 0
    assert found == {}
    assert list(tmp_path.glob("*")) == []

    made, found = passed(tmp_path, TEXT.replace("execute: true", "execute: false"))
    assert {one.status for one in made.tables} == {"planned"}
    assert sick.snapshot_id() == here
    assert (tmp_path / "out" / "own" / "scratch.sick.html").exists()

    # What one table meets is no matter of the other's, and every file is written before the pass
    # fails.
    made, found = passed(tmp_path)
    assert made.exit_status == 1
    assert found["scratch.sick"].status == "done"
    assert found["scratch.broken"].status == "failed"
    [step] = found["scratch.sick"].steps
    assert step.figures["files_in"] == 10
    assert step.figures["files_out"] == 2
    assert sick.rows() == rows
    assert found["scratch.sick"].page == "own/scratch.sick.html"
    assert (tmp_path / "out" / found["scratch.sick"].page).exists()
    document = json.loads((tmp_path / "out" / "pass.json").read_text())
    assert {one["table"]: one["status"] for one in document["tables"]} == {
        "scratch.broken": Status.FAILED,
        "scratch.sick": Status.DONE,
    }

    lake.spark.sql(f"DROP TABLE {broken.sql_name} PURGE")
    there = sick.snapshot_id()
    assert {name: one.status for name, one in passed(tmp_path)[1].items()} == {
        "scratch.sick": Status.NOTHING
    }
    assert sick.snapshot_id() == there


def test_a_pass_that_is_asked_to_end_is_resumed_by_the_next(named: Named, tmp_path: Path) -> None:
    text = TEXT.replace("0 minutes", "0 minutes, max_action_partitions: 1")
    cut = named("cut").create().fill()
    rows = cut.rows()

    def after_the_first(line: str) -> None:
        if line.strip().startswith(Status.DONE):
            signal.raise_signal(signal.SIGTERM)

    made, found = passed(tmp_path, text, say=after_the_first)
    [step] = found["scratch.cut"].steps
    assert made.exit_status == EXIT_STOPPED
    assert step.status == "stopped"
    assert len(cut.data_files()) == 6
    assert json.loads((tmp_path / "out" / "pass.json").read_text())["interrupted"] is True

    assert (
        passed(tmp_path, text, dry_run=True)[1]["scratch.cut"]
        .steps[0]
        .summary.startswith(f"run {step.run_id} is unfinished")
    )
    said: list[str] = []
    resumed = passed(tmp_path, text, say=said.append)[1]["scratch.cut"].steps[0]
    assert any(line.startswith(f"resuming run {step.run_id}") for line in said)
    assert resumed.status == "done"
    assert resumed.run_id == step.run_id
    assert cut.rows() == rows
    assert len(cut.data_files()) == 2


@pytest.mark.usefixtures("unrendered")
def test_the_worst_table_comes_first_and_what_the_budget_leaves_is_for_the_next_pass(
    named: Named, tmp_path: Path
) -> None:
    text = TEXT.replace("1 GB", "12 files").replace("22:00-06:00", "22:00-06:00 Europe/Berlin")
    named("worse").create().fill(files=6)
    named("better").create().fill(files=5)

    found = passed(tmp_path, text, hour=22)[1]
    assert [found[name].status for name in ("scratch.worse", "scratch.better")] == [
        Status.DONE,
        "waits",
    ]
    assert "budget" in found["scratch.better"].steps[0].summary
    assert passed(tmp_path, text, hour=22)[1]["scratch.better"].status == Status.DONE


@pytest.mark.usefixtures("unrendered")
def test_a_trial_is_made_only_by_a_pass_that_executes_and_is_gone_afterwards(
    named: Named, lake: Lake, tmp_path: Path
) -> None:
    text = TEXT.replace("0 minutes", "0 minutes, trial: true")
    tried = named("tried").create().fill()
    before, tables, files = tried.snapshot_id(), lake.tables.names(), contents(tried.location)
    assert passed(tmp_path, text, dry_run=True)[1]["scratch.tried"].status == "planned"
    assert (
        passed(tmp_path, text.replace("execute: true", "execute: false"))[1]["scratch.tried"].status
        == "planned"
    )
    assert tried.snapshot_id() == before
    assert contents(tried.location) == files
    done = passed(tmp_path, text)[1]["scratch.tried"]
    assert done.status == "done"
    assert done.steps[0].figures["files_out"] == 2
    assert lake.tables.names() == tables


@pytest.mark.core
@pytest.mark.parametrize("status", [Status.DISPROVED, Status.UNPROVED])
@pytest.mark.usefixtures("unrendered")
def test_nothing_runs_on_a_table_that_was_not_proved_until_a_person_clears_it(
    named: Named, tmp_path: Path, status: Status
) -> None:
    held = named("held").create().fill()
    run_id = held.compact().run_id
    assert run_id is not None
    book = held.ledger()
    record = book.run(run_id)
    assert record is not None
    book.save_run(
        dataclasses.replace(
            record,
            status=Status.DISPROVED if status == Status.DISPROVED else Status.FAILED,
            error="a row is missing",
        )
    )
    for action in book.actions(run_id):
        book.save_action(dataclasses.replace(action, status=status))
    held.fill(start=1000)
    before = held.snapshot_id()

    for dry_run in (True, False):
        made, found = passed(tmp_path, dry_run=dry_run)
        [step] = found["scratch.held"].steps
        assert made.exit_status == 1
        assert step.status == status
        assert run_id in step.summary
        assert held.snapshot_id() == before
    assert f"icekit compact scratch.held --clear {run_id}" in step.summary

    command("compact", "scratch.held", "--clear", run_id, "--ledger", str(held.book))
    assert passed(tmp_path)[1]["scratch.held"].status == Status.DONE
