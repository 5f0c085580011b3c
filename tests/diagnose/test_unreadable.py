"""Findings about what engines cannot read name the files, what is lost, and a way out for each
kind.
"""

from dataclasses import replace
from typing import Any

import pytest

from icekit import diagnose
from icekit.facts.definition import Flaw, MetadataFlaw
from icekit.facts.files import Partition
from icekit.facts.model import TableFacts
from icekit.facts.storage import MissingCount, MissingFile, MissingFiles, Role
from icekit.show.card import card, card_html, lines
from tests.diagnose.told import absent, required
from tests.factories import (
    BY_DAY,
    FIRST_DAY,
    MIB,
    UNPARTITIONED,
    file_group,
    partition,
    table_facts,
)

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
    return facts_of(replace(lost(gone=sum(gone)), partitions=tuple(counts)), **more)


def test_files_that_are_there_are_no_finding_and_neither_are_files_that_were_not_looked_up() -> (
    None
):
    for missing in (None, MissingFiles(), MissingFiles(unchecked="there are too many")):
        absent("missing_files", facts_of(missing))


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
            "specs": (BY_DAY, replace(UNPARTITIONED, spec_id=1)),
        },
        {"ref": "branch"},
        {"specs": (replace(BY_DAY, fields=(replace(BY_DAY.fields[0], source=None),)),)},
    ],
    ids=["files of another spec", "a branch", "a column that was dropped"],
)
def test_partitions_are_not_deleted_where_the_filter_may_select_other_rows(
    changes: dict[str, Any],
) -> None:
    assert required(of_days(2), "missing_files").sql
    assert required(replace(of_days(2), **changes), "missing_files").sql == ()


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (facts_of(MissingFiles()), "searched for missing and orphan files"),
        (
            facts_of(
                MissingFiles(unchecked="there are too many files"), unlisted="gc.enabled is false"
            ),
            "not searched for missing files: there are too many files; not searched for orphan "
            "files: gc.enabled is false",
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


UNCOUNTED = MetadataFlaw(Flaw.UNCOUNTED_MANIFESTS, 2, ("/t/m0.avro", "/t/m1.avro"))
#: A finding of each kind, as a golden file shows it: how severe it is, what is lost, and the way
# out.
SHOWN = {
    "missing_files": facts_of(lost()),
    "missing_files and resized ones": facts_of(lost(gone=2, resized=1)),
    "missing_files with a snapshot from before": facts_of(replace(lost(), before_id=5)),
    **{
        f"missing_files of {role.name}": facts_of(lost(role, partition=None))
        for role in (Role.DELETES, Role.VECTOR, Role.MANIFEST, Role.MANIFEST_LIST, Role.STATISTICS)
    },
    "unreadable_metadata": facts_of(None, flaws=(UNCOUNTED,), format_version=3),
    "unreadable_metadata of version 1": facts_of(None, flaws=(UNCOUNTED,), format_version=1),
    **{
        f"unreadable_metadata {flaw.name}": facts_of(None, flaws=(MetadataFlaw(flaw, 1, ("7",)),))
        for flaw in (Flaw.SCHEMA_GONE, Flaw.OLD_SCHEMA_GONE, Flaw.ORDER_BY_DROPPED)
    },
}
