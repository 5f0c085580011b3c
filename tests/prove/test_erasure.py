"""One person's rows through a table's life: where they can still be read, and what ends it."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icekit.api import Lake
from icekit.cli.main import main
from icekit.errors import MetadataUnreadable, ParameterError
from icekit.lab.workbench import embedded
from icekit.prove import erasure, erasure_rows
from icekit.prove.erasure import Erasure, prove_erased
from icekit.prove.erasure_rows import path_key
from icekit.sql import identifier

pytestmark = pytest.mark.spark

MERGE_ON_READ = {"write.delete.mode": "merge-on-read", "write.delete.granularity": "file"}
PERSON = "user_id = 42"


class Table:
    """A scratch table with a hundred users, of which number 42 asks to be erased."""

    def __init__(self, lake: Lake, namespace: str, name: str) -> None:
        self.lake, self.spark, self.name = lake, lake.spark, f"{namespace}.{name}"
        self.sql_name = identifier(lake.name, namespace, name)

    def sql(self, statement: str) -> list[Any]:
        return self.spark.sql(statement.format(t=self.sql_name)).collect()

    def create(self, columns: str = "user_id BIGINT, name STRING", partitioned: str = "", **properties: str) -> Table:
        pairs = ", ".join(f"'{k}' = '{v}'" for k, v in {"format-version": "2", **properties}.items())
        self.sql(f"CREATE TABLE {{t}} ({columns}) USING iceberg {partitioned} TBLPROPERTIES ({pairs})")
        return self

    def fill(self, first: int = 0, count: int = 100) -> Table:
        self.sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ id, concat('name ', id) FROM range({first}, {first + count})")
        return self

    def call(self, procedure: str, arguments: str) -> None:
        self.sql(f"CALL {self.lake.name}.system.{procedure}(table => '{self.name}', {arguments})")

    def compact(self) -> None:
        self.call("rewrite_data_files", "options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true')")

    def expire_all_but_current(self) -> None:
        self.call("expire_snapshots", "older_than => TIMESTAMP '2999-01-01 00:00:00'")

    def prove(self, predicate: str = PERSON, **options: Any) -> Erasure:
        return prove_erased(self.lake, self.name, predicate, **options)

    def run(self, proof: Erasure) -> None:
        for statement in proof.actions:
            if "remove_orphan_files" not in statement:
                self.spark.sql(statement).collect()

    @property
    def location(self) -> Path:
        rows = self.sql("DESCRIBE EXTENDED {t}")
        return Path(next(row[1] for row in rows if row[0] == "Location").removeprefix("file:"))

    def data_files(self) -> list[Path]:
        return sorted((self.location / "data").rglob("*.parquet"))


@pytest.fixture
def table(lake: Lake, scratch: str) -> Iterator[Table]:
    # Its own folder: what a test leaves in it would be another's orphans.
    name = f"people_{uuid.uuid4().hex[:8]}"
    yield Table(lake, scratch, name)
    shutil.rmtree(embedded(lake) / "warehouse" / scratch / name / "data", ignore_errors=True)


@pytest.fixture(params=[False, True], ids=["read in place", "copied"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two ways to read files: where they are, or as copies, one after another."""
    if request.param:
        monkeypatch.setattr(erasure, "has_file_system", lambda *_: False)
        monkeypatch.setattr(erasure_rows, "_COPIED_BYTES", 1)


def live(proof: Erasure) -> dict[str, int | None]:
    return {row.name: row.row_count for row in proof.live_rows}


@pytest.mark.slow
def test_rows_are_followed_from_insert_to_the_last_orphan(table: Table) -> None:
    table.create(**MERGE_ON_READ).fill()

    inserted = table.prove()
    assert inserted.erased is False
    assert live(inserted) == {"main": 1}
    assert [(f.kind, f.row_count, f.snapshot_count) for f in inserted.files] == [("data", 1, 1)]
    assert inserted.actions[0] == f"DELETE FROM {table.sql_name} WHERE user_id = 42"

    table.sql(f"DELETE FROM {{t}} WHERE {PERSON}")
    hidden = table.prove()
    assert hidden.erased is False
    assert live(hidden) == {"main": 0}
    assert [(f.kind, f.row_count, f.snapshot_count) for f in hidden.files] == [("data", 1, 2)]
    assert hidden.actions[0].startswith("CALL `lake`.system.rewrite_data_files(")
    assert len(hidden.snapshots) == 2

    table.sql("ALTER TABLE {t} CREATE TAG `audit 2024`")
    table.compact()
    kept = Path(hidden.files[0].path)
    copy = table.location / "data" / "left behind.parquet"
    tagged = table.prove()
    assert [(r.name, r.type) for r in tagged.refs] == [("audit 2024", "TAG")]
    assert tagged.actions[0] == f"ALTER TABLE {table.sql_name} DROP TAG `audit 2024`"
    assert "expire_snapshots" in tagged.actions[1]
    assert len(tagged.actions) == 2

    table.sql("ALTER TABLE {t} DROP TAG `audit 2024`")
    assert len(table.prove().actions) == 1
    shutil.copy(kept, copy)
    table.expire_all_but_current()
    assert not kept.exists()
    orphaned = table.prove()
    assert orphaned.erased is False
    assert [(Path(f.path.removeprefix("file:")), f.kind, f.snapshot_count) for f in orphaned.files] == [(copy, "unreferenced", 0)]
    modified = int(copy.stat().st_mtime * 1000)
    assert orphaned.orphans_removable_from_ms is not None
    assert abs(orphaned.orphans_removable_from_ms - modified - 3 * 86_400_000) < 1000
    assert "remove_orphan_files" in orphaned.actions[0]
    assert "not before" in repr(orphaned)

    copy.unlink()
    gone = table.prove()
    assert gone.erased is True
    assert (gone.files, gone.snapshots, gone.actions, gone.not_looked_into) == ((), (), (), ())
    assert repr(gone) == f"{table.name} WHERE user_id = 42: erased; 1 file read"


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_the_actions_run_in_order_end_it_and_leave_other_snapshots(table: Table, mode: str) -> None:
    table.create(**{"write.delete.mode": mode})
    table.fill(1000)
    other = table.sql("SELECT snapshot_id FROM {t}.snapshots")[0][0]
    table.fill(0).fill(200)
    table.sql("ALTER TABLE {t} CREATE BRANCH trial")
    table.sql("ALTER TABLE {t} CREATE TAG old")

    proof = table.prove()
    assert [(r.name, r.type, r.row_count) for r in proof.refs] == [("main", "BRANCH", 1), ("old", "TAG", 1), ("trial", "BRANCH", 1)]
    table.run(proof)

    after = table.prove()
    assert after.erased is True, after
    assert other in {row[0] for row in table.sql("SELECT snapshot_id FROM {t}.snapshots")}
    assert table.sql("SELECT count(*) FROM {t}")[0][0] == 299


def test_snapshots_past_the_age_limit_outlive_the_expiry_of_others(table: Table) -> None:
    table.create(**{"history.expire.max-snapshot-age-ms": "1"}).fill(1000).fill()
    table.sql(f"DELETE FROM {{t}} WHERE {PERSON}")

    table.run(table.prove())

    assert table.prove().erased is True
    assert table.sql("SELECT count(*) FROM {t}.snapshots")[0][0] == 2


def test_a_renamed_column_is_read_by_id_even_if_another_took_its_name(table: Table) -> None:
    table.create(**MERGE_ON_READ).fill()
    table.sql("ALTER TABLE {t} CREATE TAG before")
    table.sql("ALTER TABLE {t} RENAME COLUMN user_id TO uid")
    table.sql("ALTER TABLE {t} ADD COLUMN user_id BIGINT")
    table.sql("INSERT INTO {t} SELECT id, 'x', 1000 + id FROM range(200, 210)")

    old = table.prove("uid = 42")
    assert old.erased is False
    assert live(old) == {"main": 1, "before": 1}
    assert [f.row_count for f in old.files] == [1]
    assert table.prove("user_id = 42").erased is True
    assert [f.row_count for f in table.prove("user_id = 1205").files] == [1]


@pytest.mark.usefixtures("place")
def test_identity_partitions_are_read_also_where_the_files_lack_the_column(table: Table, tmp_path: Path) -> None:
    table.create("user_id BIGINT, region STRING", "PARTITIONED BY (region)")
    table.sql("INSERT INTO {t} SELECT id, concat('a b/', id % 2) FROM range(100)")
    folder = tmp_path / "region=far away"
    folder.mkdir()
    pq.write_table(pa.table({"user_id": pa.array([42, 43], pa.int64())}), folder / "imported.parquet")
    table.call("add_files", f"source_table => '`parquet`.`{tmp_path}`'")

    assert [f.row_count for f in table.prove("user_id = 42 AND region = 'a b/0'", unreferenced=False).files] == [1]
    imported = table.prove("user_id = 42 AND region = 'far away'")
    assert [(Path(f.path.removeprefix("file:")).name, f.row_count) for f in imported.files] == [("imported.parquet", 1)]
    assert table.prove("user_id = 42 AND region = 'nowhere'").erased is True


def test_files_without_ids_or_a_name_mapping_are_not_proven(table: Table, tmp_path: Path) -> None:
    table.create()
    table.fill(1000)
    pq.write_table(pa.table({"user_id": pa.array([42], pa.int64()), "name": ["x"]}), tmp_path / "imported.parquet")
    table.call("add_files", f"source_table => '`parquet`.`{tmp_path}`'")
    assert table.prove().erased is False
    table.sql("ALTER TABLE {t} UNSET TBLPROPERTIES ('schema.name-mapping.default')")

    proof = table.prove("user_id = 4200")

    assert proof.erased is None
    assert [line.split(": ", 1)[1] for line in proof.not_looked_into] == ["it has no field ids, and the table has no name mapping"]


def test_odd_column_and_table_names_are_taken_as_they_are(lake: Lake, scratch: str) -> None:
    table = Table(lake, scratch, "odd name")
    table.name = f"{scratch}.`odd name`"
    table.create("`user.id x` BIGINT, `_metadata` STRING, s STRUCT<`a.b`: INT>", **MERGE_ON_READ)
    table.sql("INSERT INTO {t} SELECT id, 'x', named_struct('a.b', int(id)) FROM range(100)")

    for predicate in ("`user.id x` = 42", "s.`a.b` = 42 AND `_metadata` = 'x'", "`user.id x` = 42 AND `user.id x` <> 43"):
        proof = table.prove(predicate)
        assert proof.erased is False
        assert [f.row_count for f in proof.files] == [1]
    table.run(table.prove("`user.id x` = 42"))
    assert table.prove("`user.id x` = 42").erased is True


def test_equality_delete_files_that_hold_the_key_are_found_and_ended(table: Table) -> None:
    table.create().fill().fill(200)
    delete_by_key(table, pa.table({"user_id": pa.array([42, 7], pa.int64())}), [1])

    proof = table.prove()
    assert live(proof) == {"main": 0}
    assert sorted((f.kind, f.row_count) for f in proof.files) == [("data", 1), ("equality deletes", 1)]
    unknown = table.prove("name = 'no such name'")
    assert unknown.erased is None
    assert "2 keys in it cannot be distinguished" in unknown.not_looked_into[0]

    table.run(proof)
    assert table.prove().erased is True
    assert table.sql("SELECT count(*) FROM {t}")[0][0] == 198


def with_id(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(field_id)})


def test_position_delete_files_that_hold_the_deleted_row_are_found_and_ended(table: Table) -> None:
    """Format version 2 allows it, and some writers did so."""
    table.create().fill()
    (data_file,) = (str(row[0]) for row in table.sql("SELECT file_path FROM {t}.data_files"))
    fields = [with_id("file_path", pa.string(), 2147483546), with_id("pos", pa.int64(), 2147483545)]
    fields.append(with_id("row", pa.struct([with_id("user_id", pa.int64(), 1), with_id("name", pa.string(), 2)]), 2147483544))
    deletes = table.location / "data" / "with-row.parquet"
    held = {"file_path": data_file, "pos": 42, "row": {"user_id": 42, "name": "name 42"}}
    pq.write_table(pa.Table.from_pylist([held], schema=pa.schema(fields)), deletes)
    java: Any = table.spark._jvm
    loaded = java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(table.spark._jsparkSession, table.sql_name)
    made = java.org.apache.iceberg.FileMetadata.deleteFileBuilder(loaded.spec()).ofPositionDeletes().withPath(str(deletes))
    made = made.withFormat("parquet").withFileSizeInBytes(deletes.stat().st_size).withRecordCount(1).build()
    loaded.newRowDelta().addDeletes(made).commit()
    table.sql("REFRESH TABLE {t}")

    proof = table.prove()

    assert live(proof) == {"main": 0}
    assert sorted((f.kind, f.row_count) for f in proof.files) == [("data", 1), ("position deletes", 1)]
    table.run(proof)
    assert table.prove().erased is True


def test_deletion_vectors_hide_rows_that_are_still_there(table: Table) -> None:
    table.create(**MERGE_ON_READ | {"format-version": "3"}).fill()
    table.sql(f"DELETE FROM {{t}} WHERE {PERSON}")

    proof = table.prove()
    assert live(proof) == {"main": 0}
    assert [f.row_count for f in proof.files] == [1]
    table.run(proof)
    assert table.prove().erased is True


def test_an_empty_table_is_erased(table: Table) -> None:
    assert table.create().prove().erased is True


def test_without_the_unreferenced_nothing_is_proven(table: Table) -> None:
    proof = table.create().fill(1000).prove(unreferenced=False)

    assert proof.erased is None
    assert proof.not_looked_into == ("files that no snapshot reaches: not requested",)


@pytest.mark.usefixtures("place")
def test_what_cannot_be_read_is_named_and_not_proven(table: Table) -> None:
    table.create().fill(1000).fill(2000).fill(3000)
    broken, gone, _ = table.data_files()
    broken.write_bytes(b"no parquet")
    gone.unlink()
    (table.location / "data" / "dump.csv").write_text("42")
    calls: list[tuple[int, int]] = []

    proof = table.prove(progress=lambda done, of: calls.append((done, of)))

    assert proof.erased is None
    assert "icekit-" not in repr(proof)
    assert proof.looked_into_count == 1
    assert {Path(line.partition(": ")[0]).name for line in proof.not_looked_into} >= {broken.name, gone.name, "dump.csv"}
    assert calls == [(0, 1), (1, 1)]


def test_orc_is_named_and_not_proven(table: Table) -> None:
    proof = table.create(**{"write.format.default": "orc"}).fill(1000).prove()

    assert proof.erased is None
    assert "it is Orc" in proof.not_looked_into[0]


def test_a_file_with_a_hidden_name_is_not_taken_for_empty(table: Table) -> None:
    table.create().fill(1000)
    hidden = table.location / "data" / "_hidden.parquet"
    schema = pa.schema([pa.field("user_id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    pq.write_table(pa.table([[42]], schema=schema), hidden)
    java: Any = table.spark._jvm
    loaded = java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(table.spark._jsparkSession, table.sql_name)
    added = java.org.apache.iceberg.DataFiles.builder(loaded.spec()).withPath(str(hidden)).withFormat("parquet")
    loaded.newAppend().appendFile(added.withFileSizeInBytes(hidden.stat().st_size).withRecordCount(1).build()).commit()
    table.sql("REFRESH TABLE {t}")

    proof = table.prove()

    assert live(proof) == {"main": 1}
    assert proof.erased is False
    assert any("begins with _" in line for line in proof.not_looked_into)


def test_where_executors_cannot_read_copies_the_library_is_named(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.create().fill(1000)
    monkeypatch.setattr(erasure, "has_file_system", lambda *_: False)
    monkeypatch.setattr(erasure, "is_local", lambda _: False)

    proof = table.prove()

    assert proof.erased is None
    assert "Spark has no Hadoop file system for it; add the library" in proof.not_looked_into[0]


def test_without_garbage_collection_nothing_may_be_expired(table: Table) -> None:
    table.create(**{"gc.enabled": "false"}).fill()

    proof = table.prove()

    # The fixture could not drop it.
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('gc.enabled' = 'true')")
    assert proof.actions == (f"DELETE FROM {table.sql_name} WHERE user_id = 42",)
    assert "gc.enabled is false" in proof.notes[0]


def test_a_predicate_that_spark_refuses_is_told_in_one_sentence(table: Table) -> None:
    table.create()

    with pytest.raises(
        ParameterError, match=r"^The predicate 'user.id = 1' cannot be used: there is no column user\.id; did you mean user_id\."
    ):
        table.prove("user.id = 1")
    with pytest.raises(ParameterError, match="Syntax error"):
        table.prove("user_id =")
    with pytest.raises(ParameterError, match="its value changes each time"):
        table.prove("rand() < 0.5")


def test_a_table_that_changes_meanwhile_is_not_proven(table: Table) -> None:
    table.create().fill(1000)

    def write(done: int, of: int) -> None:
        table.fill(3000)

    proof = table.prove(progress=write)

    assert proof.erased is None
    assert proof.not_looked_into == ("the table was written to during the proof; run the proof again",)


def test_a_manifest_that_is_gone_is_told_in_one_sentence(table: Table) -> None:
    table.create().fill(1000)
    metadata = table.location / "metadata"
    for manifest in metadata.glob("*-m0.avro"):
        manifest.rename(manifest.with_suffix(".away"))
    try:
        with pytest.raises(MetadataUnreadable, match=r"-m0\.avro is missing"):
            table.prove()
    finally:
        for manifest in metadata.glob("*-m0.away"):
            manifest.rename(manifest.with_suffix(".avro"))


def test_the_session_is_left_as_it_was(table: Table) -> None:
    key = "spark.sql.parquet.filterPushdown"
    before = {k: table.spark.conf.get(k, None) for k in (key, "spark.sql.parquet.fieldId.read.enabled")}

    table.create().fill().prove()

    assert {k: table.spark.conf.get(k, None) for k in before} == before


@pytest.mark.parametrize("path", ["file:/a/b", "file:///a/b", "/a/b", "/a//b"])
def test_paths_of_the_same_file_have_one_key(path: str) -> None:
    assert path_key(path) == "/a/b"
    assert path_key("s3a://bucket//x") == path_key("s3://bucket/x")


def delete_by_key(table: Table, keys: Any, ids: list[int]) -> None:
    """Commit an equality delete file, as Flink does."""
    spark: Any = table.spark
    java = spark._jvm.org.apache.iceberg
    loaded = java.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table.sql_name)
    fields = [f.with_metadata({"PARQUET:field_id": str(loaded.schema().findField(f.name).fieldId())}) for f in keys.schema]
    path = table.location / "data" / "keys.parquet"
    pq.write_table(keys.cast(pa.schema(fields)), path)
    gateway = spark.sparkContext._gateway
    array = gateway.new_array(gateway.jvm.int, len(ids))
    for place, field_id in enumerate(ids):
        array[place] = field_id
    file = java.FileMetadata.deleteFileBuilder(loaded.spec()).ofEqualityDeletes(array).withPath(str(path)).withFormat("parquet")
    built = file.withFileSizeInBytes(path.stat().st_size).withRecordCount(keys.num_rows).build()
    loaded.newRowDelta().addDeletes(built).commit()
    table.sql("REFRESH TABLE {t}")


def test_the_command_says_where_rows_are_and_ends_with_0_only_when_they_are_gone(
    lake: Lake, scratch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table(lake, scratch, "er_command").create().fill()
    command = ["admin", "prove-erased", table.name, "--where", PERSON]

    assert main(command) == 1
    assert "NOT erased" in capsys.readouterr().out
    assert main([*command, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["erased"], document["predicate"]) == (False, PERSON)
    table.run(table.prove())
    assert main(command) == 0
    assert "WHERE user_id = 42: erased" in capsys.readouterr().out
