"""A person in 02_compact: plans, says no, runs, cancels, resumes; what the table then is, is read
from the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from icekit.api import Lake
from icekit.health.facts.model import TableFacts
from tests.browser.driving import PATIENCE, Driven, expect, opened
from tests.browser.jupyter import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

TABLE = "lab.skewed_small_files"


@pytest.fixture(scope="module")
def notebook(chromium: Browser, server: Server) -> Iterator[Driven]:
    with opened(chromium, server, "02_compact.ipynb") as driven:
        yield driven


def now(lake: Lake) -> TableFacts:
    return lake.observe(TABLE, collector="local")


def test_what_the_policy_covers_is_shown_before_anything_is_planned(notebook: Driven) -> None:
    cell = notebook.cell("widgets.compaction(")
    expect(cell.get_by_text("The plan takes 4 candidates").first).to_be_visible()


def planned(notebook: Driven) -> None:
    """A plan of more than one action, made now, whatever was planned before."""
    run = notebook.button(f"Run this plan on {TABLE}")
    notebook.button("Plan (dry run)").click()
    expect(run).to_be_enabled(timeout=PATIENCE)
    expect(notebook.page.get_by_text(f"A dry run: nothing has run on {TABLE}.")).to_be_visible()


def test_a_dry_run_runs_nothing_and_a_no_runs_nothing(notebook: Driven, table_lake: Lake) -> None:
    before = now(table_lake)
    run = notebook.button(f"Run this plan on {TABLE}")

    planned(notebook)
    run.click()
    expect(
        notebook.page.get_by_text("Run this on lake.lab.skewed_small_files now?")
    ).to_be_visible()
    notebook.button("No, do not run it").click()

    expect(notebook.button(f"Yes, run it on {TABLE}")).to_be_hidden()
    expect(run).to_be_enabled()
    assert now(table_lake).snapshot_id == before.snapshot_id


def test_a_run_that_is_cancelled_leaves_the_table_whole_and_resume_finishes_it(
    notebook: Driven, table_lake: Lake, screenshots: Path | None, images: Path | None
) -> None:
    planned(notebook)
    before = now(table_lake)
    cell = notebook.cell("widgets.compaction(")
    notebook.button(f"Run this plan on {TABLE}").click()
    notebook.button(f"Yes, run it on {TABLE}").click()
    # The second action waits there to be cancelled.
    expect(cell.get_by_text("[2/")).to_be_visible(timeout=PATIENCE)
    expect(notebook.button("Observe")).to_be_disabled()
    cell.get_by_role("button", name="Cancel", exact=True).click()

    resume = notebook.button(f"Resume on {TABLE}")
    expect(cell.get_by_text(f"{TABLE}: stopped; every figure")).to_be_visible(timeout=PATIENCE)
    expect(resume).to_be_enabled()
    cancelled = now(table_lake)
    assert cancelled.data.record_count == before.data.record_count
    # One action was committed and the other was not.
    assert cancelled.data.file_count < before.data.file_count

    resume.click()
    expect(cell.get_by_text("It runs what is left, as planned")).to_be_visible()
    notebook.button(f"Yes, resume it on {TABLE}").click()

    expect(cell.get_by_text(f"{TABLE}: done; every figure and the proof are below.")).to_be_visible(
        timeout=PATIENCE
    )
    expect(resume).to_be_disabled()
    behind = cell.get_by_text("The cells below still show what was before this run")
    expect(behind).to_be_visible()
    expect(cell.get_by_text("The plan of this run")).to_be_visible()
    notebook.run_cell("panel.take_outcome()")
    expect(notebook.cell("panel.take_outcome()").locator(".jp-OutputArea .title")).to_contain_text(
        "done"
    )
    expect(behind).to_be_hidden()
    after = now(table_lake)
    assert after.data.record_count == before.data.record_count
    assert after.data.file_count < cancelled.data.file_count
    notebook.picture(screenshots, "lab-02_compact.png")
    if images:
        notebook.pictured(
            images / "compact.png", "widgets.compaction(", "widgets.compaction(", 1700
        )
