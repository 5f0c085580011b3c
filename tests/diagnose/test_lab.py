"""Every lab table is named by the findings meant for it, and by no others."""

from __future__ import annotations

import pytest

import icekit
from icekit.api import Lake
from icekit.lab import TABLES
from icekit.sandbox import clone

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.lab(name)) for name in TABLES])
def test_a_lab_table_is_named_by_the_findings_meant_for_it_and_by_no_others(lake: Lake, name: str) -> None:
    facts = lake.observe(f"lab.{name}", size_ratios=icekit.Thresholds().size_ratios, storage=True)

    assert icekit.diagnose(facts).names == TABLES[name].findings


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.lab(name)) for name, table in TABLES.items() if table.findings])
def test_every_statement_of_a_remedy_is_one_that_spark_understands(lake: Lake, name: str) -> None:
    facts = lake.observe(f"lab.{name}", storage=True)
    parser = lake.spark._jsparkSession.sessionState().sqlParser()

    for finding in icekit.diagnose(facts):
        for statement in finding.sql:
            assert parser.parsePlan(statement) is not None, statement


@pytest.mark.lab("delays")
def test_a_coarser_transform_and_a_rewrite_leave_few_files_with_the_same_rows(lake: Lake) -> None:
    with clone(lake, ("lab", "delays")) as copy:
        before = lake.observe(copy.table)
        (finding,) = icekit.diagnose(before)
        for statement in finding.sql:
            lake.spark.sql(statement)
        after = lake.observe(copy.table)

        assert finding.name == "over_partitioned"
        assert icekit.diagnose(after) == ()
        assert after.data.file_count < before.data.file_count / 5
        assert after.data.record_count == before.data.record_count
