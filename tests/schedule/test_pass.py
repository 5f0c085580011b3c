"""A pass on real tables: what is due is done once, what fails stops nothing, what was cut short goes on."""

from __future__ import annotations

import datetime as dt
import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from icekit.api import Lake
from icekit.catalog import session
from icekit.engine.interrupting import Stop
from icekit.schedule.one_pass import run_policy
from icekit.schedule.policy import SchedulePolicy
from icekit.schedule.reading import parse_policy
from icekit.schedule.result import Pass, TableResult
from icekit.schedule.state import StartedRun, State, TableState, mark, state_path
from tests.compact.tables import Table
from tests.schedule.lakes import begin

# A thread of papermill's leaves its event loop to the garbage collector, which is let loose here and not in another test.
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed event loop:ResourceWarning")]

MIDNIGHT = dt.datetime(2026, 1, 14, 0, 0, tzinfo=dt.UTC)
TEXT = """version: 1
output: out
state: passes.db
ledger: ledger.db
budget: [1 GB, 1 hour]
defaults:
  when: {commits: 2}
  fail_on: critical
  hours: 22:00-06:00
  quiet_hours: 12:00-13:00
  compact: {leave_alone: 0 minutes}
tables:
  - name: own
    match: scratch.*
    exclude: scratch.other
    compact: {execute: true}
junit: junit.xml
"""


@pytest.fixture(autouse=True)
def _somebody_elses_session(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a notebook: a pass leaves a session running that it has not started."""
    monkeypatch.setattr(session, "_started", None)
    yield
    gc.collect()


def passed(
    policy: SchedulePolicy, hour: int, *, dry_run: bool = False, said: list[str] | None = None
) -> tuple[Pass, dict[str, TableResult]]:
    """One pass at an hour of a day, and its results by table."""
    heard = said if said is not None else []
    made = run_policy(policy, dry_run=dry_run, clock=lambda: MIDNIGHT + dt.timedelta(hours=hour), say=heard.append)
    return made, {one.table: one for one in made.tables}


def test_a_pass_does_what_is_due_by_its_hours_and_nothing_twice(lake: Lake, scratch: str, tmp_path: Path) -> None:
    policy = parse_policy(TEXT, tmp_path / "p.yaml")
    sick, broken = (Table(lake, scratch, name, tmp_path).create().fill() for name in ("sick", "broken"))
    Table(lake, scratch, "other", tmp_path).create()
    rows, here = sick.rows(), sick.snapshot_id()
    broken.data_files()[0].unlink()

    said: list[str] = []
    made, found = passed(policy, 1, dry_run=True, said=said)
    assert list(tmp_path.glob("*")) == []
    assert (made.exit_status, sorted(found), sick.snapshot_id()) == (0, ["scratch.broken", "scratch.sick"], here)
    assert found["scratch.sick"].status == "planned"
    assert any("CALL `lake`.system.rewrite_data_files(table => 'scratch.sick'" in line for line in said)

    assert {one.status for one in passed(policy, 12)[0].tables} == {"quiet"}
    assert not (tmp_path / "out" / "own").exists()

    made, found = passed(policy, 15)
    assert {one.status for one in made.tables} == {"waits"}
    assert found["scratch.sick"].steps[0].said.endswith("outside its hours, which begin at Wed 22:00 UTC")
    page = tmp_path / "out" / "own" / "scratch.sick.html"
    reported_ns = page.stat().st_mtime_ns

    # What one table meets is no matter of the other's, and every file is written before the pass fails.
    made, found = passed(policy, 23)
    assert (made.exit_status, found["scratch.sick"].status, found["scratch.broken"].status) == (1, "done", "failed")
    assert (found["scratch.sick"].steps[0].files_in, found["scratch.sick"].steps[0].files_out) == (10, 2)
    assert (sick.rows(), page.stat().st_mtime_ns) == (rows, reported_ns)
    assert (tmp_path / "out" / "own" / "after" / "scratch.sick.html").exists()
    document = json.loads((tmp_path / "out" / "pass.json").read_text())
    assert [one["status"] for one in document["tables"]] == ["failed", "done"]
    assert 'testcase name="scratch.broken"' in (tmp_path / "junit.xml").read_text()

    lake.spark.sql(f"DROP TABLE {broken.sql_name} PURGE")
    assert {name: one.status for name, one in passed(policy, 23)[1].items()} == {"scratch.sick": "not due"}
    sick.fill(files=1, rows=2, start=100)
    assert passed(policy, 23)[1]["scratch.sick"].why == "since its last pass: 1 of 2 commits"
    sick.fill(files=1, rows=2, start=200)
    found = passed(policy, 23, dry_run=True)[1]
    assert found["scratch.sick"].why == "2 commits since its last pass (due from 2)"


@pytest.mark.slow
def test_what_a_pass_began_and_did_not_end_goes_on_first(lake: Lake, scratch: str, tmp_path: Path) -> None:
    policy = parse_policy(TEXT, tmp_path / "p.yaml")
    cut = Table(lake, scratch, "cut", tmp_path).create().fill()
    rows, state, stop = cut.rows(), State(state_path(policy)), Stop()

    def after_the_first(line: str) -> None:
        if line.strip().startswith("done"):
            stop.set()

    outcome = cut.run(cut.plan(max_action_partitions=1), stop=stop, progress=after_the_first)
    assert outcome.status == "stopped"
    assert outcome.run_id is not None
    begin(state, "scratch.cut", StartedRun(outcome.run_id, "compact", mark(policy.tables[0], "compact")))
    # As a kill leaves it: the next pass knows of it only by the two records.
    said: list[str] = []
    found = passed(policy, 23, said=said)[1]["scratch.cut"]

    assert any(line.startswith(f"resuming run {outcome.run_id}") for line in said)
    assert (found.status, found.steps[0].run_id, state.table("scratch.cut").state) == ("done", outcome.run_id, TableState.IDLE)
    assert (cut.rows(), len(cut.data_files())) == (rows, 2)


def test_a_run_that_a_person_began_is_left_to_the_person(lake: Lake, scratch: str, tmp_path: Path) -> None:
    policy = parse_policy(TEXT, tmp_path / "p.yaml")
    mine, halted = Table(lake, scratch, "mine", tmp_path).create().fill(), Stop()
    halted.set()
    persons = mine.run(mine.plan(), stop=halted)
    assert (persons.status, halted.reason) == ("stopped", "person")
    there = len(mine.data_files())
    # A pass had begun a run of its own before, and was stopped.
    state = State(state_path(policy))
    begin(state, "scratch.mine", StartedRun("another", "compact", mark(policy.tables[0], "compact")))
    said: list[str] = []

    found = passed(policy, 15, said=said)[1]["scratch.mine"]

    assert not any("resuming" in line for line in said)
    assert (found.status, len(mine.data_files())) == ("waits", there)
    assert (state.table("scratch.mine").state, state.table("scratch.mine").run) == (TableState.DUE, None)


def test_a_trial_is_made_only_with_leave_and_is_gone_afterwards(lake: Lake, scratch: str, tmp_path: Path) -> None:
    policy = parse_policy(TEXT.replace("{execute: true}", "{execute: true, trial: true}"), tmp_path / "p.yaml")
    tried = Table(lake, scratch, "tried", tmp_path).create().fill()
    before, tables = tried.snapshot_id(), lake.tables.names()
    assert passed(policy, 23, dry_run=True)[1]["scratch.tried"].status == "planned"
    assert passed(policy, 15)[1]["scratch.tried"].status == "waits"
    assert tried.snapshot_id() == before
    done = passed(policy, 23)[1]["scratch.tried"]
    assert (done.status, done.steps[0].files_out, lake.tables.names()) == ("done", 2, tables)
