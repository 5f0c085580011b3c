"""Make controls with one look, and keep the table in view: what every explorer shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from icekit.common import html
from icekit.common.errors import require_library
from icekit.engine.lake import Lake
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.model import TableFacts


def toolkit() -> Any:
    """The library of the controls, which comes with the extra ``notebook``."""
    require_library("ipywidgets", "A control")
    import ipywidgets

    return ipywidgets


def text_field(label: str, tooltip: str, value: str) -> Any:
    """A field for a text, which is sent as a whole when a person leaves it: while somebody types,
    the front end sends some letters late, after the press of a button.
    """
    return labelled_control(toolkit().Text, label, tooltip, value=value, continuous_update=False)


def labelled_control(
    control_class: Callable[..., Any],
    label: str,
    tooltip: str,
    *,
    width: str = "38em",
    **control_options: Any,
) -> Any:
    """A control with its label in front of it, as wide as the others."""
    return control_class(
        description=label,
        tooltip=tooltip,
        style={"description_width": "11.5em"},
        layout=toolkit().Layout(width=width, max_width="100%"),
        **control_options,
    )


def button(
    label: str, tooltip: str, on_click: Callable[[], None], *, button_style: str = ""
) -> Any:
    """A button as wide as its label; ``tooltip`` says what it will do."""
    button_control = toolkit().Button(
        description=label,
        tooltip=tooltip,
        button_style=button_style,
        layout=toolkit().Layout(width="auto"),
    )
    button_control.on_click(lambda _: on_click())
    return button_control


def row(*parts: Any) -> Any:
    """Controls next to each other, or below each other where the screen is narrow."""
    return toolkit().HBox(
        parts,
        layout=toolkit().Layout(
            flex_flow="row wrap", align_items="center", grid_gap="0 8px", overflow="visible"
        ),
    )


def column(*parts: Any) -> Any:
    """Controls below each other; what is too wide scrolls on its own, and the column has no
    scrollbars.
    """
    return toolkit().VBox(parts, layout=toolkit().Layout(overflow="visible"))


def html_area(content: str = "") -> Any:
    """An area for HTML that the controls change."""
    return toolkit().HTML(content, layout=toolkit().Layout(width="100%"))


def note(sentence: str, note_kind: str = "") -> str:
    """A sentence in icekit's frame: ``note_kind`` is empty, fine, warning or critical. A screen
    reader says it when it appears.
    """
    css_class = f"finding {note_kind}" if note_kind else ""
    return html.framed(
        f'<div class="{css_class}" role="log" aria-live="polite">{html.escaped_sentence(sentence)}</div>'
    )


class View:
    """The table in view, with its findings. Choosing another table, or moving a threshold,
    notifies the listeners.
    """

    def __init__(self, lake: Lake, facts: TableFacts, thresholds: Thresholds | None = None) -> None:
        self.lake = lake
        self._listeners: dict[object, Callable[[], None]] = {}
        self._judge(facts, thresholds or Thresholds())

    def __repr__(self) -> str:
        return f"View({self.facts.name})"

    def look_at(self, facts: TableFacts) -> None:
        """Put another table, or another snapshot, in view."""
        self._judge(facts, self.thresholds)

    def judge_by(self, thresholds: Thresholds) -> None:
        """Judge by other thresholds; raises :class:`~icekit.common.errors.ParameterError` for one
        that the facts cannot answer.
        """
        self._judge(self.facts, thresholds)

    def on_change(self, listener: Callable[[], None], *, key: object = None) -> None:
        """Call ``listener`` after each change; listeners are called in the order in which they were
        added.

        It replaces an earlier one with an equal ``key``.
        """
        self._listeners[key or object()] = listener

    def _judge(self, facts: TableFacts, thresholds: Thresholds) -> None:
        """Judge and notify the listeners; if the facts cannot be judged, everything stays as it
        was.
        """
        self.findings = diagnose(facts, thresholds, session_conf=self.lake.session_conf())
        self.facts = facts
        self.thresholds = thresholds
        for listener in tuple(self._listeners.values()):
            listener()
