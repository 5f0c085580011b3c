"""Findings about metadata and writes tell the figures they rest on, and begin exactly at their limits."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import pytest

from icekit import Severity
from icekit.facts.model import Commit, RangeOverlap, Ref, SnapshotStatistics, StatisticsAge, TableFacts
from tests.diagnose.told import named, told
from tests.factories import (
    KIB,
    MIB,
    UNPARTITIONED,
    commit,
    healthy_groups,
    history,
    manifest_facts,
    table_facts,
)

TABLE = "ALTER TABLE `prod`.`db`.`events`"
REWRITE_MANIFESTS = "CALL `prod`.system.rewrite_manifests(table => 'db.events')"


def with_manifests(properties: dict[str, str] | None = None, **overrides: Any) -> TableFacts:
    return table_facts(manifests=manifest_facts(healthy_groups(), **overrides), properties=properties or {})


def test_fragmented_manifests_are_told_with_how_many_would_do() -> None:
    facts = with_manifests(data_count=200, undersized_data_manifest_count=200, data_bytes=12 * MIB)

    # Twelve MiB take two manifests of eight; forty entries lie in two hundred.
    assert told(facts, "fragmented_manifests") == (
        Severity.WARNING,
        (),
        "200 data manifests of 61.4 KiB on average with 0.2 live entries each; 2 of 8 MiB would be enough",
        (REWRITE_MANIFESTS,),
        200,
        12 * MIB,
    )


def test_merging_that_is_turned_off_is_told_and_turned_on() -> None:
    small: dict[str, Any] = {"data_count": 100, "undersized_data_manifest_count": 100, "data_bytes": 800 * KIB}
    on = named(with_manifests(**small), "fragmented_manifests")
    found = named(with_manifests({"commit.manifest-merge.enabled": "false"}, **small), "fragmented_manifests")

    assert on is not None
    assert on.remedy == "Rewrite the manifests; this does not touch data files."
    assert found is not None
    assert found.evidence.endswith("1 of 8 MiB would be enough; merging on commit is turned off")
    assert found.remedy.startswith("Rewrite the manifests; this does not touch data files. Turn merging on again")
    assert found.sql == (REWRITE_MANIFESTS, f"{TABLE} SET TBLPROPERTIES ('commit.manifest-merge.enabled' = 'true')")


def test_manifests_are_fragmented_when_more_than_twice_as_many_as_needed() -> None:
    def some(count: int) -> TableFacts:
        return with_manifests(data_count=count, undersized_data_manifest_count=count, data_bytes=400 * MIB)

    assert named(some(100), "fragmented_manifests") is None
    assert named(some(101), "fragmented_manifests") is not None


def test_overlap_is_told_of_the_field_that_does_best() -> None:
    ranges = (RangeOverlap(0, "carrier", 20, 0.95), RangeOverlap(0, "event_day", 20, 0.9), RangeOverlap(7, "old", 20, 0.0))

    assert told(with_manifests(data_bytes=160 * MIB, overlaps=ranges), "overlapping_manifests") == (
        Severity.WARNING,
        ("carrier", "event_day"),
        "a manifest's range of event_day overlaps 90 % of the other 19 manifests on average; every other partition field is as bad or worse",
        (REWRITE_MANIFESTS,),
        20,
        160 * MIB,
    )


@pytest.mark.parametrize(
    ("data_bytes", "manifests", "share", "is_named"),
    [
        (16 * MIB + 1, 10, 0.5, True),
        (16 * MIB, 10, 0.5, False),
        (16 * MIB + 1, 9, 0.5, False),
        (16 * MIB + 1, 10, 0.49, False),
    ],
)
def test_overlap_begins_at_its_limits(data_bytes: int, manifests: int, share: float, is_named: bool) -> None:
    facts = with_manifests(data_bytes=data_bytes, overlaps=(RangeOverlap(0, "event_day", manifests, share),))

    assert (named(facts, "overlapping_manifests") is not None) is is_named


def hourly(commits: int, **more: object) -> TableFacts:
    return table_facts(history=history(*(commit(n) for n in reversed(range(commits))), **more))


def test_snapshots_are_told_with_their_span_and_what_is_protected() -> None:
    assert told(hourly(100, refs=(Ref("main", "branch", 1),)), "snapshots_piling_up") == (
        Severity.WARNING,
        (),
        "100 snapshots over 4 days; 1 branch or tag protected",
        ("CALL `prod`.system.expire_snapshots(table => 'db.events', retain_last => 10)",),
        100,
        0,
    )
    assert "; 0 branches and tags protected" in told(hourly(100), "snapshots_piling_up")[2]
    assert named(hourly(100, oldest_snapshot_ms=None), "snapshots_piling_up") is None


def test_the_remedy_says_where_no_snapshot_is_old_enough_to_go() -> None:
    # The limit is five days; 120 hourly snapshots span 119 hours.
    younger, older = named(hourly(120), "snapshots_piling_up"), named(hourly(121), "snapshots_piling_up")
    shared = named(
        dataclasses.replace(hourly(120), settings=table_facts(properties={"gc.enabled": "false"}).settings), "snapshots_piling_up"
    )

    assert younger is not None
    assert younger.remedy.startswith("Expire snapshots older than the table's limit of 5 days and keep the last 10.")
    assert "No snapshot has reached that age" in younger.remedy
    assert older is not None
    assert "None is" not in older.remedy
    assert shared is not None
    assert shared.remedy.startswith("The table has gc.enabled=false")


def test_a_full_metadata_log_is_told_with_both_halves_of_its_cure() -> None:
    assert told(table_facts(history=history(metadata_log_count=100)), "metadata_files_piling_up") == (
        Severity.INFO,
        (),
        "the metadata log holds 100 files, and write.metadata.delete-after-commit.enabled is false",
        (
            f"{TABLE} SET TBLPROPERTIES ('write.metadata.delete-after-commit.enabled' = 'true')",
            "CALL `prod`.system.remove_orphan_files(table => 'db.events', dry_run => true, prefix_listing => true)",
        ),
        100,
        0,
    )


def appended(files: int = 12, partitions: int | None = 3, mean: int = MIB, **more: object) -> Commit:
    return commit(0, **{"added_data_files": files, "changed_partitions": partitions, "added_bytes": files * mean, **more})


def test_scattered_writes_are_told_by_their_medians() -> None:
    facts = table_facts(history=history(*[appended()] * 20), properties={"write.distribution-mode": "none"})

    assert told(facts, "distribution_mode") == (
        Severity.WARNING,
        (),
        "the last 20 appends wrote 4.0 files per partition touched (median), 1 MiB each, "
        "under distribution mode none (table property write.distribution-mode)",
        (f"{TABLE} SET TBLPROPERTIES ('write.distribution-mode' = 'hash')",),
        240,
        240 * MIB,
    )
    unpartitioned = table_facts(history=history(*[appended()] * 20), specs=(UNPARTITIONED,))
    assert named(unpartitioned, "distribution_mode") is None


def test_scattered_writes_are_half_of_the_appends_that_say_enough() -> None:
    well = [appended(3, 3)] * 10
    silent = [appended(partitions=None), appended(added_bytes=None), appended(added_data_files=None), appended(operation="overwrite")]

    assert named(table_facts(history=history(*well, *[appended()] * 10)), "distribution_mode") is not None
    assert named(table_facts(history=history(*well, *[appended()] * 9)), "distribution_mode") is None
    assert named(table_facts(history=history(*silent)), "distribution_mode") is None
    # Three partitions and one file of the target explain four files, and twice as many are allowed.
    assert named(table_facts(history=history(*[appended(8, 3, 64 * MIB)] * 20)), "distribution_mode") is None
    assert named(table_facts(history=history(*[appended(9, 3, 50 * MIB)] * 20)), "distribution_mode") is not None


def statistics(changed: int, kind: Literal["table", "partition"] = "table", **more: Any) -> StatisticsAge:
    """Statistics of snapshot 7, of 1,000 records and three commits ago."""
    made: dict[str, Any] = {"snapshot_id": 7, "commit_count": 3, "record_count": 1_000}
    return StatisticsAge(SnapshotStatistics(kind), changed_count=changed, **{**made, **more})


def test_statistics_are_stale_beyond_a_fifth_of_the_records_that_they_are_of() -> None:
    assert told(table_facts(statistics=(statistics(201),)), "stale_statistics") == (
        Severity.INFO,
        ("7",),
        "table statistics are of snapshot 7, 3 commits ago: it had 1,000 records, and 201 were added or deleted since",
        ("CALL `prod`.system.compute_table_stats(table => 'db.events')",),
        0,
        0,
    )


@pytest.mark.parametrize("age", [statistics(200), statistics(0, commit_count=0, record_count=0), statistics(10**6, record_count=None)])
def test_statistics_that_hold_or_whose_age_is_not_known_are_no_finding(age: StatisticsAge) -> None:
    assert named(table_facts(statistics=(age,)), "stale_statistics") is None


def test_partition_statistics_are_computed_again_by_their_own_procedure() -> None:
    finding = named(table_facts(statistics=(statistics(900, "partition"),)), "stale_statistics")

    assert finding is not None
    assert finding.sql == ("CALL `prod`.system.compute_partition_stats(table => 'db.events')",)
