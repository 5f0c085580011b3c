"""Measures without a table."""

from __future__ import annotations

from typing import Any

from icekit.facts.model import Column, TableFacts
from icekit.tune.metrics_columns.advise import Measures
from icekit.tune.metrics_columns.model import ColumnBytes, EntryBytes, FilterReads, Manifests, MetricsTrial, Skipping
from tests import factories

TABLE = ("prod", "db", "events")


def wide(count: int = 120, **overrides: Any) -> TableFacts:
    """A table of many columns: ``c0`` and so on, bounds of the first hundred, and a text ``key`` at the end without."""
    columns = [Column(i + 1, f"c{i}", "int", False, i, "truncate(16)" if i < 100 else "none") for i in range(count)]
    columns.append(Column(count + 1, "key", "string", False, count, "none" if count >= 100 else "truncate(16)"))
    return factories.table_facts(columns=tuple(columns), specs=(factories.UNPARTITIONED,), **overrides)


def entry(facts: TableFacts, other_bytes: float = 100.0) -> EntryBytes:
    """Twenty bytes for each column that has a mode, and some for the rest."""
    columns = tuple(
        ColumnBytes(c.name, c.field_id, *((8.0, 12.0, 20, 20) if c.metrics_mode != "none" else (0.0, 0.0, 0, 0))) for c in facts.columns
    )
    total = sum(c.size_in_bytes for c in columns) + other_bytes
    return EntryBytes(20, 1, 4000.0, total, 0.25, columns)


def skip(column: str = "key", now: float | None = 40.0, full: float | None = 40.0, **overrides: Any) -> Skipping:
    """Lookups on a column of forty files."""
    by_mode = () if full is None else (("truncate(16)", now or 40.0), ("truncate(48)", full), ("full", full))
    made: dict[str, Any] = {"files": 40, "by_mode": by_mode, "if_sorted": 1.0, "sampled": 40, "kinds": frozenset({"equality"})}
    return Skipping(column, 1.0, now=now, **made | overrides)


def measures(facts: TableFacts, *skips: Skipping, unknown: str | None = None) -> Measures:
    """What is known of a table."""
    return Measures(entry(facts), skips, (), unknown)


def trial(reads: int = 1, **overrides: Any) -> MetricsTrial:
    """A clone whose manifests shrink by four fifths, and a filter that reads fewer files."""
    made: dict[str, Any] = {
        "files": 40,
        "total_files": 40,
        "before": Manifests(100_000, 10_000, 0.020),
        "after": Manifests(20_000, 10_000, 0.005),
        "filters": (FilterReads("key = 'a'", 1.0, 40, reads),),
        "seconds": 3.0,
    }
    return MetricsTrial(**made | overrides)
