"""Measure reads: what Iceberg's own planning opens for a scan, and how long reading it takes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.compact.predict import filter_expression, is_case_sensitive, load
from icekit.sql import Identifier, identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Planned:
    """What a scan opens, by Iceberg's own planning: a delete file counts once for each data file it is opened beside.

    ``manifests`` are the data manifests that planning read, ``skipped_manifests`` those that their
    partition ranges ruled out, ``seconds`` what planning took.
    """

    data_files: int
    data_bytes: int
    delete_opens: int
    manifests: int = 0
    skipped_manifests: int = 0
    seconds: float = 0.0


def planned(spark: SparkSession, table: Identifier, where: str | None = None) -> Planned:
    """Plan a scan of a table (named with its catalog) and count what it opens; one call, however many files.

    ``where`` is SQL that Iceberg can take as a filter; errors are Spark's own.
    """
    jvm: Any = spark._jvm
    loaded = load(spark, table)
    reporter = jvm.org.apache.iceberg.metrics.InMemoryMetricsReporter()
    scan = loaded.newScan().caseSensitive(is_case_sensitive(spark)).metricsReporter(reporter)
    if where is not None:
        scan = scan.filter(filter_expression(spark, table, where))
    started = time.monotonic()
    tasks = scan.planFiles()
    jvm.org.apache.iceberg.relocated.com.google.common.collect.Iterables.size(tasks)
    tasks.close()
    seconds = time.monotonic() - started
    said = reporter.scanReport()
    if said is None:
        # A table without a snapshot is not planned at all.
        return Planned(0, 0, 0)
    report = said.scanMetrics()
    return Planned(
        int(report.resultDataFiles().value()),
        int(report.totalFileSizeInBytes().value()),
        int(report.resultDeleteFiles().value()),
        int(report.scannedDataManifests().value()),
        int(report.skippedDataManifests().value()),
        seconds,
    )


def scan(spark: SparkSession, table: Identifier, condition: str | None = None, snapshot_id: int | None = None) -> float:
    """Read all columns of a table (named with its catalog) or of one of its snapshots, and throw the rows away; seconds."""
    version = f" VERSION AS OF {snapshot_id}" if snapshot_id is not None else ""
    rows = spark.sql(f"SELECT * FROM {identifier(*table)}{version}")
    frame = rows.where(condition) if condition else rows
    started = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return time.monotonic() - started
