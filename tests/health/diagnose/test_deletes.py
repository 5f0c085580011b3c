"""Symptoms of merge-on-read, from counts per partition and sequence number."""

import dataclasses

import pytest

from icekit import Severity, Thresholds, diagnose
from icekit.health.facts.files import EqualityKey, SequenceCounts
from icekit.health.facts.integrity import DeleteState, UnappliedDeletes
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import delete_ratio, equality_deletes_applied
from icekit.iceberg.definition import PartitionSpec
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.partition import Partition
from tests.factories import BY_DAY, FIRST_DAY, MIB, file_group, partition, sequence, table_facts
from tests.health.diagnose.told import Borders, absent, named, present, required
from tests.maintain.delete_counts import facts_of, position

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


@pytest.mark.parametrize(
    ("ruled_out", "files", "loads", "most"), [(0, 2, 30, 20), (1, 2, 20, 10), (2, 1, 10, 10)]
)
def test_data_loads_the_deletes_of_later_sequence_numbers_that_key_bounds_do_not_rule_out(
    ruled_out: int, files: int, loads: int, most: int
) -> None:
    first, *rows = upserts({1: 100, 2: 100, 3: 100}, {2: 10, 3: 10})
    first = dataclasses.replace(
        first, ruled_out_file_count=ruled_out, ruled_out_record_count=10 * ruled_out
    )
    (applied,) = equality_deletes_applied(facts_of([first, *rows]))

    assert (applied.data_file_count, applied.record_loads) == (files, loads)
    assert applied.max_deletes_per_file == most


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
    facts = facts_of(rows, specs=(BY_DAY, spec), default_spec_id=0)

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


def test_the_most_that_one_file_needs_is_the_most_of_any_partition() -> None:
    rows = [
        sequence(1, data_file_count=1000, data_record_count=1000),
        *upserts({}, {2: 10}),
        *upserts({1: 100}, {2: 900}, NEXT),
    ]
    most = required(facts_of(rows), "equality_deletes")

    assert "up to 900 for one file" in most.evidence


#: More delete records than Spark's own rewrite has memory for in a usual executor.
TOO_MANY = facts_of(
    upserts({1: 10_000_000, 2: 10_000_000}, {2: 40_000_000}),
    file_group(*[MIB] * 6),
    equality_keys=(EqualityKey((1,), 2, 40_000_000),),
)


def test_a_table_whose_stock_rewrite_will_not_fit_is_not_told_to_run_one() -> None:
    large = {"spark.master": "yarn", "spark.executor.memory": "64g", "spark.executor.cores": "1"}
    roomy = required(TOO_MANY, "equality_deletes", session_conf=large)

    assert "rewrite_data_files" not in str([f.sql for f in diagnose(TOO_MANY)])
    assert roomy.remedy.startswith("Rewrite the data files that the deletes apply to: ")
    assert "this session has 64 GiB" in roomy.remedy
    assert "rewrite_data_files" in roomy.sql[0]


def under_equality(records: int = 10, *, rows: int = 100) -> TableFacts:
    """Two files of so many rows, the first of them under an equality delete."""
    data = file_group(*[500 * MIB] * 2, records_per_file=rows)
    return facts_of(upserts({1: rows, 2: rows}, {2: records}), data)


def test_data_files_without_a_row_under_equality_deletes_are_critical() -> None:
    finding = required(under_equality(1, rows=0), "equality_deletes")

    assert finding.severity is Severity.CRITICAL
    assert "for at most 1 of 2 data files (0 % of the rows)" in finding.evidence


def of_days(
    *deletes: int,
    kind: Kind = Kind.POSITION_DELETES,
    scoped: bool = True,
    well: bool = True,
    rows: int = 100,
    data: int = 1,
    more: int = 0,
) -> TableFacts:
    """A day each, with one file of 100 rows (the second day: ``rows``, ``more`` bytes) and one
    delete file of so many records; sequence numbers of both are ``data`` and 2.
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
        sized = WELL | {"well_sized_bytes": 500 * MIB + number * more} if well else {}
        sequences += [
            sequence(data, day, data_file_count=1, data_record_count=100, **sized),
            position(2, records=records, of=day),
        ]
    version = 3 if kind is Kind.DELETION_VECTORS else 2
    return facts_of(sequences, *groups, format_version=version)


def without_data(kind: Kind, state: DeleteState, **more: object) -> TableFacts:
    """One data file, and three delete files of another day that apply to nothing."""
    return table_facts(
        groups=(file_group(500 * MIB, records_per_file=100),),
        unapplied=(UnappliedDeletes(NEXT, kind, state, 3, 3 * MIB, 100),),
        **more,
    )


MERGE_ON_READ = table_facts(
    format_version=1,
    properties={
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "copy-on-write",
        "write.merge.mode": "merge-on-read",
    },
)
#: Deletes that name no single file.
WIDE = of_days(5, 5, scoped=False)
#: The deletes of the first of two days name single files.
MIXED = dataclasses.replace(WIDE, groups=of_days(5).groups + WIDE.groups[2:])
#: Data at 10,003 and deletes at 10,030 fall into one range of 50: they may apply.
RANGE = upserts({10_050: 100}, {10_050: 10})
BORDERS: Borders = {
    "equality_deletes": ([facts_of(RANGE, sequence_width=50)], [facts_of(RANGE)]),
    # A twentieth of the rows.
    **{
        kind.value: ([of_days(5, kind=kind)], [of_days(4, kind=kind)])
        for kind in (Kind.POSITION_DELETES, Kind.DELETION_VECTORS)
    },
    "v2_position_deletes": (
        [of_days(1), dataclasses.replace(of_days(1), format_version=3)],
        [of_days(1, kind=Kind.DELETION_VECTORS)],
    ),
    # Deletes that reach well-sized data, and name no single file.
    "deletes_default_rewrite_ignores": (
        [of_days(5, scoped=False, data=2), facts_of(upserts({1: 9}, {2: 9}, well=True))],
        [
            of_days(5, scoped=False, data=3),
            of_days(5, scoped=False, well=False),
            of_days(5),
            facts_of(upserts({1: 9}, {2: 9})),
        ],
    ),
    "merge_on_read_on_v1": (
        [MERGE_ON_READ],
        [
            dataclasses.replace(MERGE_ON_READ, format_version=2),
            dataclasses.replace(MERGE_ON_READ, properties={}),
        ],
    ),
}
#: From three tenths of the rows on, deletes are critical.
SEVERITIES = [
    ("equality_deletes", under_equality(60), Severity.CRITICAL),
    ("equality_deletes", under_equality(59), Severity.WARNING),
    *(
        (kind.value, of_days(30, records, kind=kind), severity)
        for kind in (Kind.POSITION_DELETES, Kind.DELETION_VECTORS)
        for records, severity in ((30, Severity.CRITICAL), (29, Severity.WARNING))
    ),
]


@pytest.mark.parametrize(
    ("name", "facts", "days"),
    [
        # By the records that a full scan loads.
        (
            "equality_deletes",
            facts_of([*upserts({1: 9}, {2: 15}), *upserts({1: 9, 2: 9}, {3: 10}, NEXT)]),
            (2, 1),
        ),
        # By the share of rows, and not by their number.
        ("position_deletes", of_days(10, 110, rows=2000), (1, 2)),
        ("deletes_default_rewrite_ignores", MIXED, (2,)),
        ("deletes_default_rewrite_ignores", of_days(5, 5, scoped=False, more=MIB), (2, 1)),
    ],
)
def test_the_partition_that_costs_most_comes_first(
    name: str, facts: TableFacts, days: tuple[int, ...]
) -> None:
    assert required(facts, name).where == tuple(f"event_day=2026-01-0{day}" for day in days)


def test_a_lower_limit_names_fewer_deletes() -> None:
    present("position_deletes", of_days(4), thresholds=Thresholds(delete_ratio=0.01))


#: A finding of each kind, as a golden file shows it.
SHOWN = {
    "equality_deletes": under_equality(),
    "equality_deletes that do not fit": TOO_MANY,
    "executor_cache": under_equality(),
    "misread_equality_deletes": dataclasses.replace(under_equality(), misread_keys=("s.k",)),
    "position_deletes": of_days(5, 15),
    "position_deletes that name no single file": WIDE,
    "v2_position_deletes": of_days(1),
    "deletion_vectors": of_days(5, 15, kind=Kind.DELETION_VECTORS),
    "dangling_deletes": without_data(Kind.POSITION_DELETES, DeleteState.DANGLING),
    "equality_deletes_of_new_keys": without_data(
        Kind.EQUALITY_DELETES, DeleteState.NEW_KEYS, properties={"write.upsert.enabled": "true"}
    ),
    "deletes_default_rewrite_ignores": WIDE,
    "merge_on_read_on_v1": MERGE_ON_READ,
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
