"""The cost of a block is that of its own tasks, and of the threads in which Iceberg reads delete
files for them.
"""

import threading

import pytest

from icekit.api import Lake
from icekit.common.sql import identifier
from icekit.engine.effort import CPU, TASKS, cost_unit, delete_thread_meter, measure_effort

pytestmark = pytest.mark.spark

_WORK = "SELECT sum(hash(id, id * 2)) FROM range(0, 5000000, 1, 4)"


def _run(lake: Lake, sql: str) -> None:
    lake.spark.sql(sql).collect()


@pytest.mark.parametrize("unit", [CPU, TASKS])
def test_a_block_costs_what_its_own_tasks_worked(lake: Lake, unit: str) -> None:
    _run(lake, _WORK)

    with measure_effort(lake.spark, unit) as work:
        _run(lake, _WORK)
    with measure_effort(lake.spark, unit) as nothing:
        pass

    assert work.cost > 0
    assert work.seconds > 0
    # The stages of the blocks before are not counted; threads that read delete files may be at
    # their ends.
    assert nothing.cost < work.cost


def test_jobs_of_another_thread_are_not_counted(lake: Lake) -> None:
    with measure_effort(lake.spark, TASKS) as effort:
        other = threading.Thread(target=_run, args=(lake, _WORK))
        other.start()
        other.join()

    assert effort.cost == 0


def test_reading_delete_files_is_counted_though_no_task_does_it(lake: Lake, scratch: str) -> None:
    table = identifier(*lake.sql_name((scratch, "deleted")))
    lake.spark.sql(
        f"CREATE TABLE {table} (id bigint, part int) USING iceberg PARTITIONED BY (part) "
        "TBLPROPERTIES ('format-version' = '2', 'write.delete.mode' = 'merge-on-read')"
    )
    lake.spark.sql(f"INSERT INTO {table} SELECT id, CAST(id % 4 AS int) FROM range(0, 4000, 1, 1)")
    lake.spark.sql(f"DELETE FROM {table} WHERE id % 7 = 0")

    threads = delete_thread_meter(lake.spark)
    before = threads.cpuNanos()

    with measure_effort(lake.spark, CPU) as effort:
        _run(lake, f"SELECT * FROM {table}")

    assert 0 < (threads.cpuNanos() - before) / 1e9 <= effort.cost


def test_cpu_time_is_for_local_sessions_with_local_files(lake: Lake) -> None:
    assert cost_unit(lake.spark, "file:/tmp/lake/table") == CPU
    assert cost_unit(lake.spark, "s3://bucket/table") == TASKS
