"""Health kept by Spark, and the time of one table: what needs a session."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from icekit.api import Lake
from icekit.catalog.lake import cancel, tagged
from icekit.history.iceberg import SparkStore
from icekit.history.store import RecentRuns
from icekit.history.trend import table_store
from tests.history.test_stores import record

pytestmark = pytest.mark.spark


@pytest.fixture
def kept(lake: Lake) -> Iterator[SparkStore]:
    yield SparkStore(lake)
    lake.spark.sql("DROP TABLE IF EXISTS lake.icekit.health PURGE")


def test_spark_appends_once_and_pyiceberg_reads_the_same_table(lake: Lake, kept: SparkStore) -> None:
    runs = [record(day, table) for day in (380, 381) for table in ("db.a", "db.odd's")]
    odd = runs[1].table_name

    assert kept.last(["db.a"]) == {}
    assert kept.append(runs[:2]) == 2
    assert kept.append(runs) == 2
    assert kept.append(runs) == 0
    expected = {"db.a": [runs[0], runs[2]], odd: [runs[1], runs[3]]}
    assert kept.last(["db.a", odd]) == expected
    assert kept.last(["db.a"], 1, other_than="run381") == {"db.a": [runs[0]]}
    assert table_store(lake).last(["db.a", odd]) == expected
    assert kept.lately(["db.a", odd, "db.none"]) == table_store(lake).lately(["db.a", odd, "db.none"])
    assert kept.lately(["db.a"])["db.a"] == RecentRuns(runs[2], (0, 0))
    assert table_store(lake).append([record(382, "db.a")]) == 1
    assert [h.run_id for h in kept.last(["db.a"], 2)["db.a"]] == ["run381", "run382"]


def test_spark_work_of_a_table_whose_time_is_over_is_cancelled(lake: Lake) -> None:
    ended: list[BaseException | None] = []
    over = threading.Event()
    slow = "SELECT sum(hash(a.id * b.id)) FROM range(0, 10000000, 1, 2) a CROSS JOIN range(0, 10000) b"

    def work() -> None:
        try:
            with tagged(lake, "icekit-test") as taken:
                taken.spark.sql(slow).collect()
            ended.append(None)
        except Exception as error:
            ended.append(error)
        finally:
            over.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    cancel(lake, "icekit-test", over)
    thread.join(60)

    assert not thread.is_alive()
    assert "cancel" in str(ended[0]).lower()
