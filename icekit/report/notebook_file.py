"""Find the notebook that a report runs."""

import sys
from pathlib import Path

from icekit.common.errors import MetadataUnreadable

NOTEBOOK = "01_diagnose.ipynb"


def notebook_path() -> Path:
    """Where the notebook is: next to the package in a checkout, under share/ when installed."""
    for folder in (
        Path(__file__).parents[2] / "notebooks",
        Path(sys.prefix) / "share" / "icekit" / "notebooks",
    ):
        if (folder / NOTEBOOK).exists():
            return folder / NOTEBOOK
    raise MetadataUnreadable(
        f"The notebook {NOTEBOOK} is not installed. Run icekit from a checkout, or reinstall it."
    )
