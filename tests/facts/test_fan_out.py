"""Into which partitions of the current spec the rows of an older one go."""

import datetime as dt

import pytest

from icekit.facts.definition import PartitionField, PartitionSpec
from icekit.facts.fan_out import most_partitions, rewrite_groups, values_of
from icekit.facts.files import Partition
from tests.factories import MIB, TARGET, file_group, table_facts


def spec(*fields: tuple[str, str], spec_id: int = 0) -> PartitionSpec:
    """A spec of (transform, column) pairs; the column ``a`` has the id 1, and so on."""
    types = {"day": "date", "identity": "int"}
    made = [
        PartitionField(1000 + i, f"{t}_{c}", t, ord(c) - 96, c, types.get(t, "int"))
        for i, (t, c) in enumerate(fields)
    ]
    return PartitionSpec(spec_id, tuple(made))


@pytest.mark.parametrize(
    ("older", "current", "most"),
    [
        ([("day", "a")], [("month", "a")], 1),
        ([("hour", "a")], [("year", "a")], 1),
        ([("month", "a")], [("day", "a")], 31),
        ([("year", "a")], [("hour", "a")], 12 * 31 * 24),
        ([("identity", "a")], [("bucket[8]", "a")], 1),
        ([("bucket[8]", "a")], [("bucket[4]", "a")], 1),
        ([("bucket[8]", "a")], [("bucket[12]", "a")], 12),
        ([("day", "a")], [("day", "a"), ("bucket[16]", "b")], 17),  # and nulls
        ([("day", "a")], [("day", "a"), ("identity", "b")], None),
        ([], [("identity", "a")], None),
        ([("identity", "a")], [], 1),
        ([("void", "a")], [("void", "a")], 1),
        ([("bucket[8]", "a")], [("identity", "a")], None),
    ],
)
def test_the_specs_limit_how_many_partitions_the_rows_of_one_go_to(
    older: list[tuple[str, str]], current: list[tuple[str, str]], most: int | None
) -> None:
    assert most_partitions(spec(*older), spec(*current)) == most


def days(of: str) -> int:
    return (dt.date.fromisoformat(of) - dt.date(1970, 1, 1)).days


def test_days_are_of_their_month_and_year_also_before_1970() -> None:
    for day, month in (("2024-02-29", 54 * 12 + 1), ("1969-12-31", -1), ("1970-01-01", 0)):
        value = Partition(0, (days(day),))
        assert values_of(spec(("day", "a")), value, spec(("month", "a"))) == ((month,),)
        assert values_of(spec(("day", "a")), value, spec(("year", "a"))) == ((month // 12,),)
    assert values_of(spec(("hour", "a")), Partition(0, (-1,)), spec(("day", "a"))) == ((-1,),)
    assert values_of(spec(("bucket[8]", "a")), Partition(0, (5,)), spec(("bucket[4]", "a"))) == (
        (1,),
    )
    assert values_of(spec(("day", "a")), Partition(0, (None,)), spec(("month", "a"))) == ((None,),)


def test_days_of_a_month_are_combined_and_other_partitions_stay_apart() -> None:
    coarser, other = spec(("month", "a"), spec_id=1), spec(("identity", "b"), spec_id=1)
    groups = tuple(
        file_group(MIB, MIB, of=Partition(0, (days(day),)))
        for day in ("2024-01-01", "2024-01-31", "2024-02-01")
    )
    by_month = rewrite_groups(table_facts(groups=groups, specs=(spec(("day", "a")), coarser)))
    by_value = rewrite_groups(table_facts(groups=groups, specs=(spec(("day", "a")), other)))
    dropped = rewrite_groups(
        table_facts(groups=groups, specs=(spec(("day", "a")), spec(spec_id=1)))
    )

    assert [(len(g.groups), g.partitions_out) for g in by_month] == [(2, 1), (1, 1)]
    assert [(len(g.groups), g.partitions_out) for g in by_value] == [(1, None)] * 3
    assert [(len(g.groups), g.partitions_out) for g in dropped] == [(3, 1)]


def test_a_rewrite_leaves_at_most_a_file_for_each_row_or_partition() -> None:
    group = file_group(*[MIB] * 10, records_per_file=50)
    (unlimited,) = rewrite_groups(
        table_facts(groups=(group,), specs=(spec(("day", "a")), spec(("identity", "b"), spec_id=1)))
    )
    (buckets,) = rewrite_groups(
        table_facts(
            groups=(group,), specs=(spec(("day", "a")), spec(("bucket[4]", "b"), spec_id=1))
        )
    )
    (own,) = rewrite_groups(table_facts(groups=(group,)))

    assert [g.files_out(10 * MIB, 500, TARGET) for g in (unlimited, buckets, own)] == [500, 5, 1]
    assert [g.files_out(3 * TARGET, 500, TARGET) for g in (unlimited, buckets, own)] == [500, 8, 3]
    assert [g.files_out(0, 0, TARGET) for g in (unlimited, buckets, own)] == [0, 0, 0]
    assert buckets.files_out(MIB, 3, TARGET) == 3
