"""Symptoms of merge-on-read, from counts per partition and sequence number."""

from __future__ import annotations

import dataclasses

import pytest

from icekit import Severity, Thresholds, diagnose
from icekit.diagnose.findings import Finding
from icekit.facts.model import EqualityKey, FileGroup, Kind, Partition, PartitionSpec, SequenceCounts, TableFacts
from icekit.facts.rollup import Applied, equality_deletes_applied
from tests.factories import BY_DAY, MIB, file_group, partition, sequence, table_facts


def found(facts: TableFacts, name: str, **options: object) -> Finding | None:
    return next((f for f in diagnose(facts, **options) if f.name == name), None)  # type: ignore[arg-type]


def upserts(*, data: dict[int, int], deletes: dict[int, int], of: Partition | None = None, well: bool = False) -> list[SequenceCounts]:
    """One file a sequence number; values are records."""
    rows = []
    for number in sorted(data.keys() | deletes.keys()):
        counts: dict[str, int] = {}
        if number in data:
            counts |= {"data_file_count": 1, "data_record_count": data[number]}
            if well:
                counts |= {"well_sized_file_count": 1, "well_sized_bytes": 500 * MIB}
        if number in deletes:
            counts |= {"equality_delete_file_count": 1, "equality_delete_record_count": deletes[number]}
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
    (applied,) = equality_deletes_applied(deleted(upserts(data={1: 100, 2: 100, 3: 100}, deletes={2: 10, 3: 10})))

    assert applied == Applied(
        partition(),
        data_file_count=2,
        data_record_count=200,
        well_sized_file_count=0,
        well_sized_bytes=0,
        max_deletes_per_file=20,
        loads=30,
    )


def test_data_loads_no_deletes_that_key_bounds_rule_out() -> None:
    first, second, third = upserts(data={1: 100, 2: 100, 3: 100}, deletes={2: 10, 3: 10})
    rows = [dataclasses.replace(first, ruled_out_file_count=1, ruled_out_record_count=10), second, third]
    (some,) = equality_deletes_applied(deleted(rows))
    rows[0] = dataclasses.replace(first, ruled_out_file_count=2, ruled_out_record_count=20)
    (fewer,) = equality_deletes_applied(deleted(rows))

    assert (some.data_file_count, some.loads, some.max_deletes_per_file) == (2, 20, 10)
    assert (fewer.data_file_count, fewer.loads, fewer.max_deletes_per_file) == (1, 10, 10)


def test_loads_grow_with_the_square_of_the_commits() -> None:
    loads = []
    for commits in (10, 20, 40):
        numbers = range(1, commits + 1)
        facts = deleted(upserts(data=dict.fromkeys(numbers, 100), deletes=dict.fromkeys(numbers, 10)))
        loads.append(sum(a.loads for a in equality_deletes_applied(facts)))

    assert loads == [10 * n * (n - 1) // 2 for n in (10, 20, 40)]


def test_deletes_of_an_unpartitioned_spec_apply_to_every_partition() -> None:
    rows = [*upserts(data={1: 100}, deletes={}), *upserts(data={}, deletes={2: 10}, of=Partition(1, ()))]
    facts = deleted(rows, specs=(BY_DAY, PartitionSpec(1, ())), default_spec_id=0)

    assert [a.partition for a in equality_deletes_applied(facts)] == [partition()]


def test_deletes_of_another_partition_do_not_apply() -> None:
    rows = [*upserts(data={1: 100}, deletes={}), *upserts(data={}, deletes={2: 10}, of=partition(1))]

    assert list(equality_deletes_applied(deleted(rows))) == []


def test_equality_deletes_are_critical_by_the_rewrites_own_ratio() -> None:
    light = deleted(upserts(data={1: 100, 2: 100}, deletes={2: 10}))
    heavy = deleted(
        upserts(data=dict.fromkeys(range(1, 9), 100), deletes=dict.fromkeys(range(2, 9), 10)),
        file_group(*[500 * MIB] * 2, records_per_file=100),
    )

    assert [f.severity for f in (found(light, "equality_deletes"), found(heavy, "equality_deletes")) if f] == [
        Severity.WARNING,
        Severity.CRITICAL,
    ]


@pytest.mark.parametrize(
    ("conf", "named"),
    [
        (None, True),
        ({}, True),
        ({"spark.sql.iceberg.executor-cache.enabled": "false"}, False),
        ({"spark.sql.iceberg.executor-cache.delete-files.enabled": "FALSE"}, False),
    ],
)
def test_the_executor_cache_is_named_over_equality_deletes_unless_it_is_known_to_be_off(conf: dict[str, str] | None, named: bool) -> None:
    facts = deleted(upserts(data={1: 100, 2: 100}, deletes={2: 10}))

    assert (found(facts, "executor_cache", session_conf=conf) is not None) is named
    assert found(table_facts(), "executor_cache", session_conf=conf) is None


def test_well_sized_files_under_equality_deletes_are_what_a_default_rewrite_ignores() -> None:
    well = deleted(upserts(data={1: 100, 2: 100}, deletes={2: 10}, well=True))
    small = deleted(upserts(data={1: 100, 2: 100}, deletes={2: 10}))
    finding = found(well, "deletes_default_rewrite_ignores")

    assert finding is not None
    assert finding.files_at_stake == 1
    assert "'delete-file-threshold', '1'" in finding.sql[0]
    assert found(small, "deletes_default_rewrite_ignores") is None


def position(records: int, *, scoped: bool = True, data_sequence: int = 1, delete_sequence: int = 2, **more: object) -> TableFacts:
    """One well-sized file of 100 rows under one position delete file."""
    rows = [
        sequence(data_sequence, data_file_count=1, data_record_count=100, well_sized_file_count=1, well_sized_bytes=500 * MIB),
        sequence(delete_sequence, position_delete_file_count=1, position_delete_record_count=records),
    ]
    groups = (
        file_group(500 * MIB, records_per_file=100),
        file_group(MIB, kind=Kind.POSITION_DELETES, records_per_file=records, file_scoped_count=int(scoped)),
    )
    return table_facts(groups=groups, sequences=tuple(rows), **more)


def test_position_deletes_of_a_twentieth_of_the_rows_are_named() -> None:
    finding = found(position(5), "position_deletes")

    assert finding is not None
    assert "5 position delete records in 1 delete file for 100 rows (5.0 %)" in finding.evidence
    assert "'delete-ratio-threshold', '0.05'" in finding.sql[0]
    assert found(position(4), "position_deletes") is None


def test_position_deletes_that_name_no_single_file_need_the_count_rule() -> None:
    finding = found(position(50, scoped=False), "position_deletes")

    assert finding is not None
    assert finding.severity is Severity.CRITICAL
    assert "'delete-file-threshold', '1'" in finding.sql[0]
    assert found(position(50, scoped=False), "deletes_default_rewrite_ignores") is not None
    assert found(position(50), "deletes_default_rewrite_ignores") is None


def test_version_2_is_told_about_deletion_vectors_and_version_3_is_not() -> None:
    assert found(position(1), "v2_position_deletes") is not None
    assert found(position(1, format_version=3), "v2_position_deletes") is None


def test_deletion_vectors_over_a_twentieth_of_a_partition_are_named() -> None:
    def vectors(records: int) -> TableFacts:
        groups = (file_group(500 * MIB, records_per_file=100), file_group(60, kind=Kind.DELETION_VECTORS, records_per_file=records))
        return table_facts(groups=groups, format_version=3)

    assert found(vectors(5), "deletion_vectors") is not None
    assert found(vectors(4), "deletion_vectors") is None
    assert found(vectors(4), "deletion_vectors", thresholds=Thresholds().with_changes(delete_ratio=0.01)) is not None


def test_sequence_numbers_counted_in_ranges_never_make_live_deletes_dangle() -> None:
    """Data at 10,003 and deletes at 10,030 fall into one range of 50: they may apply."""
    rows = [sequence(10_050, data_file_count=1, data_record_count=100, equality_delete_file_count=1, equality_delete_record_count=10)]

    assert found(deleted(rows, sequence_width=50), "equality_deletes") is not None
    assert found(deleted(rows), "equality_deletes") is None


def test_a_spec_whose_fields_are_all_void_is_unpartitioned_and_its_deletes_are_global() -> None:
    void = PartitionSpec(1, tuple(dataclasses.replace(f, transform="void") for f in BY_DAY.fields))
    rows = [*upserts(data={1: 100}, deletes={}), *upserts(data={}, deletes={2: 10}, of=Partition(1, (None,)))]
    facts = deleted(rows, specs=(BY_DAY, void), default_spec_id=0)

    assert [a.partition for a in equality_deletes_applied(facts)] == [partition()]


def test_the_most_that_one_file_needs_is_the_most_of_any_partition() -> None:
    many_files = [
        sequence(1, partition(1), data_file_count=1000, data_record_count=1000),
        *upserts(data={}, deletes={2: 10}, of=partition(1)),
    ]
    one_file = upserts(data={1: 100}, deletes={2: 900}, of=partition(2))
    groups = [file_group(*[MIB] * 1000, of=partition(1)), file_group(MIB, of=partition(2))]
    named = found(deleted([*many_files, *one_file], *groups), "equality_deletes")

    assert named is not None
    assert "one data file needs up to 900 delete records" in named.evidence


def test_a_table_whose_stock_rewrite_will_not_fit_is_not_told_to_run_one() -> None:
    rows = upserts(data={1: 10_000_000, 2: 10_000_000}, deletes={2: 40_000_000})
    facts = deleted(rows, file_group(*[MIB] * 6), equality_keys=(EqualityKey((1,), 2, 40_000_000),))
    large = {"spark.master": "yarn", "spark.executor.memory": "64g", "spark.executor.cores": "1"}

    usual, roomy = diagnose(facts), diagnose(facts, session_conf=large)

    told = {f.name: f for f in usual}
    assert "rewrite_data_files" not in str([f.sql for f in usual])
    assert told["equality_deletes"].remedy.startswith("Run icekit compact db.events, which applies the equality deletes as it rewrites")
    assert "and an executor usually has 8 GiB" in told["equality_deletes"].remedy
    assert told["small_files"].remedy.startswith("With icekit compact db.events (")
    fitting = next(f for f in roomy if f.name == "equality_deletes")
    assert fitting.remedy.startswith("Rewrite the data files that the deletes apply to: ")
    assert "this session has 64 GiB" in fitting.remedy
    assert "rewrite_data_files" in fitting.sql[0]
