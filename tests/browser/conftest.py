"""One lake, one JupyterLab and one Chromium for all browser tests; none of it without ``-m
browser``.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from icekit.api import Lake, connect
from tests.browser.jupyter import ROOT, Server, copied, fresh_lake, jupyterlab

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# What drives a browser is in the extra dev; make check and make test install less.
collect_ignore_glob = [] if importlib.util.find_spec("playwright") else ["test_*.py"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--screenshots", action="store_true", help="picture every notebook into build/screenshots"
    )
    parser.addoption(
        "--update-images", action="store_true", help="make the pictures of README and docs/ again"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "browser" not in (config.option.markexpr or ""):
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(pytest.mark.skip(reason="scripts/test-browser.sh runs it"))


@pytest.fixture(scope="session")
def table_lake(_test_lake: None) -> Iterator[Lake]:
    """The lake that the browser's kernels work on, read here without a JVM."""
    os.environ["ICEKIT_LAKE"] = str(fresh_lake())
    lake = connect()
    yield lake
    lake.close()


@pytest.fixture(scope="session")
def server(table_lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder, scratch = tmp_path_factory.mktemp("notebooks"), tmp_path_factory.mktemp("jupyter")
    copied("01_diagnose.ipynb", folder, {})
    parameters = {
        "trial": False,
        "ledger": str(scratch / "ledger.db"),
        "leave_alone": "0 minutes",
    }
    copied("02_compact.ipynb", folder, parameters)
    with jupyterlab(folder, scratch) as running:
        yield running


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    # Set by the script that runs these tests.
    found = os.environ["ICEKIT_CHROMIUM"]
    with sync_playwright() as playwright:
        # Chromium has no sandbox for root.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=found, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def screenshots(pytestconfig: pytest.Config) -> Path | None:
    """Where pictures of every notebook go; None unless they were asked for."""
    return ROOT / "build" / "screenshots" if pytestconfig.getoption("--screenshots") else None


@pytest.fixture(scope="session")
def images(pytestconfig: pytest.Config) -> Path | None:
    """Where the pictures of README and docs/ go; None unless they were asked for."""
    return ROOT / "docs" / "images" if pytestconfig.getoption("--update-images") else None
