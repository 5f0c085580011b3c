"""Show an explorer twice in one output: with controls if there is a front end, and as plain HTML
everywhere; no ipywidgets.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from icekit.common.errors import require_known

if TYPE_CHECKING:
    from icekit.show.widgets.controls import View

#: The MIME type of a widget; a page without a kernel cannot draw it.
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
#: ``off`` shows every explorer only as plain HTML.
SWITCH = "ICEKIT_WIDGETS"


def are_widgets_on() -> bool:
    """Tell whether explorers have controls: with ipywidgets, unless ``ICEKIT_WIDGETS=off``, which a
    run by papermill sets for itself.

    Raises :class:`~icekit.common.errors.ParameterError` for a value other than on and off.
    """
    switch_value = os.environ.get(SWITCH) or "on"
    require_known(switch_value, ("on", "off"), f"{SWITCH} value")
    return switch_value == "on" and find_spec("ipywidgets") is not None


class Explorer(ABC):
    """An explorer: facts of the table in ``view`` as HTML, and controls that choose among them.

    The controls are created when first shown, and never in a static run.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self._controls: Any = None

    @abstractmethod
    def static_html(self) -> str:
        """The same facts without controls, as HTML: a table or a chart that says what it shows."""

    @abstractmethod
    def build_controls(self) -> Any:
        """Make the controls: an ipywidgets widget."""

    @property
    def controls(self) -> Any:
        """The controls, created once."""
        if self._controls is None:
            self._controls = self.build_controls()
        return self._controls

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        del include, exclude  # a front end chooses a format that it can draw
        mime_bundle: dict[str, Any] = {"text/plain": repr(self), "text/html": self.static_html()}
        if are_widgets_on():
            mime_bundle[WIDGET_VIEW] = self.controls._repr_mimebundle_()[WIDGET_VIEW]
        return mime_bundle

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"
