"""Symptoms of merge-on-read, from counts per partition and sequence number."""

import dataclasses
from typing import Any

import pytest

from icekit import Severity, Thresholds, diagnose
from icekit.facts.definition import PartitionSpec
from icekit.facts.files import EqualityKey, FileGroup, Kind, Partition, SequenceCounts
from icekit.facts.integrity import DeleteState, UnappliedDeletes
from icekit.facts.model import TableFacts
from icekit.facts.rollup import Applied, delete_ratio, equality_deletes_applied
from tests.diagnose.told import absent, named, present, required, shows, told
from tests.factories import BY_DAY, FIRST_DAY, MIB, file_group, partition, sequence, table_facts
from tests.golden import Golden


def upserts(
    *,
    data: dict[int, int],
    deletes: dict[int, int],
    of: Partition | None = None,
    well: bool = False,
) -> list[SequenceCounts]:
    """One file a sequence number; values are records."""
    rows = []
    for number in sorted(data.keys() | deletes.keys()):
        counts: dict[str, int] = {}
        if number in data:
            counts |= {"data_file_count": 1, "data_record_count": data[number]}
            if well:
                counts |= {"well_sized_file_count": 1, "well_sized_bytes": 500 * MIB}
        if number in deletes:
            counts |= {
                "equality_delete_file_count": 1,
                "equality_delete_record_count": deletes[number],
            }
        rows.append(sequence(number, of, **counts))
    return rows


def deleted(sequences: list[SequenceCounts], *groups: FileGroup, **more: object) -> TableFacts:
    data = sum(s.data_file_count for s in sequences) or 1
    equality = sum(s.equality_delete_file_count for s in sequences)
    made = list(groups) or [file_group(*[500 * MIB] * data, records_per_file=100)]
    if equality:
        made.append(file_group(*[MIB] * equality, kind=Kind.EQUALITY_DELETES, records_per_file=10))
    return table_facts(groups=tuple(made), sequences=tuple(sequences), **more)


def test_an_equality_delete_applies_to_data_of_a_lower_sequence_number_only() -> None:
    (applied,) = equality_deletes_applied(
        deleted(upserts(data={1: 100, 2: 100, 3: 100}, deletes={2: 10, 3: 10}))
    )

    assert applied == Applied(
        partition(),
        data_file_count=2,
        data_record_count=200,
        well_sized_file_count=0,
        well_sized_bytes=0,
        max_deletes_per_file=20,
        loads=30,
        opens=3,
    )


def test_data_loads_no_deletes_that_key_bounds_rule_out() -> None:
    first, second, third = upserts(data={1: 100, 2: 100, 3: 100}, deletes={2: 10, 3: 10})
    rows = [
        dataclasses.replace(first, ruled_out_file_count=1, ruled_out_record_count=10),
        second,
        third,
    ]
    (some,) = equality_deletes_applied(deleted(rows))
    rows[0] = dataclasses.replace(first, ruled_out_file_count=2, ruled_out_record_count=20)
    (fewer,) = equality_deletes_applied(deleted(rows))

    assert some.data_file_count == 2
    assert some.loads == 20
    assert some.max_deletes_per_file == 10
    assert fewer.data_file_count == 1
    assert fewer.loads == 10
    assert fewer.max_deletes_per_file == 10


def test_loads_grow_with_the_square_of_the_commits() -> None:
    loads = []
    for commits in (10, 20, 40):
        numbers = range(1, commits + 1)
        facts = deleted(
            upserts(data=dict.fromkeys(numbers, 100), deletes=dict.fromkeys(numbers, 10))
        )
        loads.append(sum(a.loads for a in equality_deletes_applied(facts)))

    assert loads == [10 * n * (n - 1) // 2 for n in (10, 20, 40)]


VOID = tuple(dataclasses.replace(field, transform="void") for field in BY_DAY.fields)


@pytest.mark.parametrize(("fields", "values"), [((), ()), (VOID, (None,))], ids=["none", "void"])
def test_deletes_of_a_spec_without_fields_apply_to_every_partition(
    fields: Any, values: Any
) -> None:
    home = upserts(data={}, deletes={2: 10}, of=Partition(1, values))
    specs = (BY_DAY, PartitionSpec(1, fields))
    facts = deleted([*upserts(data={1: 100}, deletes={}), *home], specs=specs, default_spec_id=0)

    assert [a.partition for a in equality_deletes_applied(facts)] == [partition()]


@pytest.mark.parametrize(
    ("conf", "is_named"),
    [
        (None, True),
        ({}, True),
        ({"spark.sql.iceberg.executor-cache.enabled": "false"}, False),
        ({"spark.sql.iceberg.executor-cache.delete-files.enabled": "FALSE"}, False),
    ],
)
def test_the_executor_cache_is_named_over_equality_deletes_unless_it_is_known_to_be_off(
    conf: dict[str, str] | None, is_named: bool
) -> None:
    facts = deleted(upserts(data={1: 100, 2: 100}, deletes={2: 10}))

    assert (named(facts, "executor_cache", session_conf=conf) is not None) is is_named
    absent("executor_cache", table_facts(), session_conf=conf)


def position(records: int, *, scoped: bool = True, **more: object) -> TableFacts:
    """One well-sized file of 100 rows under one position delete file."""
    return dataclasses.replace(of_days(records, scoped=scoped), **more)  # type: ignore[arg-type]


def test_position_deletes_that_name_no_single_file_need_the_count_rule() -> None:
    finding = required(position(50, scoped=False), "position_deletes")

    assert finding.severity is Severity.CRITICAL
    assert "'delete-file-threshold', '1'" in finding.sql[0]
    present("deletes_default_rewrite_ignores", position(50, scoped=False))
    absent("deletes_default_rewrite_ignores", position(50))


def test_version_2_is_told_about_deletion_vectors_and_version_3_is_not() -> None:
    present("v2_position_deletes", position(1))
    absent("v2_position_deletes", position(1, format_version=3))


def test_sequence_numbers_counted_in_ranges_never_make_live_deletes_dangle() -> None:
    """Data at 10,003 and deletes at 10,030 fall into one range of 50: they may apply."""
    rows = [
        sequence(
            10_050,
            data_file_count=1,
            data_record_count=100,
            equality_delete_file_count=1,
            equality_delete_record_count=10,
        )
    ]

    present("equality_deletes", deleted(rows, sequence_width=50))
    absent("equality_deletes", deleted(rows))


def test_the_most_that_one_file_needs_is_the_most_of_any_partition() -> None:
    many_files = [
        sequence(1, partition(1), data_file_count=1000, data_record_count=1000),
        *upserts(data={}, deletes={2: 10}, of=partition(1)),
    ]
    one_file = upserts(data={1: 100}, deletes={2: 900}, of=partition(2))
    groups = [file_group(*[MIB] * 1000, of=partition(1)), file_group(MIB, of=partition(2))]
    most = required(deleted([*many_files, *one_file], *groups), "equality_deletes")

    assert "up to 900 for one file" in most.evidence


def test_a_table_whose_stock_rewrite_will_not_fit_is_not_told_to_run_one() -> None:
    rows = upserts(data={1: 10_000_000, 2: 10_000_000}, deletes={2: 40_000_000})
    facts = deleted(rows, file_group(*[MIB] * 6), equality_keys=(EqualityKey((1,), 2, 40_000_000),))
    large = {"spark.master": "yarn", "spark.executor.memory": "64g", "spark.executor.cores": "1"}

    usual, roomy = diagnose(facts), diagnose(facts, session_conf=large)

    told = {f.name: f for f in usual}
    assert "rewrite_data_files" not in str([f.sql for f in usual])
    assert told["equality_deletes"].remedy.startswith(
        "Run icekit compact db.events, which applies the equality deletes as it rewrites"
    )
    assert "and an executor usually has 8 GiB" in told["equality_deletes"].remedy
    assert told["small_files"].remedy.startswith("With icekit compact db.events (")
    fitting = next(f for f in roomy if f.name == "equality_deletes")
    assert fitting.remedy.startswith("Rewrite the data files that the deletes apply to: ")
    assert "this session has 64 GiB" in fitting.remedy
    assert "rewrite_data_files" in fitting.sql[0]


DAY, NEXT = partition(), partition(FIRST_DAY + 1)


def under_equality(records: int = 10, *, rows: int = 100) -> TableFacts:
    """Two files of so many rows, the first of them under an equality delete."""
    return table_facts(
        groups=(
            file_group(*[500 * MIB] * 2, records_per_file=rows),
            file_group(MIB, kind=Kind.EQUALITY_DELETES, records_per_file=records),
        ),
        sequences=(
            sequence(1, data_file_count=1, data_record_count=rows),
            sequence(
                2,
                data_file_count=1,
                data_record_count=rows,
                equality_delete_file_count=1,
                equality_delete_record_count=records,
            ),
        ),
    )


def test_the_rewrite_under_deletes_keeps_the_limits_that_were_changed() -> None:
    found = told(
        under_equality(), "equality_deletes", thresholds=Thresholds(min_file_size_ratio=0.5)
    )

    assert "'min-file-size-bytes', '268435456'" in found[3][0]


def test_equality_deletes_are_critical_from_three_tenths_of_the_rows_on() -> None:
    assert told(under_equality(60), "equality_deletes")[0] is Severity.CRITICAL
    assert told(under_equality(59), "equality_deletes")[0] is Severity.WARNING


def test_data_files_without_a_row_under_equality_deletes_are_critical() -> None:
    found = told(under_equality(1, rows=0), "equality_deletes")

    assert found[0] is Severity.CRITICAL
    assert "applies to at most 1 of 2 data files (0 % of the rows)" in found[2]


def test_the_partition_whose_deletes_are_loaded_most_comes_first() -> None:
    groups, rows = [], []
    for day, n in ((DAY, 1), (NEXT, 3)):
        rows += [
            sequence(1, day, data_file_count=n, data_record_count=100),
            sequence(2, day, equality_delete_file_count=1, equality_delete_record_count=10),
        ]
        groups += [
            file_group(*[500 * MIB] * n, of=day, records_per_file=100),
            file_group(MIB, kind=Kind.EQUALITY_DELETES, of=day, records_per_file=10),
        ]

    found = told(table_facts(groups=groups, sequences=tuple(rows)), "equality_deletes")

    assert found[1] == ("event_day=2026-01-02", "event_day=2026-01-01")
    assert repr(found[5]) == str(2 * MIB + 4 * 500 * MIB)


def of_days(
    *deletes: int,
    kind: Kind = Kind.POSITION_DELETES,
    scoped: bool = True,
    well: bool = True,
    data: int = 1,
    later: int = 2,
) -> TableFacts:
    """A day each, with one file of 100 rows and one delete file of so many records; sequence
    numbers of both.
    """
    groups, rows = [], []
    for place, records in enumerate(deletes):
        day = partition(FIRST_DAY + place)
        groups += [
            file_group(500 * MIB, of=day, records_per_file=100),
            file_group(
                MIB, kind=kind, of=day, records_per_file=records, file_scoped_count=int(scoped)
            ),
        ]
        sized = {"well_sized_file_count": 1, "well_sized_bytes": 500 * MIB} if well else {}
        rows += [
            sequence(data, day, data_file_count=1, data_record_count=100, **sized),
            sequence(
                later, day, position_delete_file_count=1, position_delete_record_count=records
            ),
        ]
    return table_facts(
        groups=groups,
        sequences=tuple(rows),
        format_version=3 if kind is Kind.DELETION_VECTORS else 2,
    )


def test_the_partition_that_lost_the_largest_share_comes_first() -> None:
    groups = []
    for day, rows, records in ((DAY, 100, 10), (NEXT, 2000, 110)):
        groups += [
            file_group(500 * MIB, of=day, records_per_file=rows),
            file_group(
                MIB,
                kind=Kind.POSITION_DELETES,
                of=day,
                records_per_file=records,
                file_scoped_count=1,
            ),
        ]

    assert told(table_facts(groups=groups), "position_deletes")[1] == (
        "event_day=2026-01-01",
        "event_day=2026-01-02",
    )


@pytest.mark.parametrize(
    ("kind", "name"),
    [(Kind.POSITION_DELETES, "position_deletes"), (Kind.DELETION_VECTORS, "deletion_vectors")],
)
def test_deletes_of_rows_are_critical_from_three_tenths_of_the_rows_on(
    kind: Kind, name: str
) -> None:
    assert told(of_days(30, 30, kind=kind), name)[0] is Severity.CRITICAL
    assert told(of_days(30, 29, kind=kind), name)[0] is Severity.WARNING


def unapplied(
    state: DeleteState, of: Partition = DAY, files: int = 2, records: int = 100
) -> UnappliedDeletes:
    """Position deletes of so many records that apply to nothing."""
    return UnappliedDeletes(of, Kind.POSITION_DELETES, state, files, files * MIB, records)


def test_deletes_that_apply_to_nothing_are_dangling_and_count_for_nothing_else(
    golden: Golden,
) -> None:
    facts = table_facts(
        groups=(file_group(500 * MIB, records_per_file=100),),
        unapplied=(unapplied(DeleteState.DANGLING, NEXT),),
    )

    shows(golden, "dangling_deletes", facts)
    assert diagnose(facts).names == {"dangling_deletes"}
    assert delete_ratio(facts).by_records == 0
    assert facts.contradictions == ()


def test_deletes_of_new_keys_are_told_with_the_writers_setting_and_count_for_nothing_else(
    golden: Golden,
) -> None:
    new = UnappliedDeletes(NEXT, Kind.EQUALITY_DELETES, DeleteState.NEW_KEYS, 3, 3 * MIB, 100)
    upserts = {"write.upsert.enabled": "true"}
    facts = table_facts(
        groups=(file_group(500 * MIB, records_per_file=100),), unapplied=(new,), properties=upserts
    )

    shows(golden, "equality_deletes_of_new_keys", facts)
    assert diagnose(facts).names == {"equality_deletes_of_new_keys"}
    assert delete_ratio(facts).by_records == 0
    assert facts.equality_delete_partitions == {NEXT}
    (same,) = diagnose(dataclasses.replace(facts, properties={}))
    assert same.sql == ()


def test_beside_deletes_that_apply_the_others_are_dangling() -> None:
    groups = (
        file_group(500 * MIB, records_per_file=100),
        file_group(MIB, kind=Kind.POSITION_DELETES, records_per_file=2, file_scoped_count=1),
    )
    facts = table_facts(
        groups=groups, unapplied=(unapplied(DeleteState.DANGLING, files=1, records=1),)
    )

    assert (
        told(facts, "dangling_deletes")[2]
        == "1 of 2 delete files (1 record) applies to no data file"
    )
    present("v2_position_deletes", facts)
    absent("position_deletes", facts)


def test_what_a_default_rewrite_ignores_is_told_by_partition_the_largest_first(
    golden: Golden,
) -> None:
    facts = of_days(5, 5, scoped=False)
    larger = [
        dataclasses.replace(row, well_sized_bytes=900 * MIB)
        if row.partition == NEXT and row.data_file_count
        else row
        for row in facts.sequences
    ]

    shows(
        golden,
        "deletes_default_rewrite_ignores",
        dataclasses.replace(facts, sequences=tuple(larger)),
    )


def test_position_deletes_reach_data_of_their_own_sequence_number_and_none_after_it() -> None:
    present("deletes_default_rewrite_ignores", of_days(5, scoped=False, data=2, later=2))
    absent(
        "deletes_default_rewrite_ignores",
        of_days(5, scoped=False, data=3, later=2),
        of_days(5, scoped=False, well=False),
    )


def test_a_partition_whose_deletes_name_single_files_does_not_hide_the_next() -> None:
    facts = of_days(5, 5, scoped=False)
    first = [
        dataclasses.replace(g, file_scoped_count=g.file_count) if g.partition == DAY else g
        for g in facts.groups
    ]

    assert told(dataclasses.replace(facts, groups=tuple(first)), "deletes_default_rewrite_ignores")[
        1
    ] == ("event_day=2026-01-02",)


def test_merge_on_read_on_a_table_that_cannot_have_delete_files_is_told_with_the_settings_to_remove(
    golden: Golden,
) -> None:
    modes = {
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "copy-on-write",
        "write.merge.mode": "merge-on-read",
    }

    shows(golden, "merge_on_read_on_v1", table_facts(format_version=1, properties=modes))
    absent(
        "merge_on_read_on_v1",
        table_facts(format_version=2, properties=modes),
        table_facts(format_version=1),
    )


@pytest.mark.parametrize("kind", [Kind.POSITION_DELETES, Kind.DELETION_VECTORS])
def test_deletes_of_rows_are_named_from_a_twentieth_of_them_on(kind: Kind) -> None:
    name = kind.value
    low = Thresholds(delete_ratio=0.01)

    present(name, of_days(5, kind=kind))
    absent(name, of_days(4, kind=kind))
    present(name, of_days(4, kind=kind), thresholds=low)


#: A finding of each kind, as a golden file shows it.
SHOWN = {
    "equality_deletes": under_equality(),
    "executor_cache": under_equality(),
    "position_deletes": of_days(5, 15),
    "v2_position_deletes": of_days(1),
    "deletion_vectors": of_days(5, 15, kind=Kind.DELETION_VECTORS),
}


@pytest.mark.parametrize("case", SHOWN)
def test_a_finding_about_deletes_looks_like_its_golden_file(case: str, golden: Golden) -> None:
    shows(golden, case, SHOWN[case])


@pytest.mark.parametrize("of", [partition(1), partition(spec_id=1)], ids=["partition", "spec"])
def test_deletes_of_another_partition_or_spec_do_not_apply(of: Partition) -> None:
    rows = [*upserts(data={1: 100}, deletes={}), *upserts(data={}, deletes={2: 10}, of=of)]
    specs = (BY_DAY, dataclasses.replace(BY_DAY, spec_id=1))

    assert not [*equality_deletes_applied(deleted(rows, specs=specs, default_spec_id=0))]


@pytest.mark.parametrize("well", [True, False])
def test_well_sized_files_under_equality_deletes_are_what_a_default_rewrite_ignores(
    *, well: bool
) -> None:
    finding = named(
        deleted(upserts(data={1: 100, 2: 100}, deletes={2: 10}, well=well)),
        "deletes_default_rewrite_ignores",
    )

    assert (finding is not None and finding.files_at_stake == 1) is well
