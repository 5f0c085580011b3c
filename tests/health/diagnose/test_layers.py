"""Findings about metadata begin exactly at their limits; how findings are ordered, limited and
written.
"""

import dataclasses
from typing import Any, Literal

import pytest

from icekit import Severity, Thresholds, diagnose
from icekit.common.errors import ParameterError
from icekit.health.diagnose.findings import Findings
from icekit.health.facts.model import TableFacts
from icekit.health.facts.storage_use import OldSnapshotBytes, RefBytes, StorageUse
from icekit.iceberg.manifest_counts import RangeOverlap
from icekit.iceberg.snapshots import (
    Commit,
    Ref,
    SnapshotStatistics,
    StagedWrite,
    StatisticsAge,
    WriterState,
)
from tests.factories import (
    HOUR_MS,
    KIB,
    MIB,
    NOW_MS,
    UNPARTITIONED,
    commit,
    file_group,
    finding,
    healthy_groups,
    history,
    manifest_facts,
    table_facts,
)
from tests.health.diagnose.told import Borders, required

#: The best clustered field decides; fields of another spec do not count.
RANGES = (
    RangeOverlap(0, "carrier", 20, 0.95),
    RangeOverlap(0, "event_day", 20, 0.9),
    RangeOverlap(7, "old", 20, 0.0),
)


def fragments(count: int, data_bytes: int, small: int | None = None, **more: Any) -> TableFacts:
    """So many manifests, all of them small unless their number is given."""
    manifests = manifest_facts(
        healthy_groups(),
        data_count=count,
        undersized_count=small or count,
        data_bytes=data_bytes,
    )
    return table_facts(manifests=manifests, **more)


def overlapping(*overlaps: RangeOverlap, data_bytes: int = 16 * MIB + 1) -> TableFacts:
    return table_facts(
        manifests=manifest_facts(healthy_groups(), data_bytes=data_bytes, overlaps=overlaps)
    )


def hourly(commits: int, properties: dict[str, str] | None = None, **more: object) -> TableFacts:
    past = history(*(commit(n) for n in reversed(range(commits))), **more)
    return table_facts(history=past, properties=properties or {})


def metadata_log(count: int, **properties: str) -> TableFacts:
    given = {f"write.metadata.{name.replace('_', '-')}": v for name, v in properties.items()}
    return table_facts(history=history(metadata_log_count=count), properties=given)


def appended(
    files: int = 12, partitions: int | None = 3, mean: int = MIB, **more: object
) -> Commit:
    counts = {"added_data_files": files, "changed_partitions": partitions}
    return commit(0, **{**counts, "added_bytes": files * mean, **more})


def scattered(*commits: Commit, **more: object) -> TableFacts:
    return table_facts(history=history(*commits), **more)


def statistics(
    changed: int, kind: Literal["table", "partition"] = "table", **more: Any
) -> TableFacts:
    """Statistics of snapshot 7, of 1,000 records and three commits ago."""
    made: dict[str, Any] = {"snapshot_id": 7, "commit_count": 3, "record_count": 1_000}
    age = StatisticsAge(SnapshotStatistics(kind), changed_count=changed, **{**made, **more})
    return table_facts(statistics=(age,))


def old_files(old_bytes: int, *refs: RefBytes, **more: Any) -> TableFacts:
    """A table whose storage has 1,000 MiB, of which only older snapshots hold so many bytes."""
    use = StorageUse(
        live_rows=1000 * MIB - old_bytes, old_snapshots=OldSnapshotBytes(data=old_bytes, refs=refs)
    )
    return table_facts(storage_use=use, **more)


STAGED = StagedWrite("audit-1", 7, NOW_MS - 23 * 24 * HOUR_MS, 50)
FLINK = WriterState("Flink", "job 7f1c", ("7f1c",), "checkpoint 41", ("main",), 7, NOW_MS, 0)

BORDERS: Borders = {
    # A hundred small ones, and more than twice as many as needed.
    "fragmented_manifests": (
        [fragments(101, 400 * MIB), fragments(100, 100 * 8 * KIB)],
        [
            fragments(100, 400 * MIB),
            fragments(99, 99 * 8 * KIB),
            fragments(5000, 5000 * 8 * MIB, small=150),
        ],
    ),
    # More than two manifests' bytes, ten manifests, half of the others.
    "overlapping_manifests": (
        [overlapping(RangeOverlap(0, "event_day", 10, 0.5))],
        [
            overlapping(RangeOverlap(0, "event_day", 10, 0.5), data_bytes=16 * MIB),
            overlapping(RangeOverlap(0, "event_day", 9, 0.5)),
            overlapping(RangeOverlap(0, "event_day", 10, 0.49)),
            overlapping(*RANGES, RangeOverlap(0, "amount", 20, 0.1)),
        ],
    ),
    "old_snapshots": (
        [old_files(250 * MIB)],
        [old_files(249 * MIB), table_facts(), table_facts(storage_use=StorageUse())],
    ),
    "snapshots_piling_up": ([hourly(100)], [hourly(99), hourly(100, oldest_snapshot_ms=None)]),
    "staged_writes": (
        [table_facts(history=history(staged=(STAGED,)))],
        [table_facts(history=history()), table_facts(history=history(staged=(STAGED,)), ref="b")],
    ),
    "metadata_files_piling_up": (
        [metadata_log(100), metadata_log(20, previous_versions_max="20")],
        [metadata_log(99), metadata_log(100, **{"delete-after-commit.enabled": "true"})],
    ),
    # Half of the appends that say enough. Three partitions and one file of the target explain four
    # files, and twice as many are allowed.
    "distribution_mode": (
        [
            scattered(*[appended(3, 3)] * 10, *[appended()] * 10),
            scattered(*[appended(9, 3, 50 * MIB)] * 20),
        ],
        [
            scattered(*[appended(3, 3)] * 10, *[appended()] * 9),
            scattered(*[appended(8, 3, 64 * MIB)] * 20),
            scattered(
                appended(partitions=None),
                appended(added_bytes=None),
                appended(added_data_files=None),
                appended(operation="overwrite"),
            ),
            scattered(*[appended()] * 20, specs=(UNPARTITIONED,)),
        ],
    ),
    # Beyond a fifth of the records that they are of, where their age is known.
    "stale_statistics": (
        [statistics(201)],
        [
            statistics(200),
            statistics(0, commit_count=0, record_count=0),
            statistics(10**6, record_count=None),
        ],
    ),
}


SHOWN = {
    # Twelve MiB take two manifests of eight; forty entries lie in two hundred.
    "fragmented_manifests": fragments(200, 12 * MIB),
    "fragmented_manifests that no commit merges": fragments(
        100, 800 * KIB, properties={"commit.manifest-merge.enabled": "false"}
    ),
    "overlapping_manifests": overlapping(*RANGES, data_bytes=160 * MIB),
    "old_snapshots": old_files(400 * MIB, history=history(expirable_count=3)),
    "old_snapshots that a tag holds": old_files(
        400 * MIB,
        RefBytes("audit-2023", "tag", 390 * MIB, 390 * MIB),
        history=history(expirable_count=0),
    ),
    "snapshots_piling_up": hourly(100, refs=(Ref("main", "branch", 1),)),
    "snapshots_piling_up of which an owner keeps many": hourly(
        100, {"history.expire.min-snapshots-to-keep": "500"}, expirable_count=7
    ),
    "snapshots_piling_up of shared files": hourly(100, {"gc.enabled": "false"}, expirable_count=7),
    "snapshots_piling_up of which none would expire": hourly(100, expirable_count=0),
    "snapshots_piling_up that writers need": hourly(
        100, expirable_count=7, writers=(FLINK,), staged=(STAGED,)
    ),
    "staged_writes": table_facts(history=history(staged=(STAGED,) * 7)),
    "metadata_files_piling_up": metadata_log(100),
    "distribution_mode": scattered(
        *[appended()] * 20, properties={"write.distribution-mode": "none"}
    ),
    "distribution_mode of rows that are distributed": scattered(*[appended()] * 20),
    "stale_statistics": statistics(201),
    "stale_statistics of partitions": statistics(900, "partition"),
}


def test_findings_come_most_serious_first_and_then_in_the_order_of_their_checks() -> None:
    past = history(snapshot_count=500, metadata_log_count=100)
    facts = dataclasses.replace(fragments(200, MIB), history=past)

    assert [f.name for f in diagnose(facts)] == [
        "fragmented_manifests",
        "snapshots_piling_up",
        "metadata_files_piling_up",
    ]


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
            r"no threshold 'qqqq'; use one of min_file_size_ratio, .*, vectors_rewritten\.$",
        ),
        ({"max_file_size_ratio": 1}, "max_file_size_ratio more than 1: they are limits around"),
        ({"min_file_size_ratio": 1.01}, "^min_file_size_ratio must be 1 or less"),
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
    assert Findings().worst is None
    assert repr(Findings()) == "Nothing to do: no finding at these thresholds."


def test_a_rewrite_carries_the_limits_that_were_changed() -> None:
    limits = Thresholds(min_input_files=2, min_file_size_ratio=0.5, max_file_size_ratio=2.0)
    facts = table_facts(groups=(file_group(*[MIB] * 5, ratios=limits.size_ratios),))

    # Half of 512 MiB, and twice as much.
    assert required(facts, "small_files", thresholds=limits).sql == (
        "CALL `prod`.system.rewrite_data_files(table => 'db.events', options => map("
        "'partial-progress.enabled', 'true', 'min-input-files', '2', 'min-file-size-bytes', "
        "'268435456', 'max-file-size-bytes', '1073741824', 'use-starting-sequence-number', "
        "'false'))",
    )
