"""Lend a session whose current catalog is a lake's, so that names in a statement are found where they are meant."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from icekit.catalog import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def session_of(where: Lake | SparkSession) -> Iterator[SparkSession]:
    """The session; for a lake with its catalog as the current one, for a while."""
    if not isinstance(where, Lake):
        yield where
        return
    spark = where.spark
    if not hasattr(spark, "_jsparkSession"):
        yield spark
        return
    manager: Any = spark._jsparkSession.sessionState().catalogManager()
    catalog, namespace = str(manager.currentCatalog().name()), manager.currentNamespace()
    if catalog == where.name:
        yield spark
        return
    spark.catalog.setCurrentCatalog(where.name)
    try:
        yield spark
    finally:
        spark.catalog.setCurrentCatalog(catalog)
        manager.setCurrentNamespace(namespace)
