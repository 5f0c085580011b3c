"""See what a compaction would rewrite, and choose its partitions and its budget; a notebook's cells
plan and run it.
"""

from functools import partial
from typing import Any

from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import IcekitError, ParameterError
from icekit.common.sql import display_name
from icekit.maintain.planning.candidates import candidates
from icekit.maintain.planning.compaction import plan
from icekit.maintain.planning.table_plan import past_speed
from icekit.maintain.policy import findings_of
from icekit.show import charts
from icekit.show.explorer import Explorer
from icekit.show.widgets.controls import View, column, html_area, note, text_field

_FIELDS = {
    "budget": (
        "Budget",
        "how much the plan may read: 200 GB, 500 files, 500 million rows or 30 minutes; empty: no "
        "limit",
    ),
    "since": (
        "Partitions from",
        "only partitions from this date or time on (UTC), such as 2026-01-31; empty: all",
    ),
    "until": (
        "Partitions until",
        "only partitions that end by this date or time (UTC); empty: all",
    ),
}


class CompactionExplorer(Explorer):
    """What a plan would rewrite of all partitions that are worth it, and a choice of its partitions
    and its budget.

    ``policy`` are the options of ``icekit compact``, for the cell that plans. The figures are estimated from the facts; nothing is run.
    """

    def __init__(self, view: View, policy: CompactionPolicy, *, ledger: str = "") -> None:
        super().__init__(view)
        self.policy = policy
        self.ledger = ledger or None

    def static(self) -> str:
        """What the plan takes of all partitions that are worth a rewrite, as a chart."""
        try:
            return self._chart(self.policy)
        except IcekitError as problem:
            return note(f"There is no plan for {self.view.facts.name}: {problem}", "critical")

    def build(self) -> Any:
        """A field for each choice, above the chart."""
        self.fields = {
            name: text_field(label, tooltip, str(getattr(self.policy, name) or ""))
            for name, (label, tooltip) in _FIELDS.items()
        }
        for name, field in self.fields.items():
            field.observe(partial(self._choose, name), names="value")
        self.message = html_area()
        self.chart = html_area(self.static())
        self.view.on_change(self._follow)
        return column(*self.fields.values(), self.message, self.chart)

    def _choose(self, name: str, change: Any) -> None:
        """Take a choice, or say what is wrong with it, and keep the last one."""
        values = self.policy.only(*CompactionPolicy.declared) | {name: change.new.strip()}
        try:
            policy = CompactionPolicy(**values)
            chart = self._chart(policy)
        except ParameterError as problem:
            self.message.value = note(f"{problem} The chart shows the last choice.", "critical")
            return
        self.policy = policy
        self.chart.value = chart
        choices = [
            f"{each} = {str(value)!r}" for each in self.fields if (value := getattr(policy, each))
        ]
        sentence = "Run the cells below to plan this."
        if choices:
            sentence += f" To keep it, in the notebook's parameters: {'; '.join(choices)}"
        self.message.value = note(sentence)

    def _follow(self) -> None:
        self.message.value = ""
        self.chart.value = self.static()

    def _chart(self, policy: CompactionPolicy) -> str:
        facts = self.view.facts
        findings = self.view.findings
        thresholds = self.view.thresholds
        full_name = display_name(self.view.lake.sql_name(facts.table))
        speed = past_speed(self.ledger, full_name) if policy.budget_minutes else None
        estimate = plan(facts, findings, policy, thresholds=thresholds, speed=speed)
        own_findings = findings_of(policy, facts, findings, thresholds)
        ranked_candidates = candidates(facts, own_findings, policy, thresholds)
        return charts.candidates(facts, ranked_candidates, estimate)._repr_html_()
