"""A second session of the same JVM whose catalogs share no cache with the first: what it commits, the first has not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icekit.engine.compat import settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def elsewhere(spark: SparkSession) -> SparkSession:
    """Another session with the catalogs of this one."""
    other = spark.newSession()
    for key, value in settings_of(spark).items():
        if key.startswith("spark.sql.catalog."):
            other.conf.set(key, value)
    return other
