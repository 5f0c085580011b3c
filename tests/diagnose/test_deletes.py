"""Symptoms of merge-on-read, from counts per partition and sequence number."""

import dataclasses

import pytest

from icekit import Severity, Thresholds, diagnose
from icekit.facts.definition import PartitionSpec
from icekit.facts.files import EqualityKey, FileGroup, Kind, Partition, SequenceCounts
from icekit.facts.integrity import DeleteState, UnappliedDeletes
from icekit.facts.model import TableFacts
from icekit.facts.rollup import Applied, delete_ratio, equality_deletes_applied
from tests.diagnose.told import absent, named, present, required
from tests.factories import BY_DAY, FIRST_DAY, MIB, file_group, partition, sequence, table_facts

DAY, NEXT = partition(), partition(FIRST_DAY + 1)
WELL = {"well_sized_file_count": 1, "well_sized_bytes": 500 * MIB}


def upserts(
    data: dict[int, int], deletes: dict[int, int], of: Partition = DAY, *, well: bool = False
) -> list[SequenceCounts]:
    """One file a sequence number; values are records."""
    rows = []
    for number in sorted(data.keys() | deletes.keys()):
        counts: dict[str, int] = {}
        if number in data:
            counts = {"data_file_count": 1, "data_record_count": data[number]}
            counts |= WELL if well else {}
        if number in deletes:
            counts["equality_delete_file_count"] = 1
            counts["equality_delete_record_count"] = deletes[number]
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
        deleted(upserts({1: 100, 2: 100, 3: 100}, {2: 10, 3: 10}))
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


@pytest.mark.parametrize(("ruled_out", "files", "loads"), [(1, 2, 20), (2, 1, 10)])
def test_data_loads_no_deletes_that_key_bounds_rule_out(
    ruled_out: int, files: int, loads: int
) -> None:
    first, *rows = upserts({1: 100, 2: 100, 3: 100}, {2: 10, 3: 10})
    first = dataclasses.replace(
        first, ruled_out_file_count=ruled_out, ruled_out_record_count=10 * ruled_out
    )
    (applied,) = equality_deletes_applied(deleted([first, *rows]))

    assert (applied.data_file_count, applied.loads) == (files, loads)
    assert applied.max_deletes_per_file == 10


def test_loads_grow_with_the_square_of_the_commits() -> None:
    for commits in (10, 20, 40):
        numbers = range(1, commits + 1)
        facts = deleted(upserts(dict.fromkeys(numbers, 100), dict.fromkeys(numbers, 10)))
        (applied,) = equality_deletes_applied(facts)

        assert applied.loads == 10 * commits * (commits - 1) // 2


VOID = tuple(dataclasses.replace(field, transform="void") for field in BY_DAY.fields)
SAME = dataclasses.replace(BY_DAY, spec_id=1)


@pytest.mark.parametrize(
    ("spec", "of", "partitions"),
    [
        (PartitionSpec(1, ()), Partition(1, ()), [DAY]),
        (PartitionSpec(1, VOID), Partition(1, (None,)), [DAY]),
        (SAME, partition(spec_id=1), []),
        (SAME, partition(1), []),
    ],
    ids=["no fields", "void", "another spec", "another partition"],
)
def test_deletes_apply_to_their_own_partition_and_those_of_a_spec_without_fields_to_every_one(
    spec: PartitionSpec, of: Partition, partitions: list[Partition]
) -> None:
    rows = [*upserts({1: 100}, {}), *upserts({}, {2: 10}, of)]
    facts = deleted(rows, specs=(BY_DAY, spec), default_spec_id=0)

    assert [a.partition for a in equality_deletes_applied(facts)] == partitions


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
    assert bool(named(under_equality(), "executor_cache", session_conf=conf)) is is_named
    absent("executor_cache", table_facts(), session_conf=conf)


def test_version_2_is_told_about_deletion_vectors_and_version_3_is_not() -> None:
    present("v2_position_deletes", of_days(1))
    absent("v2_position_deletes", dataclasses.replace(of_days(1), format_version=3))


def test_sequence_numbers_counted_in_ranges_never_make_live_deletes_dangle() -> None:
    """Data at 10,003 and deletes at 10,030 fall into one range of 50: they may apply."""
    rows = upserts({10_050: 100}, {10_050: 10})

    present("equality_deletes", deleted(rows, sequence_width=50))
    absent("equality_deletes", deleted(rows))


def test_the_most_that_one_file_needs_is_the_most_of_any_partition() -> None:
    many_files = [
        sequence(1, partition(1), data_file_count=1000, data_record_count=1000),
        *upserts({}, {2: 10}, partition(1)),
    ]
    one_file = upserts({1: 100}, {2: 900}, partition(2))
    groups = [file_group(*[MIB] * 1000, of=partition(1)), file_group(MIB, of=partition(2))]
    most = required(deleted([*many_files, *one_file], *groups), "equality_deletes")

    assert "up to 900 for one file" in most.evidence


def test_a_table_whose_stock_rewrite_will_not_fit_is_not_told_to_run_one() -> None:
    rows = upserts({1: 10_000_000, 2: 10_000_000}, {2: 40_000_000})
    facts = deleted(rows, file_group(*[MIB] * 6), equality_keys=(EqualityKey((1,), 2, 40_000_000),))
    large = {"spark.master": "yarn", "spark.executor.memory": "64g", "spark.executor.cores": "1"}
    usual = required(facts, "equality_deletes")
    roomy = required(facts, "equality_deletes", session_conf=large)

    assert "rewrite_data_files" not in str([f.sql for f in diagnose(facts)])
    assert usual.remedy.startswith(
        "Run icekit compact db.events, which applies the equality deletes as it rewrites"
    )
    assert "and an executor usually has 8 GiB" in usual.remedy
    assert roomy.remedy.startswith("Rewrite the data files that the deletes apply to: ")
    assert "this session has 64 GiB" in roomy.remedy
    assert "rewrite_data_files" in roomy.sql[0]


def under_equality(records: int = 10, *, rows: int = 100) -> TableFacts:
    """Two files of so many rows, the first of them under an equality delete."""
    return table_facts(
        groups=(
            file_group(*[500 * MIB] * 2, records_per_file=rows),
            file_group(MIB, kind=Kind.EQUALITY_DELETES, records_per_file=records),
        ),
        sequences=tuple(upserts({1: rows, 2: rows}, {2: records})),
    )


def test_the_rewrite_under_deletes_keeps_the_limits_that_were_changed() -> None:
    limits = Thresholds(min_file_size_ratio=0.5)
    finding = required(under_equality(), "equality_deletes", thresholds=limits)

    assert "'min-file-size-bytes', '268435456'" in finding.sql[0]


def test_data_files_without_a_row_under_equality_deletes_are_critical() -> None:
    finding = required(under_equality(1, rows=0), "equality_deletes")

    assert finding.severity is Severity.CRITICAL
    assert "for at most 1 of 2 data files (0 % of the rows)" in finding.evidence


def test_the_partition_whose_deletes_are_loaded_most_comes_first() -> None:
    groups, rows = [], []
    for day, n in ((DAY, 1), (NEXT, 3)):
        rows += [
            sequence(1, day, data_file_count=n, data_record_count=100),
            *upserts({}, {2: 10}, day),
        ]
        groups.append(file_group(*[500 * MIB] * n, of=day, records_per_file=100))

    finding = required(deleted(rows, *groups), "equality_deletes")
    assert finding.where == ("event_day=2026-01-02", "event_day=2026-01-01")


def of_days(
    *deletes: int,
    kind: Kind = Kind.POSITION_DELETES,
    scoped: bool = True,
    well: bool = True,
    rows: int = 100,
    data: int = 1,
) -> TableFacts:
    """A day each, with one file of 100 rows (the second day: ``rows``) and one delete file of so
    many records; sequence numbers of both are ``data`` and 2.
    """
    groups, sequences = [], []
    for number, records in enumerate(deletes):
        day = partition(FIRST_DAY + number)
        groups += [
            file_group(500 * MIB, of=day, records_per_file=rows if number else 100),
            file_group(
                MIB, kind=kind, of=day, records_per_file=records, file_scoped_count=int(scoped)
            ),
        ]
        sequences += [
            sequence(data, day, data_file_count=1, data_record_count=100, **(WELL if well else {})),
            sequence(2, day, position_delete_file_count=1, position_delete_record_count=records),
        ]
    version = 3 if kind is Kind.DELETION_VECTORS else 2
    return table_facts(groups=groups, sequences=tuple(sequences), format_version=version)


def test_the_partition_that_lost_the_largest_share_comes_first() -> None:
    finding = required(of_days(10, 110, rows=2000), "position_deletes")

    assert finding.where == ("event_day=2026-01-01", "event_day=2026-01-02")


@pytest.mark.parametrize(
    ("name", "critical", "warning"),
    [
        ("equality_deletes", under_equality(60), under_equality(59)),
        ("position_deletes", of_days(30, 30), of_days(30, 29)),
        (
            "deletion_vectors",
            of_days(30, 30, kind=Kind.DELETION_VECTORS),
            of_days(30, 29, kind=Kind.DELETION_VECTORS),
        ),
    ],
)
def test_deletes_are_critical_from_three_tenths_of_the_rows_on(
    name: str, critical: TableFacts, warning: TableFacts
) -> None:
    assert required(critical, name).severity is Severity.CRITICAL
    assert required(warning, name).severity is Severity.WARNING


@pytest.mark.parametrize("kind", [Kind.POSITION_DELETES, Kind.DELETION_VECTORS])
def test_deletes_of_rows_are_named_from_a_twentieth_of_them_on(kind: Kind) -> None:
    present(kind.value, of_days(5, kind=kind))
    absent(kind.value, of_days(4, kind=kind))
    present(kind.value, of_days(4, kind=kind), thresholds=Thresholds(delete_ratio=0.01))


def without_data(kind: Kind, state: DeleteState, **more: object) -> TableFacts:
    """One data file, and three delete files of another day that apply to nothing."""
    return table_facts(
        groups=(file_group(500 * MIB, records_per_file=100),),
        unapplied=(UnappliedDeletes(NEXT, kind, state, 3, 3 * MIB, 100),),
        **more,
    )


#: A finding of each kind, as a golden file shows it.
SHOWN = {
    "equality_deletes": under_equality(),
    "executor_cache": under_equality(),
    "position_deletes": of_days(5, 15),
    "v2_position_deletes": of_days(1),
    "deletion_vectors": of_days(5, 15, kind=Kind.DELETION_VECTORS),
    "dangling_deletes": without_data(Kind.POSITION_DELETES, DeleteState.DANGLING),
    "equality_deletes_of_new_keys": without_data(
        Kind.EQUALITY_DELETES, DeleteState.NEW_KEYS, properties={"write.upsert.enabled": "true"}
    ),
    "deletes_default_rewrite_ignores": of_days(5, 5, scoped=False),
    "merge_on_read_on_v1": table_facts(
        format_version=1,
        properties={
            "write.delete.mode": "merge-on-read",
            "write.update.mode": "copy-on-write",
            "write.merge.mode": "merge-on-read",
        },
    ),
}


@pytest.mark.parametrize("name", ["dangling_deletes", "equality_deletes_of_new_keys"])
def test_deletes_that_apply_to_nothing_count_for_nothing_else(name: str) -> None:
    facts = SHOWN[name]

    assert diagnose(facts).names == {name}
    assert delete_ratio(facts).by_records == 0
    assert facts.contradictions == ()


def test_deletes_of_new_keys_without_the_writers_setting_have_no_statement() -> None:
    facts = SHOWN["equality_deletes_of_new_keys"]

    assert facts.equality_delete_partitions == {NEXT}
    (finding,) = diagnose(dataclasses.replace(facts, properties={}))
    assert finding.sql == ()


def test_a_default_rewrite_ignores_deletes_that_reach_well_sized_data_and_name_no_file() -> None:
    name = "deletes_default_rewrite_ignores"
    wide, by_name = of_days(5, 5, scoped=False), of_days(5)

    present(name, of_days(5, scoped=False, data=2), deleted(upserts({1: 9}, {2: 9}, well=True)))
    absent(
        name,
        of_days(5, scoped=False, data=3),
        of_days(5, scoped=False, well=False),
        by_name,
        deleted(upserts({1: 9}, {2: 9})),
    )
    assert "'delete-file-threshold', '1'" in required(wide, "position_deletes").sql[0]
    # A partition whose deletes name single files does not hide the next.
    mixed = by_name.groups[:2] + wide.groups[2:]
    finding = required(dataclasses.replace(wide, groups=mixed), name)
    assert finding.where == ("event_day=2026-01-02",)


def test_the_largest_partition_that_a_default_rewrite_ignores_comes_first() -> None:
    name = "deletes_default_rewrite_ignores"
    rows = list(SHOWN[name].sequences)
    rows[2] = dataclasses.replace(rows[2], well_sized_bytes=501 * MIB)
    finding = required(dataclasses.replace(SHOWN[name], sequences=tuple(rows)), name)

    assert finding.where == ("event_day=2026-01-02", "event_day=2026-01-01")


def test_merge_on_read_needs_version_2() -> None:
    facts = SHOWN["merge_on_read_on_v1"]

    absent(
        "merge_on_read_on_v1",
        dataclasses.replace(facts, format_version=2),
        dataclasses.replace(facts, properties={}),
    )
