"""Every lab table is named by the findings meant for it, and by no others."""

import pytest

import icekit
from icekit.api import Lake
from icekit.common.sql import identifier
from icekit.learn.lab import lab_tables
from icekit.sandbox.clones import clone
from tests.workshop import each_lab_table

pytestmark = pytest.mark.spark


@each_lab_table()
def test_a_lab_table_has_the_findings_meant_for_it_and_spark_understands_their_statements(
    lake: Lake, name: str
) -> None:
    facts = lake.observe(f"lab.{name}", size_ratios=icekit.Thresholds().size_ratios, storage=True)
    findings = icekit.diagnose(facts)
    parser = lake.spark._jsparkSession.sessionState().sqlParser()

    assert findings.names == lab_tables()[name].findings
    for finding in findings:
        for statement in finding.sql:
            assert parser.parsePlan(statement) is not None, statement


ITSELF = "CALL {c}.system.rewrite_data_files(table => '{n}', options => map('rewrite-all', 'true'))"
# What cures a finding, other than its statements: what its remedy says in words, with {t} and {n}
# for the table.
CURES: dict[str, tuple[str, ...]] = {
    "bytes_outside_columns": (
        "ALTER TABLE {t} UNSET TBLPROPERTIES "
        "('write.parquet.bloom-filter-enabled.column.flight_id', "
        "'write.parquet.bloom-filter-enabled.column.tailnum', "
        "'write.parquet.bloom-filter-enabled.column.flight')",
        ITSELF,
    ),
    "one_writing_task": (
        "ALTER TABLE {t} WRITE ORDERED BY time_hour",
        "INSERT OVERWRITE {t} SELECT * FROM {t}",
    ),
    "identifiers_not_unique": ("INSERT OVERWRITE {t} SELECT DISTINCT * FROM {t}",),
    "heavy_metadata": ("ALTER TABLE {t} UNSET TBLPROPERTIES ('quality.report')",),
    # Compact between the DELETE statements. The finding rests on recent commits, so it takes some.
    "vectors_rewritten": tuple(
        statement
        for carrier in ("WN", "US", "UA", "MQ", "EV", "DL")
        for statement in (
            "CALL {c}.system.rewrite_data_files(table => '{n}', options => "
            "map('delete-file-threshold', '1'))",
            f"DELETE FROM {{t}} WHERE carrier = '{carrier}' AND dep_time IS NULL",
        )
    ),
    "managed_elsewhere": (
        "ALTER TABLE {t} SET TBLPROPERTIES ('self-optimizing.enabled' = 'false')",
    ),
}
CURED = (
    "delays",
    "target_too_small",
    "bloom_filters",
    "thin_columns",
    "one_writing_task",
    "merge_on_read_on_v1",
    "repeated_identifiers",
    "managed_elsewhere",
    "heavy_metadata",
    "vectors_rewritten",
    "duplicate_files",
    "narrow_manifest",
    "stale_statistics",
    "small_files",
    "oversized_files",
)


@each_lab_table(CURED)
def test_the_remedy_run_on_the_lab_table_makes_the_finding_go_away(lake: Lake, name: str) -> None:
    with clone(lake, ("lab", name)) as copy:
        before = lake.observe(copy.table)
        finding = icekit.diagnose(before)[0]
        for statement in CURES.get(finding.name, finding.sql):
            lake.spark.sql(
                statement.format(t=identifier(*before.sql_name), n=before.name, c=lake.name)
            ).collect()
        after = lake.observe(copy.table)

        assert finding.name not in icekit.diagnose(after).names
        if name not in {"duplicate_files", "repeated_identifiers", "vectors_rewritten"}:
            assert after.data.record_count == before.data.record_count
