"""The forecast of the lab's upsert stream, beside what a brute force over ``entries`` counts."""

import pytest

from icekit.api import Lake
from icekit.engine.cluster import Executor, cluster_of
from icekit.health.facts.heap import forecast_heap

pytestmark = [pytest.mark.spark, pytest.mark.lab("equality_deletes")]

TABLE = "lab.equality_deletes"


def test_the_forecast_counts_what_entries_count(lake: Lake) -> None:
    facts = lake.observe(TABLE)
    applied = lake.spark.sql(
        """
        WITH live AS (SELECT sequence_number AS s, data_file FROM lake.lab.equality_deletes.entries WHERE status < 2)
        SELECT d.data_file.partition.flight_id_bucket AS bucket, d.data_file.file_path AS path, sum(e.data_file.record_count) AS records
        FROM live d JOIN live e ON d.data_file.content = 0 AND e.data_file.content = 2 AND e.s > d.s
          AND d.data_file.spec_id = e.data_file.spec_id AND d.data_file.partition <=> e.data_file.partition
        GROUP BY bucket, path
        """
    ).collect()
    worst: dict[int, int] = {}
    for row in applied:
        worst[row["bucket"]] = max(worst.get(row["bucket"], 0), row["records"])

    forecast = forecast_heap(facts, Executor(2, 2**30))

    assert forecast.max_deletes_per_file == max(worst.values())
    assert forecast.record_loads == sum(row["records"] for row in applied)
    assert forecast.data_file_count == len(applied)
    assert [(len(k.field_ids), k.file_count, k.record_count) for k in facts.equality_keys] == [
        (1, 96, 43_015)
    ]
    assert forecast.key_bytes == 8


def test_the_executor_is_that_of_the_session(lake: Lake) -> None:
    executor = cluster_of(lake.spark).executor

    assert executor.cores == 2
    assert 0.8 * 2**30 < executor.heap_bytes <= 2**30
