"""Remember a table's health at each run, in a SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.errors import HistoryUnusable
from icekit.common.sqlite import SqliteFile
from icekit.health.diagnose.findings import Findings
from icekit.health.facts.model import TableFacts
from icekit.iceberg.file_kind import DELETE_KINDS

if TYPE_CHECKING:
    from icekit.maintain.planning.savings import Savings


@frozen
class HealthRecord:
    """One table at one run; the key is ``run_id`` and ``table_name``.

    Each field is a column of the users' files (:data:`COLUMNS`): with another field, files that
    they already have are refused.
    """

    run_id: str
    table_name: str  # namespace.table, odd parts in backticks
    observed_at_ms: int
    catalog: str  # by the name of its profile
    table_uuid: str | None  # differs after the table was re-created
    snapshot_id: int | None  # None for a table without snapshots
    status: str  # healthy, or the most serious severity
    findings: tuple[tuple[str, str], ...]  # (name, severity), most serious first; JSON
    data_files: int
    data_bytes: int
    data_records: int  # before deletes
    delete_files: int  # with deletion vectors
    delete_records: int
    target_file_bytes: int
    undersized_manifests: int  # data manifests under half of the target size
    snapshots: int
    opens_saved: int  # file opens that compaction would save a full scan

    def as_columns(self) -> dict[str, Any]:
        """Columns as stored: ``findings`` as JSON, and the rest unchanged."""
        return asdict(self) | {"findings": json.dumps(self.findings)}

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any]) -> HealthRecord:
        """Read a stored record."""
        findings = tuple(
            (finding_name, severity) for finding_name, severity in json.loads(columns["findings"])
        )
        return cls(**{f.name: columns[f.name] for f in fields(cls)} | {"findings": findings})


#: Every stored column with its type (int or str).
COLUMNS: Mapping[str, type] = {
    f.name: int if "int" in str(f.type) else str for f in fields(HealthRecord)
}


def health_record(
    facts: TableFacts, findings: Findings, savings: Savings, run_id: str
) -> HealthRecord:
    """The record of a table; its size does not grow with files or partitions."""
    delete_totals = [facts.total(kind) for kind in DELETE_KINDS]
    return HealthRecord(
        run_id=run_id,
        table_name=facts.name,
        observed_at_ms=facts.collected_at_ms,
        catalog=facts.catalog,
        table_uuid=facts.table_uuid,
        snapshot_id=facts.snapshot_id,
        status=findings.status,
        findings=tuple((f.name, str(f.severity)) for f in findings),
        data_files=facts.data.file_count,
        data_bytes=facts.data.size_in_bytes,
        data_records=facts.data.record_count,
        delete_files=sum(kind_total.file_count for kind_total in delete_totals),
        delete_records=sum(kind_total.record_count for kind_total in delete_totals),
        target_file_bytes=facts.target_bytes,
        undersized_manifests=facts.manifests.undersized_count,
        snapshots=facts.history.snapshot_count,
        opens_saved=savings.opens_saved,
    )


#: The number of runs read back per table.
LAST = 30


def newest_by_table(records: Iterable[HealthRecord]) -> dict[str, list[HealthRecord]]:
    """The newest :data:`LAST` records of each table, oldest first."""
    records_by_table: dict[str, list[HealthRecord]] = {}
    for record in sorted(records, key=lambda record: record.observed_at_ms):
        records_by_table.setdefault(record.table_name, []).append(record)
    return {
        table_name: table_records[-LAST:] for table_name, table_records in records_by_table.items()
    }


class HistoryFile(SqliteFile):
    """The table ``health`` in a SQLite file, for one machine; all methods raise
    :class:`~icekit.common.errors.HistoryUnusable` if the file cannot be read or written.
    """

    APPLICATION_ID = 0x69636568  # "iceh"
    SCHEMA_VERSION = 2

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, records: Sequence[HealthRecord]) -> int:
        """Append the records whose run and table are not stored yet, in one transaction; returns
        their number.
        """
        insert_sql = f"INSERT OR IGNORE INTO health VALUES (:{', :'.join(COLUMNS)})"
        rows = [record.as_columns() for record in records]
        return self.write(lambda db: db.executemany(insert_sql, rows).rowcount) if rows else 0

    def newest_runs(self, tables: Sequence[str]) -> Mapping[str, Sequence[HealthRecord]]:
        """The newest runs of each table, oldest first, at most :data:`LAST` of each; without tables
        that have no runs.
        """
        ranked_sql = (
            "SELECT *, row_number() OVER (PARTITION BY table_name ORDER BY observed_at_ms DESC) "
            "AS newest FROM health WHERE table_name IN (SELECT value FROM json_each(?))"
        )

        def read_runs(db: sqlite3.Connection) -> dict[str, list[HealthRecord]]:
            db.row_factory = sqlite3.Row
            rows = db.execute(
                f"SELECT * FROM ({ranked_sql}) WHERE newest <= ?", (json.dumps(list(tables)), LAST)
            )
            return newest_by_table(map(HealthRecord.from_columns, rows))

        return self.read(read_runs, {})

    def create_tables(self, db: sqlite3.Connection) -> None:
        """Create the table."""
        sql_types = {int: "INTEGER", str: "TEXT"}
        columns_sql = ", ".join(
            f"{name} {sql_types[column_type]}" for name, column_type in COLUMNS.items()
        )
        db.execute(f"CREATE TABLE health ({columns_sql}, PRIMARY KEY (table_name, run_id))")
        db.execute("CREATE INDEX health_over_time ON health (table_name, observed_at_ms)")

    def unusable_error(
        self, error: sqlite3.Error | OSError, *, is_writing: bool
    ) -> HistoryUnusable:
        """The error for a history that cannot be used."""
        action_text = "written" if is_writing else "read"
        return HistoryUnusable(
            f"The history {self.path} cannot be {action_text}: {error}; give another file with "
            "--history."
        )
