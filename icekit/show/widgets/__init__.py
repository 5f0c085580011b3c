"""Explore a table in a notebook: controls that choose among what cells show, and the same facts as
plain HTML without them.
"""

from icekit.show.explorer import SWITCH, Explorer, widgets_on
from icekit.show.widgets.chooser import choose
from icekit.show.widgets.compaction import compaction
from icekit.show.widgets.controls import View
from icekit.show.widgets.explorers import follow, thresholds, trend

__all__ = [
    "SWITCH",
    "Explorer",
    "View",
    "choose",
    "compaction",
    "follow",
    "thresholds",
    "trend",
    "widgets_on",
]
