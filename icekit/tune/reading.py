"""Measure how long reading a table takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from icekit.sql import Identifier, identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def scan(spark: SparkSession, table: Identifier, condition: str | None = None, snapshot_id: int | None = None) -> float:
    """Read all columns of a table (named with its catalog) or of one of its snapshots, and throw the rows away; seconds."""
    version = f" VERSION AS OF {snapshot_id}" if snapshot_id is not None else ""
    rows = spark.sql(f"SELECT * FROM {identifier(*table)}{version}")
    frame = rows.where(condition) if condition else rows
    started = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return time.monotonic() - started
