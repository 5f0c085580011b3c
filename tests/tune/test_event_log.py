"""Reads of a table are counted in a Spark event log."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from icekit.common.errors import ParameterError
from icekit.tune.event_log import reads_per_day

START = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
DAY = 86_400_000
TABLE = ("db", "events")


def query(at: int, *scans: str, write: str = "") -> dict[str, Any]:
    plan: dict[str, Any] = {
        "nodeName": "Project",
        "children": [{"nodeName": f"BatchScan {s}", "children": []} for s in scans],
    }
    if write:
        plan = {"nodeName": write.split()[0], "simpleString": write, "children": [plan]}
    return {
        "Event": START,
        "time": at,
        "sparkPlanInfo": {"nodeName": "AdaptiveSparkPlan", "children": [plan]},
    }


def log(path: Path, *events: dict[str, Any], compression: str | None = None) -> str:
    with pa.output_stream(str(path), compression=compression) as stream:
        for event in ({"Event": "SparkListenerApplicationStart"}, *events):
            stream.write(json.dumps(event).encode() + b"\n")
    return str(path)


def test_reads_are_queries_that_scan_the_table_and_do_not_write_to_it(tmp_path: Path) -> None:
    path = log(
        tmp_path / "app-1",
        query(0, "lake.db.events"),
        query(DAY, "lake.db.other", "lake.db.events"),
        query(DAY, "lake.db.events_daily"),
        query(DAY, "lake.otherdb.events"),
        query(
            2 * DAY,
            "lake.db.events",
            write="ReplaceData IcebergWrite(table=lake.db.events, format=PARQUET)",
        ),
        query(
            2 * DAY,
            "lake.db.events",
            write="AppendData IcebergWrite(table=lake.db.events_daily, format=PARQUET)",
        ),
    )

    # The log is of two days; one of less than a day counts as one.
    assert reads_per_day(path, TABLE) == 1.5
    events = query(0, "lake.db.events"), query(60_000, "lake.db.events")
    assert reads_per_day(log(tmp_path / "app-2", *events), TABLE) == 2.0


def test_a_folder_of_logs_and_compressed_ones_are_read(tmp_path: Path) -> None:
    log(tmp_path / "events_1_app", query(0, "lake.db.events"))
    log(tmp_path / "events_2_app.zstd", query(DAY, "lake.db.events"), compression="zstd")
    log(tmp_path / "events_3_app.gz", query(2 * DAY, "lake.db.events"), compression="gzip")

    assert reads_per_day(str(tmp_path), TABLE) == 1.5


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.lz4").write_bytes(b"x")
    (tmp_path / "broken.zstd").write_bytes(b"x")
    (tmp_path / "cut").write_text(f'{{"Event": "{START}", \n')

    for name, message in (
        ("none", "no event log"),
        ("a.lz4", "zstd or gzip"),
        ("broken.zstd", "cannot be read"),
        ("cut", "no query"),
    ):
        with pytest.raises(ParameterError, match=message):
            reads_per_day(str(tmp_path / name), TABLE)
