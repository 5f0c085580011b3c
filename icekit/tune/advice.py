"""What to set, why, the statement that sets it, and the one that takes it back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from icekit.sql import Identifier, reset_session, set_properties, set_session, statements, unset_properties
from icekit.tune.in_force import SESSION, Link

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
    table: Identifier,
    there: Mapping[str, str],
    properties: Mapping[str, str],
    *,
    current: str | None,
    evidence: str,
    name: str | None = None,
    verified: str | None = None,
    breaks: str | None = None,
) -> Advice:
    """Advice to set table properties; ``there`` are those that are set now, ``table`` is named with its catalog.

    It is named after the last of them, unless ``name`` says otherwise.
    """
    last, value = list(properties.items())[-1]
    undo = "; ".join(_undone(table, there, properties)) or None
    return Advice(
        name or last, current, value, evidence, set_properties(table, dict(properties)), verified, breaks, undo, tuple(properties.items())
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
