"""Spark and the JVM-free collector give equal facts for every table of the lab."""

import pytest

from icekit.api import Lake
from icekit.facts import Kind
from tests.facts.both import observed_both_ways
from tests.workshop import each_lab_table

pytestmark = pytest.mark.spark


@each_lab_table()
def test_collectors_agree_on_every_lab_table(lake: Lake, name: str) -> None:
    observed_both_ways(lake, f"lab.{name}")


@each_lab_table(["small_files", "equality_deletes", "deletion_vectors", "position_deletes"])
def test_facts_count_what_the_metadata_tables_count(lake: Lake, name: str) -> None:
    facts = lake.observe(f"lab.{name}", collector="local")
    counted = {
        row["content"]: (row["files"], row["records"])
        for row in lake.spark.sql(
            "SELECT content, count(*) AS files, sum(record_count) AS records FROM "
            f"lake.lab.{name}.files GROUP BY content"
        ).collect()
    }

    position = [facts.total(Kind.POSITION_DELETES), facts.total(Kind.DELETION_VECTORS)]
    assert (facts.data.file_count, facts.data.record_count) == counted[0]
    assert (
        sum(t.file_count for t in position),
        sum(t.record_count for t in position),
    ) == counted.get(1, (0, 0))
    equality = facts.total(Kind.EQUALITY_DELETES)
    assert (equality.file_count, equality.record_count) == counted.get(2, (0, 0))
