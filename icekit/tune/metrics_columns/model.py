"""Hold the cost of column statistics in manifests, the files that queries skip by them, and the answer. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from icekit.answer.grid import COUNT, FIGURE, NAME, NUMBER, SHARE, TEXT, Grid, Unit
from icekit.tune.card import Advice, Answer, Effect, tried_or_not
from icekit.tune.queries import Filters
from icekit.units import count, elapsed, percent, size

NONE, COUNTS, FULL = "none", "counts", "full"
DEFAULT = "write.metadata.metrics.default"
COLUMN = "write.metadata.metrics.column."
DEFAULT_LENGTH = 16
#: The lengths to try for the bounds of a string column, the default first.
LENGTHS = (DEFAULT_LENGTH, 24, 32, 48, 64, 96, 128)
_TRUNCATE = re.compile(r"truncate\((\d+)\)", re.I)

#: The setting of the advice to rewrite existing files, and its current value.
OLD_FILES, KEPT = "existing data files", "as they are"
FILTER, SORT, PARTITION, DELETE_KEY = "filter", "sort order", "partition source", "equality delete key"


def truncate(length: int) -> str:
    """The mode that keeps ``length`` characters."""
    return f"truncate({length})"


def rank(mode: str) -> float:
    """A rank of modes by how much they keep: none, counts, truncate by length, full."""
    found = _TRUNCATE.fullmatch(mode.strip())
    if found:
        return 1.0 + int(found[1])
    return {NONE: 0.0, COUNTS: 1.0, FULL: float("inf")}.get(mode.strip().lower(), 1.0 + DEFAULT_LENGTH)


@dataclass(frozen=True, slots=True)
class ColumnBytes:
    """One column's statistics in the sampled entries of manifests.

    ``count_bytes`` (sizes and counts of values, nulls, NaNs) and ``bound_bytes`` are means per entry, before
    compression; ``counted_files`` and ``bounded_files`` are sampled files that have counts and bounds of it.
    """

    column: str
    field_id: int
    count_bytes: float = 0.0
    bound_bytes: float = 0.0
    counted_files: int = 0
    bounded_files: int = 0

    @property
    def size_in_bytes(self) -> float:
        """Bytes per entry in total."""
        return self.count_bytes + self.bound_bytes


@dataclass(frozen=True, slots=True)
class EntryBytes:
    """The bytes of the entries of some manifests.

    ``header_bytes`` is the size of a manifest's header (its schemas, which no setting shortens), ``entry_bytes`` an entry
    before compression, ``stored_share`` the share that is left after compression; ``columns`` are sorted by bytes, largest first.
    ``gone_bytes`` belong to columns that were dropped.
    """

    files: int
    manifests: int
    header_bytes: float
    entry_bytes: float
    stored_share: float
    columns: tuple[ColumnBytes, ...]
    gone_bytes: float = 0.0

    @property
    def by_name(self) -> dict[str, ColumnBytes]:
        """The columns by name."""
        return {c.column: c for c in self.columns}


@dataclass(frozen=True, slots=True)
class Prefix:
    """Shared prefixes of the values of a string column, in a sample.

    ``common`` is the length of the prefix that all values share; ``colliding`` is the share of distinct values whose first
    16 characters equal those of another value; ``needed`` is the smallest of :data:`LENGTHS` at which at most 1 % of the values collide,
    None if none of them is enough.
    """

    column: str
    distinct: int
    common: int
    colliding: float
    needed: int | None


@dataclass(frozen=True, slots=True)
class Skipping:
    """Data files that the filters on one column read, using only their conditions on this column; means over the filters.

    ``now`` is from Iceberg's planner. The rest is simulated on the full bounds of ``sampled`` files (in their footers)
    and scaled to ``files``: ``by_mode`` has each mode from ``truncate(16)`` to ``full``. ``if_sorted`` uses sampled rows, sorted
    by the column and cut into as many files. None if not known.
    """

    column: str
    weight: float
    kinds: frozenset[str]
    files: int
    now: float | None
    by_mode: tuple[tuple[str, float], ...] = ()
    if_sorted: float | None = None
    sampled: int = 0

    @property
    def full(self) -> float | None:
        """Files read with full bounds."""
        return self.by_mode[-1][1] if self.by_mode else None

    @property
    def best(self) -> tuple[str, float] | None:
        """The shortest mode with at most 1 % more reads than with full bounds."""
        if not self.by_mode:
            return None
        limit = self.by_mode[-1][1] * 1.01 + 1e-9
        return next((mode, files) for mode, files in self.by_mode if files <= limit)


@dataclass(frozen=True, slots=True)
class FilterReads:
    """Data files that one filter reads, from Iceberg's planner on a clone: with the current and with the advised metrics."""

    text: str
    weight: float
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Manifests:
    """The same entries written with some metrics: bytes of manifests, and seconds to plan a full scan of the table (the minimum)."""

    size_in_bytes: int
    header_bytes: int
    planning_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class MetricsTrial:
    """The result of a trial on a clone, which rewrote the entries of ``files`` of ``total_files`` data files, first with the current metrics, then as advised.

    ``stopped`` says why it is incomplete, None if it is complete.
    """

    files: int
    total_files: int
    before: Manifests | None
    after: Manifests | None
    filters: tuple[FilterReads, ...]
    seconds: float
    is_sample: bool = False
    stopped: str | None = None

    @property
    def shrinks(self) -> float | None:
        """The share of the manifests' bytes that the advice saves; negative if they grow."""
        if self.before is None or self.after is None or not self.before.size_in_bytes:
            return None
        return 1 - self.after.size_in_bytes / self.before.size_in_bytes

    @property
    def entry_bytes(self) -> tuple[float, float] | None:
        """Bytes of an entry as stored, before and after, without the manifest's header."""
        if self.before is None or self.after is None or not self.files:
            return None
        return tuple((m.size_in_bytes - m.header_bytes) / self.files for m in (self.before, self.after))  # type: ignore[return-value]

    @property
    def reads(self) -> tuple[float, float] | None:
        """Data files that a filter reads, before and after: the mean."""
        total = sum(f.weight for f in self.filters)
        if not total:
            return None
        return sum(f.weight * f.before for f in self.filters) / total, sum(f.weight * f.after for f in self.filters) / total

    @property
    def losses(self) -> tuple[FilterReads, ...]:
        """Filters that would read more files than now."""
        return tuple(f for f in self.filters if f.after > f.before)


def files_said(files: float) -> str:
    """A mean number of data files, for people."""
    return f"{number(files)} data file{'' if number(files) == '1' else 's'}"


# --- The answer on metrics


@dataclass(frozen=True, repr=False)
class MetricsColumns(Answer):
    """Which columns have metrics, their cost and benefit, and what to set.

    ``entry`` has the bytes in sampled manifests, ``roles`` the uses of columns by name; ``trial`` is None if there
    was nothing to try. ``notes`` are sentences on what is not known. ``unused_bytes`` are the bytes of all manifests that
    statistics without a known use take, about.
    """

    question: ClassVar[str] = "metrics-columns"

    entry: EntryBytes
    roles: dict[str, tuple[str, ...]]
    filters: Filters
    skipping: tuple[Skipping, ...]
    prefixes: tuple[Prefix, ...]
    trial: MetricsTrial | None
    notes: tuple[str, ...]
    unused_bytes: float = 0.0

    def verdict(self) -> str:
        """The number of properties to set, the files that a filter then reads and the bytes of manifests, or that nothing should change."""
        if not self.facts.data.file_count:
            return "No change: the table has no data files, so it has no statistics yet."
        if not self.filters.filters:
            return "No advice: the filters of your queries are not known. Declare icekit.filter-columns, or give filters."
        changes = [a for a in self.advice if a.properties]
        if not changes:
            return self._unchanged()
        # One piece of advice may set several properties: a new default also names the columns that keep their metrics.
        properties = list(dict.fromkeys([*(a.setting for a in changes), *(name for a in changes for name, _ in a.properties)]))
        names = ", ".join(name.removeprefix("write.metadata.metrics.") for name in properties[:3]) + (" …" if len(properties) > 3 else "")
        won = self._tried() or self._simulated(changes)
        gain = f": {' and '.join(won)}" if won else ""
        return f"Set {count(len(properties), 'property', 'properties')} ({names}){gain}."

    def _tried(self) -> list[str]:
        """The effects in the trial, as clauses, the greatest first."""
        trial, won = self.trial, list[tuple[float, str]]()
        if trial is None:
            return []
        if trial.reads is not None:
            before, after = trial.reads
            as_before = number(before) == number(after)
            reads = f"a filter reads {files_said(after)}{' as before' if as_before else f' instead of {number(before)}'}"
            won.append((1 - after / before if before else 0.0, reads))
        if trial.before is not None and trial.after is not None and trial.shrinks is not None:
            of = "" if trial.files == trial.total_files and not trial.is_sample else f" of {count(trial.files, 'data file')}"
            change = f"{percent(abs(trial.shrinks))} {'less' if trial.shrinks >= 0 else 'more'}"
            took = f"manifests{of} take {size(trial.after.size_in_bytes)} instead of {size(trial.before.size_in_bytes)} ({change})"
            won.append((trial.shrinks, took))
        return [clause for _, clause in sorted(won, key=lambda pair: -pair[0])]

    def _simulated(self, changes: Sequence[Advice]) -> list[str]:
        """Without a trial: the files that filters on the changed columns would read, and the bytes of statistics that are left out; as clauses."""
        properties, won = {name for a in changes for name, _ in a.properties}, []
        for skip in self.skipping:
            if f"{COLUMN}{skip.column}" in properties and skip.now is not None and skip.best is not None and skip.now > skip.best[1]:
                won.append(f"filters on {skip.column} would read {files_said(skip.best[1])} instead of {number(skip.now)}")
                break
        if DEFAULT in properties:
            won.append(f"manifests would take about {size(self.unused_bytes)} less of {size(self.facts.manifests.data_bytes)}")
        return won

    def _unchanged(self) -> str:
        losses = self.trial.losses if self.trial is not None else ()
        if losses:
            worst = max(losses, key=lambda f: f.after - f.before)
            return f"No change: on a clone {worst.text} read {files_said(worst.after)} instead of {worst.before:,}."
        read = [(s.weight, s.now) for s in self.skipping if s.now is not None]
        total = sum(weight for weight, _ in read)
        if self.stopped or not total:
            return "No change: no other metrics mode that was measured is worth it."
        mean = sum(weight * now for weight, now in read) / total
        files = count(self.facts.data.file_count, "data file")
        unused = (
            f"; statistics without a known use take about {size(self.unused_bytes)} of {size(self.facts.manifests.data_bytes)} of manifests"
        )
        return f"No change: a filter reads {number(mean)} of {files}, and no other metrics mode is worth it{unused}."

    def effects(self) -> list[Effect]:
        """The effects in the trial: files that a filter reads, bytes of manifests, planning time; and the cost of rewriting existing files."""
        trial = self.trial
        if trial is None or not self.is_change:
            return []
        found = []
        if trial.reads is not None:
            now, then = trial.reads
            found.append(Effect("data files that a filter reads (mean)", number(now), number(then)))
        if trial.before is not None and trial.after is not None:
            before, after = trial.before, trial.after
            of = f"manifests of {count(trial.files, 'data file')}"
            found.append(Effect(of, size(before.size_in_bytes), size(after.size_in_bytes), after.size_in_bytes > before.size_in_bytes))
            if before.planning_seconds is not None and after.planning_seconds is not None:
                slower = after.planning_seconds > before.planning_seconds * 1.1
                found.append(Effect("time to plan a full scan", elapsed(before.planning_seconds), elapsed(after.planning_seconds), slower))
        if any(a.setting == OLD_FILES and a.is_change for a in self.advice):
            data = self.facts.data
            found.append(
                Effect(
                    "one-time rewrite of existing data files",
                    "–",
                    f"{count(data.file_count, 'file')}, {size(data.size_in_bytes)}",
                    is_cost=True,
                )
            )
        return found

    def confidence(self) -> str:
        """Whether the advice was tried on a clone, or only simulated on the bounds of sampled files."""
        trial = self.trial
        if trial is not None and trial.after is not None:
            part = f", for {trial.files:,} of {count(trial.total_files, 'data file')}" if trial.files < trial.total_files else ""
            why = f"manifests were written with these metrics on a clone{part}, and Iceberg planned the filters there."
            return tried_or_not(self, level="medium" if part or trial.is_sample else "high", why=why)
        if not self.filters.filters:
            return "low: no filters are known."
        sampled = max((s.sampled for s in self.skipping), default=0)
        return tried_or_not(
            self,
            level="low" if self.is_change else "medium",
            why=f"simulated on the bounds of {count(sampled, 'data file')}; nothing was tried." if sampled else "nothing was tried.",
        )

    def tables(self) -> dict[str, Grid]:
        """Columns by bytes, files read by column and mode, shared prefixes of strings, filters on the clone."""
        return {"columns": _columns(self), "skipping": _skipping(self), "prefixes": _prefixes(self), "filters": _filters(self)}

    def basis(self) -> list[str]:
        """The basis and the limits of the answer."""
        said = [*_carried(self), *self.notes, *_gaps(self)]
        sampled = max((s.sampled for s in self.skipping), default=0)
        if sampled:
            scaled = "" if sampled >= self.facts.data.file_count else ", scaled to all of them"
            said.append(
                f"'Now' is from Iceberg's planner. Other bounds are simulated on the footers of {count(sampled, 'data file')}{scaled}, another order on sampled rows."
            )
        if self.entry.gone_bytes:
            said.append(
                f"{size(self.entry.gone_bytes)} of each entry are statistics of dropped columns; a rewrite of the data files removes them."
            )
        trial = self.trial
        if trial is not None and trial.before is not None:
            said.append(
                f"The trial rewrote the manifest entries of {count(trial.files, 'data file')}, with the metrics that Iceberg reads from their footers under the advised settings. "
                f"{size(trial.before.header_bytes)} of both versions are headers, which no setting shortens."
            )
        return said


#: The most rows in a table.
MOST_ROWS = 20
FILES = Unit(lambda files: number(files))


def _columns(answer: MetricsColumns) -> Grid:
    entry, known = answer.entry, answer.facts.by_name
    ranked = sorted(entry.columns, key=lambda c: (c.column not in answer.roles, -c.size_in_bytes))
    columns = {
        "column": NAME,
        "type": NAME,
        "metrics_mode": TEXT("mode for new files"),
        "needed_as": TEXT,
        "files_with_bounds": COUNT,
        "count_bytes": NUMBER("counts, bytes"),
        "bound_bytes": NUMBER("bounds, bytes"),
    }
    rows = [
        (
            c.column,
            known[c.column].type,
            known[c.column].metrics_mode,
            ", ".join(answer.roles.get(c.column, ())) or None,
            c.bounded_files,
            c.count_bytes,
            c.bound_bytes,
        )
        for c in ranked
    ]
    caption = f"Statistics in a manifest entry, bytes before compression, mean of {count(entry.files, 'entry', 'entries')}"
    return Grid(caption, columns, rows if entry.files else [], MOST_ROWS)


def _skipping(answer: MetricsColumns) -> Grid:
    columns = {
        "column": NAME,
        "kinds": TEXT("condition"),
        "now": FILES,
        "truncate_16": FILES("truncate(16)"),
        "shortest_mode": TEXT("shortest sufficient mode"),
        "with_shortest": FILES("with that mode"),
        "whole_bounds": FILES("full bounds"),
        "if_sorted": FILES("if sorted by the column"),
    }
    rows = [
        (
            s.column,
            ", ".join(sorted(s.kinds)) or None,
            s.now,
            s.by_mode[0][1] if s.by_mode else None,
            *(s.best or (None, None)),
            s.full,
            s.if_sorted,
        )
        for s in answer.skipping
    ]
    return Grid(f"Data files that the filters on a column read, of {answer.facts.data.file_count:,}", columns, rows, MOST_ROWS)


def _prefixes(answer: MetricsColumns) -> Grid:
    columns = {
        "column": NAME,
        "distinct": COUNT("different values"),
        "common": COUNT("shared prefix, characters"),
        "colliding_share": SHARE("values that share their first 16"),
        "needed": FIGURE("characters needed"),
    }
    ranked = sorted(answer.prefixes, key=lambda p: -p.colliding)
    rows = [(p.column, p.distinct, p.common, p.colliding, p.needed or f"over {LENGTHS[-1]}") for p in ranked]
    return Grid("Strings with a shared prefix, in a sample of rows", columns, rows, MOST_ROWS)


def _filters(answer: MetricsColumns) -> Grid:
    trial, columns = answer.trial, {"filter": NAME, "before": COUNT("now"), "after": COUNT("as advised")}
    caption = f"Data files that filters read on the clone, of {trial.total_files if trial else 0:,}, according to Iceberg's planner"
    return Grid(caption, columns, [(f.text, f.before, f.after) for f in trial.filters] if trial else [], MOST_ROWS)


def _carried(answer: MetricsColumns) -> list[str]:
    per = answer.facts.manifests.bytes_per_data_entry
    if per is None:
        return []
    counted = sum(bool(c.counted_files) for c in answer.entry.columns)
    return [
        f"The manifest entry of each data file has statistics of {counted:,} of {len(answer.facts.columns):,} columns ({size(per)} as stored, including its share of the manifest's header)."
    ]


def _gaps(answer: MetricsColumns) -> list[str]:
    """Columns past the limit of default metrics, and needed columns without bounds."""
    facts, kept = answer.facts, answer.entry.by_name
    said = []
    limit = facts.setting("write.metadata.metrics.max-inferred-column-defaults")
    bare = [c.name for c in facts.columns if c.metrics_mode == "none"]
    if limit is not None and facts.top_level_column_count > int(limit) and "write.metadata.metrics.default" not in facts.properties:
        said.append(
            f"The table has {facts.top_level_column_count:,} columns: {count(len(bare), 'column')} past the first {limit} get no metrics."
        )
    without = [(n, uses) for n, uses in answer.roles.items() if n in kept and not kept[n].bounded_files and answer.entry.files]
    if without:
        named = ", ".join(f"{name} ({', '.join(uses)})" for name, uses in without[:MOST_ROWS])
        said.append(f"Without bounds in every sampled file: {named}.")
    return said


def number(value: float | None) -> str:
    """A mean number of files, or a dash."""
    return "–" if value is None else f"{value:,.0f}" if value >= 100 or abs(value - round(value)) < 0.05 else f"{value:,.1f}"
