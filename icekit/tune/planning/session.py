"""Ask the session and the table what planning rests on; needs the JVM bridge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import load_table
from icekit.engine.cluster import cluster_of
from icekit.engine.session import session_value
from icekit.facts.model import Kind, TableFacts
from icekit.sql import Identifier
from icekit.tune.in_force import InForce, in_force
from icekit.tune.planning.mode import Circumstances, Layer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SESSION = {"data": "spark.sql.iceberg.data-planning-mode", "delete": "spark.sql.iceberg.delete-planning-mode"}
_PROPERTY = {"data": "read.data-planning-mode", "delete": "read.delete-planning-mode"}


def circumstances(spark: SparkSession, facts: TableFacts) -> Circumstances:
    """What Iceberg would look at to plan a full scan of the table in this session."""
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext._jsc.sc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    state: Any = spark._jsparkSession.sessionState()
    parallelism = int(context.defaultParallelism())
    return Circumstances(
        data=Layer(facts.manifests.data_count, facts.manifests.data_bytes),
        deletes=Layer(facts.manifests.delete_count, facts.manifests.delete_bytes),
        may_have_equality_deletes=facts.total(Kind.EQUALITY_DELETES).file_count > 0,
        threads=int(jvm.org.apache.iceberg.util.ThreadPools.WORKER_THREAD_POOL_SIZE),
        parallelism=max(parallelism, int(state.conf().numShufflePartitions())),
        slots=cluster_of(spark).tasks,
        max_result_bytes=int(context.conf().getSizeAsBytes("spark.driver.maxResultSize", "1G")),
        data_mode=_mode(spark, facts, "data"),
        delete_mode=_mode(spark, facts, "delete"),
        driver_cores=int(runtime.availableProcessors()),
        driver_heap_bytes=int(runtime.maxMemory()),
    )


def _mode(spark: SparkSession, facts: TableFacts, kind: str) -> InForce:
    return in_force(
        _PROPERTY[kind],
        session=[(_SESSION[kind], session_value(spark, _SESSION[kind]))],
        properties=[(_PROPERTY[kind], facts.properties.get(_PROPERTY[kind]))],
        default=("the default", "auto"),
    )


def file_io(spark: SparkSession, table: Identifier) -> str:
    """The class by which Iceberg reads and writes the table's files (``S3FileIO``, ``HadoopFileIO``)."""
    return str(load_table(spark, table).io().getClass().getSimpleName())
