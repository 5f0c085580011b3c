"""Find the tables of a catalog that only a running Spark session knows."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from icekit.catalog.source import LISTING_SECONDS, Source, within
from icekit.errors import CatalogUnreachable, TableNotFound
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
        from icekit.facts.bridge import explain

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
        from icekit.facts.bridge import spark_source

        return self._ask(lambda: spark_source(self.spark, (self.name, *table), names=self.names), SESSION_SECONDS)

    def close(self) -> None:
        """The session is not icekit's to stop."""
