"""Hold the answer to one question about a table: facts, figures, advice with its SQL, the script; shown and written in one way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from icekit.answer import html
from icekit.answer.grid import FIGURE, TEXT, Grid
from icekit.facts.model import TableFacts
from icekit.saving import slug, versions, write_json
from icekit.secrets import mask
from icekit.sql import Identifier, display_name, reset_session, set_properties, set_session, statements, unset_properties
from icekit.units import raised

# --- Which of several places decides a setting: what is set nearest to the write wins
#
# Source: Iceberg's ``ConfParser`` for Spark: write or read option, then session, then table property, then default.


OPTION, SESSION, PROPERTY, DEFAULT = "option", "session", "table property", "default"


@dataclass(frozen=True, slots=True)
class Link:
    """One place where a setting may be set; ``value`` is None where it is not."""

    where: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class InForce:
    """A setting with all the places it may come from, the strongest first."""

    setting: str
    links: tuple[Link, ...]

    @property
    def decides(self) -> Link | None:
        """The place that decides; None where nothing is set."""
        return next((link for link in self.links if link.value is not None), None)

    @property
    def value(self) -> str | None:
        """The value in force."""
        return self.decides.value if self.decides else None

    @property
    def origin(self) -> str:
        """Where it comes from, in words: ``table property write.distribution-mode``."""
        link = self.decides
        return "not set" if link is None else link.name if link.where == DEFAULT and link.name else f"{link.where} {link.name}".strip()

    @property
    def overridden(self) -> tuple[Link, ...]:
        """Places that are set and lose."""
        return tuple(link for link in self.links if link.value is not None and link is not self.decides and link.where != DEFAULT)


def in_force(
    setting: str,
    *,
    option: tuple[str, Mapping[str, str]] | None = None,
    session: Sequence[tuple[str, str | None]] = (),
    properties: Sequence[tuple[str, str | None]] = (),
    default: tuple[str, str | None] = ("default", None),
) -> InForce:
    """Put the places in order; each is a name and its value there (None: not set)."""
    links = [Link(OPTION, option[0], option[1].get(option[0]))] if option else []
    links += [Link(SESSION, name, value) for name, value in session]
    links += [Link(PROPERTY, name, value) for name, value in properties]
    return InForce(setting, (*links, Link(DEFAULT, *default)))


# --- What to set, why, the statement that sets it, and the one that takes it back


#: Properties that no statement takes back.
_ONE_WAY = frozenset({"format-version"})


@dataclass(frozen=True, slots=True)
class Advice:
    """One setting to change or to leave.

    ``current`` is the value in force, ``proposed`` the better one (the same to leave it). ``evidence``
    is one sentence with the figure it rests on, ``verified`` what a trial with it showed (None: not
    tried), ``breaks`` what the change takes away. ``sql`` is the statement to paste (several are parted by
    semicolons), None where there is nothing to change, and ``undo`` what takes it back, None where nothing does.
    ``properties`` are the table properties that ``sql`` sets, so that several can be set at once.
    ``is_alternative`` is advice to take instead of the others, which is no part of their script.
    """

    setting: str
    current: str | None
    proposed: str | None
    evidence: str
    sql: str | None = None
    verified: str | None = None
    breaks: str | None = None
    undo: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    is_alternative: bool = False

    @property
    def is_change(self) -> bool:
        """Tell whether there is something to set."""
        return self.sql is not None


@dataclass(frozen=True, slots=True)
class Script:
    """Statements in the order to run them, and those that take them back, in theirs."""

    sql: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()


def to_set(
    facts: TableFacts,
    properties: Mapping[str, str],
    *,
    current: str | None,
    evidence: str,
    verified: str | None = None,
    breaks: str | None = None,
) -> Advice:
    """Advice to set table properties; it is named after the last of them."""
    table = facts.sql_name
    last, value = list(properties.items())[-1]
    return Advice(
        setting=last,
        current=current,
        proposed=value,
        evidence=evidence,
        sql=set_properties(table, dict(properties)),
        verified=verified,
        breaks=breaks,
        undo="; ".join(_undone(table, facts.properties, properties)) or None,
        properties=tuple(properties.items()),
    )


def overriding(link: Link, evidence: str, *, verified: str | None = None) -> Advice:
    """Advice to take a setting away that overrides the table's property: a session's by its statement, a write option in the job."""
    said = (
        f"{link.where.capitalize()} {link.name} = {link.value} overrides the table's property: take it out of the job. {evidence}".rstrip()
    )
    in_session = link.where == SESSION
    sql, undo = (reset_session(link.name), set_session(link.name, link.value or "")) if in_session else (None, None)
    return Advice(link.name, link.value, None, said, sql, verified=verified, undo=undo)


def script(table: Identifier, there: Mapping[str, str], advice: Iterable[Advice]) -> Script:
    """All changes in one: a single ALTER TABLE for the properties, then what is not a property; and the way back.

    Advice comes in order of weight: where two set one property, the first is taken; of two limits in bytes the larger.
    """
    properties: dict[str, str] = {}
    others: list[Advice] = []
    for one in advice:
        if one.is_alternative:
            continue
        if one.properties:
            for name, value in one.properties:
                there_too = properties.get(name)
                if there_too is None or (name.endswith("max-bytes") and int(value) > int(there_too)):
                    properties[name] = value
        elif one.sql:
            others.append(one)
    sql = [set_properties(table, properties)] if properties else []
    sql += [part for one in others for part in statements(one.sql or "")]
    undo = [part for one in reversed(others) for part in statements(one.undo or "")]
    return Script(tuple(sql), (*undo, *_undone(table, there, properties)))


def _undone(table: Identifier, there: Mapping[str, str], properties: Mapping[str, str]) -> list[str]:
    back = {name: there[name] for name in properties if name in there and name not in _ONE_WAY}
    gone = [name for name in properties if name not in there and name not in _ONE_WAY]
    return [*([set_properties(table, back)] if back else []), *([unset_properties(table, gone)] if gone else [])]


@dataclass(frozen=True, slots=True)
class Effect:
    """One figure as it is now and after the change, with units; ``is_cost`` where the change makes it worse."""

    figure: str
    now: str
    after: str
    is_cost: bool = False


def tried_or_not(answer: Answer, *, level: str, why: str) -> str:
    """``high: tried on a zero-copy clone.``; a trial that is not whole is worth less than one that is."""
    if answer.stopped:
        return f"low: the trial is not whole ({answer.stopped}). {raised(why)}"
    return f"{level}: {why}"


#: Raised by one when a field of the JSON changes its meaning or goes; added fields do not count.
SCHEMA_VERSION = 3


@dataclass(frozen=True)
class Answer:
    """One question's answer; each question has a class of its own (``repr=False``, or it shows as a dataclass) with what it measured.

    ``stopped`` says why a trial is not whole, None where it is.
    """

    question: ClassVar[str]

    facts: TableFacts
    advice: tuple[Advice, ...]
    stopped: str | None

    @property
    def name(self) -> str:
        """The table's name, without its catalog."""
        return display_name(self.facts.table)

    @property
    def table(self) -> Identifier:
        """The table's name, with its catalog."""
        return self.facts.sql_name

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

    def verdict(self) -> str:
        """What to set and what it wins, or that nothing is to be changed: one sentence."""
        raise NotImplementedError

    def effects(self) -> Sequence[Effect]:
        """What the change does to figures that a person can check; none where there is no change."""
        return ()

    def confidence(self) -> str:
        """How sure the answer is, ``high``, ``medium`` or ``low``, and a sentence that says why."""
        raise NotImplementedError

    def tables(self) -> Mapping[str, Grid]:
        """What was measured, as tables by name; one that has no rows is not shown."""
        raise NotImplementedError

    def basis(self) -> Sequence[str]:
        """What the answer rests on and what limits it, a sentence each."""
        raise NotImplementedError

    def document(self) -> dict[str, Any]:
        """The answer as JSON: its tables a row each, and all that was measured, in bytes and seconds, unrounded."""
        # Options of commands come from here, and look needs none of it.
        from pydantic_core import to_jsonable_python

        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in {"facts", "advice", "stopped"}}
        tables = {name: table.records() for name, table in self.tables().items()}
        return {
            "schema_version": SCHEMA_VERSION,
            "question": self.question,
            "catalog": self.table[0],
            "table": self.name,
            "snapshot_id": self.facts.snapshot_id,
            "is_change": self.is_change,
            "verdict": self.verdict(),
            "effects": [asdict(effect) for effect in self.effects()],
            "confidence": self.confidence(),
            "stopped": self.stopped,
            "advice": [{**asdict(a), "properties": dict(a.properties)} for a in self.advice],
            "script": asdict(self.script),
            "basis": list(self.basis()),
            "tables": to_jsonable_python(tables, inf_nan_mode="null"),
            "measured": to_jsonable_python(own, inf_nan_mode="null", fallback=str),
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
    """An answer as lines for a terminal: verdict, what changes, how sure it is, the statements; then why, and what was measured."""
    lines = [f"{answer.name}: {answer.verdict()}"]
    if effects := effects_grid(answer).lines("  "):
        lines += ["", *effects]
    lines += ["", f"Confidence: {answer.confidence()}"]
    changed, kept, instead = _sorted(answer)
    lines += [f"Side effects: {a.breaks}." for a in changed if a.breaks]
    if answer.script.sql:
        lines += ["", "To set it:", *(f"  {sql};" for sql in answer.script.sql)]
        lines += ["To take it back:", *(f"  {sql};" for sql in answer.script.undo)] if answer.script.undo else []
    for a in instead:
        lines += [
            "",
            f"Or instead: {a.setting}: {_change(a)}",
            f"  {a.evidence}",
            *([f"  Side effects: {a.breaks}."] if a.breaks else []),
            f"  {a.sql};",
        ]
    for caption, advice in (("Why:", changed), ("Checked, no change:", kept)):
        lines += ["", caption, *(f"  {line}" for a in advice for line in _reasons(a))] if advice else []
    for grid in answer.tables().values():
        if grid.rows:
            lines += ["", f"{grid.caption}:", *grid.lines()]
    if answer.basis():
        lines += ["", *answer.basis()]
    return mask("\n".join(lines))


def answer_html(answer: Answer) -> str:
    """The same as a card, of which the reasons and the measurements are folded."""
    kind, badge = ("warning", "▲ change") if answer.is_change else ("fine", "✔ no change")
    if not answer.is_answered:
        kind, badge = "info", "not measured"
    changed, kept, instead = _sorted(answer)
    parts = [
        f'<div class="finding {kind}"><p class="title"><span class="badge">{badge}</span> {html.text(answer.name)}</p>',
        f"<p><strong>{html.prose(answer.verdict())}</strong></p>",
        effects_grid(answer).html(),
        f"<p><strong>Confidence:</strong> {html.prose(answer.confidence())}</p>",
        *(f"<p><strong>Side effects:</strong> {html.prose(a.breaks)}.</p>" for a in changed if a.breaks),
    ]
    if answer.script.sql:
        parts.append(f"<p>To set it:</p>{html.statements(answer.script.sql)}")
        if answer.script.undo:
            parts.append(f"<p>To take it back:</p>{html.statements(answer.script.undo)}")
    for a in instead:
        breaks = f" <strong>Side effects:</strong> {html.prose(a.breaks)}." if a.breaks else ""
        parts.append(
            f"<p><strong>Or instead:</strong> <code>{html.text(a.setting)}</code> {html.text(_change(a))}. {html.prose(a.evidence)}{breaks}</p>"
        )
        parts.append(html.statements([a.sql or ""]))
    for caption, advice in (("Why", changed), ("Checked, no change", kept)):
        parts += _folded(caption, [_reasons_html(a) for a in advice])
    basis = [f"<p>{html.prose(line)}</p>" for line in answer.basis()]
    parts += _folded("What was measured", [*(grid.html() for grid in answer.tables().values()), *basis])
    return mask(html.framed(*parts, "</div>"))


def effects_grid(answer: Answer) -> Grid:
    """What a change does to each figure, what it wins first and what it costs last."""
    effects = sorted(answer.effects(), key=lambda e: e.is_cost)
    columns = {"figure": TEXT(""), "now": FIGURE, "after": FIGURE, "kind": TEXT("")}
    return Grid("", columns, [(e.figure, e.now, e.after, "cost" if e.is_cost else "") for e in effects])


def _sorted(answer: Answer) -> tuple[list[Advice], list[Advice], list[Advice]]:
    """Advice that changes something, that changes nothing, and that is to be taken instead of the rest."""
    instead = [a for a in answer.advice if a.is_alternative and a.sql]
    others = [a for a in answer.advice if a not in instead]
    changed = [a for a in others if a.is_change or a.proposed != a.current]
    return changed, [a for a in others if a not in changed], instead


def _reasons(a: Advice) -> list[str]:
    return [f"{a.setting}: {_change(a)}", f"  {a.evidence}", *([f"  Tried: {a.verified}"] if a.verified else [])]


def _reasons_html(a: Advice) -> str:
    tried = f" <strong>Tried:</strong> {html.prose(a.verified)}" if a.verified else ""
    return f"<p><code>{html.text(a.setting)}</code> {html.text(_change(a))}. {html.prose(a.evidence)}{tried}</p>"


def _folded(summary: str, parts: Sequence[str]) -> list[str]:
    inside = "".join(parts)
    return [f"<details><summary>{html.text(summary)}</summary>{inside}</details>"] if inside else []


def _change(a: Advice) -> str:
    return f"{a.current or 'not set'}{f' → {a.proposed}' if a.proposed != a.current else ''}"
