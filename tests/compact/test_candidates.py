"""Which partitions are worth a rewrite, in which mode, and what each would win."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from icekit.compact.candidates import Candidate, candidates, in_window
from icekit.compact.policy import Policy
from icekit.diagnose.findings import Findings, Thresholds
from icekit.errors import ParameterError
from icekit.facts.definition import Column, PartitionField, PartitionSpec
from icekit.facts.files import FileGroup, Kind, Partition, Scalar
from icekit.facts.model import TableFacts
from icekit.facts.rollup import expected_files
from icekit.facts.where import partition_span
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
    sequence,
    table_facts,
)

SMALL = findings("small_files", "oversized_files")
DELETES = findings("equality_deletes", "small_files")
BY_HOUR = PartitionSpec(0, (PartitionField(1000, "event_hour", "hour", 2, "event_time", "int"),))


FIVE = file_group(*[10 * MIB] * 5)


def found(facts: TableFacts, named: Findings = SMALL, **policy: object) -> tuple[Candidate, ...]:
    return candidates(facts, named, Policy(**policy), Thresholds())  # type: ignore[arg-type]


def of(*groups: FileGroup, **more: object) -> TableFacts:
    return table_facts(groups=groups, **more)


def test_a_healthy_table_has_no_candidates() -> None:
    assert found(table_facts()) == ()


OVERSIZED = "oversized files"


@pytest.mark.parametrize(
    ("sizes", "reasons", "files_in", "mib", "files_out", "saved"),
    [
        ([10] * 5, ("small files",), 5, 50, 1, 4),
        # Well-sized files stay out.
        ([10] * 5 + [500] * 3, ("small files",), 5, 50, 1, 4),
        ([1024], (OVERSIZED,), 1, 1024, 2, 1),
        # A small file alone is no reason.
        ([10, 1024], (OVERSIZED,), 2, 1034, 2, 1),
        # The five small ones would be one, and the large one is split.
        ([10] * 5 + [1024], ("small files", OVERSIZED), 6, 1074, 2, 5),
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

    assert one == Candidate(
        (partition(),), "size", reasons, files_in, mib * MIB, files_out, mib * MIB, saved
    )
    assert one.win_per_byte == saved / (mib * MIB)


def test_nothing_is_looked_for_that_no_finding_names() -> None:
    assert found(of(FIVE), Findings()) == ()
    assert found(of(FIVE), findings("skewed_partitions")) == ()


def equality(data: int = 3, deletes: int = 2) -> TableFacts:
    """Well-sized data of sequence number 1 and equality deletes of later ones."""
    rows = [sequence(1, data_file_count=data, data_record_count=data * 100)]
    rows += [
        sequence(2 + i, equality_delete_file_count=1, equality_delete_record_count=30)
        for i in range(deletes)
    ]
    return of(
        file_group(*[500 * MIB] * data, records_per_file=100),
        file_group(*[MIB] * deletes, kind=Kind.EQUALITY_DELETES, records_per_file=30),
        sequences=tuple(rows),
    )


def test_equality_deletes_are_always_worth_it_and_each_open_counts() -> None:
    (one,) = found(equality(data=3, deletes=2), DELETES)

    assert one.mode == "deletes"
    assert one.reasons == ("equality deletes",)
    assert one.files_in == 3
    assert one.bytes_in == 1500 * MIB
    # Nobody knows how many of the 60 keys have a row: a key of a new row deletes nothing.
    assert one.bytes_out == 1500 * MIB
    assert one.files_out == expected_files(1500 * MIB, TARGET)
    assert one.is_maximum
    assert one.file_opens_saved == 3 - one.files_out + 3 * 2


def test_a_candidate_for_deletes_needs_a_finding_of_deletes() -> None:
    assert found(equality(), SMALL) == ()


def position(records: int, *, scoped: bool, kind: Kind = Kind.POSITION_DELETES) -> TableFacts:
    rows = (
        sequence(1, data_file_count=2, data_record_count=200),
        sequence(2, position_delete_file_count=1, position_delete_record_count=records),
    )
    groups = (
        file_group(500 * MIB, 500 * MIB, records_per_file=100),
        file_group(MIB, kind=kind, records_per_file=records, file_scoped_count=int(scoped)),
    )
    return table_facts(
        groups=groups, sequences=rows, format_version=3 if kind is Kind.DELETION_VECTORS else 2
    )


def test_position_deletes_count_from_the_policys_ratio_on() -> None:
    named = findings("position_deletes")

    assert found(position(9, scoped=True), named) == ()
    assert len(found(position(10, scoped=True), named)) == 1
    assert len(found(position(9, scoped=True), named, delete_ratio=0.01)) == 1


def test_deletes_that_name_one_file_each_are_taken_by_ratio_and_others_by_count() -> None:
    named = findings("position_deletes", "deletion_vectors")
    (scoped,) = found(position(50, scoped=True), named)
    (shared,) = found(position(50, scoped=False), named)
    (vectors,) = found(position(50, scoped=True, kind=Kind.DELETION_VECTORS), named)

    assert scoped.mode == "vectors"
    assert shared.mode == "deletes"
    assert vectors.mode == "vectors"
    assert vectors.reasons == ("deletion vectors",)
    assert scoped.files_in == 1
    assert shared.files_in == 2
    assert scoped.file_opens_saved == 1
    assert shared.file_opens_saved == 2


def test_a_partition_whose_rows_are_all_deleted_leaves_no_file() -> None:
    (one,) = found(position(400, scoped=False), findings("position_deletes"))

    assert one.bytes_out == 0
    assert one.files_out == 0


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
    assert month.files_in == 6
    assert month.files_out == 1
    assert [(c.partitions, c.files_out) for c in found(older(NEWER, 5))] == [
        ((partition(FIRST_DAY + d),), 1) for d in range(3)
    ]
    assert found(older(NEWER, 2)) == found(older(BY_MONTH, 2), scope="major") == ()


def test_files_of_a_coarser_spec_are_taken_only_where_that_saves_opens_however_their_rows_are_distributed() -> (
    None
):
    day = found(older(BY_BUCKET, 10))[0]

    # Four buckets and nulls.
    assert day.files_in == 10
    assert day.files_out == 5
    assert day.file_opens_saved == 5
    assert day.is_maximum
    assert found(older(BY_BUCKET, 5)) == found(older(BY_ID, 10)) == ()


def test_files_of_older_specs_that_are_to_move_are_taken_once_partition_by_partition() -> None:
    named = Findings((*SMALL, finding("old_partition_spec")))
    moved = found(older(BY_ID, 10, rows=50), named, old_specs=True)

    assert [(c.mode, c.partitions) for c in moved] == [
        ("spec", (partition(FIRST_DAY + d),)) for d in range(3)
    ]
    assert [(c.files_in, c.files_out, c.file_opens_saved, c.is_maximum) for c in moved] == [
        (10, 500, -490, True)
    ] * 3
    assert {c.mode for c in found(older(NEWER, 5), SMALL, old_specs=True)} == {"size"}


def test_deletes_over_older_specs_are_worth_a_rewrite_too() -> None:
    old = equality()
    facts = replace(
        old,
        groups=(*old.groups, file_group(*[10 * MIB] * 5, of=partition(FIRST_DAY + 1))),
        specs=(BY_DAY, NEWER),
        default_spec_id=1,
    )
    by_mode = {c.mode: c for c in found(facts, DELETES)}

    assert by_mode["deletes"].partitions == (partition(),)
    assert by_mode["deletes"].file_opens_saved == 3 - by_mode["deletes"].files_out + 6
    assert by_mode["size"].partitions == (partition(FIRST_DAY + 1),)


def under_old_deletes(*deletes: tuple[int, bool]) -> TableFacts:
    """Partitions of an older spec, each with two files of 100 rows under one position delete file
    of (records, scoped).
    """
    groups, rows = [], []
    for day, (records, scoped) in enumerate(deletes):
        of_day = partition(FIRST_DAY + day)
        groups.append(file_group(500 * MIB, 500 * MIB, of=of_day, records_per_file=100))
        groups.append(
            file_group(
                MIB,
                kind=Kind.POSITION_DELETES,
                of=of_day,
                records_per_file=records,
                file_scoped_count=int(scoped),
            ),
        )
        rows.append(sequence(1, of_day, data_file_count=2, data_record_count=200))
        rows.append(
            sequence(2, of_day, position_delete_file_count=1, position_delete_record_count=records)
        )
    return of(*groups, sequences=tuple(rows), specs=(BY_DAY, NEWER))


def test_older_partitions_under_deletes_are_taken_one_by_one() -> None:
    days = (partition(FIRST_DAY), partition(FIRST_DAY + 1))
    named = findings("position_deletes")

    # One file of each lost rows, a quarter of the partition's.
    assert found(under_old_deletes((50, True), (50, True)), named) == tuple(
        Candidate((day,), "vectors", ("position deletes",), 1, 500 * MIB, 1, 375 * MIB, 1)
        for day in days
    )
    # Every row is gone, and each file opens the one delete file of its partition.
    assert found(under_old_deletes((400, False), (400, False)), named) == tuple(
        Candidate((day,), "deletes", ("position deletes",), 2, 1000 * MIB, 0, 0, 4) for day in days
    )


def test_older_partitions_of_one_month_are_taken_by_ratio_only_where_every_delete_names_one_file() -> (
    None
):
    by_month = replace(under_old_deletes((50, True), (50, False)), specs=(BY_DAY, BY_MONTH))
    (one,) = found(by_month, findings("position_deletes"))

    assert one.mode == "deletes"
    assert len(one.partitions) == 2


def test_a_major_rewrite_drops_deletes_and_says_what_is_left() -> None:
    (under_equality,) = found(equality(data=3, deletes=2), DELETES, scope="major")
    (all_gone,) = found(position(400, scoped=False), findings("position_deletes"), scope="major")

    # At most three files are left, and each of the three opened two delete files.
    assert under_equality == Candidate(
        (partition(),), "all", ("deletes",), 3, 1500 * MIB, 3, 1500 * MIB, 6, is_maximum=True
    )
    assert all_gone == Candidate((partition(),), "all", ("deletes",), 2, 1000 * MIB, 0, 0, 4)


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
    assert one == Candidate(
        (partition(),), "all", ("files of the wrong size",), 4, 1020 * MIB, 2, 1020 * MIB, 2
    )


LIMIT = TARGET * 9 // 5


@pytest.mark.parametrize(
    ("sizes", "policy", "count"),
    [
        ([LIMIT], {"scope": "major", "min_win": 0}, 0),
        ([LIMIT + 1], {"scope": "major", "min_win": 0}, 1),
        ([LIMIT], {}, 0),
        ([LIMIT, LIMIT], {}, 0),
        ([LIMIT + 1], {}, 1),
        ([270 * MIB] * 2, {}, 1),
        # Not more than the target together, unless two are enough.
        ([256 * MIB] * 2, {}, 0),
        ([256 * MIB] * 2, {"min_files": 2}, 1),
        # Planner's rule: they would be taken; two files stay two, and so it is no candidate.
        ([380 * MIB] * 2, {}, 0),
        ([380 * MIB] * 2, {"min_win": 0}, 0),
        ([10 * MIB] * 4, {}, 0),
        ([10 * MIB] * 4, {"min_files": 4}, 1),
        # Four opens are saved.
        ([10 * MIB] * 5, {"min_win": 4}, 1),
        ([10 * MIB] * 5, {"min_win": 5}, 0),
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

    assert len(candidates(facts, named, Policy(), Thresholds())) == 1
    assert candidates(facts, named, Policy(), limits) == ()


def test_of_equal_wins_per_byte_the_larger_win_comes_first() -> None:
    # Four opens for 50 MiB, and nine for 112.5 MiB.
    five, ten = FIVE, file_group(*[45 * MIB // 4] * 10, of=partition(FIRST_DAY + 1))

    assert [c.file_opens_saved for c in found(of(five, ten))] == [9, 4]


def test_small_files_beside_those_under_deletes_go_with_them() -> None:
    facts = equality(data=3, deletes=1)
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
    assert one.files_in == 6
    assert one.bytes_in == 6 * 1060 * MIB // 8


def test_ordering_rows_takes_every_partition_whatever_its_files() -> None:
    every = found(table_facts(), Findings(), strategy="sort", columns=("carrier",))

    assert [(c.reasons, c.mode) for c in every] == [(("row order",), "all")] * 10


def test_candidates_come_by_win_per_byte() -> None:
    tiny, large, many = partition(FIRST_DAY), partition(FIRST_DAY + 1), partition(FIRST_DAY + 2)
    facts = of(
        file_group(*[MIB] * 6, of=tiny),
        file_group(*[300 * MIB] * 6, of=large),
        file_group(*[MIB] * 60, of=many),
    )

    assert [c.partitions[0] for c in found(facts)] == [many, tiny, large]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, 1),
        (TARGET - 1, 1),
        (TARGET, 1),
        (TARGET + TARGET // 10 - 1, 1),
        (TARGET + TARGET // 10 + 1, 2),
        (TARGET + TARGET * 3 // 4 + 1, 2),
        (10 * TARGET + TARGET // 2, 10),
        (10 * TARGET + TARGET * 3 // 4, 10),
        (10 * TARGET + TARGET * 3 // 4 + 1, 11),
        (5 * TARGET + TARGET // 2 + 1, 6),
    ],
)
def test_output_files_follow_icebergs_rule_for_the_remainder(size: int, expected: int) -> None:
    assert expected_files(size, TARGET) == expected


@pytest.mark.parametrize(
    ("transform", "kind", "value", "begins", "ends"),
    [
        ("day", "date", FIRST_DAY, "2026-01-01", "2026-01-02"),
        ("identity", "date", FIRST_DAY, "2026-01-01", "2026-01-02"),
        ("hour", "int", FIRST_DAY * 24 + 5, "2026-01-01T05:00", "2026-01-01T06:00"),
        ("month", "int", 11, "1970-12-01", "1971-01-01"),
        ("month", "int", -1, "1969-12-01", "1970-01-01"),
        ("year", "int", 56, "2026-01-01", "2027-01-01"),
        ("identity", "timestamptz", 0, "1970-01-01", "1970-01-01T00:00:00.000001"),
        (
            "identity",
            "timestamp",
            FIRST_DAY * 86_400 * 10**6,
            "2026-01-01",
            "2026-01-01T00:00:00.000001",
        ),
        (
            "identity",
            "timestamp_ns",
            FIRST_DAY * 86_400 * 10**9 + 1_999,
            "2026-01-01T00:00:00.000001",
            "2026-01-01T00:00:00.000002",
        ),
    ],
)
def test_a_partition_of_time_spans_its_own_unit(
    transform: str, kind: str, value: int, begins: str, ends: str
) -> None:
    spec = PartitionSpec(
        0,
        (
            PartitionField(1000, "p", "identity", 3, "carrier", "string"),
            PartitionField(1001, "t", transform, 2, "event_time", kind),
        ),
    )
    expected = tuple(dt.datetime.fromisoformat(t).replace(tzinfo=dt.UTC) for t in (begins, ends))

    assert partition_span(spec, Partition(0, ("UA", value))) == expected


@pytest.mark.parametrize(
    ("transform", "kind", "value"),
    [
        ("identity", "int", 20_454),
        ("bucket[8]", "int", 3),
        ("day", "date", None),
        ("year", "int", 99_999),
        ("identity", "string", "2026-01-01"),
    ],
)
def test_other_partitions_have_no_span(transform: str, kind: str, value: Scalar) -> None:
    assert (
        partition_span(
            PartitionSpec(0, (PartitionField(1000, "p", transform, 2, "x", kind),)),
            Partition(0, (value,)),
        )
        is None
    )


def at(day: int, hour: int = 0) -> dt.datetime:
    return dt.datetime(2026, 1, day, hour, tzinfo=dt.UTC)


NOW = at(11, 12)


def days(facts: TableFacts, **policy: object) -> list[int]:
    window = in_window(facts, Policy(**policy), NOW)  # type: ignore[arg-type]
    assert window is not None
    return sorted(int(str(p.values[0])) - FIRST_DAY + 1 for p in window)


def test_a_window_takes_whole_partitions_within_it() -> None:
    facts = table_facts()

    assert in_window(facts, Policy(), NOW) is None
    assert days(facts, since=at(8)) == [8, 9, 10]
    assert days(facts, since=at(8, 1)) == [9, 10]
    assert days(facts, until=at(3)) == [1, 2]
    assert days(facts, until=at(3, 23)) == [1, 2]
    assert days(facts, skip_last_hours=36) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert days(facts, skip_last_hours=37) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert days(facts, skip_last_hours=60) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert days(facts, skip_last_hours=1, until=at(3), since=at(2)) == [2]


def test_a_window_over_hours_chooses_hours() -> None:
    first = FIRST_DAY * 24
    facts = of(*(file_group(of=partition(first + h)) for h in range(6)), specs=(BY_HOUR,))
    window = in_window(facts, Policy(since=at(1, 2)), NOW)

    assert window == frozenset(partition(first + h) for h in range(2, 6))


def test_rows_without_a_time_are_outside_every_window() -> None:
    facts = of(file_group(of=Partition(0, (None,))), file_group())

    assert in_window(facts, Policy(skip_last_hours=1), NOW) == frozenset({partition()})


def test_a_window_on_a_table_without_times_is_refused() -> None:
    facts = of(file_group(of=partition("UA")), specs=(BY_CARRIER,))

    with pytest.raises(ParameterError, match=r"db\.events is not partitioned by time"):
        in_window(facts, Policy(skip_last_hours=1), NOW)
    assert in_window(of(specs=(BY_CARRIER,)), Policy(skip_last_hours=1), NOW) == frozenset()


def test_sizes_cut_at_other_limits_are_refused_rather_than_guessed() -> None:
    with pytest.raises(ParameterError, match="observe the table with size_ratios"):
        candidates(
            of(file_group(200 * MIB, 220 * MIB)),
            SMALL,
            Policy(),
            Thresholds(min_file_size_ratio=0.41),
        )


def test_rows_of_sequence_numbers_counted_in_ranges_are_opened_with_the_deletes_of_their_range() -> (
    None
):
    facts = equality(data=1, deletes=2)
    rows = sequence(
        50,
        data_file_count=1,
        data_record_count=100,
        equality_delete_file_count=2,
        equality_delete_record_count=60,
    )

    assert [
        one.file_opens_saved
        for one in found(replace(facts, sequences=(rows,), sequence_width=50), DELETES)
    ] == [2]


def test_columns_are_not_looked_at() -> None:
    assert found(of(FIVE, columns=(Column(9, "z", "int", False, 0, "none"),)))
