"""Define the record of a table's health at one run and the interface of its store, and store it in SQLite."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from icekit.diagnose.findings import Findings, Severity, Thresholds, under
from icekit.errors import HistoryUnusable
from icekit.facts.model import Kind, TableFacts
from icekit.facts.rollup import min_file_size
from icekit.sqlite import SqliteFile
from icekit.units import at

if TYPE_CHECKING:
    from icekit.maintain.savings import Savings


# --- The record of a table's health at one run: rollup figures and the names of its findings


@dataclass(frozen=True, slots=True)
class Health:
    """One table at one run; the key is ``run_id`` and ``table_name``. None means unknown, or older than the column.

    ``observed_at_ms`` is milliseconds since 1970; ``findings`` are pairs of name and severity in
    lower case, most serious first. :data:`COLUMNS` describes each column.
    """

    run_id: str
    table_name: str
    observed_at_ms: int
    catalog: str | None = None
    table_uuid: str | None = None
    snapshot_id: int | None = None
    status: str | None = None
    findings: tuple[tuple[str, str], ...] = ()
    data_files: int | None = None
    data_bytes: int | None = None
    data_records: int | None = None
    small_files: int | None = None
    target_file_bytes: int | None = None
    partitions: int | None = None
    position_delete_files: int | None = None
    position_delete_records: int | None = None
    equality_delete_files: int | None = None
    equality_delete_records: int | None = None
    deletion_vectors: int | None = None
    deletion_vector_records: int | None = None
    delete_bytes: int | None = None
    data_manifests: int | None = None
    delete_manifests: int | None = None
    manifest_bytes: int | None = None
    undersized_manifests: int | None = None
    snapshots: int | None = None
    metadata_files: int | None = None
    orphan_files: int | None = None
    files_gone: int | None = None
    opens_saved: int | None = None
    scan_bytes_saved: int | None = None
    scan_bytes: int | None = None
    expirable_bytes: int | None = None
    icekit_version: str | None = None
    orphan_bytes: int | None = None

    @property
    def mean_file_bytes(self) -> float | None:
        """Mean size of a data file; None without files."""
        return self.data_bytes / self.data_files if self.data_files and self.data_bytes is not None else None

    @property
    def delete_records(self) -> int | None:
        """Delete records of all three kinds."""
        each = (self.position_delete_records, self.equality_delete_records, self.deletion_vector_records)
        return None if all(n is None for n in each) else sum(n or 0 for n in each)

    @property
    def delete_ratio(self) -> float | None:
        """Delete records per data record; None without data."""
        return self.delete_records / self.data_records if self.data_records and self.delete_records is not None else None

    def plain(self) -> dict[str, Any]:
        """Columns as stored: ``findings`` as JSON, the month, and the rest unchanged."""
        findings = json.dumps([list(pair) for pair in self.findings])
        return asdict(self) | {"findings": findings, "observed_month": f"{at(self.observed_at_ms):%Y-%m}"}

    @classmethod
    def of_plain(cls, kept: Mapping[str, Any]) -> Health:
        """Read a stored record; a missing column is None, an unknown column is left out."""
        known = {f.name: kept[f.name] for f in fields(cls) if kept.get(f.name) is not None}
        known["findings"] = tuple((str(name), str(severity)) for name, severity in json.loads(known.get("findings") or "[]"))
        return cls(**known)


#: Every stored column, with its type (``string``, ``long`` or ``timestamp``) and its meaning.
#: New columns go at the end, and no column changes its meaning. (``opens_spared`` and ``scan_bytes_spared`` of 0.1 are ignored.)
COLUMNS: Mapping[str, tuple[str, str]] = {
    "run_id": ("string", "The report run; with table_name the key of a row"),
    "table_name": ("string", "namespace.table, odd parts in backticks"),
    "observed_at": ("timestamp", "When the table was observed"),
    "observed_month": ("string", "Month of observed_at in UTC, 2026-01; the partition column of the Iceberg table"),
    "catalog": ("string", "The catalog, by the name of its profile"),
    "table_uuid": ("string", "The table's UUID; it differs after the table was re-created"),
    "snapshot_id": ("long", "The snapshot observed; null for a table without snapshots"),
    "status": ("string", "healthy, or the most serious severity: info, warning, critical"),
    "findings": ("string", "JSON list of [name, severity], most serious first"),
    "data_files": ("long", "Live data files"),
    "data_bytes": ("long", "Their bytes"),
    "data_records": ("long", "Their rows, before deletes"),
    "small_files": ("long", "Data files smaller than the sizes that rewrite_data_files leaves alone"),
    "target_file_bytes": ("long", "write.target-file-size-bytes in force"),
    "partitions": ("long", "Partitions with a live file"),
    "position_delete_files": ("long", "Live position delete files"),
    "position_delete_records": ("long", "Their delete records"),
    "equality_delete_files": ("long", "Live equality delete files"),
    "equality_delete_records": ("long", "Their delete records"),
    "deletion_vectors": ("long", "Live deletion vectors"),
    "deletion_vector_records": ("long", "Rows that the deletion vectors delete"),
    "delete_bytes": ("long", "Bytes of delete files and deletion vectors"),
    "data_manifests": ("long", "Data manifests of the snapshot"),
    "delete_manifests": ("long", "Delete manifests of the snapshot"),
    "manifest_bytes": ("long", "Bytes of both"),
    "undersized_manifests": ("long", "Data manifests smaller than half of commit.manifest.target-size-bytes"),
    "snapshots": ("long", "Snapshots in the metadata"),
    "metadata_files": ("long", "Entries of the metadata log"),
    "orphan_files": ("long", "Files that no snapshot references; null if the storage was not listed"),
    "files_gone": ("long", "Data files that compaction would remove"),
    "opens_saved": ("long", "File opens that compaction would save a full scan"),
    "scan_bytes_saved": ("long", "The same with bytes and manifests, as a cost in bytes (read.split.open-file-cost per open)"),
    "scan_bytes": ("long", "The cost of a full scan, in the same unit"),
    "expirable_bytes": ("long", "Bytes that expiry under the table's properties would free, a lower bound; null if not known"),
    "icekit_version": ("string", "The icekit version that observed the table"),
    "orphan_bytes": ("long", "Bytes of the orphan files, estimated where there are very many; null if not known"),
}
#: The columns that must not be null.
REQUIRED = ("run_id", "table_name", "observed_at", "observed_month")


def health(facts: TableFacts, findings: Findings, won: Savings, run_id: str, thresholds: Thresholds | None = None) -> Health:
    """The record of a table; its size does not grow with files or partitions."""
    limits = thresholds or Thresholds()
    small = min_file_size(facts.target_bytes, limits.min_file_size_ratio)
    position, equality, vectors = (facts.total(k) for k in (Kind.POSITION_DELETES, Kind.EQUALITY_DELETES, Kind.DELETION_VECTORS))
    return Health(
        run_id=run_id,
        table_name=facts.name,
        observed_at_ms=facts.collected_at_ms,
        catalog=facts.catalog,
        table_uuid=facts.table_uuid,
        snapshot_id=facts.snapshot_id,
        status=findings.worst.name.lower() if findings.worst else "healthy",
        findings=tuple((f.name, f.severity.name.lower()) for f in findings),
        data_files=facts.data.file_count,
        data_bytes=facts.data.size_in_bytes,
        data_records=facts.data.record_count,
        small_files=sum(under(group, small).file_count for group in facts.of_kind(Kind.DATA)),
        target_file_bytes=facts.target_bytes,
        partitions=len(set(facts.partitions())),
        position_delete_files=position.file_count,
        position_delete_records=position.record_count,
        equality_delete_files=equality.file_count,
        equality_delete_records=equality.record_count,
        deletion_vectors=vectors.file_count,
        deletion_vector_records=vectors.record_count,
        delete_bytes=sum(each.size_in_bytes for each in (position, equality, vectors)),
        data_manifests=facts.manifests.data_count,
        delete_manifests=facts.manifests.delete_count,
        manifest_bytes=facts.manifests.data_bytes + facts.manifests.delete_bytes,
        undersized_manifests=facts.manifests.undersized_data_manifest_count,
        snapshots=facts.history.snapshot_count,
        metadata_files=facts.history.metadata_log_count,
        orphan_files=won.orphan_files,
        orphan_bytes=won.orphan_bytes,
        # Compaction alone: coarser partitions and another target are changes of the table.
        files_gone=won.files_gone - won.table_change_opens_saved,
        opens_saved=won.opens_saved - won.table_change_opens_saved,
        scan_bytes_saved=won.saved - won.table_change_opens_saved * won.open_file_cost,
        scan_bytes=won.scan_cost,
        expirable_bytes=won.expirable_bytes,
        icekit_version=importlib.metadata.version("icekit"),
    )


def severity_of(status: str | None) -> int:
    """A status as a number, higher if more serious; healthy and unknown are 0."""
    return Severity[status.upper()].value if status and status.upper() in Severity.__members__ else 0


#: The number of runs read back per table.
LAST = 90
#: The figure that an index shows over time.
DRAWN = "opens_saved"


@dataclass(frozen=True, slots=True)
class RecentRuns:
    """The part of a table's history that an index of very many tables needs: its last run, and :data:`DRAWN` of its newest runs, oldest first."""

    last: Health
    points: tuple[int, ...]


class Store(ABC):
    """Health of tables over time; all methods raise :class:`~icekit.errors.HistoryUnusable` if the store cannot be read or written."""

    @abstractmethod
    def append(self, records: Sequence[Health]) -> int:
        """Append the records whose run and table are not stored yet, in one commit; returns their number."""

    @abstractmethod
    def last(self, tables: Sequence[str], count: int = LAST, *, other_than: str = "") -> Mapping[str, Sequence[Health]]:
        """The newest runs of each table, oldest first, at most ``count`` of each, without run ``other_than``.

        The result leaves out tables without runs; a store that was never written to is empty.
        For a few tables; see :meth:`lately` for all tables of a lake.
        """

    @abstractmethod
    def lately(self, tables: Sequence[str], count: int = LAST, *, other_than: str = "") -> Mapping[str, RecentRuns]:
        """The complete last run of each table, and one figure of its newest ``count`` runs; memory is bounded for any number of tables."""


# --- Read ``icekit.health`` with pyiceberg: a month at a time, only the needed columns, only the newest rows


def from_row(row: Mapping[str, Any]) -> Health:
    """A record from a row of the table."""
    observed: dt.datetime = row["observed_at"]
    return Health.of_plain({**row, "observed_at_ms": round(observed.replace(tzinfo=observed.tzinfo or dt.UTC).timestamp() * 1000)})


def files_by_month(table: Any) -> dict[str, int]:
    """Data files by month, newest first."""
    rows = table.inspect.partitions().select(["partition", "file_count"]).to_pylist()
    found = {row["partition"]["observed_month"]: row["file_count"] for row in rows}
    return dict(sorted(found.items(), reverse=True))


def months(table: Any) -> list[str]:
    """The months with rows, newest first."""
    return list(files_by_month(table))


def in_month(month: str) -> Any:
    """A filter by one month."""
    return among("observed_month", (month,))


def among(column: str, values: Collection[str]) -> Any:
    """A filter by values, safe for any characters."""
    from pyiceberg import expressions

    made: Any = expressions.In
    return made(column, set(values))


def _both(left: Any, right: Any) -> Any:
    from pyiceberg.expressions import And

    return And(left, right)


def scan(table: Any, rows: Any, tables: Sequence[str], columns: Sequence[str]) -> Any:
    """A scan of rows: with a filter by table, unless there are too many tables; only existing columns."""
    known = tuple(name for name in columns if name in table.schema().column_names)
    return table.scan(row_filter=_both(rows, among("table_name", tables)) if len(tables) <= 100 else rows, selected_fields=known)


def newest_of(rows: Any, tables: Collection[str], count: int, other_than: str) -> Any:
    """The newest rows of each table, at most ``count``, newest first, as Arrow."""
    import pyarrow as pa

    ordered = rows.sort_by([("table_name", "ascending"), ("observed_at", "descending")])
    wanted, taken, places = set(tables), 0, []
    before: str | None = None
    for place, (name, run) in enumerate(zip(ordered["table_name"].to_pylist(), ordered["run_id"].to_pylist(), strict=True)):
        taken = taken if name == before else 0
        before = name
        if name in wanted and run != other_than and taken < count:
            taken += 1
            places.append(place)
    return ordered.take(pa.array(places, pa.int64()))


def newest_streamed(scanned: Any, tables: Collection[str], count: int, other_than: str) -> Sequence[Mapping[str, Any]]:
    """The same for a scan that does not fit into memory: batch by batch, keeping only the newest rows."""
    import pyarrow as pa

    kept: Any = None
    for batch in scanned.to_arrow_batch_reader():
        rows = pa.Table.from_batches([batch])
        kept = newest_of(rows if kept is None else pa.concat_tables([kept, rows]), tables, count, other_than)
    return kept.to_pylist() if kept is not None else []


def newest(rows: Any, tables: Sequence[str], count: int, other_than: str) -> list[Health]:
    """The newest rows of each table as records."""
    return [from_row(row) for row in newest_of(rows, tables, count, other_than).to_pylist()]


# --- Health in a SQLite file: for one machine, without a writable catalog


T = TypeVar("T")

_TYPES = {"string": "TEXT", "long": "INTEGER", "timestamp": "INTEGER"}
#: The most tables in one query; SQLite allows at least 999 variables.
_ASKED = 500


class SqliteStore(SqliteFile, Store):
    """One table, ``health``; a column that a later icekit adds is added to the file, and is NULL in older rows.

    Times are milliseconds since 1970.
    """

    APPLICATION = 0x69636568  # "iceh"

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"SqliteStore({str(self.path)!r})"

    def append(self, records: Sequence[Health]) -> int:
        """Append the records that are not stored yet, in one transaction; returns their number."""
        if not records:
            return 0

        def work(connection: sqlite3.Connection) -> int:
            names = list(COLUMNS)
            marks = ", ".join("?" * len(names))
            rows = [[_stored(record)[name] for name in names] for record in records]
            before = connection.total_changes
            connection.executemany(f"INSERT OR IGNORE INTO health ({', '.join(names)}) VALUES ({marks})", rows)
            return connection.total_changes - before

        return self.write(work)

    def last(self, tables: Sequence[str], count: int = LAST, *, other_than: str = "") -> Mapping[str, Sequence[Health]]:
        """The newest runs of each table, oldest first."""

        def work(connection: sqlite3.Connection) -> dict[str, list[Health]]:
            connection.row_factory = sqlite3.Row
            found: dict[str, list[Health]] = {}
            for start in range(0, len(tables), _ASKED):
                asked = tables[start : start + _ASKED]
                ranked = (
                    "SELECT *, row_number() OVER (PARTITION BY table_name ORDER BY observed_at DESC) AS newest FROM health "
                    f"WHERE table_name IN ({', '.join('?' * len(asked))}) AND run_id <> ?"
                )
                query = f"SELECT * FROM ({ranked}) WHERE newest <= ? ORDER BY table_name, observed_at"
                for row in connection.execute(query, (*asked, other_than, count)):
                    kept = dict(row)
                    record = Health.of_plain(kept | {"observed_at_ms": kept["observed_at"]})
                    found.setdefault(record.table_name, []).append(record)
            return found

        return self.read(work, {})

    def lately(self, tables: Sequence[str], count: int = LAST, *, other_than: str = "") -> Mapping[str, RecentRuns]:
        """The last run of each table, and one figure of its newest runs."""
        last = {name: runs[-1] for name, runs in self.last(tables, 1, other_than=other_than).items()}
        if not last:
            return {}

        def work(connection: sqlite3.Connection) -> dict[str, list[int]]:
            found: dict[str, list[int]] = {}
            if DRAWN not in {row[1] for row in connection.execute("PRAGMA table_info(health)")}:
                return found
            query = (
                f"SELECT {DRAWN} FROM (SELECT observed_at, {DRAWN} FROM health WHERE table_name = ? AND run_id <> ? "
                f"ORDER BY observed_at DESC LIMIT ?) WHERE {DRAWN} IS NOT NULL ORDER BY observed_at"
            )
            for name in last:
                found[name] = [row[0] for row in connection.execute(query, (name, other_than, count))]
            return found

        points: dict[str, list[int]] = self.read(work, {})
        return {name: RecentRuns(run, tuple(points.get(name, ()))) for name, run in last.items()}

    def prepare(self, db: sqlite3.Connection, schema: int | None) -> None:
        """Create the table, or add missing columns."""
        if schema is None:
            columns = ", ".join(f"{n} {_TYPES[kind]}{' NOT NULL' if n in REQUIRED else ''}" for n, (kind, _) in COLUMNS.items())
            db.execute(f"CREATE TABLE health ({columns}, PRIMARY KEY (table_name, run_id)) WITHOUT ROWID")
            db.execute("CREATE INDEX health_over_time ON health (table_name, observed_at)")
            return
        there = {row[1] for row in db.execute("PRAGMA table_info(health)")}
        for name, (kind, _) in COLUMNS.items():
            if name not in there:
                db.execute(f"ALTER TABLE health ADD COLUMN {name} {_TYPES[kind]}")

    def unusable(self, error: sqlite3.Error | OSError, *, writing: bool) -> HistoryUnusable:
        """The error for a history that cannot be used."""
        return HistoryUnusable(
            f"The history {self.path} cannot be {'written' if writing else 'read'}: {error}; give another file with --history."
        )


def _stored(record: Health) -> dict[str, Any]:
    return record.plain() | {"observed_at": record.observed_at_ms}
