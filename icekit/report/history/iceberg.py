"""Store health in the Iceberg table ``icekit.health``, through pyiceberg and without a JVM."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from icekit.common.errors import HistoryUnusable, IcekitError, why
from icekit.common.sqlite import patiently
from icekit.common.units import at
from icekit.engine.lake import Lake
from icekit.engine.tables import EmbeddedTables, ProfileTables
from icekit.report.history.store import COLUMNS, LAST, Health, SqliteStore, Store, newest

T = TypeVar("T")

TABLE = ("icekit", "health")
_REQUIRED = ("run_id", "table_name", "observed_at_ms", "observed_month")
#: Properties that keep the history table itself healthy: each run commits one small file.
PROPERTIES: Mapping[str, str] = {
    "format-version": "2",
    "icekit.health-version": "2",
    # Repeated by this module, which looks again at what is stored: pyiceberg would append a run
    # that another writer has appended.
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "10",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    # A history needs no time travel.
    "history.expire.max-snapshot-age-ms": str(24 * 3600 * 1000),
    "history.expire.min-snapshots-to-keep": "5",
}
#: An append combines a month's files from this number on, as rewrite_data_files would
# (min-input-files).
FILES_OF_A_MONTH = 5
#: The most months to search for runs.
MONTHS_BACK = 24
_KEPT_SNAPSHOTS = 20


class IcebergStore(Store):
    """``icekit.health``, partitioned by ``observed_month``; the first append creates it.

    An append is one commit, tried again after a conflict. When a month has
    :data:`FILES_OF_A_MONTH` files, they are combined. Old snapshots are dropped from the metadata;
    their manifest lists are left to ``remove_orphan_files``, because pyiceberg deletes no files.
    """

    def __init__(self, catalog: Callable[[], Any]) -> None:
        """``catalog`` returns a pyiceberg catalog; it is called when needed."""
        self._catalog = catalog

    def append(self, records: Sequence[Health]) -> int:
        """Append the records that are not stored yet, in one commit; returns their number."""
        import pyarrow as pa

        def attempt() -> int:
            table = self._table(creates=True)
            stored = table.scan(
                row_filter=_among("run_id", {record.run_id for record in records}),
                selected_fields=("run_id", "table_name"),
            ).to_arrow()
            known = {tuple(row.values()) for row in stored.to_pylist()}
            missing = [
                record.plain()
                for record in records
                if (record.run_id, record.table_name) not in known
            ]
            if missing:
                table.append(pa.Table.from_pylist(missing, schema=table.schema().as_arrow()))
                _tidy(table)
            return len(missing)

        return self._patiently(attempt, "written") if records else 0

    def last(self, tables: Sequence[str]) -> Mapping[str, Sequence[Health]]:
        """The newest runs of each table, oldest first; streams months from the newest back until
        there are enough.
        """
        from pyiceberg.expressions import And

        def attempt() -> Mapping[str, Sequence[Health]]:
            table, runs = self._table(creates=False), dict[str, list[Health]]()
            months = sorted(_files_by_month(table), reverse=True) if table else ()
            for month in months[:MONTHS_BACK]:
                wanted = And(_among("observed_month", {month}), _among("table_name", tables))
                for batch in table.scan(row_filter=wanted).to_arrow_batch_reader():
                    read = map(Health.of_plain, batch.to_pylist())
                    runs = newest(chain(read, *runs.values()))
                if all(len(runs.get(name, ())) >= LAST for name in tables):
                    break
            return runs

        return self._patiently(attempt, "read") if tables else {}

    def _table(self, *, creates: bool) -> Any:
        """The table, None if it does not exist and is not to be created."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.transforms import IdentityTransform

        catalog, schema = self._catalog(), _schema()
        try:
            table = catalog.load_table(TABLE)
        except (NoSuchTableError, NoSuchNamespaceError):
            if not creates:
                return None
            catalog.create_namespace_if_not_exists(TABLE[:1])
            month = PartitionField(
                schema.find_field("observed_month").field_id,
                1000,
                IdentityTransform(),
                "observed_month",
            )
            table = catalog.create_table_if_not_exists(
                TABLE, schema, partition_spec=PartitionSpec(month), properties=dict(PROPERTIES)
            )
        version = "icekit.health-version"
        if table.properties.get(version) != PROPERTIES[version]:
            raise HistoryUnusable(
                "icekit.health exists but is not this icekit's history; rename it, or keep the "
                "history in a file (--history FILE)."
            )
        return table

    def _patiently(self, attempt: Callable[[], T], done: str) -> T:
        from pyiceberg.exceptions import CommitFailedException

        try:
            return patiently(
                attempt,
                lambda error: isinstance(error, CommitFailedException),
                first_wait=0.1,
                longest_wait=5,
            )
        except IcekitError:
            raise
        except Exception as error:
            raise HistoryUnusable(
                f"The history icekit.health cannot be {done} ({why(error)}). icekit "
                "needs permission to create and write that table; without it, keep the history in "
                "a file (--history FILE)."
            ) from error


def _schema() -> Any:
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField, StringType

    kinds = {int: LongType(), str: StringType()}
    return Schema(
        *(
            NestedField(n, name, kinds[kind], required=name in _REQUIRED)
            for n, (name, kind) in enumerate(COLUMNS.items(), 1)
        )
    )


def _among(column: str, values: Any) -> Any:
    """A filter by values, safe for any characters."""
    from pyiceberg import expressions

    make: Any = expressions.In
    return make(column, set(values))


def _files_by_month(table: Any) -> dict[str, int]:
    return {
        row["partition"]["observed_month"]: row["file_count"]
        for row in table.inspect.partitions().to_pylist()
    }


def _tidy(table: Any) -> None:
    """Combine the files of a month with many files, and drop old snapshots; a conflict postpones
    this.
    """
    from pyiceberg.exceptions import CommitFailedException, ValidationException

    try:
        for month, files in _files_by_month(table).items():
            if files >= FILES_OF_A_MONTH:
                rows = _among("observed_month", {month})
                table.overwrite(table.scan(row_filter=rows).to_arrow(), overwrite_filter=rows)
        moments = sorted(snapshot.timestamp_ms for snapshot in table.snapshots())
        if len(moments) > _KEPT_SNAPSHOTS:
            table.maintenance.expire_snapshots().older_than(
                at(moments[-5]).replace(tzinfo=None)
            ).commit()
    except (CommitFailedException, ValidationException):
        return


def store(where: str, lake: Lake) -> Store | None:
    """The store for a name: none if empty, ``table``, or a SQLite file; contacts and creates
    nothing yet.
    """
    if where != "table":
        return SqliteStore(Path(where).expanduser()) if where else None
    tables = lake.tables
    if isinstance(tables, ProfileTables):
        return IcebergStore(lambda: tables.catalog)
    if isinstance(tables, EmbeddedTables):
        return IcebergStore(lambda: tables.catalog(lake.name))
    raise HistoryUnusable(
        f"Only a Spark session knows the catalog {lake.name}: keep the history in a file "
        "(--history FILE)."
    )
