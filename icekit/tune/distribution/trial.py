"""Try each distribution mode with the same rows, with what was predicted beside what was made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from icekit.facts.files import Kind
from icekit.facts.sizes import min_file_size
from icekit.facts.where import transformed
from icekit.sql import Identifier
from icekit.tune.advisory_size.chain import DISTRIBUTION_SESSION, Chain
from icekit.tune.advisory_size.source import Source
from icekit.tune.advisory_size.trial import insert, said
from icekit.tune.advisory_size.written import Written, write
from icekit.tune.budget import Budget
from icekit.tune.distribution.modes import HASH, MODES, NONE, RANGE
from icekit.tune.distribution.predict import ROLLS_AT, Predicted, Spread, predict

if TYPE_CHECKING:
    from icekit.catalog import Lake
    from icekit.facts.model import TableFacts


@dataclass(frozen=True, slots=True)
class Tried:
    """A mode with what it was predicted to make (None: not predicted) and what it made."""

    mode: str
    predicted: Predicted | None
    written: Written


@dataclass(frozen=True, slots=True)
class ModeTrial:
    """The modes tried with the rows of one commit; ``in_force`` is the one that the operation has now."""

    operation: str
    described: str
    in_force: str
    spread: Spread | None
    tried: tuple[Tried, ...]

    def of(self, mode: str) -> Tried | None:
        """What a mode came to; None if it was not tried."""
        return next((t for t in self.tried if t.mode == mode), None)


def spread_of(lake: Lake, facts: TableFacts, source: Source, target_bytes: int, budget: Budget) -> Spread:
    """Count the pairs of task and partition that have rows, as the writer would meet them; one row comes back."""
    terms = [transformed(facts.catalog, field, facts.columns) for field in facts.default_spec.fields]
    parts = ", ".join(t for t in terms if t is not None)
    place = f"xxhash64({parts})" if parts else "0L"
    width = row_bytes(facts)
    cut = max(1.0, ROLLS_AT * target_bytes)
    with budget.watching(lake.spark):
        row = lake.spark.sql(
            f"""SELECT coalesce(max(t), -1) + 1 AS tasks, count(*) AS partitions, coalesce(sum(n), 0) AS rows, coalesce(sum(pairs), 0) AS pairs,
                  coalesce(sum(f), 0) AS none_files, coalesce(sum(ceil(n * {width} / {cut})), 0) AS hash_files, max(n) AS most
                FROM (SELECT p, max(t) AS t, count(*) AS pairs, sum(n) AS n, sum(ceil(n * {width} / {cut})) AS f
                      FROM (SELECT spark_partition_id() AS t, {place} AS p, count(*) AS n FROM ({source.sql}) GROUP BY 1, 2) GROUP BY p)"""
        ).collect()[0]
    rows = int(row.rows)
    return Spread(
        int(row.tasks),
        int(row.partitions),
        rows,
        int(row.pairs),
        int(row.none_files),
        int(row.hash_files),
        int(row.most or 0) / rows if rows else 0.0,
        width,
    )


def row_bytes(facts: TableFacts) -> float:
    """What a row takes in a file of a good size: small files are footers for the most part. All files tell where there are no others."""
    buckets = [b for g in facts.of_kind(Kind.DATA) for b in g.buckets]
    good = [b for b in buckets if b.min_bytes >= min_file_size(facts.target_bytes) and b.record_count] or buckets
    return max(1.0, sum(b.size_in_bytes for b in good) / max(sum(b.record_count for b in good), 1))


def try_modes(
    lake: Lake, facts: TableFacts, place: Identifier, source: Source, chain: Chain, budget: Budget, progress: Callable[[str], None]
) -> ModeTrial:
    """Write the same rows under each mode that the table can have; the session's mode is lent, so that it wins over the table's."""
    spread = spread_of(lake, facts, source, facts.target_bytes, budget)
    made: dict[str, Written] = {}
    sql = insert(lake, place, source)
    for mode in possible(facts):
        made[mode] = write(
            lake, place, sql, facts.target_bytes, budget, settings={DISTRIBUTION_SESSION: mode}, expected_bytes=source.size_in_bytes
        )
        progress(f"{mode}: {said(made[mode])}")
    # The ratio of a shuffle that was seen; Iceberg's guess until one was.
    ratio = next((w.ratio for w in made.values() if w.ratio), None) or chain.ratio
    predicted = {p.mode: p for p in predict(spread, chain, ratio)}
    tried = tuple(Tried(mode, predicted[mode], written) for mode, written in made.items())
    return ModeTrial("append", source.described, chain.mode, spread, tried)


def try_statement(
    lake: Lake,
    facts: TableFacts,
    open_place: Callable[[], Identifier],
    operation: str,
    described: str,
    statement: Callable[[Identifier], str],
    now: str,
    delete_only: bool,
    budget: Budget,
    progress: Callable[[str], None],
) -> ModeTrial:
    """Run a row-level statement under none, hash and range, each at a place of its own, as each changes the rows."""
    target = facts.int_setting("write.delete.target-file-size-bytes") if delete_only else facts.target_bytes
    found = []
    for mode in MODES:
        place = open_place()
        written = write(lake, place, statement(lake.sql_name(place)), target, budget, settings={DISTRIBUTION_SESSION: mode})
        progress(f"{operation} under {mode}: {said(written)}, {written.delete_files:,} delete files")
        # A shuffle in the search for what changes is none of the writer's.
        found.append(Tried(mode, None, replace(written, shuffle=None) if mode == NONE else written))
    return ModeTrial(operation, described, now, None, tuple(found))


def possible(facts: TableFacts) -> tuple[str, ...]:
    """The modes that differ for appends: hash needs a partitioning, range a partitioning or an order."""
    partitioned, ordered = not facts.default_spec.is_unpartitioned, bool(facts.sort_order)
    return (NONE, *((HASH,) if partitioned else ()), *((RANGE,) if partitioned or ordered else ()))
