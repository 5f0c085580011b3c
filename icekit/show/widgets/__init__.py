"""Explore a table in a notebook: controls that choose among what cells show, and the same facts as
plain HTML without them.
"""

from icekit.show.widgets.compaction import CompactionExplorer as compaction  # noqa: N813
from icekit.show.widgets.controls import View
from icekit.show.widgets.explorers import Chooser as choose  # noqa: N813 - called like a function
from icekit.show.widgets.explorers import Following as follow  # noqa: N813
from icekit.show.widgets.explorers import ThresholdsExplorer as thresholds  # noqa: N813
from icekit.show.widgets.explorers import trend

__all__ = [
    "View",
    "choose",
    "compaction",
    "follow",
    "thresholds",
    "trend",
]
