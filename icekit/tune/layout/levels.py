"""Tell what filters read now: left by partitions, by manifests' ranges, by files' bounds.

Partitions are judged from the facts, manifests and files by Iceberg's own planner; nothing is read but metadata.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from icekit.engine.errors import reason
from icekit.engine.planner import PlannedScan, plan_scan
from icekit.facts.files import Kind
from icekit.facts.model import TableFacts
from icekit.facts.parts import PartitionSpec
from icekit.tune.filters.model import Filter, sql
from icekit.tune.layout.model import Level
from icekit.tune.layout.rows import weighted
from icekit.tune.layout.transforms import Field, Values, may_match

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.sql import Identifier

#: Filters with values that Iceberg is asked to plan, those of the greatest weight.
MOST_PLANNED = 64


def fields_of(spec: PartitionSpec) -> tuple[Field, ...]:
    """A spec's fields by column; those that are void or whose column is gone are left out."""
    return tuple(Field(f.source, f.transform) for f in spec.fields if f.source is not None and f.transform != "void")


def partition_shares(facts: TableFacts, filters: Sequence[Filter]) -> dict[Filter, float]:
    """The share of the data bytes in partitions that each filter cannot rule out, by the specs they were written with. Pure."""
    kinds = {c.name: c.type for c in facts.columns}
    total = max(facts.data.size_in_bytes, 1)
    left = dict.fromkeys(filters, 0.0)
    for spec in facts.specs:
        groups = [g for g in facts.of_kind(Kind.DATA) if g.partition.spec_id == spec.spec_id]
        if not groups:
            continue
        sizes = np.array([g.size_in_bytes for g in groups], dtype=float)
        fields = [
            Values.of(Field(f.source, f.transform), kinds[f.source], [g.partition.values[place] for g in groups])
            for place, f in enumerate(spec.fields)
            if f.source in kinds and f.transform != "void"
        ]
        for one in left:
            left[one] += float(sizes[may_match(one.tree, fields, len(groups))].sum())
    return {one: share / total for one, share in left.items()}


def plans(
    spark: SparkSession,
    table: Identifier,
    facts: TableFacts,
    filters: Sequence[Filter],
    progress: Callable[[str], None],
    *,
    seconds: float = math.inf,
) -> dict[Filter, PlannedScan]:
    """What Iceberg's planner opens for each filter, of those with values and the greatest weight; ``table`` has its catalog.

    No plan is begun after ``seconds``.
    """
    columns = {c.name: c for c in facts.columns}
    found: dict[Filter, PlannedScan] = {}
    ends = time.monotonic() + seconds
    wanted = sorted((f for f in filters if f.is_bound), key=lambda f: -f.weight)[:MOST_PLANNED]
    for one in wanted:
        if found and time.monotonic() > ends:
            progress(
                f"{len(found)} of {len(wanted)} lookups were planned in {seconds:,.0f} s, those of the greatest weight; the rest is left out"
            )
            break
        try:
            found[one] = plan_scan(spark, table, sql(one.tree, columns))
        except (ValueError, OverflowError):
            continue  # a value without a literal
        except Exception as error:
            progress(f"Iceberg could not plan {one.text} ({reason(error)}); it is left out of what is measured")
    return found


def levels(facts: TableFacts, filters: Sequence[Filter], opened: dict[Filter, PlannedScan]) -> tuple[Level, ...]:
    """What filters read now, those of one text as one; ``opened`` are the plans there are. Pure."""
    parts = partition_shares(facts, filters)
    total = max(facts.data.size_in_bytes, 1)
    by_text: dict[tuple[str, str], list[Filter]] = {}
    for one in filters:
        by_text.setdefault((one.text, one.origin), []).append(one)
    found = []
    for (text, origin), same in by_text.items():
        found.append(
            Level(
                text,
                origin,
                same[0].columns,
                sum(f.weight for f in same),
                len(same),
                weighted({f: parts[f] for f in same}),
                _mean(opened, same, lambda p: p.manifests),
                _mean(opened, same, lambda p: p.skipped_manifests),
                _mean(opened, same, lambda p: p.data_files),
                _mean(opened, same, lambda p: p.data_bytes / total),
            )
        )
    return tuple(sorted(found, key=lambda level: -level.weight))


def share_read(facts: TableFacts, opened: dict[Filter, PlannedScan]) -> float | None:
    """The share of the data bytes that the filters read now, by weight; None where none was planned."""
    total = max(facts.data.size_in_bytes, 1)
    return weighted({f: p.data_bytes / total for f, p in opened.items()}) if opened else None


def _mean(opened: dict[Filter, PlannedScan], same: Sequence[Filter], of: Callable[[PlannedScan], float]) -> float | None:
    seen = {f: of(opened[f]) for f in same if f in opened}
    return weighted(seen) if seen else None
