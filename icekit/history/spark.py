"""Health in the Iceberg table ``icekit.health``, by Spark: for a catalog that only a running session knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from icekit.catalog import Lake
from icekit.engine.metadata_tables import metadata_table
from icekit.errors import HistoryUnusable, first_line
from icekit.history.iceberg import MONTHS_BACK, NAME, NAMESPACE, PROPERTIES, as_arrow
from icekit.history.records import COLUMNS, REQUIRED, Health
from icekit.history.scanning import from_row
from icekit.history.store import DRAWN, LAST, Lately, Store
from icekit.sql import call, identifier, literal

T = TypeVar("T")

_TYPES = {"string": "STRING", "long": "BIGINT", "timestamp": "TIMESTAMP"}
#: Appends after which the table is tidied.
_TIDY_EVERY = 24


class SparkStore(Store):
    """As :class:`icekit.history.iceberg.IcebergStore`; Spark's own procedures keep the table tidy."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._name = identifier(*lake.sql_name((NAMESPACE, NAME)))

    def __repr__(self) -> str:
        return f"SparkStore({self._name})"

    def append(self, records: Sequence[Health]) -> int:
        """Append what is not there yet, in one commit."""
        if not records:
            return 0

        def work() -> int:
            self._make()
            spark = self._lake.spark
            runs = ", ".join(map(literal, sorted({record.run_id for record in records})))
            there = spark.sql(f"SELECT run_id, table_name FROM {self._name} WHERE run_id IN ({runs})").collect()
            known = {(row[0], row[1]) for row in there}
            missing = [record for record in records if (record.run_id, record.table_name) not in known]
            if missing:
                spark.createDataFrame(as_arrow(missing)).coalesce(1).writeTo(self._name).append()
                self._tidy()
            return len(missing)

        return self._guarded(work, "written")

    def last(self, tables: Sequence[str], count: int = LAST, *, other_than: str = "") -> Mapping[str, Sequence[Health]]:
        """The newest runs of each table, oldest first; Spark picks them, the driver gets no more."""

        def work() -> Mapping[str, Sequence[Health]]:
            spark = self._lake.spark
            if not spark.catalog.tableExists(self._name):
                return {}
            spark.sql(f"REFRESH TABLE {self._name}")
            ranked = self._ranked(tables, other_than)
            found: dict[str, list[Health]] = {}
            rows = spark.sql(f"SELECT * FROM ({ranked}) WHERE newest <= {count:d} ORDER BY table_name, observed_at").toArrow()
            for row in rows.to_pylist():
                found.setdefault(row["table_name"], []).append(from_row(row))
            return found

        return self._guarded(work, "read") if tables else {}

    def lately(self, tables: Sequence[str], count: int = LAST, *, other_than: str = "") -> Mapping[str, Lately]:
        """The last run of each table, and one figure of the newest; Spark picks both."""
        last = {name: runs[-1] for name, runs in self.last(tables, 1, other_than=other_than).items()}

        def work() -> Mapping[str, Sequence[int]]:
            ranked = self._ranked(tables, other_than, f"table_name, observed_at, {DRAWN}")
            query = f"SELECT table_name, {DRAWN} FROM ({ranked}) WHERE newest <= {count:d} AND {DRAWN} IS NOT NULL ORDER BY table_name, observed_at"
            found: dict[str, list[int]] = {}
            for batch in self._lake.spark.sql(query).toArrow().to_batches():
                for name, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    found.setdefault(name, []).append(value)
            return found

        points = self._guarded(work, "read") if last else {}
        return {name: Lately(run, tuple(points.get(name, ()))) for name, run in last.items()}

    def _ranked(self, tables: Sequence[str], other_than: str, columns: str = "*") -> str:
        names = ", ".join(map(literal, tables))
        return (
            f"SELECT {columns}, row_number() OVER (PARTITION BY table_name ORDER BY observed_at DESC) AS newest FROM {self._name} "
            f"WHERE table_name IN ({names}) AND run_id <> {literal(other_than)} AND observed_month >= date_format(add_months(current_date(), -{MONTHS_BACK}), 'yyyy-MM')"
        )

    def _make(self) -> None:
        spark = self._lake.spark
        if not spark.catalog.tableExists(self._name):
            columns = ", ".join(
                f"{name} {_TYPES[kind]}{' NOT NULL' if name in REQUIRED else ''} COMMENT {literal(doc)}"
                for name, (kind, doc) in COLUMNS.items()
            )
            properties = ", ".join(f"{literal(k)} = {literal(v)}" for k, v in PROPERTIES.items())
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(self._lake.name, NAMESPACE)}")
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self._name} ({columns}) USING iceberg PARTITIONED BY (observed_month) TBLPROPERTIES ({properties})"
            )
        spark.sql(f"REFRESH TABLE {self._name}")
        there = {row[0] for row in spark.sql(f"SHOW TBLPROPERTIES {self._name}").collect()}
        if "icekit.health-version" not in there:
            raise HistoryUnusable(f"{self._name} is there and is not icekit's; rename it, or keep the history in a file (--history FILE).")
        columns_there = set(spark.table(self._name).columns)
        missing = [f"{name} {_TYPES[kind]} COMMENT {literal(doc)}" for name, (kind, doc) in COLUMNS.items() if name not in columns_there]
        if missing:
            spark.sql(f"ALTER TABLE {self._name} ADD COLUMNS ({', '.join(missing)})")

    def _tidy(self) -> None:
        spark = self._lake.spark
        files = metadata_table(spark, (self._lake.name, NAMESPACE, NAME), "files").count()
        if files % _TIDY_EVERY:
            return
        table = f"{NAMESPACE}.{NAME}"
        for procedure in ("rewrite_data_files", "expire_snapshots"):
            spark.sql(call(self._lake.name, procedure, table=table)).collect()

    def _guarded(self, work: Callable[[], T], what: str) -> T:
        try:
            return work()
        except HistoryUnusable:
            raise
        except Exception as error:
            raise HistoryUnusable(
                f"The history {self._name} cannot be {what}: {first_line(error)}. Without rights to it keep the history in a file (--history FILE)."
            ) from error
