"""What a finding tells a person to run does what it says, on real tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from icekit import diagnose
from icekit.api import Lake
from icekit.facts.definition import Flaw
from tests.compact.tables import MERGE_ON_READ, Table
from tests.damage import change_avro, change_metadata, on_disk

pytestmark = pytest.mark.spark


def without_counts(manifests: list[dict[str, Any]]) -> None:
    """Take away what format version 1 need not count."""
    for manifest in manifests:
        manifest.update(dict.fromkeys((key for key in manifest if key.endswith("_count")), None))


def test_a_target_that_is_too_small_is_found_and_its_statements_leave_fewer_files(lake: Lake, scratch: str, tmp_path: Path) -> None:
    few = {"write_target__file__size__bytes": "4096", "read_split_target__size": "32768"}
    table = Table(lake, scratch, "tiny_target", tmp_path).create("id bigint, part int, name string", "", **few)
    table.fill(40, 20_000)
    rows = table.rows()
    before = lake.observe(table.name)
    plan = table.plan()

    finding = next(f for f in diagnose(before) if f.name == "target_too_small")
    for statement in finding.sql:
        table.sql(statement)

    after = lake.observe(table.name)
    assert not plan.actions
    assert plan.waits is not None
    assert plan.waits.startswith("No rewrite helps before the target file size changes")
    assert after.target_bytes == 32_768
    assert after.data.file_count < before.data.file_count / 2
    assert "target_too_small" not in diagnose(after).names
    assert table.rows() == rows


def test_merge_on_read_fails_on_a_table_of_version_1_until_its_setting_is_removed(lake: Lake, scratch: str, tmp_path: Path) -> None:
    table = Table(lake, scratch, "v1_mor", tmp_path).create(**{**MERGE_ON_READ, "format__version": "1"}).fill()

    with pytest.raises(Exception, match="Deletes are supported in V2 and above"):
        table.sql("DELETE FROM {t} WHERE id = 3")
    finding = next(f for f in diagnose(lake.observe(table.name)) if f.name == "merge_on_read_on_v1")
    for statement in finding.sql:
        table.sql(statement)
    table.sql("DELETE FROM {t} WHERE id = 3")

    assert 3 not in {row[0] for row in table.rows()}
    assert "merge_on_read_on_v1" not in diagnose(lake.observe(table.name)).names


def test_the_rows_of_a_partition_that_is_lost_are_deleted_without_a_file_being_read(lake: Lake, scratch: str, tmp_path: Path) -> None:
    table = Table(lake, scratch, "lost_partition", tmp_path).create("id bigint, part int, at timestamp", "part, days(at)")
    table.fill(2, select="id, cast(id % 2 AS int) AS part, timestamp_seconds(id % 4 * 86400) AS at")
    table.sql("DELETE FROM {t} WHERE id = 2")
    for row in table.sql("SELECT file_path FROM {t}.files WHERE partition.part = 1"):
        on_disk(row[0]).unlink()

    with pytest.raises(Exception, match="NotFoundException"):
        table.rows()
    finding = next(f for f in diagnose(lake.observe(table.name, storage=True)) if f.name == "missing_files")
    for statement in finding.sql:
        table.sql(statement)

    assert {row[0] for row in table.rows()} == {n for n in range(0, 40, 2) if n != 2}
    assert "missing_files" not in diagnose(lake.observe(table.name, storage=True)).names


def test_a_table_that_lost_a_file_is_read_again_after_the_rollback(lake: Lake, scratch: str, tmp_path: Path) -> None:
    table = Table(lake, scratch, "lost_file", tmp_path).create(by="").fill(1)
    rows = table.rows()
    before = set(table.data_files())
    for path in set(table.fill(1, start=100).data_files()) - before:
        path.unlink()

    facts = lake.observe(table.name, storage=True)
    assert facts.missing is not None
    table.sql(f"CALL {lake.name}.system.rollback_to_snapshot('{scratch}.lost_file', {facts.missing.before_id})")

    assert table.rows() == rows
    assert "missing_files" not in diagnose(lake.observe(table.name, storage=True)).names


def test_a_snapshot_without_its_manifest_list_leaves_with_the_statement_although_it_fails(lake: Lake, scratch: str, tmp_path: Path) -> None:
    table = Table(lake, scratch, "lost_list", tmp_path).create(by="").fill(1).fill(1, start=100)
    rows = table.rows()
    first = table.sql("SELECT manifest_list FROM {t}.snapshots ORDER BY committed_at")[0][0]
    on_disk(first).unlink()

    finding = next(f for f in diagnose(lake.observe(table.name, storage=True)) if f.name == "missing_files")
    with pytest.raises(Exception, match="NotFoundException"):
        table.sql(finding.sql[0])
    after = lake.observe(table.name, storage=True)

    assert diagnose(after).names.isdisjoint({"missing_files"})
    assert after.storage is not None
    assert table.rows() == rows


def test_statistics_that_are_stale_or_gone_are_computed_again(lake: Lake, scratch: str, tmp_path: Path) -> None:
    table = Table(lake, scratch, "stale", tmp_path).create(by="").fill(1)
    stats = f"CALL {lake.name}.system.compute_table_stats('{scratch}.stale')"
    gone = table.sql(stats)[0][0]
    table.fill(1, 400, start=100)

    finding = next(f for f in diagnose(lake.observe(table.name)) if f.name == "stale_statistics")
    assert "1 commit ago: it had 40 records, and 400 were added or deleted since" in finding.evidence
    on_disk(gone).unlink()
    assert "missing_files" in diagnose(lake.observe(table.name, storage=True)).names
    for statement in finding.sql:
        table.sql(statement)

    assert diagnose(lake.observe(table.name, storage=True)).names.isdisjoint({"stale_statistics", "missing_files"})


def test_manifests_without_counts_are_rewritten_with_the_data_files_by_both_collectors_advice(
    lake: Lake, scratch: str, tmp_path: Path
) -> None:
    table = Table(lake, scratch, "uncounted", tmp_path).create(by="", format__version="1").fill(1).fill(1, start=100)
    rows = table.rows()
    change_avro(table.sql("SELECT manifest_list FROM {t}.snapshots ORDER BY committed_at DESC")[0][0], without_counts)
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")

    with pytest.raises(Exception, match="counts are missing"):
        table.sql("SELECT * FROM {t}.files")
    (finding,) = (f for f in diagnose(lake.observe(table.name, collector="spark")) if f.name == "unreadable_metadata")
    assert finding == next(f for f in diagnose(lake.observe(table.name, collector="local")) if f.name == "unreadable_metadata")
    assert finding.evidence == "2 manifests in the manifest list without numbers of files"
    facts = lake.observe(table.name)
    assert facts.manifests.data_entry_count == facts.data.file_count
    for statement in finding.sql:
        table.sql(statement)

    assert table.rows() == rows
    assert "unreadable_metadata" not in diagnose(lake.observe(table.name, collector="spark")).names


def test_a_snapshot_whose_schema_is_gone_is_read_again_after_the_manifests_are_rewritten(lake: Lake, scratch: str, tmp_path: Path) -> None:
    table = Table(lake, scratch, "schema_gone", tmp_path).create(by="").fill(1).fill(1, start=100)
    rows = table.rows()

    def forget(metadata: dict[str, Any]) -> None:
        for snapshot in metadata["snapshots"]:
            snapshot["schema-id"] = 77

    change_metadata(lake, table.name, forget)
    with pytest.raises(Exception, match="Cannot find schema with schema id 77"):
        table.rows()
    finding = next(f for f in diagnose(lake.observe(table.name)) if f.name == "unreadable_metadata")
    for statement in finding.sql:
        table.sql(statement)

    assert table.rows() == rows
    after = lake.observe(table.name)
    assert [flaw.flaw for flaw in after.flaws] == [Flaw.OLD_SCHEMA_GONE]
    for statement in next(f for f in diagnose(after) if f.name == "unreadable_metadata").sql:
        table.sql(statement)

    assert table.rows() == rows
    assert lake.observe(table.name).flaws == ()
