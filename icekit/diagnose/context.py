"""What a symptom looks at, and the few ways in which findings are put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from icekit import sql
from icekit.diagnose.findings import Finding, Severity, Thresholds
from icekit.errors import ParameterError
from icekit.facts.model import FileGroup, Partition, TableFacts, Totals
from icekit.facts.sizes import max_file_size, min_file_size

WHERE_LIMIT = 10

CHOICE = "a choice; change it with a threshold"


@dataclass(frozen=True)
class Context:
    """One table's facts, the limits, and the reading session's settings where known."""

    facts: TableFacts
    thresholds: Thresholds
    session_conf: Mapping[str, str] | None = None

    @property
    def min_file_size(self) -> int:
        """Data files under it are undersized, in bytes."""
        return min_file_size(self.facts.target_bytes, self.thresholds.min_file_size_ratio)

    @property
    def max_file_size(self) -> int:
        """Data files over it are oversized, in bytes."""
        return max_file_size(self.facts.target_bytes, self.thresholds.max_file_size_ratio)

    def finding(self, name: str, severity: Severity, where: Sequence[str], **told: Any) -> Finding:
        """A finding about this table; ``where`` is cut to the worst ten."""
        return Finding(name, severity, self.facts.name, tuple(where[:WHERE_LIMIT]), len(where), **told)

    def paths(self, partitions: Sequence[Partition]) -> list[str]:
        """Partitions as people read them; the whole of an unpartitioned table has no name."""
        return [self.facts.partition_path(p) or "(unpartitioned)" for p in partitions]

    def call(self, procedure: str, **arguments: Any) -> str:
        """A CALL on this table."""
        return sql.call(self.facts.catalog, procedure, table=self.facts.name, **arguments)

    def rewrite(self, options: Mapping[str, str] | None = None, **arguments: Any) -> str:
        """A CALL of ``rewrite_data_files`` on this table, with partial progress and these options."""
        given = {"partial-progress.enabled": "true", **(options or {})}
        return sql.rewrite_data_files(self.facts.catalog, table=self.facts.name, **arguments, options=given)

    def list_orphans(self) -> str:
        """The dry run that lists orphan files."""
        return sql.call(self.facts.catalog, "remove_orphan_files", **sql.orphan_arguments(self.facts.name, self.facts.location))

    def rewrite_data_files(self) -> str:
        """A rewrite with partial progress, and with the limits that were changed here."""
        limits, default = self.thresholds, Thresholds()
        changed = {}
        if limits.min_input_files != default.min_input_files:
            changed["min-input-files"] = str(limits.min_input_files)
        if limits.min_file_size_ratio != default.min_file_size_ratio:
            changed["min-file-size-bytes"] = str(self.min_file_size)
        if limits.max_file_size_ratio != default.max_file_size_ratio:
            changed["max-file-size-bytes"] = str(self.max_file_size)
        return self.rewrite(changed)

    def alter(self, properties: dict[str, str]) -> str:
        """An ALTER TABLE … SET TBLPROPERTIES on this table."""
        return sql.set_properties(self.full_name, properties)

    @property
    def full_name(self) -> tuple[str, ...]:
        """The table with its catalog."""
        return (self.facts.catalog, *self.facts.table)


def under(group: FileGroup, limit_bytes: int) -> Totals:
    """The files of a group smaller than a limit; exact, since limits are bucket edges.

    Raises ParameterError for a limit that the facts were not cut at.
    """
    for bucket in group.buckets:
        if bucket.min_bytes < limit_bytes <= bucket.max_bytes:
            raise ParameterError(
                f"Facts of {group.partition} were not counted at {limit_bytes:,} bytes; observe the table with size_ratios=thresholds.size_ratios."
            )
    kept = tuple(b for b in group.buckets if b.max_bytes < limit_bytes)
    return Totals.of((FileGroup(group.partition, group.kind, kept),))
