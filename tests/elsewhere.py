"""A second session of the same JVM whose catalogs share no cache with the first: what it commits,
the first has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def settings_of(spark: SparkSession) -> Mapping[str, str]:
    """All settings of a session."""
    conf: Any = spark.conf
    if hasattr(conf, "getAll"):
        return dict(conf.getAll)
    return {row["key"]: row["value"] for row in spark.sql("SET").collect()}


def elsewhere(spark: SparkSession) -> SparkSession:
    """Another session with the catalogs of this one."""
    other = spark.newSession()
    for key, value in settings_of(spark).items():
        if key.startswith("spark.sql.catalog."):
            other.conf.set(key, value)
    return other
