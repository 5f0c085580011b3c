"""Symptoms of how the table is written."""

from __future__ import annotations

import statistics

from icekit.diagnose.context import CHOICE, Context
from icekit.diagnose.findings import Finding, Severity
from icekit.units import count, size


def distribution_mode(context: Context) -> Finding | None:
    """Recent appends that wrote several small files into each partition they touched."""
    facts, limits = context.facts, context.thresholds
    if facts.default_spec.is_unpartitioned or not limits.recent_commits:
        return None
    recent = [
        (c.added_data_files, c.changed_partitions, c.added_bytes)
        for c in facts.history.commits[-limits.recent_commits :]
        if c.operation == "append" and c.added_data_files and c.changed_partitions and c.added_bytes
    ]
    # Files that the bytes alone explain are nobody's fault: one a partition, and one a target size.
    scattered = [(f, p, b) for f, p, b in recent if f > limits.files_per_partition_per_commit * (p + b / facts.target_bytes)]
    if not scattered or len(scattered) * 2 < len(recent):
        return None
    per_partition = statistics.median(f / p for f, p, _ in scattered)
    mean_bytes = statistics.median(b / f for f, _, b in scattered)
    append = facts.distribution[0]
    if append.mode == "none":
        remedy = "Let Spark bring the rows of a partition together before it writes: one shuffle more, and about one file per partition and commit."
        sql: tuple[str, ...] = (context.alter({"write.distribution-mode": "hash"}),)
    else:
        remedy = "Rows are shuffled, yet into small tasks: check that adaptive execution is on and that no session or write option overrides the table's distribution."
        sql = ()
    return context.finding(
        "distribution_mode",
        Severity.WARNING,
        (),
        evidence=f"the {count(len(recent), 'last append')} wrote {per_partition:,.1f} files per partition touched (median), {size(mean_bytes)} each, "
        f"under distribution mode {append.mode} ({append.origin})",
        threshold=f"{limits.files_per_partition_per_commit:g} × one file per partition touched and one per target size written",
        source=CHOICE,
        effect="Every task writes its own file into every partition it has rows for: files grow as tasks × partitions, however few the rows.",
        remedy=remedy,
        sql=sql,
        files_at_stake=sum(f for f, _, _ in recent),
        bytes_at_stake=sum(b for _, _, b in recent),
    )
