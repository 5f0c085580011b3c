"""Build the site: pages of docs/ and the notebooks, from the root of the checkout so that links work in the files too."""

from __future__ import annotations

import os
from pathlib import Path

import icekit

ROOT = Path(__file__).parents[1]

project = "icekit"
author = "the icekit authors"
copyright = "the icekit authors"
version = release = icekit.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = ["docs/*.md", "notebooks/**", "CHANGELOG.md", "CONTRIBUTING.md"]
# Sphinx walks through every folder that is not excluded, the lake and .venv too.
exclude_patterns = [
    path.name for path in ROOT.iterdir() if path.is_dir() and path.name not in {"docs", "notebooks"}
]
exclude_patterns += ["**/.ipynb_checkpoints"]
nitpicky = True
# Types of libraries whose own references are not read, so that the site builds without a network.
nitpick_ignore_regex = [(r"py:.*", r"(?!icekit\.(connect|diagnose|Lake)$).*")]

# Notebooks are shown with the outputs that they are stored with.
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"icekit {version}"
html_static_path: list[str] = []
html_copy_source = False
html_show_sourcelink = False
# The redirect from the top of the site; scripts/docs.sh adds the sample report.
html_extra_path = [
    str(ROOT / "docs" / "site"),
    *filter(None, [os.environ.get("ICEKIT_DOCS_EXTRA")]),
]
