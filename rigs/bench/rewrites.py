"""Time rewrites as a person would: whole commands, from the command to the prompt, checks included.

Run as a module, it is the Spark job that icekit is compared with: a call of Iceberg's own
``rewrite_data_files`` with the arguments of a JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping

import icekit
from icekit.common.sql import call_sql
from rigs.bench.measure import watched

ICEKIT, STOCK = "icekit compact, checked", "stock rewrite_data_files, not checked"
#: The name and the command of a Spark session that does nothing.
EMPTY_SESSION = "an empty Spark session"
EMPTY_SESSION_COMMAND = (
    sys.executable,
    "-c",
    "import icekit; lake = icekit.connect(); lake.spark.sql('SELECT 1').collect(); lake.close()",
)


def compact_command(table: str, *options: str) -> list[str]:
    """``icekit compact`` of all partitions that are worth it, however new they are."""
    leave_none_alone = ("--leave-alone", "0 minutes", "--execute")
    return [sys.executable, "-m", "icekit", "compact", table, *options, *leave_none_alone]


def stock_command(table: str, options: Mapping[str, str], **arguments: str) -> list[str]:
    """A Spark job that calls ``rewrite_data_files``."""
    order = json.dumps({"table": table, "options": options, **arguments})
    return [sys.executable, "-m", "rigs.bench.rewrites", order]


def timed(
    command: list[str], heap_gb: int, deadline: float = 1_800.0, **settings: str
) -> tuple[float, int] | None:
    """Seconds and peak memory in bytes of a whole process, whose session has so much heap and all
    cores; None if it was ended after ``deadline`` seconds.
    """
    conf = {
        "spark.master": f"local[{os.cpu_count()}]",
        "spark.driver.memory": f"{heap_gb}g",
        **settings,
    }
    written = " ".join(f"{name}={value}" for name, value in conf.items())
    before = os.environ.get("ICEKIT_SPARK_CONF", "")
    return watched(command, deadline, ICEKIT_SPARK_CONF=f"{before} {written}")


def session_seconds() -> float:
    """Seconds of a Spark session that does nothing, once what later starts of Spark use is there."""
    for _ in range(2):
        started = time.monotonic()
        subprocess.run(EMPTY_SESSION_COMMAND, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - started


if __name__ == "__main__":
    lake = icekit.connect()
    lake.spark.sql(call_sql(lake.name, "rewrite_data_files", **json.loads(sys.argv[1]))).collect()
    lake.close()
