"""Hold what is looked at, for every explorer of a notebook: a table at a snapshot, and the limits it is judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from icekit.api import Lake
from icekit.diagnose import diagnose
from icekit.diagnose.findings import Findings, Thresholds
from icekit.errors import ParameterError
from icekit.facts.model import TableFacts


class View:
    """The table in view. Choosing another, or moving a limit, tells those who listen.

    ``reads`` says whether explorers may read more metadata when their cell runs: a report of many
    tables has collected the facts beforehand, and its notebooks read nothing. ``held`` names the
    work for which the table in view must stay there; empty for none.
    """

    def __init__(self, lake: Lake, facts: TableFacts, thresholds: Thresholds | None = None, *, reads: bool = True) -> None:
        self.lake = lake
        self.facts = facts
        self.thresholds = thresholds or Thresholds()
        self.reads = reads
        self.findings = self._found()
        self.held = ""
        self._listeners: dict[object, Callable[[], None]] = {}
        self._holders: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"View({self.facts.name})"

    def look_at(self, lake: Lake, facts: TableFacts) -> None:
        """Put another table, or another snapshot, in view; raises :class:`~icekit.errors.ParameterError` while it is held."""
        if self.held:
            raise ParameterError(f"{self.held} is under way, and {self.facts.name} stays in view; wait until it has ended, or cancel it.")
        before = self.lake, self.facts
        self.lake, self.facts = lake, facts
        self._judge(lambda: self._put_back(*before))

    def limit(self, thresholds: Thresholds) -> None:
        """Judge by other limits; raises :class:`~icekit.errors.ParameterError` for one that the facts were not cut at."""
        before, self.thresholds = self.thresholds, thresholds

        def back() -> None:
            self.thresholds = before

        self._judge(back)

    def hold(self, work: str) -> None:
        """Keep the table in view while ``work``, a few words, is done on it; :meth:`let_go` ends it."""
        self.held = work
        self._tell(self._holders)

    def let_go(self) -> None:
        """Let other tables come into view again."""
        self.held = ""
        self._tell(self._holders)

    def on_hold(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when the table in view is held, and when it is let go."""
        self._holders.append(listener)

    def on_change(self, listener: Callable[[], None], *, instead_of: object = None) -> None:
        """Call ``listener`` after each change, in the order in which they came to listen.

        One that came before with an equal ``instead_of`` is called no longer.
        """
        self._listeners[instead_of or object()] = listener

    def judged(self, facts: TableFacts) -> Findings:
        """What is found in other facts by the limits in force."""
        return diagnose(facts, self.thresholds, session_conf=self.lake.session_conf())

    def _found(self) -> Findings:
        return self.judged(self.facts)

    def _put_back(self, lake: Lake, facts: TableFacts) -> None:
        self.lake, self.facts = lake, facts

    def _judge(self, back: Callable[[], None]) -> None:
        """Find anew, and tell; where that fails, everything is as before."""
        try:
            self.findings = self._found()
        except Exception:
            back()
            raise
        self._tell(self._listeners.values())

    @staticmethod
    def _tell(listeners: Iterable[Callable[[], None]]) -> None:
        for listener in tuple(listeners):
            listener()
