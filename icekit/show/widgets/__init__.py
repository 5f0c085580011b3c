"""Explore a table in a notebook: controls that choose among what cells show, and the same facts as plain HTML without them."""

from icekit.show.explorer import SWITCH, Explorer, widgets_on
from icekit.show.widgets.chooser import choose
from icekit.show.widgets.compaction import compaction
from icekit.show.widgets.comparing import compare_with
from icekit.show.widgets.following import follow
from icekit.show.widgets.partitions import partitions
from icekit.show.widgets.thresholds import thresholds
from icekit.show.widgets.time import sizes_over_time
from icekit.show.widgets.view import View

__all__ = [
    "SWITCH",
    "Explorer",
    "View",
    "choose",
    "compaction",
    "compare_with",
    "follow",
    "partitions",
    "sizes_over_time",
    "thresholds",
    "widgets_on",
]
