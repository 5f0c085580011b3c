"""Real commits, good and bad, beside their parents."""

from __future__ import annotations

import re
from typing import Any
from zlib import crc32

import pytest

from icekit.api import Lake
from icekit.engine.bridge import elements
from icekit.rows.proof import commits
from icekit.rows.proof.commits import prove_commits
from icekit.rows.proof.proof import Proof
from tests import tables
from tests.damage import change_avro, on_disk
from tests.deletes.writing import Part
from tests.shapes import Shapes

pytestmark = [pytest.mark.spark, pytest.mark.core]

MERGE_ON_READ: dict[str, Any] = {
    "write_delete_mode": "merge-on-read",
    "write_update_mode": "merge-on-read",
}


REGIONS = "id bigint, region string, amount int", "region"
DAY = {"at_day": "2013-01-01"}
# Of which none belongs to that day.
LATER = (
    "SELECT * FROM VALUES (2, TIMESTAMP '2013-05-05 00:00:00Z'), (3, TIMESTAMP '2013-05-06 "
    "00:00:00Z')"
)


class Table(tables.Table):
    """A table of a test: what happens to it, and what it is then."""

    def compact(self, where: str = "", options: str = "'rewrite-all', 'true'") -> int:
        only = [f'where => "{where}"'] if where else []
        self.call("rewrite_data_files", f"options => map({options})", *only)
        return self.snapshots()[-1]

    def summary(self, snapshot_id: int) -> dict[str, str]:
        operation, summary = self.sql(
            f"SELECT operation, summary FROM {{t}}.snapshots WHERE snapshot_id = {snapshot_id}"
        )[0]
        return {"operation": operation, **summary}

    def rows(self) -> set[Any]:
        return set(self.sql("SELECT * FROM {t}"))

    def appended(self, rows: str, part: Part) -> Any:
        """A data file of these rows, which a commit has added."""
        file = self.files.data(rows, part)
        self.append(file)
        return file

    def replaced(self, *old: Any, by: Any) -> Proof:
        """The proof of a commit that puts a file in the place of others."""
        rewrite = self.files.table().newRewrite().validateFromSnapshot(self.snapshots()[-1])
        for file in old:
            rewrite = rewrite.deleteFile(file)
        return self.prove(self.committed(rewrite.addFile(by)))

    def data_files(self) -> list[Any]:
        tasks = elements(self.files.table().newScan().planFiles())
        return sorted((task.file() for task in tasks), key=lambda file: str(file.partition()))

    def committed(self, action: Any) -> int:
        action.commit()
        self.files.refresh()
        return self.snapshots()[-1]

    def prove(self, *snapshot_ids: int) -> Proof:
        return prove_commits(self.lake, self.name, snapshot_ids)


def rows_after(proof: Proof) -> int:
    """The rows compared at the first commit."""
    assert proof.commits[0].after is not None
    return proof.commits[0].after.row_count


@pytest.fixture
def table(lake: Lake, scratch: str, request: pytest.FixtureRequest) -> Table:
    """A table of the test's own, yet to be created."""
    return Table(lake, scratch, f"t{crc32(request.node.name.encode())}")


@pytest.fixture
def regions(lake: Lake, scratch: str, shapes: Shapes) -> Table:
    """Three regions, each of two files of a hundred rows."""
    made = Table(lake, scratch, "regions")

    def build() -> None:
        made.create(*REGIONS)
        for start in (0, 300):
            made.sql(
                f"INSERT INTO {{t}} SELECT id, element_at(array('a', 'b', 'c'), CAST(id % 3 + 1 "
                f"AS int)), id FROM range({start}, {start + 300})"
            )

    shapes.have(made.name, "", build)
    return made


@pytest.mark.parametrize("version", [2, 3])
def test_a_compaction_that_applies_deletes_changes_no_row(table: Table, version: int) -> None:
    table.create("id bigint, day date", "months(day)", version, **MERGE_ON_READ)
    table.sql(
        "INSERT INTO {t} SELECT id, DATE '2013-01-01' + CAST(id % 90 AS int) FROM range(1000)"
    )
    table.sql("DELETE FROM {t} WHERE id % 10 = 1")
    table.sql("UPDATE {t} SET id = id + 5000 WHERE id % 10 = 2")
    commit = table.compact()
    proof = table.prove(commit)

    assert table.summary(commit)["operation"] == "replace"
    assert int(table.summary(commit)["total-records"]) < int(
        table.summary(table.snapshots()[-2])["total-records"]
    )
    assert proof.ok is True, proof
    assert proof.mode == "full"
    assert proof.rows_read == 1800
    assert [(c.partitions, c.rows_read) for c in proof.commits] == [(3, 1800)]


def test_a_file_replaced_by_one_with_other_rows_is_caught_and_named(
    table: Table, regions: Table
) -> None:
    good = regions.compact()
    other = table.create(*REGIONS)
    other.sql(
        f"INSERT INTO {{t}} SELECT id, region, if(id = 1, -1, amount) FROM {regions.sql_name} "
        "WHERE region = 'b'"
    )
    before = regions.rows()
    bad = regions.committed(
        regions.files.table()
        .newRewrite()
        .deleteFile(regions.data_files()[1])
        .addFile(other.data_files()[0])
    )
    regions.sql("INSERT INTO {t} VALUES (1000, 'c', 0)")
    proof = regions.prove(good, bad)

    assert regions.summary(bad)["operation"] == "replace"
    assert proof.ok is False
    assert [c.ok for c in proof.commits] == [True, False]
    (mismatch,) = proof.commits[1].mismatches
    assert mismatch.partition_path == "region=b"
    assert mismatch.before.row_count == 200
    assert mismatch.after.row_count == 200
    assert "region=b: the same number of rows (200), but different rows" in repr(proof)
    rollback = proof.commits[1].rollback_sql
    assert rollback is not None
    assert rollback in repr(proof)
    regions.sql(rollback)
    assert regions.rows() == before


def test_rows_lost_from_a_partition_are_caught(regions: Table) -> None:
    lost = regions.committed(regions.files.table().newDelete().deleteFile(regions.data_files()[-1]))
    proof = regions.prove(lost)

    assert proof.ok is False
    assert "region=c: 100 rows missing (200 before, 100 after)" in repr(proof)


def test_rows_that_moved_to_a_file_of_another_partition_are_caught(table: Table) -> None:
    table.create("id int, at timestamp", "days(at)")
    table.sql(
        "INSERT INTO {t} VALUES (1, TIMESTAMP '2013-01-01 00:00:00Z'), (2, TIMESTAMP '2013-01-02 "
        "00:00:00Z')"
    )
    first, second = table.data_files()
    wrong = (
        table.java.DataFiles.builder(table.files.table().spec())
        .copy(second)
        .withPartition(first.partition())
        .build()
    )
    proof = table.replaced(first, second, by=wrong)

    assert proof.ok is False
    assert "at_day=2013-01-01: 1 row missing" in repr(proof)


@pytest.mark.slow
def test_rows_lost_from_a_file_whose_partition_does_not_tell_their_values_are_caught(
    table: Table,
) -> None:
    """No predicate on the partition finds them, on either side."""
    table.create("id int, at timestamp", "days(at)")
    table.sql("INSERT INTO {t} VALUES (1, TIMESTAMP '2013-01-01 00:00:00Z')")
    whole = table.appended(LATER, DAY)

    proof = table.replaced(whole, by=table.files.data(f"{LATER} LIMIT 1", DAY))

    assert proof.ok is False
    assert (
        "compared the whole table (rows may be in other partitions than their values say)"
        in repr(proof)
    )


@pytest.mark.slow
def test_rows_lost_from_a_file_of_another_bucket_are_caught_under_deletes(table: Table) -> None:
    table.create("id int", "bucket(4, id)")
    table.sql("INSERT INTO {t} SELECT id FROM range(100)")
    bucket = {"id_bucket": 0}
    table.commit().deletes("id", "SELECT 1000", bucket).done()
    whole = table.appended("SELECT id FROM range(8)", bucket)
    table.commit().deletes("id", "SELECT 1001", bucket).done()

    part = table.files.data("SELECT id FROM range(7)", bucket)
    assert table.replaced(whole, by=part).ok is False


@pytest.mark.slow
@pytest.mark.parametrize(
    "by", ["days(at)", "bucket(4, id)", "truncate(10, id)", "days(at), bucket(4, id)"]
)
def test_deletes_beside_rows_that_lie_where_they_belong_make_no_proof_read_the_whole_table(
    table: Table, by: str
) -> None:
    table.create("id int, at timestamp", by, **MERGE_ON_READ)
    table.sql(
        "INSERT INTO {t} SELECT id, timestamp_seconds(1357000000 + 40000 * (id % 8)) FROM range(40)"
    )
    table.sql("DELETE FROM {t} WHERE id = 7")
    proof = table.prove(table.compact(where="id <= 9 and at < '2013-01-02'"))

    assert proof.ok is True, proof
    assert not proof.commits[0].reason


def test_rows_that_lost_their_row_ids_are_caught(table: Table) -> None:
    table.create("id int", version=3)
    table.sql("INSERT INTO {t} VALUES (1), (2)")
    table.sql("UPDATE {t} SET id = 3 WHERE id = 2")
    assert table.prove(table.compact()).ok is True
    (old,) = table.data_files()
    new = table.files.data("SELECT * FROM VALUES (1), (3)")

    proof = table.replaced(old, by=new)

    assert proof.ok is False
    assert "the same number of rows (2), but different rows (or row lineage)" in repr(proof)


def test_what_others_commit_in_between_is_not_damage(regions: Table) -> None:
    first = regions.compact("region = 'a'")
    regions.sql("INSERT INTO {t} VALUES (1000, 'a', 0), (1001, 'b', 0)")
    append = regions.snapshots()[-1]
    second = regions.compact("region = 'b'")
    proof = regions.prove(first, second)

    assert proof.ok is True, proof
    assert [(c.partitions, c.rows_read) for c in proof.commits] == [(1, 400), (1, 402)]
    assert regions.prove(append).ok is False


def test_a_compaction_into_another_spec_under_renamed_and_promoted_columns_changes_no_row(
    table: Table,
) -> None:
    table.create(
        "id int, `the region` string, day date, s struct<a: int, b: float>, gone int",
        "`the region`",
    )
    table.sql(
        "INSERT INTO {t} SELECT CAST(id AS int), concat('r', id % 2), DATE '2013-01-01' + CAST(id "
        "% 3 AS int), named_struct('a', CAST(id AS int), 'b', 1.5F), 7 FROM range(60)"
    )
    table.sql("ALTER TABLE {t} ADD PARTITION FIELD days(day)")
    table.sql(
        "INSERT INTO {t} VALUES (100, 'r0', DATE '2013-01-01', null, 8), (101, null, null, null, 9)"
    )
    table.sql("ALTER TABLE {t} DROP PARTITION FIELD `the region`")
    for change in (
        "RENAME COLUMN `the region` TO `it's.dotted`",
        "RENAME COLUMN s.a TO aa",
        "ALTER COLUMN id TYPE bigint",
        "ALTER COLUMN s.b TYPE double",
        "DROP COLUMN gone",
        "ADD COLUMN more int",
    ):
        table.sql(f"ALTER TABLE {{t}} {change}")
    commit = table.compact()
    proof = table.prove(commit)

    assert proof.ok is True, proof
    assert rows_after(proof) == 62
    assert proof.commits[0].columns_left_out == ("gone", "more")
    assert "not compared, because only one side has them: gone, more" in repr(proof)
    table.sql("DELETE FROM {t} WHERE id = 100")
    assert [m.partition_path for m in table.prove(table.snapshots()[-1]).commits[0].mismatches] == [
        "day_day=2013-01-01"
    ]


# Together a partition is told by all of them, and one that misses rows loses those.
TRANSFORMS = (
    "i, bucket(4, l), s, truncate(2, s), dec, bucket(3, dec), day, months(day), ts, hours(ts), "
    "days(tn), d, f, b, truncate(1, b), flag",
    "l, bucket(2, tn), bucket(2, ts), years(ts), hours(tn), tn, truncate(10, i), truncate(5, "
    "dec), bucket(3, s), bucket(3, b), days(day)",
)


@pytest.mark.slow
@pytest.mark.parametrize("partitioned_by", TRANSFORMS)
def test_the_rows_of_every_kind_of_partition_are_compared(
    table: Table, partitioned_by: str
) -> None:
    """A predicate that misses rows would prove nothing of them, so they are counted."""
    table.create(
        "i int, l bigint, f float, d double, s string, b binary, dec decimal(20, 3), day date, ts "
        "timestamp, tn timestamp_ntz, flag boolean",
        partitioned_by,
    )
    table.sql(
        "INSERT INTO {t} VALUES (1, 2, 0.1, double('NaN'), 'a''b\\\\c', X'00ff', 12.345, DATE "
        "'1969-12-31', TIMESTAMP '1969-12-31 23:59:59.5Z', TIMESTAMP_NTZ '1969-12-31 23:00:00', "
        "true), (-2, 3, float('-0.0'), double('Infinity'), '', X'', -0.001, DATE '2013-02-28', "
        "TIMESTAMP '2013-01-01 00:00:00.000001Z', TIMESTAMP_NTZ '2013-01-01 00:00:00', false), "
        "(null, null, null, null, null, null, null, null, null, null, null)"
    )
    proof = table.prove(table.compact())

    assert proof.ok is True, proof
    assert proof.commits[0].partitions == 3
    assert rows_after(proof) == 3
    assert proof.commits[0].reason == ""


@pytest.mark.slow
def test_very_many_partitions_are_compared_as_the_whole_table(
    regions: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "MAX_PARTITIONS", 2)
    proof = regions.prove(regions.compact())

    assert proof.ok is True, proof
    assert "the same 600 rows in the whole table (it changed more than 2 partitions)" in repr(proof)
    regions.sql("UPDATE {t} SET amount = -1 WHERE id IN (3, 4, 5)")
    assert [
        m.partition_path for m in regions.prove(regions.snapshots()[-1]).commits[0].mismatches
    ] == [
        "region=a",
        "region=b",
        "region=c",
    ]


@pytest.mark.slow
def test_a_commit_whose_parent_has_expired_is_not_provable(regions: Table) -> None:
    first = regions.snapshots()[0]
    commit = regions.compact()
    regions.call(
        "expire_snapshots", "older_than => TIMESTAMP '2100-01-01 00:00:00'", "retain_last => 1"
    )
    proof = regions.prove(commit, first)

    assert proof.ok is None
    assert [c.ok for c in proof.commits] == [None, None]
    assert re.search(r"\? commit \d+: not provable: its parent \d+ has expired", repr(proof))
    assert "not everything could be proved in 2 commits" in repr(proof)


@pytest.mark.slow
def test_a_first_commit_and_one_whose_files_are_gone_are_not_provable(regions: Table) -> None:
    first = regions.snapshots()[0]
    gone = regions.data_files()[0].location()
    commit = regions.compact()
    on_disk(gone).unlink()
    proof = regions.prove(first, commit)

    assert proof.ok is None
    assert "it has no parent to compare with" in repr(proof)
    assert "is missing" in proof.commits[1].reason


@pytest.mark.slow
def test_metadata_only_commits_change_no_partition(regions: Table) -> None:
    regions.call("rewrite_manifests")
    commit = regions.snapshots()[-1]
    proof = regions.prove(commit)

    assert regions.summary(commit)["operation"] == "replace"
    assert proof.ok is True, proof
    assert proof.commits[0].partitions == 0
    assert proof.rows_read == 0
    assert proof.commits[0].reason == ""


def test_a_manifest_lost_without_a_word_is_caught(regions: Table) -> None:
    """No entry says that its files are gone, so the commit's own changes are not all there is to
    compare.
    """
    regions.sql("INSERT INTO {t} VALUES (1000, 'lost', 1)")
    first = regions.snapshots()[-1]
    commit = regions.compact(
        "region = 'a'", options="'rewrite-all', 'true', 'use-starting-sequence-number', 'false'"
    )

    def drop(manifests: list[dict[str, Any]]) -> None:
        (lost,) = (manifest for manifest in manifests if manifest["added_snapshot_id"] == first)
        manifests.remove(lost)

    change_avro(
        regions.sql(f"SELECT manifest_list FROM {{t}}.snapshots WHERE snapshot_id = {commit}")[0][
            0
        ],
        drop,
    )
    regions.files.refresh()
    proof = regions.prove(commit)

    assert proof.ok is False
    assert "region=lost: 1 row missing" in repr(proof)
    assert proof.commits[0].reason == "its files are not those of its parent plus its own changes"
