"""Findings about manifests that contradict each other tell what is wrong, who added it, and how to cure it."""

from __future__ import annotations

import pytest

from icekit import Severity, diagnose
from icekit.compact import Policy
from icekit.compact.candidates import candidates
from icekit.compact.plan import plan
from icekit.diagnose.findings import Findings, Thresholds
from icekit.errors import TableContradicted
from icekit.facts.integrity import Contradiction, DeleteState, DuplicateFile, Integrity, MisplacedDelete, NarrowManifest, UnappliedDeletes
from icekit.facts.model import Kind, Partition, PartitionSpec, TableFacts
from icekit.maintain.savings import wins
from icekit.show.card import lines
from tests.diagnose.told import named, told
from tests.factories import BY_DAY, FIRST_DAY, KIB, UNPARTITIONED, file_group, partition, table_facts

DAY, NEXT, GLOBAL = partition(), partition(FIRST_DAY + 1), Partition(1, ())
TWICE = Integrity(
    duplicate_data_file_count=2,
    duplicate_record_count=30,
    duplicate_partitions=(DAY,),
    duplicates=(DuplicateFile("s3://b/a.parquet", Kind.DATA, 2, (7, 9)), DuplicateFile("s3://b/b.parquet", Kind.DATA, 2, (8, 9))),
)
NARROW = NarrowManifest("s3://b/m0.avro", 0, False, "event_day", ("bcd1", "bcd1"), ("e3bcd1", "e3bcd1"))


def small(**more: object) -> TableFacts:
    """Ten files that a compaction would combine."""
    return table_facts(groups=(file_group(*[KIB] * 10),), **more)


def misplaced(state: DeleteState, data_path: str = "s3://b/a.parquet") -> TableFacts:
    delete = MisplacedDelete(state, "s3://b/d.parquet", GLOBAL, "s3://b/a.parquet", data_path, DAY, 9)
    return small(
        specs=(BY_DAY, PartitionSpec(1, UNPARTITIONED.fields)),
        unapplied=(UnappliedDeletes(GLOBAL, Kind.POSITION_DELETES, state, 1, KIB, 5),),
        integrity=Integrity(misplaced=(delete,)),
    )


def test_files_listed_twice_are_told_with_their_snapshots_and_a_statement_for_their_partitions() -> None:
    severity, where, evidence, (statement,), files, _ = told(small(integrity=TWICE), "duplicate_files")

    assert (severity, where, files) == (Severity.CRITICAL, ("s3://b/a.parquet", "s3://b/b.parquet"), 2)
    assert evidence == (
        "2 data files have more than one live entry, so scans count 30 rows again; s3://b/a.parquet has 2; added by snapshots 7, 8, 9"
    )
    assert statement.startswith("INSERT INTO `prod`.`db`.`events` REPLACE WHERE `event_time` >= TIMESTAMP '2026-01-01 00:00:00+00:00' AND ")
    assert statement.count("row_number() OVER (PARTITION BY _file, _pos ORDER BY _pos)") == 1


def test_a_statement_for_partitions_that_no_range_selects_is_for_the_whole_table() -> None:
    twice = Integrity(
        duplicate_delete_file_count=1, duplicate_partitions=(GLOBAL,), duplicates=TWICE.duplicates[:1], duplicate_manifests=("m0",)
    )
    found = told(small(integrity=twice, specs=(BY_DAY, PartitionSpec(1, ()))), "duplicate_files")

    assert "REPLACE WHERE true SELECT" in found[3][0]
    assert found[2].startswith("1 delete file has more than one live entry, so scans count 0 rows again")
    assert found[2].endswith("; 1 manifest is in the manifest list more than once")


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (DeleteState.DANGLING, "1 delete file that applies to no data file"),
        (DeleteState.MISFILED, "1 misfiled delete file"),
        (DeleteState.UNMATCHED, "1 delete file that applies to no data file"),
    ],
)
def test_the_card_says_of_misfiled_deletes_only_that_they_are(state: DeleteState, said: str) -> None:
    assert dict(lines(misplaced(state)))["deletes"].startswith(f"{said}; 0 records")


def test_misfiled_deletes_are_told_with_both_partitions() -> None:
    severity, where, evidence, (statement,), _, _ = told(misplaced(DeleteState.MISFILED), "misfiled_deletes")

    assert (severity, where) == (Severity.CRITICAL, ("(unpartitioned)",))
    assert evidence == (
        "1 delete file with 5 records is filed under another partition or spec than the data file that it names; s3://b/d.parquet, added by "
        "snapshot 9, is in (unpartitioned) of spec 1, and names s3://b/a.parquet in event_day=2026-01-01 of spec 0"
    )
    assert "'delete-file-threshold', '1'" in statement


def test_unmatched_deletes_are_told_with_both_spellings() -> None:
    facts = misplaced(DeleteState.UNMATCHED, "s3a://b/a.parquet")

    assert "names s3://b/a.parquet, and the table has s3a://b/a.parquet" in told(facts, "unmatched_deletes")[2]
    assert facts.contradictions == ()


@pytest.mark.parametrize(
    ("is_alone", "procedure"),
    [(False, "rewrite_manifests(table => 'db.events')"), (True, "rewrite_data_files(table => 'db.events', options")],
)
def test_narrow_summaries_are_told_with_both_ranges(is_alone: bool, procedure: str) -> None:
    narrow = NarrowManifest(NARROW.path, 0, False, NARROW.field, NARROW.listed, NARROW.held, is_alone=is_alone)
    found = told(small(integrity=Integrity(narrow_manifest_count=1, narrow_manifests=(narrow,))), "manifest_bounds")

    assert found[2] == (
        "1 manifest has a partition summary that is narrower than the entries; "
        "s3://b/m0.avro: the summary of event_day says bcd1, its entries hold e3bcd1"
    )
    assert procedure in found[3][0]


def test_a_summary_that_denies_nulls_says_so() -> None:
    narrow = NarrowManifest("m0", 1, False, "event_day", (None, None), (1, 3), missing="null")
    specs = (BY_DAY, PartitionSpec(1, BY_DAY.fields))
    found = told(
        small(integrity=Integrity(narrow_manifest_count=1, narrow_manifests=(narrow,)), specs=specs, default_spec_id=0), "manifest_bounds"
    )

    assert found[2].endswith("the summary of event_day says no value, its entries hold 1 to 3 and null")
    assert "spec_id => 1" in found[3][0]


CONTRADICTED = {
    Contradiction.DUPLICATE_FILES: small(integrity=TWICE),
    Contradiction.MISFILED_DELETES: misplaced(DeleteState.MISFILED),
    Contradiction.MANIFEST_BOUNDS: small(integrity=Integrity(narrow_manifest_count=1, narrow_manifests=(NARROW,))),
}


@pytest.mark.parametrize("name", list(Contradiction))
def test_a_contradicted_table_is_told_first_promises_nothing_and_is_not_planned(name: Contradiction) -> None:
    facts = CONTRADICTED[name]
    findings = diagnose(facts)

    assert findings[0].name == name
    assert named(facts, "small_files") is not None
    assert candidates(facts, findings, Policy(), Thresholds()) == ()
    assert wins(facts, findings).opens_saved == 0
    with pytest.raises(TableContradicted) as refused:
        plan(facts, findings)
    assert refused.value.contradictions == (name,)
    assert str(refused.value).startswith(f"The manifests of db.events contradict each other ({name}), so nothing is rewritten. ")


def test_without_a_contradiction_the_same_files_are_worth_a_rewrite() -> None:
    facts = small()

    assert candidates(facts, diagnose(facts), Policy(), Thresholds())
    assert plan(facts, Findings()).actions == ()
