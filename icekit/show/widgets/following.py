"""Draw a chart or a table of what is in view, and draw it anew when another table comes into view or a limit is moved."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from icekit.answer import html
from icekit.show.chart import table_html
from icekit.show.explorer import Explorer, widgets_on
from icekit.show.widgets.controls import picture
from icekit.show.widgets.view import View


class Following(Explorer):
    """What ``draw`` makes of the facts in view (a chart, or a frame), always of those in view.

    ``draw`` takes facts, and the limits where it has a parameter ``thresholds``. Without
    controls it is shown as ``draw`` made it, and there is nothing to move.
    """

    def __init__(self, view: View, draw: Callable[..., Any]) -> None:
        super().__init__()
        self.view, self._draw = view, draw
        self._is_by_limits = "thresholds" in inspect.signature(draw).parameters
        self._make()

    def static(self) -> str:
        """The same as it is shown by itself; a frame with a dash for what is absent."""
        return str(self.made._repr_html_()) if hasattr(self.made, "alt") else html.framed(table_html(self.made))

    def build(self) -> Any:
        """A place for the picture, and no control."""
        self.shown = picture(self.static())
        # A cell that is run again draws in its new output alone.
        self.view.on_change(self._follow, instead_of=self._draw)
        return self.shown

    def _make(self) -> None:
        limits = {"thresholds": self.view.thresholds} if self._is_by_limits else {}
        self._of = self._key()
        self.made = self._draw(self.view.facts, **limits)

    def _key(self) -> tuple[object, ...]:
        return (self.view.facts, self.view.thresholds if self._is_by_limits else None)

    def _follow(self) -> None:
        facts, limits = self._of
        if facts is not self.view.facts or limits != self._key()[1]:
            self._make()
            self.shown.value = self.static()

    def __repr__(self) -> str:
        return repr(self.made)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        if widgets_on():
            return super()._repr_mimebundle_(include, exclude)
        return {"text/plain": repr(self.made), "text/html": self.made._repr_html_()}


def follow(view: View, draw: Callable[..., Any]) -> Following:
    """A chart or a table that follows what is in view, such as ``follow(view, charts.file_sizes)``; see :class:`Following`."""
    return Following(view, draw)
