"""An answer is data: one script with its undo, effects of the variant advised, and one card."""

from typing import Any

import pytest

from icekit.answer.grid import COUNT, SECONDS
from icekit.facts.model import TableFacts
from icekit.saving import as_data
from icekit.show.answer_chart import answer_chart
from icekit.tune.answer import (
    Answer,
    Change,
    Confidence,
    Measure,
    Measurements,
    in_force,
    median,
    overriding,
    to_set,
)
from tests.factories import table_facts

NAME = "`lake`.`db`.`odd``name`"


def facts(existing: dict[str, str] | None = None) -> TableFacts:
    return table_facts(catalog="lake", table=("db", "odd`name"), properties=existing or {})


def test_properties_of_one_change_are_set_in_one_statement_and_undone_to_what_they_were() -> None:
    existing = {"write.distribution-mode": "none"}
    properties = {
        "write.distribution-mode": "hash",
        "write.spark.advisory-partition-size-bytes": "9",
    }

    change = to_set(facts(existing), properties, "why")

    pairs = "'write.distribution-mode' = 'hash', 'write.spark.advisory-partition-size-bytes' = '9'"
    assert change.sql == (f"ALTER TABLE {NAME} SET TBLPROPERTIES ({pairs})",)
    assert change.undo == (
        f"ALTER TABLE {NAME} SET TBLPROPERTIES ('write.distribution-mode' = 'none')",
        f"ALTER TABLE {NAME} UNSET TBLPROPERTIES IF EXISTS "
        "('write.spark.advisory-partition-size-bytes')",
    )


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


def test_a_format_version_has_no_undo() -> None:
    assert to_set(facts(), {"format-version": "3"}, "why", now="2").undo == ()


def test_a_setting_of_the_session_is_reset() -> None:
    setting = in_force(
        ("spark.sql.iceberg.distribution-mode", "none"), ("write.m", None), ("default", None)
    )
    (change,) = overriding(setting, "It costs 3 files.")

    assert change.sql == ("RESET `spark.sql.iceberg.distribution-mode`",)
    assert change.undo == ("SET `spark.sql.iceberg.distribution-mode` = `none`",)


def test_what_is_set_nearest_to_the_write_is_in_force() -> None:
    default = ("default of the codec", "1")
    mode = in_force(("spark.sql.iceberg.m", "none"), ("write.m", "hash"), default)

    assert mode.value == "none"
    assert mode.origin == "session spark.sql.iceberg.m"
    assert in_force(("s", None), ("write.m", None), default).origin == "default of the codec"


def measurements() -> Measurements:
    measured = Measurements(
        (
            Measure("files", COUNT),
            Measure("scan", SECONDS),
            Measure("commit", SECONDS, of=median),
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


def test_effects_are_what_differs_from_now_with_the_costs_last() -> None:
    effects = measurements().effects("now", "sorted")

    assert [row[0] for row in effects.rows] == ["files", "scan", "commit", "rewrite"]
    assert effects.rows[0] == ("files", "10", "4", "")
    assert effects.rows[-1] == ("rewrite", "–", "9.0 s", "cost")
    assert not measurements().effects("now", None).rows


def answer(**given: Any) -> Answer:
    change = to_set(facts(), {"write.distribution-mode": "hash"}, "It saves 6 files.")
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


def test_the_card_begins_with_the_verdict_and_has_the_sql_and_its_undo() -> None:
    lines = repr(answer()).splitlines()

    assert lines[2] == "Set the mode."
    assert (
        lines.index("SQL:")
        < lines.index("Undo:")
        < lines.index("Why:")
        < lines.index("Measurements:")
    )
    assert "<details><summary>Why</summary>" in answer()._repr_html_()


def test_names_are_escaped_and_secrets_masked() -> None:
    from icekit import secrets

    secrets.remember({"s3.secret-access-key": "hunter2hunter2"})
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
