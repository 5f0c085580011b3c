"""What of a compaction can be chosen, what is shown of it, and what the cells get."""

import re
from pathlib import Path

import pytest

from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.health import observe
from icekit.health.diagnose.findings import Thresholds
from icekit.show import widgets
from icekit.show.widgets.compaction import CompactionExplorer


@pytest.fixture
def explorer(view: widgets.View, tmp_path: Path) -> CompactionExplorer:
    options = CompactionPolicy(leave_alone="0 minutes")
    made = widgets.compaction(view, options, ledger=str(tmp_path / "ledger.db"))
    assert made.controls is not None
    return made


def candidates_in(html: str) -> str:
    """How many candidates the plan takes, as the chart says it."""
    found = re.search(r"The plan takes (\d+ candidates?)", html)
    return found[1] if found else ""


def test_a_choice_changes_the_chart_and_the_policy_of_the_cells(
    explorer: CompactionExplorer,
) -> None:
    assert candidates_in(explorer.chart.value) == "1 candidate"

    explorer.fields["budget"].value = "3 files"

    assert explorer.policy.changed() == {"leave_alone": "0 minutes", "budget": "3 files"}
    assert candidates_in(explorer.chart.value) == "0 candidates"
    assert explorer.static_html() == explorer.chart.value, "a page shows the same"
    assert "Run the cells below to plan this." in explorer.message.value
    assert "budget = &#39;3 files&#39;" in explorer.message.value
    explorer.fields["budget"].value = " "
    assert explorer.policy.changed() == {"leave_alone": "0 minutes"}
    assert candidates_in(explorer.chart.value) == "1 candidate"


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("budget", "much", "is not bytes (200 GB), rows"),
        ("budget", "30 minutes", "A budget in minutes needs the speed of past runs"),
        ("since", "yesterday", "yesterday"),
        ("until", "2026-01-31", "is not partitioned by time"),
    ],
)
def test_a_choice_that_does_not_fit_is_refused_and_the_last_one_stays(
    explorer: CompactionExplorer, field: str, value: str, problem: str
) -> None:
    policy = explorer.policy
    chart = explorer.chart.value

    explorer.fields[field].value = value

    assert problem in explorer.message.value.replace("&#39;", "'")
    assert "The chart shows the last choice." in explorer.message.value
    assert explorer.policy is policy
    assert explorer.chart.value == chart


def test_the_chart_follows_the_table_and_the_thresholds_in_view(
    view: widgets.View, explorer: CompactionExplorer
) -> None:
    explorer.fields["budget"].value = "much"

    view.look_at(observe(view.lake, "db.fine"))

    assert "No partition is worth a rewrite" in explorer.chart.value
    assert explorer.message.value == ""
    view.look_at(observe(view.lake, "db.sick"))
    assert candidates_in(explorer.chart.value) == "1 candidate"
    view.judge_by(Thresholds(min_input_files=100, thin_partition_share=0.0))
    assert candidates_in(explorer.chart.value) == ""


def test_options_that_do_not_fit_the_table_are_a_sentence_where_the_chart_was(
    view: widgets.View,
) -> None:
    panel = widgets.compaction(view, CompactionPolicy(since="2026-01-31"))

    assert "There is no plan for db.sick: db.sick is not partitioned by time" in panel.static_html()


def test_nothing_of_the_controls_runs_a_compaction(explorer: CompactionExplorer) -> None:
    import ipywidgets

    kinds = {type(child) for child in explorer.controls.children}
    assert kinds == {ipywidgets.Text, ipywidgets.HTML}


def test_the_chart_has_the_limits_of_the_policy(view: widgets.View) -> None:
    """Also where the findings of the view ask for nothing."""
    strict = widgets.View(view.lake, view.facts, Thresholds(min_input_files=20))
    policy = CompactionPolicy(leave_alone="0 minutes", min_files=2)

    charts = [CompactionExplorer(each, policy).static_html() for each in (view, strict)]

    assert "small_files" not in strict.findings.names
    assert candidates_in(charts[0]) == candidates_in(charts[1]) == "1 candidate"
