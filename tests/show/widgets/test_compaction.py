"""What of a compaction can be pressed, for which table, and what is asked before it is done."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from icekit.common.errors import ParameterError, Status
from icekit.health import observe
from icekit.health.diagnose.findings import Thresholds
from icekit.maintain.claims import RunRecord
from icekit.maintain.ledger import open_ledger
from icekit.maintain.model import Action, Plan, Prediction
from icekit.maintain.outcome import ActionOutcome, Outcome
from icekit.maintain.policy import Policy
from icekit.show import widgets
from icekit.show.widgets.compaction import CompactionExplorer
from icekit.show.widgets.controls import Progress
from icekit.show.widgets.explorers import Chooser


@pytest.fixture
def explorer(view: widgets.View, tmp_path: Path) -> CompactionExplorer:
    made = widgets.compaction(
        view, Policy(leave_alone_minutes=0), ledger=str(tmp_path / "ledger.db")
    )
    assert made.controls is not None
    return made


@pytest.fixture
def chooser(view: widgets.View) -> Chooser:
    made = widgets.choose(view)
    assert made.controls is not None
    return made


def planned(view: widgets.View) -> Plan:
    """A plan of two actions for the table in view."""
    of = Prediction(6, 600, 1, 500)
    name, table = view.lake.name, view.facts.table
    return Plan(
        name,
        table,
        None,
        None,
        None,
        tuple(
            Action(f"a{i}", "rewrite_data_files", name, table, "small files", of) for i in (1, 2)
        ),
    )


def stopped(view: widgets.View) -> Outcome:
    """A run on the table in view that was stopped after its first action."""
    plan = planned(view)
    return Outcome(
        plan,
        "r1",
        (
            ActionOutcome(plan.actions[0], Status.DONE),
            ActionOutcome(plan.actions[1], Status.STOPPED),
        ),
    )


def ran(explorer: CompactionExplorer, outcome: Outcome) -> None:
    """Let the explorer do work that comes to an outcome."""

    def job(**_: object) -> Outcome:
        return outcome

    explorer._go("Running 2 actions on db.sick", job)
    assert explorer.progress.wait(120)


@contextlib.contextmanager
def at_work(
    start: Callable[[Callable[..., object]], object], progress: Progress, result: object = None
) -> Iterator[None]:
    """Work that has begun, and comes to its result when the block ends."""
    begun, go = threading.Event(), threading.Event()

    def job(*_: object, **__: object) -> object:
        begun.set()
        go.wait(120)
        return result

    start(job)
    assert begun.wait(120)
    try:
        yield
    finally:
        go.set()
    assert progress.wait(120)


def is_asking(explorer: CompactionExplorer) -> bool:
    return explorer.question.is_open


def test_resume_is_for_the_table_whose_run_was_stopped_and_asks_first_with_the_runs_name(
    view: widgets.View, explorer: CompactionExplorer
) -> None:
    sick = view.facts
    ran(explorer, stopped(view))
    assert not explorer.again.disabled

    view.look_at(observe(view.lake, "db.fine"))
    assert explorer.again.description == "Resume on db.fine"
    assert explorer.again.disabled
    explorer.again.click()
    assert not is_asking(explorer)

    view.look_at(sick)
    view.limit(Thresholds(snapshots=5))
    assert not explorer.again.disabled
    explorer.again.click()

    assert is_asking(explorer)
    assert explorer.question.yes.description == "Yes, resume it on db.sick"
    assert (
        "Continue run r1 on lake.db.sick now? It runs what is left, as planned"
        in explorer.question.yes.tooltip
    )
    assert explorer.again.disabled
    assert not explorer.progress.is_running
    explorer.question.no.click()
    assert not is_asking(explorer)
    assert not explorer.again.disabled


def test_only_the_run_that_was_named_is_resumed(
    view: widgets.View, explorer: CompactionExplorer
) -> None:
    ran(explorer, stopped(view))
    book, table = open_ledger(explorer.ledger), f"{view.lake.name}.db.sick"
    for run_id, started_ms in (("r1", 1_000), ("somebody-else", 2_000)):
        book.save_run(
            RunRecord(run_id, table, None, Status.STOPPED, started_ms, started_ms + 1, {}, None)
        )

    explorer.again.click()
    explorer.question.yes.click()

    assert explorer.progress.wait(120)
    assert (
        "The ledger has no unfinished run on db.sick. Plan and run without --resume."
        in explorer.progress.log.value
    )


def test_the_table_stays_in_view_while_something_runs_on_it(
    view: widgets.View, explorer: CompactionExplorer, chooser: Chooser
) -> None:
    fine = observe(view.lake, "db.fine")

    def start(job: Any) -> None:
        explorer._go("Running 2 actions on db.sick", job)

    with at_work(start, explorer.progress, stopped(view)):
        assert all(control.disabled for control in (chooser.table, chooser.ref, chooser.observe))
        assert all(control.disabled for control in (explorer.ask, explorer.go, explorer.again))
        with pytest.raises(
            ParameterError,
            match=r"Running 2 actions on db.sick is in progress, so db.sick stays in view",
        ):
            view.look_at(fine)
        chooser._observe()  # a press that comes late
        assert "stays in view; wait until it has ended, or" in chooser.progress.log.value
        view.limit(Thresholds(snapshots=5))
        assert explorer.ask.disabled

    assert view.facts.name == "db.sick"
    assert not any(control.disabled for control in (chooser.table, chooser.ref, chooser.observe))
    assert not any(control.disabled for control in (explorer.ask, explorer.again))
    view.look_at(fine)


def test_nothing_is_planned_or_run_while_another_table_is_read(
    view: widgets.View, explorer: CompactionExplorer, chooser: Chooser
) -> None:
    explorer._take(planned(view), view.facts, view.thresholds)
    explorer.go.click()

    def start(job: Any) -> None:
        chooser.progress.run("Reading db.fine", job, lambda _: ("read", "fine"))

    with at_work(start, chooser.progress):
        assert all(control.disabled for control in (explorer.ask, explorer.go, explorer.again))
        explorer.question.yes.click()
        assert not explorer.progress.is_running
        assert "Reading db.fine is in progress, so db.sick stays" in explorer.progress.log.value
    assert not explorer.ask.disabled


def test_a_run_is_shown_with_its_own_plan_and_the_cells_below_are_called_behind_until_they_take_it(
    view: widgets.View, explorer: CompactionExplorer
) -> None:
    sick, outcome = view.facts, stopped(view)
    assert explorer.take_outcome() is None

    ran(explorer, outcome)

    assert explorer.planned.value == ""
    assert explorer.plan is None
    assert "The plan of this run" in explorer.result.value
    assert "The cells below still show what was before this run" in explorer.behind.value
    assert explorer.take_outcome() is outcome
    assert explorer.behind.value == ""
    view.look_at(observe(view.lake, "db.fine"))
    assert (explorer.take_outcome(), explorer.result.value) == (None, ""), "it is of another table"
    view.look_at(sick)
    assert explorer.take_outcome() is outcome


def test_a_plan_is_forgotten_with_the_table_it_was_made_for(
    view: widgets.View, explorer: CompactionExplorer
) -> None:
    assert explorer.go.disabled, "nothing can be run before a plan was shown"
    explorer._confirm()
    assert not is_asking(explorer)
    explorer._take(planned(view), view.facts, view.thresholds)
    assert not explorer.go.disabled
    assert explorer.go.description == "Run this plan on db.sick"
    explorer.go.click()
    assert is_asking(explorer)

    view.look_at(observe(view.lake, "db.fine"))

    assert explorer.plan is None
    assert not is_asking(explorer)
    assert explorer.go.disabled
    explorer.question.yes.click()
    assert not explorer.progress.is_running
    assert explorer.ran() is None


def test_a_plan_that_comes_when_something_else_is_in_view_is_discarded(
    view: widgets.View, explorer: CompactionExplorer
) -> None:
    made, facts, limits = planned(view), view.facts, view.thresholds
    view.limit(limits.with_changes(snapshots=5))

    said, kind = explorer._take(made, facts, limits)

    assert "was discarded" in said
    assert kind == "warning"
    assert explorer.plan is None
    assert explorer.go.disabled
    assert explorer._take(made, facts, view.thresholds)[1] == "fine"
    assert not explorer.go.disabled
