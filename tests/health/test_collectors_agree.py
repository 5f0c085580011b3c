"""Spark and the JVM-free collector give equal facts, for every table of the lab and for odd ones."""

import datetime as dt
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from icekit.api import Lake
from icekit.health import Kind
from icekit.health.facts import spark
from icekit.learn.lab import lake_folder
from tests.damage import on_disk
from tests.deletes.tables import Table
from tests.health.both import facts_of
from tests.offline import catalog_of
from tests.workshop import each_lab_table

pytestmark = pytest.mark.spark


@each_lab_table()
def test_collectors_agree_on_every_lab_table(lake: Lake, name: str) -> None:
    facts_of(Table(lake, "lab", name))


@pytest.mark.core
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


def test_spark_reads_only_the_statistics_of_key_columns(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statistics of 100 columns would take most of the time."""
    read = []

    def noted(make: Any, *given: Any) -> Any:
        rows = make(*given)
        scan = rows._jdf.queryExecution().optimizedPlan().collectLeaves().head()
        read.append(scan.scan().readSchema().catalogString())
        return rows

    for name in ("_live_file_rows", "_key_spans"):
        monkeypatch.setattr(spark, name, partial(noted, getattr(spark, name)))
    table.create("id bigint, part int, name string", "part")
    table.sql("INSERT INTO {t} SELECT id, 0, 'a' FROM range(5)")
    facts_of(table)
    table.delete("id", "SELECT 1L", {"part": 0})
    facts_of(table)

    before, of_files, of_keys = read
    assert "bounds" not in before + of_files
    assert "readable_metrics:struct<id:" in of_keys
    assert "name:" not in of_keys


@pytest.mark.core
def test_collectors_agree_on_every_type_and_transform_a_partition_can_have(table: Table) -> None:
    longest = f"{9 * 10**31}.678"  # more digits than Python's arithmetic keeps
    table.create(
        "i int, l bigint, f float, d double, s string, b binary, dec decimal(38, 3), day date, ts "
        "timestamp, tn timestamp_ntz, flag boolean, nested struct<inner: int>, at timestamp",
        "i, l, f, d, s, b, dec, day, ts, tn, flag, nested.inner, bucket(4, i), truncate(2, s), "
        "years(ts), hours(tn), days(at), months(day)",
    )
    table.sql(
        f"INSERT INTO {{t}} VALUES (1, 2, 1.5, 2.5, 'a/b=c', X'00ff', {longest}, DATE "
        "'1969-12-31', TIMESTAMP '1969-12-31 23:59:59.5', TIMESTAMP_NTZ '2013-01-01 00:00:00', "
        "true, named_struct('inner', 7), TIMESTAMP '2013-05-06 07:08:09'), (null, null, null, "
        "null, null, null, null, null, null, null, null, null, null)"
    )
    facts = facts_of(table)

    assert facts.integrity.narrow_manifest_count == 0
    nulls, values = sorted((facts.partition_name(p) for p in facts.partitions()), reverse=True)
    assert (
        f"s=a%2Fb%3Dc/b=00ff/dec={longest}/day=1969-12-31/ts=1969-12-31T23:59:59.500000+00:00/"
        "tn=2013-01-01T00:00:00/flag=true"
    ) in values
    assert values.endswith(
        "s_trunc=a%2F/ts_year=1969/tn_hour=2013-01-01-00/at_day=2013-05-06/day_month=1969-12"
    )
    assert {part.partition("=")[2] for part in nulls.split("/")} == {"null"}


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


@pytest.mark.core
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
    table.create("`a.b c` decimal(9, 2), `it's` date, f double", "`a.b c`, days(`it's`), f")
    table.insert("VALUES (1, DATE '2013-01-01', double('NaN')), (2, null, double('NaN'))")
    facts = facts_of(table)

    assert [facts.partition_name(p) for p in facts.partitions()] == [
        "a.b c=1.00/it's_day=2013-01-01/f=nan",
        "a.b c=2.00/it's_day=null/f=nan",
    ]
    assert lake.observe(table.name, storage=True).storage is not None


def test_a_snapshot_that_is_new_to_the_session_is_read(table: Table) -> None:
    """A writer outside this session commits; the session's cached table must not be trusted."""
    table.create("id int").insert("VALUES (1)").sql("SELECT * FROM {t}")
    with catalog_of(lake_folder(table.lake)) as other:
        other.load_table(table.name).append(pa.table({"id": pa.array([2, 3], pa.int32())}))

    assert facts_of(table).data.record_count == 3


@pytest.mark.lab("orphan_files")
def test_orphans_are_counted_and_weighed_and_left_where_they_are(lake: Lake) -> None:
    facts = lake.observe("lab.orphan_files", storage=True)
    first, second = facts.storage, lake.observe("lab.orphan_files", storage=True).storage

    assert first is not None
    assert second is not None
    # The lab dates them ten days back. Checksums are Hadoop's own and hidden.
    files = [p for p in on_disk(facts.location).rglob("*") if p.is_file() and p.name[0] not in "._"]
    newest = max(p.stat().st_mtime for p in files)
    orphans = [p for p in files if p.stat().st_mtime < newest - 9 * 86_400]
    assert first.orphan_count == second.orphan_count == first.weighed_count == len(orphans) > 0
    assert first.orphan_bytes == second.orphan_bytes == sum(p.stat().st_size for p in orphans) > 0
    assert dt.datetime.fromtimestamp(first.older_than_ms / 1000, dt.UTC) < dt.datetime.now(
        dt.UTC
    ) - dt.timedelta(days=2)


@pytest.mark.lab("orphan_files")
def test_of_many_orphans_some_are_weighed_for_all(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icekit.health.storage.orphans.MOST_MEASURED", 4)
    found = lake.observe("lab.orphan_files", storage=True, collector="spark").storage

    assert found is not None
    assert found.is_estimated
    assert found.weighed_count == 4
    assert len(found.examples) == 4
    assert found.orphan_bytes is not None
    assert found.orphan_bytes > 0


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
