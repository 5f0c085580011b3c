"""The site is built without a warning."""

import os
from pathlib import Path

import pytest

from tests.child import python

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    site = tmp_path / "site"
    options = [
        "--conf-dir",
        "docs",
        "--doctree-dir",
        str(tmp_path / "read"),
        "--nitpicky",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
    ]
    built = python(
        "-m", "sphinx", *options, ".", site, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )

    assert built.returncode == 0
    assert built.stderr == ""
    # The pages of commands and of the API are made from the code.
    assert "Usage: icekit look" in (site / "docs" / "commands.html").read_text()
    assert "skew_min_partitions" in (site / "docs" / "api.html").read_text()
    # A notebook has its stored outputs.
    assert 'class="finding' in (site / "notebooks" / "01_diagnose.html").read_text()
    assert (site / "index.html").read_text().count("docs/index.html") == 2
