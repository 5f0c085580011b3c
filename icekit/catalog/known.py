"""Say which catalogs a person can choose from, without contacting any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icekit.catalog import session
from icekit.catalog.lake import EMBEDDED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PREFIX = "spark.sql.catalog."


def known_catalogs(spark: SparkSession | None = None) -> tuple[str, ...]:
    """The embedded lake, the profiles of pyiceberg's configuration, and Iceberg catalogs of the session given or running.

    Each is a name that :func:`icekit.connect` takes. A configuration that cannot be read adds
    none: connecting to a profile says what is wrong with it.
    """
    from pyiceberg.utils.config import Config

    found = {EMBEDDED: None}
    try:
        found.update(dict.fromkeys(sorted(Config().get_known_catalogs())))
    except Exception:
        # pyiceberg raises whatever its YAML reader meets.
        found.setdefault(EMBEDDED)
    running = spark or session.running_session()
    if running is not None:
        found.update(dict.fromkeys(session_catalogs(running)))
    return tuple(found)


def session_catalogs(spark: SparkSession) -> list[str]:
    """Names of the Iceberg catalogs that a Spark session is configured with."""
    conf = dict(spark.conf.getAll)
    return sorted(
        name
        for key, kind in conf.items()
        if key.startswith(_PREFIX) and "." not in (name := key.removeprefix(_PREFIX)) and "iceberg" in str(kind)
    )
