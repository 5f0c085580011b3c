"""See what a compaction would rewrite, and choose its partitions and its budget; a notebook's cells
plan and run it.
"""

from functools import partial
from typing import Any

from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import IcekitError, ParameterError
from icekit.common.sql import display_name
from icekit.maintain.planning.compaction import plan_selection
from icekit.maintain.planning.selection import select
from icekit.maintain.planning.table_plan import past_speed
from icekit.maintain.policy import findings_of, thresholds_of
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

    ``policy`` are the options of ``icekit compact``, for the cell that plans. The figures are
    estimated from the facts, those for a budget in minutes also from the speed of past runs in
    ``ledger`` (empty: the default file); nothing is run.
    """

    def __init__(self, view: View, policy: CompactionPolicy, *, ledger: str = "") -> None:
        super().__init__(view)
        self.policy = policy
        self.ledger_path = ledger or None

    def static_html(self) -> str:
        """What the plan takes of all partitions that are worth a rewrite, as a chart."""
        try:
            return self._chart_html(self.policy)
        except IcekitError as problem:
            return note(f"There is no plan for {self.view.facts.name}: {problem}", "critical")

    def build_controls(self) -> Any:
        """A field for each choice, above the chart."""
        self.fields = {
            option_name: text_field(label, tooltip, str(getattr(self.policy, option_name) or ""))
            for option_name, (label, tooltip) in _FIELDS.items()
        }
        for option_name, option_field in self.fields.items():
            option_field.observe(partial(self._choose, option_name), names="value")
        self.message = html_area()
        self.chart = html_area(self.static_html())
        self.view.on_change(self._on_view_change)
        return column(*self.fields.values(), self.message, self.chart)

    def _choose(self, option_name: str, value_change: Any) -> None:
        """Take a choice, or say what is wrong with it, and keep the last one."""
        policy_values = self.policy.only(*CompactionPolicy.declarations) | {
            option_name: value_change.new.strip()
        }
        try:
            policy = CompactionPolicy(**policy_values)
            chart_html = self._chart_html(policy)
        except ParameterError as problem:
            self.message.value = note(f"{problem} The chart shows the last choice.", "critical")
            return
        self.policy = policy
        self.chart.value = chart_html
        parameter_texts = [
            f"{chosen_name} = {str(chosen_value)!r}"
            for chosen_name in self.fields
            if (chosen_value := getattr(policy, chosen_name))
        ]
        message_sentence = "Run the cells below to plan this."
        if parameter_texts:
            message_sentence += (
                f" To keep it, in the notebook's parameters: {'; '.join(parameter_texts)}"
            )
        self.message.value = note(message_sentence)

    def _on_view_change(self) -> None:
        self.message.value = ""
        self.chart.value = self.static_html()

    def _chart_html(self, policy: CompactionPolicy) -> str:
        facts = self.view.facts
        thresholds = thresholds_of(policy, self.view.thresholds)
        findings = findings_of(policy, facts, self.view.findings, self.view.thresholds)
        full_table_name = display_name(self.view.lake.sql_name(facts.table))
        past_rewrite_speed = (
            past_speed(self.ledger_path, full_table_name) if policy.budget_minutes else None
        )
        selection = select(facts, findings, policy, thresholds, speed=past_rewrite_speed)
        estimated_plan = plan_selection(facts, findings, policy, thresholds, selection)
        return charts.candidates(facts, selection.all_candidates, estimated_plan)._repr_html_()
