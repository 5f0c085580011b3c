"""Every notebook as its page shows it, for a person to look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest

from icekit.report.index import write_page
from tests.browser.jupyter import NOTEBOOKS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda p: p.stem)
def test_a_page_of_every_notebook_opens_offline(
    chromium: Browser, path: Path, tmp_path: Path, screenshots: Path | None, images: Path | None
) -> None:
    notebook = nbformat.read(path, 4)  # type: ignore[no-untyped-call]
    page_file = write_page(notebook, path.stem, tmp_path / "page.html")
    page = chromium.new_page(viewport={"width": 1080, "height": 900})
    errors: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))

    page.goto(page_file.as_uri())
    page.wait_for_load_state("load")

    if screenshots:
        screenshots.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=screenshots / f"page-{path.stem}.png", full_page=True)
    if images and path.stem == "01_diagnose":
        page.screenshot(path=images / "report.png", full_page=True)
    # What the page shows must not be wider than the page.
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 1080
    page.close()
    assert errors == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
