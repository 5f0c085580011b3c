"""Controls that look and read alike: each with a visible label, a tooltip, and a place in the tab order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import ipywidgets as ipw

from icekit.answer import html
from icekit.compact.execute import Stop
from icekit.errors import IcekitError
from icekit.show.widgets.work import Say, Work, why

T = TypeVar("T")

LABEL = "11.5em"
WIDE, WIDER = "38em", "48em"
_LINES = 8


def labelled(kind: Callable[..., Any], label: str, tooltip: str, **options: Any) -> Any:
    """A control with its label before it, of the width that all have."""
    layout = ipw.Layout(**{"width": WIDE, "max_width": "100%", **options.pop("layout", {})})
    return kind(description=label, tooltip=tooltip, style={"description_width": LABEL}, layout=layout, **options)


def button(label: str, tooltip: str, pressed: Callable[[], None], *, style: str = "", disabled: bool = False) -> Any:
    """A button as wide as what it says; ``tooltip`` says what it will do."""
    made = ipw.Button(description=label, tooltip=tooltip, button_style=style, disabled=disabled, layout=ipw.Layout(width="auto"))
    made.on_click(lambda _: pressed())
    return made


def row(*parts: Any) -> Any:
    """Controls beside each other, below each other where the screen is narrow."""
    return ipw.HBox(parts, layout=ipw.Layout(flex_flow="row wrap", align_items="center", grid_gap="0 8px", overflow="visible"))


def column(*parts: Any) -> Any:
    """Controls below each other; what is too wide scrolls by itself, and the column has no scrollbars of its own."""
    return ipw.VBox(parts, layout=ipw.Layout(overflow="visible"))


def picture(content: str = "") -> Any:
    """A place for HTML that the controls change."""
    return ipw.HTML(content, layout=ipw.Layout(width="100%"))


def note(sentence: str, kind: str = "") -> str:
    """A sentence in icekit's frame: ``kind`` is empty, fine, warning or critical."""
    return html.framed(f'<div class="finding {kind}">{html.prose(sentence)}</div>' if kind else f"<p>{html.prose(sentence)}</p>")


def attempt(act: Callable[[], None], told: Any) -> bool:
    """Do what a control asks for; an error becomes a sentence in ``told`` instead of a trace that nobody sees."""
    try:
        act()
    except IcekitError as problem:
        told.value = note(why(problem, Stop()), "critical")
        return False
    return True


def chosen(control: Any, act: Callable[[], None]) -> None:
    """Act whenever a person, or the program, gives a control another value."""
    control.observe(lambda _: act(), names="value")


class Progress:
    """What long work says, with the button that cancels it; the other buttons rest meanwhile."""

    def __init__(self, cancels: str, busy: Sequence[Any] = ()) -> None:
        self.cancel = button("Cancel", cancels, self._cancel, disabled=True)
        self.told = picture()
        self.work = Work(self._say)
        self._cancels = cancels
        self._busy = tuple(busy)
        self._lines: list[str] = []

    def run(
        self,
        what: str,
        job: Callable[[Say, Stop], T],
        done: Callable[[T], str | tuple[str, str]],
        after: Callable[[], None] | None = None,
    ) -> bool:
        """Begin a job, unless one is under way; tell whether it was begun.

        ``done`` takes its result and says in a sentence what came of it, and of what kind that is
        (fine). ``after`` is called before it, and also where there is no result: what of the
        controls may be used by then.
        """
        if self.work.is_running:
            return False
        before = [control.disabled for control in self._busy]
        self._lines = []
        self._say(f"{what} …")
        for control in self._busy:
            control.disabled = True
        self.cancel.disabled = False

        has_rested = False

        def rested() -> None:
            nonlocal has_rested
            if has_rested:
                return  # the result was there, and could not be shown
            has_rested = True
            self.cancel.disabled = True
            for control, disabled in zip(self._busy, before, strict=True):
                control.disabled = disabled
            if after is not None:
                after()

        def finished(result: T) -> None:
            rested()
            said = done(result)
            self._end(*(said if isinstance(said, tuple) else (said, "fine")))

        def ended(sentence: str) -> None:
            rested()
            cancelled = sentence == "Cancelled."
            self._end(f"Cancelled: {self._cancels}" if cancelled else sentence, "warning" if cancelled else "critical")

        return self.work.start(job, finished, ended)

    def _cancel(self) -> None:
        self.cancel.disabled = True
        self._say("Cancelling …")
        self.work.cancel()

    def _say(self, line: str) -> None:
        self._lines.append(line)
        self._show(self._lines)

    def _end(self, sentence: str, kind: str) -> None:
        self._show(self._lines, f'<div class="finding {kind}">{html.prose(sentence)}</div>')

    def _show(self, lines: Sequence[str], ending: str = "") -> None:
        """The last lines, for a screen reader to say as they come."""
        told = "".join(f"<p>{html.prose(line)}</p>" for line in lines[-_LINES:])
        self.told.value = html.framed(f'<div role="log" aria-live="polite">{told}{ending}</div>')
