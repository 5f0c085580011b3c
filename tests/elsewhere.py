"""A second session of the same JVM whose catalogs share no cache with the first: what it commits,
the first has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def settings_of(spark: SparkSession) -> Mapping[str, str]:
    """All settings of a session, without those of the catalogs that Iceberg's source makes for
    itself when it is first used.
    """
    conf: Any = spark.conf
    if hasattr(conf, "getAll"):
        settings = dict(conf.getAll)
    else:
        settings = {row["key"]: row["value"] for row in spark.sql("SET").collect()}
    of_source = ("spark.sql.catalog.default_iceberg", "spark.sql.catalog.default_rewrite_catalog")
    return {key: value for key, value in settings.items() if not key.startswith(of_source)}


def elsewhere(spark: SparkSession) -> SparkSession:
    """Another session with the catalogs of this one."""
    other = spark.newSession()
    for key, value in settings_of(spark).items():
        if key.startswith("spark.sql.catalog."):
            other.conf.set(key, value)
    return other
