"""Hold the answer to one question about a table as data, and show every answer in one way.

A question says what was measured of each variant and what to change. The card, the text, the JSON,
the script and the chart follow.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from icekit.answer.grid import FIGURE, NAME, TEXT, Grid, Unit
from icekit.answer.view import Badge, Block, Folded, Listing, Sentence, Shown, Sql
from icekit.facts.model import TableFacts
from icekit.saving import slug, versions, write_json
from icekit.sql import (
    Identifier,
    display_name,
    reset_session,
    set_properties,
    set_session,
    statements,
    unset_properties,
)
from icekit.tune.in_force import SESSION, InForce

#: Properties that no statement can undo.
_ONE_WAY = frozenset({"format-version"})
_CHECK_FIRST = "Check first; this must return 0"


@dataclass(frozen=True, slots=True)
class Change:
    """One setting to change, or to keep where ``proposed`` equals ``now``.

    ``why`` is a sentence with the number behind it. ``sql`` is the statement to paste (several are
    separated by semicolons), None if no statement makes the change; ``undo`` reverts it, None if
    nothing can. ``properties`` are the table properties that ``sql`` sets, so that several changes
    are one statement. ``check`` is a query that must return 0 just before the change.
    ``is_alternative`` marks a change to make instead of the others; it is not in the script.
    ``is_whole`` says that ``sql`` is one statement of a person's own, which is not split at its
    semicolons.
    """

    setting: str
    now: str | None
    proposed: str | None
    why: str
    sql: str | None = None
    undo: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    side_effect: str | None = None
    check: str | None = None
    is_alternative: bool = False
    is_whole: bool = False

    @property
    def statements(self) -> tuple[str, ...]:
        """The statements to paste."""
        return (self.sql,) if self.sql and self.is_whole else statements(self.sql or "")

    @property
    def is_change(self) -> bool:
        """Tell whether there is something to do, with a statement or without one."""
        return self.sql is not None or self.proposed != self.now


def to_set(
    facts: TableFacts,
    properties: Mapping[str, str],
    why: str,
    *,
    now: str | None,
    side_effect: str | None = None,
) -> Change:
    """A change of table properties; it is named after the last of them."""
    pairs = tuple(properties.items())
    setting, value = pairs[-1]
    return Change(
        setting,
        now,
        value,
        why,
        set_properties(facts.sql_name, dict(pairs)),
        "; ".join(_undone(facts.sql_name, facts.properties, properties)) or None,
        properties=pairs,
        side_effect=side_effect,
    )


def overriding(setting: InForce, why: str = "") -> list[Change]:
    """Reset the session's setting where it overrides the table's property."""
    name, value = setting.name, setting.value
    if setting.where != SESSION:
        return []
    reason = f"The session's {name} = {value} overrides the table's property. {why}".rstrip()
    undo = set_session(name, value or "")
    return [Change(name, value, None, reason, reset_session(name), undo)]


@dataclass(frozen=True, slots=True)
class Script:
    """Statements and their undo, each in the order to run them."""

    sql: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()


def script(table: Identifier, existing: Mapping[str, str], changes: Iterable[Change]) -> Script:
    """All changes in one script: a single ALTER TABLE for the properties, then the other
    statements; and the undo.

    Changes are in order of importance: if two set the same property, the first wins, or the larger
    of two limits in bytes.
    """
    properties: dict[str, str] = {}
    others: list[Change] = []
    for change in changes:
        if change.is_alternative:
            continue
        if change.sql and not change.properties:
            others.append(change)
        for name, value in change.properties:
            earlier = properties.get(name)
            if earlier is None or (name.endswith("max-bytes") and int(value) > int(earlier)):
                properties[name] = value
    sql = [set_properties(table, properties)] if properties else []
    sql += [part for change in others for part in change.statements]
    undo = [part for change in reversed(others) for part in statements(change.undo or "")]
    return Script(tuple(sql), (*undo, *_undone(table, existing, properties)))


def _undone(
    table: Identifier, existing: Mapping[str, str], properties: Mapping[str, str]
) -> list[str]:
    undoable = [name for name in properties if name not in _ONE_WAY]
    changed = {name: existing[name] for name in undoable if name in existing}
    added = [name for name in undoable if name not in existing]
    return [
        *([set_properties(table, changed)] if changed else []),
        *([unset_properties(table, added)] if added else []),
    ]


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of every variant; ``of`` makes one value of its repeats, and ``is_cost`` marks
    what a change costs once.
    """

    name: str
    unit: Unit
    is_cost: bool = False
    of: Callable[[Sequence[float]], float] = min


#: A measure whose repeats are different commits rather than the same one again.
median: Callable[[Sequence[float]], float] = statistics.median


@dataclass(frozen=True)
class Measurements:
    """A grid of variants × measures; each cell has one value per round."""

    measures: tuple[Measure, ...] = ()
    rounds: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, variant: str, figures: Mapping[str, float]) -> None:
        """Add the figures of one round of a variant, by the name of their measure."""
        for name, value in figures.items():
            self.rounds.setdefault(variant, {}).setdefault(name, []).append(value)

    def value(self, variant: str, name: str) -> float | None:
        """The figure of a variant; None if it was not measured."""
        values = self.rounds.get(variant, {}).get(name)
        measure = next(m for m in self.measures if m.name == name)
        return measure.of(values) if values else None

    def spread(self, variant: str, name: str) -> float:
        """How far a figure may be off: what its two least repeats differ by; 0 without a repeat."""
        values = sorted(self.rounds.get(variant, {}).get(name, ()))
        return values[1] - values[0] if len(values) > 1 else 0.0

    def grid(self) -> Grid:
        """A row per variant, and a column for each measure that has a value."""
        names = {name for figures in self.rounds.values() for name in figures}
        measures = [m for m in self.measures if m.name in names]
        columns = {m.name.replace(" ", "_"): m.unit(m.name) for m in measures}
        rows = [(v, *(self.value(v, m.name) for m in measures)) for v in self.rounds]
        return Grid("Measured", {"variant": NAME(""), **columns}, rows)

    def pair(self, name: str, now: str, after: str) -> tuple[float, float] | None:
        """A figure of two variants; None unless both were measured."""
        before, then = self.value(now, name), self.value(after, name)
        return None if before is None or then is None else (before, then)

    def effects(self, now: str, after: str | None) -> Grid:
        """What changes from one variant to another, gains first and costs last; empty without the
        other.
        """
        rows = []
        for m in sorted(self.measures, key=lambda m: m.is_cost):
            before, then = (self.value(name or "", m.name) for name in (now, after))
            if then is not None and then != before:
                written = "–" if before is None else m.unit.write(before)
                rows.append((m.name, written, m.unit.write(then), "cost" if m.is_cost else ""))
        return Grid(
            "", {"figure": TEXT(""), "now": FIGURE, "after": FIGURE, "kind": TEXT("")}, rows
        )

    def gain(self, now: str, after: str | None) -> str:
        """The first effect in words, after a colon; empty without any."""
        for name, before, then, _ in self.effects(now, after).rows[:1]:
            return f": {name} {then} instead of {before}"
        return ""


class Confidence(StrEnum):
    """How sure an answer is; ``NONE`` if too little was measured to answer."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    NONE = "not measured"


#: Goes up by one when a JSON field changes its meaning or is removed; an added field does not
# count.
SCHEMA_VERSION = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerDocument:
    """The answer as JSON, with its tables as rows; in bytes and seconds, unrounded."""

    schema_version: int = SCHEMA_VERSION
    question: str
    catalog: str
    table: str
    snapshot_id: int | None
    is_change: bool
    verdict: str
    confidence: Confidence
    because: str
    stopped: str | None
    changes: Sequence[Change]
    script: Script
    now: str
    advised: str | None
    measured: Mapping[str, Mapping[str, Sequence[float]]]
    notes: Sequence[str]
    tables: Mapping[str, Sequence[Mapping[str, Any]]]
    versions: Mapping[str, str]


@dataclass(frozen=True, repr=False, kw_only=True)
class Answer(Shown):
    """The answer to a question about a table: a verdict, changes with SQL and undo, and what was
    measured of each variant.

    The effects compare the variants ``now`` and ``advised``. ``because`` says why the confidence is
    what it is, ``notes`` what the answer rests on and where it ends, one sentence each. ``tables``
    are further figures and ``plans`` texts of the engine, by name, which a page folds. ``stopped``
    says why a trial is incomplete, and ``failure`` why a run that asked this failed (None: it did
    not).
    """

    question: str
    facts: TableFacts
    verdict: str
    changes: tuple[Change, ...] = ()
    measured: Measurements = field(default_factory=Measurements)
    now: str = "now"
    advised: str | None = None
    confidence: Confidence = Confidence.NONE
    because: str = "nothing was measured."
    notes: tuple[str, ...] = ()
    tables: Mapping[str, Grid] = field(default_factory=dict)
    plans: Mapping[str, str] = field(default_factory=dict)
    stopped: str | None = None
    failure: str | None = None

    @property
    def name(self) -> str:
        """The table's name, without its catalog."""
        return display_name(self.facts.table)

    @property
    def is_change(self) -> bool:
        """Tell whether there is anything to do."""
        return any(change.is_change for change in self.changes)

    @property
    def is_answered(self) -> bool:
        """Tell whether enough was measured to answer."""
        return self.confidence is not Confidence.NONE

    @property
    def script(self) -> Script:
        """The statements to paste, and their undo; both empty if nothing should change."""
        return script(self.facts.sql_name, self.facts.properties, self.changes)

    def badge(self) -> tuple[str, str]:
        """The kind of card and its label."""
        if not self.is_answered:
            return "info", "not measured"
        if not self.is_change:
            return "fine", "✔ no change"
        if all(change.is_alternative for change in self.changes if change.is_change):
            return "info", "● alternative"
        return "warning", "▲ change"

    def blocks(self) -> list[Block]:
        """What every renderer shows: verdict, effects, confidence, SQL and undo; then the reasons
        and the measurements, folded.
        """
        kind, label = self.badge()
        kept = [c for c in self.changes if not c.is_change]
        by_hand = [c for c in self.changes if c.is_change and not c.sql]
        stated = [c for c in self.changes if c.sql]
        changed = [c for c in stated if not c.is_alternative]
        instead = [c for c in stated if c.is_alternative]
        effects = "; ".join(c.side_effect for c in changed if c.side_effect)
        return [
            Badge(kind, label, self.name, self.question.replace("-", " ")),
            Sentence(self.verdict, is_strong=True),
            self.measured.effects(self.now, self.advised),
            Sentence(f"{self.confidence}: {self.because}", "Confidence"),
            *([Sentence(f"{effects}.", "Side effects")] if effects else []),
            *(Sql(_CHECK_FIRST, _check(c)) for c in changed),
            Sql("SQL", self.script.sql),
            Sql("Undo", self.script.undo),
            *(
                block
                for c in (*by_hand, *instead)
                for block in (
                    Sentence(_reason(c), "Alternative" if c.sql else "Change by hand"),
                    Sql(_CHECK_FIRST, _check(c)),
                    Sql("SQL", c.statements),
                )
            ),
            Folded("Why", [Sentence(_reason(c)) for c in changed]),
            Folded("Also checked", [Sentence(_reason(c)) for c in kept]),
            Folded(
                "Measurements",
                [self.measured.grid(), *self.tables.values(), *map(Sentence, self.notes)],
            ),
            *(Folded(caption, [Listing(text)]) for caption, text in self.plans.items()),
        ]

    def document(self) -> AnswerDocument:
        """The answer as ``icekit tune --output`` writes it."""
        from pydantic_core import to_jsonable_python

        return AnswerDocument(
            question=self.question,
            catalog=self.facts.catalog,
            table=self.name,
            snapshot_id=self.facts.snapshot_id,
            is_change=self.is_change,
            verdict=self.verdict,
            confidence=self.confidence,
            because=self.because,
            stopped=self.stopped,
            changes=self.changes,
            script=self.script,
            now=self.now,
            advised=self.advised,
            measured=self.measured.rounds,
            notes=self.notes,
            tables=to_jsonable_python(
                {name: grid.records() for name, grid in self.tables.items()}, inf_nan_mode="null"
            ),
            versions=versions(),
        )

    def write_into(self, folder: Path) -> Path:
        """Write the document into a folder, named after the table and the question; a reader never
        sees a half-written file.
        """
        return write_json(folder / f"{slug(self.name)}.{self.question}.json", self.document())


def _check(change: Change) -> tuple[str, ...]:
    return (change.check,) if change.check else ()


def _reason(change: Change) -> str:
    if change.now is None and change.proposed is None:
        return f"{change.setting}: {change.why}"
    values = dict.fromkeys(value or "not set" for value in (change.now, change.proposed))
    return f"{change.setting}: {' → '.join(values)}. {change.why}"
