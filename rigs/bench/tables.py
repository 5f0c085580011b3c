"""Make tables of many files that exist in metadata only, once, in a lake of their own.

Manifests are written by Iceberg's own writers (``BenchFiles.java``) and hold what a real table's
do: 20 columns with all six statistics maps. There is no data behind them, which the facts never
read. Every manifest holds every partition: the worst case for what is counted per partition.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import icekit
from icekit.common.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.api import Lake

LAKE = Path("build/bench-lake")
NAMESPACE = "bench"
PARTITIONS = 500
MANIFEST_BYTES = 8 * 1024 * 1024
SIZES = (100_000, 1_000_000)
# The table with deletes gets its files in commits, as a stream of upserts would write it.
UPSERT_COMMITS = 100
FILES_PER_DELETE = 10

_COLUMNS = (
    "id BIGINT, event_time TIMESTAMP_NTZ, customer BIGINT, product BIGINT, session STRING, "
    "country STRING, city STRING, device STRING, url STRING, price DOUBLE, discount DOUBLE, "
    "weight DOUBLE, quantity INT, status INT, order_date DATE, shipped TIMESTAMP_NTZ, account "
    "BIGINT, amount DECIMAL(12, 2), campaign STRING, returned BOOLEAN"
)
# Changes with what BenchFiles.java makes, so that tables of an older one are built again.
_VERSION = "2"
_COMPLETE = "icekit.bench.complete"


@dataclass(frozen=True, slots=True)
class BenchTable:
    """One table of so many data files; ``with_deletes`` adds equality delete files."""

    file_count: int
    with_deletes: bool = False
    partitions: int = PARTITIONS

    @property
    def name(self) -> str:
        """``bench.files_100000``, ``bench.upserts_100000`` with deletes,
        ``bench.files_200000_in_100000`` of other partitions.
        """
        within = "" if self.partitions == PARTITIONS else f"_in_{self.partitions}"
        return (
            f"{NAMESPACE}.{'upserts' if self.with_deletes else 'files'}_{self.file_count}{within}"
        )


def use_bench_lake() -> None:
    """Point icekit's embedded lake at the benches' own, for this process and its children."""
    LAKE.mkdir(parents=True, exist_ok=True)
    os.environ["ICEKIT_LAKE"] = str(LAKE.resolve())


def build(tables: list[BenchTable]) -> None:
    """Build the tables that are not there yet."""
    lake = icekit.connect()
    missing = [table for table in dict.fromkeys(tables) if not _is_complete(lake, table)]
    if not missing:
        return
    try:
        maker = _compile(lake.spark)
        for table in missing:
            _build(lake, table, maker)
    finally:
        lake.close()


def _is_complete(lake: Lake, table: BenchTable) -> bool:
    from icekit.common.errors import IcekitError
    from icekit.health.facts.metadata_file import load_metadata

    try:
        metadata = load_metadata(lake.tables.source(lake.identifier(table.name)))
    except IcekitError:
        return False
    return bool(metadata["properties"].get(_COMPLETE) == _VERSION)


def files_of(spark: SparkSession, table: Any, partitions: int) -> Any:
    """What makes manifests of files for a table (of Iceberg's API) that is partitioned by one date,
    spread over so many days.
    """
    return _compile(spark).newInstance(_objects(spark, table, partitions))


def _compile(spark: SparkSession) -> Any:
    """The constructor of ``BenchFiles``, compiled in the JVM."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(Path(__file__).with_name("BenchFiles.java").read_text())
    return compiler.getClassLoader().loadClass("icekit.bench.BenchFiles").getConstructors()[0]


def _build(lake: Lake, bench: BenchTable, maker: Any) -> None:
    started = time.monotonic()
    spark = lake.spark
    jvm: Any = spark._jvm
    name = identifier(*lake.sql_name(lake.identifier(bench.name)))
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, NAMESPACE)}")
    spark.sql(f"DROP TABLE IF EXISTS {name} PURGE")
    spark.sql(
        f"CREATE TABLE {name} ({_COLUMNS}) USING iceberg PARTITIONED BY (days(event_time)) "
        "TBLPROPERTIES ('format-version' = '2')"
    )
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    files = maker.newInstance(_objects(spark, table, bench.partitions))
    if bench.with_deletes:
        step = -(-bench.file_count // UPSERT_COMMITS)
        for start in range(0, bench.file_count, step):
            files.upsert(start, min(start + step, bench.file_count), FILES_PER_DELETE)
            _say(bench, min(start + step, bench.file_count), started)
    else:
        append = table.newFastAppend()
        start = 0
        while start < bench.file_count:
            manifest = files.manifest(
                f"{table.location()}/metadata/bench-{start}.avro",
                start,
                bench.file_count,
                MANIFEST_BYTES,
            )
            append = append.appendManifest(manifest)
            start += manifest.addedFilesCount()
            _say(bench, start, started)
        append.commit()
    table.updateProperties().set(_COMPLETE, _VERSION).commit()
    print(file=sys.stderr)


def _objects(spark: SparkSession, *values: object) -> Any:
    array = spark._sc._gateway.new_array(spark._jvm.java.lang.Object, len(values))  # type: ignore[union-attr]
    for place, value in enumerate(values):
        array[place] = value
    return array


def _say(bench: BenchTable, done: int, started: float) -> None:
    took = time.monotonic() - started
    print(
        f"\rbuilding {bench.name}: {done:,} of {bench.file_count:,} files, {took:.0f} s",
        end="",
        file=sys.stderr,
        flush=True,
    )
