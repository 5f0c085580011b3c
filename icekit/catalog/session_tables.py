"""Find the tables of a catalog that only a running Spark session knows; without the bridge, their metadata is read as ``binaryFile``."""

from __future__ import annotations

import concurrent.futures
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from icekit.catalog.source import LISTING_SECONDS, Source, within
from icekit.engine.bridge import has_bridge, load_table, read_bytes
from icekit.engine.errors import explain
from icekit.engine.metadata_tables import metadata_table
from icekit.errors import CatalogUnreachable, IcekitError, TableNotFound
from icekit.sql import Identifier, identifier, parse_identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

# A running session may still be fetching its cluster when it is asked first.
SESSION_SECONDS = 60.0


class SessionTables:
    """A catalog known only to a running Spark session."""

    def __init__(self, name: str, spark: SparkSession) -> None:
        self.name = name
        self.spark = spark

    def __str__(self) -> str:
        return f"catalog {self.name!r} of the running Spark session"

    def names(self) -> list[Identifier]:
        """Every table, as ``SHOW TABLES`` lists them."""
        found: list[Identifier] = []

        def walk(parent: Identifier = ()) -> None:
            for (namespace,) in self.spark.sql(f"SHOW NAMESPACES IN {identifier(self.name, *parent)}").collect():
                # Spark puts odd parts in backticks here.
                parts = parse_identifier(f"{namespace}.t")[:-1]
                if len(parts) <= len(parent):
                    continue
                rows = self.spark.sql(f"SHOW TABLES IN {identifier(self.name, *parts)}").collect()
                found.extend((*parts, row["tableName"]) for row in rows if not row["isTemporary"])
                walk(parts)

        self._ask(walk, LISTING_SECONDS)
        return sorted(set(found))

    def names_in(self, namespace: Identifier) -> list[Identifier]:
        """The tables of one namespace, as ``SHOW TABLES`` lists them."""
        listing = f"SHOW TABLES IN {identifier(self.name, *namespace)}"
        try:
            rows = self._ask(lambda: self.spark.sql(listing).collect(), LISTING_SECONDS)
        except Exception as error:
            explained = explain(error, (self.name, *namespace, "*"))
            if isinstance(explained, TableNotFound):
                return []
            raise explained from None
        return sorted((*namespace, row["tableName"]) for row in rows if not row["isTemporary"])

    def _ask(self, question: Callable[[], T], seconds: float) -> T:
        try:
            return within(seconds, question)
        except concurrent.futures.TimeoutError:
            raise CatalogUnreachable(
                f"Catalog {self.name!r} did not answer Spark within {seconds:.0f} s; check its uri and the network, and the table's metadata file: "
                "Iceberg reads a damaged one again and again."
            ) from None

    def source(self, table: Identifier) -> Source:
        """Not without Spark: the collector asks the session itself."""
        return self._ask(lambda: spark_source(self.spark, (self.name, *table), names=self.names), SESSION_SECONDS)

    def close(self) -> None:
        """The session is not icekit's to stop."""


def spark_source(spark: SparkSession, table: Identifier, names: Callable[[], list[Identifier]]) -> Source:
    """Find a table (named with its catalog) through the session; needs no pyiceberg profile."""
    try:
        spark.sql(f"REFRESH TABLE {identifier(*table)}")
        return _by_bridge(spark, table) if has_bridge(spark) else _by_sql(spark, table)
    except IcekitError:
        raise
    except Exception as error:
        raise explain(error, table, names) from None


def _by_bridge(spark: SparkSession, table: Identifier) -> Source:
    loaded = load_table(spark, table)
    io = loaded.io()

    def read(location: str) -> bytes:
        try:
            return read_bytes(io, location)
        except Exception as error:
            raise explain(error, table) from None

    return Source(str(loaded.operations().current().metadataFileLocation()), read)


def _by_sql(spark: SparkSession, table: Identifier) -> Source:
    def read(location: str) -> bytes:
        path = re.sub(r"([\[\]{}*?\\])", r"\\\1", location)
        try:
            return bytes(spark.read.format("binaryFile").load(path).select("content").collect()[0][0])
        except Exception as error:
            raise explain(error, table) from None

    newest = metadata_table(spark, table, "metadata_log_entries").orderBy("timestamp", ascending=False).select("file").limit(1).collect()
    return Source(str(newest[0][0]), read)
