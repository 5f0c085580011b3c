"""What the question about metrics came to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from icekit.tune.answer import Answer, Shown
from icekit.tune.filters import Filters
from icekit.tune.metrics_columns.model import LENGTHS, EntryBytes, Prefix, Skipping, Trial, files_said
from icekit.units import count, percent, shorten, size


@dataclass(frozen=True, repr=False)
class MetricsColumns(Answer):
    """Which columns have metrics, what they cost and skip, and what to set.

    ``entry`` are the bytes in sampled manifests, ``roles`` what columns are needed for, by name; ``trial`` is None where there
    was nothing to try. ``notes`` say in sentences what could not be told.
    """

    question: ClassVar[str] = "metrics-columns"

    entry: EntryBytes
    roles: dict[str, tuple[str, ...]]
    filters: Filters
    skipping: tuple[Skipping, ...]
    prefixes: tuple[Prefix, ...]
    trial: Trial | None
    notes: tuple[str, ...]

    def summary(self) -> str:
        """The answer in a few sentences."""
        facts, entry = self.facts, self.entry
        if not facts.data.file_count:
            return "Nothing to change: the table has no data files, so no statistics are kept or missed yet."
        counted = sum(bool(c.counted_files) for c in entry.columns)
        per = facts.manifests.bytes_per_data_entry
        said = f"Each data file carries statistics of {counted:,} of {len(facts.columns):,} columns in its manifest entry" + (
            f" ({size(per)} as stored, its share of the manifest's header included)." if per is not None else "."
        )
        changes = [a for a in self.advice if a.is_change]
        if not self.filters.filters:
            return f"{said} What queries filter by is not known, so nothing is advised: declare icekit.filter-columns, or give filters."
        if not changes:
            return f"Leave it as it is. {said}"
        trial = self.trial
        shown = ""
        if trial is not None and trial.shrinks is not None:
            shown = f" On a clone manifests became {percent(abs(trial.shrinks))} {'smaller' if trial.shrinks >= 0 else 'larger'}"
            if trial.reads is not None:
                before, after = trial.reads
                shown += f", and a filter reads {files_said(after)} on average instead of {number(before)}"
            shown += "."
        return f"{said} Set {count(sum(len(a.properties) > 0 for a in changes), 'setting')} as below.{shown}"

    def tables(self) -> list[Shown]:
        """Columns by bytes, files read by column and mode, beginnings of texts, filters on the clone."""
        return [t for t in (_columns(self), _skipping(self), _prefixes(self), _filters(self)) if t.rows]

    def basis(self) -> list[str]:
        """What the answer rests on and what limits it."""
        said = [*self.notes, *_gaps(self)]
        sampled = max((s.sampled for s in self.skipping), default=0)
        if sampled:
            scaled = "" if sampled >= self.facts.data.file_count else ", scaled to all of them"
            said.append(
                f"'Now' is by Iceberg's own planner; other bounds are simulated on what the footers of {count(sampled, 'data file')} say{scaled}, another order on sampled rows."
            )
        if self.entry.gone_bytes:
            said.append(
                f"{size(self.entry.gone_bytes)} of each entry are statistics of columns that the table has no more; a rewrite of the data files drops them."
            )
        trial = self.trial
        if trial is not None and trial.before is not None:
            said.append(
                f"The trial wrote the manifest entries of {count(trial.files, 'data file')} anew, with the metrics that Iceberg takes from their footers under the advised settings; "
                f"{size(trial.before.header_bytes)} of each version are headers, which no setting shortens."
            )
        return said

    def figures(self) -> dict[str, Any]:
        """What was measured: bytes and seconds, unrounded."""
        modes = {c.name: c.metrics_mode for c in self.facts.columns}
        return {
            "manifests": asdict(self.facts.manifests) | {"overlaps": len(self.facts.manifests.overlaps)},
            "entry": asdict(self.entry)
            | {
                "columns": [
                    asdict(c) | {"mode": modes.get(c.column), "roles": list(self.roles.get(c.column, ()))} for c in self.entry.columns
                ]
            },
            "filters": [{"text": f.text, "weight": f.weight, "origin": f.origin, "columns": list(f.columns)} for f in self.filters.filters],
            "skipping": [
                asdict(s) | {"kinds": sorted(s.kinds), "by_mode": dict(s.by_mode), "full": s.full, "best": s.best[0] if s.best else None}
                for s in self.skipping
            ],
            "prefixes": [asdict(p) for p in self.prefixes],
            "trial": None
            if self.trial is None
            else asdict(self.trial) | {"shrinks": self.trial.shrinks, "entry_bytes": self.trial.entry_bytes},
            "notes": list(self.notes),
        }


#: Rows of a table.
MOST_ROWS = 20
_TEXT = 60


def _columns(answer: MetricsColumns) -> Shown:
    entry, columns = answer.entry, {c.name: c for c in answer.facts.columns}
    ranked = sorted(entry.columns, key=lambda c: (c.column not in answer.roles, -c.size_in_bytes))
    rows = [
        (
            shorten(c.column, 40),
            columns[c.column].type,
            columns[c.column].metrics_mode,
            ", ".join(answer.roles.get(c.column, ())) or "–",
            f"{c.bounded_files:,} of {entry.files:,}",
            f"{c.count_bytes:,.0f}",
            f"{c.bound_bytes:,.0f}",
        )
        for c in ranked[:MOST_ROWS]
    ]
    if len(ranked) > MOST_ROWS and entry.files:
        rest = ranked[MOST_ROWS:]
        bare = sum(not c.counted_files for c in rest)
        rows.append(
            (
                count(len(rest), "other"),
                "",
                f"{bare:,} without",
                "–",
                "",
                f"{sum(c.count_bytes for c in rest):,.0f}",
                f"{sum(c.bound_bytes for c in rest):,.0f}",
            )
        )
    head = ("column", "type", "mode for new files", "needed as", "files with bounds", "bytes of counts", "bytes of bounds")
    caption = f"Statistics in a manifest entry, bytes before compression, mean of {count(entry.files, 'entry', 'entries')}"
    return Shown(caption, head, tuple(rows) if entry.files else (), frozenset({0, 1, 2, 3}))


def _skipping(answer: MetricsColumns) -> Shown:
    rows = tuple(
        (
            shorten(s.column, 40),
            ", ".join(sorted(s.kinds)) or "–",
            number(s.now),
            number(s.by_mode[0][1] if s.by_mode else None),
            _best(s),
            number(s.full),
            number(s.if_sorted),
        )
        for s in answer.skipping[:MOST_ROWS]
    )
    head = ("column", "asked by", "now", "truncate(16)", "shortest enough", "whole bounds", "if sorted by it")
    return Shown(f"Data files that the filters on a column read, of {answer.facts.data.file_count:,}", head, rows, frozenset({0, 1}))


def _best(skip: Skipping) -> str:
    return f"{skip.best[0]}: {number(skip.best[1])}" if skip.best is not None else "–"


def _prefixes(answer: MetricsColumns) -> Shown:
    rows = tuple(
        (
            shorten(p.column, 40),
            f"{p.distinct:,}",
            f"{p.common:,}",
            percent(p.colliding),
            f"{p.needed:,}" if p.needed else f"over {LENGTHS[-1]}",
        )
        for p in sorted(answer.prefixes, key=lambda p: -p.colliding)[:MOST_ROWS]
    )
    head = ("column", "different values", "characters all share", "alike in the first 16", "characters needed")
    return Shown("How alike texts begin, in a sample of rows", head, rows)


def _filters(answer: MetricsColumns) -> Shown:
    if answer.trial is None:
        return Shown("", (), ())
    rows = tuple((shorten(f.text, _TEXT), f"{f.before:,}", f"{f.after:,}") for f in answer.trial.filters[:MOST_ROWS])
    caption = f"Data files that filters read on the clone, of {answer.trial.total_files:,}, by Iceberg's planner"
    return Shown(caption, ("filter", "as it is", "as advised"), rows)


def _gaps(answer: MetricsColumns) -> list[str]:
    """Columns past the limit of inferred metrics, and columns that are needed and have no bounds."""
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
