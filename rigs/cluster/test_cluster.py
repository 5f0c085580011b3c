"""icekit on a Spark cluster: executors elsewhere, killed in the middle, too small, and under a
session that somebody else configured.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from icekit.api import Lake
from icekit.engine.cluster import Executor, cluster_of
from icekit.engine.spark_conf import SPARK_RUNTIME, SQLITE_JDBC
from icekit.health.facts.heap import forecast_heap, verdict
from rigs.bench.upserts import KEYS, make_upserts
from rigs.cluster.conftest import SPARK_HOME, Cluster
from tests.deletes.tables import Table

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

PARTITIONS = 6
#: A session as icekit would not start one.
SESSION = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "America/St_Johns",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
}


@contextlib.contextmanager
def an_executor_killed(
    lake: Lake, cluster: Cluster, when: Callable[[], bool]
) -> Iterator[list[int]]:
    """Kill one executor while it works, once ``when`` says so; yields its process id."""
    killed: list[int] = []
    done = threading.Event()
    tracker: Any = lake.spark.sparkContext.statusTracker()

    def busy() -> bool:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)

    def watch() -> None:
        while not done.is_set() and not killed:
            if when() and busy():
                killed.append(cluster.executors()[0])
                os.kill(killed[0], signal.SIGKILL)
            time.sleep(0.01)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        done.set()
        thread.join()


@pytest.fixture
def fragmented(on_cluster: Lake, request: pytest.FixtureRequest) -> Table:
    """Six partitions of eight files, under position deletes."""
    table = Table(on_cluster, "db", request.node.name.partition("[")[0]).create(
        "id bigint, part int, name string", by="part"
    )
    for n in range(8):
        table.sql(
            f"INSERT INTO {{t}} SELECT id, CAST(id % {PARTITIONS} AS INT), concat('name ', id) "
            f"FROM range({n * 600}, {n * 600 + 600})"
        )
    table.sql("DELETE FROM {t} WHERE id % 10 = 0")
    return table


def test_the_executors_cannot_reach_the_loopback_of_the_driver(
    on_cluster: Lake, cluster: Cluster
) -> None:
    assert (
        on_cluster.spark.range(100, numPartitions=4).selectExpr("sum(id)").collect()[0][0] == 4950
    )
    assert on_cluster.spark.conf.get("spark.driver.host") not in {"127.0.0.1", "localhost"}
    namespaces = {Path(f"/proc/{pid}/ns/net").readlink() for pid in cluster.executors()}
    assert namespaces
    assert Path("/proc/self/ns/net").readlink() not in namespaces


def test_the_resources_are_those_of_the_executors(on_cluster: Lake) -> None:
    assert cluster_of(on_cluster.spark).executor == Executor(1, 2**30)


def test_a_compaction_whose_executor_is_killed_ends_well(
    fragmented: Table, on_cluster: Lake, cluster: Cluster
) -> None:
    said: list[str] = []
    before = fragmented.rows()
    plan = on_cluster.plan(
        on_cluster.observe(fragmented.name),
        leave_alone="0 minutes",
        min_files=2,
        max_action_partitions=2,
    )

    with an_executor_killed(
        on_cluster, cluster, lambda: any(line.startswith("[1/") for line in said)
    ) as killed:
        outcome = on_cluster.run(plan, execute=True, progress=said.append)

    assert killed
    assert outcome.status == "done", said
    fragmented.files.refresh()
    assert fragmented.rows() == before
    assert fragmented.sql("SELECT count(*) FROM {t}.data_files")[0][0] == PARTITIONS


def test_a_conversion_whose_executor_is_killed_ends_well(
    on_cluster: Lake, cluster: Cluster
) -> None:
    table = Table(on_cluster, "db", "upserts").create("id bigint, part int, name string", by="part")
    for n in range(6):
        commit = table.commit()
        for part in range(PARTITIONS):
            commit.data(f"SELECT id, {part}, 'version {n}' FROM range(2000)", {"part": part})
            commit.deletes("id", "SELECT id FROM range(2000)", {"part": part})
        commit.done()
    said: list[str] = []
    before = table.rows()

    with an_executor_killed(on_cluster, cluster, lambda: True) as killed:
        outcome = on_cluster.convert(table.name, execute=True, progress=said.append)

    assert killed
    assert outcome.status == "done", said
    table.files.refresh()
    assert table.rows() == before
    assert table.equality_deletes() == 0


def test_a_stock_read_dies_in_the_executors_that_the_forecast_calls_too_small(
    on_cluster: Lake, cluster: Cluster, tmp_path: Path
) -> None:
    table = make_upserts(on_cluster, keys=KEYS["string"], partitions=2, commits=5, rows=800_000)
    facts = on_cluster.observe(table, collector="local")
    # Spark refuses an executor of less than 450 MiB.
    small = Executor(1, 512 * 2**20)
    needed = forecast_heap(facts, small).needed_bytes
    enough = int(needed / 0.6 / 2**20) + 1

    def reads(memory_mb: int) -> bool:
        environment = os.environ | {
            "ICEKIT_SPARK_CONF": cluster.settings(f"{memory_mb}m")
            + " spark.sql.iceberg.executor-cache.enabled=false"
        }
        command = [sys.executable, "-m", "rigs.bench.forecast_child", f"read:{table}"]
        environment["ICEKIT_BENCH_SAMPLE"] = "False"
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, check=False, timeout=600
        )
        (tmp_path / f"{memory_mb}.log").write_text(done.stdout + done.stderr)
        return done.returncode == 0

    assert verdict(needed, small.heap_bytes) == "will not fit", needed
    assert not reads(512)
    assert verdict(needed, enough * 2**20) == "fits", enough
    assert reads(enough)


def test_a_job_that_somebody_else_submits_and_configures_keeps_its_settings(
    cluster: Cluster, tmp_path: Path
) -> None:
    settings = {
        "spark.executor.memory": "1g",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.driver.memory": "1g",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.sql.catalog.theirs": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.theirs.type": "jdbc",
        "spark.sql.catalog.theirs.jdbc.schema-version": "V1",
        "spark.sql.catalog.theirs.uri": f"jdbc:sqlite:file:{tmp_path}/theirs.db",
        "spark.sql.catalog.theirs.warehouse": str(tmp_path / "warehouse"),
        **SESSION,
    }
    command: list[object] = [SPARK_HOME / "bin" / "spark-submit", "--master", cluster.master]
    command += ["--packages", f"{SPARK_RUNTIME},{SQLITE_JDBC}"]
    command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    command += [Path(__file__).with_name("theirs.py"), json.dumps(SESSION)]
    root = str(Path(__file__).parents[2])
    environment = os.environ | {
        "PYTHONPATH": root,
        "PYSPARK_PYTHON": sys.executable,
        "ICEKIT_LEDGER": str(tmp_path / "ledger.db"),
    }
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
        timeout=600,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "compacted": "done",
        "converted": "done",
        "same rows": True,
        "equality deletes": 0,
        "settings": SESSION,
    }
