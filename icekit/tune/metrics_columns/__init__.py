"""Measure the cost and the benefit of column metrics, advise, and try the advice on a clone."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import elements, load_now
from icekit.engine.planner import plan_scan
from icekit.facts.collect import load_metadata, observe
from icekit.facts.manifests import manifest_list
from icekit.facts.metadata import choose_snapshot
from icekit.facts.model import TableFacts
from icekit.facts.where import NO_BOUNDS
from icekit.sandbox.trial import BUDGET_BYTES, BUDGET_SECONDS, Budget, Sandbox, Trial
from icekit.sql import Identifier, set_properties
from icekit.tune.filters import Filter, predicates
from icekit.tune.metrics_columns.advise import (
    DrawnColumn,
    Footers,
    Measures,
    advise_metrics,
    confirmed,
    layout,
    measure,
    needed,
    prefix_of,
    real_bounds,
    roles,
    skipping,
    undeclared,
    unused,
)
from icekit.tune.metrics_columns.model import EntryBytes, FilterReads, Manifests, MetricsColumns, MetricsTrial, Prefix, Skipping
from icekit.tune.queries import EVENT_LOG, STATED, Filters, Sample, bind, names_ever, read_filters, sample
from icekit.units import count, percent

if TYPE_CHECKING:
    from icekit.catalog import Lake


# --- Try metrics on a clone: rewrite the entries of its manifests, with the current and the advised metrics, and plan with both
#
# No data file is written, and only footers are read. The advised metrics are those that Iceberg's own writer would collect under
# the advised properties, from the footers of the existing files, so that only the metrics differ, not files and layout.
# ``rewrite_manifests`` cannot do this: it copies entries with their current metrics.


#: The most data files whose entries are rewritten.
MOST_FILES = 1_000
#: Plans of a full scan, of which the shortest counts, and the seconds after which no more are made.
_REPEATS, _SECONDS = 7, 5.0


def try_metrics(trial: Trial, properties: Mapping[str, str], filters: Sequence[tuple[str, str, float]]) -> MetricsTrial:
    """The effect of ``properties`` on a clone's manifests and on the files that ``filters`` (text, SQL, weight) read there.

    On a table with more than a thousand data files, only a thousand entries are rewritten.
    """
    started = time.monotonic()
    total, done, is_sample = trial.facts.data.file_count, 0, False
    before: Manifests | None = None
    after: Manifests | None = None
    read: list[FilterReads] = []
    with trial.attempt(), trial.sandbox() as box:
        is_sample = box.is_sample
        if is_sample:
            total = box.observe().data.file_count
        entries = _Entries(box)
        before = entries.write(by_settings=False)
        done = entries.number
        first = {sql: entries.reads(sql) for _, sql, _ in filters}
        if properties:
            box.set(set_properties(box.name, dict(properties)))
        after = entries.write(by_settings=True)
        read = [FilterReads(text, weight, first[sql], entries.reads(sql)) for text, sql, weight in filters]
    found = MetricsTrial(
        files=done,
        total_files=total,
        before=before,
        after=after,
        filters=tuple(read),
        seconds=time.monotonic() - started,
        is_sample=is_sample,
        stopped=trial.stopped,
    )
    if found.shrinks is not None:
        trial.progress(
            f"tried on a clone: entries of {count(done, 'data file')}, manifests {percent(abs(found.shrinks))} {'smaller' if found.shrinks > 0 else 'larger'}"
        )
    return found


class _Entries:
    """The entries of some manifests of a clone, which can be rewritten with other metrics."""

    def __init__(self, box: Sandbox) -> None:
        self._box, self._lake, self._budget, self._name = box, box.lake, box.budget, box.name
        jvm: Any = box.lake.spark._jvm
        self._iceberg = jvm.org.apache.iceberg
        self.number = 0
        self._current: list[Any] = []
        self._chosen: list[list[Any]] = []
        self._rest: list[list[Any]] = []
        self._read()

    def write(self, *, by_settings: bool) -> Manifests:
        """Put the chosen entries into manifests of their own, with the metrics they have or those of the clone's settings."""
        table = load_now(self._lake.spark, self._name)
        footers = Footers(self._lake, table)
        config = None
        if by_settings:
            now = observe(self._lake, self._box.table)
            config = footers.config(names_ever(self._lake, now)[0], {c.field_id: c.metrics_mode for c in now.columns})

        def measured(file: Any) -> Any:
            self._budget.check()
            if config is None or str(file.format()) != "PARQUET":
                return file
            copied = self._iceberg.DataFiles.builder(table.specs().get(file.specId())).copy(file)
            return copied.withMetrics(footers.metrics(str(file.location()), config)).build()

        made = [self._manifest(table, [(file, measured(file)) for file in files]) for files in self._chosen if files]
        kept = [self._manifest(table, [(file, file) for file in files]) for files in self._rest if files] if config is None else []
        rewrite = table.rewriteManifests()
        for old in self._current:
            rewrite.deleteManifest(old)
        for new in (*made, *kept):
            rewrite.addManifest(new)
        rewrite.commit()
        # Those that hold the rest stay as they are from now on.
        paths = {str(m.path()) for m in made}
        self._current = [m for m in self._manifests(load_now(self._lake.spark, self._name)) if str(m.path()) in paths]
        size = sum(int(m.length()) for m in made)
        self._budget.bytes_written += size
        header = sum(layout(self._bytes(table, str(m.path())))[0] for m in made)
        return Manifests(size, header, self._planning())

    def reads(self, where: str) -> int:
        """Data files that a filter reads on the current state of the clone."""
        return self._box.plan(where).data_files

    def _planning(self) -> float:
        """Seconds to plan a full scan: the minimum of several runs."""
        found = [self._box.plan().seconds]
        while len(found) < _REPEATS and sum(found) < _SECONDS:
            found.append(self._box.plan().seconds)
        return min(found)

    def _read(self) -> None:
        """Take whole manifests until there are enough files; of the last one some, and the rest is kept apart."""
        table = load_now(self._lake.spark, self._name)
        for manifest in self._manifests(table):
            if self.number >= MOST_FILES:
                break
            self._current.append(manifest)
            chosen: list[Any] = []
            rest: list[Any] = []
            reader = self._iceberg.ManifestFiles.read(manifest, table.io(), table.specs())
            for entry in elements(reader):
                self._budget.check()
                (chosen if self.number + len(chosen) < MOST_FILES else rest).append(entry)
            reader.close()
            self.number += len(chosen)
            self._chosen.append(chosen)
            self._rest.append(rest)

    @staticmethod
    def _manifests(table: Any) -> list[Any]:
        return list(elements(table.currentSnapshot().dataManifests(table.io())))

    def _manifest(self, table: Any, files: Sequence[tuple[Any, Any]]) -> Any:
        """Write files (as they are, and as they are to be written) into a manifest beside the clone's own."""
        operations = table.operations()
        path = operations.metadataFileLocation(f"{uuid.uuid4()}-trial.avro")
        version, spec = operations.current().formatVersion(), table.specs().get(files[0][0].specId())
        writer = self._iceberg.ManifestFiles.write(version, spec, table.io().newOutputFile(path), None)
        snapshot = table.currentSnapshot().snapshotId()
        for source, file in files:
            sequence = source.dataSequenceNumber()
            writer.existing(file, snapshot, 0 if sequence is None else sequence, source.fileSequenceNumber())
        writer.close()
        return writer.toManifestFile()

    @staticmethod
    def _bytes(table: Any, path: str) -> bytes:
        stream = table.io().newInputFile(path).newStream()
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()


#: The number of filters with values to plan; the most frequent ones.
MOST_PLANNED = 48
#: The most sampled rows, and the most string columns whose prefixes are compared.
SAMPLED_ROWS, MOST_TEXTS = 20_000, 12


def tune_metrics_columns(
    lake: Lake,
    table: str | Identifier,
    *,
    filters: Sequence[str] = (),
    event_log: str = "",
    scan_reports: str = "",
    budget_seconds: float = BUDGET_SECONDS,
    budget_bytes: str = BUDGET_BYTES,
    sample_bytes: str = "1 GB",
    trial: bool = True,
    progress: Callable[[str], None] = print,
) -> MetricsColumns:
    """Measure the metrics of a table's columns, and advise metrics modes; only reads the table.

    Filters of queries are SQL (predicates or complete queries), those of a Spark ``event_log`` or of Iceberg ``scan_reports``, or else the
    columns that the table declares. The effect of the advice on manifests, planning and files read is tried on a clone
    unless ``trial`` is false. ``budget_seconds`` and ``budget_bytes`` (written) limit the trial; ``sample_bytes`` limits the rows read.

    Raises :class:`~icekit.errors.ParameterError` for an invalid filter or budget, and for
    an event log or scan report that cannot be read.
    """
    attempt = Trial.of(lake, table, Budget(budget_seconds, budget_bytes), sample_bytes, progress)
    facts = attempt.facts
    asked = read_filters(lake, facts, sql=filters, event_log=event_log, scan_reports=scan_reports)
    notes = list(asked.notes)
    entry = entry_bytes(lake, facts)
    progress(
        f"{facts.name}: {count(facts.data.file_count, 'data file')}, {count(len(asked.filters), 'filter')} on {count(len(asked.columns), 'column')}"
    )
    name = lake.sql_name(facts.table)
    skips: tuple[Skipping, ...] = ()
    prefixes: tuple[Prefix, ...] = ()
    bound: tuple[Filter, ...] = ()
    if facts.data.file_count:
        with attempt.attempt():
            with attempt.budget.watching(lake.spark):
                drawn = sample(lake, facts, _sampled(facts, asked), rows=SAMPLED_ROWS, sample_bytes=attempt.sample_bytes)
            prefixes = tuple(p for name, values in drawn.columns.items() if (p := prefix_of(name, values)))
            bound = bind(asked.filters, drawn)
            skips, more = _skipping(attempt, asked, bound, drawn)
            notes += more
    else:
        notes.append("The table has no data files, so there is nothing to measure yet; settings will apply from the first file.")
    unknown = None if asked.filters else undeclared(name)
    if unknown is None and attempt.stopped is not None:
        unknown = f"the files that filters skip were not fully measured, because {attempt.stopped}"
    if unknown is None and not skips:
        unknown = "no filter is on a column with bounds that Iceberg can use to skip files"
    measures = Measures(entry, skips, prefixes, unknown)
    advice = advise_metrics(facts, measures)
    properties = {setting: value for one in reversed(advice) for setting, value in one.properties}
    tried: MetricsTrial | None = None
    if trial and attempt.stopped is None and facts.data.file_count and any(a.is_change for a in advice):
        tried = try_metrics(attempt, properties, _planned_filters(facts, bound))
        advice = confirmed(advice, tried)
    return MetricsColumns(
        facts=facts,
        advice=advice,
        stopped=attempt.stopped,
        entry=entry,
        roles=roles(facts, asked.columns),
        filters=asked,
        skipping=skips,
        prefixes=prefixes,
        trial=tried,
        notes=tuple(notes),
        unused_bytes=unused(facts, measures, needed(facts, measures))[2],
    )


def entry_bytes(lake: Lake, facts: TableFacts) -> EntryBytes:
    """The bytes of a table's manifest entries, from a sample."""
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


def _skipping(trial: Trial, asked: Filters, bound: Sequence[Filter], drawn: Sample) -> tuple[tuple[Skipping, ...], list[str]]:
    """What bounds skip by each column that filters ask for, and what was left out."""
    facts, columns, notes = trial.facts, trial.facts.by_name, list[str]()
    names = [n for n in asked.columns if n in columns and not columns[n].type.startswith(NO_BOUNDS)]
    bounds = real_bounds(trial.lake, facts, [columns[n] for n in names], trial.budget.check)
    if names and not bounds:
        notes.append("No data file is Parquet, so the files' own bounds were not read, and the effect of longer bounds is not known.")
    known = bound[:MOST_PLANNED]
    if len(bound) > MOST_PLANNED:
        notes.append(f"Of {len(bound):,} filters with values, only the {MOST_PLANNED} most frequent are planned and simulated.")
    reads: dict[str, int] = {}
    found = []
    for name in names:
        own = [f for f in known if name in f.columns]
        found.append(
            skipping(
                DrawnColumn(name, drawn.columns.get(name, ()), bounds.get(name), is_text=columns[name].type == "string"),
                own,
                files=facts.data.file_count,
                now=_now(trial, own, name, reads),
            )
        )
    return tuple(found), notes


def _now(trial: Trial, own: Sequence[Filter], name: str, reads: dict[str, int]) -> float | None:
    """Data files that filters read by one column alone, by the planner: the mean; None where none can be asked."""
    total = weight = 0.0
    for _, predicate, share in _planned_filters(trial.facts, [f.only(name) for f in own]):
        if predicate not in reads:
            trial.budget.check()
            reads[predicate] = plan_scan(trial.lake.spark, trial.lake.sql_name(trial.facts.table), predicate).data_files
        total, weight = total + share * reads[predicate], weight + share
    return total / weight if weight else None


def _planned_filters(facts: TableFacts, filters: Sequence[Filter]) -> list[tuple[str, str, float]]:
    """Filters as text, SQL and weight; those without values, or with values that have no literal, are left out."""
    asked = predicates(filters[:MOST_PLANNED], facts.by_name)
    return [(one.text if one.origin in {STATED, EVENT_LOG} else predicate, predicate, one.weight) for one, predicate in asked]


__all__ = ["EntryBytes", "MetricsColumns", "MetricsTrial", "Prefix", "Skipping", "tune_metrics_columns"]
