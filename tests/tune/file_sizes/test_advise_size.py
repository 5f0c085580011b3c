"""Advice on the advisory size is a table property, verified by a second trial, or to leave it."""

from __future__ import annotations

from icekit.tune.file_sizes.advisory_size import ICEBERG_SESSION, PROPERTY, Chain, SizeCandidate, SizeTrial, advise, chain, limits
from icekit.tune.file_sizes.written import Written
from tests.factories import MIB, table_facts
from tests.tune.file_sizes.making import CLUSTER, SOURCE, TARGET, shuffle, written

TABLE = ("prod", "db", "events")
SMALL = written(*[TARGET // 4] * 60)


def of(session: dict[str, str | None] | None = None, **properties: str) -> Chain:
    return chain(table_facts(), session or {}, CLUSTER, mode="hash", options=properties)


def trial(base: Written, *tried: tuple[int, Written], target: int = TARGET) -> SizeTrial:
    return SizeTrial(SOURCE, target, base, base, tuple((SizeCandidate(size, "one file a task"), w) for size, w in tried))


def test_a_size_that_was_seen_to_work_is_advised_with_the_way_back() -> None:
    (found,) = advise(table_facts(), of(), "hash", trial(SMALL, (900 * MIB, written())))

    assert found.properties == ((PROPERTY, str(900 * MIB)),)
    assert found.verified == "60 files of 128 MiB on average before, 12 files of 512 MiB on average after, within 15 % of the target."
    assert found.undo is not None
    assert "UNSET" in found.undo


def test_a_size_that_hardly_helps_is_not_advised() -> None:
    (found,) = advise(table_facts(), of(), "hash", trial(SMALL, (900 * MIB, written(*[TARGET // 4] * 58))))

    assert not found.is_change
    assert "No size that was tried is better." in found.evidence


def test_sizes_that_are_right_are_left() -> None:
    (found,) = advise(table_facts(), of(), "hash", trial(written()))

    assert not found.is_change


def test_a_session_that_overrides_the_table_is_to_be_reset_too() -> None:
    first, second = advise(table_facts(), of({ICEBERG_SESSION: "1000"}), "hash", trial(SMALL, (900 * MIB, written())))

    assert first.setting == PROPERTY
    assert (second.sql, second.undo) == (f"RESET `{ICEBERG_SESSION}`", f"SET `{ICEBERG_SESSION}` = `1000`")


def test_without_adaptive_execution_that_comes_first() -> None:
    (found,) = advise(table_facts(), of({"spark.sql.adaptive.enabled": "false"}), "hash", None)

    assert found.sql == "SET spark.sql.adaptive.enabled = true"
    assert "200 tasks" in found.evidence


def test_without_a_shuffle_there_is_no_advisory_size_to_set() -> None:
    (found,) = advise(table_facts(), of(), "none", trial(SMALL))

    assert not found.is_change
    assert "not shuffled" in found.evidence


def test_too_few_data_are_said_with_their_figure() -> None:
    few = written(*[TARGET // 8] * 8, partitions=4, fewest=4)

    (found,) = advise(table_facts(), of(), "hash", trial(few))

    assert "No partition gets more than 128 MiB" in found.evidence


def test_spilling_and_early_rolling_are_named_as_limits() -> None:
    spilled = written(*[int(0.88 * TARGET)] * 14, shuffle=shuffle(24 * TARGET, spilled_bytes=5 * MIB, tasks=14))

    said = " ".join(limits(of(), trial(spilled)))

    assert "Sorting spilled 5 MiB" in said
    assert "88 % of the target" in said
