"""A table is one table, whichever name its catalog goes by."""

from pathlib import Path

import pytest

import icekit
from icekit.api import Lake
from icekit.compact.claims import RunRecord, claimed
from icekit.errors import RunDisproved, TableClaimed
from icekit.run.blocked import clear
from icekit.sql import display_name
from icekit.status import Status
from tests.compact.tables import Table

pytestmark = pytest.mark.spark


@pytest.fixture
def aliases(lake: Lake, tmp_path: Path) -> tuple[Lake, Lake]:
    """One catalog of a running session under two names."""
    session = lake.spark.newSession()
    for name in ("one", "two"):
        session.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
        session.conf.set(f"spark.sql.catalog.{name}.type", "hadoop")
        session.conf.set(f"spark.sql.catalog.{name}.warehouse", str(tmp_path / "warehouse"))
    return icekit.connect("one", spark=session), icekit.connect("two", spark=session)


def test_a_table_that_is_held_under_another_name_of_its_catalog_is_refused(
    aliases: tuple[Lake, Lake], tmp_path: Path
) -> None:
    one, two = aliases
    table = Table(one, "db", "t", tmp_path).create(by="").fill()
    other = Table(two, "db", "t", tmp_path)
    plan = other.plan()
    assert plan.catalog == "two"

    with (
        claimed(other.ledger(), "one.db.t", "first", plan.table_uuid),
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
    aliases: tuple[Lake, Lake], tmp_path: Path
) -> None:
    one, two = aliases
    Table(one, "db", "t", tmp_path).create(by="").fill()
    other = Table(two, "db", "t", tmp_path)
    plan = other.plan()
    full = display_name(one.sql_name(("db", "t")))
    other.ledger().save_run(
        RunRecord(
            "r1",
            full,
            plan.table_uuid,
            Status.DISPROVED,
            1,
            2,
            None,
            {},
            "host",
            1,
            "a row is missing",
        )
    )

    with pytest.raises(RunDisproved, match=r"run r1 on two\.db\.t, .* a row is missing"):
        other.run(plan)
    assert [record.run_id for record in clear(two, ("db", "t"), "r1", ledger=str(other.book))] == [
        "r1"
    ]
    assert other.run(plan).status == Status.DONE
