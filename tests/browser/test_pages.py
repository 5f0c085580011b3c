"""Every notebook as its page shows it, and the index of a report, for a person to look at."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from icekit.report.page import write_page
from tests.browser.jupyter import NOTEBOOKS, ROOT, TABLES, environment
from tests.child import python
from tests.learn.lessons.books import book

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from icekit.api import Lake

pytestmark = pytest.mark.browser


@contextmanager
def opened_offline(chromium: Browser, file: Path, width: int) -> Iterator[Page]:
    """A page in a window of this width, which it fits; it has no error, and asks no server."""
    page = chromium.new_page(viewport={"width": width, "height": 900})
    errors: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_load_state("load")
    yield page
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    page.close()
    assert errors == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda p: p.stem)
def test_a_page_of_every_notebook_opens_offline(
    chromium: Browser, path: Path, tmp_path: Path, screenshots: Path | None
) -> None:
    file = write_page(book(path), path.stem, tmp_path / "page.html")
    with opened_offline(chromium, file, 1080) as page:
        if screenshots:
            screenshots.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=screenshots / f"page-{path.stem}.png", full_page=True)


@pytest.fixture(scope="module")
def reports(
    table_lake: Lake, tmp_path_factory: pytest.TempPathFactory, images: Path | None
) -> Path:
    """A report of several tables; for pictures that of the documentation."""
    folder = tmp_path_factory.mktemp("reports")
    if images:
        subprocess.run([ROOT / "scripts" / "sample-report.sh", folder], check=True)
    else:
        names = [f"lab.{name}" for name in TABLES]
        arguments = ("-m", "icekit", "report", *names, "--output", folder)
        python(*arguments, env=environment(), check=True)
    return folder


@pytest.mark.parametrize(
    ("name", "picture", "width"),
    [("index", "index", 1280), ("lab.equality_deletes", "report", 1080)],
)
def test_a_report_opens_offline_and_fits_its_window(
    chromium: Browser, reports: Path, name: str, picture: str, width: int, images: Path | None
) -> None:
    with opened_offline(chromium, reports / f"{name}.html", width) as page:
        if images:
            page.screenshot(path=images / f"{picture}.png", full_page=True)
            described = re.findall(
                rf"!\[(.*)\]\(docs/images/{picture}.png\)", (ROOT / "README.md").read_text()
            )
            shown = " ".join(page.inner_text("body").split())  # figures' spaces do not break
            assert described or picture != "index"
            assert [
                figure
                for text in described
                for figure in re.findall(r"\d[\d,.]* %", text)
                if figure not in shown
            ] == []


def test_a_report_shows_its_first_findings_before_a_person_scrolls_and_is_short_when_folded(
    chromium: Browser, reports: Path
) -> None:
    with opened_offline(chromium, reports / "lab.equality_deletes.html", 1280) as page:
        box = page.locator(".finding").nth(1).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900
        assert page.evaluate("() => document.documentElement.scrollHeight") <= 3500
