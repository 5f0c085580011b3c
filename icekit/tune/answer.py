"""What one question about a table came to: facts, figures, advice, the script; shown and written in one way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from icekit.answer import html
from icekit.answer.lines import aligned
from icekit.facts.model import TableFacts
from icekit.saving import slug, versions, write_json
from icekit.secrets import mask
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

    def summary(self) -> str:
        """The answer in a few sentences."""
        raise NotImplementedError

    def tables(self) -> Sequence[Shown]:
        """What was measured, as tables."""
        raise NotImplementedError

    def basis(self) -> Sequence[str]:
        """What the answer rests on and what limits it, a sentence each."""
        raise NotImplementedError

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
        return answer_text(self)

    def _repr_html_(self) -> str:
        return answer_html(self)


def answer_text(answer: Answer) -> str:
    """An answer as lines for a terminal."""
    lines = [f"{answer.name}: {answer.summary()}", *_stopped(answer)]
    for shown in answer.tables():
        if shown.rows:
            lines += ["", f"{shown.caption}:", *aligned((shown.head, *shown.rows), left=shown.text_columns)]
    if answer.basis():
        lines += ["", *answer.basis()]
    lines += advice_lines(answer.advice, answer.script)
    return mask("\n".join(lines))


def answer_html(answer: Answer) -> str:
    """An answer as a card."""
    kind, badge = ("warning", "▲ change") if answer.is_change else ("fine", "✔ leave it")
    if not answer.is_answered:
        kind, badge = "info", "not measured"
    parts = [
        f'<div class="finding {kind}"><p class="title"><span class="badge">{badge}</span> {html.text(answer.name)}</p>',
        f"<p>{html.prose(answer.summary())}</p>",
        *(f"<p>{html.prose(line)}</p>" for line in _stopped(answer)),
        *advice_html(answer.advice, answer.script),
    ]
    for shown in answer.tables():
        if shown.rows:
            right = [place not in shown.text_columns for place in range(len(shown.head))]
            parts.append(f"<p>{html.prose(shown.caption)}:</p>{html.table(shown.head, shown.rows, right)}")
    parts += [f"<p>{html.prose(line)}</p>" for line in answer.basis()]
    return mask(html.framed(*parts, "</div>"))


def _stopped(answer: Answer) -> list[str]:
    return [f"Partial: {answer.stopped}."] if answer.stopped else []


def advice_lines(advice: Iterable[Advice], script: Script) -> list[str]:
    """Each advice with its evidence; the statements come once, at the end, and what takes them back. What is advised instead has its own."""
    lines: list[str] = []
    for a in advice:
        lines += ["", f"{a.setting}: {_change(a)}", f"  {a.evidence}"]
        lines += [f"  Tried: {a.verified}"] if a.verified else []
        lines += [f"  It breaks: {a.breaks}."] if a.breaks else []
        lines += [f"  {a.sql};"] if a.sql and a.is_alternative else []
    if script.sql:
        lines += ["", "To set it:", *(f"  {sql};" for sql in script.sql)]
        lines += ["To take it back:", *(f"  {sql};" for sql in script.undo)] if script.undo else []
    return lines


def advice_html(advice: Iterable[Advice], script: Script) -> list[str]:
    """The same as parts of a card."""
    parts = []
    for a in advice:
        tried = f" <strong>Tried:</strong> {html.prose(a.verified)}" if a.verified else ""
        breaks = f"<p><strong>It breaks:</strong> {html.prose(a.breaks)}.</p>" if a.breaks else ""
        sql = html.statements([a.sql]) if a.sql and a.is_alternative else ""
        parts.append(f"<p><code>{html.text(a.setting)}</code> {html.text(_change(a))}. {html.prose(a.evidence)}{tried}</p>{breaks}{sql}")
    if script.sql:
        parts.append(f"<p>To set it:</p>{html.statements(script.sql)}")
        if script.undo:
            parts.append(f"<details><summary>To take it back</summary>{html.statements(script.undo)}</details>")
    return parts


def _change(a: Advice) -> str:
    return f"{a.current or 'not set'}{f' → {a.proposed}' if a.proposed != a.current else ''}"
