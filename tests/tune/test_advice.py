"""Several pieces of advice come to one script, and one that takes it back."""

from __future__ import annotations

from icekit.tune.advice import Advice, script, to_set
from icekit.tune.in_force import in_force

TABLE = ("lake", "db", "odd`name")


def test_properties_are_set_in_one_statement_and_taken_back_to_what_they_were() -> None:
    there = {"write.distribution-mode": "none"}
    advice = [
        to_set(TABLE, there, {"write.distribution-mode": "hash"}, current="none", evidence="e"),
        to_set(TABLE, there, {"write.spark.advisory-partition-size-bytes": "9"}, current=None, evidence="e"),
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
        to_set(TABLE, {}, {"p": "1"}, current=None, evidence="e"),
    ]

    found = script(TABLE, {}, advice)

    assert found.sql[1:] == ("ORDER a", "ADD b")
    assert found.undo[:2] == ("DROP b", "UNORDER a")


def test_the_first_of_two_that_set_one_property_is_taken() -> None:
    advice = [to_set(TABLE, {}, {"p": value}, current=None, evidence="e") for value in "12"]

    assert "'p' = '1'" in script(TABLE, {}, advice).sql[0]


def test_of_two_limits_in_bytes_the_larger_is_set() -> None:
    name = "write.parquet.bloom-filter-max-bytes"
    advice = [to_set(TABLE, {}, {name: value}, current=None, evidence="e") for value in ("900", "1000", "20")]

    assert f"'{name}' = '1000'" in script(TABLE, {}, advice).sql[0]


def test_a_format_version_is_not_taken_back() -> None:
    advice = to_set(TABLE, {}, {"format-version": "3"}, current="2", evidence="e")

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
