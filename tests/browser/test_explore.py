"""A person in 01_diagnose: chooses a table, moves a limit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.driving import Driven, expect, opened
from tests.browser.jupyter import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

#: Elements of widgets, without those made to scroll, that scroll by up to 20 pixels.
SPARE_BARS = """() => [...document.querySelectorAll('.jp-OutputArea .jupyter-widgets, .jp-OutputArea .jupyter-widgets *')]
  .filter(e => ['auto', 'scroll'].some(o => [getComputedStyle(e).overflowX, getComputedStyle(e).overflowY].includes(o)))
  .filter(e => e.tagName !== 'SELECT' && e.clientHeight > 0)
  .map(e => [e.className, e.scrollWidth - e.clientWidth, e.scrollHeight - e.clientHeight])
  .filter(([_, x, y]) => (x > 0 && x < 20) || (y > 0 && y < 20))"""


@pytest.fixture(scope="module")
def notebook(chromium: Browser, server: Server) -> Iterator[Driven]:
    with opened(chromium, server, "01_diagnose.ipynb") as driven:
        yield driven


def test_every_control_is_there_after_a_run_and_the_page_has_no_error(
    notebook: Driven, screenshots: Path | None
) -> None:
    for name in ("Observe", "Reset thresholds"):
        expect(notebook.button(name)).to_be_visible()
    expect(
        notebook.page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']")
    ).to_have_count(0)
    expect(notebook.page.get_by_text("Error displaying widget")).to_have_count(0)
    notebook.picture(screenshots, "lab-01_diagnose.png")


def test_a_limit_that_is_moved_brings_a_finding_and_going_back_takes_it_away(
    notebook: Driven, images: Path | None
) -> None:
    cell = notebook.cell("widgets.thresholds(view)")
    finding = cell.locator(".finding").filter(has_text="snapshots piling up")
    expect(finding).to_have_count(0)

    notebook.move("Snapshots: from", "Home", 1)

    expect(finding).to_have_count(1)
    expect(
        cell.get_by_text("To keep these thresholds: thresholds = {'snapshots': 1}")
    ).to_be_visible()
    if images:
        notebook.pictured(
            images / "explore.png", "widgets.thresholds(view)", "widgets.choose(view)", 1500
        )
    notebook.button("Reset thresholds").click()
    expect(finding).to_have_count(0)


def test_the_keyboard_alone_chooses_a_table_and_the_panels_follow(notebook: Driven) -> None:
    page = notebook.page
    page.get_by_label("Table", exact=True).focus()
    keys = page.keyboard
    keys.press("ControlOrMeta+a")
    keys.type("lab.equality_deletes")
    # Past the snapshot, to the button.
    for _ in range(2):
        keys.press("Tab")
    keys.press("Enter")

    expect(
        page.get_by_text(re.compile(r"^lab.equality_deletes: read in .* by local"))
    ).to_be_visible()
    expect(notebook.cell("widgets.choose(view)").locator(".title")).to_contain_text(
        "lab.equality_deletes"
    )
    titles = notebook.cell("widgets.thresholds(view)").locator(".finding .title")
    expect(titles.filter(has_text="equality deletes")).to_have_count(1)
    expect(notebook.cell("widgets.follow(view, tables.worst_partitions)")).to_contain_text(
        "flight_id_bucket"
    )
    # Charts and tables in cells of their own, too.
    expect(
        notebook.cell("widgets.follow(view, charts.file_sizes)").locator("img")
    ).to_have_attribute("alt", re.compile(r"^100 data files of lab\.equality_deletes"))
    expect(
        notebook.cell("widgets.follow(view, charts.delete_ratio)").locator("img")
    ).to_be_visible()
    expect(notebook.cell("widgets.follow(view, tables.settings)")).to_contain_text(
        "write.target-file-size-bytes"
    )


def test_sql_in_a_widget_can_be_copied(notebook: Driven) -> None:
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    box = notebook.cell("widgets.thresholds(view)").locator(".sql").first

    box.get_by_role("button", name="Copy").click()

    expect(box.get_by_role("button", name="Copied")).to_be_visible()
    assert (
        notebook.page.evaluate("() => navigator.clipboard.readText()")
        == box.locator("pre").text_content()
    )


def test_no_control_has_a_scrollbar_that_scrolls_nothing(notebook: Driven) -> None:
    """A box whose content is a few pixels too large shows bars that a person can move, and that
    show nothing.
    """
    assert notebook.page.evaluate(SPARE_BARS) == []


def test_the_dark_theme_is_readable(notebook: Driven, screenshots: Path | None) -> None:
    notebook.page.evaluate(
        "() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab "
        "Dark'})"
    )
    expect(notebook.page.locator("body[data-jp-theme-light='false']")).to_have_count(1)
    notebook.picture(screenshots, "lab-01_diagnose-dark.png")
    for label in ("Table", "Snapshot"):
        text, ground = notebook.page.get_by_label(label, exact=True).evaluate(
            "e => [getComputedStyle(e).color, getComputedStyle(e).backgroundColor].map(c => "
            "c.match(/[\\d.]+/g).slice(0, 3).map(Number))"
        )
        assert abs(sum(text) - sum(ground)) > 300, label
