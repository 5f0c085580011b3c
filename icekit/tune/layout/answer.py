"""The answer: how filters find a table's partitions, files and row groups, and what to change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from icekit.tune.answer import Answer, Shown
from icekit.tune.layout.advise import OLD_DATA, ORDER, SPEC
from icekit.tune.layout.model import BloomCheck, BloomTrial, Candidate, Level, Orders, Sizing, Tried, Worn
from icekit.units import count, percent, size


@dataclass(frozen=True, repr=False)
class Layout(Answer):
    """What filters read of a table now, of other layouts on a sample, and of the one that was tried; see :func:`tune_layout`.

    ``share_now`` is the share of the data bytes that the filters read, by weight: by Iceberg's planner, or by the sample where
    ``is_measured`` is false. ``notes`` say what was left out and why.
    """

    question: ClassVar[str] = "layout"

    levels: tuple[Level, ...]
    share_now: float
    is_measured: bool
    sampled_rows: int
    orders: Orders
    candidates: tuple[Candidate, ...]
    worn: tuple[Worn, ...]
    blooms: tuple[BloomCheck, ...]
    bloom_trials: tuple[BloomTrial, ...]
    sizing: Sizing | None
    tried: Tried | None
    notes: tuple[str, ...]

    def summary(self) -> str:
        """The answer in a few sentences."""
        facts = self.facts
        if not self.levels:
            said = "No filters are known, so nothing can be said of partitions and order: give some, or declare columns (icekit.filter-columns)."
            return f"{said} {_others(self)}".strip()
        now = f"These filters read {percent(self.share_now)} of {size(facts.data.size_in_bytes)} in {count(facts.data.file_count, 'data file')}"
        how = "" if self.is_measured else ", by the sample"
        changes = {a.setting: a for a in self.advice if a.is_change or a.proposed != a.current}
        parts = []
        if SPEC in changes:
            parts.append(f"partition by {changes[SPEC].proposed}")
        if ORDER in changes:
            parts.append(f"order by {changes[ORDER].proposed}")
        elif OLD_DATA in changes:
            parts.append("sort the worn partitions again" if self.worn else "rewrite old data")
        if not parts:
            return f"{now}{how}. Partitions and order can stay. {_others(self)}".strip()
        then = f", and {percent(self.tried.share_after)} when tried" if self.tried is not None else ""
        return f"{now}{how}{then}: {' and '.join(parts)}. {_others(self)}".strip()

    def tables(self) -> Sequence[Shown]:
        """What filters read, the orders, the specs, worn partitions, bloom filters."""
        return [shown for shown in (_levels(self), _orders(self), _specs(self), _worn(self), _blooms(self)) if shown.rows]

    def basis(self) -> Sequence[str]:
        """What was sampled, and what was left out."""
        found = []
        if self.levels:
            found.append(
                f"Orders and specs were compared on {count(self.sampled_rows, 'row')}; what filters read now is "
                f"{'by Iceberg planning them' if self.is_measured else 'by the sample, as Iceberg could not be asked to plan'}."
            )
        ignored = [level.text for level in self.levels if level.is_ignored_by_spec]
        if ignored and not self.facts.default_spec.is_unpartitioned:
            found.append(f"The partitioning rules nothing out for: {'; '.join(ignored[:5])}{' …' if len(ignored) > 5 else ''}.")
        old = {g.partition.spec_id for g in self.facts.groups} - {self.facts.default_spec_id}
        if old:
            found.append(f"Some data files are still in older specs ({', '.join(map(str, sorted(old)))}) and are pruned by those.")
        if self.sizing is not None and self.sizing.heap_bytes is None:
            found.append("A task's memory is not known (spark.executor.cores is not set), so row groups are not judged by it.")
        return [*found, *self.notes]

    def figures(self) -> dict[str, Any]:
        """What was measured: shares of the data bytes, bytes, files, rows."""
        return {
            "share_now": self.share_now,
            "is_measured": self.is_measured,
            "sampled_rows": self.sampled_rows,
            "levels": [asdict(level) for level in self.levels],
            "orders": asdict(self.orders),
            "specs": [{"name": c.name, **asdict(c)} for c in self.candidates],
            "worn": [asdict(w) for w in self.worn],
            "blooms": [asdict(b) for b in self.blooms],
            "bloom_trials": [asdict(t) for t in self.bloom_trials],
            "sizing": asdict(self.sizing) if self.sizing else None,
            "tried": asdict(self.tried) if self.tried else None,
            "notes": list(self.notes),
        }


#: Rows of a table of filters or specs.
_MOST = 12
_DASH = "–"


def _others(answer: Layout) -> str:
    others = [a for a in answer.advice if a.is_change and a.setting not in {SPEC, ORDER, OLD_DATA}]
    return f"Also to set: {', '.join(a.setting for a in others)}." if others else "" if answer.is_change else "Leave it as it is."


def _share(share: float | None) -> str:
    return _DASH if share is None else percent(share)


def _number(number: float | None) -> str:
    return _DASH if number is None else f"{number:,.3g}"


def _levels(answer: Layout) -> Shown:
    rows = [
        (
            level.text if len(level.text) <= 60 else f"{level.text[:59]}…",
            f"{level.weight:,.4g}",
            "ignored" if level.is_ignored_by_spec and not answer.facts.default_spec.is_unpartitioned else _share(level.partition_share),
            _DASH if level.manifests is None else f"{level.manifests:,.3g} of {level.manifests + (level.skipped_manifests or 0):,.3g}",
            _number(level.files),
            _share(level.file_share),
        )
        for level in answer.levels[:_MOST]
    ]
    left = f"; the {_MOST} most frequent of {len(answer.levels):,}" if len(answer.levels) > _MOST else ""
    head = ("filter", "weight", "bytes left by partitions", "manifests read", "data files", "bytes left by bounds")
    return Shown(f"What filters read now (means of the lookups that stand for one without values{left})", head, tuple(rows))


def _orders(answer: Layout) -> Shown:
    orders = answer.orders
    if not orders.steps:
        return Shown("", (), ())

    def found() -> Iterator[tuple[str, ...]]:
        yield ("–", "rows as they came", percent(orders.as_they_came), "")
        if orders.own is not None:
            yield ("–", "the order that is set", percent(orders.own), "")
        for number, step in enumerate(orders.steps, 1):
            for order, share in step.shares:
                mark = "← pays up to here" if orders.best is not None and order == orders.best.order else ""
                yield (f"{number}", order.name if order.kind != "sort" else f"sort by {order.name}", percent(share), mark)

    coarse = ", told from fewer, larger files than there are" if orders.is_coarse else ""
    return Shown(f"Orders on the sample{coarse}", ("columns", "order", "bytes read", ""), tuple(found()), frozenset({1, 3}))


def _specs(answer: Layout) -> Shown:
    if not answer.candidates:
        return Shown("", (), ())
    here, *others = answer.candidates
    best = sorted(others, key=lambda c: (not c.fits, c.share))[: _MOST - 1]
    rows = [
        (
            f"{c.name} (now)" if c is here else c.name,
            percent(c.share),
            f"{c.spread.partitions:,}",
            size(c.spread.mean_bytes),
            size(c.spread.largest_bytes),
            "" if c.fits else "too small",
        )
        for c in (here, *best)
    ]
    head = ("partition spec", "bytes read", "partitions", "mean", "largest", "")
    return Shown("Partition specs on the sample, rows ordered within", head, tuple(rows), frozenset({0, 5}))


def _worn(answer: Layout) -> Shown:
    rows = [(w.path or "the table", f"{w.files:,}", size(w.size_in_bytes), f"{w.depth:.1f}") for w in answer.worn[:_MOST]]
    return Shown("Partitions where the order has worn off", ("partition", "data files", "bytes", "files a lookup opens"), tuple(rows))


def _blooms(answer: Layout) -> Shown:
    rows = [
        (t.column, f"{t.lookups:,}", f"{t.rows_without:,}", f"{t.rows_with:,}", size(t.bytes_without), size(t.bytes_with))
        for t in answer.bloom_trials
    ]
    head = ("bloom filter on", "lookups", "rows read without", "with", "data without", "with")
    return Shown("Bloom filters as tried", head, tuple(rows))
