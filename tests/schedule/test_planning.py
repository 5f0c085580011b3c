"""Planning in a pass: each table within its time, and from the facts of its report where it has not moved since."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icekit.facts
from icekit.catalog import Lake
from icekit.catalog.lake import DeadlineExceeded, Waited, in_time
from icekit.compact.model import Plan, Skipped
from icekit.report import FactsCache
from icekit.schedule import study as studying
from icekit.schedule.act import Table
from icekit.schedule.one_pass import run_pass
from icekit.schedule.state import State, state_path
from icekit.schedule.study import PlanTimedOut, observed, timely, why_idle
from tests.schedule.lakes import by, lake, one_pass
from tests.schedule.making import policy

__all__ = ["lake"]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The tables that are observed, as often as they are."""
    seen: list[tuple[str, ...]] = []
    real = icekit.facts.observe

    def observe(lake: Lake, table: Any, **options: Any) -> Any:
        seen.append(table)
        return real(lake, table, **options)

    monkeypatch.setattr(icekit.facts, "observe", observe)
    monkeypatch.setattr(studying, "observe", observe)
    return seen


def test_facts_are_known_until_anything_is_changed_about_the_table(lake: Lake, tmp_path: Path, counted: list[tuple[str, ...]]) -> None:
    rule, known = policy("    compact: {}\n").tables[0], FactsCache(tmp_path)
    first = observed(lake, ("db", "a"), rule, known)[0]
    assert observed(lake, ("db", "a"), rule, known)[0] == first
    assert counted == [("db", "a")]
    # A property is no snapshot, and decides plans all the same.
    with open_catalog(tmp_path) as catalog, catalog.load_table("db.a").transaction() as change:
        change.set_properties({"write.target-file-size-bytes": "1000"})
    assert observed(lake, ("db", "a"), rule, known)[0].properties == {"write.target-file-size-bytes": "1000"}
    assert len(counted) == 2


def open_catalog(tmp_path: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake/catalog.db", warehouse=str(tmp_path / "lake" / "warehouse"))


def test_facts_that_could_not_be_kept_are_collected_again(lake: Lake, tmp_path: Path, counted: list[tuple[str, ...]]) -> None:
    (tmp_path / "file").write_text("where the folder should be")
    rule, known = policy("    compact: {}\n").tables[0], FactsCache(tmp_path / "file")
    for _ in range(2):
        assert observed(lake, ("db", "a"), rule, known)[0].name == "db.a"
    assert len(counted) == 2


@pytest.mark.slow
def test_a_pass_observes_each_table_once_and_numbers_them_over_all_its_rules(
    lake: Lake, tmp_path: Path, counted: list[tuple[str, ...]]
) -> None:
    text = "    exclude: db.b\n    compact: {}\n  - name: other\n    match: db.b\n    compact: {}\n"
    wanted, said = by(tmp_path, text, timeout="5 minutes"), list[str]()
    made = run_pass(wanted, State(state_path(wanted)), say=said.append)

    assert [one.status for one in made.tables] == ["reported", "reported"], said
    assert sorted(counted) == [("db", "a"), ("db", "b")]
    assert [line.partition(":")[0] for line in said if line.startswith("[")] == ["[1/2] db.a", "[2/2] db.b"]


@pytest.mark.slow
def test_planning_that_takes_too_long_ends_its_table_and_no_other(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = threading.Event()
    real = icekit.facts.observe

    def observe(lake: Lake, table: Any, **options: Any) -> Any:
        if table == ("db", "a"):
            stuck.wait(600)
        return real(lake, table, **options)

    def in_its_time(lake: Lake, seconds: float | None, work: Any) -> Any:
        assert seconds == 600.0
        # How long the other takes is not judged.
        return in_time(lake, 0.01 if work.keywords["table"] == ("db", "a") else None, work)

    wanted = by(tmp_path, "    compact: {}\n", timeout="10 minutes")
    monkeypatch.setattr(studying, "observe", observe)
    monkeypatch.setattr(studying, "in_time", in_its_time)
    said: list[str] = []
    made = run_pass(wanted, State(state_path(wanted)), dry_run=True, say=said.append)

    assert {one.table: one.status for one in made.tables} == {"db.a": "timed out", "db.b": "reported"}
    assert made.exit_status == 3
    told = "planning took longer than 10 minutes; raise `timeout:` or narrow the window (since, until, skip_last)"
    assert f"db.a: timed out: {told}" in said
    stuck.set()


def test_planning_without_a_limit_is_waited_for(lake: Lake) -> None:
    assert timely(lake, None, lambda taken: taken.name) == "lake"


def test_a_table_whose_plan_was_too_slow_is_planned_again_by_the_next_pass(lake: Lake, tmp_path: Path) -> None:
    wanted = by(tmp_path, "    compact: {}\n")
    passing, one = one_pass(wanted), Table(("db", "a"), wanted.tables[0])
    stuck = threading.Event()
    with passing._on(one):
        timely(lake, 0.01, lambda _: stuck.wait(600))
    stuck.set()
    assert (one.status, one.is_over, passing.state.table("db.a").seen) == ("timed out", True, None)


def test_facts_are_collected_again_for_storage_that_was_not_looked_at_and_after_anything_was_run(lake: Lake, tmp_path: Path) -> None:
    collected: list[bool] = []
    known, plain = FactsCache(tmp_path), icekit.facts.observe(lake, ("db", "a"))

    def facts(*, storage: bool) -> None:
        def collect() -> Any:
            collected.append(storage)
            return plain

        known.facts(lake, ("db", "a"), collect, storage=storage)

    for storage in (False, False, True, True, False):
        facts(storage=storage)
    assert collected == [False, True]

    # Orphans that are removed leave the metadata file as it was.
    known.forget(("db", "a"))
    facts(storage=True)
    assert collected == [False, True, True]


def test_the_start_of_spark_is_no_part_of_a_tables_time(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    waited, never, clock = Waited(), threading.Event(), [0.0]
    with monkeypatch.context() as stopped:
        stopped.setattr(time, "monotonic", lambda: clock[0])
        with waited.waiting():
            clock[0] = 600.0
            assert waited.seconds == 600.0
        clock[0] = 700.0
        assert waited.seconds == 600.0

    assert in_time(lake, 0.01, lambda _: never.wait(0.1), waited=waited) is False, "it took longer, and Spark's start more than that"
    with pytest.raises(DeadlineExceeded):
        in_time(lake, 0.01, lambda _: never.wait(600))
    never.set()


def test_a_timeout_of_the_work_itself_is_its_own_error(lake: Lake) -> None:
    def refused(_: Lake) -> None:
        raise TimeoutError("the host did not answer")

    with pytest.raises(TimeoutError, match="the host") as found:
        timely(lake, None, refused)
    assert not isinstance(found.value, PlanTimedOut)


def test_storage_is_listed_for_a_plan_only_where_a_rule_names_the_removal_of_orphans(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default, named = (
        by(tmp_path, f"    maintain: {settings}\n").tables[0] for settings in ("{execute: true}", "{procedures: remove_orphan_files}")
    )
    listed: list[bool] = []

    def observe(lake: Lake, table: Any, *, storage: bool, **options: Any) -> Any:
        listed.append(storage)
        return icekit.facts.observe(lake, table, **options)

    monkeypatch.setattr(studying, "observe", observe)
    for rule in (default, named):
        observed(lake, ("db", "a"), rule)

    assert default.maintain is not None
    assert default.maintain.procedures == ("rewrite_position_delete_files", "rewrite_manifests", "expire_snapshots")
    assert listed == [False, True]


@pytest.mark.spark
def test_a_pass_says_that_orphans_stay_where_another_table_is(lake: Lake, tmp_path: Path) -> None:
    location = icekit.facts.observe(lake, ("db", "a")).location
    with SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake/catalog.db", warehouse=str(tmp_path / "lake" / "warehouse")) as catalog:
        catalog.create_table(("db", "inside"), catalog.load_table(("db", "a")).schema(), location=f"{location}/inside")
    wanted, said = (
        by(tmp_path, "    exclude: [db.b, db.inside]\n    maintain: {execute: true, procedures: remove_orphan_files}\n"),
        list[str](),
    )

    made = run_pass(wanted, State(state_path(wanted)), say=said.append)

    told = "db.a: maintain reported: Orphan files are not removed: shared location with db.inside"
    assert any(line.startswith(told) for line in said), said
    assert made.tables[0].steps[0].status == "reported"


def test_a_dry_run_gives_a_reason_for_each_action_without_a_plan(lake: Lake, tmp_path: Path) -> None:
    wanted = by(tmp_path, "    compact: {}\n    maintain: {}\n")
    none = by(tmp_path)

    made = run_pass(wanted, State(state_path(wanted)), dry_run=True, say=lambda _: None)
    idle = run_pass(none, State(state_path(none)), dry_run=True, say=lambda _: None)

    assert [(one.table, s.action, s.status, s.said) for one in made.tables for s in one.steps] == [
        (table, action, "reported", "the table has no finding") for table in ("db.a", "db.b") for action in ("compact", "maintain")
    ]
    assert [s.said for one in idle.tables for s in one.steps] == ["its rule has no action"] * 2


def test_a_plan_without_actions_says_why_in_its_own_words() -> None:
    nothing = Plan("lake", ("db", "t"), None, None, None, ())
    left = (Skipped("outside the time window", 2),)

    assert why_idle(nothing, "no partition is worth a rewrite") == "no partition is worth a rewrite"
    assert why_idle(replace(nothing, left_alone=left), "") == "2 partitions left alone: outside the time window"
    assert why_idle(replace(nothing, left_alone=left, waits="Wait."), "") == "Wait."
