"""Turn what statistics cost and let queries skip into table properties, and drop what a trial does not confirm. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from icekit.diagnose.findings import Thresholds
from icekit.facts.model import Column, TableFacts
from icekit.sql import Identifier, rewrite_data_files, set_properties
from icekit.tune import ddl
from icekit.tune.answer import Advice, to_set
from icekit.tune.metrics_columns.model import (
    COUNTS,
    DEFAULT_LENGTH,
    DELETE_KEY,
    FILTER,
    FULL,
    LENGTHS,
    NONE,
    PARTITION,
    SORT,
    EntryBytes,
    Prefix,
    Skipping,
    Trial,
    files_said,
    rank,
    truncate,
)
from icekit.units import count, percent, size

DEFAULT = "write.metadata.metrics.default"
COLUMN = "write.metadata.metrics.column."
#: A choice: a longer bound is advised where its filters read this share fewer files, and at least one.
GAIN = 0.1
#: Choices: statistics that nothing uses are worth a change from this share of an entry on, of so many columns or bytes of manifests.
UNUSED_SHARE, UNUSED_COLUMNS, UNUSED_BYTES = 0.3, Thresholds().metrics_columns, 64 << 20
NO_BOUNDS = ("list", "map", "struct", "variant", "geometry", "geography", "unknown")
_BREAKS = (
    "filters on the columns that then have none skip no file in new files (a MERGE's keys and runtime filters among them), "
    "and their MIN, MAX and COUNT are no longer answered from metadata"
)


@dataclass(frozen=True, slots=True)
class Measures:
    """What the judgement rests on; ``unknown`` says why it is not known what queries filter by or skip, None where it is."""

    entry: EntryBytes
    skipping: tuple[Skipping, ...]
    prefixes: tuple[Prefix, ...]
    unknown: str | None = None


def undeclared(table: Identifier) -> str:
    """Why nothing is advised while nobody has said what queries filter by, and how to say it."""
    declare = set_properties(table, {"icekit.filter-columns": "a,b"})
    return (
        "what queries filter by is not known, so no statistics can be called useless. "
        f"Declare it ({declare}), or give filters, a Spark event log or scan reports"
    )


def roles(facts: TableFacts, filtered: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """What each column is needed for, by name: filters, sort order, partitioning, keys of equality deletes.

    A data file without bounds of a key loads every equality delete file of its partition (``DeleteFileIndex``).
    """
    by_id = {c.field_id: c.name for c in facts.columns}
    keys = [by_id[i] for key in facts.equality_keys for i in key.field_ids if i in by_id]
    sources = [f.source for f in facts.default_spec.fields if f.source and f.transform != "void"]
    found: dict[str, tuple[str, ...]] = {}
    for role, names in ((FILTER, filtered), (SORT, [f.source for f in facts.sort_order]), (PARTITION, sources), (DELETE_KEY, keys)):
        for name in dict.fromkeys(names):
            found[name] = (*found.get(name, ()), role)
    return found


def needed(facts: TableFacts, measures: Measures) -> dict[str, str]:
    """The mode that each column with a role needs: as short as skips as much as whole bounds, and never less than it uses."""
    columns = {c.name: c for c in facts.columns}
    by_column = {s.column: s for s in measures.skipping}
    found = {}
    for name, uses in roles(facts, list(by_column)).items():
        column = columns.get(name)
        if column is None or column.type.startswith(NO_BOUNDS):
            continue
        skip = by_column.get(name)
        mode = truncate(DEFAULT_LENGTH)
        if skip is not None and skip.kinds == {"nulls"} and uses == (FILTER,):
            mode = COUNTS
        elif skip is not None and skip.best is not None and gains(skip):
            mode = skip.best[0]
        found[name] = mode
    return found


def gains(skip: Skipping) -> bool:
    """Tell whether whole bounds would skip clearly more files than are skipped now."""
    return skip.now is not None and skip.full is not None and skip.now - skip.full >= max(1.0, GAIN * skip.now)


def unused(facts: TableFacts, measures: Measures, modes: Mapping[str, str]) -> tuple[list[str], float, float]:
    """Columns with statistics that nothing known uses and nobody asked for by name; the share of an entry that they take; bytes of all manifests."""
    idle = [
        c
        for c in measures.entry.columns
        if c.counted_files and c.column not in modes and f"{COLUMN}{c.column}" not in facts.properties and not _is_none(facts, c.column)
    ]
    share = sum(c.size_in_bytes for c in idle) / measures.entry.entry_bytes if measures.entry.entry_bytes else 0.0
    stored = share * measures.entry.entry_bytes * measures.entry.stored_share * facts.data.file_count
    return [c.column for c in idle], share, min(stored, float(facts.manifests.data_bytes))


def _is_none(facts: TableFacts, name: str) -> bool:
    return next((c.metrics_mode for c in facts.columns if c.name == name), NONE) == NONE


def advise(facts: TableFacts, table: Identifier, measures: Measures) -> tuple[Advice, ...]:
    """What to set, in order of weight; ``table`` is named with its catalog."""
    now = facts.properties.get(DEFAULT) or _inferred(facts)
    if measures.unknown is not None:
        return (Advice(DEFAULT, now, now, f"Leave it as it is: {measures.unknown}."),)
    columns = {c.name: c for c in facts.columns}
    modes = needed(facts, measures)
    by_column = {s.column: s for s in measures.skipping}
    wanted = {n: m for n, m in modes.items() if rank(columns[n].metrics_mode) < rank(m) and _is_worth(by_column.get(n), columns[n])}
    idle, share, stored = unused(facts, measures, modes)
    is_wide = share >= UNUSED_SHARE and (len(idle) >= UNUSED_COLUMNS or stored >= UNUSED_BYTES)
    said = f"Statistics of {count(len(idle), 'column')} serve no known filter, sort order, partitioning or delete key: {percent(share)} of each manifest entry, about {size(stored)} of {size(facts.manifests.data_bytes)}"
    found: list[Advice] = []
    if is_wide:
        kept = {f"{COLUMN}{n}": _longer(columns[n].metrics_mode, m) for n, m in modes.items() if f"{COLUMN}{n}" not in facts.properties}
        kept |= {f"{COLUMN}{n}": m for n, m in wanted.items()}
        found.append(to_set(table, facts.properties, {**kept, DEFAULT: NONE}, current=now, evidence=f"{said}.", breaks=_BREAKS))
        # Bounds of the few columns that matter cost little beside what goes.
        wanted = {n: m for n, m in modes.items() if rank(columns[n].metrics_mode) < rank(m)}
    elif idle:
        rule = f"a change is advised from {percent(UNUSED_SHARE)} on, and {UNUSED_COLUMNS} such columns or {size(UNUSED_BYTES)}"
        found.append(Advice(DEFAULT, now, now, f"Leave it as it is. {said}; {rule}."))
    prefixes = {p.column: p for p in measures.prefixes}
    for name, skip in by_column.items():
        if name in columns:
            found.append(_of_column(facts, table, columns[name], skip, wanted.get(name), modes.get(name), prefixes.get(name)))
    behind = [s for s in by_column.values() if s.column in modes and _is_worth(s, columns[s.column])]
    if is_wide or behind:
        found.append(_rewrite(facts, behind))
    return tuple(found)


def _is_worth(skip: Skipping | None, column: Column) -> bool:
    if skip is None:
        return False
    # Where nothing could be simulated, a column without bounds is known to skip nothing.
    return gains(skip) or (skip.full is None and column.metrics_mode in {NONE, COUNTS})


def _longer(one: str, other: str) -> str:
    return one if rank(one) >= rank(other) else other


def _inferred(facts: TableFacts) -> str:
    limit = facts.setting("write.metadata.metrics.max-inferred-column-defaults")
    return f"truncate(16) for the first {limit} columns"


def _of_column(
    facts: TableFacts, table: Identifier, column: Column, skip: Skipping, wanted: str | None, mode: str | None, prefix: Prefix | None
) -> Advice:
    setting, now = f"{COLUMN}{column.name}", column.metrics_mode
    said = _figures(skip)
    if prefix is not None and prefix.common >= DEFAULT_LENGTH:
        said += f"; all its values begin with the same {prefix.common} characters"
    if wanted is not None:
        if not gains(skip):
            said += "; bounds of a column that queries filter by cost little, and skip as soon as the rows lie in its order"
        return to_set(table, facts.properties, {setting: wanted}, current=now, evidence=f"{said[0].upper()}{said[1:]}.")
    if mode is None:
        return Advice(setting, now, now, f"Leave it as it is: type {column.type} has no bounds.")
    if gains(skip):
        why = f"{said}; the mode in force is enough, and files written before it are the rest"
    elif skip.if_sorted is not None and skip.now is not None and skip.now - skip.if_sorted >= max(1.0, GAIN * skip.now):
        why = f"{said}; what keeps files from being skipped is the order of the rows"
    else:
        why = said
    return Advice(setting, now, now, f"Leave it as it is: {why}.")


def _figures(skip: Skipping) -> str:
    parts = [
        f"its filters read {files_said(skip.now)} of {skip.files:,}" if skip.now is not None else "what its filters read could not be told"
    ]
    if skip.full is not None and skip.best is not None:
        best, files = skip.best
        parts.append(f"with whole bounds {skip.full:,.3g}" + (f", with {best} {files:,.3g}" if best != FULL else ""))
    if skip.if_sorted is not None:
        parts.append(f"sorted by it about {skip.if_sorted:,.3g}")
    return "; ".join(parts)


def _rewrite(facts: TableFacts, behind: Sequence[Skipping]) -> Advice:
    """The rewrite that applies settings to files that are there: to run where it lets filters skip, to leave to compaction elsewhere."""
    options = {"rewrite-all": "true", "partial-progress.enabled": "true"}
    data, portion, given = facts.data, "all of them", {}
    is_large = data.size_in_bytes > ddl.PORTION_BYTES
    taken, files = ddl.portion(facts, ddl.PORTION_BYTES) if is_large else (None, data.file_count)
    if taken is not None:
        given, portion = {"where": taken}, f"{count(files, 'data file')} at a time: go on with other partitions"
    sql = rewrite_data_files(facts.catalog, table=facts.name, options=options, **given)
    old = (
        f"New settings act on new files only. The {count(data.file_count, 'data file')} ({size(data.size_in_bytes)}) that are there keep their metrics "
        "until they are rewritten (rewrite_manifests copies metrics as they are)"
    )
    names = ", ".join(s.column for s in behind)
    if behind and (taken is not None or not is_large):
        return Advice("rewrite_data_files", None, portion, f"{old}, and filters on {names} skip no more files than now until then.", sql)
    if behind:
        return Advice(
            "rewrite_data_files",
            None,
            None,
            f"{old}, and filters on {names} skip no more files than now until then: run {sql} with a where that keeps each run small.",
        )
    return Advice("rewrite_data_files", None, None, f"{old}: leave it to compaction, which rewrites them anyway. To do it at once: {sql}.")


def without(advice: Sequence[Advice], why: str) -> tuple[Advice, ...]:
    """The advice with nothing to change, where a trial has spoken against it."""
    return tuple(
        replace(a, proposed=a.current, evidence=f"Leave it as it is: {why}. {a.evidence}", sql=None, undo=None, breaks=None, properties=())
        if a.is_change
        else a
        for a in advice
    )


# --- How alike texts begin: whether bounds cut to some length can tell them apart. Pure


_COLLIDING = 0.01


def prefix_of(column: str, values: Iterable[Any]) -> Prefix | None:
    """The beginnings of a column's sampled values; None without two different ones."""
    distinct = {v for v in values if isinstance(v, str)}
    if len(distinct) < 2:
        return None
    needed = next((n for n in LENGTHS if colliding(distinct, n) <= _COLLIDING), None)
    # The first and the last in order share what all share.
    first, last = min(distinct), max(distinct)
    common = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return Prefix(column, len(distinct), common, colliding(distinct, DEFAULT_LENGTH), needed)


def colliding(distinct: Iterable[str], length: int) -> float:
    """The share of different values whose first characters are another's too."""
    starts = Counter(value[:length] for value in distinct)
    total = sum(starts.values())
    return sum(n for n in starts.values() if n > 1) / total if total else 0.0


# --- What a trial says of advice: it stands with what was shown, or it is taken back where a filter would lose. Pure


def confirmed(advice: Sequence[Advice], trial: Trial) -> tuple[Advice, ...]:
    """The advice, each change with what the trial showed; nothing to change where any filter read more files than before."""
    if trial.losses:
        worst = max(trial.losses, key=lambda f: f.after - f.before)
        return without(advice, f"on a clone {worst.text} read {worst.after:,} data files instead of {worst.before:,}")
    shown = showed(trial)
    if shown is None:
        return tuple(advice)
    found: list[Advice] = []
    first = True
    for one in advice:
        if not one.is_change:
            found.append(one)
        elif not one.properties:
            found.append(replace(one, verified="the files on the clone had the metrics that this rewrite gives them."))
        else:
            found.append(replace(one, verified=f"{shown}." if first else "set on the clone with the above."))
            first = False
    return tuple(found)


def showed(trial: Trial) -> str | None:
    """What a trial showed, as the end of a sentence; None where it came to nothing."""
    if trial.before is None or trial.after is None or trial.shrinks is None:
        return None
    change = f"{percent(abs(trial.shrinks))} {'less' if trial.shrinks >= 0 else 'more'}"
    parts = [
        f"entries of {count(trial.files, 'data file')} of {trial.total_files:,} on a {'copied sample' if trial.is_sample else 'clone'}: "
        f"manifests {size(trial.before.size_in_bytes)} → {size(trial.after.size_in_bytes)} ({change})"
    ]
    if trial.before.planning_seconds is not None and trial.after.planning_seconds is not None:
        parts.append(f"a full scan planned in {trial.before.planning_seconds * 1000:,.0f} → {trial.after.planning_seconds * 1000:,.0f} ms")
    if trial.reads is not None:
        before, after = trial.reads
        parts.append(f"a filter reads {before:,.3g} → {after:,.3g} data files on average, none more than before")
    return "; ".join(parts)
