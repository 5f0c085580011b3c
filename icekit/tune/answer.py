"""Hold the answer to one question about a table as data, and show every answer in one way.

A question says what was measured of each variant and what to change. The card, the text, the JSON,
the script and the chart follow.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from icekit.common import frozen
from icekit.common.saving import slug, versions, write_json
from icekit.common.sql import (
    reset_session_sql,
    set_properties_sql,
    set_session_sql,
    unset_properties_sql,
)
from icekit.common.view import (
    FIGURE,
    NAME,
    TEXT,
    Badge,
    Block,
    Folded,
    Grid,
    Sentence,
    Shown,
    Sql,
    Unit,
)
from icekit.health.facts.model import TableFacts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Properties that no statement can undo.
_ONE_WAY = frozenset({"format-version"})
_CHECK_FIRST = "Check first; this must return 0"


@frozen
class Change:
    """One setting to change, or to keep where ``proposed`` equals ``now``.

    ``why`` is a sentence with the number behind it, empty where the verdict says it. ``sql`` are
    the statements to paste, empty if none makes the change; ``undo`` reverts it, empty if nothing
    can. ``check`` is a query that must return 0 just before the change. ``is_alternative`` marks a
    change to make instead of the others; it is not in the script.
    """

    setting: str
    now: str | None
    proposed: str | None
    why: str
    sql: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    side_effect: str | None = None
    check: tuple[str, ...] = ()
    is_alternative: bool = False

    @property
    def is_change(self) -> bool:
        """Tell whether there is something to do, with a statement or without one."""
        return bool(self.sql) or self.proposed != self.now

    def __str__(self) -> str:
        if self.now is None and self.proposed is None:
            return f"{self.setting}: {self.why}"
        value_texts = dict.fromkeys(
            setting_value or "not set" for setting_value in (self.now, self.proposed)
        )
        return f"{self.setting}: {' → '.join(value_texts)}. {self.why}"


def property_change(
    facts: TableFacts,
    properties: Mapping[str, str],
    why: str,
    *,
    now: str | None = None,
    side_effect: str | None = None,
) -> Change:
    """A change of table properties, in one statement; it is named after the last of them. ``now``
    is what is in force where that is not the property.
    """
    last_property, proposed_value = list(properties.items())[-1]
    reversible_names = [
        property_name for property_name in properties if property_name not in _ONE_WAY
    ]
    values_before = {n: facts.properties[n] for n in reversible_names if n in facts.properties}
    added_names = [n for n in reversible_names if n not in facts.properties]
    return Change(
        last_property,
        now or facts.properties.get(last_property),
        proposed_value,
        why,
        sql=(set_properties_sql(facts.sql_name, dict(properties)),),
        undo=(
            *([set_properties_sql(facts.sql_name, values_before)] if values_before else []),
            *([unset_properties_sql(facts.sql_name, added_names)] if added_names else []),
        ),
        side_effect=side_effect,
    )


@frozen
class SettingInForce:
    """The setting that decides: its name and value (None: nothing is set), and ``origin``, where it
    is set, in words (``table property write.distribution-mode``).
    """

    name: str
    value: str | None
    origin: str
    is_of_session: bool = False


def setting_in_force(
    spark: SparkSession,
    facts: TableFacts,
    session_key: str,
    property_name: str,
    default_setting: SettingInForce,
) -> SettingInForce:
    """Which decides: the session's setting, the table's property or the default.

    Source: Iceberg's ``ConfParser`` for Spark: the place nearest to the write wins, which is a
    write or read option (only the job knows it), then the session, the table property, the default.
    """
    session_value = spark.conf.get(session_key, None)
    if session_value is not None:
        origin = f"session {session_key}"
        return SettingInForce(session_key, session_value, origin, is_of_session=True)
    table_value = facts.properties.get(property_name)
    if table_value is not None:
        return SettingInForce(property_name, table_value, f"table property {property_name}")
    return default_setting


def property_and_session_changes(
    facts: TableFacts,
    setting: SettingInForce,
    properties: Mapping[str, str],
    why: str,
    *,
    now: str | None = None,
    side_effect: str | None = None,
) -> list[Change]:
    """Set properties, and reset the session's setting where it overrides them; ``now`` and
    ``side_effect`` are those of :func:`property_change`.
    """
    changes: list[Change] = []
    if not properties.items() <= facts.properties.items():
        changes.append(property_change(facts, properties, why, now=now, side_effect=side_effect))
    if setting.is_of_session:
        session_value = setting.value or ""
        override_sentence = (
            f"The session's {setting.name} = {session_value} overrides the table's property."
        )
        reset_sql = reset_session_sql(setting.name)
        undo_sql = set_session_sql(setting.name, session_value)
        changes.append(
            Change(setting.name, session_value, None, override_sentence, (reset_sql,), (undo_sql,))
        )
    return changes


@frozen
class Script:
    """Statements and their undo, each in the order to run them."""

    sql: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()


@frozen
class Measure:
    """One figure of every variant; ``combine_repeats`` makes one value of its repeats, and
    ``is_cost`` marks what a change costs once.
    """

    name: str
    unit: Unit
    is_cost: bool = False
    combine_repeats: Callable[[Sequence[float]], float] = min


#: A measure whose repeats are different commits rather than the same one again.
median: Callable[[Sequence[float]], float] = statistics.median


@frozen
class Measurements:
    """A grid of variants × measures; each cell has one value per round."""

    measures: tuple[Measure, ...] = ()
    values_by_variant: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, variant: str, figures: Mapping[str, float]) -> None:
        """Add the figures of one round of a variant, by the name of their measure."""
        for measure_name, figure in figures.items():
            self.values_by_variant.setdefault(variant, {}).setdefault(measure_name, []).append(
                figure
            )

    def value(self, variant: str, measure_name: str) -> float | None:
        """The figure of a variant; None if it was not measured."""
        round_values = self.values_by_variant.get(variant, {}).get(measure_name)
        measure = next(m for m in self.measures if m.name == measure_name)
        return measure.combine_repeats(round_values) if round_values else None

    def spread(self, variant: str, measure_name: str) -> float:
        """How far a figure may be off: what its two least repeats differ by; 0 without a repeat."""
        ascending_values = sorted(self.values_by_variant.get(variant, {}).get(measure_name, ()))
        return ascending_values[1] - ascending_values[0] if len(ascending_values) > 1 else 0.0

    def grid(self) -> Grid:
        """A row per variant, and a column for each measure that has a value."""
        measure_names = {
            measure_name
            for figures_by_measure in self.values_by_variant.values()
            for measure_name in figures_by_measure
        }
        measures = [m for m in self.measures if m.name in measure_names]
        grid_columns = {m.name.replace(" ", "_"): m.unit(m.name) for m in measures}
        variant_rows = [
            (v, *(self.value(v, m.name) for m in measures)) for v in self.values_by_variant
        ]
        return Grid("Measured", {"variant": NAME(""), **grid_columns}, variant_rows)

    def figure_pair(
        self, measure_name: str, variant: str, other_variant: str
    ) -> tuple[float, float] | None:
        """A figure of two variants; None unless both were measured."""
        first_figure = self.value(variant, measure_name)
        second_figure = self.value(other_variant, measure_name)
        return (
            None if first_figure is None or second_figure is None else (first_figure, second_figure)
        )

    def effects(self, variant: str, other_variant: str | None) -> Grid:
        """What changes from one variant to another, gains first and what it costs last; empty
        without the other.
        """
        effect_rows = []
        for m in sorted(self.measures, key=lambda m: m.is_cost):
            figure_before = self.value(variant or "", m.name)
            figure_after = self.value(other_variant or "", m.name)
            if figure_after is not None and figure_after != figure_before:
                text_before = "–" if figure_before is None else m.unit.write(figure_before)
                effect_kind = "cost" if m.is_cost and figure_after > (figure_before or 0) else ""
                effect_rows.append((m.name, text_before, m.unit.write(figure_after), effect_kind))
        return Grid(
            "", {"figure": TEXT(""), "now": FIGURE, "after": FIGURE, "kind": TEXT("")}, effect_rows
        )

    def gain_text(self, variant: str, other_variant: str | None) -> str:
        """The first effect in words, after a colon; empty without any."""
        effect_rows = self.effects(variant, other_variant).rows
        if not effect_rows:
            return ""
        measure_name, text_before, text_after, _ = effect_rows[0]
        return f": {measure_name} from {text_before} to {text_after}"


class Confidence(StrEnum):
    """How sure an answer is; ``NONE`` if too little was measured to answer."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    NONE = "not measured"


#: Goes up by one when a JSON field changes its meaning or is removed; an added field does not
# count.
SCHEMA_VERSION = 8


@dataclass(frozen=True, repr=False, kw_only=True)
class _Answered:
    """What an answer and its document have in common.

    The effects compare the variants ``now`` and ``advised``. ``because`` says why the confidence is
    what it is, ``notes`` what the answer rests on and where it ends, one sentence each. ``stopped``
    says why a trial is incomplete.
    """

    question: str
    verdict: str
    changes: tuple[Change, ...] = ()
    now: str = "now"
    advised: str | None = None
    confidence: Confidence = Confidence.NONE
    because: str = "nothing was measured."
    notes: tuple[str, ...] = ()
    stopped: str | None = None


@dataclass(frozen=True, repr=False, kw_only=True)
class AnswerDocument(_Answered):
    """The answer as JSON, in bytes and seconds, unrounded."""

    schema_version: int = SCHEMA_VERSION
    catalog: str
    table: str
    snapshot_id: int | None
    is_change: bool
    script: Script
    measured: Mapping[str, Mapping[str, Sequence[float]]]
    versions: Mapping[str, str]


@dataclass(frozen=True, repr=False, kw_only=True)
class Answer(_Answered, Shown):
    """The answer to a question about a table: a verdict, changes with SQL and undo, and what was
    measured of each variant.

    ``failure`` says why a run that asked this failed (None: it did not).
    """

    facts: TableFacts
    measured: Measurements = field(default_factory=Measurements)
    failure: str | None = None

    @property
    def is_change(self) -> bool:
        """Tell whether there is anything to do."""
        return any(change.is_change for change in self.changes)

    @property
    def script(self) -> Script:
        """The statements to paste, and their undo; both empty if nothing should change."""
        script_changes = [change for change in self.changes if not change.is_alternative]
        return Script(
            tuple(sql for change in script_changes for sql in change.sql),
            tuple(sql for change in reversed(script_changes) for sql in change.undo),
        )

    def badge(self) -> tuple[str, str]:
        """The kind of card and its label."""
        if self.confidence is Confidence.NONE:
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
        badge_kind, badge_label = self.badge()
        unchanged_settings = [c for c in self.changes if not c.is_change and c.why]
        advised_changes = [c for c in self.changes if c.sql and not c.is_alternative]
        other_changes = [c for c in self.changes if c.is_change and c not in advised_changes]
        side_effects = "; ".join(c.side_effect for c in advised_changes if c.side_effect)
        return [
            Badge(badge_kind, badge_label, self.facts.name, self.question.replace("-", " ")),
            Sentence(self.verdict, is_strong=True),
            self.measured.effects(self.now, self.advised),
            Sentence(f"{self.confidence}: {self.because}", "Confidence"),
            *([Sentence(f"{side_effects}.", "Side effects")] if side_effects else []),
            *(Sql(_CHECK_FIRST, c.check) for c in advised_changes),
            Sql("SQL", self.script.sql),
            Sql("Undo", self.script.undo),
            *(
                block
                for c in other_changes
                for block in (
                    Sentence(str(c), "Alternative" if c.sql else "Change by hand"),
                    Sql("SQL", c.sql),
                )
            ),
            Folded("Why", [Sentence(str(c)) for c in advised_changes]),
            Folded("Also checked", [Sentence(str(c)) for c in unchanged_settings]),
            Folded(
                "Measurements",
                [self.measured.grid(), *map(Sentence, self.notes)],
            ),
        ]

    def document(self) -> AnswerDocument:
        """The answer as ``icekit tune --output`` writes it."""
        return AnswerDocument(
            **{f.name: getattr(self, f.name) for f in fields(_Answered)},
            catalog=self.facts.catalog,
            table=self.facts.name,
            snapshot_id=self.facts.snapshot_id,
            is_change=self.is_change,
            script=self.script,
            measured=self.measured.values_by_variant,
            versions=versions(),
        )

    def write_into(self, folder: Path) -> Path:
        """Write the document into a folder, named after the table and the question; a reader never
        sees a half-written file.
        """
        return write_json(folder / f"{slug(self.facts.name)}.{self.question}.json", self.document())
