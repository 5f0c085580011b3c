"""The distribution is changed where a trial saved files, and left where it did not."""

from __future__ import annotations

from icekit.facts.model import SortField, TableFacts
from icekit.tune.file_sizes.advisory_size import DISTRIBUTION_SESSION
from icekit.tune.file_sizes.distribution import (
    CommitSpread,
    ModeTrial,
    Predicted,
    TriedMode,
    advise,
    advise_order,
    advised_mode,
    modes,
    skew,
)
from tests.factories import KIB, UNPARTITIONED, table_facts
from tests.tune.file_sizes.making import written

TABLE = ("prod", "db", "events")
NONE = {"write.distribution-mode": "none"}


def trial(in_force: str, share: float = 0.1, **files: int) -> ModeTrial:
    spread = CommitSpread(4, 2, 100, files.get("none", 8), 8, 2, share, 1.0)
    tried = tuple(TriedMode(m, Predicted(m, n, "so"), written(*[10 * KIB] * n, partitions=2, fewest=2)) for m, n in files.items())
    return ModeTrial("append", "a usual commit", in_force, spread, tried)


def test_none_becomes_hash_where_that_saves_files_and_says_what_was_predicted_and_made() -> None:
    facts = table_facts(properties=NONE)

    (found,) = advise(facts, modes(facts)[0], trial("none", none=8, hash=2, range=2))

    assert (found.current, found.proposed) == ("none", "hash")
    assert found.verified == "predicted 8 and 2 files; the result was 8 and 2."
    assert found.undo == "ALTER TABLE `prod`.`db`.`events` SET TBLPROPERTIES ('write.distribution-mode' = 'none')"


def test_none_stays_where_the_source_is_clustered() -> None:
    facts = table_facts(properties=NONE)

    (found,) = advise(facts, modes(facts)[0], trial("none", none=2, hash=2, range=2))

    assert not found.is_change
    assert "already clustered" in found.evidence


def test_range_stays_where_the_table_has_an_order() -> None:
    facts = table_facts(sort_order=(SortField("carrier", "identity", "asc", "nulls-first"),))

    assert advised_mode(facts, modes(facts)[0], trial("range", none=8, hash=2, range=6)) == "range"


def test_a_session_that_overrides_the_table_is_to_be_reset() -> None:
    facts = table_facts(properties={"write.distribution-mode": "hash"})
    mode = modes(facts, {DISTRIBUTION_SESSION: "none"})[0]

    (found,) = advise(facts, mode, trial("none", none=8, hash=2, range=2))

    assert (found.sql, found.undo) == (f"RESET `{DISTRIBUTION_SESSION}`", f"SET `{DISTRIBUTION_SESSION}` = `none`")


def test_an_unpartitioned_table_without_an_order_has_nothing_to_bring_rows_together_by() -> None:
    facts = table_facts(specs=(UNPARTITIONED,), groups=())

    (found,) = advise(facts, modes(facts)[0], trial("none", none=8))

    assert not found.is_change
    assert "a repartition before the write" in found.evidence


def order(facts: TableFacts) -> str:
    (found,) = advise_order(facts, ("carrier",))
    # What was not tried is no part of the script.
    assert not found.is_change
    return found.evidence.partition("which tries ")[2]


def test_the_order_that_filters_want_keeps_partitions_together_where_there_are_any() -> None:
    assert (
        order(table_facts())
        == "ALTER TABLE `prod`.`db`.`events` WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY `carrier` ASC NULLS FIRST."
    )
    assert (
        order(table_facts(specs=(UNPARTITIONED,), groups=()))
        == "ALTER TABLE `prod`.`db`.`events` WRITE ORDERED BY `carrier` ASC NULLS FIRST."
    )
    assert advise_order(table_facts(), ()) == ()


def test_one_partition_with_most_of_the_rows_is_named() -> None:
    assert "90 % of the rows" in (skew(trial("hash", 0.9, hash=2)) or "")
    assert skew(trial("hash", 0.3, hash=2)) is None
