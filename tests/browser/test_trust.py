"""A notebook that is opened and not run: JupyterLab shows its stored results as they were made once
they are trusted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.driving import Driven, expect
from tests.browser.jupyter import NOTEBOOKS, jupyterlab

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


def test_stored_results_have_their_style_once_they_are_trusted_as_make_notebook_does(
    chromium: Browser, tmp_path: Path, screenshots: Path | None
) -> None:
    folder, scratch = tmp_path / "notebooks", tmp_path / "jupyter"
    folder.mkdir()
    for name in ("before", "after"):
        shutil.copy(NOTEBOOKS / "00_start_here.ipynb", folder / f"{name}.ipynb")
    # A signature is of the contents: without another one, both would be trusted.
    after = folder / "after.ipynb"
    after.write_text(after.read_text().replace("where do I begin?", "where do we begin?"))
    trust = [sys.executable, "-m", "jupyter", "trust", str(after)]
    subprocess.run(trust, env={**os.environ, "JUPYTER_DATA_DIR": str(scratch / "data")}, check=True)

    borders = {}
    with jupyterlab(folder, scratch) as server:
        for name in ("before", "after"):
            page = chromium.new_page(viewport={"width": 1400, "height": 1000})
            notebook = Driven(page, server, f"{name}.ipynb")
            card = notebook.cell("HTML(card_html(facts, findings))").locator(".finding")
            expect(card).to_be_visible()
            borders[name] = card.evaluate("e => getComputedStyle(e).borderLeftWidth")
            notebook.picture(screenshots, f"lab-00_start_here-{name}-trust.png")
            page.close()

    assert borders == {"before": "0px", "after": "6px"}
