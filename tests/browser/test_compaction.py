"""A person in 02_compact: chooses a budget, plans and looks at a dry run; what the table then is, is
read from the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from icekit.api import Lake
from tests.browser.driving import Driven, expect, opened
from tests.browser.jupyter import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

TABLE = "lab.skewed_small_files"


@pytest.fixture(scope="module")
def notebook(chromium: Browser, server: Server) -> Iterator[Driven]:
    with opened(chromium, server, "02_compact.ipynb") as driven:
        yield driven


def choose(notebook: Driven, label: str, value: str) -> None:
    """Type a choice, and leave the field."""
    notebook.page.get_by_label(label, exact=True).focus()
    for key in ("ControlOrMeta+a", "Delete", *value, "Tab"):
        notebook.page.keyboard.press("Space" if key == " " else key)


def test_a_budget_is_chosen_and_the_cells_plan_it_and_run_nothing(
    notebook: Driven, table_lake: Lake, screenshots: Path | None, images: Path | None
) -> None:
    before = table_lake.observe(TABLE, collector="local").snapshot_id
    panel = notebook.cell("widgets.compaction(")
    expect(panel.get_by_text("The plan takes 4 candidates").first).to_be_visible()
    notebook.picture(screenshots, "lab-02_compact.png")

    choose(notebook, "Budget", "much")
    expect(panel.get_by_text("The chart shows the last choice.")).to_be_visible()
    choose(notebook, "Budget", "100 files")

    expect(panel.get_by_text("The plan takes 3 candidates").first).to_be_visible()
    expect(panel.get_by_text("budget = '100 files'")).to_be_visible()
    if images:
        notebook.pictured(
            images / "compact.png", "widgets.compaction(", "widgets.compaction(", 1700
        )
    notebook.run_cell("plan_table(view.lake")
    plan = notebook.cell("plan_table(view.lake")
    expect(plan.get_by_text("in 3 partitions").first).to_be_visible()
    notebook.run_cell("view.lake.run(plan")
    outcome = notebook.cell("view.lake.run(plan")
    expect(outcome.get_by_text("Nothing has run.").first).to_be_visible()
    assert table_lake.observe(TABLE, collector="local").snapshot_id == before


def test_partitions_are_chosen_by_their_time(notebook: Driven) -> None:
    panel = notebook.cell("widgets.compaction(")
    choose(notebook, "Budget", "")
    expect(panel.get_by_text("The plan takes 4 candidates").first).to_be_visible()

    choose(notebook, "Partitions from", "2013-12-01")

    expect(panel.get_by_text("The plan takes 2 candidates").first).to_be_visible()
