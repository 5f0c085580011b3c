"""Trace small files to the commits that made them: which writer, which operation, and what it looks like.

Spark groups the live files by the snapshot that added them; the driver gets the worst few commits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from icekit.engine.metadata_tables import CONTENT, metadata_table
from icekit.facts.sizes import min_file_size
from icekit.resolve.listing import partition_text
from icekit.tune.advisory_size.source import SCATTERED
from icekit.units import count

if TYPE_CHECKING:
    from icekit.catalog import Lake
    from icekit.facts.model import TableFacts

#: Commits that are listed.
WORST = 10


@dataclass(frozen=True, slots=True)
class Cohort:
    """The live data files that one commit added; ``small_files`` are under the limit of a default rewrite.

    ``operation`` and ``writer`` are None where the snapshot has expired or does not say.
    """

    snapshot_id: int
    files: int
    small_files: int
    size_in_bytes: int
    partitions: int
    operation: str | None
    writer: str | None
    committed_at_ms: int | None
    target_bytes: int

    @property
    def files_per_partition(self) -> float:
        """Live files for each partition that has any."""
        return self.files / max(self.partitions, 1)

    @property
    def looks_like(self) -> str:
        """What the figures look like; no commit records its distribution mode."""
        if self.files >= SCATTERED * (max(self.partitions, 1) + self.size_in_bytes // self.target_bytes):
            return f"none: {count(round(self.files_per_partition), 'task')} wrote into each partition"
        if self.partitions > 1 or self.small_files:
            return "rows were brought together: a small commit"
        return "one task, or a small commit"


@dataclass(frozen=True, slots=True)
class Cohorts:
    """The worst commits, and the totals over all: ``commit_count`` commits left ``small_files`` of ``files`` live data files."""

    worst: tuple[Cohort, ...]
    commit_count: int
    files: int
    small_files: int

    @property
    def traced(self) -> int:
        """Small files of the commits listed."""
        return sum(c.small_files for c in self.worst)


def cohorts(lake: Lake, facts: TableFacts) -> Cohorts:
    """Group the live data files of the facts' snapshot by the commit that added them."""
    if facts.snapshot_id is None:
        return Cohorts((), 0, 0, 0)
    entries = metadata_table(lake.spark, lake.sql_name(facts.table), "entries", facts.snapshot_id)
    place = partition_text(entries)
    small = min_file_size(facts.target_bytes)
    rows = lake.spark.sql(
        f"""SELECT *, count(*) OVER () AS commits, sum(files) OVER () AS all_files, sum(small_files) OVER () AS all_small
            FROM (SELECT snapshot_id, count(*) AS files, count_if(data_file.file_size_in_bytes < {small}) AS small_files,
                    sum(data_file.file_size_in_bytes) AS size_in_bytes, approx_count_distinct({place}, 0.01) AS partitions
                  FROM {{entries}} WHERE status < 2 AND {CONTENT} = 0 GROUP BY snapshot_id)
            ORDER BY small_files DESC, snapshot_id LIMIT {WORST}""",
        entries=entries,
    ).collect()
    known = {c.snapshot_id: c for c in facts.history.commits}
    found = []
    for row in rows:
        commit = known.get(row.snapshot_id)
        found.append(
            Cohort(
                row.snapshot_id,
                int(row.files),
                int(row.small_files),
                int(row.size_in_bytes),
                int(row.partitions),
                commit.operation if commit else None,
                commit.writer if commit else None,
                commit.committed_at_ms if commit else None,
                facts.target_bytes,
            )
        )
    first = rows[0] if rows else None
    return Cohorts(
        tuple(c for c in found if c.small_files),
        int(first.commits) if first else 0,
        int(first.all_files) if first else 0,
        int(first.all_small) if first else 0,
    )
