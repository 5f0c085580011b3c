"""Explorers choose among facts: what a control changes, what it refuses, and the same facts without
controls.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from icekit.api import Lake
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import LedgerUnusable, ParameterError
from icekit.health import observe
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.model import TableFacts
from icekit.maintain.planning.savings import savings_of
from icekit.report.history.store import HistoryFile, health_record
from icekit.show import charts, tables, widgets
from icekit.show.chart import Chart
from icekit.show.explorer import SWITCH, WIDGET_VIEW, Explorer, are_widgets_on
from icekit.show.widgets.explorers import Following
from tests.factories import MIB, file_group, table_facts
from tests.kernels import kernel


def text(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.S))


def shown(explorer: Any) -> Any:
    """An explorer with its controls, as a front end shows it."""
    assert explorer.controls is not None
    return explorer


def every(view: widgets.View) -> list[Explorer]:
    return [
        widgets.choose(view),
        widgets.thresholds(view),
        widgets.compaction(view, CompactionPolicy()),
        widgets.follow(view, charts.partitions),
        widgets.follow(view, tables.settings),
        widgets.trend(view),
    ]


def test_every_explorer_shows_controls_and_the_same_facts_without(
    view: widgets.View, monkeypatch: pytest.MonkeyPatch
) -> None:
    for explorer in every(view):
        bundle = explorer._repr_mimebundle_()
        assert set(bundle) == {"text/plain", "text/html", WIDGET_VIEW}
        assert len(text(bundle["text/html"])) > 50, explorer
        monkeypatch.setenv(SWITCH, "off")
        explorer._controls = None
        off = explorer._repr_mimebundle_()
        assert explorer._controls is None, "a static run makes no controls"
        assert set(off) == {"text/plain", "text/html"}
        assert off["text/html"] == bundle["text/html"], "a page is not told what it lacks"
        if isinstance(explorer, Following):
            assert off["text/html"] == explorer.drawing._repr_html_(), (
                "as it is shown by itself: there was no control to move"
            )
        monkeypatch.delenv(SWITCH)


def test_the_switch_takes_two_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "of")
    with pytest.raises(ParameterError, match="did you mean off"):
        are_widgets_on()


def test_a_notebook_that_papermill_ran_has_controls_again_when_a_person_runs_it() -> None:
    """In a kernel: papermill's client sends cells without a name, a front end with one."""
    told = (
        "table: str = 'a'\nimport os\nos.environ.pop('ICEKIT_WIDGETS', None)\nfrom icekit.notebook "
        "import begin\nfrom icekit.show.explorer import are_widgets_on"
    )

    with kernel() as asked:

        def are_on(**metadata: str) -> str:
            messages = asked.run("begin(globals())\nprint(are_widgets_on())", **metadata)
            return "".join(str(message["content"].get("text", "")) for message in messages)

        asked.run(told)
        asked.run("# Parameters\ntable = 'b'")
        assert are_on(cellId="0f3a") == "True\n"
        assert are_on() == "False\n"
        assert are_on(cellId="0f3a") == "False\n", "what is said in the environment holds"


def test_every_control_has_a_visible_label_and_says_what_it_does(view: widgets.View) -> None:
    import ipywidgets as ipw

    def walk(widget: Any) -> Iterator[Any]:
        yield widget
        for child in getattr(widget, "children", ()):
            yield from walk(child)

    controls = [
        w
        for e in every(view)
        for w in walk(e.controls)
        if isinstance(w, (ipw.Button, ipw.ValueWidget))
    ]
    told = [w for w in controls if not isinstance(w, (ipw.HTML, ipw.Label))]
    assert len(told) >= 11
    for control in told:
        assert control.description, control
        assert control.tooltip, control.description


def test_a_limit_that_moves_changes_the_findings_and_what_to_keep(view: widgets.View) -> None:
    explorer = shown(widgets.thresholds(view))
    assert "snapshots_piling_up" not in view.findings.names

    for name, slider in explorer.sliders.items():
        assert slider.min <= getattr(Thresholds(), name) <= slider.max, name
    explorer.sliders["snapshots"].value = 5

    assert "snapshots_piling_up" in view.findings.names
    assert (
        "To keep these thresholds: thresholds = {&#39;snapshots&#39;: 5}" in explorer.message.value
    )
    explorer.reset.click()
    assert view.thresholds == Thresholds()
    assert explorer.message.value == ""


def test_a_limit_that_the_facts_cannot_answer_changes_nothing_and_says_so(local_lake: Lake) -> None:
    view = widgets.View(
        local_lake, table_facts(groups=(file_group(*[(300 + i) * MIB for i in range(60)]),))
    )
    chooser = shown(widgets.choose(view))
    assert "384 MiB–922 MiB 0 no rewrite" in text(chooser.card.value)
    told: list[str] = []
    view.on_change(lambda: told.append("changed"))
    before = view.findings

    with pytest.raises(ParameterError, match="observe the table with size_ratios"):
        view.judge_by(Thresholds(min_file_size_ratio=0.65))

    assert view.thresholds == Thresholds()
    assert view.findings == before
    assert told == []
    view.judge_by(Thresholds(min_file_size_ratio=0.5))
    assert "60 files, 100 % of bytes █" in text(chooser.card.value)


def test_charts_and_tables_follow_the_table_and_the_limits_in_view(
    view: widgets.View, local_lake: Lake
) -> None:
    drawn: list[str] = []

    def sizes(facts: TableFacts, thresholds: Thresholds | None = None) -> Chart:
        drawn.append(facts.name)
        return charts.file_sizes(facts, thresholds)

    chart, table, again = (
        shown(widgets.follow(view, draw)) for draw in (sizes, tables.settings, sizes)
    )
    before = table.area.value

    view.look_at(local_lake.observe("db.fine"))

    assert "db.fine" in again.area.value
    assert again.area.value == again.drawing._repr_html_()
    assert "db.sick" in chart.area.value, "a cell that was run again draws in its new output alone"
    assert drawn == ["db.sick", "db.sick", "db.fine"]
    assert table.area.value != before or table.drawing == tables.settings(view.facts)
    view.judge_by(Thresholds(min_file_size_ratio=0.5))
    assert "No rewrite needed (256 MiB" in text(again.area.value).replace("\N{NO-BREAK SPACE}", " ")
    view.judge_by(Thresholds(min_file_size_ratio=0.5))
    assert len(drawn) == 4, "what has not changed is not drawn again"


def test_choosing_a_table_feeds_the_others(view: widgets.View) -> None:
    chooser = shown(widgets.choose(view))
    partitions = shown(widgets.follow(view, charts.partitions))
    assert {"db.sick", "db.fine"} <= set(chooser.table.options)

    chooser.table.value = "db.fine"
    assert view.facts.name == "db.sick", "nothing is read before the button is pressed"
    chooser.button.click()

    assert view.facts.name == "db.fine"
    assert "db.fine" in chooser.card.value
    assert "db.fine" in partitions.area.value
    chooser.table.value = "db.sik"
    chooser.button.click()

    assert "did you mean db.sick" in text(chooser.message.value)
    assert view.facts.name == "db.fine", "what is not there leaves the view as it was"


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (
            ZeroDivisionError("division by zero\nsecond line"),
            "ZeroDivisionError: division by zero<",
        ),
        (KeyboardInterrupt(), "Stopped. db.sick stays in view."),
    ],
)
def test_a_reading_that_fails_or_is_interrupted_says_so_and_leaves_the_view(
    view: widgets.View,
    monkeypatch: pytest.MonkeyPatch,
    problem: BaseException,
    sentence: str,
) -> None:
    chooser = shown(widgets.choose(view))
    monkeypatch.setattr("icekit.show.widgets.explorers.observe", Mock(side_effect=problem))

    chooser.table.value = "db.fine"
    chooser.button.click()

    assert sentence in chooser.message.value
    assert view.facts.name == "db.sick"


def test_a_snapshot_of_a_table_can_be_chosen(view: widgets.View) -> None:
    chooser = shown(widgets.choose(view))
    oldest = view.facts.history.commits[0].snapshot_id

    chooser.ref.value = str(oldest)
    chooser.button.click()

    assert view.facts.data.file_count == 1
    assert view.facts.snapshot_id == oldest
    assert chooser.ref.value == str(oldest)


def test_the_trend_follows_the_table_and_the_thresholds(view: widgets.View, tmp_path: Path) -> None:
    history = tmp_path / "history.db"
    last = health_record(view.facts, view.findings, savings_of(view.facts, view.findings), "r1")
    HistoryFile(history).append([replace(last, observed_at_ms=1_000, snapshots=7)])
    drawn = shown(widgets.trend(view, str(history)))

    assert "2 runs of db.sick" in drawn.area.value
    assert "snapshots: 7 → 12" not in text(drawn.area.value)
    view.judge_by(Thresholds(snapshots=10))
    assert "snapshots: 7 → 12" in text(drawn.area.value)
    view.look_at(observe(view.lake, "db.fine"))

    assert "No earlier run to compare with" in text(drawn.area.value)


def test_a_history_that_cannot_be_read_is_a_sentence_where_the_trend_was(
    view: widgets.View, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = shown(widgets.trend(view, "history.db"))
    sick = view.facts
    with monkeypatch.context() as patched:
        patched.setattr(HistoryFile, "newest_runs", refused)
        view.look_at(observe(view.lake, "db.fine"))
        assert "Nothing is shown of db.fine: The history is locked." in text(drawn.area.value)

    view.look_at(sick)

    assert "Nothing is shown" not in text(drawn.area.value)


def refused(*_: object) -> None:
    raise LedgerUnusable("The history is locked.")
