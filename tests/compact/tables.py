"""Small sick tables, and what a test asks of them before and after a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from icekit.api import Lake
from icekit.compact.ledger import Ledger
from icekit.compact.model import Plan
from icekit.compact.outcome import Outcome
from icekit.compact.policy import Policy
from icekit.compact.service import plan_table
from icekit.diagnose.findings import Findings
from icekit.run.verbs import resume, run
from icekit.sql import Identifier, display_name, identifier
from tests.commits import in_order

# Each task writes a file to each partition: small files in one commit.
SCATTERED = {
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "true",
    "format-version": "2",
}
# As Table.create takes properties.
MERGE_ON_READ = {"write_delete_mode": "merge-on-read", "write_delete_distribution__mode": "none"}
ROWS = "id, cast(id % 2 AS int) AS part, cast(id AS string) AS name"


class Table:
    """A table of a test's own, its ledger, and the few things that are done with it."""

    def __init__(self, lake: Lake, namespace: str, name: str, folder: Path) -> None:
        self.lake = lake
        self.name: Identifier = (namespace, name)
        self.sql_name = identifier(lake.name, namespace, name)
        self.book = folder / "ledger.db"

    def sql(self, statement: str) -> list[Any]:
        return self.lake.spark.sql(statement.replace("{t}", self.sql_name)).collect()

    def create(
        self, columns: str = "id bigint, part int, name string", by: str = "part", **properties: str
    ) -> Table:
        """Create the table; keyword arguments are properties, with ``_`` for ``.`` and ``__`` for
        ``-``.
        """
        given = {
            **SCATTERED,
            **{k.replace("__", "-").replace("_", "."): v for k, v in properties.items()},
        }
        pairs = ", ".join(f"'{k}' = '{v}'" for k, v in given.items())
        self.sql(
            f"CREATE TABLE {{t}} ({columns}) USING iceberg "
            f"{f'PARTITIONED BY ({by})' if by else ''} TBLPROPERTIES ({pairs})"
        )
        return self

    def fill(
        self, files: int = 5, rows: int = 40, select: str = ROWS, start: int = 0, branch: str = ""
    ) -> Table:
        """Append rows in so many files a partition."""
        into = f"{self.sql_name}.branch_{branch}" if branch else "{t}"
        self.sql(
            f"INSERT INTO {into} SELECT /*+ REPARTITION({files}) */ {select} FROM range({start}, "
            f"{start + rows})"
        )
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
        return plan_table(
            self.lake,
            facts,
            findings,
            Policy.of({"leave_alone": "0 minutes", **policy}),
            ledger=str(self.book),
            trial=trial,
            progress=lambda _: None,
        )

    def run(self, plan: Plan, **options: Any) -> Outcome:
        given = {"execute": True, "ledger": str(self.book), "progress": lambda _: None, **options}
        return run(self.lake, plan, **given)

    def resume(self, **options: Any) -> Outcome:
        given = {"ledger": str(self.book), "progress": lambda _: None, **options}
        return resume(self.lake, self.name, **given)

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
        return int(self.sql("SELECT count(*) FROM {t}.data_files")[0][0])

    @property
    def location(self) -> Path:
        metadata = self.lake.tables.source(self.name).metadata_location
        return Path(metadata.removeprefix("file:")).parent.parent

    @property
    def full_name(self) -> str:
        return display_name(self.lake.sql_name(self.name))

    def ledger(self) -> Ledger:
        return Ledger(self.book)


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file under a folder, byte for byte."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def tags(summaries: Sequence[dict[str, str]]) -> list[tuple[str | None, str | None]]:
    return [(s.get("icekit.run-id"), s.get("icekit.action-id")) for s in summaries]
