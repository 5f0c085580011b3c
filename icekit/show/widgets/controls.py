"""Make controls with one look, hold the table in view, and do long work in a thread that Cancel
stops.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from icekit.common import html
from icekit.common.errors import ParameterError, require, why
from icekit.engine.bridge import make_active
from icekit.engine.interrupting import Stop, Stopped
from icekit.engine.lake import Lake
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.model import TableFacts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


T = TypeVar("T")
Say = Callable[[str], None]


@contextlib.contextmanager
def interruptible(spark: SparkSession, stop: Stop) -> Iterator[None]:
    """Cancel the Spark jobs that this thread starts, as soon as somebody asks to stop.

    Also makes the session the active one of this thread, which the JVM does not know yet.
    """
    make_active(spark)
    with stop.watching(spark):
        yield
    stop.check()


def toolkit() -> Any:
    """The library of the controls, which comes with the extra ``notebook``."""
    require("ipywidgets", "A control")
    import ipywidgets

    return ipywidgets


def labelled(
    kind: Callable[..., Any], label: str, tooltip: str, *, width: str = "38em", **options: Any
) -> Any:
    """A control with its label in front of it, as wide as the others."""
    return kind(
        description=label,
        tooltip=tooltip,
        style={"description_width": "11.5em"},
        layout=toolkit().Layout(width=width, max_width="100%"),
        **options,
    )


def button(label: str, tooltip: str, pressed: Callable[[], None], *, style: str = "") -> Any:
    """A button as wide as its label; ``tooltip`` says what it will do."""
    control = toolkit().Button(
        description=label,
        tooltip=tooltip,
        button_style=style,
        layout=toolkit().Layout(width="auto"),
    )
    control.on_click(lambda _: pressed())
    return control


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


def picture(content: str = "") -> Any:
    """A place for HTML that the controls change."""
    return toolkit().HTML(content, layout=toolkit().Layout(width="100%"))


def note(sentence: str, kind: str = "") -> str:
    """A sentence in icekit's frame: ``kind`` is empty, fine, warning or critical."""
    return html.framed(
        f'<div class="finding {kind}">{html.prose(sentence)}</div>'
        if kind
        else f"<p>{html.prose(sentence)}</p>"
    )


class Progress:
    """Long work in a thread, one piece at a time, on the table in view, which stays there
    meanwhile: its progress, and the button that cancels it.
    """

    def __init__(self, view: View, cancels: str) -> None:
        self.cancel = button("Cancel", cancels, self._cancel)
        self.cancel.disabled = True
        self.log = picture()
        self._view = view
        self._cancels = cancels
        self._lines: list[str] = []
        self._thread: threading.Thread | None = None
        self._stop = Stop()

    @property
    def is_running(self) -> bool:
        """Tell whether a job is running."""
        return self._thread is not None and self._thread.is_alive()

    def run(
        self,
        what: str,
        job: Callable[[Say, Stop], T],
        done: Callable[[T], tuple[str, str]],
    ) -> None:
        """Start a job, unless one is running or the table in view is held; ``done`` takes its
        result and returns a sentence about it and the sentence's kind.

        A job that raises anything after it was asked to stop was cancelled.
        """
        if self.is_running:
            return
        self._lines = []
        try:
            self._view.hold(what)
        except ParameterError as problem:
            self._end(str(problem), "critical")
            return
        self._say(f"{what} …")
        self.cancel.disabled = False
        self._stop = Stop()
        self._thread = threading.Thread(
            target=self._work, args=(job, done), name="icekit-work", daemon=True
        )
        self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the job; tell whether it has ended."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self.is_running

    def _work(self, job: Callable[[Say, Stop], T], done: Callable[[T], tuple[str, str]]) -> None:
        try:
            try:
                result = job(self._say, self._stop)
            finally:
                self.cancel.disabled = True
                self._view.let_go()
            sentence, kind = done(result)
        except BaseException as error:
            sentence = why(error)
            kind = "critical"
            if isinstance(error, Stopped) or self._stop.is_set:
                sentence = f"Cancelled: {self._cancels}"
                kind = "warning"
        self._end(sentence, kind)

    def _cancel(self) -> None:
        """Ask the job to stop; it says when it has."""
        self.cancel.disabled = True
        self._say("Cancelling …")
        self._stop.set()

    def _say(self, line: str) -> None:
        self._lines.append(line)
        self._show()

    def _end(self, sentence: str, kind: str) -> None:
        self._show(f'<div class="finding {kind}">{html.prose(sentence)}</div>')

    def _show(self, ending: str = "") -> None:
        """The last lines, which a screen reader says as they appear."""
        paragraphs = "".join(f"<p>{html.prose(line)}</p>" for line in self._lines[-8:])
        self.log.value = html.framed(
            f'<div role="log" aria-live="polite">{paragraphs}{ending}</div>'
        )


class Question:
    """A question that is shown only while it is open; ``changed`` is called when it opens and
    closes.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._asked = picture()
        self.yes = button("Yes", "do it", self._yes, style="danger")
        self.no = button("No", "go back; nothing is run", self._no)
        self.box = column(self._asked, row(self.yes, self.no))
        self.close()

    @property
    def is_open(self) -> bool:
        """Tell whether the question is open."""
        return bool(self.box.layout.display != "none")

    def ask(self, question: str, name: str, sentence: str, answered: Callable[[], None]) -> None:
        """Ask whether to ``what`` (a verb) a table's plan or run; ``answered`` is called after a
        yes.
        """
        self._answered = answered
        self.yes.description = f"Yes, {question} it on {name}"
        self.yes.tooltip = sentence
        self.no.description = f"No, do not {question} it"
        self._asked.value = note(sentence, "warning")
        self.box.layout.display = ""
        self._changed()
        self.no.focus()

    def close(self) -> None:
        """Close the question: a yes that comes later does nothing."""
        self._answered = self.close
        self.box.layout.display = "none"

    def _yes(self) -> None:
        answered = self._answered
        self.close()
        answered()

    def _no(self) -> None:
        self.close()
        self._changed()


class View:
    """The table in view. Choosing another, or moving a limit, notifies the listeners.

    ``held`` names the work during which the table in view must not change; empty for none.
    """

    def __init__(self, lake: Lake, facts: TableFacts, thresholds: Thresholds | None = None) -> None:
        self.lake = lake
        self.held = ""
        self._listeners: dict[object, Callable[[], None]] = {}
        self._holders: list[Callable[[], None]] = []
        self._show(facts, thresholds or Thresholds())

    def __repr__(self) -> str:
        return f"View({self.facts.name})"

    def look_at(self, facts: TableFacts) -> None:
        """Put another table, or another snapshot, in view; raises
        :class:`~icekit.common.errors.ParameterError` while it is held.
        """
        self._check_free()
        self._show(facts, self.thresholds)

    def limit(self, thresholds: Thresholds) -> None:
        """Judge by other limits; raises :class:`~icekit.common.errors.ParameterError` for one that
        the facts cannot answer.
        """
        self._show(self.facts, thresholds)

    def hold(self, work: str) -> None:
        """Keep the table in view while ``work``, in a few words, is done on it; :meth:`let_go` ends
        this. Raises :class:`~icekit.common.errors.ParameterError` while it is held already.
        """
        self._check_free()
        self.held = work
        _call(self._holders)

    def let_go(self) -> None:
        """Allow other tables in view again."""
        self.held = ""
        _call(self._holders)

    def on_hold(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when the table in view is held, and when it is released."""
        self._holders.append(listener)

    def on_change(self, listener: Callable[[], None], *, instead_of: object = None) -> None:
        """Call ``listener`` after each change; listeners are called in the order in which they were
        added.

        It replaces an earlier one with an equal ``instead_of``.
        """
        self._listeners[instead_of or object()] = listener

    def _check_free(self) -> None:
        if self.held:
            raise ParameterError(
                f"{self.held} is in progress, so {self.facts.name} stays in view; wait until it "
                "has ended, or cancel it."
            )

    def _show(self, facts: TableFacts, thresholds: Thresholds) -> None:
        """Judge and notify the listeners; if the facts cannot be judged, everything stays as it
        was.
        """
        self.findings = diagnose(facts, thresholds, session_conf=self.lake.session_conf())
        self.facts = facts
        self.thresholds = thresholds
        _call(self._listeners.values())


def _call(listeners: Iterable[Callable[[], None]]) -> None:
    for listener in tuple(listeners):
        listener()
