"""See what a policy would rewrite; plan, run, cancel and resume a compaction, each with a button
that says what it will do.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from icekit.common.errors import EXIT_HEALTHY, EXIT_STOPPED, IcekitError, Status
from icekit.common.sql import Identifier
from icekit.common.units import count
from icekit.common.view import Folded, as_html
from icekit.engine.interrupting import Stop
from icekit.health import observe
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.model import TableFacts
from icekit.maintain.candidates import candidates
from icekit.maintain.model import Plan
from icekit.maintain.outcome import Outcome
from icekit.maintain.plan import plan as plan_purely
from icekit.maintain.policy import Policy
from icekit.maintain.run.options import Limits
from icekit.maintain.run.verbs import resume, run
from icekit.maintain.service import plan_table
from icekit.show import charts
from icekit.show.explorer import Explorer
from icekit.show.widgets.controls import (
    Progress,
    Question,
    Say,
    View,
    button,
    column,
    interruptible,
    note,
    picture,
    row,
)

_KINDS = {EXIT_HEALTHY: "fine", EXIT_STOPPED: "warning"}
#: What is said under the controls until a cell below takes their outcome.
BEHIND = (
    "The cells below still show what was before this run. To show this run there: select the next "
    "cell, then Run ▸ Run Selected Cell and All Below."
)


class CompactionExplorer(Explorer):
    """What a policy covers, and the run of the plan it makes.

    The estimate is arithmetic on facts; the button asks the engine's planner.
    ``plan`` is the plan that the notebook has made, shown where there are no controls; ``trial``
    says whether plans are tried on a clone.
    """

    def __init__(
        self,
        view: View,
        policy: Policy,
        *,
        ledger: str = "",
        limits: Limits | None = None,
        plan: Plan | None = None,
        trial: bool = False,
    ) -> None:
        super().__init__(view)
        self.policy = policy
        self.limits = limits or Limits()
        self.trial = trial
        self.ledger = ledger or None
        self.given = plan
        self.plan: Plan | None = None
        # The last run here on each table.
        self._outcomes: dict[Identifier, Outcome] = {}

    def static(self) -> str:
        """What the plan that was given, or one by arithmetic on facts, covers of all partitions
        that are worth a rewrite, as a chart.
        """
        facts = self.view.facts
        findings = self.view.findings
        limits = self.view.thresholds
        plan = self.given
        if plan is None or plan.table != facts.table:
            plan = plan_purely(facts, findings, self.policy, thresholds=limits)
        ranked = candidates(facts, findings, self.policy, limits)
        return charts.candidates(facts, ranked, plan)._repr_html_()

    def build(self) -> Any:
        """What the policy covers, then the buttons, then what they did."""
        self.savings = picture()
        self.planned = picture()
        self.behind = picture()
        self.result = picture()
        self.ask = button(
            "Plan (dry run)",
            "ask the engine's planner what it would rewrite; starts Spark, and runs nothing on the "
            "table",
            self._plan,
            style="primary",
        )
        self.go = button(
            "Run",
            "rewrite data files and commit; asks once more before it does",
            self._confirm,
            style="warning",
        )
        self.again = button(
            "Resume",
            "continue the unfinished run: only what is left of it; asks once more before it does",
            self._confirm_rest,
        )
        self.progress = Progress(
            self.view,
            "what was committed stays, and the rest was not started; the table is intact.",
        )
        self.question = Question(self._settle)
        self.view.on_change(self._follow)
        self.view.on_hold(self._settle)
        self._follow()
        return column(
            self.savings,
            row(self.ask, self.go, self.again, self.progress.cancel),
            self.question.box,
            self.progress.log,
            self.behind,
            self.planned,
            self.result,
        )

    def _follow(self) -> None:
        """Another table or other limits: other candidates, and no plan for them yet."""
        name = self.view.facts.name
        outcome = self.ran()
        self.go.description = f"Run this plan on {name}"
        self.again.description = f"Resume on {name}"
        if outcome:
            plan = Folded("The plan of this run", outcome.plan.details())
            self.result.value = as_html([*outcome.blocks(), plan])
        else:
            self.result.value = self.behind.value = ""
        self._forget()
        self.savings.value = self.static()

    def _forget(self) -> None:
        """A plan for another table or other limits is not the one to run."""
        self.plan = None
        self.question.close()
        self.planned.value = ""
        self._settle()

    # Planning and running.

    def _settle(self) -> None:
        """Which controls may be used: none while work is under way on what is in view."""
        self.ask.disabled = bool(self.view.held)
        busy = self.ask.disabled or self.question.is_open
        self.go.disabled = busy or self.plan is None or not self.plan.actions
        self.again.disabled = busy or self._left() is None

    def _left(self) -> Outcome | None:
        """The unfinished run on the table in view."""
        outcome = self.ran()
        return outcome if outcome and outcome.status in (Status.STOPPED, Status.FAILED) else None

    def ran(self) -> Outcome | None:
        """What the controls have run on the table in view; None if they have run nothing on it."""
        return self._outcomes.get(self.view.facts.table)

    def take_outcome(self) -> Outcome | None:
        """The same, for the cells below the controls: the line that says that they are behind
        goes.
        """
        if self._controls is not None:
            self.behind.value = ""
        return self.ran()

    def _plan(self) -> None:
        view = self.view
        lake = view.lake
        facts = view.facts
        findings = view.findings
        limits = view.thresholds
        self._forget()

        def job(say: Say, stop: Stop) -> Plan:
            if not lake.spark_is_running:
                say("starting Spark")
            with interruptible(lake.spark, stop):
                return plan_table(
                    lake,
                    facts,
                    findings,
                    self.policy,
                    thresholds=limits,
                    ledger=self.ledger,
                    trial=self.trial,
                    stop=stop,
                    progress=say,
                )

        self.progress.run(
            f"Planning for {facts.name}", job, lambda made: self._take(made, facts, limits)
        )

    def _take(self, plan: Plan, facts: TableFacts, limits: Thresholds) -> tuple[str, str]:
        """Take a plan that was made for facts by limits, if they are still those in view."""
        if self.view.facts is not facts or self.view.thresholds != limits:
            return (
                f"The plan for {plan.name} was discarded: the table in view has changed since you "
                "asked for it. Plan again.",
                "warning",
            )
        self.plan = plan
        self.planned.value = as_html(plan.blocks())
        self._settle()
        return f"A dry run: nothing has run on {plan.name}.", "fine"

    def _confirm(self) -> None:
        if (plan := self.plan) is not None:
            question = (
                f"Run this on {plan.catalog}.{plan.name} now? {plan.summary} It checks that no row "
                "changes, and commits each action. The replaced files stay until their snapshots "
                "expire."
            )
            self.question.ask("run", plan.name, question, lambda: self._run(plan))

    def _confirm_rest(self) -> None:
        if (left := self._left()) is not None:
            plan = left.plan
            question = (
                f"Continue run {left.run_id} on {plan.catalog}.{plan.name} now? It runs what is "
                "left, as planned; what was committed is not run again."
            )
            # Only the run that the question named.
            resuming = partial(resume, self.view.lake, self.view.facts.table, run_id=left.run_id)
            work = f"Resuming run {left.run_id} on {plan.name}"
            self.question.ask("resume", plan.name, question, lambda: self._go(work, resuming))

    def _run(self, plan: Plan) -> None:
        self._forget()
        self.planned.value = as_html(plan.blocks())
        work = f"Running {count(len(plan.actions), 'action')} on {plan.name}"
        self._go(work, partial(run, self.view.lake, plan, execute=True))

    def _go(self, work_name: str, verb: Callable[..., Outcome]) -> None:
        """Run, and look at the table again; all of it on the table that is in view now."""
        view = self.view
        before = view.facts
        ratios = view.thresholds.size_ratios

        def run_and_look(say: Say, stop: Stop) -> tuple[Outcome, TableFacts]:
            outcome = verb(ledger=self.ledger, limits=self.limits, stop=stop, progress=say)
            try:
                return outcome, observe(
                    view.lake,
                    before.table,
                    ref=before.ref,
                    size_ratios=ratios,
                    filter_columns=before.filter_columns,
                )
            except IcekitError as problem:
                say(f"The table could not be observed again: {problem}")
                return outcome, before

        def done(both: tuple[Outcome, TableFacts]) -> tuple[str, str]:
            outcome, after = both
            self._outcomes[before.table] = outcome
            if view.facts is before:
                self.behind.value = note(BEHIND, "warning")
                view.look_at(after)  # what is left to win; forgets the plan
            kind = _KINDS.get(outcome.exit_status, "critical")
            message = (
                f"{outcome.plan.name}: {outcome.status}; every figure and the proof are below."
            )
            return message, kind

        self.progress.run(work_name, run_and_look, done)
