"""What one question about a table came to: facts, figures, advice, the script; shown and written in one way."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from icekit.facts.model import TableFacts
from icekit.saving import slug, versions, write_json
from icekit.sql import Identifier, display_name
from icekit.tune.advice import Advice, Script, script

#: Raised by one when a field of the JSON changes its meaning or goes; added fields do not count.
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Shown:
    """A table of a card: its caption, head and rows as text; figures stand to the right."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: frozenset[int] = frozenset({0})


@dataclass(frozen=True)
class Answer:
    """One question's answer; each question has a class of its own (``repr=False``, or it shows as a dataclass) with what it measured.

    ``table`` is named with its catalog. ``stopped`` says why a trial is not whole, None where it is.
    """

    question: ClassVar[str]

    table: Identifier
    facts: TableFacts
    advice: tuple[Advice, ...]
    stopped: str | None

    @property
    def name(self) -> str:
        """The table's name, without its catalog."""
        return display_name(self.facts.table)

    @property
    def script(self) -> Script:
        """The statements to paste, and those that take them back; both empty where everything may stay."""
        return script(self.table, self.facts.properties, self.advice)

    @property
    def is_change(self) -> bool:
        """Tell whether anything is to be set."""
        return any(a.is_change for a in self.advice)

    @property
    def is_answered(self) -> bool:
        """Tell whether enough was measured to answer."""
        return True

    @property
    def _words(self) -> Any:
        """What puts this question's answer into words: :mod:`icekit.show` has a module for each."""
        return importlib.import_module(f"icekit.show.{self.question.replace('-', '_')}")

    def summary(self) -> str:
        """The answer in a few sentences."""
        return str(self._words.summary(self))

    def tables(self) -> Sequence[Shown]:
        """What was measured, as tables."""
        return tuple(self._words.tables(self))

    def basis(self) -> Sequence[str]:
        """What the answer rests on and what limits it, a sentence each."""
        return tuple(self._words.basis(self))

    def figures(self) -> dict[str, Any]:
        """What was measured, for the JSON document: bytes and seconds, unrounded."""
        raise NotImplementedError

    def document(self) -> dict[str, Any]:
        """The answer as JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            "question": self.question,
            "catalog": self.table[0],
            "table": self.name,
            "snapshot_id": self.facts.snapshot_id,
            "is_change": self.is_change,
            "summary": self.summary(),
            "stopped": self.stopped,
            "advice": [{**asdict(a), "properties": dict(a.properties)} for a in self.advice],
            "script": asdict(self.script),
            "figures": self.figures(),
            "versions": versions(),
        }

    def write_into(self, folder: Path) -> Path:
        """Write the document into a folder, under the name of the table and the question; a reader never sees half of one."""
        return write_json(folder / f"{slug(self.name)}.{self.question}.json", self.document())

    @property
    def failure(self) -> None:
        """Why a run that asked this has failed: never, as an answer is an answer."""
        return

    def __repr__(self) -> str:
        from icekit.show.answer import answer_text

        return answer_text(self)

    def _repr_html_(self) -> str:
        from icekit.show.answer import answer_html

        return answer_html(self)
