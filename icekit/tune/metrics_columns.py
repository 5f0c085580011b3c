"""Answer which columns need metrics, and how long their bounds should be: the advised modes are
written to a clone, and Iceberg plans the filters there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from icekit.answer.grid import BYTES, NAME, NUMBER, SECONDS, TEXT, Grid
from icekit.diagnose.findings import Thresholds
from icekit.facts.definition import Column
from icekit.facts.lineage import choose_snapshot
from icekit.facts.manifests import (
    SAMPLED_FILES,
    Record,
    entries,
    manifest_list,
    sampled_manifests,
)
from icekit.facts.metadata_file import load_metadata
from icekit.facts.model import TableFacts
from icekit.facts.where import NO_BOUNDS
from icekit.options.commands import MetricsColumnsOptions
from icekit.sandbox.trial import Sandbox, Trial
from icekit.sql import call, display_name, set_properties
from icekit.tune import ddl
from icekit.tune.answer import Answer, Change, Measure, Measurements, to_set
from icekit.tune.experiment import Experiment, Figures, mean, unknown_filters
from icekit.tune.filters import NULLS, Asked, Filter, columns_of, leaves
from icekit.tune.queries import Sample, read_filters, sample, sort_columns
from icekit.units import count, percent, plain, size

if TYPE_CHECKING:
    from icekit.catalog import Lake

NOW, BOUNDS, USED = "now", "longer bounds", "only used columns"
READ, BYTES_OF, PLANNING = (
    "data files that a filter reads",
    "bytes of manifests",
    "time to plan a full scan",
)
_MEASURES = (Measure(READ, NUMBER), Measure(BYTES_OF, BYTES), Measure(PLANNING, SECONDS))
DEFAULT, COLUMN = "write.metadata.metrics.default", "write.metadata.metrics.column."
NONE, COUNTS, FULL = "none", "counts", "full"
#: The lengths to try for the bounds of a string column, the default first.
LENGTHS = (16, 24, 32, 48, 64, 96, 128)
_TRUNCATE = re.compile(r"truncate\((\d+)\)", re.I)
#: Choices: filters must read this share fewer files, and one at least; the share of sampled values
# that may have the same bound.
_GAIN, _COLLIDING = 0.1, 0.01
#: Choices: unused statistics are worth a change from this share of an entry on, and this many
# columns or bytes of manifests.
_UNUSED_SHARE, _UNUSED_COLUMNS, _UNUSED_BYTES = 0.3, Thresholds().metrics_columns, 64 << 20
_EFFECT = (
    "filters on columns without statistics (including a MERGE's keys and runtime filters) skip no "
    "new files, and their MIN, MAX and COUNT no longer come from metadata"
)


def truncate(length: int) -> str:
    """The mode that keeps ``length`` characters."""
    return f"truncate({length})"


def rank(mode: str) -> float:
    """A rank of modes by how much they keep: none, counts, truncate by length, full."""
    length = _TRUNCATE.fullmatch(mode.strip())
    return (
        1.0 + int(length[1])
        if length
        else {NONE: 0.0, COUNTS: 1.0, FULL: float("inf")}.get(
            mode.strip().lower(), 1.0 + LENGTHS[0]
        )
    )


def roles(facts: TableFacts, filtered: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The uses of each column, by name: filters, sort order, partitioning, keys of equality
    deletes.

    A data file without bounds of a key loads every equality delete file of its partition
    (``DeleteFileIndex``).
    """
    by_id = {c.field_id: c.name for c in facts.columns}
    uses = {
        "filter": filtered,
        "sort order": [f.source for f in facts.sort_order],
        "partition source": [f.source for f in facts.default_spec.active_fields if f.source],
        "equality delete key": [
            by_id[i] for key in facts.equality_keys for i in key.field_ids if i in by_id
        ],
    }
    named = dict.fromkeys(name for names in uses.values() for name in names)
    return {name: tuple(role for role, names in uses.items() if name in names) for name in named}


def needed_mode(values: Iterable[Any]) -> str:
    """The mode of the smallest of :data:`LENGTHS` at which at most 1 % of sampled texts share their
    start with another.
    """
    distinct = {value for value in values if isinstance(value, str)}
    for length in LENGTHS:
        starts = Counter(value[:length] for value in distinct)
        if sum(n for n in starts.values() if n > 1) <= _COLLIDING * len(distinct):
            return truncate(length)
    return FULL


def needed_modes(facts: TableFacts, filters: Sequence[Filter], drawn: Sample) -> dict[str, str]:
    """The mode that each used column needs: the default, only counts for filters by null, or as
    many characters as tell its values apart.
    """
    modes: dict[str, str] = {}
    for name, uses in roles(facts, columns_of(filters)).items():
        column = facts.by_name.get(name)
        if column is None or column.type.startswith(NO_BOUNDS):
            continue
        kinds = {leaf.kind for f in filters for leaf in leaves(f.tree) if leaf.column == name}
        modes[name] = truncate(LENGTHS[0])
        if uses == ("filter",) and kinds == {NULLS}:
            modes[name] = COUNTS
        elif "filter" in uses and column.type == "string":
            modes[name] = needed_mode(drawn.get(name, ()))
    return modes


#: The mean bytes of each column's statistics in a manifest entry, by field id, before compression.
EntryBytes = Mapping[int, float]


def unused(facts: TableFacts, modes: Mapping[str, str], entry: EntryBytes) -> list[Column]:
    """Columns with statistics, but without a known use or an explicit setting."""
    return [
        c
        for c in facts.columns
        if entry.get(c.field_id)
        and c.name not in modes
        and COLUMN + c.name not in facts.properties
        and c.metrics_mode != NONE
    ]


def share_of(idle: Sequence[Column], entry: EntryBytes) -> float:
    """The share of all statistics that these columns have."""
    return sum(entry[c.field_id] for c in idle) / sum(entry.values()) if idle else 0.0


def proposals(
    facts: TableFacts, modes: Mapping[str, str], entry: EntryBytes
) -> dict[str, dict[str, str]]:
    """The properties of each variant: longer bounds of used columns, and no statistics for the
    others where these are worth a setting that somebody has to remember when a new filter comes up.
    """
    columns = facts.by_name
    identity = {f.source for f in facts.default_spec.fields if f.transform == "identity"}
    longer = {
        COLUMN + n: mode
        for n, mode in modes.items()
        if rank(columns[n].metrics_mode) < rank(mode) and n not in identity
    }
    variants = {BOUNDS: longer} if longer else {}
    idle = unused(facts, modes, entry)
    share = share_of(idle, entry)
    is_much = share * facts.manifests.data_bytes >= _UNUSED_BYTES
    if share >= _UNUSED_SHARE and (len(idle) >= _UNUSED_COLUMNS or is_much):
        kept = {
            COLUMN + n: max(columns[n].metrics_mode, mode, key=rank)
            for n, mode in modes.items()
            if COLUMN + n not in facts.properties
        }
        variants[USED] = {**kept, **longer, DEFAULT: NONE}
    return variants


def chosen(
    measured: Measurements, reads: Mapping[str, Sequence[int]], variants: Iterable[str]
) -> str | None:
    """The variant to advise: no filter reads more files with it than now, and filters read fewer,
    or unused statistics are gone.
    """
    for name in (USED, BOUNDS):
        pair = measured.pair(READ, NOW, name)
        if name not in variants or pair is None:
            continue
        if any(a > b for a, b in zip(reads[name], reads[NOW], strict=True)):
            continue
        sizes = measured.pair(BYTES_OF, NOW, name)
        if saves_files(*pair) or (name == USED and sizes is not None and sizes[1] < sizes[0]):
            return name
    return None


def saves_files(before: float, after: float) -> bool:
    """Tell whether filters read clearly fewer files."""
    return before - after >= max(1.0, _GAIN * before)


def tune_metrics_columns(trial: Trial, options: MetricsColumnsOptions) -> Answer:
    """Measure the statistics of a table's columns, and write other metrics modes to clones; only
    reads the table.

    Filters of queries are SQL (predicates or complete queries), those of a Spark ``event_log``, or
    else the columns that the table declares. A table larger than ``sample_bytes`` is tried on
    copied samples of that size.

    Raises :class:`~icekit.errors.ParameterError` for an invalid filter, and for an event log that
    cannot be read.
    """
    lake, facts = trial.lake, trial.facts
    queries = read_filters(lake, facts, options.filters, options.event_log)
    if not queries.filters:
        return unknown_filters("metrics-columns", facts, queries.notes)
    filtered = columns_of(queries.filters)
    names = sort_columns(facts, queries.filters)
    drawn = sample(lake, facts, names, sample_bytes=trial.sample_bytes)
    modes, entry = needed_modes(facts, queries.filters, drawn), entry_bytes(lake, facts)
    settings = proposals(facts, modes, entry)
    variants = {
        name: partial(_write, properties=properties)
        for name, properties in {NOW: {}, **settings}.items()
    }
    experiment = Experiment(
        trial=trial, variants=variants, measures=_MEASURES, always_sample=trial.is_large
    )
    asked = queries.asked(drawn, facts.by_name)
    reads: dict[str, list[int]] = {}
    with experiment.open():
        experiment.measure("the filters", partial(_measure, asked=asked, reads=reads), rounds=3)
    best = chosen(experiment.measured, reads, settings)
    why = _unused(facts, modes, entry)
    verdict, changes = _advice(facts, experiment.measured, best, settings, why)
    rewritten = "Both tables were rewritten, so that only the metrics of their columns differ."
    return experiment.answer(
        "metrics-columns",
        verdict,
        changes,
        (*queries.notes, rewritten),
        advised=best,
        tables={"columns": _columns(facts, roles(facts, filtered), modes, entry)},
    )


def _write(box: Sandbox, properties: Mapping[str, str]) -> None:
    """Rewrite the data files of a sandbox with these metrics; without properties too, so that only
    the metrics differ.
    """
    if properties:
        box.set(set_properties(box.name, dict(properties)))
    box.run(ddl.rewrite(box.name, {}, None, is_whole=True), expected_bytes=box.size_in_bytes)
    # The commit leaves the entries of the files that it replaced in manifests, marked as deleted.
    box.run(call(box.lake.name, "rewrite_manifests", table=display_name(box.table)))


def _measure(name: str, box: Sandbox, asked: Asked, reads: dict[str, list[int]]) -> Figures:
    reads[name] = [box.plan(where).data_files for _, where in asked]
    read = mean((f.weight, files) for (f, _), files in zip(asked, reads[name], strict=True))
    return {READ: read, BYTES_OF: box.observe().manifests.data_bytes, PLANNING: box.plan().seconds}


def entry_bytes(lake: Lake, facts: TableFacts) -> EntryBytes:
    """The bytes of statistics in up to 300 entries of the sampled manifests.

    Source: the Avro specification, "Binary encoding": a number takes seven bits a byte.
    """
    source = lake.tables.source(facts.table)
    snapshot, _ = choose_snapshot(load_metadata(source), facts.snapshot_id)
    location = (snapshot or {}).get("manifest-list")
    manifests: Sequence[Record] = manifest_list(source.read(location), location) if location else []
    data = sampled_manifests(manifests)
    sizes: Counter[int] = Counter()
    files = 0
    for manifest in data:
        path = manifest["manifest_path"]
        listed = entries(source.read(path), path, frozenset((*_COUNTS, *_BOUNDS)))
        for entry in islice(listed, SAMPLED_FILES // len(data)):
            file = entry["data_file"]
            files += 1
            for name in (*_COUNTS, *_BOUNDS):
                for pair in file.get(name) or ():
                    sizes[pair["key"]] += _number(pair["key"]) + _value(pair["value"])
    return {field_id: size / files for field_id, size in sizes.items()}


_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")


def _number(value: int) -> int:
    return max(1, -(-((value << 1) ^ (value >> 63)).bit_length() // 7))


def _value(value: int | bytes) -> int:
    return _number(value) if isinstance(value, int) else _number(len(value)) + len(value)


def _unused(facts: TableFacts, modes: Mapping[str, str], entry: EntryBytes) -> str:
    """The bytes of statistics without a use, in a sentence."""
    idle = unused(facts, modes, entry)
    share, total = share_of(idle, entry), facts.manifests.data_bytes
    return (
        f"Statistics of {count(len(idle), 'column')} have no use in any known filter, sort order, "
        f"partitioning or delete key: {percent(share)} of the statistics, about "
        f"{size(share * total)} of {size(total)} of manifests."
    )


def _advice(
    facts: TableFacts,
    measured: Measurements,
    best: str | None,
    settings: Mapping[str, Mapping[str, str]],
    why: str,
) -> tuple[str, list[Change]]:
    """The verdict, and the properties of a variant with the rewrite of existing files."""
    now = facts.properties.get(DEFAULT) or "truncate(16) for the first columns"
    if best is None:
        before, read = measured.value(NOW, READ), "nothing was measured"
        if before is not None:
            read = f"a filter reads {plain(before)} of {count(facts.data.file_count, 'data file')}"
        verdict = f"No change: {read}, and no other metrics mode is worth it."
        return verdict, [Change(DEFAULT, now, now, why)]
    properties, gain = settings[best], measured.gain(NOW, best)
    names = [name.removeprefix("write.metadata.metrics.") for name in properties]
    listed = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
    effect = _EFFECT if best == USED else None
    why = why if best == USED else f"Longer bounds tell values apart{gain}."
    changes = [to_set(facts, properties, why, now=now, side_effect=effect)]
    read_files = measured.pair(READ, NOW, best)
    # Without a gain, the next compaction, which rewrites files anyway, is early enough.
    if read_files is not None and saves_files(*read_files):
        old = (
            "New settings apply only to new files; the others keep their metrics until they are "
            "rewritten (rewrite_manifests copies metrics unchanged)."
        )
        changes.append(ddl.rewrite_old(facts, old, None))
    return f"Set {count(len(names), 'property', 'properties')} ({listed}){gain}.", changes


def _columns(
    facts: TableFacts,
    used: Mapping[str, Sequence[str]],
    modes: Mapping[str, str],
    entry: EntryBytes,
) -> Grid:
    """The columns by the bytes of their statistics, with their use, and the mode in force and
    needed.
    """
    rows = [
        (
            c.name,
            ", ".join(used.get(c.name, ())) or None,
            c.metrics_mode,
            modes.get(c.name),
            entry.get(c.field_id, 0.0),
        )
        for c in sorted(facts.columns, key=lambda c: -entry.get(c.field_id, 0.0))
    ]
    columns = {
        "column": NAME,
        "needed_as": TEXT,
        "mode": TEXT,
        "needed_mode": TEXT,
        "bytes_per_entry": NUMBER,
    }
    return Grid("Statistics of columns in manifest entries, before compression", columns, rows, 20)
