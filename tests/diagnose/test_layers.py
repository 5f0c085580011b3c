"""Findings about metadata and writes tell the figures they rest on, and begin exactly at their limits."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import pytest

from icekit import Severity, Thresholds, diagnose
from icekit.diagnose import SYMPTOMS
from icekit.diagnose.findings import Findings
from icekit.errors import ParameterError
from icekit.facts.model import Commit, RangeOverlap, Ref, SnapshotStatistics, StatisticsAge, TableFacts
from tests.diagnose.told import absent, named, present, required, shows, told
from tests.factories import (
    KIB,
    MIB,
    UNPARTITIONED,
    commit,
    file_group,
    finding,
    healthy_groups,
    history,
    manifest_facts,
    table_facts,
)
from tests.golden import FOLDER, Golden

TABLE = "ALTER TABLE `prod`.`db`.`events`"
REWRITE_MANIFESTS = "CALL `prod`.system.rewrite_manifests(table => 'db.events')"


def with_manifests(properties: dict[str, str] | None = None, **overrides: Any) -> TableFacts:
    return table_facts(manifests=manifest_facts(healthy_groups(), **overrides), properties=properties or {})


def test_fragmented_manifests_are_told_with_how_many_would_do(golden: Golden) -> None:
    facts = with_manifests(data_count=200, undersized_data_manifest_count=200, data_bytes=12 * MIB)

    # Twelve MiB take two manifests of eight; forty entries lie in two hundred.
    shows(golden, "fragmented_manifests", facts)


def test_merging_that_is_turned_off_is_told_and_turned_on() -> None:
    small: dict[str, Any] = {"data_count": 100, "undersized_data_manifest_count": 100, "data_bytes": 800 * KIB}
    on = required(with_manifests(**small), "fragmented_manifests")
    found = required(with_manifests({"commit.manifest-merge.enabled": "false"}, **small), "fragmented_manifests")

    assert on.remedy == "Rewrite the manifests; this does not touch data files."
    assert found.evidence.endswith("1 of 8 MiB would be enough; merging on commit is turned off")
    assert found.remedy.startswith("Rewrite the manifests; this does not touch data files. Turn merging on again")
    assert found.sql == (REWRITE_MANIFESTS, f"{TABLE} SET TBLPROPERTIES ('commit.manifest-merge.enabled' = 'true')")


def test_manifests_are_fragmented_when_more_than_twice_as_many_as_needed() -> None:
    def some(count: int) -> TableFacts:
        return with_manifests(data_count=count, undersized_data_manifest_count=count, data_bytes=400 * MIB)

    absent("fragmented_manifests", some(100))
    present("fragmented_manifests", some(101))


def test_overlap_is_told_of_the_field_that_does_best(golden: Golden) -> None:
    ranges = (RangeOverlap(0, "carrier", 20, 0.95), RangeOverlap(0, "event_day", 20, 0.9), RangeOverlap(7, "old", 20, 0.0))

    shows(golden, "overlapping_manifests", with_manifests(data_bytes=160 * MIB, overlaps=ranges))
    apart = (*ranges, RangeOverlap(0, "amount", 20, 0.1))
    absent("overlapping_manifests", with_manifests(data_bytes=160 * MIB, overlaps=apart))


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


def test_snapshots_are_told_with_their_span_and_what_is_protected(golden: Golden) -> None:
    shows(golden, "snapshots_piling_up", hourly(100, refs=(Ref("main", "branch", 1),)))
    absent("snapshots_piling_up", hourly(99))
    assert "; 0 branches and tags protected" in told(hourly(100), "snapshots_piling_up")[2]
    absent("snapshots_piling_up", hourly(100, oldest_snapshot_ms=None))


def test_the_remedy_says_where_no_snapshot_is_old_enough_to_go() -> None:
    # The limit is five days; 120 hourly snapshots span 119 hours.
    younger, older = required(hourly(120), "snapshots_piling_up"), required(hourly(121), "snapshots_piling_up")
    shared = required(
        dataclasses.replace(hourly(120), settings=table_facts(properties={"gc.enabled": "false"}).settings), "snapshots_piling_up"
    )

    assert younger.remedy.startswith("Expire snapshots older than the table's limit of 5 days and keep the last 10.")
    assert "No snapshot has reached that age" in younger.remedy
    assert "None is" not in older.remedy
    assert shared.remedy.startswith("The table has gc.enabled=false")


def test_a_full_metadata_log_is_told_with_both_halves_of_its_cure(golden: Golden) -> None:
    shows(golden, "metadata_files_piling_up", table_facts(history=history(metadata_log_count=100)))


def appended(files: int = 12, partitions: int | None = 3, mean: int = MIB, **more: object) -> Commit:
    return commit(0, **{"added_data_files": files, "changed_partitions": partitions, "added_bytes": files * mean, **more})


def test_scattered_writes_are_told_by_their_medians(golden: Golden) -> None:
    facts = table_facts(history=history(*[appended()] * 20), properties={"write.distribution-mode": "none"})

    shows(golden, "distribution_mode", facts)
    hashed = required(dataclasses.replace(table_facts(), history=facts.history), "distribution_mode")
    assert hashed.sql == ()
    unpartitioned = table_facts(history=history(*[appended()] * 20), specs=(UNPARTITIONED,))
    absent("distribution_mode", unpartitioned)


def test_scattered_writes_are_half_of_the_appends_that_say_enough() -> None:
    well = [appended(3, 3)] * 10
    silent = [appended(partitions=None), appended(added_bytes=None), appended(added_data_files=None), appended(operation="overwrite")]

    present("distribution_mode", table_facts(history=history(*well, *[appended()] * 10)))
    absent("distribution_mode", table_facts(history=history(*well, *[appended()] * 9)), table_facts(history=history(*silent)))
    # Three partitions and one file of the target explain four files, and twice as many are allowed.
    absent("distribution_mode", table_facts(history=history(*[appended(8, 3, 64 * MIB)] * 20)))
    present("distribution_mode", table_facts(history=history(*[appended(9, 3, 50 * MIB)] * 20)))


def statistics(changed: int, kind: Literal["table", "partition"] = "table", **more: Any) -> StatisticsAge:
    """Statistics of snapshot 7, of 1,000 records and three commits ago."""
    made: dict[str, Any] = {"snapshot_id": 7, "commit_count": 3, "record_count": 1_000}
    return StatisticsAge(SnapshotStatistics(kind), changed_count=changed, **{**made, **more})


def test_statistics_are_stale_beyond_a_fifth_of_the_records_that_they_are_of(golden: Golden) -> None:
    shows(golden, "stale_statistics", table_facts(statistics=(statistics(201),)))


@pytest.mark.parametrize("age", [statistics(200), statistics(0, commit_count=0, record_count=0), statistics(10**6, record_count=None)])
def test_statistics_that_hold_or_whose_age_is_not_known_are_no_finding(age: StatisticsAge) -> None:
    absent("stale_statistics", table_facts(statistics=(age,)))


def test_partition_statistics_are_computed_again_by_their_own_procedure() -> None:
    finding = required(table_facts(statistics=(statistics(900, "partition"),)), "stale_statistics")

    assert finding.sql == ("CALL `prod`.system.compute_partition_stats(table => 'db.events')",)


def test_a_hundred_small_manifests_that_fit_into_one_are_fragmented() -> None:
    present("fragmented_manifests", with_manifests(data_count=100, undersized_data_manifest_count=100, data_bytes=100 * 8 * KIB))
    absent("fragmented_manifests", with_manifests(data_count=99, undersized_data_manifest_count=99, data_bytes=99 * 8 * KIB))


def test_many_manifests_of_a_large_table_are_not_fragmented() -> None:
    absent("fragmented_manifests", with_manifests(data_count=5000, undersized_data_manifest_count=150, data_bytes=5000 * 8 * MIB))


def test_an_expiry_that_would_remove_no_snapshot_is_no_remedy() -> None:
    every = [commit(n) for n in reversed(range(100))]
    none, some = (required(table_facts(history=history(*every, expirable_count=n)), "snapshots_piling_up") for n in (0, 7))

    assert (none.sql, len(some.sql)) == ((), 1)
    assert "every branch keeps its own" in none.remedy
    assert some.evidence.endswith("; 7 would expire now")


def test_a_full_metadata_log_is_named_unless_commits_delete_what_they_drop() -> None:
    full = history(metadata_log_count=100)

    present("metadata_files_piling_up", table_facts(history=full))
    absent("metadata_files_piling_up", table_facts(history=full, properties={"write.metadata.delete-after-commit.enabled": "true"}))
    assert named(
        table_facts(history=history(metadata_log_count=20), properties={"write.metadata.previous-versions-max": "20"}),
        "metadata_files_piling_up",
    )


def test_findings_come_most_serious_first_and_then_by_what_is_at_stake() -> None:
    facts = dataclasses.replace(
        with_manifests(data_count=200, undersized_data_manifest_count=200, data_bytes=MIB),
        history=history(snapshot_count=500, metadata_log_count=100),
    )

    assert [f.name for f in diagnose(facts)] == ["fragmented_manifests", "snapshots_piling_up", "metadata_files_piling_up"]


def test_of_equal_bytes_the_finding_with_more_files_comes_first() -> None:
    facts = dataclasses.replace(
        with_manifests(data_count=200, undersized_data_manifest_count=200, data_bytes=0),
        history=history(snapshot_count=500, metadata_log_count=0),
    )

    assert [(f.name, f.files_at_stake) for f in diagnose(facts)] == [("snapshots_piling_up", 500), ("fragmented_manifests", 200)]


def test_the_worst_severity_of_findings_is_none_without_any() -> None:
    assert Findings(()).worst is None
    assert Findings([finding(severity=Severity.INFO), finding(severity=Severity.CRITICAL)]).worst is Severity.CRITICAL


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"min_file_size_rati": 0.5}, "did you mean min_file_size_ratio"),
        ({"snapshots": "many"}, "must be a whole number"),
        ({"snapshots": 1.5}, "must be a whole number"),
        ({"delete_ratio": -1}, "0 or more"),
        ({"delete_ratio": True}, "must be a number"),
        ({"delete_ratio": float("inf")}, "must be a number"),
        ({"qqqq": 1}, r"no threshold 'qqqq'; known thresholds: min_file_size_ratio, max_file_size_ratio, .*, vectors_rewritten\.$"),
        ({"max_file_size_ratio": 1}, "^min_file_size_ratio must be 1 or less and max_file_size_ratio more than 1"),
        ({"min_file_size_ratio": 1.01}, "^min_file_size_ratio must be 1 or less and max_file_size_ratio more than 1"),
    ],
)
def test_a_threshold_that_is_unknown_or_senseless_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        Thresholds().with_changes(**changes)


def test_a_threshold_may_lie_on_its_limit() -> None:
    changed = Thresholds().with_changes(delete_ratio=0, min_file_size_ratio=1, snapshots=7.0)

    assert (changed.delete_ratio, changed.min_file_size_ratio, repr(changed.snapshots)) == (0.0, 1.0, "7")
    assert changed.size_ratios == (1.0, 1.8)


def test_every_finding_has_a_golden_file() -> None:
    assert {path.stem.partition("-")[0] for path in FOLDER.glob("diagnose/*.yaml")} == SYMPTOMS.keys()


def test_findings_are_read_a_line_each() -> None:
    several = Findings([finding(severity=Severity.CRITICAL, evidence="bad"), finding("skewed_partitions", Severity.INFO, evidence="odd")])

    assert repr(several) == "critical small_files: bad\ninfo     skewed_partitions: odd"
    assert several.names == {"small_files", "skewed_partitions"}
    assert repr(Findings()) == "Nothing to do: no finding at these thresholds."


def test_the_remedy_keeps_as_many_snapshots_as_the_owner_wants_and_none_is_expired_where_files_are_shared() -> None:
    pile = history(*[commit(n) for n in reversed(range(100))])
    kept = required(table_facts(history=pile, properties={"history.expire.min-snapshots-to-keep": "500"}), "snapshots_piling_up")
    shared = required(table_facts(history=pile, properties={"gc.enabled": "false"}), "snapshots_piling_up")

    assert "retain_last => 500" in kept.sql[0]
    assert shared.sql == ()


def test_a_rewrite_carries_the_limits_that_were_changed() -> None:
    limits = Thresholds().with_changes(min_input_files=2)
    facts = table_facts(groups=(file_group(MIB, MIB),))
    finding = required(facts, "small_files", thresholds=limits)

    assert finding.sql == (
        "CALL `prod`.system.rewrite_data_files(table => 'db.events', options => map('partial-progress.enabled', 'true', 'min-input-files', '2', 'use-starting-sequence-number', 'false'))",
    )


def test_changed_ratios_reach_a_rewrite_in_bytes() -> None:
    limits = Thresholds().with_changes(min_file_size_ratio=0.5, max_file_size_ratio=2.0)
    facts = table_facts(groups=(file_group(*[MIB] * 5, ratios=limits.size_ratios),))
    finding = required(facts, "small_files", thresholds=limits)

    # Half of 512 MiB, and twice as much.
    assert finding.sql[0].endswith(
        "options => map('partial-progress.enabled', 'true', 'min-file-size-bytes', '268435456', 'max-file-size-bytes', '1073741824', 'use-starting-sequence-number', 'false'))"
    )
