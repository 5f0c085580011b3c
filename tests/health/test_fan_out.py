"""Into which partitions of the current spec the rows of an older one go."""

import datetime as dt
from collections.abc import Sequence

import pytest

from icekit.health.facts.fan_out import (
    RewriteGroup,
    is_separable_by_filter,
    most_output_partitions,
    most_partitions,
    most_rolled_files,
    rewrite_groups,
    values_in_spec,
)
from icekit.health.facts.files import FileGroup
from icekit.health.facts.rollup import packed_files
from icekit.iceberg.definition import PartitionField, PartitionSpec
from icekit.iceberg.partition import Partition, Scalar
from tests.factories import MIB, TARGET, file_group, table_facts


def spec(*fields: str, spec_id: int = 0) -> PartitionSpec:
    """A spec of fields such as "day a"; the column ``a`` has the id 1, and so on."""
    made = []
    for i, field in enumerate(fields):
        transform, column = field.split()
        kind = "date" if transform == "day" else "int"
        made.append(PartitionField(1000 + i, field, transform, ord(column) - 96, column, kind))
    return PartitionSpec(spec_id, tuple(made))


def rewrites(groups: Sequence[FileGroup], *current: str) -> Sequence[RewriteGroup]:
    """How files of days are rewritten under these fields."""
    specs = spec("day a"), spec(*current, spec_id=1)
    return rewrite_groups(table_facts(groups=groups, specs=specs))


@pytest.mark.parametrize(
    ("older", "current", "most"),
    [
        (["day a"], ["month a"], 1),
        (["hour a"], ["year a"], 1),
        (["month a"], ["day a"], 31),
        (["year a"], ["hour a"], 12 * 31 * 24),
        (["identity a"], ["bucket[8] a"], 1),
        (["bucket[8] a"], ["bucket[4] a"], 1),
        (["bucket[8] a"], ["bucket[12] a"], 12),
        (["day a"], ["day a", "bucket[16] b"], 17),  # and nulls
        (["day a"], ["day a", "identity b"], None),
        ([], ["identity a"], None),
        (["identity a"], [], 1),
        (["void a"], ["void a"], 1),
        (["bucket[8] a"], ["identity a"], None),
    ],
)
def test_the_specs_limit_how_many_partitions_the_rows_of_one_go_to(
    older: list[str], current: list[str], most: int | None
) -> None:
    assert most_partitions(spec(*older), spec(*current)) == most


def days(of: str) -> int:
    return (dt.date.fromisoformat(of) - dt.date(1970, 1, 1)).days


@pytest.mark.parametrize(
    ("older", "values", "current", "is_same"),
    [
        ("day", ("2024-02-01", "2024-02-29"), "month", True),
        ("day", ("2024-02-29", "2024-03-01"), "month", False),
        ("day", ("1969-12-01", "1969-12-31"), "year", True),
        ("day", ("1969-12-31", "1970-01-01"), "year", False),
        ("day", (None, None), "month", True),
        ("day", (None, "1970-01-01"), "month", False),
        ("hour", (-1, -24), "day", True),
        ("hour", (-1, 0), "day", False),
        ("year", (8030, 8030), "year", True),  # the year 10000
        ("year", (8030, 8031), "year", False),
        ("bucket[8]", (1, 5), "bucket[4]", True),
        ("bucket[8]", (1, 2), "bucket[4]", False),
    ],
)
def test_values_of_an_older_partition_say_which_go_together(
    older: str, values: tuple[Scalar, ...], current: str, is_same: bool
) -> None:
    stored = [days(value) if isinstance(value, str) else value for value in values]
    known = {
        values_in_spec(spec(f"{older} a"), Partition(0, (value,)), spec(f"{current} a"))
        for value in stored
    }

    assert (len(known) == 1) is is_same


def test_days_of_a_month_are_combined_and_other_partitions_stay_apart() -> None:
    groups = [
        file_group(MIB, MIB, of=Partition(0, (days(day),)))
        for day in ("2024-01-01", "2024-01-31", "2024-02-01")
    ]
    by_month, by_value = rewrites(groups, "month a"), rewrites(groups, "identity b")

    assert [(len(g.groups), g.max_partitions_out) for g in by_month] == [(2, 1), (1, 1)]
    assert [(len(g.groups), g.max_partitions_out) for g in by_value] == [(1, None)] * 3
    assert [(len(g.groups), g.max_partitions_out) for g in rewrites(groups)] == [(3, 1)]


def test_a_rewrite_leaves_at_most_a_file_for_each_row_or_partition() -> None:
    groups = [file_group(*[MIB] * 10, records_per_file=50)]
    (unlimited,) = rewrites(groups, "identity b")
    (buckets,) = rewrites(groups, "bucket[4] b")
    (own,) = rewrite_groups(table_facts(groups=groups))

    def files(group: RewriteGroup, *sizes: int, rows: int = 50) -> int:
        return group.files_out(file_group(*sizes, records_per_file=rows).buckets, TARGET)

    every = (unlimited, buckets, own)
    assert [files(group, *[MIB] * 10) for group in every] == [500, 5, 1]
    assert [files(group, *[TARGET] * 3, rows=200) for group in every] == [600, 8, 3]
    assert [group.files_out((), TARGET) for group in every] == [0, 0, 0]
    assert files(buckets, MIB, rows=3) == 3


def test_files_that_move_are_bounded_by_partitions_rows_and_what_a_writer_ends() -> None:
    older, current = spec("day a"), spec("bucket[4] b", spec_id=1)

    assert most_output_partitions(older, current, 3, 1000) == 15
    assert most_output_partitions(older, current, 3, 7) == 7
    assert most_output_partitions(older, spec("identity b", spec_id=1), 3, 1000) == 1000
    # What a writer holds is as large as it is uncompressed: a small limit may end a file at each
    # look, a large one only where so many bytes are written.
    assert most_rolled_files(8 * MIB, 2_500, MIB, column_count=4) == 2
    assert most_rolled_files(500 * MIB, 10**6, 104 * MIB, column_count=4) == 5


@pytest.mark.parametrize(
    ("sizes", "row_group", "tasks"),
    [
        ([10] * 5, 128, 1),
        # Two of these are larger than a split, however few files their bytes come to.
        ([380] * 5, 512, 5),
        ([380] * 5, 128, 4),
        ([250] * 6, 512, 3),
        ([200] * 6, 512, 3),
        ([300, 200] * 4, 512, 4),
        ([512] * 3, 512, 3),
        # Only its footer says where it can be split.
        ([2048], 8192, 4),
    ],
)
def test_small_files_are_packed_whole_and_large_ones_by_row_groups(
    sizes: list[int], row_group: int, tasks: int
) -> None:
    buckets = file_group(*(size * MIB for size in sizes)).buckets

    assert packed_files(buckets, TARGET, row_group * MIB) == tasks


@pytest.mark.parametrize(
    ("older", "current", "apart"),
    [
        (["day a"], ["identity b"], True),
        (["bucket[4] a"], ["bucket[4] a", "identity b"], True),
        # No bounds of a column tell its bucket, nor the days of one of several keys.
        (["bucket[4] a"], ["identity b"], False),
        (["identity a", "day b"], ["identity c"], False),
        (["day a"], [], False),
    ],
)
def test_partitions_move_one_by_one_where_filters_tell_them_from_what_has_moved(
    older: list[str], current: list[str], apart: bool
) -> None:
    assert is_separable_by_filter(spec(*older), spec(*current, spec_id=1)) is apart
