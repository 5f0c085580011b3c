"""Key bounds rule out equality deletes as Iceberg does: by ranges, by nulls, and never for lack of
statistics.
"""

import random
import struct
from collections.abc import Sequence
from typing import Any

import pytest

from icekit.iceberg import ruled_out
from icekit.iceberg.key_bounds import KeyBounds, KeyColumn, comparable_key_columns
from icekit.iceberg.ruled_out import RuledOut, rule_out_by_bounds
from icekit.iceberg.values import from_bytes

# Of a file: its lowest and highest key, its nulls and its values; the bounds are None if it has
# none.
File = tuple[Any, Any, int | None, int | None]
SOME, OTHER = (1, 5, 0, 10), (7, 9, 0, 10)
WITH_NULLS, ONLY_NULLS = (1, 5, 3, 10), (None, None, 10, 10)
UNKNOWN, NO_NULLS = (None, None, None, None), (None, None, 0, 10)


def keyed(rows: Sequence[tuple[int, int, File]], *, required: bool = False) -> KeyBounds:
    """Files as (partition, sequence number, file), each of ten records."""
    found = KeyBounds.of_columns([1])
    for partition, sequence, file in rows:
        row = found.row(partition, sequence)
        found.file_counts[row] += 1
        found.record_counts[row] += 10
        found.spans_by_column[1].add_file(row, *file, required)
    return found


def compare(
    data: KeyBounds, deletes: KeyBounds, everywhere: Sequence[int] = (), *, is_exact: bool = True
) -> RuledOut:
    return rule_out_by_bounds(data, {(1,): deletes}, everywhere, is_exact)


@pytest.mark.parametrize(
    ("data", "deletes", "applies"),
    [
        (SOME, SOME, True),
        (SOME, (5, 9, 0, 1), True),
        (SOME, OTHER, False),
        (OTHER, SOME, False),
        (SOME, UNKNOWN, True),
        (UNKNOWN, SOME, True),
        (WITH_NULLS, ONLY_NULLS, True),
        (WITH_NULLS, (7, 9, 1, 2), True),
        (WITH_NULLS, OTHER, False),
        (ONLY_NULLS, OTHER, False),
        (ONLY_NULLS, NO_NULLS, False),
        (ONLY_NULLS, UNKNOWN, True),
        (SOME, ONLY_NULLS, False),
        (NO_NULLS, ONLY_NULLS, False),
        (UNKNOWN, ONLY_NULLS, True),
        ((1, 5, None, None), (7, 9, None, None), True),
        ((1, 5, None, None), OTHER, False),
        ((1, None, 0, 10), OTHER, True),
    ],
)
def test_a_delete_applies_unless_its_bounds_or_null_counts_exclude_the_data(
    data: File, deletes: File, applies: bool
) -> None:
    found = compare(keyed([(0, 1, data)]), keyed([(0, 2, deletes)]))

    assert found.delete_keys == (set() if applies else {(0, 2)})


def test_a_required_column_has_no_nulls_whatever_the_counts_say() -> None:
    found = compare(
        keyed([(0, 1, (1, 5, None, None))], required=True),
        keyed([(0, 2, (7, 9, None, None))], required=True),
    )

    assert found.delete_keys == {(0, 2)}


def test_files_of_one_commit_are_compared_together() -> None:
    data = keyed([(0, 1, SOME), (0, 1, ONLY_NULLS), (0, 1, (20, 25, 0, 10))])

    assert compare(
        data, keyed([(0, 2, OTHER), (0, 3, (30, 31, 0, 1)), (0, 4, ONLY_NULLS)])
    ).delete_keys == {(0, 3)}


@pytest.mark.parametrize(
    ("data", "everywhere", "is_exact", "expected"),
    [
        ([(0, 1, SOME), (1, 1, OTHER)], [], True, {(0, 2)}),
        ([(0, 1, SOME), (1, 1, OTHER)], [0], True, set()),
        ([(0, 2, OTHER), (0, 3, OTHER)], [], True, {(0, 2)}),
        ([(0, 2, OTHER), (0, 3, OTHER)], [], False, set()),
    ],
    ids=["of their partition", "of all partitions", "not older", "in a range of numbers"],
)
def test_deletes_meet_older_data_of_their_partition_or_all_older_data(
    data: Sequence[tuple[int, int, File]],
    everywhere: Sequence[int],
    is_exact: bool,
    expected: object,
) -> None:
    found = compare(keyed(data), keyed([(0, 2, OTHER)]), everywhere, is_exact=is_exact)

    assert found.delete_keys == expected


def test_what_is_ruled_out_of_each_data_is_counted_among_the_later_deletes_that_remain() -> None:
    data = keyed([(0, 1, SOME), (0, 2, OTHER)])
    deletes = keyed([(0, 3, SOME), (0, 3, SOME), (0, 4, OTHER), (0, 5, (50, 60, 0, 1))])
    found = compare(data, deletes)

    assert found.delete_keys == {(0, 5)}
    assert found.counts_by_data_key == {(0, 1): (1, 10), (0, 2): (2, 20)}


def test_one_column_of_a_key_that_excludes_the_data_is_enough() -> None:
    data, deletes = (KeyBounds.of_columns([1, 2]) for _ in range(2))
    for rows, sequence, file in ((data, 1, SOME), (deletes, 2, OTHER)):
        row = rows.row(0, sequence)
        rows.spans_by_column[1].add_file(row, *SOME, False)
        rows.spans_by_column[2].add_file(row, *file, False)

    assert rule_out_by_bounds(data, {(1, 2): deletes}, (), True).delete_keys == {(0, 2)}
    # Deletes of a key without column 2 apply.
    assert (
        rule_out_by_bounds(
            data, {(1, 2): deletes, (1,): keyed([(0, 2, SOME)])}, (), True
        ).delete_keys
        == set()
    )


@pytest.mark.parametrize(("blocks", "comparisons"), [(512, 10**9), (3, 10**9), (256, 40)])
def test_pairs_are_counted_as_one_by_one_and_in_blocks_never_fewer(
    blocks: int, comparisons: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ruled_out, "_BLOCKS", blocks)
    monkeypatch.setattr(ruled_out, "_COMPARISONS", comparisons)
    for seed in range(20):
        some = random.Random(seed)

        def file(some: random.Random = some) -> File:
            low = some.randrange(100)
            return some.choice(
                [
                    (low, low + some.randrange(20), some.choice([0, 0, 2]), 10),
                    ONLY_NULLS,
                    NO_NULLS,
                    (low, low, 0, 10),
                ]
            )

        sides = [[(some.randrange(3), n, file()) for n in range(30)] for _ in range(2)]
        data, deletes = map(keyed, sides)
        found = compare(data, deletes)

        def applies(d: tuple[int, int, File], e: tuple[int, int, File]) -> bool:
            alone = keyed([(0, 1, d[2])]), keyed([(0, 2, e[2])])
            return d[0] == e[0] and e[1] > d[1] and not compare(*alone).delete_keys

        met = {e[:2] for e in sides[1] if any(applies(d, e) for d in sides[0])}
        remaining = {e[:2] for e in sides[1]} - found.delete_keys
        assert met <= remaining
        if blocks == 512:
            assert met == remaining
        for d in sides[0]:
            real = sum(applies(d, e) for e in sides[1])
            later = sum(e[0] == d[0] and e[1] > d[1] and e[:2] in remaining for e in sides[1])
            counted = later - found.counts_by_data_key.get(d[:2], (0, 0))[0]
            assert counted == real if blocks == 512 else later >= counted >= real


def test_ranges_of_sequence_numbers_hold_what_their_files_hold() -> None:
    found = keyed(
        [(0, 1, SOME), (0, 3, WITH_NULLS), (0, 4, OTHER), (1, 2, UNKNOWN), (0, 2, OTHER)]
    ).by_sequence_ranges(3)

    assert found.row_by_partition_sequence == {(0, 3): 0, (0, 6): 1, (1, 3): 2}
    assert list(found.file_counts) == [3, 1, 1]
    assert list(found.record_counts) == [30, 10, 10]
    assert found.spans_by_column[1].low == [1, 7, None]
    assert found.spans_by_column[1].high == [9, 9, None]
    assert list(found.spans_by_column[1].has_null) == [1, 0, 1]


@pytest.mark.parametrize(
    ("kind", "ordered"),
    [
        ("int", [struct.pack("<i", n) for n in (-(2**31), -1, 0, 256)]),
        # The shorter one was written before the type was promoted.
        (
            "long",
            [
                struct.pack("<q", -(2**40)),
                struct.pack("<i", -7),
                struct.pack("<i", 300),
                struct.pack("<q", 2**40),
            ],
        ),
        ("date", [struct.pack("<i", n) for n in (-1, 1)]),
        ("timestamptz_ns", [struct.pack("<q", n) for n in (-(2**60), 2**60)]),
        ("decimal(9, 2)", [b"\x80\x00", b"\xff", b"\x00", b"\x01\x00"]),
        ("string", ["", "a", "ab", "ß", "\ufffd", "😀"]),
        ("binary", [b"", b"\x00", b"\x00\x01", b"\xff"]),
        ("fixed[2]", [b"\x00\xff", b"\x7f\x00", b"\x80\x00"]),
        ("boolean", [b"\x00", b"\x01"]),
    ],
)
def test_bounds_compare_as_their_values(kind: str, ordered: list[Any]) -> None:
    raw = (each.encode() if isinstance(each, str) else each for each in ordered)
    values: list[Any] = [from_bytes(kind, each) for each in raw]

    assert values == sorted(values)
    assert len(set(values)) == len(values)


def test_columns_whose_bounds_have_no_certain_order_or_are_gone_are_not_compared() -> None:
    kinds = {1: "uuid", 2: "double", 3: "float", 4: "string", 5: "long"}
    columns = {number: KeyColumn(kind, False, "k") for number, kind in kinds.items()}

    assert list(comparable_key_columns(columns, [(1, 2, 3), (5, 9), (4,)])) == [4, 5]
