"""Reach Iceberg's own classes in the JVM of a session; the one place that knows whether there is a bridge (Spark Connect has none)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from icekit.sql import Identifier, identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def has_bridge(spark: SparkSession) -> bool:
    """Tell whether the session gives access to its JVM (Spark Connect does not)."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def load_table(spark: SparkSession, name: Identifier) -> Any:
    """The table (named with its catalog) as Iceberg's Java API knows it; needs the bridge."""
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, identifier(*name))


def load_now(spark: SparkSession, name: Identifier) -> Any:
    """The table as :func:`load_table` gives it, at what others have committed up to now."""
    spark.sql(f"REFRESH TABLE {identifier(*name)}")
    return load_table(spark, name)


def iceberg_version(spark: SparkSession, catalog: str) -> str:
    """The version of Iceberg that the session reads and writes a catalog with."""
    if has_bridge(spark):
        return str(getattr(spark._jvm, "org.apache.iceberg.IcebergBuild").version())
    row = spark.sql(f"SELECT {identifier(catalog)}.system.iceberg_version()").first()
    return str(row[0]) if row is not None else "of an unknown version"


def read_bytes(io: Any, location: str) -> bytes:
    """A whole file, through a table's own FileIO."""
    stream = io.newInputFile(location).newStream()
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def write_bytes(io: Any, location: str, content: bytes) -> None:
    """Write a small file through a table's own FileIO."""
    stream = io.newOutputFile(location).createOrOverwrite()
    try:
        stream.write(content)
    finally:
        stream.close()


def metadata_of(spark: SparkSession, table: Any) -> dict[str, Any]:
    """The metadata JSON of a table that :func:`load_table` gave, as it was loaded or refreshed."""
    parser = getattr(spark._jvm, "org.apache.iceberg.TableMetadataParser")
    loaded: dict[str, Any] = json.loads(parser.toJson(table.operations().current()))
    return loaded


def elements(collection: Any) -> Iterator[Any]:
    """What a Java or Scala collection, or an array, holds.

    Python's own loop ends by an exception of the JVM, and PySpark asks the JVM a dozen times
    what kind of exception that is (37 ms, measured).
    """
    if type(collection).__name__ == "JavaArray":
        yield from (collection[place] for place in range(len(collection)))
        return
    iterator = collection.iterator()
    while iterator.hasNext():
        yield iterator.next()


def java_list(spark: SparkSession, values: Iterable[Any]) -> Any:
    """A Java list of some values."""
    jvm: Any = spark._jvm
    made = jvm.java.util.ArrayList()
    for value in values:
        made.add(value)
    return made


def scala_seq(spark: SparkSession, values: Iterable[Any]) -> Any:
    """A Scala sequence of some values."""
    jvm: Any = spark._jvm
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(java_list(spark, values)).toSeq()
