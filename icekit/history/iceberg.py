"""Store health in the Iceberg table ``icekit.health``: with pyiceberg and no JVM, or with Spark if only a session knows the catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from icekit.catalog import Lake
from icekit.engine.compat import arrow_of, frame_of
from icekit.engine.metadata_tables import metadata_table
from icekit.errors import HistoryUnusable, IcekitError, first_line
from icekit.history.store import (
    COLUMNS,
    DRAWN,
    LAST,
    REQUIRED,
    Health,
    RecentRuns,
    Store,
    among,
    files_by_month,
    from_row,
    in_month,
    months,
    newest,
    newest_streamed,
    scan,
)
from icekit.sql import call, identifier, literal
from icekit.sqlite import patiently
from icekit.units import at

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")

NAMESPACE, NAME = "icekit", "health"
#: Properties that keep the history table itself healthy: each run commits one small file.
PROPERTIES: Mapping[str, str] = {
    "format-version": "2",
    "icekit.health-version": "1",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "10",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    # A history needs no time travel.
    "history.expire.max-snapshot-age-ms": str(24 * 3600 * 1000),
    "history.expire.min-snapshots-to-keep": "5",
    "write.parquet.compression-codec": "zstd",
}
#: An append combines a month's files from this number on, as rewrite_data_files would (min-input-files).
FILES_OF_A_MONTH = 5
#: The most months to search for runs: ninety runs a week apart.
MONTHS_BACK = 24
_KEPT_SNAPSHOTS = 20
_PATIENCE_SECONDS = 60.0


class IcebergStore(Store):
    """``icekit.health``, partitioned by ``observed_month``; the first append creates it, a later icekit adds columns.

    An append is one commit, tried again after a conflict. When a month has
    :data:`FILES_OF_A_MONTH` files, they are combined. Old snapshots are dropped from the metadata; their
    manifest lists are left to ``remove_orphan_files``, because pyiceberg deletes no files.
    """

    def __init__(self, catalog: Callable[[], Any]) -> None:
        """``catalog`` returns a pyiceberg catalog; it is called when first needed."""
        self._make_catalog = catalog
        self._catalog: Any = None

    def __repr__(self) -> str:
        return f"IcebergStore({NAMESPACE}.{NAME})"

    def append(self, records: Sequence[Health]) -> int:
        """Append the records that are not stored yet, in one commit; returns their number."""
        if not records:
            return 0

        def attempt() -> int:
            table = self._made()
            missing = _missing(table, records)
            if missing:
                table.append(as_arrow(missing, table.schema().as_arrow()))
                self._tidy(table)
            return len(missing)

        return self._patiently(attempt, "written")

    def last(self, tables: Sequence[str], count: int = LAST, *, other_than: str = "") -> Mapping[str, Sequence[Health]]:
        """The newest runs of each table, oldest first; reads months from the newest back until there are enough."""

        def attempt() -> Mapping[str, Sequence[Health]]:
            table = self._there()
            if table is None or table.current_snapshot() is None:
                return {}
            found: dict[str, list[Health]] = {}
            for month in months(table)[:MONTHS_BACK]:
                short = [name for name in tables if len(found.get(name, ())) < count]
                if not short:
                    break
                for record in newest(scan(table, in_month(month), short, tuple(COLUMNS)).to_arrow(), short, count, other_than):
                    found.setdefault(record.table_name, []).append(record)
            return {name: sorted(runs, key=lambda h: h.observed_at_ms)[-count:] for name, runs in found.items()}

        return self._patiently(attempt, "read")

    def lately(self, tables: Sequence[str], count: int = LAST, *, other_than: str = "") -> Mapping[str, RecentRuns]:
        """The last run of each table, and one figure of its newest runs: streams months with only four columns."""

        def attempt() -> Mapping[str, RecentRuns]:
            table = self._there()
            if table is None or table.current_snapshot() is None:
                return {}
            found: dict[str, list[tuple[str, int | None]]] = {}
            for month in months(table)[:MONTHS_BACK]:
                short = [name for name in tables if len(found.get(name, ())) < count]
                if not short:
                    break
                drawn = scan(table, in_month(month), short, ("table_name", "run_id", "observed_at", DRAWN))
                for row in newest_streamed(drawn, short, count, other_than):
                    runs = found.setdefault(row["table_name"], [])
                    if len(runs) < count:
                        runs.append((row["run_id"], row.get(DRAWN)))
            if not found:
                return {}
            rows = scan(table, among("run_id", {runs[0][0] for runs in found.values()}), tuple(found), tuple(COLUMNS)).to_arrow()
            last = {record.table_name: record for record in newest(rows, tuple(found), 1, other_than)}
            return {name: RecentRuns(run, tuple(n for _, n in reversed(found[name]) if n is not None)) for name, run in last.items()}

        return self._patiently(attempt, "read")

    @property
    def _opened(self) -> Any:
        if self._catalog is None:
            self._catalog = self._make_catalog()
        return self._catalog

    def _there(self) -> Any:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            return self._opened.load_table((NAMESPACE, NAME))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _made(self) -> Any:
        """The table with every column; creates the table or adds columns if needed."""
        from pyiceberg.exceptions import TableAlreadyExistsError

        table = self._there()
        if table is None:
            self._opened.create_namespace_if_not_exists((NAMESPACE,))
            try:
                table = self._opened.create_table((NAMESPACE, NAME), _schema(), partition_spec=_by_month(), properties=dict(PROPERTIES))
            except TableAlreadyExistsError:
                table = self._there()
        if "icekit.health-version" not in table.properties:
            raise HistoryUnusable(
                f"{NAMESPACE}.{NAME} exists but is not icekit's; rename it, or keep the history in a file (--history FILE)."
            )
        missing = [name for name in COLUMNS if name not in table.schema().column_names]
        if missing:
            with table.update_schema() as update:
                for name in missing:
                    update.add_column(name, _type(COLUMNS[name][0]), doc=COLUMNS[name][1])
        return table

    def _tidy(self, table: Any) -> None:
        """Combine the files of a month with many files, and drop old snapshots; a conflict postpones this."""
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        try:
            if len(table.snapshots()) > _KEPT_SNAPSHOTS:
                cutoff = sorted(s.timestamp_ms for s in table.snapshots())[-5]
                table.maintenance.expire_snapshots().older_than(at(cutoff).replace(tzinfo=None)).commit()
            for month, files in files_by_month(table).items():
                if files >= FILES_OF_A_MONTH:
                    rows = table.scan(row_filter=in_month(month)).to_arrow()
                    table.overwrite(rows, overwrite_filter=in_month(month))
        except (CommitFailedException, ValidationException):
            return

    def _patiently(self, attempt: Callable[[], T], what: str) -> T:
        from pyiceberg.exceptions import CommitFailedException

        def is_conflict(error: BaseException) -> bool:
            return isinstance(error, CommitFailedException)

        try:
            return patiently(attempt, is_conflict, seconds=_PATIENCE_SECONDS, first_wait=0.1, longest_wait=5)
        except IcekitError:
            raise
        except Exception as error:
            raise HistoryUnusable(
                f"The history {NAMESPACE}.{NAME} cannot be {what} ({type(error).__name__}: {first_line(error)}). icekit needs permission to create and write that table; "
                "without it, keep the history in a file (--history FILE)."
            ) from error


def as_arrow(records: Sequence[Health], schema: pa.Schema | None = None) -> pa.Table:
    """Records as the table's columns; columns that this icekit does not know are null."""
    import pyarrow as pa

    kinds = {"string": pa.string(), "long": pa.int64(), "timestamp": pa.timestamp("us", tz="UTC")}
    own = pa.schema([pa.field(name, kinds[kind], nullable=name not in REQUIRED) for name, (kind, _) in COLUMNS.items()])
    plain = [record.plain() | {"observed_at": at(record.observed_at_ms)} for record in records]
    shape = (
        own
        if schema is None
        else pa.schema([pa.field(f.name, own.field(f.name).type if f.name in own.names else f.type, f.nullable) for f in schema])
    )
    return pa.Table.from_pylist([{name: row.get(name) for name in shape.names} for row in plain], schema=shape)


def _type(kind: str) -> Any:
    from pyiceberg.types import LongType, StringType, TimestamptzType

    return {"string": StringType, "long": LongType, "timestamp": TimestamptzType}[kind]()


def _schema() -> Any:
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    return Schema(
        *(NestedField(n, name, _type(kind), required=name in REQUIRED, doc=doc) for n, (name, (kind, doc)) in enumerate(COLUMNS.items(), 1))
    )


def _by_month() -> Any:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    source = list(COLUMNS).index("observed_month") + 1
    return PartitionSpec(PartitionField(source, 1000, IdentityTransform(), "observed_month"))


def _missing(table: Any, records: Sequence[Health]) -> list[Health]:
    """The records whose run and table are not stored yet."""
    if table.current_snapshot() is None:
        return list(records)
    runs = {record.run_id for record in records}
    there = table.scan(row_filter=among("run_id", runs), selected_fields=("run_id", "table_name")).to_arrow().to_pylist()
    known = {(row["run_id"], row["table_name"]) for row in there}
    return [record for record in records if (record.run_id, record.table_name) not in known]


# --- Health in the Iceberg table ``icekit.health``, with Spark: for a catalog that only a running session knows


_TYPES = {"string": "STRING", "long": "BIGINT", "timestamp": "TIMESTAMP"}
#: The number of appends after which the table is compacted.
_TIDY_EVERY = 24


class SparkStore(Store):
    """Like :class:`icekit.history.iceberg.IcebergStore`; Spark's procedures maintain the table."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._name = identifier(*lake.sql_name((NAMESPACE, NAME)))

    def __repr__(self) -> str:
        return f"SparkStore({self._name})"

    def append(self, records: Sequence[Health]) -> int:
        """Append the records that are not stored yet, in one commit; returns their number."""
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
                frame_of(spark, as_arrow(missing)).coalesce(1).writeTo(self._name).append()
                self._tidy()
            return len(missing)

        return self._guarded(work, "written")

    def last(self, tables: Sequence[str], count: int = LAST, *, other_than: str = "") -> Mapping[str, Sequence[Health]]:
        """The newest runs of each table, oldest first; Spark selects them, and the driver gets no other rows."""

        def work() -> Mapping[str, Sequence[Health]]:
            spark = self._lake.spark
            if not spark.catalog.tableExists(self._name):
                return {}
            spark.sql(f"REFRESH TABLE {self._name}")
            ranked = self._ranked(tables, other_than)
            found: dict[str, list[Health]] = {}
            rows = arrow_of(spark.sql(f"SELECT * FROM ({ranked}) WHERE newest <= {count:d} ORDER BY table_name, observed_at"))
            for row in rows.to_pylist():
                found.setdefault(row["table_name"], []).append(from_row(row))
            return found

        return self._guarded(work, "read") if tables else {}

    def lately(self, tables: Sequence[str], count: int = LAST, *, other_than: str = "") -> Mapping[str, RecentRuns]:
        """The last run of each table, and one figure of its newest runs; Spark selects both."""
        last = {name: runs[-1] for name, runs in self.last(tables, 1, other_than=other_than).items()}

        def work() -> Mapping[str, Sequence[int]]:
            # A table of an earlier icekit gets the column with the first append.
            if DRAWN not in self._lake.spark.table(self._name).columns:
                return {}
            ranked = self._ranked(tables, other_than, f"table_name, observed_at, {DRAWN}")
            query = f"SELECT table_name, {DRAWN} FROM ({ranked}) WHERE newest <= {count:d} AND {DRAWN} IS NOT NULL ORDER BY table_name, observed_at"
            found: dict[str, list[int]] = {}
            for batch in arrow_of(self._lake.spark.sql(query)).to_batches():
                for name, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    found.setdefault(name, []).append(value)
            return found

        points = self._guarded(work, "read") if last else {}
        return {name: RecentRuns(run, tuple(points.get(name, ()))) for name, run in last.items()}

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
            raise HistoryUnusable(f"{self._name} exists but is not icekit's; rename it, or keep the history in a file (--history FILE).")
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
                f"The history {self._name} cannot be {what}: {first_line(error)}. Without permission to write it, keep the history in a file (--history FILE)."
            ) from error
