"""Findings about what engines cannot read name the files, what is lost, and a way out for each kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from icekit import Severity, diagnose
from icekit.facts.model import Flaw, MetadataFlaw, MissingCount, MissingFile, MissingFiles, Partition, Role, TableFacts
from icekit.show.card import card, card_html, lines
from tests.diagnose.told import named, told
from tests.factories import BY_DAY, FIRST_DAY, MIB, UNPARTITIONED, file_group, partition, table_facts

PATH = "s3://bucket/events/data/00000.parquet"


def lost(role: Role = Role.DATA, gone: int = 1, resized: int = 0, **example: Any) -> MissingFiles:
    """Files of one role; the example is the first of them."""
    file: dict[str, Any] = {
        "path": PATH,
        "partition": partition(),
        "record_count": 10,
        "snapshot_id": 7,
        "size_in_bytes": 5,
        "actual_bytes": None,
    }
    records = 10 * (gone + resized)
    return MissingFiles((MissingCount(role, gone, resized, records),), (MissingFile(role, **{**file, **example}),))


def facts_of(missing: MissingFiles | None, **more: Any) -> TableFacts:
    groups = [file_group(MIB, MIB, of=partition(FIRST_DAY + day), records_per_file=10) for day in range(2)]
    return table_facts(groups=groups, missing=missing, **more)


def test_a_data_file_that_is_gone_is_told_with_its_partition_its_records_and_who_added_it() -> None:
    assert told(facts_of(lost()), "missing_files") == (
        Severity.CRITICAL,
        (PATH,),
        f"1 data file is gone, with 10 of 40 records. For example {PATH} (event_day=2026-01-01, added by snapshot 7)",
        (),
        1,
        0,
    )


def test_files_that_are_there_are_no_finding_and_neither_are_files_that_were_not_looked_up() -> None:
    for missing in (None, MissingFiles(), MissingFiles(unchecked="there are too many")):
        assert named(facts_of(missing), "missing_files") is None


def test_gone_and_resized_files_are_counted_apart() -> None:
    finding = named(facts_of(lost(gone=2, resized=1)), "missing_files")

    assert finding is not None
    assert finding.evidence.startswith(
        "2 data files are gone and 1 data file has another size than the metadata says, with 30 of 40 records."
    )


def test_only_partitions_that_lost_every_data_file_are_deleted() -> None:
    missing = replace(lost(gone=3), partitions=((partition(FIRST_DAY), 2), (partition(FIRST_DAY + 1), 1)))
    finding = named(facts_of(missing), "missing_files")

    assert finding is not None
    (statement,) = finding.sql
    assert statement.startswith("DELETE FROM `prod`.`db`.`events` WHERE ")
    assert "2026-01-01" in statement
    assert "2026-01-03" not in statement
    assert "it reads no file" in finding.remedy


def test_partitions_are_not_deleted_where_files_of_another_spec_may_have_their_rows() -> None:
    missing = replace(lost(gone=2), partitions=((partition(FIRST_DAY), 2),))
    groups = [file_group(MIB, MIB), file_group(MIB, of=Partition(1, ()))]
    several = table_facts(groups=groups, specs=(BY_DAY, replace(UNPARTITIONED, spec_id=1)), missing=missing)

    for facts in (several, facts_of(missing, ref="branch")):
        finding = named(facts, "missing_files")
        assert finding is not None
        assert finding.sql == ()
    assert told(facts_of(missing), "missing_files")[3]


def test_a_rollback_is_offered_only_to_a_snapshot_from_before_the_loss() -> None:
    before = named(facts_of(replace(lost(), before_id=5)), "missing_files")
    without = named(facts_of(lost()), "missing_files")

    assert before is not None
    assert "rollback_to_snapshot(table => 'db.events', snapshot_id => 5)" in before.remedy
    assert without is not None
    assert "rollback" not in without.remedy


@pytest.mark.parametrize(
    ("role", "severity", "evidence"),
    [
        (Role.DELETES, Severity.CRITICAL, "1 delete file is gone."),
        (Role.VECTOR, Severity.CRITICAL, "1 deletion vector is gone."),
        (Role.MANIFEST, Severity.CRITICAL, "1 manifest is gone."),
        (Role.MANIFEST_LIST, Severity.WARNING, "1 manifest list is gone."),
        (Role.STATISTICS, Severity.INFO, "1 statistics file is gone."),
    ],
)
def test_a_file_weighs_as_much_as_what_fails_without_it(role: Role, severity: Severity, evidence: str) -> None:
    finding = named(facts_of(lost(role, partition=None)), "missing_files")

    assert finding is not None
    assert finding.severity is severity
    assert finding.evidence.startswith(evidence)
    assert ("rollback" in finding.remedy or "deleteFile" in finding.remedy) is (severity is Severity.CRITICAL)


def test_a_snapshot_without_its_manifest_list_is_expired_by_its_id() -> None:
    finding = named(facts_of(lost(Role.MANIFEST_LIST, partition=None)), "missing_files")

    assert finding is not None
    assert finding.sql == ("CALL `prod`.system.expire_snapshots(table => 'db.events', snapshot_ids => array(7))",)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (facts_of(MissingFiles()), "searched for missing and orphan files"),
        (
            facts_of(MissingFiles(unchecked="there are too many files"), unlisted="gc.enabled is false"),
            "not searched for missing files: there are too many files; not searched for orphan files: gc.enabled is false",
        ),
        (
            facts_of(MissingFiles(), unlisted="gc.enabled is false"),
            "searched for missing files; not searched for orphan files: gc.enabled is false",
        ),
    ],
)
def test_the_card_says_what_was_not_looked_for(facts: TableFacts, said: str) -> None:
    assert dict(lines(facts))["storage"] == said


def test_the_card_says_that_storage_was_not_searched() -> None:
    facts = facts_of(None)

    assert "storage" not in dict(lines(facts))
    for shown in (card(facts, diagnose(facts)), card_html(facts, diagnose(facts))):
        assert "storage not searched (--storage)" in " ".join(shown.split())
    assert "not searched" not in card(facts_of(MissingFiles()), diagnose(facts))


def test_uncounted_manifests_are_critical_where_the_version_requires_counts_and_rewritten_with_all_files() -> None:
    flaw = MetadataFlaw(Flaw.UNCOUNTED_MANIFESTS, 2, ("/t/m0.avro", "/t/m1.avro"))
    old = named(facts_of(None, flaws=(flaw,), format_version=1), "unreadable_metadata")

    assert told(facts_of(None, flaws=(flaw,), format_version=3), "unreadable_metadata") == (
        Severity.CRITICAL,
        ("/t/m0.avro", "/t/m1.avro"),
        "2 manifests in the manifest list without numbers of files",
        (
            "CALL `prod`.system.rewrite_data_files(table => 'db.events', options => map('rewrite-all', 'true', 'use-starting-sequence-number', 'false'))",
        ),
        4,
        0,
    )
    assert old is not None
    assert old.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("flaw", "severity", "evidence"),
    [
        (Flaw.SCHEMA_GONE, Severity.CRITICAL, "1 observed snapshot names a schema that the metadata does not have"),
        (Flaw.OLD_SCHEMA_GONE, Severity.WARNING, "1 other snapshot with a schema that the metadata does not have"),
        (Flaw.ORDER_BY_DROPPED, Severity.WARNING, "1 former sort order by a column that was dropped"),
    ],
)
def test_each_flaw_of_the_metadata_is_told_with_what_fails(flaw: Flaw, severity: Severity, evidence: str) -> None:
    finding = named(facts_of(None, flaws=(MetadataFlaw(flaw, 1, ("7",)),)), "unreadable_metadata")

    assert finding is not None
    assert (finding.severity, finding.where, finding.evidence) == (severity, ("7",), evidence)
