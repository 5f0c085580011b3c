"""Filters are found where queries leave them, and Iceberg plans with them what the table's own
queries would read.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from icekit.api import Lake
from icekit.common.errors import ParameterError
from icekit.common.sql import identifier
from icekit.engine.planner import plan_scan
from icekit.tune.event_log import _START
from icekit.tune.filters import ColumnCondition, filter_sql, filters_of
from icekit.tune.queries import draw_sample, filters_with_values, read_filters

pytestmark = [pytest.mark.spark, pytest.mark.lab("evolved")]
SCAN = (
    "BatchScan lake.lab.evolved[a#1] IcebergScan(table=lake.lab.evolved, schemaId=0, "
    "snapshotId=1, branch=null, filters={}, runtimeFilters=, groupedBy=) RuntimeFilters: []"
)


def test_stated_predicates_and_queries_are_read_as_spark_pushes_them(lake: Lake) -> None:
    facts = lake.observe("lab.evolved")

    found = read_filters(
        lake,
        facts,
        filter_texts=[
            "tail_number = 'N14228'",
            "SELECT carrier FROM lab.evolved WHERE distance > 1000",
            "lower(carrier) = 'ua'",
        ],
    )

    assert [f.tree for f in found.filters] == [
        ColumnCondition("tail_number", "=", ("N14228",)),
        ColumnCondition("distance", ">", (1000,)),
    ]
    assert any("1 query had no filter" in note for note in found.notes)
    columns = facts.by_name
    whole = plan_scan(lake.spark, ("lake", "lab", "evolved"))
    some = plan_scan(
        lake.spark, ("lake", "lab", "evolved"), filter_sql(found.filters[0].tree, columns)
    )
    assert 0 < some.data_files <= whole.data_files


@pytest.mark.parametrize(
    "text",
    [
        "lake.system.years(time_hour) = 43",
        "lake.system.hours(time_hour) IN (376944, 376945)",
        "carrier IN ('UA', 'AA')",
        "carrier LIKE 'U%'",
        "dep_time IS NULL",
        "carrier = 'UA' OR origin = 'JFK'",
        "CAST(distance AS string) = '1400'",
        "CAST(time_hour AS date) = DATE'2013-01-02'",
        "date(time_hour) >= DATE'2013-01-02'",
        "NOT (distance > 5 AND carrier IS NULL)",
        "isnan(CAST(distance AS double)) OR distance BETWEEN 1 AND 2",
        "lake.system.bucket(8, distance) = 1",
        "carrier <> 'UA'",
        "carrier NOT IN ('UA', 'AA')",
    ],
)
def test_what_spark_gives_to_iceberg_is_never_said_not_to_reach_it(lake: Lake, text: str) -> None:
    facts = lake.observe("lab.evolved")
    plan: Any = lake.spark.sql(f"SELECT * FROM lake.lab.evolved WHERE {text}")
    pushed = filters_of(plan._jdf.queryExecution().toString())

    found = read_filters(lake, facts, filter_texts=[text])

    assert not pushed or not any("reach Iceberg" in note for note in found.notes)
    assert bool(found.filters) != any("had no filter by which bounds" in n for n in found.notes)


def test_a_lookup_without_a_value_is_a_filter_on_its_column(lake: Lake) -> None:
    found = read_filters(
        lake, lake.observe("lab.evolved"), filter_texts=["tail_number = ?", " `carrier`=  ? "]
    )

    assert [f.tree for f in found.filters] == [
        ColumnCondition("tail_number", "="),
        ColumnCondition("carrier", "="),
    ]


@pytest.mark.parametrize(
    "text", ["no_such = ?", "carrier <= ?", "carrier =", "no_such = 1", "year", "SELECT 1"]
)
def test_what_is_no_predicate_on_the_table_is_refused_in_a_sentence(lake: Lake, text: str) -> None:
    with pytest.raises(ParameterError, match=r"\.$"):
        read_filters(lake, lake.observe("lab.evolved"), filter_texts=[text])


def test_logs_are_read_and_columns_of_before_a_rename_or_a_drop_named(
    lake: Lake, tmp_path: Path
) -> None:
    facts = lake.observe("lab.evolved")
    log = tmp_path / "log"
    node = {
        "nodeName": "BatchScan lake.lab.evolved",
        "simpleString": SCAN.format("tail_number = 'N1', tailnum = 'N1', minute = 5"),
        "children": [],
    }
    event = json.dumps({"Event": _START, "time": 1, "sparkPlanInfo": node})
    # An application that was killed leaves half a line.
    log.write_text(f"{event}\n{event}\n{event[:200]}")

    found = read_filters(lake, facts, event_log=str(log))

    assert [(f.tree, f.weight) for f in found.filters] == [
        (ColumnCondition("tail_number", "=", ("N1",)), 2.0)
    ]
    for name in ("minute", "tailnum"):
        assert any(
            f"on {name} are" in note and "dropped or renamed" in note for note in found.notes
        )


@pytest.mark.lab("unclustered")
def test_filters_without_values_get_some_from_the_table(lake: Lake) -> None:
    facts = lake.observe("lab.unclustered", filter_columns=["tailnum"])
    found = read_filters(lake, facts)

    drawn = draw_sample(lake, facts, ["tailnum", "time_hour", "flight_date"], sampled_row_count=500)
    bound = list(filters_with_values(found.filters, drawn))

    assert 400 < len(drawn["time_hour"]) < 600
    assert all(isinstance(v, int) for v in drawn["time_hour"] + drawn["flight_date"])
    assert sum(f.weight for f in bound) == pytest.approx(1.0)
    assert not any(f.is_without_value for f in bound)


@pytest.mark.lab("unclustered")
def test_a_sample_is_the_same_however_spark_splits_its_work(lake: Lake) -> None:
    facts = lake.observe("lab.unclustered")
    table = identifier(*lake.sql_name(facts.table))
    whole = draw_sample(lake, facts, ["tailnum", "time_hour"], sampled_row_count=500)
    lake.spark.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES ('read.split.target-size' = '65536', "
        "'read.split.open-file-cost' = '1')"
    )
    try:
        split = draw_sample(lake, facts, ["tailnum", "time_hour"], sampled_row_count=500)
    finally:
        lake.spark.sql(
            f"ALTER TABLE {table} UNSET TBLPROPERTIES ('read.split.target-size', "
            "'read.split.open-file-cost')"
        )

    assert whole == split
