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
    median,
    overriding,
    script,
    to_set,
)
from icekit.tune.in_force import in_force
from tests.factories import table_facts

TABLE = ("lake", "db", "odd`name")
NAME = "`lake`.`db`.`odd``name`"


def facts(existing: dict[str, str] | None = None) -> TableFacts:
    return table_facts(catalog="lake", table=TABLE[1:], properties=existing or {})


def test_properties_are_set_in_one_statement_and_undone_to_what_they_were() -> None:
    existing = {"write.distribution-mode": "none"}
    changes = [
        to_set(facts(existing), {"write.distribution-mode": "hash"}, "why", now="none"),
        to_set(
            facts(existing), {"write.spark.advisory-partition-size-bytes": "9"}, "why", now=None
        ),
        Change("compaction", None, None, "leave it"),
    ]

    made = script(TABLE, existing, changes)

    properties = (
        "'write.distribution-mode' = 'hash', 'write.spark.advisory-partition-size-bytes' = '9'"
    )
    assert made.sql == (f"ALTER TABLE {NAME} SET TBLPROPERTIES ({properties})",)
    assert made.undo == (
        f"ALTER TABLE {NAME} SET TBLPROPERTIES ('write.distribution-mode' = 'none')",
        f"ALTER TABLE {NAME} UNSET TBLPROPERTIES IF EXISTS "
        "('write.spark.advisory-partition-size-bytes')",
    )


def test_other_statements_follow_and_are_undone_first_and_in_reverse() -> None:
    changes = [
        Change("order", "none", "a", "why", "ORDER a; THEN b", "UNORDER a"),
        Change("spec", "none", "b", "why", "ADD b", "DROP b"),
        Change("other", "none", "c", "why", "INSTEAD", is_alternative=True),
        to_set(facts(), {"p": "1"}, "why", now=None),
    ]

    made = script(TABLE, {}, changes)

    assert made.sql[1:] == ("ORDER a", "THEN b", "ADD b")
    assert made.undo[:2] == ("DROP b", "UNORDER a")


@pytest.mark.parametrize(
    ("name", "values", "kept"),
    [
        ("p", ("1", "2"), "1"),
        ("write.parquet.bloom-filter-max-bytes", ("900", "1000", "20"), "1000"),
    ],
)
def test_of_changes_to_one_property_the_first_wins_or_the_larger_limit(
    name: str, values: tuple[str, ...], kept: str
) -> None:
    changes = [to_set(facts(), {name: value}, "why", now=None) for value in values]

    assert f"'{name}' = '{kept}'" in script(TABLE, {}, changes).sql[0]


def test_a_format_version_has_no_undo() -> None:
    change = to_set(facts(), {"format-version": "3"}, "why", now="2")

    assert change.undo is None
    assert script(TABLE, {}, [change]).undo == ()


def test_a_setting_of_the_session_is_reset() -> None:
    setting = in_force(session=("spark.sql.iceberg.distribution-mode", "none"))
    (change,) = overriding(setting, "It costs 3 files.")

    assert change.sql == "RESET `spark.sql.iceberg.distribution-mode`"
    assert change.undo == "SET `spark.sql.iceberg.distribution-mode` = `none`"


def test_what_is_set_nearest_to_the_write_is_in_force() -> None:
    mode = in_force(session=("spark.sql.iceberg.m", "none"), table=("write.m", "hash"))

    assert mode.value == "none"
    assert mode.origin == "session spark.sql.iceberg.m"
    assert in_force(default=("default of the codec", "1")).origin == "default of the codec"
    assert in_force().value is None


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
    change = to_set(facts(), {"write.distribution-mode": "hash"}, "It saves 6 files.", now=None)
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
            {"changes": (Change("v", "2", "3", "why", "UPGRADE", is_alternative=True),)},
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
    assert document["changes"][0]["properties"] == [["write.distribution-mode", "hash"]]
    assert document["script"]["sql"] == [
        f"ALTER TABLE {NAME} SET TBLPROPERTIES ('write.distribution-mode' = 'hash')"
    ]


def test_the_chart_has_a_panel_for_each_measure_that_differs() -> None:
    chart = answer_chart(answer())

    assert chart.figure is not None
    assert [axes.get_xlabel() for axes in chart.figure.axes] == ["Files", "Scan", "Commit"]
    assert chart.alt == "Set the mode."
    assert answer_chart(answer(measured=Measurements())).figure is None
