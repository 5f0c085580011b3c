"""Overlap of ranges is measured by counting, and agrees with looking at every pair."""

import random
from itertools import permutations
from typing import Any

import pytest

from icekit.facts.definition import Column
from icekit.facts.key_bounds import range_end
from icekit.facts.manifest_counts import RepeatedIdentifiers, SampledWrite
from icekit.facts.manifests import _mean_share, _repeated_identifiers, _stab_share, _write
from icekit.facts.rollup import bucket_of, edges, max_file_size, min_file_size, sequence_width


def some_ranges(seed: int) -> list[tuple[int, int]]:
    random_ = random.Random(seed)
    return [(low := random_.randrange(50), low + random_.randrange(10)) for _ in range(40)]


def test_mean_overlap_is_what_all_pairs_say() -> None:
    for seed in range(20):
        ranges = some_ranges(seed)
        pairs = list(permutations(ranges, 2))
        meeting = sum(a[0] <= b[1] and b[0] <= a[1] for a, b in pairs)

        assert abs(_mean_share(ranges) - meeting / len(pairs)) < 1e-12


def test_stab_share_is_what_trying_every_lower_bound_says() -> None:
    for seed in range(20):
        ranges = some_ranges(seed)
        hits = sum(low <= value <= high for value, _ in ranges for low, high in ranges)

        assert abs(_stab_share(ranges) - hits / len(ranges) ** 2) < 1e-12


def test_size_limits_of_the_rewrite_are_bucket_edges() -> None:
    target = 1_000_003
    cut = edges(target, (0.33, 3.3))

    for ratio in (0.75, 0.33):
        assert min_file_size(target, ratio) in cut
    for ratio in (1.8, 3.3):
        assert max_file_size(target, ratio) + 1 in cut
    assert bucket_of(0, cut) == 0
    assert bucket_of(min_file_size(target), cut) == min_file_size(target)


def test_sequence_numbers_are_exact_until_there_are_very_many() -> None:
    assert sequence_width(200_000, 1000, 10_000) == 1
    wide = sequence_width(5_000_000, 1000, 10_000)
    assert 1000 * 10_000 / wide <= 200_000
    assert [range_end(s, 50) for s in (1, 50, 51)] == [50, 50, 100]


def test_the_tasks_of_a_commit_are_in_the_names_of_its_files() -> None:
    def write(*names: str, days: int = 1) -> SampledWrite | None:
        return _write(
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
        f"{name}_bounds": [{"key": key, "value": each[at]} for key, each in known]
        for at, name in enumerate(("lower", "upper"))
    }
    return {"record_count": records, "partition": {"p": part}, **ends}


def numbers(low: int, high: int, width: int = 8) -> tuple[bytes, bytes]:
    return low.to_bytes(width, "little", signed=True), high.to_bytes(width, "little", signed=True)


@pytest.mark.parametrize(
    ("kinds", "files", "most"),
    [
        pytest.param(["long"], [added(2, numbers(7, 7))], 1, id="one value in one file"),
        pytest.param(
            ["long"],
            [added(1, numbers(7, 7)), added(1, numbers(7, 7))],
            1,
            id="one value in two files",
        ),
        pytest.param(
            ["long"], [added(1, numbers(7, 7)), added(1, numbers(8, 8))], None, id="two values"
        ),
        pytest.param(["long"], [added(11, numbers(-4, 5))], 10, id="a range"),
        pytest.param(["long"], [added(10, numbers(-4, 5))], None, id="exactly as many"),
        pytest.param(
            ["long"],
            [added(6, numbers(0, 9, 4)), added(6, numbers(0, 9))],
            10,
            id="bounds from before a promotion",
        ),
        pytest.param(
            ["long"],
            [added(3, numbers(0, 1), part=1), added(3, numbers(90, 99), part=2)],
            2,
            id="only in a partition",
        ),
        pytest.param(
            ["long"],
            [added(6, numbers(0, 9), part=1), added(6, numbers(0, 9), part=2)],
            10,
            id="only in all partitions",
        ),
        pytest.param(
            ["long", "date"], [added(7, numbers(1, 2), numbers(5, 7, 4))], 6, id="two columns"
        ),
        pytest.param(
            ["long", "string"],
            [added(3, numbers(1, 2), (b"a", b"a"))],
            2,
            id="a text that is the same in all rows",
        ),
        pytest.param(
            ["string"], [added(99, (b"a", b"b"))], None, id="texts between two have no limit"
        ),
        pytest.param(
            ["decimal(9, 2)"], [added(99, (b"\x01", b"\x02"))], None, id="nor have decimals"
        ),
        pytest.param(
            ["long"], [added(9, numbers(1, 1)), added(9, None)], None, id="a file without bounds"
        ),
        pytest.param([], [added(9, numbers(1, 1))], None, id="no identifier"),
    ],
)
def test_records_beyond_the_identifiers_that_bounds_leave_share_them(
    kinds: list[str], files: list[Any], most: int | None
) -> None:
    columns = [
        Column(key, f"c{key}", kind, True, key - 1, "full") for key, kind in enumerate(kinds, 1)
    ]

    found = _repeated_identifiers(42, files, columns)

    assert (found and found.most) == most
    assert found is None or isinstance(found, RepeatedIdentifiers)
