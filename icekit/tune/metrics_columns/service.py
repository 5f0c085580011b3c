"""Measure what metrics of columns cost and skip, advise, and try the advice on a clone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from icekit.engine.bridge import has_bridge
from icekit.engine.errors import engine_errors, reason
from icekit.engine.planner import plan_scan
from icekit.errors import ParameterError
from icekit.facts.avro import manifest_list
from icekit.facts.collect import load_metadata, observe
from icekit.facts.model import TableFacts
from icekit.facts.snapshots import choose_snapshot
from icekit.parsing import size_in_bytes
from icekit.sql import Identifier
from icekit.tune.budget import Budget, BudgetSpent
from icekit.tune.filters import Filter, Filters, Sample, bind, read_filters, sample
from icekit.tune.filters.model import predicates
from icekit.tune.filters.read import EVENT_LOG, STATED
from icekit.tune.filters.skipping import Bounds
from icekit.tune.metrics_columns.advise import NO_BOUNDS, Measures, advise, roles, undeclared
from icekit.tune.metrics_columns.footers import real_bounds
from icekit.tune.metrics_columns.manifest_bytes import measure
from icekit.tune.metrics_columns.model import EntryBytes, Prefix, Skipping, Trial
from icekit.tune.metrics_columns.prefixes import prefix_of
from icekit.tune.metrics_columns.result import MetricsColumns
from icekit.tune.metrics_columns.simulate import skipping
from icekit.tune.metrics_columns.trial import try_metrics
from icekit.tune.metrics_columns.verify import confirmed
from icekit.units import count

if TYPE_CHECKING:
    from icekit.catalog import Lake

#: Filters with values that Iceberg's planner is asked about, the most frequent.
MOST_PLANNED = 48
#: Rows that are sampled, and text columns whose beginnings are looked at.
SAMPLED_ROWS, MOST_TEXTS = 20_000, 12


def tune_metrics_columns(
    lake: Lake,
    table: str | Identifier,
    *,
    filters: Sequence[str] = (),
    event_log: str = "",
    scan_reports: str = "",
    budget_seconds: float = 900,
    budget_bytes: str = "20 GB",
    sample_bytes: str = "1 GB",
    trial: bool = True,
    progress: Callable[[str], None] = print,
) -> MetricsColumns:
    """Measure the metrics of a table's columns, and say which modes to set; the table is only read.

    Filters of queries are SQL (predicates or whole queries), those of a Spark ``event_log``, of Iceberg ``scan_reports``, else the
    columns that the table declares. What the advice makes of manifests, planning and files read is tried on a clone
    unless ``trial`` is false. ``budget_seconds`` and ``budget_bytes`` (written) end what takes longer; ``sample_bytes`` bounds the rows read.

    Under Spark Connect, which has no JVM bridge, bytes of manifests, beginnings of texts and the order of rows are told; files
    read, real bounds and the trial are not. Raises :class:`~icekit.errors.ParameterError` for a filter or a budget that is not one,
    an event log or scan report that cannot be read.
    """
    budget = Budget(budget_seconds, size_in_bytes(budget_bytes))
    bytes_read = size_in_bytes(sample_bytes)
    facts = observe(lake, table)
    bridged = has_bridge(lake.spark)
    if not bridged and filters:
        raise ParameterError(
            "Filters as SQL need Spark's own JVM, which Spark Connect has not; declare icekit.filter-columns, or give an event log or scan reports."
        )
    asked = read_filters(lake, facts, sql=filters, event_log=event_log, scan_reports=scan_reports)
    notes = list(asked.notes)
    if not bridged:
        notes.append(
            "Under Spark Connect Iceberg's planner, the footers of files and clones cannot be reached: files read, other bounds and the trial are left out."
        )
    entry = entry_bytes(lake, facts)
    progress(
        f"{facts.name}: {count(facts.data.file_count, 'data file')}, {count(len(asked.filters), 'filter')} on {count(len(asked.columns), 'column')}"
    )
    name = lake.sql_name(facts.table)
    stopped: str | None = None
    unknown = None if asked.filters else undeclared(name)
    skips: tuple[Skipping, ...] = ()
    prefixes: tuple[Prefix, ...] = ()
    bound: tuple[Filter, ...] = ()
    if facts.data.file_count:
        try:
            with budget.watching(lake.spark):
                drawn = sample(lake, facts, _sampled(facts, asked), rows=SAMPLED_ROWS, sample_bytes=bytes_read)
            prefixes = tuple(p for name, values in drawn.columns.items() if (p := prefix_of(name, values)))
            bound = bind(asked.filters, drawn)
            skips = _skipping(lake, facts, asked, bound, drawn, budget, bridged, notes)
        except BudgetSpent as error:
            stopped = str(error)
            unknown = unknown or f"what filters skip was not measured to the end, as {stopped}"
        except engine_errors() as error:
            stopped = f"the engine failed ({reason(error)})"
            unknown = unknown or f"what filters skip was not measured to the end, as {stopped}"
    else:
        notes.append("The table has no data files: there is nothing to measure yet, and settings apply from the first file on.")
    if unknown is None and not skips:
        unknown = "the filters ask for no column whose bounds Iceberg could skip by"
    advice = advise(facts, name, Measures(entry, skips, prefixes, unknown))
    properties = {setting: value for one in reversed(advice) for setting, value in one.properties}
    tried: Trial | None = None
    if trial and bridged and stopped is None and facts.data.file_count and any(a.is_change for a in advice):
        tried = try_metrics(
            lake, facts, properties, _planned_filters(facts, bound), sample_bytes=bytes_read, budget=budget, progress=progress
        )
        advice, stopped = confirmed(advice, tried), tried.stopped
    needed_as = roles(facts, asked.columns)
    return MetricsColumns(name, facts, advice, stopped, entry, needed_as, asked, skips, prefixes, tried, tuple(notes))


def entry_bytes(lake: Lake, facts: TableFacts) -> EntryBytes:
    """What the entries of a table's manifests are made of, in a sample."""
    source = lake.tables.source(facts.table)
    snapshot, _ = choose_snapshot(load_metadata(source), facts.snapshot_id)
    location = (snapshot or {}).get("manifest-list")
    return measure(manifest_list(source.read(location), location) if location else [], facts.columns, source.read)


def _sampled(facts: TableFacts, asked: Filters) -> list[str]:
    """The columns to sample: those of filters, and texts that have bounds."""
    kinds = {c.name: c.type for c in facts.columns}
    inside = {c.name for c in facts.columns if any(part in {"element", "key", "value"} for part in c.name.split(".")[1:]) and not c.path}
    wanted = [n for n in asked.columns if n in kinds and not kinds[n].startswith(NO_BOUNDS)]
    texts = [c.name for c in facts.columns if c.type == "string" and c.metrics_mode.startswith("truncate")]
    return list(dict.fromkeys([*wanted, *[n for n in texts if n not in inside][:MOST_TEXTS]]))


def _skipping(
    lake: Lake,
    facts: TableFacts,
    asked: Filters,
    bound: Sequence[Filter],
    drawn: Sample,
    budget: Budget,
    bridged: bool,
    notes: list[str],
) -> tuple[Skipping, ...]:
    columns = {c.name: c for c in facts.columns}
    names = [n for n in asked.columns if n in columns and not columns[n].type.startswith(NO_BOUNDS)]
    bounds: dict[str, Bounds] = {}
    if bridged:
        bounds = real_bounds(lake, facts, [columns[n] for n in names], budget.check)
        if names and not bounds:
            notes.append("No data file is Parquet, so files' own bounds were not read: what longer bounds would skip is not told.")
    known = bound[:MOST_PLANNED]
    if len(bound) > MOST_PLANNED:
        notes.append(f"Of {len(bound):,} filters with values the {MOST_PLANNED} most frequent are planned and simulated.")
    reads: dict[str, int] = {}
    found = []
    for name in names:
        own = [f for f in known if name in f.columns]
        now = _now(lake, facts, own, name, reads, budget) if bridged else None
        found.append(
            skipping(
                name,
                own,
                is_text=columns[name].type == "string",
                files=facts.data.file_count,
                now=now,
                bounds=bounds.get(name),
                values=drawn.columns.get(name, ()),
            )
        )
    return tuple(found)


def _now(lake: Lake, facts: TableFacts, own: Sequence[Filter], name: str, reads: dict[str, int], budget: Budget) -> float | None:
    """Data files that filters read by one column alone, by the planner: the mean; None where none can be asked."""
    total = weight = 0.0
    for _, predicate, share in _planned_filters(facts, [f.only(name) for f in own]):
        if predicate not in reads:
            budget.check()
            reads[predicate] = plan_scan(lake.spark, lake.sql_name(facts.table), predicate).data_files
        total, weight = total + share * reads[predicate], weight + share
    return total / weight if weight else None


def _planned_filters(facts: TableFacts, filters: Sequence[Filter]) -> list[tuple[str, str, float]]:
    """Filters as text, SQL and weight; those without values, or with values that have no literal, are left out."""
    asked = predicates(filters[:MOST_PLANNED], {c.name: c for c in facts.columns})
    return [(one.text if one.origin in {STATED, EVENT_LOG} else predicate, predicate, one.weight) for one, predicate in asked]
