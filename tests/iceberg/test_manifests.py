"""Overlap of ranges is measured by counting, and agrees with looking at every pair."""

import random
from itertools import permutations
from typing import Any

import pytest

from icekit.health.facts.counts import Rollup
from icekit.health.facts.local import MOST_UNREAD_BYTES, counts_in_empty_manifests
from icekit.health.facts.rollup import bucket_edges, lower_edge_of, max_file_size, min_file_size
from icekit.iceberg.definition import Column, PartitionField, PartitionSpec
from icekit.iceberg.key_bounds import range_end
from icekit.iceberg.manifest_counts import RepeatedIdentifiers, SampledWrite
from icekit.iceberg.manifests import (
    BOUNDS,
    FileCounts,
    _column_sample,
    _repeated_identifiers,
    _sampled_manifests,
    _sampled_write,
    manifest_facts,
)
from icekit.iceberg.partition import Partition
from tests.avro import manifest

ID = Column(1, "id", "long", True, 0, "full")
BY_ID = PartitionSpec(0, (PartitionField(1000, "id", "identity", 1, "id", "long"),))


@pytest.mark.parametrize("seed", range(20))
def test_shares_are_what_trying_every_pair_says(seed: int) -> None:
    chance = random.Random(seed)
    ranges = [(low := chance.randrange(50), low + chance.randrange(10)) for _ in range(40)]
    pairs = list(permutations(ranges, 2))
    meeting = sum(a[0] <= b[1] and b[0] <= a[1] for a, b in pairs)
    bounds = [numbers(*ends) for ends in ranges]
    manifests = [
        {
            "partition_spec_id": 0,
            "manifest_length": 1,
            "partitions": [dict(zip(BOUNDS, ends, strict=True))],
        }
        for ends in bounds
    ]

    (overlap,) = manifest_facts(manifests, [BY_ID], FileCounts(40, 0), 1).overlaps
    assert overlap.mean_share == pytest.approx(meeting / len(pairs))


def test_the_share_that_a_lookup_reads_is_of_all_files_and_of_those_of_a_partition() -> None:
    """Two partitions of six files; in each, the files are disjoint, and meet those of the other."""
    files = [added(1, numbers(i * 10, i * 10 + 9)) for _ in range(2) for i in range(6)]
    partitions = [Partition(0, (part,)) for part in range(2) for _ in range(6)]

    sample = _column_sample(ID, files, partitions)
    apart = _column_sample(ID, files, [Partition(0, (i,)) for i in range(12)])

    assert sample.stab_share == pytest.approx(2 / 12)
    assert sample.partition_overlap == 0
    assert (apart.stab_share, apart.partition_overlap) == (sample.stab_share, None)


def sampled(*entries: int) -> tuple[dict[int, int], int]:
    """For live manifests with so many entries: how many files of each are sampled, by its place;
    and all of them.
    """
    manifests = [{"manifest_path": i, "added_files_count": n} for i, n in enumerate(entries)]
    shares = {manifest["manifest_path"]: most for manifest, most in _sampled_manifests(manifests)}
    return shares, sum(shares.values())


def test_a_sample_of_statistics_reads_as_many_manifests_as_it_takes() -> None:
    nine, of_nine = sampled(*[1] * 9)
    many, of_many = sampled(*[1] * 10_000)
    some, of_some = sampled(*[10] * 200)
    large, of_large = sampled(*[10_000] * 50)
    uneven, of_uneven = sampled(1, 10_000, 1)

    assert (set(nine), of_nine) == (set(range(9)), 9), "every file"
    assert (len(many), min(many), max(many), of_many) == (100, 0, 9_999, 100)
    assert (len(some), of_some) == (48, 300)
    assert (large, of_large) == ({0: 100, 24: 100, 49: 100}, 300)
    assert (uneven, of_uneven) == ({0: 1, 2: 1, 1: 298}, 300)
    assert sampled() == ({}, 0)


def test_a_manifest_that_only_lists_removed_files_is_not_counted() -> None:
    """A compaction leaves them until the next commit; no scan opens them."""
    counted = [
        {"partition_spec_id": 0, "manifest_length": 9, "added_files_count": n} for n in (0, 2)
    ]

    found = manifest_facts(counted, [], FileCounts(2, 0), 100)

    assert (found.data_count, found.data_bytes, found.undersized_count) == (1, 9, 1)
    # A rewrite takes it, and saves no scan anything by that.
    (of_spec,) = found.by_spec
    assert (
        of_spec.rewritten_count(100),
        of_spec.replacement_count(100),
        of_spec.saved_count(100),
    ) == (2, 1, 0)


def test_size_limits_of_the_rewrite_are_bucket_edges() -> None:
    target = 1_000_003
    cut = bucket_edges(target, (0.33, 3.3))

    for ratio in (0.75, 0.33):
        assert min_file_size(target, ratio) in cut
    for ratio in (1.8, 3.3):
        assert max_file_size(target, ratio) + 1 in cut
    assert lower_edge_of(0, cut) == 0
    assert lower_edge_of(min_file_size(target), cut) == min_file_size(target)


@pytest.mark.parametrize(("files", "width"), [(200_000, 1), (5_000_000, 50)])
def test_sequence_numbers_are_exact_until_there_are_very_many(files: int, width: int) -> None:
    manifests = [
        {"content": content, "added_files_count": count}
        for content, count in ((0, files - 1), (1, 1))
    ]
    rollup = Rollup(manifests, {}, {}, (0,), 1, last_sequence_number=10_000)
    rollup.set_sequence_width(lambda: 1000)

    assert rollup.sequence_width == width
    assert [range_end(s, 50) for s in (1, 50, 51)] == [50, 50, 100]


def test_the_tasks_of_a_commit_are_in_the_names_of_its_files() -> None:
    def write(*names: str, days: int = 1) -> SampledWrite | None:
        return _sampled_write(
            [
                {
                    "file_path": f"s3://b/t/data/{n}",
                    "file_size_in_bytes": 7,
                    "partition": {"d": i % days},
                }
                for i, n in enumerate(names)
            ]
        )

    one = [f"00003-12-6b1f-0-{n:05d}.parquet" for n in (1, 2, 3)]

    assert write(*one) == SampledWrite(3, 1, 21, 1)
    assert write(*one, "00004-13-6b1f-0-00001.parquet", days=2) == SampledWrite(4, 2, 28, 2)
    assert write(*one, "part-0.parquet") is None, (
        "pyiceberg, add_files and others have names of their own"
    )


def added(records: int, *bounds: tuple[bytes, bytes] | None, part: int = 0) -> dict[str, Any]:
    """An entry's file with the bounds of its columns, numbered from 1."""
    known = [(key, each) for key, each in enumerate(bounds, 1) if each]
    ends = {
        f"{name}_bounds": {key: each[at] for key, each in known}
        for at, name in enumerate(("lower", "upper"))
    }
    return {"record_count": records, "partition": {"p": part}, **ends}


def numbers(low: int, high: int, width: int = 8) -> tuple[bytes, bytes]:
    return low.to_bytes(width, "little", signed=True), high.to_bytes(width, "little", signed=True)


REPEATED: dict[str, tuple[list[str], list[Any], int | None]] = {
    "one value in two files": (["long"], [added(1, numbers(7, 7)), added(1, numbers(7, 7))], 1),
    "two values": (["long"], [added(1, numbers(7, 7)), added(1, numbers(8, 8))], None),
    "a range": (["long"], [added(11, numbers(-4, 5))], 10),
    "exactly as many": (["long"], [added(10, numbers(-4, 5))], None),
    "bounds from before a promotion": (
        ["long"],
        [added(6, numbers(0, 9, 4)), added(6, numbers(0, 9))],
        10,
    ),
    "only in a partition": (
        ["long"],
        [added(3, numbers(0, 1), part=1), added(3, numbers(90, 99), part=2)],
        2,
    ),
    "only in all partitions": (
        ["long"],
        [added(6, numbers(0, 9), part=1), added(6, numbers(0, 9), part=2)],
        10,
    ),
    "two columns": (["long", "date"], [added(7, numbers(1, 2), numbers(5, 7, 4))], 6),
    "a text that is the same in all rows": (
        ["long", "string"],
        [added(3, numbers(1, 2), (b"a", b"a"))],
        2,
    ),
    "texts between two have no limit": (["string"], [added(99, (b"a", b"b"))], None),
    "a file without bounds": (["long"], [added(9, numbers(1, 1)), added(9, None)], None),
    "no identifier": ([], [added(9, numbers(1, 1))], None),
}


@pytest.mark.parametrize(("kinds", "files", "most"), REPEATED.values(), ids=REPEATED)
def test_records_beyond_the_identifiers_that_bounds_leave_share_them(
    kinds: list[str], files: list[Any], most: int | None
) -> None:
    columns = [
        Column(key, f"c{key}", kind, True, key - 1, "full") for key, kind in enumerate(kinds, 1)
    ]

    found = _repeated_identifiers(42, files, columns)

    assert (found and found.most) == most
    assert found is None or isinstance(found, RepeatedIdentifiers)


def test_manifests_without_live_files_are_opened_to_see_it_up_to_some_bytes() -> None:
    """After a rewrite of a large table, these are all of its old manifests."""
    sizes = [MOST_UNREAD_BYTES // 2 + 1, MOST_UNREAD_BYTES // 2, MOST_UNREAD_BYTES // 2, 1000]
    manifests = [
        {
            "manifest_path": str(number),
            "manifest_length": size,
            "partition_spec_id": 0,
            "sequence_number": 10 - number,
            "added_snapshot_id": 1,
            "added_files_count": 0,
            "existing_files_count": 0,
        }
        for number, size in enumerate(sizes)
    ]
    empty = manifest({}, [])

    assert counts_in_empty_manifests(manifests, lambda _: empty) == {"0": 0, "3": 0}
