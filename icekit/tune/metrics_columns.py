"""Answer which columns need metrics, and how long their bounds should be: the advised modes are
written to a clone, and Iceberg plans the filters there.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from icekit.common.commands import MetricsColumnsOptions
from icekit.common.sql import set_properties
from icekit.common.units import count, first_names, plain, size
from icekit.common.view import BYTES, NUMBER
from icekit.engine.metadata_tables import metadata_table
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.model import TableFacts
from icekit.iceberg.definition import Column
from icekit.iceberg.where import NO_BOUNDS
from icekit.sandbox.trial import Sandbox, Trial
from icekit.tune import ddl
from icekit.tune.answer import Answer, Change, Measure, Measurements, to_set
from icekit.tune.experiment import Experiment, Figures, planned, unknown_filters
from icekit.tune.filters import NULLS, Asked, Filter, operators
from icekit.tune.queries import Sample, read_filters, sample, sort_columns

if TYPE_CHECKING:
    from icekit.engine.lake import Lake

NOW = "now"
BOUNDS = "longer bounds"
USED = "only used columns"
SHORT = "shorter bounds"
READ = "data files that a filter reads"
BYTES_OF = "bytes of manifests"
_MEASURES = (Measure(READ, NUMBER), Measure(BYTES_OF, BYTES))
DEFAULT = "write.metadata.metrics.default"
COLUMN = "write.metadata.metrics.column."
NONE = "none"
COUNTS = "counts"
FULL = "full"
#: The lengths to try for the bounds of a string column, the default first.
LENGTHS = (16, 24, 32, 48, 64, 96, 128)
_TRUNCATE = re.compile(r"truncate\((\d+)\)")
#: Choices: filters must read this share fewer files, and one at least; the share of sampled values
# that may have the same bound.
_GAIN = 0.1
_COLLIDING = 0.01
#: Choices: unused statistics are worth a change if manifests shrink by this share, and have this
# many such columns or bytes.
_UNUSED_SHARE = 0.3
_UNUSED_COLUMNS = Thresholds().metrics_columns
_UNUSED_BYTES = 64 << 20
#: A choice: the bytes of one column's statistics in a manifest entry that are worth shorter bounds.
_HEAVY_BYTES = 1024
#: The columns that a note lists, and the data files whose statistics are measured.
_SHOWN = 100
_SAMPLED = 300
_NUMBER_MAPS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUND_MAPS = ("lower_bounds", "upper_bounds")
_REWRITTEN = "Each table was rewritten, so that only the metrics of their columns differ."
_EFFECT = (
    "filters on columns without statistics (including a MERGE's keys and runtime filters) skip no "
    "new files, and their MIN, MAX and COUNT no longer come from metadata"
)


def truncate(length: int) -> str:
    """The mode that keeps ``length`` characters."""
    return f"truncate({length})"


def rank(mode: str) -> float:
    """A rank of modes by how much they keep: none, counts, truncate by length, full."""
    kind = mode.strip().lower()
    if length := _TRUNCATE.fullmatch(kind):
        return 1.0 + int(length[1])
    return {NONE: 0.0, COUNTS: 1.0, FULL: math.inf}.get(kind, 1.0 + LENGTHS[0])


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

    Used are the columns of filters, and those whose bounds the table itself needs.
    """
    written = facts.bound_columns
    modes: dict[str, str] = {}
    for name in (*(name for f in filters for name in f.columns), *written):
        column = facts.by_name.get(name)
        used_by = operators(filters, name)
        if column is None or column.type.startswith(NO_BOUNDS):
            continue
        modes[name] = truncate(LENGTHS[0])
        if used_by == {NULLS} and name not in written:
            modes[name] = COUNTS
        elif used_by and column.type == "string":
            modes[name] = needed_mode(drawn.get(name, ()))
    return modes


def unused(facts: TableFacts, modes: Mapping[str, str]) -> list[Column]:
    """Columns with statistics, but without a known use or an explicit setting."""
    return [
        c
        for c in facts.columns
        if c.metrics_mode != NONE
        and c.name not in modes
        and COLUMN + c.name not in facts.properties
    ]


def shorter_bounds(
    facts: TableFacts, modes: Mapping[str, str], sizes: Mapping[str, float]
) -> dict[str, str]:
    """The modes of columns whose statistics are large, where the mode in force keeps more than
    filters need: what used columns need, and Iceberg's default for others. ``sizes`` are bytes in a
    manifest entry.
    """
    shorter: dict[str, str] = {}
    for column in facts.columns:
        mode = modes.get(column.name, truncate(LENGTHS[0]))
        is_heavy = sizes.get(column.name, 0) >= _HEAVY_BYTES
        if is_heavy and rank(mode) < rank(column.metrics_mode):
            shorter[column.name] = mode
    return shorter


def outdated(facts: TableFacts, sizes: Mapping[str, float]) -> list[Column]:
    """Columns whose statistics in existing files are larger than the mode in force can make them:
    the files are older than the mode.
    """
    found: list[Column] = []
    for column in facts.columns:
        length = _TRUNCATE.fullmatch(column.metrics_mode)
        # Four bytes a character, in two bounds; the upper one may be a character longer.
        most = _HEAVY_BYTES + 8 * (int(length[1]) + 1) if length else float(_HEAVY_BYTES)
        if rank(column.metrics_mode) < rank(FULL) and sizes.get(column.name, 0) >= most:
            found.append(column)
    return found


def proposals(
    facts: TableFacts, modes: Mapping[str, str], sizes: Mapping[str, float] = MappingProxyType({})
) -> dict[str, dict[str, str]]:
    """The properties of each variant: longer bounds of used columns, shorter ones of columns whose
    statistics are large (``sizes`` in a manifest entry), and no statistics for unused columns where
    these are worth a setting that somebody has to remember when a new filter comes up.
    """
    columns = facts.by_name
    identity = {f.source for f in facts.default_spec.fields if f.transform == "identity"}
    longer = {
        COLUMN + n: mode
        for n, mode in modes.items()
        if rank(columns[n].metrics_mode) < rank(mode) and n not in identity
    }
    variants = {BOUNDS: longer} if longer else {}
    shorter = {COLUMN + name: mode for name, mode in shorter_bounds(facts, modes, sizes).items()}
    if shorter:
        variants[SHORT] = {**longer, **shorter}
    is_much = facts.manifests.data_bytes >= _UNUSED_BYTES
    idle = len(unused(facts, modes))
    if idle >= _UNUSED_COLUMNS or (idle and is_much):
        kept = {
            COLUMN + n: max(columns[n].metrics_mode, mode, key=rank)
            for n, mode in modes.items()
            if COLUMN + n not in facts.properties
        }
        variants[USED] = {**kept, **longer, **shorter, DEFAULT: NONE}
    return variants


def chosen(measured: Measurements) -> str | None:
    """The variant to advise: filters read no more files with it than now, and they read fewer, or
    much smaller manifests, or bounds that were large are short.
    """
    for name in (USED, SHORT, BOUNDS):
        reads = measured.pair(READ, NOW, name)
        sizes = measured.pair(BYTES_OF, NOW, name)
        if reads is None or sizes is None or reads[1] > reads[0]:
            continue
        is_smaller = name == USED and sizes[1] <= (1 - _UNUSED_SHARE) * sizes[0]
        # Manifests are compressed; in memory, large bounds take what they take.
        is_smaller |= name == SHORT and sizes[1] <= sizes[0]
        if is_smaller or saves_files(*reads):
            return name
    return None


def saves_files(before: float, after: float) -> bool:
    """Tell whether filters read clearly fewer files."""
    return before - after >= max(1.0, _GAIN * before)


def tune_metrics_columns(trial: Trial, options: MetricsColumnsOptions) -> Answer:
    """Write other metrics modes of a table's columns to clones; only reads the table.

    Filters of queries are SQL (predicates or complete queries), those of a Spark ``event_log``, or
    else the columns that the table declares. A table larger than ``sample_bytes`` is tried on
    copied samples of that size.

    Raises :class:`~icekit.common.errors.ParameterError` for an invalid filter, and for an event log
    that cannot be read.
    """
    lake = trial.lake
    facts = trial.facts
    queries = read_filters(lake, facts, options.filters, options.event_log)
    if not queries.filters:
        return unknown_filters("metrics-columns", facts, queries.notes)
    names = sort_columns(facts, queries.filters)
    drawn = sample(lake, facts, names, sample_bytes=trial.sample_bytes)
    modes = needed_modes(facts, queries.filters, drawn)
    sizes = entry_bytes(lake, facts)
    settings = proposals(facts, modes, sizes)
    variants = {
        name: partial(_write, properties=properties)
        for name, properties in {NOW: {}, **settings}.items()
    }
    experiment = Experiment(
        trial=trial, variants=variants, measures=_MEASURES, always_sample=trial.is_large
    )
    asked = queries.asked(lake, facts)
    with experiment.open():
        experiment.measure("the filters", partial(_measure, asked=asked))
    best = chosen(experiment.measured)
    verdict, changes = _advice(facts, experiment.measured, best, settings, modes, sizes)
    needed = first_names((f"{name} {mode}" for name, mode in modes.items()), _SHOWN)
    largest_first = sorted(sizes.items(), key=lambda named: -named[1])
    taken = first_names((f"{name} {plain(each)}" for name, each in largest_first), _SHOWN)
    return experiment.answer(
        "metrics-columns",
        verdict,
        changes,
        (
            *queries.notes,
            f"Columns in use, with the mode that each needs: {needed}.",
            "Bytes that the statistics of each column take in a manifest entry, before "
            f"compression: {taken}.",
            _REWRITTEN,
        ),
        advised=best,
    )


def entry_bytes(lake: Lake, facts: TableFacts) -> dict[str, float]:
    """The mean bytes of each leaf column's statistics in a manifest entry, over some data files."""
    files = metadata_table(lake.spark, lake.sql_name(facts.table), "data_files")
    # Bounds may be large: only their lengths come to the driver.
    lengths = [f"transform_values({name}, (id, value) -> length(value))" for name in _BOUND_MAPS]
    rows = files.limit(_SAMPLED).selectExpr(*_NUMBER_MAPS, *lengths).collect()
    sizes = Counter[int]()
    for row in rows:
        for place, figures in enumerate(row):
            for field_id, number in (figures or {}).items():
                content = number if place >= len(_NUMBER_MAPS) else 0
                sizes[field_id] += _avro_bytes(field_id) + _avro_bytes(number) + content
    return {c.name: sizes[c.field_id] / max(len(rows), 1) for c in facts.columns}


def _avro_bytes(number: int) -> int:
    """The bytes of a number in Avro (specification, "Binary encoding"): it has a bit for its sign,
    and seven bits in each byte. The length of other values is a number in front of them.
    """
    return -(-(number.bit_length() + 1) // 7)


def _write(box: Sandbox, properties: Mapping[str, str]) -> None:
    """Rewrite the data files of a sandbox with these metrics; without properties too, so that only
    the metrics differ.
    """
    if properties:
        box.set(set_properties(box.name, dict(properties)))
    box.run(ddl.rewrite(box.name, {}, None, is_whole=True), expected_bytes=box.size_in_bytes)
    # The commit leaves the entries of the files that it replaced in manifests, marked as deleted.
    box.run(ddl.rewrite_manifests(box.name))


def _measure(_: str, box: Sandbox, asked: Asked) -> Figures:
    read = planned(box, asked)["data_files"]
    return {READ: read, BYTES_OF: box.observe().manifests.data_bytes}


def _advice(
    facts: TableFacts,
    measured: Measurements,
    best: str | None,
    settings: Mapping[str, Mapping[str, str]],
    modes: Mapping[str, str],
    sizes: Mapping[str, float],
) -> tuple[str, list[Change]]:
    """The verdict, and the properties of a variant with the rewrite of existing files."""
    now = facts.properties.get(DEFAULT) or "truncate(16) for the first columns"
    why = (
        f"Statistics of {count(len(unused(facts, modes)), 'column')} have no use in any known "
        "filter, sort order, partitioning or delete key."
    )
    if best is None and (columns := outdated(facts, sizes)):
        heaviest = max(columns, key=lambda column: sizes[column.name])
        old = (
            f"The statistics of {heaviest.name} take {size(sizes[heaviest.name])} in each manifest "
            f"entry: its files are older than its mode {heaviest.metrics_mode}."
        )
        return f"Rewrite the existing files. {old}", [ddl.rewrite_old(facts, old, None)]
    if best is None:
        read = plain(measured.value(NOW, READ) or 0)
        files = facts.data.file_count
        verdict = (
            f"No change: a filter reads {read} of {count(files, 'data file')}, and no other "
            "metrics mode is worth it."
        )
        return verdict, [Change(DEFAULT, now, now, why)]
    properties = settings[best]
    gain = measured.gain(NOW, best)
    names = [name.removeprefix("write.metadata.metrics.") for name in properties]
    effect = _EFFECT if best == USED else None
    if best == BOUNDS:
        why = f"Longer bounds tell values apart{gain}."
    if best == SHORT:
        shorter = shorter_bounds(facts, modes, sizes)
        heaviest_name = max(shorter, key=lambda name: sizes[name])
        gain = (
            f": the statistics of {heaviest_name} take {size(sizes[heaviest_name])} in each "
            "manifest entry"
        )
        why = f"Filters skip as many files with {shorter[heaviest_name]}."
    changes = [to_set(facts, properties, why, now=now, side_effect=effect)]
    read_files = measured.pair(READ, NOW, best)
    # Without a gain, the next compaction, which rewrites files anyway, is early enough; but entries
    # with large bounds slow down every plan until then.
    if best == SHORT or (read_files is not None and saves_files(*read_files)):
        old = (
            "New settings apply only to new files; the others keep their metrics until they are "
            "rewritten (rewrite_manifests copies metrics unchanged)."
        )
        changes.append(ddl.rewrite_old(facts, old, None))
    listed = first_names(names, 3)
    return f"Set {count(len(names), 'property', 'properties')} ({listed}){gain}.", changes
