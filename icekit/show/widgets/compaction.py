"""Move a budget and see what it buys; plan, run, cancel and resume a compaction, each by a button that says what it will do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import ipywidgets as ipw

from icekit.compact.buying import bought
from icekit.compact.candidates import Candidate, candidates
from icekit.compact.execute import Stop
from icekit.compact.limits import Limits
from icekit.compact.model import Plan
from icekit.compact.outcome import Outcome
from icekit.compact.plan import plan as plan_purely
from icekit.compact.policy import Policy
from icekit.compact.run import resume, run
from icekit.compact.service import plan_table
from icekit.errors import IcekitError
from icekit.show import html, plan_charts
from icekit.show.explorer import Explorer
from icekit.show.plan import outcome_html, plan_html
from icekit.show.widgets.budget import HEAD, bought_told, budget_rows, budget_text, question, slider_steps
from icekit.show.widgets.controls import Progress, attempt, button, chosen, column, labelled, note, picture, row
from icekit.show.widgets.view import View
from icekit.show.widgets.work import Say, interruptible
from icekit.units import count


class CompactionExplorer(Explorer):
    """What a budget buys, and the run of the plan it makes.

    While the budget moves, plans are made by arithmetic on facts; the button asks the engine's planner.
    ``plan`` is the plan that the notebook has made, shown where there are no controls.
    """

    def __init__(self, view: View, policy: Policy, *, ledger: str = "", limits: Limits | None = None, plan: Plan | None = None) -> None:
        super().__init__()
        self.view, self.policy, self.ledger, self.limits = view, policy, ledger, limits or Limits()
        self.given = plan
        self.plan: Plan | None = None
        self.outcome: Outcome | None = None
        self._moving = False

    def static(self) -> str:
        """What the plan buys beside all there is to buy, and what other budgets would, as a chart and a table."""
        found = self.candidates()
        plan = self.given if self.given and self.given.table == self.view.facts.table else self.estimate(self.policy)
        chart = plan_charts.candidates(self.view.facts, found, plan)._repr_html_()
        if not found:
            return chart
        return chart + html.framed(
            "<p>What other budgets would buy, estimated from facts:</p>",
            html.table(HEAD, budget_rows(found, self._within), [i > 0 for i in range(len(HEAD))]),
        )

    def candidates(self) -> tuple[Candidate, ...]:
        """Partitions that are worth a rewrite, best first."""
        return candidates(self.view.facts, self.view.findings, self.policy, self.view.thresholds)

    def estimate(self, policy: Policy) -> Plan:
        """A plan by arithmetic on facts; asks nobody."""
        return plan_purely(self.view.facts, self.view.findings, policy, thresholds=self.view.thresholds)

    def _within(self, budget_bytes: int) -> Plan:
        return self.estimate(dataclasses.replace(self.policy, budget_bytes=budget_bytes, budget_files=None, budget_minutes=None))

    def with_budget(self, budget: str) -> Policy:
        """The policy with another budget; raises :class:`~icekit.errors.ParameterError` for a text that is none."""
        none = dataclasses.replace(self.policy, budget_bytes=None, budget_files=None, budget_minutes=None)
        given = Policy.of({"budget": budget})
        return dataclasses.replace(
            none, budget_bytes=given.budget_bytes, budget_files=given.budget_files, budget_minutes=given.budget_minutes
        )

    def build(self) -> Any:
        """The budget with what it buys, then the buttons, then what came of them."""
        self.slider = labelled(
            ipw.SelectionSlider,
            "Budget buys",
            "candidates in the order in which a budget buys them",
            options=[("all", "")],
            continuous_update=False,
        )
        self.budget = labelled(
            ipw.Text,
            "Budget",
            "what the plan may read in all: 200 GB, 500 files, or empty for no limit",
            value=budget_text(self.policy),
            placeholder="no limit",
            continuous_update=False,
        )
        self.buys, self.said = picture(), picture()
        self.planned, self.came = picture(), picture()
        self.trial = labelled(
            ipw.Checkbox,
            "Try it on a clone first",
            "runs the plan on a zero-copy clone, which is removed afterwards; the table is not changed",
            value=False,
            indent=True,
        )
        self.ask = button("Plan (dry run)", "", self._plan, style="primary")
        self.go = button("Run", "", self._confirm, style="warning", disabled=True)
        self.again = button("Resume", "", self._resume, disabled=True)
        self.progress = Progress("what was committed stays, the rest was not begun; the table is whole.")
        self.progress.rest(self.ask, self.go, self.again, self.budget, self.slider, self.trial)
        self.sure = picture()
        self.yes = button("Yes, run it", "run the plan that is shown", self._run, style="danger")
        self.no = button("No, do not run it", "go back; nothing is run", self._back)
        self.question = column(self.sure, row(self.yes, self.no))
        self.question.layout.display = "none"
        chosen(self.slider, self._slid)
        chosen(self.budget, self._show)
        self.view.on_change(self._follow)
        self._follow()
        return column(
            row(self.slider),
            row(self.budget),
            self.said,
            self.buys,
            self.trial,
            row(self.ask, self.go, self.again, self.progress.cancel),
            self.question,
            self.progress.told,
            self.planned,
            self.came,
        )

    # What the budget buys.

    def _follow(self) -> None:
        """Another table or other limits: other candidates, and no plan for them yet."""
        name = self.view.facts.name
        self.ask.tooltip = f"ask the engine's planner what it would rewrite of {name}; starts Spark, and runs nothing on the table"
        self.go.description, self.go.tooltip = (
            f"Run this plan on {name}",
            f"rewrite data files of {name} and commit; asks once more before it does",
        )
        self.again.description = f"Resume on {name}"
        self.again.tooltip = f"go on with the unfinished run on {name}: only what is left of it"
        self._moving = True
        try:
            self.slider.options = slider_steps(self.candidates())
            self.slider.index = len(self.slider.options) - 1
        finally:
            self._moving = False
        self._show()

    def _slid(self) -> None:
        if not self._moving:
            self.budget.value = self.slider.value

    def _show(self) -> None:
        self._forget()

        def show() -> None:
            found = self.candidates()
            estimated = self.estimate(self.with_budget(self.budget.value))
            self.said.value = note(
                f"{bought_told(bought(found, estimated), estimated)} Estimated from facts; the button asks the engine's planner."
            )
            self.buys.value = plan_charts.candidates(self.view.facts, found, estimated)._repr_html_()

        if not attempt(show, self.said):
            self.ask.disabled = True
            return
        self.ask.disabled = False

    def _forget(self) -> None:
        """A plan for another budget is not the one to run."""
        self.plan = None
        self.go.disabled = True
        self.question.layout.display = "none"
        self.planned.value = ""

    # Planning and running.

    def _plan(self) -> None:
        policy, trial, view = self.with_budget(self.budget.value), self.trial.value, self.view
        self._forget()

        def job(say: Say, stop: Stop) -> Plan:
            if not view.lake.spark_is_running:
                say("starting Spark")
            with interruptible(view.lake.spark, stop):
                return plan_table(
                    view.lake,
                    view.facts,
                    view.findings,
                    policy,
                    thresholds=view.thresholds,
                    ledger=self.ledger or None,
                    trial=trial,
                    stop=stop,
                    progress=say,
                )

        def done(made: Plan) -> str:
            self.plan = made
            self.planned.value = plan_html(made)
            self.go.disabled = not made.actions
            return f"A dry run: nothing has run on {made.name}. {bought_told(bought(self.candidates(), made), made)}"

        self.progress.run(f"Planning for {view.facts.name}", job, done)

    def _confirm(self) -> None:
        if self.plan is None:
            return
        self.yes.description = f"Yes, run it on {self.plan.name}"
        self.yes.tooltip = question(self.plan)
        self.sure.value = note(question(self.plan), "warning")
        self.question.layout.display = ""
        self.go.disabled = True
        self.no.focus()

    def _back(self) -> None:
        self.question.layout.display = "none"
        self.go.disabled = self.plan is None

    def _run(self) -> None:
        plan = self.plan
        if plan is None:
            return

        def job(say: Say, stop: Stop) -> Outcome:
            return run(self.view.lake, plan, execute=True, ledger=self.ledger or None, limits=self.limits, stop=stop, progress=say)

        self._forget()
        self.planned.value = plan_html(plan)
        self._go(f"Running {count(len(plan.actions), 'action')} on {plan.name}", job)

    def _resume(self) -> None:
        table = self.view.facts.table

        def job(say: Say, stop: Stop) -> Outcome:
            return resume(self.view.lake, table, ledger=self.ledger or None, limits=self.limits, stop=stop, progress=say)

        self._go(f"Resuming on {self.view.facts.name}", job)

    def _go(self, what: str, job: Callable[[Say, Stop], Outcome]) -> None:
        view = self.view
        self.came.value = ""

        def run_and_look(say: Say, stop: Stop) -> tuple[Outcome, Any]:
            outcome = job(say, stop)
            try:
                after = view.lake.observe(view.facts.table, ref=view.facts.ref, size_ratios=view.thresholds.size_ratios)
            except IcekitError as problem:
                say(f"The table could not be observed again: {problem}")
                after = None
            return outcome, after

        def done(both: tuple[Outcome, Any]) -> tuple[str, str]:
            outcome, after = both
            self.outcome = outcome
            if after is not None:
                view.look_at(view.lake, after)  # what is left to win; forgets the plan
            self.came.value = outcome_html(outcome)
            self.again.disabled = outcome.status not in ("stopped", "failed")
            if outcome.status == "stopped":
                return (
                    f"Cancelled: what was committed stays, and the rest of {outcome.plan.name} was not touched. Resume would go on with it.",
                    "warning",
                )
            kind = "critical" if outcome.exit_status else "fine"
            return f"{outcome.plan.name}: {outcome.status}; every figure and the proof are below.", kind

        self.question.layout.display = "none"
        self.progress.run(what, run_and_look, done)


def compaction(
    view: View, policy: Policy, *, ledger: str = "", limits: Limits | None = None, plan: Plan | None = None
) -> CompactionExplorer:
    """A budget to move and a plan to run; see :class:`CompactionExplorer`."""
    return CompactionExplorer(view, policy, ledger=ledger, limits=limits, plan=plan)
