"""Findings about deletes tell the figures they rest on, and begin exactly at their limits."""

from __future__ import annotations

import dataclasses

import pytest

from icekit import Severity, Thresholds, diagnose
from icekit.facts.model import DeleteState, Kind, Partition, TableFacts, UnappliedDeletes
from icekit.facts.rollup import delete_ratio
from tests.diagnose.told import named, told
from tests.factories import FIRST_DAY, MIB, file_group, partition, sequence, table_facts

CALL = "CALL `prod`.system.rewrite_data_files(table => 'db.events', options => map('partial-progress.enabled', 'true', {}, 'use-starting-sequence-number', 'false'))"
DAY, NEXT = partition(), partition(FIRST_DAY + 1)
GLOBAL = Partition(1, ())


def under_equality(records: int = 10, *, rows: int = 100) -> TableFacts:
    """Two files of so many rows, the first of them under an equality delete."""
    return table_facts(
        groups=(
            file_group(*[500 * MIB] * 2, records_per_file=rows),
            file_group(MIB, kind=Kind.EQUALITY_DELETES, records_per_file=records),
        ),
        sequences=(
            sequence(1, data_file_count=1, data_record_count=rows),
            sequence(2, data_file_count=1, data_record_count=rows, equality_delete_file_count=1, equality_delete_record_count=records),
        ),
    )


def test_equality_deletes_are_told_with_what_readers_load() -> None:
    # The newer file is not under the delete: half of the files, and of their 1000 MiB.
    assert told(under_equality(), "equality_deletes") == (
        Severity.WARNING,
        ("event_day=2026-01-01",),
        "10 equality delete records in 1 file apply to at most 1 of 2 data files (50 % of the rows); "
        "one data file needs up to 10 delete records, a full scan loads 10",
        (CALL.format("'delete-file-threshold', '1'"),),
        2,
        501 * MIB,
    )


def test_the_rewrite_under_deletes_keeps_the_limits_that_were_changed() -> None:
    found = told(under_equality(), "equality_deletes", thresholds=Thresholds(min_file_size_ratio=0.5))

    assert "'min-file-size-bytes', '268435456'" in found[3][0]


def test_equality_deletes_are_critical_from_three_tenths_of_the_rows_on() -> None:
    assert told(under_equality(60), "equality_deletes")[0] is Severity.CRITICAL
    assert told(under_equality(59), "equality_deletes")[0] is Severity.WARNING


def test_data_files_without_a_row_under_equality_deletes_are_critical() -> None:
    found = told(under_equality(1, rows=0), "equality_deletes")

    assert found[0] is Severity.CRITICAL
    assert "applies to at most 1 of 2 data files (0 % of the rows)" in found[2]


def test_the_partition_whose_deletes_are_loaded_most_comes_first() -> None:
    rows = [sequence(1, day, data_file_count=n, data_record_count=100) for day, n in ((DAY, 1), (NEXT, 3))]
    rows += [sequence(2, day, equality_delete_file_count=1, equality_delete_record_count=10) for day in (DAY, NEXT)]
    groups = [file_group(*[500 * MIB] * n, of=day, records_per_file=100) for day, n in ((DAY, 1), (NEXT, 3))]
    groups += [file_group(MIB, kind=Kind.EQUALITY_DELETES, of=day, records_per_file=10) for day in (DAY, NEXT)]

    found = told(table_facts(groups=groups, sequences=tuple(rows)), "equality_deletes")

    assert found[1] == ("event_day=2026-01-02", "event_day=2026-01-01")
    assert repr(found[5]) == str(2 * MIB + 4 * 500 * MIB)


def test_the_executor_cache_is_told_as_it_is_known() -> None:
    on = "the executor cache for delete files is on in {}, and 1 equality delete file applies to this table"

    assert told(under_equality(), "executor_cache") == (
        Severity.WARNING,
        (),
        on.format("every Spark session that does not turn it off"),
        (),
        1,
        0,
    )
    assert told(under_equality(), "executor_cache", session_conf={})[2] == on.format("this session")


def of_days(
    *deletes: int, kind: Kind = Kind.POSITION_DELETES, scoped: bool = True, well: bool = True, data: int = 1, later: int = 2
) -> TableFacts:
    """A day each, with one file of 100 rows and one delete file of so many records; sequence numbers of both."""
    groups, rows = [], []
    for place, records in enumerate(deletes):
        day = partition(FIRST_DAY + place)
        groups += [
            file_group(500 * MIB, of=day, records_per_file=100),
            file_group(MIB, kind=kind, of=day, records_per_file=records, file_scoped_count=int(scoped)),
        ]
        sized = {"well_sized_file_count": 1, "well_sized_bytes": 500 * MIB} if well else {}
        rows += [
            sequence(data, day, data_file_count=1, data_record_count=100, **sized),
            sequence(later, day, position_delete_file_count=1, position_delete_record_count=records),
        ]
    return table_facts(groups=groups, sequences=tuple(rows), format_version=3 if kind is Kind.DELETION_VECTORS else 2)


def test_position_deletes_are_told_with_their_share_and_both_calls() -> None:
    assert told(of_days(5, 15), "position_deletes") == (
        Severity.WARNING,
        ("event_day=2026-01-02", "event_day=2026-01-01"),
        "20 position delete records in 2 delete files for 200 rows (10 %); 2 delete files name a single data file",
        (
            CALL.format("'delete-ratio-threshold', '0.05'"),
            "CALL `prod`.system.rewrite_position_delete_files(table => 'db.events')",
        ),
        2,
        2 * MIB,
    )


def test_the_partition_that_lost_the_largest_share_comes_first() -> None:
    groups = [
        file_group(500 * MIB, of=DAY, records_per_file=100),
        file_group(MIB, kind=Kind.POSITION_DELETES, of=DAY, records_per_file=10, file_scoped_count=1),
        file_group(500 * MIB, of=NEXT, records_per_file=2000),
        file_group(MIB, kind=Kind.POSITION_DELETES, of=NEXT, records_per_file=110, file_scoped_count=1),
    ]

    assert told(table_facts(groups=groups), "position_deletes")[1] == ("event_day=2026-01-01", "event_day=2026-01-02")


@pytest.mark.parametrize(("kind", "name"), [(Kind.POSITION_DELETES, "position_deletes"), (Kind.DELETION_VECTORS, "deletion_vectors")])
def test_deletes_of_rows_are_critical_from_three_tenths_of_the_rows_on(kind: Kind, name: str) -> None:
    assert told(of_days(30, 30, kind=kind), name)[0] is Severity.CRITICAL
    assert told(of_days(30, 29, kind=kind), name)[0] is Severity.WARNING


def test_version_2_is_told_of_the_upgrade() -> None:
    assert told(of_days(1), "v2_position_deletes") == (
        Severity.INFO,
        (),
        "format version 2 with 1 position delete file",
        ("ALTER TABLE `prod`.`db`.`events` SET TBLPROPERTIES ('format-version' = '3')",),
        1,
        MIB,
    )


def test_vectors_are_told_with_the_rows_and_files_they_hide() -> None:
    assert told(of_days(5, 15, kind=Kind.DELETION_VECTORS), "deletion_vectors") == (
        Severity.WARNING,
        ("event_day=2026-01-02", "event_day=2026-01-01"),
        "2 deletion vectors hide 20 of 200 rows (10 %) in 100 % of the data files",
        (CALL.format("'delete-ratio-threshold', '0.05'"),),
        2,
        2 * MIB,
    )


def unapplied(state: DeleteState, of: Partition = DAY, files: int = 2, records: int = 100) -> UnappliedDeletes:
    """Position deletes of so many records that apply to nothing."""
    return UnappliedDeletes(of, Kind.POSITION_DELETES, state, files, files * MIB, records)


def test_deletes_that_apply_to_nothing_are_dangling_and_count_for_nothing_else() -> None:
    facts = table_facts(groups=(file_group(500 * MIB, records_per_file=100),), unapplied=(unapplied(DeleteState.DANGLING, NEXT),))

    assert told(facts, "dangling_deletes") == (
        Severity.WARNING,
        ("event_day=2026-01-02",),
        "2 of 2 delete files (100 records) apply to no data file",
        (),
        2,
        2 * MIB,
    )
    assert diagnose(facts).names == {"dangling_deletes"}
    assert delete_ratio(facts).by_records == 0
    assert facts.contradictions == ()


def test_deletes_of_new_keys_are_told_with_the_writers_setting_and_count_for_nothing_else() -> None:
    new = UnappliedDeletes(NEXT, Kind.EQUALITY_DELETES, DeleteState.NEW_KEYS, 3, 3 * MIB, 100)
    upserts = {"write.upsert.enabled": "true"}
    facts = table_facts(groups=(file_group(500 * MIB, records_per_file=100),), unapplied=(new,), properties=upserts)

    assert told(facts, "equality_deletes_of_new_keys") == (
        Severity.WARNING,
        ("event_day=2026-01-02",),
        "3 of 3 equality delete files (100 records) delete only keys outside the key ranges of all older data files",
        ("ALTER TABLE `prod`.`db`.`events` SET TBLPROPERTIES ('write.upsert.enabled' = 'false')",),
        3,
        3 * MIB,
    )
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
    facts = table_facts(groups=groups, unapplied=(unapplied(DeleteState.DANGLING, files=1, records=1),))

    assert told(facts, "dangling_deletes")[2] == "1 of 2 delete files (1 record) applies to no data file"
    assert named(facts, "v2_position_deletes") is not None
    assert named(facts, "position_deletes") is None


def test_what_a_default_rewrite_ignores_is_told_by_partition_the_largest_first() -> None:
    facts = of_days(5, 5, scoped=False)
    larger = [
        dataclasses.replace(row, well_sized_bytes=900 * MIB) if row.partition == NEXT and row.data_file_count else row
        for row in facts.sequences
    ]

    assert told(dataclasses.replace(facts, sequences=tuple(larger)), "deletes_default_rewrite_ignores") == (
        Severity.WARNING,
        ("event_day=2026-01-02", "event_day=2026-01-01"),
        "2 of 2 data files are well-sized and have deletes that a default rewrite_data_files does not count",
        (CALL.format("'delete-file-threshold', '1'"),),
        2,
        1400 * MIB,
    )


def test_position_deletes_reach_data_of_their_own_sequence_number_and_none_after_it() -> None:
    assert named(of_days(5, scoped=False, data=2, later=2), "deletes_default_rewrite_ignores") is not None
    assert named(of_days(5, scoped=False, data=3, later=2), "deletes_default_rewrite_ignores") is None
    assert named(of_days(5, scoped=False, well=False), "deletes_default_rewrite_ignores") is None


def test_a_partition_whose_deletes_name_single_files_does_not_hide_the_next() -> None:
    facts = of_days(5, 5, scoped=False)
    first = [dataclasses.replace(g, file_scoped_count=g.file_count) if g.partition == DAY else g for g in facts.groups]

    assert told(dataclasses.replace(facts, groups=tuple(first)), "deletes_default_rewrite_ignores")[1] == ("event_day=2026-01-02",)


def test_merge_on_read_on_a_table_that_cannot_have_delete_files_is_told_with_the_settings_to_remove() -> None:
    modes = {"write.delete.mode": "merge-on-read", "write.update.mode": "copy-on-write", "write.merge.mode": "merge-on-read"}

    severity, where, evidence, statements, *_ = told(table_facts(format_version=1, properties=modes), "merge_on_read_on_v1")

    assert (severity, where) == (Severity.WARNING, ("write.delete.mode", "write.merge.mode"))
    assert evidence == "format version 1 with write.delete.mode = merge-on-read, write.merge.mode = merge-on-read"
    assert statements == ("ALTER TABLE `prod`.`db`.`events` UNSET TBLPROPERTIES IF EXISTS ('write.delete.mode', 'write.merge.mode')",)
    assert named(table_facts(format_version=2, properties=modes), "merge_on_read_on_v1") is None
    assert named(table_facts(format_version=1), "merge_on_read_on_v1") is None
