"""Orphans are not removed where another table of the catalog keeps files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from icekit.api import Lake
from icekit.clone import clone
from icekit.compact import Plan
from icekit.compact.lineage import head
from icekit.diagnose import diagnose
from icekit.maintain import plan_maintenance_table
from icekit.prove import prove_erased
from icekit.run.service import run
from icekit.sql import identifier

pytestmark = pytest.mark.spark

Make = Callable[..., Any]


def rows(lake: Lake, *table: str) -> int:
    lake.spark.sql(f"REFRESH TABLE {identifier(lake.name, *table)}")
    return lake.spark.sql(f"SELECT * FROM {identifier(lake.name, *table)}").count()


def age(lake: Lake, table: tuple[str, ...], days: float = 10) -> None:
    """Make every file at a table's location some days old."""
    then = time.time() - days * 86_400
    for path in Path(head(lake, table).metadata["location"].removeprefix("file:")).rglob("*"):
        os.utime(path, (then, then))


@pytest.fixture
def swapped(lake: Lake, scratch: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """A table that took another's name and, with it, its location."""
    table, old = (scratch, "a"), (scratch, "a_old")
    name = identifier(lake.name, *table)
    lake.spark.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg")
    lake.spark.sql(f"INSERT INTO {name} VALUES (1), (2)")
    lake.spark.sql(f"ALTER TABLE {name} RENAME TO {identifier(*old)}")
    lake.spark.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg")
    lake.spark.sql(f"INSERT INTO {name} VALUES (3)")
    age(lake, table)
    return table, old


@pytest.fixture
def littered(lake: Lake, scratch: str, lose: Make) -> tuple[tuple[str, str], Path]:
    """A table, and a file in its folder that no snapshot names."""
    table = (scratch, "littered")
    lake.spark.sql(f"CREATE TABLE {identifier(lake.name, *table)} USING iceberg AS SELECT 1 AS id")
    return table, lose(table)


def planned(lake: Lake, table: tuple[str, ...]) -> Plan:
    facts = lake.observe(table, storage=True)
    return plan_maintenance_table(lake, facts, diagnose(facts), procedures=["remove_orphan_files"])


def test_a_table_that_was_swapped_out_is_not_taken_for_orphans(lake: Lake, swapped: Any) -> None:
    table, old = swapped
    location = head(lake, table).metadata["location"]

    facts = lake.observe(table, storage=True)
    findings = diagnose(facts)
    plan = plan_maintenance_table(lake, facts, findings, procedures=["remove_orphan_files"])

    assert findings.names == {"shared_location"}
    assert facts.storage is not None
    assert (facts.storage.orphan_count, facts.storage.examples) == (0, ())
    assert plan.actions == ()
    assert f"shared location with scratch.a_old ({location})" in repr(plan)
    assert (rows(lake, *old), rows(lake, *table)) == (2, 1)


def test_a_table_that_came_after_the_plan_is_looked_for_again(lake: Lake, littered: Any, scratch: str, tmp_path: Path) -> None:
    table, lost = littered
    plan = planned(lake, table)
    assert len(plan.actions) == 1
    metadata_file = lake.tables.source(table).metadata_location
    lake.spark.sql(f"CALL {identifier(lake.name)}.system.register_table(table => '{scratch}.late', metadata_file => '{metadata_file}')")

    outcome = run(lake, plan, execute=True, ledger=str(tmp_path / "ledger.db"), progress=lambda _: None)
    lake.spark.sql(f"DROP TABLE {identifier(lake.name, scratch, 'late')}")

    assert outcome.status == "failed"
    assert "shared location with scratch.late" in (outcome.actions[0].error or "")
    assert lost.exists()


def test_a_clone_that_reads_the_table_does_not_keep_its_orphans(lake: Lake, littered: Any, tmp_path: Path) -> None:
    table, lost = littered

    with clone(lake, table):
        outcome = run(lake, planned(lake, table), execute=True, ledger=str(tmp_path / "ledger.db"), progress=lambda _: None)

    assert outcome.status == "done", outcome
    assert not lost.exists()


def test_erasure_does_not_advise_to_remove_what_may_be_another_tables(lake: Lake, swapped: Any) -> None:
    table, _ = swapped

    proof = prove_erased(lake, table, "id = 1")

    assert proof.erased is False
    assert not any("remove_orphan_files" in statement for statement in proof.actions)
    assert any("shared location with scratch.a_old" in note for note in proof.notes)
