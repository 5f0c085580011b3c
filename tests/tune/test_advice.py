"""Several pieces of advice come to one script, and one that takes it back."""

from __future__ import annotations

from icekit.facts.model import TableFacts
from icekit.tune.card import OPTION, SESSION, Advice, Link, in_force, overriding, script, to_set
from tests.factories import table_facts

TABLE = ("lake", "db", "odd`name")


def facts(there: dict[str, str] | None = None) -> TableFacts:
    return table_facts(catalog="lake", table=TABLE[1:], properties=there or {})


def test_properties_are_set_in_one_statement_and_taken_back_to_what_they_were() -> None:
    there = {"write.distribution-mode": "none"}
    advice = [
        to_set(facts(there), {"write.distribution-mode": "hash"}, current="none", evidence="e"),
        to_set(facts(there), {"write.spark.advisory-partition-size-bytes": "9"}, current=None, evidence="e"),
        Advice("compaction", None, None, "leave it"),
    ]

    found = script(TABLE, there, advice)

    assert found.sql == (
        "ALTER TABLE `lake`.`db`.`odd``name` SET TBLPROPERTIES ('write.distribution-mode' = 'hash', 'write.spark.advisory-partition-size-bytes' = '9')",
    )
    assert found.undo == (
        "ALTER TABLE `lake`.`db`.`odd``name` SET TBLPROPERTIES ('write.distribution-mode' = 'none')",
        "ALTER TABLE `lake`.`db`.`odd``name` UNSET TBLPROPERTIES IF EXISTS ('write.spark.advisory-partition-size-bytes')",
    )


def test_other_statements_follow_and_are_taken_back_first_and_last_first() -> None:
    advice = [
        Advice("order", "none", "a", "e", sql="ORDER a", undo="UNORDER a"),
        Advice("spec", "none", "b", "e", sql="ADD b", undo="DROP b"),
        to_set(facts(), {"p": "1"}, current=None, evidence="e"),
    ]

    found = script(TABLE, {}, advice)

    assert found.sql[1:] == ("ORDER a", "ADD b")
    assert found.undo[:2] == ("DROP b", "UNORDER a")


def test_the_first_of_two_that_set_one_property_is_taken() -> None:
    advice = [to_set(facts(), {"p": value}, current=None, evidence="e") for value in "12"]

    assert "'p' = '1'" in script(TABLE, {}, advice).sql[0]


def test_of_two_limits_in_bytes_the_larger_is_set() -> None:
    name = "write.parquet.bloom-filter-max-bytes"
    advice = [to_set(facts(), {name: value}, current=None, evidence="e") for value in ("900", "1000", "20")]

    assert f"'{name}' = '1000'" in script(TABLE, {}, advice).sql[0]


def test_a_format_version_is_not_taken_back() -> None:
    advice = to_set(facts(), {"format-version": "3"}, current="2", evidence="e")

    assert advice.undo is None
    assert script(TABLE, {}, [advice]).undo == ()


def test_nothing_to_change_is_an_empty_script() -> None:
    assert script(TABLE, {}, [Advice("p", "1", "1", "leave it")]).sql == ()


def test_what_is_set_nearest_to_the_write_is_in_force() -> None:
    chain = in_force(
        "distribution", session=[("spark.sql.iceberg.distribution-mode", "none")], properties=[("write.distribution-mode", "hash")]
    )

    assert (chain.value, chain.origin) == ("none", "session spark.sql.iceberg.distribution-mode")
    assert [link.name for link in chain.overridden] == ["write.distribution-mode"]
    assert in_force("x", default=("default of the codec", "1")).origin == "default of the codec"
    assert in_force("x").value is None


def test_advice_to_set_properties_holds_both_ways_and_all_that_was_told() -> None:
    there = {"a": "1", "format-version": "2"}
    given = {"a": "2", "b": "3", "format-version": "3"}

    assert to_set(facts(there), given, current="1", evidence="e", verified="v", breaks="w") == Advice(
        "format-version",
        "1",
        "3",
        "e",
        "ALTER TABLE `lake`.`db`.`odd``name` SET TBLPROPERTIES ('a' = '2', 'b' = '3', 'format-version' = '3')",
        "v",
        "w",
        "ALTER TABLE `lake`.`db`.`odd``name` SET TBLPROPERTIES ('a' = '1'); "
        "ALTER TABLE `lake`.`db`.`odd``name` UNSET TBLPROPERTIES IF EXISTS ('b')",
        (("a", "2"), ("b", "3"), ("format-version", "3")),
    )


def test_advice_is_named_after_the_last_of_its_properties() -> None:
    assert to_set(facts(), {"a": "1", "b": "2"}, current=None, evidence="e").setting == "b"


def test_a_sessions_setting_that_overrides_is_reset_and_can_be_set_again() -> None:
    link = Link(SESSION, "spark.sql.iceberg.distribution-mode", "none")

    assert overriding(link, "It costs 3 files.", verified="v") == Advice(
        "spark.sql.iceberg.distribution-mode",
        "none",
        None,
        "Session spark.sql.iceberg.distribution-mode = none overrides the table's property: remove it from the job. It costs 3 files.",
        "RESET `spark.sql.iceberg.distribution-mode`",
        "v",
        undo="SET `spark.sql.iceberg.distribution-mode` = `none`",
    )


def test_a_write_option_that_overrides_is_taken_out_of_the_job_and_no_statement_does_it() -> None:
    found = overriding(Link(OPTION, "distribution-mode", "none"), "")

    assert found.evidence == "Option distribution-mode = none overrides the table's property: remove it from the job."
    assert (found.sql, found.undo, found.is_change) == (None, None, True)


def test_statements_without_a_way_back_are_left_out_of_it() -> None:
    advice = [Advice("a", None, None, "e", sql="A1; A2"), Advice("b", None, None, "e", sql="B", undo="C1; C2")]

    assert script(TABLE, {}, advice).sql == ("A1", "A2", "B")
    assert script(TABLE, {}, advice).undo == ("C1", "C2")
