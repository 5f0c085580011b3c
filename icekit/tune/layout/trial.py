"""Try a layout on a clone or a copied sample: write it, let Iceberg plan the filters, read lookups; the table is only read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icekit.engine.errors import engine_errors, reason
from icekit.engine.planner import PlannedScan, kind, nodes, query_of_frame
from icekit.errors import SparkUnavailable
from icekit.facts.collect import observe
from icekit.facts.model import Column, TableFacts
from icekit.sql import Identifier, call, display_name, identifier, set_properties, unset_properties
from icekit.tune.ddl import change_spec, rewrite
from icekit.tune.filters.model import Filter, Leaf, sql
from icekit.tune.filters.read import bind, sample
from icekit.tune.layout.blooms import settings
from icekit.tune.layout.clustering import fields_of, plans, share_read
from icekit.tune.layout.model import BloomCheck, BloomTrial, Field, Order, Tried
from icekit.tune.place import Budget, BudgetSpent, Place, places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.catalog import Lake

_TARGET, _ROW_GROUP = "write.target-file-size-bytes", "write.parquet.row-group-size-bytes"
#: A file of a scaled-down trial is no smaller than this.
_LEAST_TARGET = 64 << 10
#: Lookups that are read for a bloom filter.
LOOKUPS = 8


#: A spec, and an order of rows within its partitions; None for the table's own.
Change = tuple[tuple[Field, ...], Order | None]


@dataclass
class Trial:
    """What was tried; ``stopped`` says why it is not whole."""

    tried: Tried | None = None
    blooms: dict[str, BloomTrial] = field(default_factory=dict)
    stopped: str | None = None


def run_trial(
    lake: Lake,
    facts: TableFacts,
    filters: Sequence[Filter],
    bound: Sequence[Filter],
    change: Change | None,
    blooms: Sequence[BloomCheck],
    *,
    unset: Sequence[str] = (),
    share_now: float,
    sample_bytes: int,
    budget: Budget,
    progress: Callable[[str], None],
) -> Trial:
    """Write the layout that is proposed (a spec and an order; None to keep both) to a place of its own, then bloom filters.

    ``unset`` are properties that are advised to go, as bloom filters that serve nobody. ``filters`` are as found and ``bound`` with values, ``share_now`` what they read of the table. A table of more than
    ``sample_bytes`` is tried on a copied sample, whose files are as much smaller as its partitions are; what filters read there
    after the change is compared with what they read there before it.
    """
    trial = Trial()
    try:
        is_large = facts.data.size_in_bytes > sample_bytes
        with places(lake, facts, 1, sample_bytes=sample_bytes, always_sample=is_large, budget=budget, progress=progress) as stack:
            if unset:
                lake.spark.sql(unset_properties(lake.sql_name(stack.places[0].table), unset))
            _try(lake, facts, stack.places[0], filters, bound, change, blooms, trial, share_now, budget, progress)
    except BudgetSpent as error:
        trial.stopped = str(error)
    except SparkUnavailable as error:
        trial.stopped = f"nothing could be tried: {error}"
    except engine_errors() as error:
        trial.stopped = f"an error of the engine ended it: {reason(error)}"
    return trial


def _try(
    lake: Lake,
    facts: TableFacts,
    place: Place,
    filters: Sequence[Filter],
    bound: Sequence[Filter],
    change: Change | None,
    blooms: Sequence[BloomCheck],
    trial: Trial,
    share_now: float,
    budget: Budget,
    progress: Callable[[str], None],
) -> None:
    columns = {c.name: c for c in facts.columns}
    is_scaled = place.is_sample and _scale(lake, facts, place)
    asked: Sequence[Filter] = bound
    if place.is_sample and any(not f.is_bound for f in filters):
        # Values of the whole table may not be in the sample at all.
        there = observe(lake, place.table, collector="spark")
        asked = bind(filters, sample(lake, there, sorted({c for f in filters for c in f.columns}), rows=10_000))
    if change is not None:
        progress(f"writing the layout to {'a sample' if place.is_sample else 'a clone'} of the table")
        before, files = share_now, facts.data.file_count
        if place.is_sample:
            if is_scaled:
                _write_as_it_lies(lake, place, budget)
            there = observe(lake, place.table, collector="spark")
            opened = found_there(plans(lake.spark, lake.sql_name(place.table), there, asked, progress))
            asked, files, before = tuple(opened), there.data.file_count, share_read(there, opened) or 0.0
            if not asked:
                trial.stopped = "no filter finds rows in the copied sample, so nothing can be compared there; give a larger sample_bytes"
        if asked:
            trial.tried = _lay_out(lake, facts, place, asked, change, before, files, budget, progress)
    for one in blooms:
        trial.blooms[one.column] = _bloom(lake, facts, place, one, columns, budget, progress)


def found_there(opened: Mapping[Filter, PlannedScan]) -> dict[Filter, PlannedScan]:
    """The plans that open something: a filter for values that a sample has not reads nothing of any layout. Pure."""
    return {one: plan for one, plan in opened.items() if plan.data_files}


def _write_as_it_lies(lake: Lake, place: Place, budget: Budget) -> None:
    """Write a sample anew in files of the size it is tried with, rows in the order they have."""
    with budget.watching(lake.spark, place.size_in_bytes):
        lake.spark.sql(rewrite(lake.name, place.table, {}, None, options={"partial-progress.enabled": "false"})).collect()
    budget.bytes_written += place.size_in_bytes


def _lay_out(
    lake: Lake,
    facts: TableFacts,
    place: Place,
    asked: Sequence[Filter],
    change: Change,
    share_before: float,
    files_before: int,
    budget: Budget,
    progress: Callable[[str], None],
) -> Tried | None:
    """Write the layout; None where no filter could be planned on it."""
    spark, columns = lake.spark, {c.name: c for c in facts.columns}
    table, (spec, order) = lake.sql_name(place.table), change
    began = time.monotonic()
    with budget.watching(spark, place.size_in_bytes):
        for statement in change_spec(table, columns, fields_of(facts.default_spec), spec):
            spark.sql(statement)
        whole = {"partial-progress.enabled": "false"}
        by_table = order is None and bool(facts.sort_order)
        spark.sql(rewrite(lake.name, place.table, columns, order, options=whole, by_table=by_table)).collect()
    seconds = time.monotonic() - began
    after = observe(lake, place.table, collector="spark")
    budget.bytes_written += after.data.size_in_bytes
    read = share_read(after, plans(spark, table, after, asked, progress))
    if read is None:
        return None
    return Tried(
        spec,
        order,
        share_before,
        read,
        files_before,
        after.data.file_count,
        place.size_in_bytes,
        after.data.size_in_bytes,
        seconds,
        place.is_sample,
        place.scale,
    )


def _scale(lake: Lake, facts: TableFacts, place: Place) -> bool:
    """Make the files of a sample as much smaller as its partitions are, so that a partition has as many as in the table; tell if so."""
    there = observe(lake, place.table, collector="spark")
    mean = facts.data.size_in_bytes / max(1, len({g.partition for g in facts.groups}))
    own = there.data.size_in_bytes / max(1, len({g.partition for g in there.groups}))
    ratio = min(1.0, own / max(mean, 1.0))
    is_smaller = ratio < 0.75
    if is_smaller:
        target = max(_LEAST_TARGET, round(facts.target_bytes * ratio))
        group = max(_LEAST_TARGET // 2, min(facts.int_setting(_ROW_GROUP), target // 2))
        lake.spark.sql(set_properties(lake.sql_name(place.table), {_TARGET: str(target), _ROW_GROUP: str(group)}))
    return is_smaller


def _bloom(
    lake: Lake,
    facts: TableFacts,
    place: Place,
    one: BloomCheck,
    columns: Mapping[str, Column],
    budget: Budget,
    progress: Callable[[str], None],
) -> BloomTrial:
    """Rewrite the place without and with the bloom filter, and read the same lookups both times."""
    spark, table = lake.spark, lake.sql_name(place.table)
    progress(f"trying a bloom filter on {one.column}")
    here = observe(lake, place.table, collector="spark")
    drawn = sample(lake, here, [one.column], rows=10_000)
    lookup = Filter(f"{one.column} = ?", Leaf(one.column, "="))
    lookups = list(bind([lookup], drawn))[:LOOKUPS]
    wheres = [sql(f.tree, columns) for f in lookups]
    term = identifier(*columns[one.column].names)
    plain = call(lake.name, "rewrite_data_files", table=display_name(place.table), options={"rewrite-all": "true"})
    figures = []
    for properties in ({}, settings(facts, one)):
        if properties:
            spark.sql(set_properties(table, properties))
        with budget.watching(spark, here.data.size_in_bytes):
            spark.sql(plain).collect()
            read = sum(rows_read(spark, table, term, where) for where in wheres)
        now = observe(lake, place.table, collector="spark")
        budget.bytes_written += now.data.size_in_bytes
        figures.append((read, now.data.size_in_bytes))
    (without, bytes_without), (with_it, bytes_with) = figures
    return BloomTrial(one.column, len(lookups), without, with_it, bytes_without, bytes_with)


def rows_read(spark: SparkSession, table: Identifier, column: str, where: str) -> int:
    """Rows that a scan takes out of the files for a query: those of all row groups that no statistics rule out.

    From the scan's own metric: Iceberg's readers give whole row groups to Spark, which filters the rows. ``column`` is SQL.
    """
    frame = spark.sql(f"SELECT count({column}) FROM {identifier(*table)} WHERE {where}")
    frame.collect()
    scans = [n for n in nodes(query_of_frame(frame).executedPlan()) if kind(n) == "BatchScanExec"]
    return sum(int(n.metrics().apply("numOutputRows").value()) for n in scans)
