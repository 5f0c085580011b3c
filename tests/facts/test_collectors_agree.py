"""Spark and the JVM-free collector give equal facts, for odd tables."""

import dataclasses
import datetime as dt
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from icekit.api import Lake
from icekit.engine.metadata_tables import metadata_table
from icekit.facts import Kind
from icekit.facts.collect import Collector
from icekit.facts.metadata_file import load_metadata
from icekit.facts.orphans import orphans_on_disk
from icekit.lab.workbench import embedded
from tests.facts.both import facts_of
from tests.offline import catalog_of
from tests.resolve.tables import Table

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("version", [2, 3])
def test_collectors_agree_under_deletes_of_every_kind(table: Table, version: int) -> None:
    table.create("id bigint, part int", "part", version)
    for n in range(3):
        table.sql(
            f"INSERT INTO {{t}} SELECT id, CAST(id % 2 AS INT) FROM range({n * 10}, {n * 10 + 10})"
        )
    table.delete("id", "SELECT id FROM range(3)", {"part": 0}).delete(
        "id", "SELECT 7L AS id", {"part": 1}
    )
    table.sql("DELETE FROM {t} WHERE id IN (4, 5, 15)")

    facts = facts_of(table)

    position = Kind.POSITION_DELETES if version == 2 else Kind.DELETION_VECTORS
    assert facts.data.file_count == 6
    assert facts.total(Kind.EQUALITY_DELETES).record_count == 4
    assert facts.total(position).record_count == 3


def test_collectors_agree_on_every_type_a_partition_can_have(table: Table) -> None:
    table.create(
        "i int, l bigint, f float, d double, s string, b binary, dec decimal(20, 3), day date, ts "
        "timestamp, tn timestamp_ntz, flag boolean, nested struct<inner: int>",
        "i, l, f, d, s, b, dec, day, ts, tn, flag, nested.inner",
    )
    table.sql(
        "INSERT INTO {t} VALUES (1, 2, 1.5, 2.5, 'a/b=c', X'00ff', 12.345, DATE "
        "'1969-12-31', TIMESTAMP '1969-12-31 23:59:59.5', TIMESTAMP_NTZ '2013-01-01 00:00:00', "
        "true, named_struct('inner', 7)), (null, null, null, null, null, null, null, null, null, "
        "null, null, null)"
    )
    facts = facts_of(table)

    paths = [facts.partition_path(p) for p in facts.partitions()]
    assert any(
        "s=a%2Fb%3Dc/b=00ff/dec=12.345/day=1969-12-31/ts=1969-12-31T23:59:59.500000+00:00/tn=2013-01-01T00:00:00/flag=true"
        in p
        for p in paths
    )
    assert any({p.split("/")[i].partition("=")[2] for i in range(12)} == {"null"} for p in paths)


def test_collectors_agree_on_every_transform(table: Table) -> None:
    table.create(
        "id int, name string, a timestamp, b timestamp, c timestamp, d date",
        "bucket(4, id), truncate(2, name), years(a), hours(b), days(c), months(d)",
    )
    moment = "TIMESTAMP '2013-05-06 07:08:09'"
    table.insert(f"VALUES (1, 'abcdef', {moment}, {moment}, {moment}, DATE '2013-05-06')")
    facts = facts_of(table)

    (path,) = [facts.partition_path(p) for p in facts.partitions()]
    assert path.endswith(
        "name_trunc=ab/a_year=2013/b_hour=2013-05-06-07/c_day=2013-05-06/d_month=2013-05"
    )


def test_collectors_agree_when_spec_and_schema_have_changed(table: Table) -> None:
    table.create("id int, day date, region string", "region", version=1)
    table.insert("VALUES (1, DATE '2013-01-01', 'a'), (2, DATE '2013-01-02', 'b')")
    for change in (
        "DROP PARTITION FIELD region",
        "ADD PARTITION FIELD days(day)",
        "RENAME COLUMN day TO `the day`",
        "ADD COLUMN more bigint",
    ):
        table.sql(f"ALTER TABLE {{t}} {change}")
    table.insert("VALUES (3, DATE '2013-01-03', 'c', 4)")
    facts = facts_of(table)

    assert len({p.spec_id for p in facts.partitions()}) == 2
    assert facts.default_spec.fields[-1].source == "the day"


def test_a_branch_a_tag_and_an_old_snapshot_can_be_observed(table: Table) -> None:
    table.create("id int").insert("VALUES (1)").sql("ALTER TABLE {t} CREATE TAG first")
    table.sql("ALTER TABLE {t} CREATE BRANCH work")
    for n in (2, 3):
        table.sql(f"INSERT INTO {{t}}.branch_work VALUES ({n})")
    rows = {ref: facts_of(table, ref=ref).data.record_count for ref in (None, "first", "work")}

    assert rows == {None: 1, "first": 1, "work": 3}
    tagged = table.lake.observe(table.name, ref="first").snapshot_id
    assert facts_of(table, ref=str(tagged)).data.record_count == 1


def test_names_with_dots_quotes_backticks_and_spaces_are_names_like_others(
    lake: Lake, scratch: str
) -> None:
    table = Table(lake, scratch, 'o\'dd "näme"; DROP TABLE x')
    table.create("`a.b c` int, `it's` date", "`a.b c`, days(`it's`)")
    table.insert("VALUES (1, DATE '2013-01-01'), (2, null)")
    facts = facts_of(table)

    assert [facts.partition_path(p) for p in facts.partitions()] == [
        "a.b c=1/it's_day=2013-01-01",
        "a.b c=2/it's_day=null",
    ]


def test_a_snapshot_that_is_new_to_the_session_is_read(table: Table) -> None:
    """A writer outside this session commits; the session's cached table must not be trusted."""
    table.create("id int").insert("VALUES (1)").sql("SELECT * FROM {t}")
    with catalog_of(embedded(table.lake)) as other:
        other.load_table(table.name).append(pa.table({"id": pa.array([2, 3], pa.int32())}))

    assert facts_of(table).data.record_count == 3


def _files_of(lake: Lake, table: tuple[str, ...]) -> set[Path]:
    """Every file that the table's metadata names, and its metadata files."""
    columns = {
        "all_files": "file_path",
        "all_manifests": "path",
        "snapshots": "manifest_list",
        "metadata_log_entries": "file",
    }
    names = [
        row[0]
        for name, column in columns.items()
        for row in metadata_table(lake.spark, lake.sql_name(table), name).select(column).collect()
    ]
    return {Path(name.removeprefix("file:")) for name in names}


@pytest.mark.lab("orphan_files")
@pytest.mark.parametrize("collector", ["local", "spark"])
def test_orphans_are_counted_and_weighed_and_left_where_they_are(
    lake: Lake, collector: Collector
) -> None:
    facts = lake.observe("lab.orphan_files", storage=True, collector=collector)
    first, second = (
        facts.storage,
        lake.observe("lab.orphan_files", storage=True, collector=collector).storage,
    )

    assert first is not None
    assert second is not None
    assert first.orphan_count == second.orphan_count > 0
    # Whatever the age of the lab: what no metadata names. Checksums are Hadoop's own and hidden.
    named = _files_of(lake, ("lab", "orphan_files"))
    there = [
        p
        for p in Path(facts.location.removeprefix("file:")).rglob("*")
        if p.is_file() and p not in named and p.name[0] not in "._"
    ]
    assert first.orphan_bytes == second.orphan_bytes == sum(p.stat().st_size for p in there) > 0
    assert first.orphan_count == first.weighed_count == len(there)
    assert dt.datetime.fromtimestamp(first.older_than_ms / 1000, dt.UTC) < dt.datetime.now(
        dt.UTC
    ) - dt.timedelta(days=2)


def test_orphans_on_a_disk_are_those_of_the_dry_run(lake: Lake, scratch: str) -> None:
    """Of a table whose files are all old: references of every kind, metadata files that the log no
    longer names, and hidden files.
    """
    table = Table(lake, scratch, "o'dd table").create("id bigint, _p int", by="_p", version=3)
    table.sql(
        "ALTER TABLE {t} SET TBLPROPERTIES ('write.metadata.previous-versions-max' = '2', "
        "'write.metadata.delete-after-commit.enabled' = 'false')"
    )
    for n in range(3):
        table.sql(f"INSERT INTO {{t}} SELECT id, {n} FROM range({n * 10}, {n * 10 + 10})")
    table.delete("id", "SELECT id FROM range(3)", {"_p": 0})
    table.sql("DELETE FROM {t} WHERE id IN (14, 15)")
    lake.spark.sql(f"CALL lake.system.compute_table_stats('{scratch}.`o\\'dd table`')")
    table.sql("ALTER TABLE {t} CREATE BRANCH kept")
    table.sql("TRUNCATE TABLE {t}")
    facts = lake.observe(table.name)
    root = Path(facts.location.removeprefix("file:"))
    lost = [
        root / "lost.parquet",
        root / "data" / "_p=1" / "lost too.parquet",
        root / "data" / "sub" / "100%25#?.parquet",
        root / "metadata" / "lost.metadata.json",
    ]
    hidden = [
        root / "_SUCCESS",
        root / ".lost.crc",
        root / "data" / "_temporary" / "0" / "part.parquet",
        root / "_other=1" / "part.parquet",
    ]
    for number, path in enumerate([*lost, *hidden], 1):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * number)
    for path in root.rglob("*"):
        os.utime(path, (0, 0))
    young = root / "data" / "young.parquet"
    young.write_bytes(b"y")

    by_spark, on_disk = (
        lake.observe(table.name, storage=True, collector=each).storage
        for each in ("spark", "local")
    )

    assert by_spark is not None
    assert on_disk is not None
    assert dataclasses.replace(on_disk, older_than_ms=by_spark.older_than_ms) == by_spark
    # The log has two metadata files before the current one.
    forgotten = sorted(path for path in (root / "metadata").glob("0*.metadata.json"))[:-3]
    assert on_disk.orphan_count == len(lost) + len(forgotten) > len(lost)
    assert on_disk.orphan_bytes == sum(path.stat().st_size for path in [*lost, *forgotten])


@pytest.mark.lab("orphan_files")
def test_a_table_behind_a_symbolic_link_or_with_too_many_files_is_left_to_spark(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = lake.tables.source(("lab", "orphan_files"))
    metadata = load_metadata(source)
    (tmp_path / "link").symlink_to(metadata["location"].removeprefix("file:"))

    def latest() -> Any:
        return source, metadata

    assert orphans_on_disk(metadata, latest) is not None
    assert orphans_on_disk({**metadata, "location": str(tmp_path / "link")}, latest) is None
    for elsewhere in (tmp_path, "s3://bucket/orphan_files", tmp_path / "gone"):
        assert orphans_on_disk({**metadata, "location": str(elsewhere)}, latest) is None
    monkeypatch.setattr("icekit.facts.orphans._FEW_FILES", 5)  # there are 15 orphans that are old
    assert orphans_on_disk(metadata, latest) is None


@pytest.mark.lab("orphan_files")
def test_of_many_orphans_some_are_weighed_for_all(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icekit.facts.orphans.WEIGHED", 4)
    found = lake.observe("lab.orphan_files", storage=True, collector="spark").storage

    assert found is not None
    assert found.is_estimated
    assert found.weighed_count == 4
    assert len(found.examples) == 4
    assert found.orphan_bytes is not None
    assert found.orphan_bytes > 0


def test_a_table_whose_name_needs_backticks_can_be_named_in_a_call(
    lake: Lake, scratch: str
) -> None:
    table = Table(lake, scratch, "größe-2024")
    table.create("a decimal(9, 2), b decimal(9, 2), f double", "a, b, f")
    table.insert("VALUES (1, 2, double('NaN')), (1, 2, double('NaN'))")
    facts = facts_of(table)

    assert lake.observe(table.name, storage=True).storage is not None
    assert [facts.partition_path(p) for p in facts.partitions()] == ["a=1.00/b=2.00/f=nan"]


@pytest.mark.parametrize(
    "columns",
    [
        "s struct<" + ", ".join(f"c{i}: int" for i in range(150)) + ">",
        "s struct<a: int, b: int>, " + ", ".join(f"c{i} int" for i in range(120)),
    ],
)
def test_metrics_modes_are_those_that_iceberg_gives(table: Table, columns: str) -> None:
    config = table.create(columns).java.MetricsConfig.forTable(table.files.table())

    for column in table.lake.observe(table.name).columns:
        assert column.metrics_mode == config.columnMode(column.name).toString(), column.name


def test_the_catalogs_settings_are_not_on_the_command_line_of_the_jvm(lake: Lake) -> None:
    assert [
        key
        for key, _ in lake.spark.sparkContext.getConf().getAll()
        if key.startswith("spark.sql.catalog.lake")
    ] == []
