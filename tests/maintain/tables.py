"""Small sick tables, and what a test asks of them before and after a run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

from icekit.api import Lake
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.sql import display_name
from icekit.health.collect import Collector
from icekit.health.diagnose.findings import Findings
from icekit.maintain.plan import Plan
from icekit.maintain.planning.maintenance import plan_maintenance_table
from icekit.maintain.planning.table_plan import plan_table
from icekit.maintain.record.ledger import Ledger
from icekit.maintain.run.outcome import Outcome
from icekit.maintain.run.trial import try_plan
from tests import tables
from tests.commits import in_order
from tests.deletes.tables import Table as RewrittenTable
from tests.deletes.tables import run as rewrite_every_file
from tests.deletes.tables import unchanged

# As Table.create takes properties.
MERGE_ON_READ: dict[str, Any] = {
    "write_delete_mode": "merge-on-read",
    "write_delete_distribution__mode": "none",
}
ROWS = "id, cast(id % 2 AS int) AS part, cast(id AS string) AS name"


class Table(tables.Table):
    """A table of many small files, its ledger, and the few things that are done with it."""

    COLUMNS = "id bigint, part int, name string"
    BY = "part"
    # Each task writes a file to each partition: small files in one commit.
    PROPERTIES: ClassVar = {
        "write_distribution__mode": "none",
        "write_spark_fanout_enabled": "true",
    }

    def __init__(self, lake: Lake, namespace: str, name: str, folder: Path) -> None:
        super().__init__(lake, namespace, name)
        self.book = folder / "ledger.db"

    def fill(
        self, files: int = 5, rows: int = 40, select: str = ROWS, start: int = 0, branch: str = ""
    ) -> Self:
        """Append rows in so many files a partition."""
        into = f"{self.sql_name}.branch_{branch}" if branch else "{t}"
        self.sql(
            f"INSERT INTO {into} SELECT /*+ REPARTITION({files}) */ {select} FROM range({start}, "
            f"{start + rows})"
        )
        return self

    def under_deletes(self, files: int = 5, version: int = 2) -> Self:
        """Create and fill it, and delete every fourth row by position."""
        self.create(version=version, **MERGE_ON_READ).fill(files)
        self.sql("DELETE FROM {t} WHERE id % 4 = 0")
        return self

    def plan(
        self,
        *,
        trial: bool = False,
        ref: str | None = None,
        findings: Findings | None = None,
        storage: bool = False,
        **policy: Any,
    ) -> Plan:
        facts = self.lake.observe(self.name, ref=ref, storage=storage)
        plan = plan_table(
            self.lake,
            facts,
            findings,
            CompactionPolicy.of({"leave_alone": "0 minutes", **policy}),
            ledger=str(self.book),
        )
        return try_plan(self.lake, facts, plan, progress=lambda _: None) if trial else plan

    def maintenance(
        self, *procedures: str, storage: bool = False, collector: Collector = "auto", **options: Any
    ) -> Plan:
        facts = self.lake.observe(self.name, storage=storage, collector=collector)
        return plan_maintenance_table(self.lake, facts, procedures=procedures, **options)

    def run(self, plan: Plan, **options: Any) -> Outcome:
        given = {"execute": True, "ledger": str(self.book), "progress": lambda _: None, **options}
        return self.lake.run(plan, **given)

    def resume(self, **options: Any) -> Outcome:
        given = {"ledger": str(self.book), "progress": lambda _: None, **options}
        return self.lake.resume(self.name, **given)

    def compact(self, **policy: Any) -> Outcome:
        return self.run(self.plan(**policy))

    def rows(self, ref: str = "") -> list[tuple[Any, ...]]:
        return sorted((tuple(row) for row in self.sql(f"SELECT * FROM {{t}} {ref}")), key=repr)

    def summaries(self) -> list[dict[str, str]]:
        """Operation and summary of every snapshot, oldest first."""
        return [dict(snapshot["summary"]) for snapshot in in_order(self.lake, self.name)]

    def snapshot_id(self, ref: str = "main") -> int | None:
        rows = self.sql(f"SELECT snapshot_id FROM {{t}}.refs WHERE name = '{ref}'")
        return int(rows[0][0]) if rows else None

    def data_files(self) -> list[Path]:
        return sorted(
            Path(str(row[0]).removeprefix("file:"))
            for row in self.sql("SELECT file_path FROM {t}.data_files")
        )

    def file_count(self) -> int:
        return len(self.data_files())

    def age_files(self, days: float = 10) -> None:
        """Make every file at its location so old."""
        then = time.time() - days * 86_400
        for path in self.location.rglob("*"):
            os.utime(path, (then, then))

    @property
    def full_name(self) -> str:
        return display_name(self.full)

    def ledger(self) -> Ledger:
        return Ledger(self.book)


Named = Callable[[str], Table]

#: The files of :func:`scattered`, their rows, and how far apart their first values are.
FILES, FILE_ROWS, STEP = 24, 300, 1000


def scattered(table: Table, by: str = "", **properties: Any) -> Table:
    """A table of files with ids of their own, which four commits wrote in no order; ``other`` is
    disjoint, too, but in another order. Compaction leaves about a quarter of the files.
    """
    table.create("id bigint, other bigint, code string, v string", by, **properties)
    for commit in range(4):
        file = f"pmod((id div {FILE_ROWS} + {commit * FILES // 4}) * 7, {FILES})"
        rows = table.spark.range(0, FILE_ROWS * FILES // 4, 1, FILES // 4).selectExpr(
            f"{file} * {STEP} + id % {FILE_ROWS} AS id",
            f"pmod({file} * 11, {FILES}) * {STEP} + id % {FILE_ROWS} AS other",
            f"concat('code-', lpad(CAST({file} * {STEP} + id % {FILE_ROWS} AS string), 12, '0')) AS code",
            "sha2(CAST(id AS string), 512) AS v",
        )
        rows.writeTo(table.sql_name).append()
    size = table.sql("SELECT sum(file_size_in_bytes) FROM {t}.data_files")[0][0]
    table.sql(
        "ALTER TABLE {t} SET TBLPROPERTIES ('write.target-file-size-bytes' = "
        f"'{size * 4 // FILES}')"
    )
    return table


def is_proved(outcome: Outcome) -> Outcome:
    """See that a run is done and proved."""
    assert outcome.status == "done", outcome
    assert outcome.proof is not None
    assert outcome.proof.ok is True, outcome
    return outcome


def refused(
    table: RewrittenTable, error: type[Exception], match: str, *procedure: str, **options: Any
) -> None:
    """See that a rewrite of every file is refused before its commit, and changes nothing."""
    with unchanged(table), pytest.raises(error, match=match):
        rewrite_every_file(table, *procedure, **options)


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file under a folder, byte for byte."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def tags(summaries: Sequence[dict[str, str]]) -> list[tuple[str | None, str | None]]:
    return [(s.get("icekit.run-id"), s.get("icekit.action-id")) for s in summaries]
