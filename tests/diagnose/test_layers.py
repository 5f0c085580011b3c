"""Findings about metadata and writes tell the figures they rest on, and begin exactly at their
limits.
"""

import dataclasses
from typing import Any, Literal

import pytest

from icekit import Severity, Thresholds, diagnose
from icekit.diagnose import SYMPTOMS
from icekit.diagnose.findings import Finding, Findings
from icekit.errors import ParameterError
from icekit.facts.manifest_counts import RangeOverlap
from icekit.facts.model import TableFacts
from icekit.facts.snapshots import Commit, Ref, SnapshotStatistics, StatisticsAge
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
    return table_facts(
        manifests=manifest_facts(healthy_groups(), **overrides), properties=properties or {}
    )


def fragments(
    count: int,
    data_bytes: int,
    properties: dict[str, str] | None = None,
    *,
    small: int | None = None,
) -> TableFacts:
    """So many manifests, all of them small unless their number is given."""
    return with_manifests(
        properties,
        data_count=count,
        undersized_data_manifest_count=small or count,
        data_bytes=data_bytes,
    )


def test_fragmented_manifests_are_told_with_how_many_would_do(golden: Golden) -> None:
    # Twelve MiB take two manifests of eight; forty entries lie in two hundred.
    shows(golden, "fragmented_manifests", fragments(200, 12 * MIB))


def test_merging_that_is_turned_off_is_told_and_turned_on() -> None:
    off = {"commit.manifest-merge.enabled": "false"}
    found = required(fragments(100, 800 * KIB, off), "fragmented_manifests")
    plain = required(fragments(100, 800 * KIB), "fragmented_manifests").remedy

    assert plain == "Rewrite the manifests; this does not touch data files."
    assert found.evidence.endswith("1 of 8 MiB would be enough; merging on commit is turned off")
    assert found.remedy.startswith(f"{plain} Turn merging on again")
    assert found.sql == (
        REWRITE_MANIFESTS,
        f"{TABLE} SET TBLPROPERTIES ('commit.manifest-merge.enabled' = 'true')",
    )


def test_manifests_are_fragmented_from_a_hundred_small_ones_and_more_than_twice_as_many_as_needed() -> (
    None
):
    present("fragmented_manifests", fragments(101, 400 * MIB), fragments(100, 100 * 8 * KIB))
    large = fragments(5000, 5000 * 8 * MIB, small=150)
    absent("fragmented_manifests", fragments(100, 400 * MIB), fragments(99, 99 * 8 * KIB), large)


def test_overlap_is_told_of_the_field_that_does_best(golden: Golden) -> None:
    ranges = (
        RangeOverlap(0, "carrier", 20, 0.95),
        RangeOverlap(0, "event_day", 20, 0.9),
        RangeOverlap(7, "old", 20, 0.0),
    )

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
def test_overlap_begins_at_its_limits(
    data_bytes: int, manifests: int, share: float, is_named: bool
) -> None:
    facts = with_manifests(
        data_bytes=data_bytes, overlaps=(RangeOverlap(0, "event_day", manifests, share),)
    )

    assert (named(facts, "overlapping_manifests") is not None) is is_named


def hourly(commits: int, **more: object) -> TableFacts:
    return table_facts(history=history(*(commit(n) for n in reversed(range(commits))), **more))


def test_snapshots_are_told_with_their_span_and_what_is_protected(golden: Golden) -> None:
    shows(golden, "snapshots_piling_up", hourly(100, refs=(Ref("main", "branch", 1),)))
    absent("snapshots_piling_up", hourly(99))
    assert "; 0 branches and tags protected" in told(hourly(100), "snapshots_piling_up")[2]
    absent("snapshots_piling_up", hourly(100, oldest_snapshot_ms=None))


def test_a_full_metadata_log_is_told_with_both_halves_of_its_cure_unless_commits_delete_what_they_drop(
    golden: Golden,
) -> None:
    name, log = "metadata_files_piling_up", "write.metadata"
    full = table_facts(history=history(metadata_log_count=100))
    deleted = {f"{log}.delete-after-commit.enabled": "true"}
    short = {f"{log}.previous-versions-max": "20"}

    shows(golden, name, full)
    absent(name, table_facts(history=full.history, properties=deleted))
    present(name, table_facts(history=history(metadata_log_count=20), properties=short))


def appended(
    files: int = 12, partitions: int | None = 3, mean: int = MIB, **more: object
) -> Commit:
    return commit(
        0,
        **{
            "added_data_files": files,
            "changed_partitions": partitions,
            "added_bytes": files * mean,
            **more,
        },
    )


def test_scattered_writes_are_told_by_their_medians(golden: Golden) -> None:
    facts = table_facts(
        history=history(*[appended()] * 20), properties={"write.distribution-mode": "none"}
    )

    shows(golden, "distribution_mode", facts)
    hashed = required(
        dataclasses.replace(table_facts(), history=facts.history), "distribution_mode"
    )
    assert hashed.sql == ()
    unpartitioned = table_facts(history=history(*[appended()] * 20), specs=(UNPARTITIONED,))
    absent("distribution_mode", unpartitioned)


def test_scattered_writes_are_half_of_the_appends_that_say_enough() -> None:
    well = [appended(3, 3)] * 10
    silent = [
        appended(partitions=None),
        appended(added_bytes=None),
        appended(added_data_files=None),
        appended(operation="overwrite"),
    ]

    present("distribution_mode", table_facts(history=history(*well, *[appended()] * 10)))
    absent(
        "distribution_mode",
        table_facts(history=history(*well, *[appended()] * 9)),
        table_facts(history=history(*silent)),
    )
    # Three partitions and one file of the target explain four files, and twice as many are allowed.
    absent("distribution_mode", table_facts(history=history(*[appended(8, 3, 64 * MIB)] * 20)))
    present("distribution_mode", table_facts(history=history(*[appended(9, 3, 50 * MIB)] * 20)))


def statistics(
    changed: int, kind: Literal["table", "partition"] = "table", **more: Any
) -> StatisticsAge:
    """Statistics of snapshot 7, of 1,000 records and three commits ago."""
    made: dict[str, Any] = {"snapshot_id": 7, "commit_count": 3, "record_count": 1_000}
    return StatisticsAge(SnapshotStatistics(kind), changed_count=changed, **{**made, **more})


def test_statistics_are_stale_beyond_a_fifth_of_the_records_that_they_are_of(
    golden: Golden,
) -> None:
    shows(golden, "stale_statistics", table_facts(statistics=(statistics(201),)))


@pytest.mark.parametrize(
    "age",
    [
        statistics(200),
        statistics(0, commit_count=0, record_count=0),
        statistics(10**6, record_count=None),
    ],
)
def test_statistics_that_hold_or_whose_age_is_not_known_are_no_finding(age: StatisticsAge) -> None:
    absent("stale_statistics", table_facts(statistics=(age,)))


def test_partition_statistics_are_computed_again_by_their_own_procedure() -> None:
    finding = required(table_facts(statistics=(statistics(900, "partition"),)), "stale_statistics")

    assert finding.sql == ("CALL `prod`.system.compute_partition_stats(table => 'db.events')",)


def test_an_expiry_that_would_remove_no_snapshot_is_no_remedy() -> None:
    every = [commit(n) for n in reversed(range(100))]
    none, some = (
        required(table_facts(history=history(*every, expirable_count=n)), "snapshots_piling_up")
        for n in (0, 7)
    )

    assert none.sql == ()
    assert len(some.sql) == 1
    assert "every branch keeps its own" in none.remedy
    assert some.evidence.endswith("; 7 would expire now")


@pytest.mark.parametrize(
    ("data_bytes", "log", "names"),
    [
        (MIB, 100, ["fragmented_manifests", "snapshots_piling_up", "metadata_files_piling_up"]),
        # Of equal bytes the one with more files.
        (0, 0, ["snapshots_piling_up", "fragmented_manifests"]),
    ],
)
def test_findings_come_most_serious_first_and_then_by_what_is_at_stake(
    data_bytes: int, log: int, names: list[str]
) -> None:
    past = history(snapshot_count=500, metadata_log_count=log)

    assert [
        f.name for f in diagnose(dataclasses.replace(fragments(200, data_bytes), history=past))
    ] == names


def test_the_worst_severity_of_findings_is_none_without_any() -> None:
    assert Findings(()).worst is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"min_file_size_rati": 0.5}, "did you mean min_file_size_ratio"),
        ({"snapshots": "many"}, "must be a whole number"),
        ({"snapshots": 1.5}, "must be a whole number"),
        ({"delete_ratio": -1}, "0 or more"),
        ({"delete_ratio": True}, "must be a number"),
        ({"delete_ratio": float("inf")}, "must be a number"),
        (
            {"qqqq": 1},
            r"no threshold 'qqqq'; use one of min_file_size_ratio, "
            r"max_file_size_ratio, .*, vectors_rewritten\.$",
        ),
        (
            {"max_file_size_ratio": 1},
            "^min_file_size_ratio must be 1 or less and max_file_size_ratio more than 1",
        ),
        (
            {"min_file_size_ratio": 1.01},
            "^min_file_size_ratio must be 1 or less and max_file_size_ratio more than 1",
        ),
    ],
)
def test_a_threshold_that_is_unknown_or_senseless_is_refused(
    changes: dict[str, object], said: str
) -> None:
    with pytest.raises(ParameterError, match=said):
        Thresholds().with_changes(**changes)


def test_a_threshold_may_lie_on_its_limit() -> None:
    changed = Thresholds().with_changes(delete_ratio=0, min_file_size_ratio=1, snapshots=7.0)

    assert changed.delete_ratio == 0.0
    assert changed.min_file_size_ratio == 1.0
    assert repr(changed.snapshots) == "7"
    assert changed.size_ratios == (1.0, 1.8)


def test_every_finding_has_a_golden_file() -> None:
    assert {
        path.stem.partition("-")[0] for path in FOLDER.glob("diagnose/*.yaml")
    } == SYMPTOMS.keys()


def test_findings_are_read_a_line_each() -> None:
    several = Findings(
        [
            finding(severity=Severity.CRITICAL, evidence="bad"),
            finding("skewed_partitions", Severity.INFO, evidence="odd"),
        ]
    )

    assert several.worst is Severity.CRITICAL
    assert repr(several) == "critical small_files: bad\ninfo     skewed_partitions: odd"
    assert several.names == {"small_files", "skewed_partitions"}
    assert repr(Findings()) == "Nothing to do: no finding at these thresholds."


def test_the_remedy_keeps_as_many_snapshots_as_the_owner_wants_and_none_is_expired_where_files_are_shared() -> (
    None
):
    def of(key: str, value: str) -> Finding:
        return required(
            table_facts(history=hourly(100).history, properties={key: value}), "snapshots_piling_up"
        )

    shared = of("gc.enabled", "false")
    assert "retain_last => 500" in of("history.expire.min-snapshots-to-keep", "500").sql[0]
    assert shared.sql == ()
    assert shared.remedy.startswith("The table has gc.enabled=false")


@pytest.mark.parametrize(
    ("limits", "options"),
    [
        (Thresholds(min_input_files=2), "'min-input-files', '2'"),
        # Half of 512 MiB, and twice as much.
        (
            Thresholds(min_file_size_ratio=0.5, max_file_size_ratio=2.0),
            "'min-file-size-bytes', '268435456', 'max-file-size-bytes', '1073741824'",
        ),
    ],
)
def test_a_rewrite_carries_the_limits_that_were_changed(limits: Thresholds, options: str) -> None:
    facts = table_facts(groups=(file_group(*[MIB] * 5, ratios=limits.size_ratios),))

    assert required(facts, "small_files", thresholds=limits).sql == (
        "CALL `prod`.system.rewrite_data_files(table => 'db.events', options => map("
        f"'partial-progress.enabled', 'true', {options}, 'use-starting-sequence-number', 'false'))",
    )
