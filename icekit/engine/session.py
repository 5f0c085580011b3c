"""Read what a session has set, lend it settings or a current catalog for a while, and let a thread work in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import has_bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session_value(spark: SparkSession, name: str) -> str | None:
    """A session's setting as a text; None where it is not set and has no default."""
    value = spark.conf.get(name, None)
    return None if value is None else str(value)


def is_case_sensitive(spark: SparkSession) -> bool:
    """Tell whether the session tells names apart by their case."""
    return str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


@contextlib.contextmanager
def lent(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Lend a session some settings for a while; what it had before comes back."""
    before = {key: spark.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


@contextlib.contextmanager
def in_catalog(spark: SparkSession, name: str) -> Iterator[None]:
    """Make a catalog the current one for a while; without the bridge nothing is changed."""
    if not has_bridge(spark):
        yield
        return
    session: Any = spark._jsparkSession
    manager = session.sessionState().catalogManager()
    catalog, namespace = str(manager.currentCatalog().name()), manager.currentNamespace()
    if catalog == name:
        yield
        return
    spark.catalog.setCurrentCatalog(name)
    try:
        yield
    finally:
        spark.catalog.setCurrentCatalog(catalog)
        manager.setCurrentNamespace(namespace)


def make_active(spark: SparkSession) -> None:
    """Make the session the active one of this thread, which may be new to the JVM; threads that the engine starts from it take it over."""
    if has_bridge(spark):
        jvm: Any = spark._jvm
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


def pinned(spark: SparkSession, work: Callable[[], None]) -> Callable[[], None]:
    """Let a thread have a JVM thread of its own, with this session's local properties."""
    if not has_bridge(spark):
        return work
    from pyspark import inheritable_thread_target

    return inheritable_thread_target(spark)(work)  # type: ignore[no-any-return]
