"""Each operation's mode is told as the engine takes it, with what set it."""

from __future__ import annotations

from icekit.facts.model import SortField
from icekit.tune.file_sizes.advisory_size import DISTRIBUTION_SESSION
from icekit.tune.file_sizes.distribution import Mode, modes
from tests.factories import UNPARTITIONED, table_facts

ORDER = (SortField("carrier", "identity", "asc", "nulls-first"),)


def by_operation(found: tuple[Mode, ...]) -> dict[str, str]:
    return {m.operation: m.value for m in found}


def test_defaults_follow_the_partitioning_and_the_order() -> None:
    assert by_operation(modes(table_facts())) == dict.fromkeys(("append", "delete", "update", "merge"), "hash")
    assert modes(table_facts(sort_order=ORDER))[0].value == "range"
    assert by_operation(modes(table_facts(specs=(UNPARTITIONED,), groups=())))["append"] == "none"


def test_a_session_overrides_every_operation() -> None:
    found = modes(table_facts(properties={"write.distribution-mode": "hash"}), {DISTRIBUTION_SESSION: "none"})

    assert set(by_operation(found).values()) == {"none"}
    assert found[0].why == f"session {DISTRIBUTION_SESSION}"


def test_an_option_overrides_the_session() -> None:
    assert modes(table_facts(), {DISTRIBUTION_SESSION: "none"}, {"distribution-mode": "range"})[0].value == "range"


def test_hash_without_a_partitioning_comes_to_none_for_appends_only() -> None:
    found = modes(table_facts(specs=(UNPARTITIONED,), groups=()), {DISTRIBUTION_SESSION: "hash"})

    assert by_operation(found) == {"append": "none", "delete": "hash", "update": "hash", "merge": "none"}
    assert "needs a partitioning" in found[0].why


def test_the_mode_of_appends_does_not_apply_to_deletes() -> None:
    found = by_operation(modes(table_facts(properties={"write.distribution-mode": "none"})))

    assert (found["append"], found["delete"]) == ("none", "hash")


def test_what_rows_are_brought_together_by_is_told() -> None:
    unpartitioned = modes(table_facts(specs=(UNPARTITIONED,), groups=()))

    assert unpartitioned[1].brings_together == "the data file that rows come from"
    assert modes(table_facts(sort_order=ORDER))[0].brings_together == "ranges of the partition, carrier"
