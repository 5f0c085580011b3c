"""Findings about manifests that contradict each other, and about what engines cannot read, tell
what is wrong, who added it, what is lost, and a way out for each kind.
"""

import dataclasses
from typing import Any

import pytest

from icekit import diagnose
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import TableContradicted
from icekit.engine.column_types import Ability, Engine
from icekit.health.diagnose.findings import Findings, Thresholds
from icekit.health.facts.integrity import (
    Contradiction,
    DeleteState,
    DuplicateFile,
    Integrity,
    MisplacedDelete,
    NarrowManifest,
    UnappliedDeletes,
)
from icekit.health.facts.model import TableFacts, UnsupportedColumn
from icekit.health.facts.storage import MissingCount, MissingFile, MissingFiles, Role
from icekit.iceberg.definition import Flaw, MetadataFlaw, PartitionSpec
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.partition import Partition
from icekit.maintain.planning.candidates import candidates
from icekit.maintain.planning.compaction import plan
from icekit.maintain.planning.savings import savings_of
from icekit.show.card import card, named_fact_sentences
from tests.factories import (
    BY_DAY,
    FIRST_DAY,
    KIB,
    MIB,
    UNPARTITIONED,
    file_group,
    partition,
    table_facts,
)
from tests.health.diagnose.told import Borders, present, required

DAY, NEXT, GLOBAL = partition(), partition(FIRST_DAY + 1), Partition(1, ())
TWICE = Integrity(
    duplicate_data_file_count=2,
    duplicate_record_count=30,
    duplicate_partitions=(DAY,),
    duplicates=(
        DuplicateFile("s3://b/a.parquet", Kind.DATA, 2, (7, 9)),
        DuplicateFile("s3://b/b.parquet", Kind.DATA, 2, (8, 9)),
    ),
)
NARROW = NarrowManifest(
    "s3://b/m0.avro", 0, False, "event_day", ("bcd1", "bcd1"), ("e3bcd1", "e3bcd1")
)


def small(**more: object) -> TableFacts:
    """Ten files that a compaction would combine."""
    return table_facts(groups=(file_group(*[KIB] * 10),), **more)


def narrow(manifest: NarrowManifest, **more: object) -> TableFacts:
    return small(integrity=Integrity(narrow_manifest_count=1, narrow_manifests=(manifest,)), **more)


def misplaced(
    state: DeleteState, data_path: str = "s3://b/a.parquet", revived_count: int | None = None
) -> TableFacts:
    delete = MisplacedDelete(
        state, "s3://b/d.parquet", GLOBAL, "s3://b/a.parquet", data_path, DAY, 9, revived_count
    )
    return small(
        specs=(BY_DAY, PartitionSpec(1, UNPARTITIONED.fields)),
        unapplied=(UnappliedDeletes(GLOBAL, Kind.POSITION_DELETES, state, 1, KIB, 5),),
        integrity=Integrity(misplaced=(delete,)),
    )


def test_the_card_says_why_deletes_apply_to_nothing() -> None:
    for state in (DeleteState.DANGLING, DeleteState.MISFILED, DeleteState.UNMATCHED):
        said = dict(named_fact_sentences(misplaced(state)))["deletes"]
        assert said.startswith(f"1 {state} delete file; 0 records")


FUTURE = MetadataFlaw(Flaw.FUTURE_TIMES, 3, ("until 2027-01-01 00:00 UTC",))

CONTRADICTED = {
    Contradiction.DUPLICATE_FILES: small(integrity=TWICE),
    Contradiction.MISFILED_DELETES: misplaced(DeleteState.MISFILED),
    Contradiction.MANIFEST_BOUNDS: narrow(NARROW),
    Contradiction.SEVERAL_VECTORS: misplaced(DeleteState.SEVERAL_VECTORS),
    Contradiction.UNREADABLE_METADATA: small(flaws=(FUTURE,)),
}


@pytest.mark.parametrize("name", list(Contradiction))
def test_a_contradicted_table_is_told_first_promises_nothing_and_is_not_planned(
    name: Contradiction,
) -> None:
    facts = CONTRADICTED[name]
    findings = diagnose(facts)

    assert findings[0].name == name
    present("small_files", facts)
    assert candidates(facts, findings, CompactionPolicy(), Thresholds()) == ()
    assert savings_of(facts, findings).opens_saved == 0
    with pytest.raises(TableContradicted) as refused:
        plan(facts, findings)
    assert refused.value.contradictions == (name,)
    assert str(refused.value).startswith(
        f"The metadata of db.events must be fixed first ({name}), so nothing is rewritten. "
    )


def test_without_a_contradiction_the_same_files_are_worth_a_rewrite() -> None:
    facts = small()

    assert candidates(facts, diagnose(facts), CompactionPolicy(), Thresholds())
    assert plan(facts, Findings()).actions == ()


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
    return MissingFiles(
        (MissingCount(role, gone, resized, records),), (MissingFile(role, **{**file, **example}),)
    )


def facts_of(missing: MissingFiles | None, **more: Any) -> TableFacts:
    groups = [
        file_group(MIB, MIB, of=partition(FIRST_DAY + day), records_per_file=10) for day in range(2)
    ]
    return table_facts(groups=groups, missing=missing, **more)


def of_days(*gone: int, **more: Any) -> TableFacts:
    """Days of which so many of the two data files are gone."""
    counts = [(partition(FIRST_DAY + day), number) for day, number in enumerate(gone)]
    return facts_of(dataclasses.replace(lost(gone=sum(gone)), partitions=tuple(counts)), **more)


BORDERS: Borders = {
    "missing_files": (
        [facts_of(lost())],
        [
            facts_of(missing)
            for missing in (None, MissingFiles(), MissingFiles(unchecked="there are too many"))
        ],
    ),
}


def test_only_partitions_that_lost_every_data_file_are_deleted() -> None:
    finding = required(of_days(2, 1), "missing_files")

    (statement,) = finding.sql
    assert statement.startswith("DELETE FROM `prod`.`db`.`events` WHERE ")
    assert "2026-01-01" in statement
    assert "2026-01-03" not in statement
    assert "it reads no file" in finding.remedy


@pytest.mark.parametrize(
    "changes",
    [
        {
            "groups": (file_group(MIB, MIB), file_group(MIB, of=Partition(1, ()))),
            "specs": (BY_DAY, dataclasses.replace(UNPARTITIONED, spec_id=1)),
        },
        {"ref": "branch"},
        {
            "specs": (
                dataclasses.replace(
                    BY_DAY, fields=(dataclasses.replace(BY_DAY.fields[0], source=None),)
                ),
            )
        },
    ],
    ids=["files of another spec", "a branch", "a column that was dropped"],
)
def test_partitions_are_not_deleted_where_the_filter_may_select_other_rows(
    changes: dict[str, Any],
) -> None:
    assert required(of_days(2), "missing_files").sql
    assert required(dataclasses.replace(of_days(2), **changes), "missing_files").sql == ()


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (facts_of(MissingFiles()), "searched for missing and orphan files"),
        (
            facts_of(
                MissingFiles(unchecked="there are too many files"), unlisted="gc.enabled is false"
            ),
            "missing files are not decided: there are too many files; orphan files are not "
            "decided: gc.enabled is false",
        ),
        (
            facts_of(MissingFiles(), unlisted="gc.enabled is false"),
            "searched for missing files; orphan files are not decided: gc.enabled is false",
        ),
    ],
)
def test_the_card_says_what_is_not_decided(facts: TableFacts, said: str) -> None:
    assert dict(named_fact_sentences(facts))["storage"] == said
    assert "storage not searched" not in card(facts, diagnose(facts))


UNCOUNTED = MetadataFlaw(Flaw.UNCOUNTED_MANIFESTS, 2, ("/t/m0.avro", "/t/m1.avro"))
NO_RANGE = Integrity(
    duplicate_delete_file_count=1,
    duplicate_partitions=(GLOBAL,),
    duplicates=TWICE.duplicates[:1],
    duplicate_manifests=("m0",),
)
#: A finding of each kind, as a golden file shows it: how severe it is, with both partitions,
# spellings or ranges, what is lost, and the way out.
SHOWN = {
    "duplicate_files": small(integrity=TWICE),
    "duplicate_files in partitions that no range selects": small(
        integrity=NO_RANGE, specs=(BY_DAY, PartitionSpec(1, ()))
    ),
    "misfiled_deletes": misplaced(DeleteState.MISFILED),
    "unmatched_deletes": misplaced(DeleteState.UNMATCHED, "s3a://b/a.parquet"),
    "several_vectors": misplaced(DeleteState.SEVERAL_VECTORS),
    "replaced_deletes": misplaced(DeleteState.REPLACED),
    "replaced_deletes that bring rows back": misplaced(DeleteState.REPLACED, revived_count=2),
    "manifest_bounds": narrow(NARROW),
    "manifest_bounds of one manifest": narrow(dataclasses.replace(NARROW, is_alone=True)),
    "manifest_bounds without nulls": narrow(
        NarrowManifest("m0", 1, False, "event_day", (None, None), (1, 3), missing="null"),
        specs=(BY_DAY, PartitionSpec(1, BY_DAY.fields)),
        default_spec_id=0,
    ),
    "missing_files": facts_of(lost()),
    "missing_files and resized ones": facts_of(lost(gone=2, resized=1)),
    "missing_files with a snapshot from before": facts_of(dataclasses.replace(lost(), before_id=5)),
    **{
        f"missing_files of {role.name}": facts_of(lost(role, partition=None))
        for role in (Role.DELETES, Role.VECTOR, Role.MANIFEST, Role.MANIFEST_LIST, Role.STATISTICS)
    },
    "unsupported_columns": facts_of(
        None,
        unsupported_columns=(
            UnsupportedColumn(("at", "clock"), "time", Ability.READ),
            UnsupportedColumn(("v",), "variant", Ability.WRITE),
        ),
    ),
    "unsupported_columns that a newer engine reads": facts_of(
        None,
        unsupported_columns=(UnsupportedColumn(("g",), "geometry", Ability.READ),),
        engine=Engine("4.1", "1.11.0"),
    ),
    "unreadable_metadata": facts_of(None, flaws=(UNCOUNTED,), format_version=3),
    "unreadable_metadata of version 1": facts_of(None, flaws=(UNCOUNTED,), format_version=1),
    **{
        f"unreadable_metadata {flaw.name}": facts_of(None, flaws=(MetadataFlaw(flaw, 1, ("7",)),))
        for flaw in (
            Flaw.SCHEMA_GONE,
            Flaw.OLD_SCHEMA_GONE,
            Flaw.ORDER_BY_DROPPED,
        )
    },
    "unreadable_metadata MISCOUNTED_MANIFESTS": facts_of(
        None,
        flaws=(
            MetadataFlaw(
                Flaw.MISCOUNTED_MANIFESTS,
                2,
                (
                    "s3://b/m0.avro: 5 live files by the manifest list s3://b/snap-7.avro, 4 in the "
                    "manifest",
                ),
            ),
        ),
    ),
    "unreadable_metadata FUTURE_TIMES": facts_of(None, flaws=(FUTURE,)),
}


def test_unmatched_deletes_contradict_nothing() -> None:
    assert SHOWN["unmatched_deletes"].contradictions == ()
