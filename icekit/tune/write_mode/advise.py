"""From a comparison to table properties. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from icekit.facts.model import TableFacts
from icekit.sql import Identifier, set_properties
from icekit.tune.advice import Advice, to_set
from icekit.tune.write_mode.history import WriteHistory
from icekit.tune.write_mode.model import MAX_CYCLE, Comparison, Costs, Variant, best_cycle, commits_until, even_sentence
from icekit.units import count, percent

_GRANULARITY = "write.delete.granularity"
_V3 = (
    "there is no way back to version 2, and every reader and writer of the table must support version 3 "
    "(Spark with Iceberg 1.8 or newer for deletion vectors; check Flink, Trino, Athena, Snowflake and pyiceberg, which reads but does not write it)"
)
_V2 = "merge-on-read needs format version 2: there is no way back to version 1, and its readers must support deletes"
#: Reads that cost this much more call for a compaction.
READS_COST_MORE = 0.25


def current_variant(facts: TableFacts, operation: str) -> Variant:
    """How the table writes an operation now."""
    mode = facts.setting(f"write.{operation}.mode") or "copy-on-write"
    version = max(facts.format_version, 2)
    if mode == "copy-on-write" or version >= 3:
        return Variant(mode, version)
    # The property's default says partition, but Spark writes per file unless it is set (SparkWriteConf).
    return Variant(mode, version, facts.properties.get(_GRANULARITY) or "file")


def advise(
    facts: TableFacts,
    table: Identifier,
    history: WriteHistory,
    comparison: Comparison,
    operation: str,
    reads: float | None,
    *,
    margin: float,
) -> tuple[Advice, ...]:
    """What to set for an operation; ``table`` is named with its catalog, ``reads`` are those per commit.

    Without ``reads`` the modes stay as they are, and the break-even says when they should not.
    """
    current = current_variant(facts, operation)
    there = comparison.of(current)
    within = comparison.within(current.format_version)
    here = within.costs
    found = [_mode(table, facts, operation, current, within, reads, margin)]
    chosen = found[0].proposed or current.mode
    if reads is not None:
        found += _granularity(table, facts, comparison, chosen, reads, margin)
    if reads is not None and there is not None:
        found += _version(table, facts, operation, comparison, here, current, reads, margin)
    found.append(_isolation(facts, operation, history))
    merging = [c for c in here if not c.variant.is_copy_on_write and c.variant.mode == chosen]
    if merging:
        cheapest = min(merging, key=lambda c: comparison.per_commit(c, reads or 0.0).total)
        found.append(_cadence(comparison, cheapest, reads))
    return tuple(found)


def _mode(
    table: Identifier, facts: TableFacts, operation: str, current: Variant, comparison: Comparison, reads: float | None, margin: float
) -> Advice:
    setting = f"write.{operation}.mode"
    even = even_sentence(comparison).rstrip(".")
    if reads is None:
        return Advice(
            setting, current.mode, current.mode, f"{even}. How often the table is read is not known: state reads_per_day to choose."
        )
    there = comparison.of(current)
    if there is None:
        return Advice(setting, current.mode, current.mode, f"{even}. The mode in force was not measured, so nothing is advised.")
    winner = comparison.winner(reads)
    base = reads * comparison.read_seconds
    before, after = (comparison.per_commit(c, reads).total + base for c in (there, winner))
    gain = 1 - after / before if before else 0.0
    said = f"{before:.2f} s a commit now, reads included, {after:.2f} s with {winner.variant.name}, at {reads:,.3g} reads a commit; {even}"
    if winner.variant.mode == current.mode or gain < margin:
        why = "it is the cheaper mode" if winner.variant.mode == current.mode else f"the gain of {percent(gain)} is under {percent(margin)}"
        return Advice(setting, current.mode, current.mode, f"Leave it as it is: {why} ({said}).")
    sets = {setting: winner.variant.mode}
    if facts.format_version < 2 and not winner.variant.is_copy_on_write:
        sets = {"format-version": "2", **sets}
    breaks = _V2 if len(sets) > 1 else None
    saves = f"Saves {percent(gain)} ({said})."
    return to_set(table, facts.properties, sets, current=current.mode, evidence=saves, breaks=breaks)


def _granularity(table: Identifier, facts: TableFacts, comparison: Comparison, mode: str, reads: float, margin: float) -> list[Advice]:
    per_file, per_partition = (comparison.of(Variant("merge-on-read", 2, kind)) for kind in ("file", "partition"))
    if facts.format_version >= 3 or mode != "merge-on-read" or per_file is None or per_partition is None:
        return []
    now = facts.properties.get(_GRANULARITY) or "file"
    base = reads * comparison.read_seconds
    costs = {k: base + comparison.per_commit(c, reads).total for k, c in (("file", per_file), ("partition", per_partition))}
    best = min(costs, key=lambda kind: costs[kind])
    said = (
        f"{costs['file']:.2f} s a commit per file, {costs['partition']:.2f} s per partition, reads included, at {reads:,.3g} reads a commit"
    )
    if best == now or 1 - costs[best] / costs[now] < margin:
        return [Advice(_GRANULARITY, now, now, f"Leave it as it is ({said}).")]
    return [to_set(table, facts.properties, {_GRANULARITY: best}, current=now, evidence=f"Cheaper ({said}).")]


def _version(
    table: Identifier,
    facts: TableFacts,
    operation: str,
    comparison: Comparison,
    here: Sequence[Costs],
    current: Variant,
    reads: float,
    margin: float,
) -> list[Advice]:
    newer = [c for c in comparison.costs if c.variant.format_version > current.format_version]
    if not newer or not here:
        return []
    base = reads * comparison.read_seconds
    best_here, best_newer = (min(some, key=lambda c: comparison.per_commit(c, reads).total) for some in (here, newer))
    before, after = (comparison.per_commit(c, reads).total + base for c in (best_here, best_newer))
    gain = 1 - after / before if before else 0.0
    said = f"{best_here.variant.name} costs {before:.2f} s a commit, reads included, {best_newer.variant.name} {after:.2f} s"
    # The saving is of the mode in the new version.
    sets = {"format-version": str(best_newer.variant.format_version), f"write.{operation}.mode": best_newer.variant.mode}
    now, value = str(facts.format_version), str(best_newer.variant.format_version)
    if gain < margin:
        return [Advice("format-version", now, now, f"Leave it as it is: {said}.")]
    return [
        Advice(
            "format-version",
            now,
            value,
            f"Instead of any other mode above: saves {percent(gain)} ({said}).",
            set_properties(table, sets),
            breaks=_V3,
            is_alternative=True,
        )
    ]


def _isolation(facts: TableFacts, operation: str, history: WriteHistory) -> Advice:
    setting = f"write.{operation}.isolation-level"
    now = facts.setting(setting) or "serializable"
    runs = f"The snapshots name {count(history.writer_count, 'application')} (runs of one job count apiece)"
    said = (
        f"Leave it as it is. {runs}. Under serializable a commit fails when another one has meanwhile added rows that its condition might match; "
        "snapshot lets it pass, and is right only if missing such rows is."
    )
    return Advice(setting, now, now, said)


def _cadence(comparison: Comparison, costs: Costs, reads: float | None) -> Advice:
    until = commits_until(costs, comparison.read_seconds, READS_COST_MORE)
    more = f"a read costs {percent(READS_COST_MORE)} more"
    said = f"after {count(until, 'commit')} {more}" if until is not None else f"{more} at no number of commits that was considered"
    best = best_cycle(costs, reads) if reads else None
    if best == MAX_CYCLE:
        best, said = None, f"{said}; at {reads:,.3g} reads a commit compacting does not pay within {MAX_CYCLE:,} commits"
    elif best is not None:
        said += f"; at {reads:,.3g} reads a commit, compacting every {count(best, 'commit')} costs least"
    value = best or until
    return Advice("compaction", None, None if value is None else f"every {count(value, 'commit')}", f"With {costs.variant.name}, {said}.")
