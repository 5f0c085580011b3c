"""Hold the answer to one question about a table: facts, figures, advice with SQL, the script; one way to show and write all answers."""

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

# --- Which of several places decides a setting: the place nearest to the write wins
#
# Source: Iceberg's ``ConfParser`` for Spark: write or read option, then session, then table property, then default.


OPTION, SESSION, PROPERTY, DEFAULT = "option", "session", "table property", "default"


@dataclass(frozen=True, slots=True)
class Link:
    """One place where a setting may be set; ``value`` is None if it is not set there."""

    where: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class InForce:
    """A setting with all the places it may come from, highest precedence first."""

    setting: str
    links: tuple[Link, ...]

    @property
    def decides(self) -> Link | None:
        """The place that decides; None if nothing is set."""
        return next((link for link in self.links if link.value is not None), None)

    @property
    def value(self) -> str | None:
        """The value in force."""
        return self.decides.value if self.decides else None

    @property
    def origin(self) -> str:
        """The origin in words: ``table property write.distribution-mode``."""
        link = self.decides
        return "not set" if link is None else link.name if link.where == DEFAULT and link.name else f"{link.where} {link.name}".strip()

    @property
    def overridden(self) -> tuple[Link, ...]:
        """Places that are set but overridden."""
        return tuple(link for link in self.links if link.value is not None and link is not self.decides and link.where != DEFAULT)


def in_force(
    setting: str,
    *,
    option: tuple[str, Mapping[str, str]] | None = None,
    session: Sequence[tuple[str, str | None]] = (),
    properties: Sequence[tuple[str, str | None]] = (),
    default: tuple[str, str | None] = ("default", None),
) -> InForce:
    """Order the places; each is a name and its value there (None: not set)."""
    links = [Link(OPTION, option[0], option[1].get(option[0]))] if option else []
    links += [Link(SESSION, name, value) for name, value in session]
    links += [Link(PROPERTY, name, value) for name, value in properties]
    return InForce(setting, (*links, Link(DEFAULT, *default)))


# --- Advice: what to set and why, the statement that sets it, and its undo


#: Properties that no statement can undo.
_ONE_WAY = frozenset({"format-version"})


@dataclass(frozen=True, slots=True)
class Advice:
    """One setting to change or to keep.

    ``current`` is the value in force, ``proposed`` the better one (equal to ``current`` to keep it). ``evidence``
    is one sentence with the number behind it, ``verified`` the result of a trial (None: not
    tried), ``breaks`` the side effects. ``sql`` is the statement to paste (several are separated by
    semicolons), None if no statement makes the change, and ``undo`` reverts it, None if nothing can.
    ``properties`` are the table properties that ``sql`` sets, so that several can be set at once.
    ``is_alternative`` marks advice to take instead of the rest; it is not in the script.
    ``check`` is a query that must return 0 just before the change.
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
    check: str | None = None

    @property
    def is_change(self) -> bool:
        """Tell whether there is something to do, with a statement or without one."""
        return self.sql is not None or self.proposed != self.current


@dataclass(frozen=True, slots=True)
class Script:
    """Statements and their undo, each in the order to run them."""

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
    """Advice to set table properties; its setting is the last of them."""
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
    """Advice to remove a setting that overrides the table's property: a statement for a session's setting, a sentence for a write option."""
    said = (
        f"{link.where.capitalize()} {link.name} = {link.value} overrides the table's property: remove it from the job. {evidence}".rstrip()
    )
    in_session = link.where == SESSION
    sql, undo = (reset_session(link.name), set_session(link.name, link.value or "")) if in_session else (None, None)
    return Advice(link.name, link.value, None, said, sql, verified=verified, undo=undo)


def script(table: Identifier, there: Mapping[str, str], advice: Iterable[Advice]) -> Script:
    """All changes in one script: a single ALTER TABLE for the properties, then the other statements; and the undo.

    Advice is in order of importance: if two set the same property, the first wins, or the larger of two limits in bytes.
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
    """One figure now and after the change, with units; ``is_cost`` if the change makes it worse."""

    figure: str
    now: str
    after: str
    is_cost: bool = False


def tried_or_not(answer: Card, *, level: str, why: str) -> str:
    """``high: tried on a zero-copy clone.``; an incomplete trial lowers the confidence."""
    if answer.stopped:
        return f"low: the trial is incomplete ({answer.stopped}). {raised(why)}"
    return f"{level}: {why}"


#: Goes up by one when a JSON field changes its meaning or is removed; an added field does not count.
SCHEMA_VERSION = 4


class Card:
    """What is shown of every answer, whether on a table or on a statement: verdict, effects, confidence, advice with its script, measurements.

    ``stopped`` says why a trial is incomplete, None if it is complete.
    """

    question: ClassVar[str]
    advice: tuple[Advice, ...]
    stopped: str | None

    @property
    def name(self) -> str:
        """The name of the table or of the statement, in the title."""
        raise NotImplementedError

    @property
    def script(self) -> Script:
        """The statements to paste, and their undo; both empty if nothing should change."""
        raise NotImplementedError

    @property
    def is_change(self) -> bool:
        """Tell whether there is anything to do."""
        return any(a.is_change for a in self.advice)

    @property
    def is_answered(self) -> bool:
        """Tell whether enough was measured to answer."""
        return True

    def badge(self) -> tuple[str, str]:
        """The kind of card and its label."""
        if not self.is_answered:
            return "info", "not measured"
        changes = [a for a in self.advice if a.is_change]
        if all(a.is_alternative for a in changes):
            return ("info", "● alternative") if changes else ("fine", "✔ no change")
        return "warning", "▲ change"

    def verdict(self) -> str:
        """The verdict in one sentence: what to change and what it saves, or that nothing should change."""
        raise NotImplementedError

    def effects(self) -> Sequence[Effect]:
        """The effects of the change on figures that a person can check; empty without a change."""
        return ()

    def confidence(self) -> str:
        """The confidence, ``high``, ``medium`` or ``low``, and a sentence that says why."""
        raise NotImplementedError

    def tables(self) -> Mapping[str, Grid]:
        """The measurements, as tables by name; a table without rows is not shown."""
        raise NotImplementedError

    def basis(self) -> Sequence[str]:
        """The basis and the limits of the answer, one sentence each."""
        raise NotImplementedError

    def plans(self) -> Mapping[str, str]:
        """Plans of the engine by caption, folded at the end of a page."""
        return {}

    def document(self) -> dict[str, Any]:
        """The answer as JSON, with its tables as rows; in bytes and seconds, unrounded."""
        # Imported here: commands take their options from this module, and look needs none of the rest.
        from pydantic_core import to_jsonable_python

        tables = {name: table.records() for name, table in self.tables().items()}
        return {
            "schema_version": SCHEMA_VERSION,
            "question": self.question,
            "is_change": self.is_change,
            "verdict": self.verdict(),
            "effects": [asdict(effect) for effect in self.effects()],
            "confidence": self.confidence(),
            "stopped": self.stopped,
            "advice": [{**asdict(a), "properties": dict(a.properties)} for a in self.advice],
            "script": asdict(self.script),
            "basis": list(self.basis()),
            "tables": to_jsonable_python(tables, inf_nan_mode="null"),
            "versions": versions(),
        }

    @property
    def failure(self) -> str | None:
        """Why a run that asked this failed: None, because every answer is valid."""
        return None

    def __repr__(self) -> str:
        return answer_text(self)

    def _repr_html_(self) -> str:
        return answer_html(self)


@dataclass(frozen=True, repr=False)
class Answer(Card):
    """The answer to one question about a table; each question has its own class with its measurements (``repr=False``, or it displays as a dataclass)."""

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
        """One ``ALTER TABLE`` for all properties, then the other statements; and the undo."""
        return script(self.table, self.facts.properties, self.advice)

    def document(self) -> dict[str, Any]:
        """The answer as JSON, with the table's snapshot and all measurements."""
        from pydantic_core import to_jsonable_python

        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in {"facts", "advice", "stopped"}}
        return {
            **super().document(),
            "catalog": self.table[0],
            "table": self.name,
            "snapshot_id": self.facts.snapshot_id,
            "measured": to_jsonable_python(own, inf_nan_mode="null", fallback=str),
        }

    def write_into(self, folder: Path) -> Path:
        """Write the document into a folder, named after the table and the question; a reader never sees a half-written file."""
        return write_json(folder / f"{slug(self.name)}.{self.question}.json", self.document())


def answer_text(answer: Card) -> str:
    """An answer as lines for a terminal: verdict, effects, confidence, side effects, what to do, undo; then why, and the measurements."""
    lines = [f"{answer.name}: {answer.verdict()}"]
    if effects := effects_grid(answer).lines("  "):
        lines += ["", *effects]
    lines += ["", f"Confidence: {answer.confidence()}"]
    of = _sorted(answer)
    lines += _steps(of.by_sql)
    if answer.script.sql:
        lines += ["", "SQL:", *(f"  {sql};" for sql in answer.script.sql)]
        lines += ["", "Undo:", *(f"  {sql};" for sql in answer.script.undo)] if answer.script.undo else []
    for caption, advice in (("Alternative:", of.instead), ("Change by hand:", of.by_hand)):
        lines += ["", caption] if advice else []
        for a in advice:
            sql = [f"{one};" for one in statements(a.sql or "")]
            lines += [f"  {line}" for line in (*_reasons(a), *(f"  {line}" for line in (*_steps([a]), *sql) if line))]
    for caption, advice in (("Why:", of.by_sql), ("Also checked:", of.kept)):
        lines += ["", caption, *(f"  {line}" for a in advice for line in _reasons(a))] if advice else []
    for grid in answer.tables().values():
        if grid.rows:
            lines += ["", f"{grid.caption}:", *grid.lines()]
    if answer.basis():
        lines += ["", *answer.basis()]
    return mask("\n".join(lines))


def answer_html(answer: Card) -> str:
    """The same as a card, with reasons and measurements folded."""
    kind, badge = answer.badge()
    of = _sorted(answer)
    parts = [
        f'<div class="finding {kind}"><p class="title"><span class="badge">{badge}</span> {html.text(answer.name)} <small>{answer.question.replace("-", " ")}</small></p>',
        f"<p><strong>{html.prose(answer.verdict())}</strong></p>",
        effects_grid(answer).html(),
        f"<p><strong>Confidence:</strong> {html.prose(answer.confidence())}</p>",
    ]
    parts.append(_steps_html(of.by_sql))
    for caption, sql in (("SQL", answer.script.sql), ("Undo", answer.script.undo)):
        parts += [f"<p><strong>{caption}</strong></p>{html.statements(sql)}"] if sql else []
    for caption, advice in (("Alternative", of.instead), ("Change by hand", of.by_hand)):
        parts += [f"<p><strong>{caption}</strong></p>"] if advice else []
        parts += [_reasons_html(a) + _steps_html([a]) + html.statements(statements(a.sql or "")) for a in advice]
    for caption, advice in (("Why", of.by_sql), ("Also checked", of.kept)):
        parts += _folded(caption, [_reasons_html(a) for a in advice])
    basis = [f"<p>{html.prose(line)}</p>" for line in answer.basis()]
    parts += _folded("Measurements", [*(grid.html() for grid in answer.tables().values()), *basis])
    for caption, plan in answer.plans().items():
        parts += _folded(caption, [f"<pre>{html.text(plan)}</pre>"])
    return mask(html.framed(*parts, "</div>"))


def effects_grid(answer: Card) -> Grid:
    """The effect of a change on each figure, gains first and costs last."""
    effects = sorted(answer.effects(), key=lambda e: e.is_cost)
    columns = {"figure": TEXT(""), "now": FIGURE, "after": FIGURE, "kind": TEXT("")}
    return Grid("", columns, [(e.figure, e.now, e.after, "cost" if e.is_cost else "") for e in effects])


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Advice by where a card shows it: ``by_hand`` are changes that no statement makes, ``instead`` the alternatives."""

    by_sql: list[Advice]
    by_hand: list[Advice]
    instead: list[Advice]
    kept: list[Advice]


def _sorted(answer: Card) -> _Sorted:
    found = _Sorted([], [], [], [])
    for a in answer.advice:
        place = found.kept if not a.is_change else found.by_hand if a.sql is None else found.instead if a.is_alternative else found.by_sql
        place.append(a)
    return found


def _reasons(a: Advice) -> list[str]:
    said = [f"{a.setting}: {_change(a)}" if _change(a) else a.setting, f"  {a.evidence}"]
    return said + ([f"  Tried: {a.verified}"] if a.verified else [])


def _reasons_html(a: Advice) -> str:
    change = f" {html.text(_change(a))}." if _change(a) else ""
    tried = f" <strong>Tried:</strong> {html.prose(a.verified)}" if a.verified else ""
    return f"<p><code>{html.text(a.setting)}</code>{change} {html.prose(a.evidence)}{tried}</p>"


def _side_effects(advice: Iterable[Advice]) -> str:
    return "; ".join(a.breaks for a in advice if a.breaks)


def _steps(advice: Sequence[Advice]) -> list[str]:
    """What to know and to check before the changes."""
    said = [f"Side effects: {_side_effects(advice)}."] if _side_effects(advice) else []
    return said + [line for a in advice if a.check for line in ("", "Check first; this must return 0:", f"  {a.check};")]


def _steps_html(advice: Sequence[Advice]) -> str:
    said = f"<p><strong>Side effects:</strong> {html.prose(_side_effects(advice))}.</p>" if _side_effects(advice) else ""
    return said + "".join(
        f"<p><strong>Check first;</strong> this must return 0:</p>{html.statements([a.check])}" for a in advice if a.check
    )


def _folded(summary: str, parts: Sequence[str]) -> list[str]:
    inside = "".join(parts)
    return [f"<details><summary>{html.text(summary)}</summary>{inside}</details>"] if inside else []


def _change(a: Advice) -> str:
    return f"{a.current or 'not set'} → {a.proposed}" if a.proposed != a.current else a.current or ""
