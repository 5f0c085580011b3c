"""``python -m rigs.bench partitions``: whole commands on a table of many small partitions.

``icekit compact`` with its checks, and a Spark job that calls ``rewrite_data_files``, in turns on
equal tables, from the command to the prompt.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

import icekit
from icekit.api import Lake
from rigs.bench.measure import in_child, show
from rigs.bench.rewrites import ICEKIT, STOCK, compact_command, stock_command

NAME = "rigs.bench.partitions"
PARTITIONS, FILES, ROWS = 300, 6, 20
TABLE = "bench.partitions"


def run(sizes: Sequence[int], *, long: bool) -> None:
    """Measure both commands; ``sizes`` are of other benches' tables."""
    del sizes
    commands = {
        ICEKIT: compact_command(TABLE),
        STOCK: stock_command(TABLE, {}),
    }
    rows = []
    for _ in range(3 if long else 1):
        for way, command in commands.items():
            in_child(NAME, "make")
            started = time.monotonic()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            seconds = time.monotonic() - started
            files, count = in_child(NAME, "count")
            result = "right" if count == PARTITIONS * FILES * ROWS else "WRONG"
            rows.append((way, f"{seconds:.1f} s", result, files))
    title = f"From the command to the prompt: {PARTITIONS} partitions of {FILES} small files each"
    show(title, ("command", "time", "rows", "files left"), rows)


def _step(step: str) -> list[int]:
    """Make the table, or count its files and rows."""
    lake = icekit.connect()
    try:
        return _done(lake, step)
    finally:
        lake.close()


def _done(lake: Lake, step: str) -> list[int]:
    sql = lake.spark.sql
    if step == "make":
        sql("CREATE NAMESPACE IF NOT EXISTS `lake`.bench")
        sql(f"DROP TABLE IF EXISTS `lake`.{TABLE}")
        sql(
            f"CREATE TABLE `lake`.{TABLE} (id BIGINT, p INT, name STRING) PARTITIONED BY (p) "
            "TBLPROPERTIES ('write.distribution-mode' = 'none')"
        )
        sql(
            f"INSERT INTO `lake`.{TABLE} SELECT /*+ REPARTITION({FILES}) */ id, "
            f"CAST(id % {PARTITIONS} AS INT), CAST(id AS STRING) "
            f"FROM range({PARTITIONS * FILES * ROWS})"
        )
        return []
    files = sql(f"SELECT count(*) FROM `lake`.{TABLE}.data_files").collect()[0][0]
    rows = sql(f"SELECT count(DISTINCT id) FROM `lake`.{TABLE}").collect()[0][0]
    return [int(files), int(rows)]


if __name__ == "__main__":
    print(_step(sys.argv[1]))
