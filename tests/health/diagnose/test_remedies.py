"""What a finding tells a person to run does what it says, on real tables."""

from typing import Any
from zlib import crc32

import pytest

from icekit import diagnose
from icekit.common.errors import MetadataUnreadable, TableContradicted
from icekit.health.diagnose.findings import Finding
from icekit.health.facts.model import TableFacts
from icekit.iceberg.definition import Flaw
from icekit.maintain.planning.table_plan import plan_table
from tests.damage import change_avro, change_metadata, on_disk
from tests.maintain.tables import MERGE_ON_READ, Named, Table

pytestmark = pytest.mark.spark


@pytest.fixture
def table(named: Named, request: pytest.FixtureRequest) -> Table:
    return named(f"t{crc32(request.node.name.encode())}")


def two_commits(table: Table, **properties: Any) -> list[tuple[Any, ...]]:
    """Create an unpartitioned table of a file a commit; returns its rows."""
    return table.create(by="", **properties).fill(1).fill(1, start=100).rows()


def observed(table: Table, **options: Any) -> TableFacts:
    return table.lake.observe(table.name, **options)


def found(table: Table, name: str, **options: Any) -> Finding:
    return next(f for f in diagnose(observed(table, **options)) if f.name == name)


def cure(table: Table, name: str, **options: Any) -> TableFacts:
    """Run the statements of a finding; returns the facts afterwards, in which it is no more."""
    for statement in found(table, name, **options).sql:
        table.sql(statement)
    after = observed(table, **options)
    assert name not in diagnose(after).names
    return after


def without_counts(manifests: list[dict[str, Any]]) -> None:
    """Take away what format version 1 need not count."""
    for manifest in manifests:
        manifest.update(dict.fromkeys((key for key in manifest if key.endswith("_count")), None))


def test_merge_on_read_fails_on_a_table_of_version_1_until_its_setting_is_removed(
    table: Table,
) -> None:
    table.create(version=1, **MERGE_ON_READ).fill()

    with pytest.raises(Exception, match="Deletes are supported in V2 and above"):
        table.sql("DELETE FROM {t} WHERE id = 3")
    cure(table, "merge_on_read_on_v1")
    table.sql("DELETE FROM {t} WHERE id = 3")

    assert 3 not in {row[0] for row in table.rows()}


def test_the_rows_of_a_partition_that_is_lost_are_deleted_without_a_file_being_read(
    table: Table,
) -> None:
    table.create("id bigint, part int, at timestamp", "part, days(at)")
    table.fill(2, select="id, cast(id % 2 AS int) AS part, timestamp_seconds(id % 4 * 86400) AS at")
    table.sql("DELETE FROM {t} WHERE id = 2")
    for row in table.sql("SELECT file_path FROM {t}.files WHERE partition.part = 1"):
        on_disk(row[0]).unlink()

    with pytest.raises(Exception, match="NotFoundException"):
        table.rows()
    cure(table, "missing_files", storage=True)

    assert {row[0] for row in table.rows()} == {n for n in range(0, 40, 2) if n != 2}


def test_a_table_that_lost_a_file_is_read_again_after_the_rollback(table: Table) -> None:
    rows = table.create(by="").fill(1).rows()
    before = set(table.data_files())
    for path in set(table.fill(1, start=100).data_files()) - before:
        path.unlink()

    missing = observed(table, storage=True).missing
    assert missing is not None
    table.call("rollback_to_snapshot", f"snapshot_id => {missing.before_id}")

    assert table.rows() == rows
    assert "missing_files" not in diagnose(observed(table, storage=True)).names


def test_a_snapshot_without_its_manifest_list_leaves_with_the_statement_although_it_fails(
    table: Table,
) -> None:
    rows = two_commits(table)
    on_disk(
        table.sql("SELECT manifest_list FROM {t}.snapshots ORDER BY committed_at")[0][0]
    ).unlink()

    with pytest.raises(Exception, match="NotFoundException"):
        table.sql(found(table, "missing_files", storage=True).sql[0])
    after = observed(table, storage=True)

    assert "missing_files" not in diagnose(after).names
    assert after.storage is not None
    assert table.rows() == rows


def test_statistics_that_are_stale_or_gone_are_computed_again(table: Table) -> None:
    table.create(by="").fill(1)
    gone = table.sql(
        f"CALL {table.lake.name}.system.compute_table_stats('{'.'.join(table.name)}')"
    )[0][0]
    table.fill(1, 400, start=100)

    evidence = found(table, "stale_statistics").evidence
    assert "1 commit ago: it had 40 records, and 400 were added or deleted since" in evidence
    on_disk(gone).unlink()
    assert "missing_files" in diagnose(observed(table, storage=True)).names
    after = cure(table, "stale_statistics", storage=True)

    assert "missing_files" not in diagnose(after).names


def test_manifests_without_counts_are_rewritten_with_the_data_files_by_both_collectors_advice(
    table: Table,
) -> None:
    rows, name = two_commits(table, version=1), "unreadable_metadata"
    change_avro(
        table.sql("SELECT manifest_list FROM {t}.snapshots ORDER BY committed_at DESC")[0][0],
        without_counts,
    )
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")

    with pytest.raises(Exception, match="counts are missing"):
        table.sql("SELECT * FROM {t}.files")
    finding = found(table, name, collector="spark")
    assert finding == found(table, name, collector="local")
    assert finding.evidence == "2 manifests in the manifest list without numbers of files"
    facts = observed(table)
    assert facts.manifests.data_entry_count == facts.data.file_count
    cure(table, name, collector="spark")

    assert table.rows() == rows


@pytest.mark.parametrize("listed", [0, 7])
def test_a_manifest_list_with_wrong_numbers_is_named_by_both_collectors_and_stops_rewrites(
    table: Table, listed: int
) -> None:
    """No engine opens a manifest that has no live files by the list."""
    two_commits(table)
    path = table.sql("SELECT manifest_list FROM {t}.snapshots ORDER BY committed_at DESC")[0][0]
    manifests: list[str] = []

    def lie(records: list[dict[str, Any]]) -> None:
        manifests.append(records[0]["manifest_path"])
        records[0]["added_files_count"] = listed
        records[0]["existing_files_count"] = 0

    change_avro(path, lie)
    table.sql("REFRESH TABLE {t}")

    for collector in ("local", "spark"):
        facts = observed(table, collector=collector)
        finding = next(f for f in diagnose(facts) if f.name == "unreadable_metadata")
        assert f"{listed} live files by the manifest list {path}, 1 in the manifest" in (
            finding.evidence
        )
        assert manifests[0] in finding.evidence
        with pytest.raises(TableContradicted):
            plan_table(table.lake, facts)


def test_a_manifest_list_that_takes_deletes_for_data_is_refused_by_both_collectors(
    table: Table,
) -> None:
    table.under_deletes()
    path = table.sql("SELECT manifest_list FROM {t}.snapshots ORDER BY committed_at DESC")[0][0]

    def swap(records: list[dict[str, Any]]) -> None:
        for record in records:
            record["content"] = 0

    change_avro(path, swap)
    table.sql("REFRESH TABLE {t}")

    for collector in ("local", "spark"):
        with pytest.raises(MetadataUnreadable, match="holds data files, but it holds delete files"):
            observed(table, collector=collector)


def test_a_snapshot_whose_schema_is_gone_is_read_again_after_the_manifests_are_rewritten(
    table: Table,
) -> None:
    rows = two_commits(table)

    def forget(metadata: dict[str, Any]) -> None:
        for snapshot in metadata["snapshots"]:
            snapshot["schema-id"] = 77

    change_metadata(table.lake, table.name, forget)
    with pytest.raises(Exception, match="Cannot find schema with schema id 77"):
        table.rows()
    for left in ([Flaw.OLD_SCHEMA_GONE], []):
        for statement in found(table, "unreadable_metadata").sql:
            table.sql(statement)
        assert table.rows() == rows
        assert [flaw.flaw for flaw in observed(table).flaws] == left
