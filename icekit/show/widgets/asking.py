"""Ask once more before something is changed: a sentence that says what will be done, a yes and a no."""

from __future__ import annotations

from collections.abc import Callable

from icekit.show.widgets.controls import button, column, note, picture, row


class Question:
    """A question that is there only while it is asked; ``changed`` is called when it comes and when it goes."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._answered: Callable[[], None] = self.close
        self._asked = picture()
        self.yes = button("Yes", "do it", self._yes, style="danger")
        self.no = button("No", "go back; nothing is run", self._no)
        self.box = column(self._asked, row(self.yes, self.no))
        self.close()

    @property
    def is_open(self) -> bool:
        """Tell whether it is being asked."""
        return bool(self.box.layout.display != "none")

    def ask(self, what: str, name: str, sentence: str, answered: Callable[[], None]) -> None:
        """Ask whether to ``what`` (a verb) a table's plan or run; ``answered`` is called upon a yes."""
        self._answered = answered
        self.yes.description, self.yes.tooltip = f"Yes, {what} it on {name}", sentence
        self.no.description = f"No, do not {what} it"
        self._asked.value = note(sentence, "warning")
        self.box.layout.display = ""
        self._changed()
        self.no.focus()

    def close(self) -> None:
        """Ask no longer."""
        self._answered = self.close
        self.box.layout.display = "none"

    def _yes(self) -> None:
        answered = self._answered
        self.close()
        answered()

    def _no(self) -> None:
        self.close()
        self._changed()
