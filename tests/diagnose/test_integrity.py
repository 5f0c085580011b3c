"""Findings about manifests that contradict each other tell what is wrong, who added it, and how to
cure it.
"""

import dataclasses

import pytest

from icekit import diagnose
from icekit.compact.candidates import candidates
from icekit.compact.plan import plan
from icekit.compact.policy import Policy
from icekit.diagnose.findings import Findings, Thresholds
from icekit.errors import TableContradicted
from icekit.facts.definition import PartitionSpec
from icekit.facts.files import Kind, Partition
from icekit.facts.integrity import (
    Contradiction,
    DeleteState,
    DuplicateFile,
    Integrity,
    MisplacedDelete,
    NarrowManifest,
    UnappliedDeletes,
)
from icekit.facts.model import TableFacts
from icekit.maintain.savings import wins
from icekit.show.card import lines
from tests.diagnose.told import present
from tests.factories import (
    BY_DAY,
    FIRST_DAY,
    KIB,
    UNPARTITIONED,
    file_group,
    partition,
    table_facts,
)

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


def misplaced(state: DeleteState, data_path: str = "s3://b/a.parquet") -> TableFacts:
    delete = MisplacedDelete(
        state, "s3://b/d.parquet", GLOBAL, "s3://b/a.parquet", data_path, DAY, 9
    )
    return small(
        specs=(BY_DAY, PartitionSpec(1, UNPARTITIONED.fields)),
        unapplied=(UnappliedDeletes(GLOBAL, Kind.POSITION_DELETES, state, 1, KIB, 5),),
        integrity=Integrity(misplaced=(delete,)),
    )


def test_the_card_says_why_deletes_apply_to_nothing() -> None:
    for state in (DeleteState.DANGLING, DeleteState.MISFILED, DeleteState.UNMATCHED):
        said = dict(lines(misplaced(state)))["deletes"]
        assert said.startswith(f"1 {state} delete file; 0 records")


CONTRADICTED = {
    Contradiction.DUPLICATE_FILES: small(integrity=TWICE),
    Contradiction.MISFILED_DELETES: misplaced(DeleteState.MISFILED),
    Contradiction.MANIFEST_BOUNDS: narrow(NARROW),
}


@pytest.mark.parametrize("name", list(Contradiction))
def test_a_contradicted_table_is_told_first_promises_nothing_and_is_not_planned(
    name: Contradiction,
) -> None:
    facts = CONTRADICTED[name]
    findings = diagnose(facts)

    assert findings[0].name == name
    present("small_files", facts)
    assert candidates(facts, findings, Policy(), Thresholds()) == ()
    assert wins(facts, findings).opens_saved == 0
    with pytest.raises(TableContradicted) as refused:
        plan(facts, findings)
    assert refused.value.contradictions == (name,)
    assert str(refused.value).startswith(
        f"The manifests of db.events contradict each other ({name}), so nothing is rewritten. "
    )


def test_without_a_contradiction_the_same_files_are_worth_a_rewrite() -> None:
    facts = small()

    assert candidates(facts, diagnose(facts), Policy(), Thresholds())
    assert plan(facts, Findings()).actions == ()


NO_RANGE = Integrity(
    duplicate_delete_file_count=1,
    duplicate_partitions=(GLOBAL,),
    duplicates=TWICE.duplicates[:1],
    duplicate_manifests=("m0",),
)
#: A finding of each kind, as a golden file shows it: with both partitions, spellings or ranges,
# and a statement.
SHOWN = {
    "duplicate_files": small(integrity=TWICE),
    "duplicate_files in partitions that no range selects": small(
        integrity=NO_RANGE, specs=(BY_DAY, PartitionSpec(1, ()))
    ),
    "misfiled_deletes": misplaced(DeleteState.MISFILED),
    "unmatched_deletes": misplaced(DeleteState.UNMATCHED, "s3a://b/a.parquet"),
    "manifest_bounds": narrow(NARROW),
    "manifest_bounds of one manifest": narrow(dataclasses.replace(NARROW, is_alone=True)),
    "manifest_bounds without nulls": narrow(
        NarrowManifest("m0", 1, False, "event_day", (None, None), (1, 3), missing="null"),
        specs=(BY_DAY, PartitionSpec(1, BY_DAY.fields)),
        default_spec_id=0,
    ),
}


def test_unmatched_deletes_contradict_nothing() -> None:
    assert SHOWN["unmatched_deletes"].contradictions == ()
