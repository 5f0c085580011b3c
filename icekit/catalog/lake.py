"""Connect one catalog for both engines: Spark for large work, pyiceberg without a JVM."""

from __future__ import annotations

import atexit
import contextlib
import fnmatch
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from icekit import secrets
from icekit.catalog import session
from icekit.catalog.profile import SparkCatalogConf, spark_conf
from icekit.catalog.tables import EmbeddedTables, ProfileTables, SessionTables, Tables
from icekit.engine.bridge import in_catalog
from icekit.errors import ProfileError, SparkUnavailable, TableNotFound, first_line, nearest
from icekit.sql import Identifier, parse_identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EMBEDDED = "lake"

L = TypeVar("L", bound="Lake")


class Lake:
    """A catalog and the two ways to reach it.

    ``tables`` answers without a JVM where it can; ``spark`` starts Spark (or borrows the
    running session) the first time it is asked for. A session that icekit did not start is
    used as it is and never stopped.
    """

    def __init__(self, name: str, conf: SparkCatalogConf | None, tables: Tables, borrowed: SparkSession | None = None) -> None:
        self.name = name
        self.tables = tables
        self._conf = conf
        self._borrowed = borrowed
        #: What must be undone before the lake is gone, such as clones.
        self.until_closed = contextlib.ExitStack()
        # Clones must go before pyspark's own exit handler takes the session away; it was registered first and runs last.
        atexit.register(self.until_closed.close)

    def __repr__(self) -> str:
        return f"Lake({self.name!r}, {self.tables})"

    @cached_property
    def spark(self) -> SparkSession:
        """The Spark session with this catalog configured."""
        if self._borrowed is not None:
            if self._conf is not None:
                session.add_catalog(self._borrowed, self._conf)
            return self._borrowed
        if self._conf is None:
            raise SparkUnavailable(f"Catalog {self.name!r} lives in a Spark session that is gone; pass the session to connect().")
        if isinstance(self.tables, EmbeddedTables):
            self.tables.path.mkdir(parents=True, exist_ok=True)
        return session.own_session(self._conf)

    @property
    def spark_is_running(self) -> bool:
        """Tell whether using Spark now would start nothing."""
        return self._borrowed is not None or "spark" in self.__dict__

    def session_conf(self) -> Mapping[str, str] | None:
        """Iceberg's settings in the session that people use here; None for icekit's own."""
        if self._borrowed is None:
            return None
        key = "spark.sql.iceberg.executor-cache.enabled"
        deletes = "spark.sql.iceberg.executor-cache.delete-files.enabled"
        return {k: str(self._borrowed.conf.get(k, "true")) for k in (key, deletes)}

    def identifier(self, table: str) -> Identifier:
        """Parse a table name; a leading catalog name is allowed and taken off."""
        parts = parse_identifier(table)
        return parts[1:] if len(parts) > 2 and parts[0] == self.name else parts

    def match(self, patterns: Iterable[str], unmatched: list[str] | None = None) -> list[Identifier]:
        """The tables that names or globs (``db.*``) stand for, in order, without repeats.

        A plain name is taken at its word; a glob that matches nothing raises
        :class:`~icekit.errors.TableNotFound`. With a list for them, what is to be said of such globs
        is put there, and it raises only where nothing at all was found.
        """
        found: dict[Identifier, None] = {}
        lost: list[str] = []
        every: list[Identifier] | None = None
        for pattern in patterns:
            if not any(c in pattern for c in "*?[") or "`" in pattern:
                found[self.identifier(pattern)] = None
                continue
            every = self.tables.names() if every is None else every
            glob = pattern.removeprefix(f"{self.name}.") if pattern.count(".") > 1 else pattern
            hits = [name for name in every if fnmatch.fnmatchcase(".".join(name), glob)]
            if not hits:
                near = nearest(pattern.strip("*."), {name[0] for name in every})
                lost.append(f"No table of catalog {self.name!r} matches {pattern!r}{near or '.'}")
            found.update(dict.fromkeys(hits))
        if lost and (unmatched is None or not found):
            raise TableNotFound(" ".join(lost))
        if unmatched is not None:
            unmatched += lost
        return list(found)

    def sql_name(self, table: Identifier) -> Identifier:
        """The identifier with the catalog in front, as Spark SQL wants it."""
        return (self.name, *table)

    def close(self) -> None:
        """Let go of both engines; stops the Spark session only if icekit started it."""
        self.until_closed.close()
        self.tables.close()
        if "spark" in self.__dict__ and session.is_own(self.spark):
            session.stop_own()
            del self.__dict__["spark"]


def embedded_path() -> Path:
    """The embedded lake's folder: ``ICEKIT_LAKE``, or ``./lake``."""
    return Path(os.environ.get("ICEKIT_LAKE") or "lake").expanduser().resolve()


def connect(catalog: str | None = None, *, spark: SparkSession | None = None) -> Lake:
    """Connect as :func:`icekit.connect` does, to a lake without its verbs."""
    return connect_as(Lake, catalog, spark=spark)


def connect_as(kind: type[L], catalog: str | None = None, *, spark: SparkSession | None = None) -> L:
    """Connect as :func:`icekit.connect` does, to a lake of class ``kind``."""
    name = catalog or EMBEDDED
    running = spark or session.running_session()
    borrowed = running if running is not None and not session.is_own(running) else None
    if borrowed is not None and _has_own(borrowed, name):
        return kind(name, None, SessionTables(name, borrowed), borrowed)
    if name == EMBEDDED:
        path = embedded_path()
        properties = {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": str(path / "warehouse")}
        return kind(name, spark_conf(name, properties), EmbeddedTables(path), borrowed)
    properties = _profile(name)
    secrets.remember(properties)
    return kind(name, spark_conf(name, properties), ProfileTables(name, properties), borrowed)


def _has_own(spark: SparkSession, name: str) -> bool:
    """Tell whether the session has a catalog of that name which icekit has not put there."""
    base = f"spark.sql.catalog.{name}"
    return spark.conf.get(base, None) is not None and spark.conf.get(f"{base}.{session.ADDED}", None) is None


def _profile(name: str) -> dict[str, str]:
    from pyiceberg.utils.config import Config

    try:
        config = Config()
        properties = config.get_catalog_config(name)
        known = config.get_known_catalogs()
    except Exception as error:
        raise ProfileError(f"pyiceberg's configuration cannot be read: {first_line(error)}. Correct .pyiceberg.yaml.") from None
    if properties is None:
        there = f"there are {', '.join([EMBEDDED, *sorted(known)])}"
        raise ProfileError(
            f"No catalog {name!r} is configured{nearest(name, [EMBEDDED, *known], count=1) or '; ' + there}. Add it to .pyiceberg.yaml or set PYICEBERG_CATALOG__{name.upper()}__URI."
        )
    return {key: str(value) for key, value in _flat(properties)}


def _flat(properties: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, object]]:
    for key, value in properties.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


@contextlib.contextmanager
def session_of(where: Lake | SparkSession) -> Iterator[SparkSession]:
    """The session; for a lake with its catalog as the current one for a while, so that names in a statement are found where they are meant."""
    if not isinstance(where, Lake):
        yield where
        return
    with in_catalog(where.spark, where.name):
        yield where.spark
