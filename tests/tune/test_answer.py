"""An answer is data: one script with its undo, effects of the variant advised, and one card."""

from types import SimpleNamespace
from typing import Any

import pytest

from icekit.common.saving import as_data
from icekit.common.view import COUNT, SECONDS
from icekit.health.facts.model import TableFacts
from icekit.show.answer_chart import answer_chart
from icekit.tune.answer import (
    Answer,
    Change,
    Confidence,
    Measure,
    Measurements,
    SettingInForce,
    median,
    property_and_session_changes,
    property_change,
    setting_in_force,
)
from tests.factories import table_facts
from tests.golden import Golden

NAME = "`lake`.`db`.`odd``name`"


def facts(existing: dict[str, str] | None = None) -> TableFacts:
    return table_facts(catalog="lake", table=("db", "odd`name"), properties=existing or {})


def test_properties_of_one_change_are_set_in_one_statement_and_undone_to_what_they_were() -> None:
    existing = {"write.distribution-mode": "none"}
    properties = {
        "write.distribution-mode": "hash",
        "write.spark.advisory-partition-size-bytes": "9",
    }

    change = property_change(facts(existing), properties, "why")

    pairs = "'write.distribution-mode' = 'hash', 'write.spark.advisory-partition-size-bytes' = '9'"
    assert change.sql == (f"ALTER TABLE {NAME} SET TBLPROPERTIES ({pairs})",)
    assert change.undo == (
        f"ALTER TABLE {NAME} SET TBLPROPERTIES ('write.distribution-mode' = 'none')",
        f"ALTER TABLE {NAME} UNSET TBLPROPERTIES IF EXISTS "
        "('write.spark.advisory-partition-size-bytes')",
    )
    assert property_change(facts(), {"format-version": "3"}, "why", now="2").undo == ()


def test_the_undo_reverses_the_changes_and_alternatives_are_in_neither() -> None:
    changes = (
        Change("order", "none", "a", "why", ("ORDER a;", "THEN b"), ("UNORDER a", "THEN undo b")),
        Change("kept", None, None, "leave it"),
        Change("spec", "none", "b", "why", ("ADD b",), ("DROP b",)),
        Change("other", "none", "c", "why", ("INSTEAD",), is_alternative=True),
    )

    script = answer(changes=changes).script

    assert script.sql == ("ORDER a;", "THEN b", "ADD b")
    assert script.undo == ("DROP b", "UNORDER a", "THEN undo b")


SESSION, PROPERTY = "spark.sql.iceberg.distribution-mode", "write.distribution-mode"
DEFAULT = SettingInForce(PROPERTY, "range", "the default")


def mode_of(session: dict[str, str], properties: dict[str, str]) -> SettingInForce:
    spark: Any = SimpleNamespace(conf=session)
    return setting_in_force(spark, facts(properties), SESSION, PROPERTY, DEFAULT)


def test_what_is_set_nearest_to_the_write_is_in_force() -> None:
    of_table = {PROPERTY: "hash"}

    assert mode_of({SESSION: "none"}, of_table).origin == f"session {SESSION}"
    assert mode_of({SESSION: "none"}, of_table).value == "none"
    assert mode_of({}, of_table).origin == f"table property {PROPERTY}"
    assert mode_of({}, {}) is DEFAULT


def test_a_property_is_set_unless_it_is_and_a_session_that_overrides_it_is_reset() -> None:
    of_table, session = {PROPERTY: "hash"}, mode_of({SESSION: "none"}, {})

    (change,) = property_and_session_changes(facts(of_table), session, of_table, "why")
    both = property_and_session_changes(facts(), session, of_table, "why")

    assert change.sql == (f"RESET `{SESSION}`",)
    assert change.undo == (f"SET `{SESSION}` = `none`",)
    assert [c.setting for c in both] == [PROPERTY, SESSION]
    assert len(property_and_session_changes(facts(), DEFAULT, of_table, "why")) == 1


def measurements() -> Measurements:
    measured = Measurements(
        (
            Measure("files", COUNT),
            Measure("scan", SECONDS),
            Measure("commit", SECONDS, combine_repeats=median),
            Measure("rewrite", SECONDS, is_cost=True),
        )
    )
    for now, tried in ((3.0, 1.0), (2.0, 1.5)):
        measured.add("now", {"files": 10, "scan": now, "commit": now})
        measured.add("sorted", {"files": 4, "scan": tried, "commit": tried})
    measured.add("sorted", {"rewrite": 9.0})
    return measured


def test_a_figure_is_the_least_of_its_repeats_or_their_median_and_says_how_far_they_differ() -> (
    None
):
    measured = measurements()

    assert measured.value("now", "scan") == 2.0
    assert measured.value("now", "commit") == 2.5
    assert measured.spread("now", "scan") == 1.0
    assert measured.spread("sorted", "rewrite") == 0.0
    assert measured.value("other", "scan") is None


def answer(**given: Any) -> Answer:
    change = property_change(facts(), {"write.distribution-mode": "hash"}, "It saves 6 files.")
    defaults = {
        "question": "file-sizes",
        "facts": facts(),
        "verdict": "Set the mode.",
        "changes": (change,),
        "measured": measurements(),
        "advised": "sorted",
        "confidence": Confidence.HIGH,
        "because": "tried on clones.",
    }
    return Answer(**{**defaults, **given})


@pytest.mark.parametrize(
    ("given", "badge"),
    [
        ({}, "▲ change"),
        ({"changes": ()}, "✔ no change"),
        (
            {"changes": (Change("v", "2", "3", "why", ("UPGRADE",), is_alternative=True),)},
            "● alternative",
        ),
        ({"confidence": Confidence.NONE}, "not measured"),
    ],
)
def test_the_badge_follows_from_the_changes_and_from_what_was_measured(
    given: dict[str, Any], badge: str
) -> None:
    assert answer(**given).badge()[1] == badge
    assert badge in repr(answer(**given)).splitlines()[0]


def test_an_answer_looks_like_its_golden_file(golden: Golden) -> None:
    changes = (
        *answer().changes,
        Change("order", "a", "a", "It is sorted already."),
        Change("spec", "none", "b", "Fewer files.", ("ADD b",), is_alternative=True),
    )

    golden("answer.txt", repr(answer(changes=changes, notes=("Tried twice.",))))


def test_names_are_escaped_and_secrets_masked() -> None:
    from icekit.common import secrets

    secrets.remember_secrets({"s3.secret-access-key": "hunter2hunter2"})
    page = answer(
        facts=table_facts(table=("db", "<script>")), verdict="key=hunter2hunter2"
    )._repr_html_()

    assert "&lt;script&gt;" in page
    assert "hunter2" not in page


def test_the_document_has_all_rounds_and_the_statements() -> None:
    document = as_data(answer().document())

    assert document["measured"]["now"]["scan"] == [3.0, 2.0]
    assert document["changes"][0]["setting"] == "write.distribution-mode"
    assert document["script"]["sql"] == [
        f"ALTER TABLE {NAME} SET TBLPROPERTIES ('write.distribution-mode' = 'hash')"
    ]


def test_the_chart_has_a_panel_for_each_measure_that_differs() -> None:
    chart = answer_chart(answer())

    assert chart.figure is not None
    assert [axes.get_xlabel() for axes in chart.figure.axes] == ["Files", "Scan", "Commit"]
    assert chart.alt == "Set the mode."
    assert answer_chart(answer(measured=Measurements())).figure is None
