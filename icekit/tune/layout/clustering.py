"""Measure the bytes that filters read now (by partitions, manifest ranges, file bounds), find partitions that no longer follow the sort order, and check row groups.

Partitions come from the facts, manifests and files from Iceberg's planner; reads only metadata.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from icekit.engine.compat import arrow_of
from icekit.engine.errors import reason
from icekit.engine.metadata_tables import metadata_table
from icekit.engine.planner import PlannedScan
from icekit.facts.files import Kind
from icekit.facts.metadata import MODES, ROW_GROUP
from icekit.facts.model import TableFacts
from icekit.facts.spark import Partitions, partition_columns, unified
from icekit.sandbox.trial import BudgetSpent
from icekit.sql import identifier, set_properties
from icekit.tune.card import Advice
from icekit.tune.filters import Filter, sql
from icekit.tune.layout.model import Field, FieldValues, Level, Overlap, Sizing, partitions_that_may_match, weighted
from icekit.units import count, size

if TYPE_CHECKING:
    from icekit.catalog import Lake


#: The most filters with values that Iceberg plans, those with the greatest weight.
MOST_PLANNED = 64


def partition_shares(facts: TableFacts, filters: Sequence[Filter]) -> dict[Filter, float]:
    """The share of the data bytes in partitions that each filter cannot rule out, according to the specs of the files. Pure."""
    kinds = {c.name: c.type for c in facts.columns}
    total = max(facts.data.size_in_bytes, 1)
    left = dict.fromkeys(filters, 0.0)
    for spec in facts.specs:
        groups = [g for g in facts.of_kind(Kind.DATA) if g.partition.spec_id == spec.spec_id]
        if not groups:
            continue
        sizes = np.array([g.size_in_bytes for g in groups], dtype=float)
        fields = [
            FieldValues.of(Field(f.source, f.transform), kinds[f.source], [g.partition.values[place] for g in groups])
            for place, f in enumerate(spec.fields)
            if f.source in kinds and f.transform != "void"
        ]
        for one in left:
            left[one] += float(sizes[partitions_that_may_match(one.tree, fields, len(groups))].sum())
    return {one: share / total for one, share in left.items()}


def plans(
    plan: Callable[[str], PlannedScan],
    facts: TableFacts,
    filters: Sequence[Filter],
    progress: Callable[[str], None],
    *,
    seconds: float = math.inf,
) -> dict[Filter, PlannedScan]:
    """What Iceberg's planner opens for each filter that has values, for those with the greatest weight; ``plan`` plans a predicate.

    No plan is started after ``seconds``. Lets :class:`~icekit.sandbox.trial.BudgetSpent` through.
    """
    found: dict[Filter, PlannedScan] = {}
    ends = time.monotonic() + seconds
    wanted = sorted((f for f in filters if f.is_bound), key=lambda f: -f.weight)[:MOST_PLANNED]
    for one in wanted:
        if found and time.monotonic() > ends:
            progress(
                f"{len(found)} of {len(wanted)} lookups were planned in {seconds:,.0f} s, highest weight first; the others are left out"
            )
            break
        try:
            found[one] = plan(sql(one.tree, facts.by_name))
        except (ValueError, OverflowError):
            continue  # a value without a literal
        except BudgetSpent:
            raise
        except Exception as error:
            progress(f"Iceberg could not plan {one.text} ({reason(error)}); it is left out")
    return found


def levels(facts: TableFacts, filters: Sequence[Filter], opened: Mapping[Filter, PlannedScan]) -> tuple[Level, ...]:
    """What filters read now; filters with the same text count as one. ``opened`` are the plans. Pure."""
    parts = partition_shares(facts, filters)
    by_text: dict[tuple[str, str], list[Filter]] = {}
    for one in filters:
        by_text.setdefault((one.text, one.origin), []).append(one)
    found = []
    for (text, origin), same in by_text.items():
        found.append(
            Level(
                text=text,
                origin=origin,
                columns=same[0].columns,
                weight=sum(f.weight for f in same),
                queries=len(same),
                partition_share=weighted({f: parts[f] for f in same}),
                manifests=_mean(opened, same, lambda p: p.manifests),
                skipped_manifests=_mean(opened, same, lambda p: p.skipped_manifests),
                files=_mean(opened, same, lambda p: p.data_files),
                file_share=_mean(opened, same, lambda p: p.share_of(facts.data.size_in_bytes)),
            )
        )
    return tuple(sorted(found, key=lambda level: -level.weight))


def share_read(facts: TableFacts, opened: Mapping[Filter, PlannedScan]) -> float | None:
    """The share of the data bytes that the filters read now, by weight; None if none was planned."""
    return weighted({f: p.share_of(facts.data.size_in_bytes) for f, p in opened.items()}) if opened else None


def _mean(opened: Mapping[Filter, PlannedScan], same: Sequence[Filter], of: Callable[[PlannedScan], float]) -> float | None:
    seen = {f: of(opened[f]) for f in same if f in opened}
    return weighted(seen) if seen else None


# --- Find the partitions where a sort order has degraded: files that overlap on its first column
#
# Counted in Spark over the ``files`` metadata table; only the worst partitions come to the driver.


#: The most partitions that are collected in the driver.
MOST_WORN = 20
#: Files of a partition no longer follow the order if a lookup opens this many on average; in a sorted partition it opens one, or two at an edge.
WORN = 2.0


def worn_partitions(lake: Lake, facts: TableFacts, column: str) -> tuple[Overlap, ...]:
    """The partitions above :data:`WORN` whose files overlap most on a column, by the excess bytes that a lookup reads.

    Depth is the mean number of files whose bounds include the lower bound of a file.
    """
    if facts.snapshot_id is None:
        return ()
    files = metadata_table(lake.spark, lake.sql_name(facts.table), "data_files", facts.snapshot_id)
    names = unified(facts.specs)
    parts = partition_columns(files, "partition", names)
    scope = ["spec_id", *(f"p{i}" for i in range(len(names)))]
    keys = ", ".join(scope)
    bound = f"readable_metrics.{identifier(column)}"
    ranges = files.selectExpr(
        "spec_id", *parts, "file_size_in_bytes AS size", f"{bound}.lower_bound AS low", f"{bound}.upper_bound AS high"
    )
    # A range opens before another closes at the same value, as bounds include their ends.
    ends = ranges.where("low IS NOT NULL").selectExpr(
        *scope, "size", "explode(array(struct(low AS at, 0 AS closes), struct(high AS at, 1 AS closes))) AS e"
    )
    depth = f"sum(if(e.closes = 0, 1, -1)) OVER (PARTITION BY {keys} ORDER BY e.at, e.closes ROWS UNBOUNDED PRECEDING)"
    worst = (
        ends.selectExpr(*scope, "size", "e.closes AS closes", f"{depth} AS depth")
        .where("closes = 0")
        .selectExpr(*scope, "size", "CAST(depth AS DOUBLE) AS depth")
        .groupBy(*scope)
        .agg({"depth": "avg", "size": "sum", "*": "count"})
        .selectExpr(*scope, "`avg(depth)` AS depth", "`sum(size)` AS size", "`count(1)` AS files")
        .where(f"depth >= {WORN}")
    )
    table = arrow_of(worst.selectExpr("*", "(depth - 1) * size / files AS wasted").orderBy("wasted", ascending=False).limit(MOST_WORN))
    figures = [table.column(c).to_pylist() for c in ("files", "size", "depth")]
    return tuple(
        Overlap(partition, facts.partition_path(partition), int(number), int(size), float(deep))
        for partition, number, size, deep in zip(Partitions(facts.specs_by_id, names).read(table), *figures, strict=True)
    )


# --- Compare row groups and target size with the width of rows and a writer's memory
#
# Parquet buffers a whole row group in memory before it writes it, for each file that a task has open. A task has one file open
# if rows are sorted by partition, and one per partition in the fanout writer, which Spark uses if no order is required
# (``SparkWriteConf.useFanoutWriter``).


FANOUT = "write.spark.fanout.enabled"
#: A choice: the share of a task's heap for open row groups; the rest is for sorting, reading and Spark itself (spark.memory.fraction is 0.6).
SHARE_OF_HEAP = 0.4
#: A choice: below this size of a column's part of a row group, reads on an object store are mostly seeks.
SMALL_CHUNK = 64 * 1024
_MOST_ROW_GROUP, _LEAST_ROW_GROUP = 512 << 20, 8 << 20


def sizing(facts: TableFacts, heap_bytes: int | None) -> Sizing | None:
    """Rows, row groups and open files of the table's writers; None without rows."""
    if not facts.data.record_count:
        return None
    row_bytes = facts.data.size_in_bytes / facts.data.record_count
    group = min(facts.int_setting(ROW_GROUP), facts.target_bytes)
    open_files, why = _open_files(facts)
    columns = len(facts.columns)
    return Sizing(
        row_bytes=row_bytes,
        columns=columns,
        row_group_bytes=group,
        rows_a_group=group / row_bytes,
        chunk_bytes=group / max(columns, 1),
        open_files=open_files,
        open_files_from=why,
        heap_bytes=heap_bytes,
    )


def _open_files(facts: TableFacts) -> tuple[int, str]:
    if facts.default_spec.is_unpartitioned:
        return 1, "not partitioned"
    distribution = next((d.mode for d in facts.distribution if d.operation.lower() in {"append", "write"}), None)
    fans_out = facts.setting(FANOUT) == "true" or not facts.sort_order
    if not fans_out or distribution in {"hash", "range"}:
        return 1, "rows are sorted or distributed by partition"
    changed = [c.changed_partitions for c in facts.history.commits if c.changed_partitions]
    most = max(changed, default=1)
    return most, f"fanout writer without distribution; a commit changed at most {count(most, 'partition')}"


def advise(facts: TableFacts, found: Sizing | None) -> tuple[Advice, ...]:
    """Remarks: a smaller row group if writers need too much memory, a larger one if each column's part is too small."""
    if found is None:
        return ()
    current = facts.setting(ROW_GROUP)
    heap = found.heap_bytes
    if heap is not None and found.writer_bytes > SHARE_OF_HEAP * heap:
        wanted = _power(SHARE_OF_HEAP * heap / found.open_files)
        evidence = (
            f"A task holds {count(found.open_files, 'row group')} of {size(found.row_group_bytes)} in memory ({found.open_files_from}): "
            f"{size(found.writer_bytes)} of its {size(heap)} of heap in this session."
        )
        if wanted < found.row_group_bytes:
            return (_remark(current, wanted, f"{evidence} With {ROW_GROUP} = {wanted}, the row groups would fit."),)
    if found.chunk_bytes < SMALL_CHUNK and found.row_group_bytes < facts.target_bytes and facts.target_bytes >= _LEAST_ROW_GROUP:
        wanted = _power(min(facts.target_bytes, _MOST_ROW_GROUP, found.columns * 2 * SMALL_CHUNK))
        if wanted > found.row_group_bytes and (heap is None or wanted * found.open_files <= SHARE_OF_HEAP * heap):
            evidence = (
                f"{count(found.columns, 'column')} share a row group of {size(found.row_group_bytes)}: {size(found.chunk_bytes)} per column, "
                "so a query of few columns seeks more than it reads."
            )
            return (_remark(current, wanted, f"{evidence} With {ROW_GROUP} = {wanted} a column's part would be large enough."),)
    memory = f", {size(found.writer_bytes)} of a task's {size(heap)} of heap" if heap is not None else ""
    evidence = (
        f"{size(found.row_bytes)} per row, {found.rows_a_group:,.0f} rows per row group, {size(found.chunk_bytes)} for each of "
        f"{count(found.columns, 'column')}, {count(found.open_files, 'open file')} per task{memory}."
    )
    return (Advice(ROW_GROUP, current, current, evidence),)


def _remark(current: str | None, wanted: int, evidence: str) -> Advice:
    """Advice without a statement: the memory is this session's, and the table's writers may have another."""
    check = "Before you set it, compare it with the memory of the jobs that write the table."
    return Advice(ROW_GROUP, current, str(wanted), f"{evidence} {check}")


def _power(limit: float) -> int:
    """The largest power of two within a limit, of 8 MiB at least."""
    return max(_LEAST_ROW_GROUP, 1 << (int(limit).bit_length() - 1))


def version(facts: TableFacts) -> Advice | None:
    """Whether version 2 would serve a table of format version 1, as a remark, because the upgrade cannot be undone. None for later versions."""
    if facts.format_version != 1:
        return None
    # INSERT OVERWRITE and a compaction's replace count here too, so this alone does not justify a change that cannot be undone.
    changed = {name: number for name, number in facts.history.operations if name in {"overwrite", "delete"}}
    merging = [k for k in MODES if facts.properties.get(k) == "merge-on-read"]
    lacks = "Format version 1 has no delete files and no sequence numbers: each DELETE, UPDATE and MERGE copies the files it touches"
    if not changed and not merging:
        return Advice("format-version", "1", "1", f"{lacks}. The history has only appends, so this costs nothing.")
    why = (
        f"{sum(changed.values()):,} commits of the history overwrote or deleted rows"
        if changed
        else f"{merging[0]} is merge-on-read, with which such a statement fails"
    )
    statement = set_properties(facts.sql_name, {"format-version": "2"})
    return Advice(
        "format-version",
        "1",
        "1",
        f"{lacks}, and {why}. To use merge-on-read: {statement}. The upgrade cannot be undone, and all readers must support delete files.",
    )
