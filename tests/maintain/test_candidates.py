"""Which partitions are worth a rewrite, in which mode, and what each would win."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import ParameterError
from icekit.health.diagnose.findings import Findings, Thresholds
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import expected_files
from icekit.iceberg.definition import PartitionField, PartitionSpec
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.partition import Partition, Scalar
from icekit.iceberg.where import partition_time_range
from icekit.maintain.planning.candidates import Candidate, candidates, window_partitions
from icekit.maintain.prediction import Certainty
from tests.factories import (
    BY_CARRIER,
    BY_DAY,
    FIRST_DAY,
    GIB,
    MIB,
    NEWER,
    TARGET,
    file_group,
    finding,
    findings,
    partition,
    table_facts,
)
from tests.maintain.delete_counts import SMALL, data, facts_of, of, position, under_equality_deletes
from tests.maintain.policies import policy_of

DELETES = findings("equality_deletes", "small_files")


FIVE = file_group(*[10 * MIB] * 5)


def found(facts: TableFacts, named: Findings = SMALL, **policy: object) -> tuple[Candidate, ...]:
    return candidates(facts, named, policy_of(policy), Thresholds())


def figures(candidate: Candidate) -> tuple[float, ...]:
    """Files and MiB before, files and MiB after, and the opens saved."""
    p = candidate.prediction
    return p.files_in, p.bytes_in / MIB, p.files_out, p.bytes_out / MIB, p.file_opens_saved


def worth(candidate: Candidate) -> tuple[object, ...]:
    return candidate.mode, candidate.reasons, figures(candidate), candidate.prediction.certainty


OVERSIZED = "oversized files"
EXACT, AT_MOST, ABOUT = Certainty


@pytest.mark.parametrize(
    ("sizes", "reasons", "files_in", "mib", "files_out", "saved"),
    [
        # Well-sized files stay out.
        ([10] * 5 + [500] * 3, ("small files",), 5, 50, 1, 4),
        ([1024], (OVERSIZED,), 1, 1024, 2, -1),
        # A small file alone is no reason.
        ([10, 1024], (OVERSIZED,), 2, 1034, 2, 0),
        # The five small ones go into a part of the large one, which is split.
        ([10] * 5 + [1024], ("small files", OVERSIZED), 6, 1074, 2, 4),
        # More come of the large one than are saved by the others.
        ([10] * 5 + [5120], ("small files", OVERSIZED), 6, 5170, 10, -4),
    ],
)
def test_undersized_files_are_combined_and_oversized_ones_split(
    sizes: list[int],
    reasons: tuple[str, ...],
    files_in: int,
    mib: int,
    files_out: int,
    saved: int,
) -> None:
    (one,) = found(of(file_group(*(size * MIB for size in sizes))))

    assert one.partitions == (partition(),)
    assert worth(one) == (
        "size",
        reasons,
        (files_in, mib, files_out, mib, saved),
        EXACT if files_out == 1 else ABOUT,
    )


def test_nothing_is_looked_for_that_no_finding_names_and_nothing_is_found_in_a_healthy_table() -> (
    None
):
    assert found(table_facts()) == ()
    assert found(of(FIVE), Findings()) == ()
    assert found(of(FIVE), findings("skewed_partitions")) == ()
    assert found(under_equality_deletes(), SMALL) == ()


def test_equality_deletes_are_always_worth_it_and_each_open_counts() -> None:
    (one,) = found(under_equality_deletes(2), DELETES)

    # Nobody knows how many of the 20 keys have a row: a key of a new row deletes nothing.
    assert worth(one) == ("deletes", ("equality deletes",), (3, 1500, 3, 1500, 3 * 2), AT_MOST)


def under_deletes(
    *deletes: tuple[int, bool], kind: Kind = Kind.POSITION_DELETES, **more: object
) -> TableFacts:
    """Partitions with two files of 100 rows each, under one delete file of (records, scoped)."""
    groups, rows = [], []
    for day, (records, scoped) in enumerate(deletes):
        of_day = partition(FIRST_DAY + day)
        how: Any = {"records_per_file": records, "file_scoped_count": int(scoped)}
        groups.append(file_group(MIB, kind=kind, of=of_day, **how))
        rows += [data(1, of_day, files=2), position(2, records=records, of=of_day)]
    version = 3 if kind is Kind.DELETION_VECTORS else 2
    return facts_of(rows, *groups, format_version=version, **more)


def test_position_deletes_count_from_the_policys_ratio_on() -> None:
    named = findings("position_deletes")

    assert found(under_deletes((9, True)), named) == ()
    assert len(found(under_deletes((10, True)), named)) == 1
    assert len(found(under_deletes((9, True)), named, delete_ratio=0.01)) == 1


def test_deletes_that_name_one_file_each_are_taken_by_ratio_and_others_by_count() -> None:
    named = findings("position_deletes", "deletion_vectors")
    (scoped,) = found(under_deletes((50, True)), named)
    (shared,) = found(under_deletes((50, False)), named)
    (vectors,) = found(under_deletes((50, True), kind=Kind.DELETION_VECTORS), named)

    assert worth(scoped) == ("vectors", ("position deletes",), (1, 500, 1, 375, 1), ABOUT)
    assert worth(shared) == ("deletes", ("position deletes",), (2, 1000, 2, 750, 2), ABOUT)
    assert worth(vectors) == ("vectors", ("deletion vectors",), (1, 500, 1, 375, 1), ABOUT)


BY_MONTH = PartitionSpec(1, (PartitionField(1001, "event_month", "month", 2, "event_time", "int"),))
BY_ID = PartitionSpec(
    1, (*BY_DAY.fields, PartitionField(1001, "event_id", "identity", 1, "event_id", "long"))
)
BY_BUCKET = PartitionSpec(
    1, (*BY_DAY.fields, PartitionField(1001, "id_bucket", "bucket[4]", 1, "event_id", "int"))
)


def older(current: PartitionSpec, files_a_day: int, *, rows: int = 1_000_000) -> TableFacts:
    """Small files of three days of an older spec."""
    days = (
        file_group(*[10 * MIB] * files_a_day, of=partition(FIRST_DAY + d), records_per_file=rows)
        for d in range(3)
    )
    return of(*days, specs=(BY_DAY, current))


def test_files_of_older_specs_are_combined_where_their_rows_go_into_one_partition() -> None:
    (month,) = found(older(BY_MONTH, 2))

    assert month.partitions == tuple(partition(FIRST_DAY + d) for d in range(3))
    assert figures(month) == (6, 60, 1, 60, 5)
    assert [(c.partitions, figures(c)) for c in found(older(NEWER, 5))] == [
        ((partition(FIRST_DAY + d),), (5, 50, 1, 50, 4)) for d in range(3)
    ]
    assert found(older(NEWER, 2)) == found(older(BY_MONTH, 2), scope="major") == ()


def test_files_of_a_coarser_spec_are_taken_only_where_that_saves_opens_however_their_rows_are_distributed() -> (
    None
):
    day = found(older(BY_BUCKET, 10))[0]

    # Four buckets and nulls.
    assert worth(day) == ("size", ("small files",), (10, 100, 5, 100, 5), AT_MOST)
    assert found(older(BY_BUCKET, 5)) == found(older(BY_ID, 10)) == ()


def test_files_of_older_specs_that_are_to_move_are_taken_once_partition_by_partition() -> None:
    named = Findings((*SMALL, finding("old_partition_spec")))
    moved = found(older(BY_ID, 10, rows=50), named, old_specs=True)

    assert [c.partitions for c in moved] == [(partition(FIRST_DAY + d),) for d in range(3)]
    assert {worth(c) for c in moved} == {
        ("spec", ("an older partition spec",), (10, 100, 500, 100, -490), AT_MOST)
    }
    assert {c.mode for c in found(older(NEWER, 5), SMALL, old_specs=True)} == {"size"}


@pytest.mark.parametrize(
    ("deletes", "mode", "saved"),
    [
        # One file lost rows, a quarter of the partition's.
        ((50, True), "vectors", (1, 500, 1, 375, 1)),
        # Every row is gone, and each file opens the one delete file of its partition.
        ((400, False), "deletes", (2, 1000, 0, 0, 4)),
    ],
)
def test_older_partitions_under_deletes_are_taken_one_by_one(
    deletes: tuple[int, bool], mode: str, saved: tuple[int, ...]
) -> None:
    first, second, third = (partition(FIRST_DAY + day) for day in range(3))
    facts = under_deletes(deletes, deletes, specs=(BY_DAY, NEWER))
    small = file_group(*[10 * MIB] * 5, of=third)
    facts = replace(facts, groups=(*facts.groups, small))
    worthwhile = found(facts, findings("position_deletes", "small_files"))

    assert {c.partitions: (c.mode, figures(c)) for c in worthwhile} == {
        (first,): (mode, saved),
        (second,): (mode, saved),
        (third,): ("size", (5, 50, 1, 50, 4)),
    }


def test_older_partitions_of_one_month_are_taken_by_ratio_only_where_every_delete_names_one_file() -> (
    None
):
    by_month = replace(
        under_deletes((50, True), (50, False), specs=(BY_DAY, NEWER)), specs=(BY_DAY, BY_MONTH)
    )
    (one,) = found(by_month, findings("position_deletes"))

    assert one.mode == "deletes"
    assert len(one.partitions) == 2


def test_a_major_rewrite_drops_deletes_and_says_what_is_left() -> None:
    (under_equality,) = found(under_equality_deletes(2), DELETES, scope="major")
    (all_gone,) = found(under_deletes((400, False)), findings("position_deletes"), scope="major")

    # At most three files are left, and each of the three opened two delete files.
    assert worth(under_equality) == ("all", ("deletes",), (3, 1500, 3, 1500, 6), AT_MOST)
    assert worth(all_gone) == ("all", ("deletes",), (2, 1000, 0, 0, 4), ABOUT)


def test_a_major_rewrite_takes_every_file_where_something_is_wrong_and_wins_the_files_that_go() -> (
    None
):
    wrong = file_group(*[10 * MIB] * 2, *[500 * MIB] * 2)
    (one,) = found(
        of(file_group(*[500 * MIB] * 4, of=partition(FIRST_DAY + 1)), wrong),
        Findings(),
        scope="major",
    )

    # 1020 MiB: one target, and a remainder that is large enough to stay alone.
    assert one.partitions == (partition(),)
    assert worth(one) == ("all", ("files of the wrong size",), (4, 1020, 2, 1020, 2), ABOUT)


LIMIT = TARGET * 9 // 5


@pytest.mark.parametrize(
    ("sizes", "policy", "count"),
    [
        ([LIMIT], {"scope": "major"}, 0),
        ([LIMIT], {}, 0),
        ([LIMIT, LIMIT], {}, 0),
        ([LIMIT + 1], {}, 1),
        ([270 * MIB] * 2, {}, 1),
        # Not more than the target together, unless two are enough.
        ([256 * MIB] * 2, {}, 0),
        ([256 * MIB] * 2, {"min_files": 2}, 1),
        # Planner's rule: they would be taken; two files stay two, and so it is no candidate.
        ([380 * MIB] * 2, {}, 0),
        ([10 * MIB] * 4, {}, 0),
        ([10 * MIB] * 4, {"min_files": 4}, 1),
    ],
)
def test_files_are_a_candidate_from_the_limits_on(
    sizes: list[int], policy: dict[str, Any], count: int
) -> None:
    assert len(found(of(file_group(*sizes)), **policy)) == count


def test_oversized_files_are_looked_for_by_themselves_and_by_the_limit_that_was_chosen() -> None:
    named = findings("oversized_files")
    limits = Thresholds(max_file_size_ratio=3.0)
    facts = of(file_group(GIB, ratios=limits.size_ratios))

    assert len(candidates(facts, named, CompactionPolicy(), Thresholds())) == 1
    assert candidates(facts, named, CompactionPolicy(), limits) == ()


def test_small_files_beside_those_under_deletes_go_with_them() -> None:
    facts = under_equality_deletes()
    facts = replace(
        facts,
        groups=(
            file_group(*[10 * MIB] * 6, *[500 * MIB] * 2, records_per_file=100),
            *facts.groups[1:],
        ),
    )
    (one,) = found(facts, DELETES)

    # Three files are under the delete, six are undersized; the mean file of 132.5 MiB stands for
    # each.
    assert figures(one)[:2] == (6, 6 * 1060 / 8)


def test_ordering_rows_takes_every_partition_whatever_its_files() -> None:
    every = found(table_facts(), Findings(), strategy="sort", columns=("carrier",))

    assert [(c.reasons, c.mode) for c in every] == [(("row order",), "all")] * 10


def test_candidates_come_by_file_opens_saved_per_byte_then_by_file_opens_saved() -> None:
    tiny, large, many = partition(FIRST_DAY), partition(FIRST_DAY + 1), partition(FIRST_DAY + 2)
    facts = of(
        file_group(*[MIB] * 6, of=tiny),
        file_group(*[300 * MIB] * 6, of=large),
        file_group(*[MIB] * 60, of=many),
    )
    # Four opens for 50 MiB, and nine for 112.5 MiB.
    alike = of(FIVE, file_group(*[45 * MIB // 4] * 10, of=large))

    assert [c.partitions[0] for c in found(facts)] == [many, tiny, large]
    assert [c.prediction.file_opens_saved for c in found(alike)] == [9, 4]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, 1),
        (TARGET, 1),
        (TARGET + TARGET // 10 - 1, 1),
        (TARGET + TARGET // 10 + 1, 2),
        (10 * TARGET + TARGET * 3 // 4, 10),
        (10 * TARGET + TARGET * 3 // 4 + 1, 11),
    ],
)
def test_output_files_follow_icebergs_rule_for_the_remainder(size: int, expected: int) -> None:
    assert expected_files(size, TARGET) == expected


@pytest.mark.parametrize(
    ("transform", "kind", "value", "span"),
    [
        ("day", "date", FIRST_DAY, ("2026-01-01", "2026-01-02")),
        ("identity", "date", FIRST_DAY, ("2026-01-01", "2026-01-02")),
        ("hour", "int", FIRST_DAY * 24 + 5, ("2026-01-01T05:00", "2026-01-01T06:00")),
        ("month", "int", -1, ("1969-12-01", "1970-01-01")),
        ("year", "int", 56, ("2026-01-01", "2027-01-01")),
        ("identity", "timestamptz", 0, ("1970-01-01", "1970-01-01T00:00:00.000001")),
        (
            "identity",
            "timestamp_ns",
            FIRST_DAY * 86_400 * 10**9 + 1_999,
            ("2026-01-01T00:00:00.000001", "2026-01-01T00:00:00.000002"),
        ),
        ("identity", "int", 20_454, None),
        ("bucket[8]", "int", 3, None),
        ("day", "date", None, None),
        ("year", "int", 99_999, None),
        ("identity", "string", "2026-01-01", None),
    ],
)
def test_a_partition_of_time_spans_its_own_unit(
    transform: str, kind: str, value: Scalar, span: tuple[str, str] | None
) -> None:
    time = PartitionField(1001, "t", transform, 2, "event_time", kind)
    spec = PartitionSpec(0, (*BY_CARRIER.fields, time))
    expected = span and tuple(dt.datetime.fromisoformat(t).replace(tzinfo=dt.UTC) for t in span)

    assert partition_time_range(spec, Partition(0, ("UA", value))) == expected


def at(day: int, hour: int = 0) -> dt.datetime:
    return dt.datetime(2026, 1, day, hour, tzinfo=dt.UTC)


NOW = at(11, 12)


@pytest.mark.parametrize(
    ("policy", "first", "last"),
    [
        ({"since": at(8)}, 8, 10),
        ({"since": at(8, 1)}, 9, 10),
        ({"until": at(3)}, 1, 2),
        ({"until": at(3, 23)}, 1, 2),
        ({"skip_last_hours": 36}, 1, 9),
        ({"skip_last_hours": 37}, 1, 8),
        ({"skip_last_hours": 1, "until": at(3), "since": at(2)}, 2, 2),
    ],
)
def test_a_window_takes_whole_partitions_within_it(
    policy: dict[str, Any], first: int, last: int
) -> None:
    days = range(FIRST_DAY + first - 1, FIRST_DAY + last)

    assert window_partitions(table_facts(), CompactionPolicy(), NOW) is None
    assert window_partitions(table_facts(), policy_of(policy), NOW) == frozenset(
        map(partition, days)
    )


def test_rows_without_a_time_are_outside_every_window() -> None:
    facts = of(file_group(of=Partition(0, (None,))), file_group())

    assert window_partitions(facts, CompactionPolicy(skip_last="1 hour"), NOW) == frozenset(
        {partition()}
    )


def test_a_window_on_a_table_without_times_is_refused() -> None:
    facts = of(file_group(of=partition("UA")), specs=(BY_CARRIER,))

    with pytest.raises(ParameterError, match=r"db\.events is not partitioned by time"):
        window_partitions(facts, CompactionPolicy(skip_last="1 hour"), NOW)
    assert (
        window_partitions(of(specs=(BY_CARRIER,)), CompactionPolicy(skip_last="1 hour"), NOW)
        == frozenset()
    )
