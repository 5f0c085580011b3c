"""What older versions of Spark and Iceberg do otherwise: the one place that knows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from icekit.common.saving import spark_version

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

T = TypeVar("T")
_IS_3 = spark_version().startswith("3.")


def available_types(*names: str) -> tuple[type[DataType], ...]:
    """Those of these types of columns that this PySpark has."""
    from pyspark.sql import types

    return tuple(getattr(types, name) for name in names if hasattr(types, name))


def arrow_of(frame: DataFrame) -> pa.Table:
    """The rows of a frame, as an Arrow table."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    connect_frame: Any = frame
    if not hasattr(connect_frame, "_collect_as_arrow"):
        # Spark Connect.
        connect_client = connect_frame._session.client
        return connect_client.to_table(connect_frame._plan.to_proto(connect_client))[0]
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow_batches = connect_frame._collect_as_arrow()
    return pa.Table.from_batches(
        arrow_batches, None if arrow_batches else to_arrow_schema(frame.schema)
    )


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A frame of an Arrow table."""
    if not _IS_3:
        return spark.createDataFrame(table)
    from pyspark.sql.pandas.types import from_arrow_schema

    row_values = [tuple(row.values()) for row in table.to_pylist()]
    return spark.createDataFrame(row_values, from_arrow_schema(table.schema))


def with_local_properties(spark: SparkSession, work: Callable[[], T]) -> Callable[[], T]:
    """Give a Python thread its own JVM thread, with this thread's local properties."""
    from pyspark import inheritable_thread_target

    thread_wrapper: Any = inheritable_thread_target if _IS_3 else inheritable_thread_target(spark)
    return thread_wrapper(work)  # type: ignore[no-any-return]


def sql_package(spark: SparkSession) -> Any:
    """The JVM's package of Spark's own classes for SQL sessions and datasets."""
    spark_package: Any = spark._jvm.org.apache.spark.sql  # type: ignore[union-attr]
    return spark_package if _IS_3 else spark_package.classic


def jvm_streams() -> dict[str, int]:
    """Where the JVM prints: on Spark 3.5, Ivy's first line must not come among the results on
    standard output, so it goes where errors go.
    """
    return {"stdout": 2} if _IS_3 else {}


def historical_filter(predicate: str, iceberg_version: str) -> str:
    """A filter for a snapshot whose columns had other names than the table's have now, in the names
    of then.

    Iceberg before 1.12 looks them up among today's: it fails, or takes another column. There, only
    Spark filters the rows.
    """
    if is_at_least(iceberg_version, 12):
        return predicate
    # Neither this nor a test for null that Spark infers from it is pushed into a scan.
    return f"CAST(coalesce({predicate}, false) AS int) + 0 = 1"


def reads_dropped_keys(iceberg_version: str) -> bool:
    """Whether Iceberg's own reader can apply equality deletes by a column that was dropped."""
    return is_at_least(iceberg_version, 12) and not _IS_3


def is_at_least(iceberg_version: str, minor: int) -> bool:
    """Whether a version is 1.``minor`` or newer; one that is not known is taken for older."""
    version_match = re.match(r"(\d+)\.(\d+)", iceberg_version)
    return version_match is not None and (int(version_match[1]), int(version_match[2])) >= (
        1,
        minor,
    )
