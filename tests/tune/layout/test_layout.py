"""A layout is measured and tried on a clone; the table is only read, and nothing is left behind."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest

from icekit.api import Lake
from icekit.engine.planner import PlannedScan, plan_scan
from icekit.errors import ParameterError
from icekit.facts.metadata import undo_order
from icekit.facts.model import TableFacts
from icekit.sandbox import NAMESPACE
from icekit.sql import Identifier, identifier
from icekit.tune.ddl import rewrite, write_order
from icekit.tune.filters import Filter, Leaf
from icekit.tune.layout import AskedFilters, Layout, run_trial, tune_layout
from icekit.tune.layout.advise import OLD_DATA, ORDER, SPEC
from icekit.tune.layout.clustering import partition_shares, plans
from icekit.tune.layout.model import SORT, BloomCheck, Field, LayoutOrder
from icekit.tune.layout.rows import hilbert
from icekit.tune.queries import Filters
from tests.trials import trial_of

pytestmark = pytest.mark.spark

SMALL = "'write.target-file-size-bytes' = '65536', 'write.parquet.row-group-size-bytes' = '16384'"


class Table:
    """Ids in order, a key for each that is spread evenly, and a number of three values."""

    def __init__(self, lake: Lake, namespace: str, name: str, partitioned: str = "", properties: str = "") -> None:
        self.lake, self.name = lake, (namespace, name)
        self.full: Identifier = lake.sql_name(self.name)
        self.sql_name = identifier(*self.full)
        lake.spark.sql(
            f"CREATE TABLE {self.sql_name} (id bigint, key string, kind int, at timestamp) USING iceberg {partitioned} "
            f"TBLPROPERTIES ({SMALL}{properties})"
        )

    def append(self, first: int, last: int, step: int = 1, tasks: int = 1) -> None:
        self.lake.spark.sql(
            f"INSERT INTO {self.sql_name} SELECT id, hex(xxhash64(id)), CAST(id % 3 AS int), timestamp_seconds(1704067200 + id * 60) "
            f"FROM range({first}, {last}, {step}, {tasks})"
        )

    def tune(self, **options: Any) -> Layout:
        return tune_layout(self.lake, self.name, **{"progress": lambda _: None, **options})

    @property
    def state(self) -> tuple[Any, ...]:
        home = Path(self.lake.observe(self.name).location.removeprefix("file:"))
        scratch = home.parent / NAMESPACE
        names = [n for n in self.lake.tables.names() if n[0] == NAMESPACE]
        return self.lake.tables.source(self.name).metadata_location, sorted(home.rglob("*")), scratch.exists(), names


def test_a_sorted_table_is_left_until_late_data_wears_it_off(lake: Lake, scratch: str, tmp_path: Path) -> None:
    table = Table(lake, scratch, "sorted", properties=", 'icekit.filter-columns' = 'id'")
    lake.spark.sql(f"ALTER TABLE {table.sql_name} WRITE LOCALLY ORDERED BY id")
    for first in range(0, 24_000, 6_000):
        table.append(first, first + 6_000)

    fresh = table.tune()
    for late in range(4):
        table.append(late, 24_000, 6)
    before = table.state
    worn = table.tune()

    assert not fresh.is_change
    assert fresh.tried is None
    assert "No change" in fresh.verdict()
    assert table.state == before
    assert worn.tried is not None
    assert worn.tried.share_after < worn.share_now / 2
    assert worn.worn[0].depth > 3
    assert [a.setting for a in worn.advice if a.is_change] == [OLD_DATA]
    document = json.loads(worn.write_into(tmp_path).read_text())
    assert document["question"] == "layout"
    assert document["tables"]["worn"][0]["data_files"] == worn.worn[0].files


def test_an_order_that_filters_need_is_tried_and_advised_and_can_be_taken_back(lake: Lake, scratch: str) -> None:
    table = Table(lake, scratch, "unordered")
    table.append(0, 24_000)

    answer = table.tune(filters=[f"key = hex(xxhash64({n}L))" for n in (7, 12_000, 20_001)])

    change = next(a for a in answer.advice if a.setting == ORDER)
    assert change.proposed == "key"
    assert answer.share_now == 1.0
    assert answer.tried is not None
    # Where Spark cuts the order into files is its own affair: each key is in one of them, at most two.
    assert answer.tried.share_after < answer.tried.share_before / 2
    facts = answer.facts
    for statement in (change.sql or "", *str(change.undo).split("; ")):
        lake.spark.sql(statement)
    again = lake.observe(table.name)
    assert again.sort_order == facts.sort_order
    assert dict(again.properties) == dict(facts.properties)


def test_an_order_by_partition_is_taken_back_to_the_one_before(lake: Lake, scratch: str) -> None:
    table = Table(lake, scratch, "ordered", "PARTITIONED BY (kind)")
    lake.spark.sql(f"ALTER TABLE {table.sql_name} WRITE ORDERED BY id DESC NULLS LAST")
    facts = lake.observe(table.name)

    lake.spark.sql(write_order(table.full, facts.by_name, ["key"], by_partition=True))
    changed = lake.observe(table.name)
    for statement in undo_order(table.full, facts).split("; "):
        lake.spark.sql(statement)

    assert changed.properties["write.distribution-mode"] == "hash"
    assert [f.source for f in changed.sort_order] == ["key"]
    again = lake.observe(table.name)
    assert again.sort_order == facts.sort_order
    assert dict(again.properties) == dict(facts.properties)


def test_partitions_that_are_said_to_be_pruned_are_pruned_by_the_planner(lake: Lake, scratch: str) -> None:
    table = Table(lake, scratch, "pruned", "PARTITIONED BY (days(at), bucket(4, id))")
    table.append(0, 4_000)
    facts = lake.observe(table.name, collector="spark")
    day = 1_704_067_200_000_000
    filters = [
        Filter("a day", Leaf("at", "<", (day + 86_400_000_000,))),
        Filter("an id", Leaf("id", "=", (17,))),
        Filter("nothing", Leaf("at", "is null")),
    ]

    shares = partition_shares(facts, filters)
    opened = plans(partial(plan_scan, lake.spark, table.full), facts, filters, print)

    total = facts.data.size_in_bytes
    assert opened[filters[0]].data_bytes == pytest.approx(shares[filters[0]] * total)
    assert 0 < opened[filters[1]].data_bytes <= shares[filters[1]] * total < total
    assert opened[filters[2]].data_bytes == shares[filters[2]] == 0


def test_a_bloom_filter_is_tried_by_rows_that_lookups_read(lake: Lake, scratch: str) -> None:
    # A dictionary would rule the row groups out as well; the bench has one too small for any.
    table = Table(lake, scratch, "bloom", properties=", 'write.parquet.dict-size-bytes' = '1024'")
    table.append(0, 24_000)
    before = table.state
    facts = lake.observe(table.name, collector="spark")

    trial = run_trial(
        trial_of(lake, facts), AskedFilters(found=Filters(()), bound=()), None, [BloomCheck("key", False, 24_000, 400_000, None)]
    )

    assert table.state == before
    tried = trial.blooms["key"]
    assert 0.9 < tried.rows_without / (24_000 * tried.lookups) <= 1
    assert tried.rows_with < tried.rows_without / 10
    assert tried.bytes_with > tried.bytes_without


def test_a_sample_lies_as_the_table_does_and_has_its_order_and_distribution(lake: Lake, scratch: str) -> None:
    table = Table(lake, scratch, "sampled", "PARTITIONED BY (days(at))", ", 'write.distribution-mode' = 'hash'")
    lake.spark.sql(f"ALTER TABLE {table.sql_name} WRITE LOCALLY ORDERED BY kind DESC NULLS LAST, id")
    table.append(0, 7_000)
    facts, before = lake.observe(table.name, collector="spark"), table.state
    half = facts.data.size_in_bytes // 2

    with trial_of(lake, facts, sample_bytes=half).sandbox(always_sample=True) as box:
        there = box.observe()
        box.run(rewrite(box.name, {}, None, by_table=True))

    assert there.sort_order == facts.sort_order
    assert there.properties["write.distribution-mode"] == "hash"
    assert "write.spark.fanout.enabled" not in there.properties
    assert 0 < there.data.record_count < facts.data.record_count
    assert table.state == before


def test_a_sample_is_compared_with_itself_by_the_filters_that_find_rows_there(
    lake: Lake, scratch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(lake, scratch, "compared")
    table.append(0, 24_000)
    facts = lake.observe(table.name, collector="spark")
    inside, outside = [Filter("id", Leaf("id", "=", (n,))) for n in range(1_500, 24_000, 3_000)], Filter("id", Leaf("id", "=", (10**9,)))
    first, second = (trial_of(lake, facts, sample_bytes=facts.data.size_in_bytes // 2) for _ in range(2))
    # Which files are copied, and how large those of the copy are, is Spark's affair: what the planner opens there is what counts.
    there: list[tuple[int, dict[Filter, PlannedScan]]] = []

    def noted(plan: Any, facts: TableFacts, filters: Any, progress: Any) -> dict[Filter, PlannedScan]:
        there.append((facts.data.size_in_bytes, plans(plan, facts, filters, progress)))
        return there[-1][1]

    monkeypatch.setattr("icekit.tune.layout.plans", noted)

    asked = AskedFilters(found=Filters((outside,)), bound=[outside])
    nothing = run_trial(first, asked, ((), LayoutOrder(SORT, ("id",))))
    # What is opened of the table as it is says nothing of a sample.
    opened = {one: PlannedScan(1, facts.data.size_in_bytes // 8, 0) for one in [*inside, outside]}
    asked = AskedFilters(found=Filters(tuple(inside)), bound=[*inside, outside], opened=opened)
    ran = run_trial(second, asked, ((), LayoutOrder(SORT, ("key",))))

    assert nothing.tried is None
    assert "no filter matches rows" in str(first.stopped)
    assert ran.tried is not None
    assert ran.tried.is_sample
    # What finds no rows there counts in neither share.
    _, (bytes_before, before), (bytes_after, after) = there
    assert before[outside].data_files == 0
    assert set(after) == {one for one, plan in before.items() if plan.data_files}
    assert ran.tried.share_before == pytest.approx(mean(before[one].data_bytes for one in after) / bytes_before)
    assert ran.tried.share_after == pytest.approx(mean(plan.data_bytes for plan in after.values()) / bytes_after)


def test_a_bloom_filter_stays_where_the_order_that_would_replace_it_is_not_borne_out(lake: Lake, scratch: str) -> None:
    switched_on = "write.parquet.bloom-filter-enabled.column.key"
    small = ", 'write.parquet.dict-size-bytes' = '1024', 'write.parquet.bloom-filter-max-bytes' = '1024'"
    table = Table(lake, scratch, "replaced", properties=f"{small}, '{switched_on}' = 'true'")
    table.append(0, 60_000)
    options: dict[str, Any] = {"filters": [f"key = hex(xxhash64({n}L))" for n in (7, 12_000, 20_001)]}

    promised = {a.setting: a for a in table.tune(trial=False, **options).advice}
    stopped = table.tune(budget_bytes="1 KB", **options)

    assert promised[ORDER].is_change
    assert "with the advised layout" in promised[switched_on].evidence
    assert stopped.stopped is not None
    assert [a.sql for a in stopped.advice if a.is_change] == []


def test_an_error_of_the_engine_ends_a_trial_and_loses_no_answer(lake: Lake, scratch: str) -> None:
    table = Table(lake, scratch, "failing")
    table.append(0, 100)
    facts, before = lake.observe(table.name, collector="spark"), table.state

    trial, lookup = trial_of(lake, facts), Filter("id", Leaf("id", "=", (7,)))
    asked = AskedFilters(found=Filters((lookup,)), bound=[lookup], opened={lookup: PlannedScan(1, 1, 0)})
    ran = run_trial(trial, asked, ((Field("id", "future[3]"),), None))

    assert ran.tried is None
    assert "Spark failed during the trial" in str(trial.stopped)
    assert table.state == before


def test_a_table_without_data_and_parameters_that_cannot_be_are_refused(lake: Lake, scratch: str) -> None:
    table = Table(lake, scratch, "bare")

    with pytest.raises(ParameterError, match="no data files"):
        table.tune()
    with pytest.raises(ParameterError, match="max_sort_columns"):
        table.tune(max_sort_columns=0)


def test_the_hilbert_index_is_icebergs_own(lake: Lake) -> None:
    jvm: Any = lake.spark._jvm
    gateway: Any = lake.spark._sc._gateway
    draw = np.random.default_rng(5)
    points = draw.integers(0, 2**63, size=(6, 2), dtype=np.uint64)

    keys = hilbert([points[:, 0], points[:, 1]])
    for place, point in enumerate(points):
        columns = gateway.new_array(jvm.byte, 2, 8)
        for axis in range(2):
            columns[axis] = int(point[axis]).to_bytes(8, "big")
        found = bytes(jvm.org.apache.iceberg.util.HilbertByteUtils.hilbertIndex(columns, 64))
        assert found == b"".join(int(key[place]).to_bytes(8, "big") for key in keys)


def test_days_of_the_month_are_not_kept_without_their_months_and_years(lake: Lake, scratch: str) -> None:
    name = identifier(lake.name, scratch, "parts")
    lake.spark.sql(
        f"CREATE TABLE {name} (id bigint, year int, month int, day int) USING iceberg PARTITIONED BY (year, month, day) TBLPROPERTIES ({SMALL})"
    )
    lake.spark.sql(
        f"INSERT INTO {name} SELECT id, year(d), month(d), day(d) FROM (SELECT id, date_add(DATE '2024-01-01', CAST(id % 120 AS int)) AS d FROM range(12000))"
    )
    filters = [f"day = {n} AND month = 2 AND year = 2024" for n in (3, 17)] + ["id = 77"]

    answer = tune_layout(lake, (scratch, "parts"), filters=filters, trial=False, progress=lambda _: None)

    assert answer.candidates[0].name == "year, month, day"
    assert answer.candidates[0].spread.a_year == pytest.approx(120, abs=1)
    specs = [{f.column for f in c.spec} for c in answer.candidates[1:]]
    assert {"year", "month"} in specs
    assert not [s for s in specs if "day" in s and not {"year", "month"} <= s]


def test_a_bloom_filter_is_tried_as_the_cheaper_alternative_to_a_new_spec(lake: Lake, scratch: str) -> None:
    name = identifier(lake.name, scratch, "buckets")
    lake.spark.sql(
        f"CREATE TABLE {name} (key string, note string, kind int) USING iceberg PARTITIONED BY (kind) "
        f"TBLPROPERTIES ({SMALL}, 'write.parquet.dict-size-bytes' = '1024')"
    )
    for first in range(0, 30_000, 10_000):
        lake.spark.sql(
            f"INSERT INTO {name} SELECT hex(xxhash64(id)), hex(xxhash64(id, 'note')), CAST(id % 3 AS int) FROM range({first}, {first + 10_000})"
        )

    answer = tune_layout(
        lake,
        (scratch, "buckets"),
        filters=[f"key = hex(xxhash64({n}L))" for n in (7, 15_000, 20_001)],
        reads_per_day=4,
        progress=lambda _: None,
    )

    changes = {a.setting: a for a in answer.advice if a.is_change and not a.is_alternative}
    (instead,) = [a for a in answer.advice if a.is_alternative]
    assert SPEC in changes
    assert "bucket" in str(changes[SPEC].proposed)
    assert instead.sql is not None
    assert "'write.parquet.bloom-filter-enabled.column.key' = 'true'" in instead.sql
    assert instead.sql not in answer.script.sql
    assert "lookups read" in (instead.verified or "")
    assert any(e.figure.startswith("queries until") and ", in " in e.after for e in answer.effects())
