"""A table is one table, whichever name its catalog goes by."""

from dataclasses import replace
from pathlib import Path

import pytest

import icekit
from icekit.api import Lake
from icekit.common.errors import RunDisproved, Status, TableClaimed
from icekit.maintain.run.blocked import clear_blocking_runs
from tests.maintain.records import RUN
from tests.maintain.tables import Table

pytestmark = [pytest.mark.spark, pytest.mark.core]


@pytest.fixture
def aliases(lake: Lake, tmp_path: Path) -> tuple[Table, Table]:
    """One table of a running session under two names of its catalog."""
    session = lake.spark.newSession()
    for name in ("one", "two"):
        session.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
        session.conf.set(f"spark.sql.catalog.{name}.type", "hadoop")
        session.conf.set(f"spark.sql.catalog.{name}.warehouse", str(tmp_path / "warehouse"))
    table, other = (
        Table(icekit.connect(name, spark=session), "db", "t", tmp_path) for name in ("one", "two")
    )
    return table.create(by="").fill(), other


def test_a_table_that_is_held_under_another_name_of_its_catalog_is_refused(
    aliases: tuple[Table, Table],
) -> None:
    table, other = aliases
    plan = other.plan()
    assert plan.catalog == "two"

    with (
        other.ledger().hold("one.db.t", "first", plan.table_uuid),
        pytest.raises(
            TableClaimed,
            match=r"two\.db\.t \(which that run knows as one\.db\.t\) is claimed by run first",
        ),
    ):
        other.run(plan)
    assert table.file_count() == 5
    assert other.run(plan).status == Status.DONE
    assert other.ledger().claims() == ()


def test_a_disproof_under_one_name_holds_the_table_back_under_the_other(
    aliases: tuple[Table, Table],
) -> None:
    table, other = aliases
    plan = other.plan()
    disproved = replace(RUN, table=table.full_name, table_uuid=plan.table_uuid, plan={})
    other.ledger().save_run(replace(disproved, status=Status.DISPROVED, error="a row is missing"))

    with pytest.raises(RunDisproved, match=r"run r1 on two\.db\.t, .* a row is missing"):
        other.run(plan)
    cleared = clear_blocking_runs(other.lake, other.name, "r1", ledger=str(other.book))
    assert [record.run_id for record in cleared] == ["r1"]
    assert other.run(plan).status == Status.DONE
