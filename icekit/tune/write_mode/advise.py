"""From a comparison to table properties. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from icekit.facts.model import TableFacts
from icekit.sql import Identifier, set_properties
from icekit.tune.advice import Advice
from icekit.tune.write_mode.history import WriteHistory
from icekit.tune.write_mode.model import Comparison, Costs, Variant, best_cycle, commits_until
from icekit.units import count, percent

#: What merge-on-read and copy-on-write are set by, one property per operation.
OPERATIONS = ("delete", "update", "merge")
_GRANULARITY = "write.delete.granularity"
_V3 = (
    "there is no way back to version 2, and every reader and writer of the table must support version 3 "
    "(Spark with Iceberg 1.8 or newer for deletion vectors; check Flink, Trino, Athena, Snowflake and pyiceberg, which reads but does not write it)"
)
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
    here = [c for c in comparison.costs if c.variant.format_version == current.format_version]
    found = [_mode(table, operation, current, comparison, here, reads, margin)]
    chosen = found[0].value or current.mode
    found += _granularity(table, facts, comparison, chosen, reads if reads is not None else 1.0, margin)
    if reads is not None and there is not None:
        found += _version(table, operation, comparison, here, current, reads, margin)
    found.append(_isolation(facts, operation, history))
    merging = [c for c in here if not c.variant.is_copy_on_write and c.variant.mode == chosen]
    if merging:
        cheapest = min(merging, key=lambda c: comparison.per_commit(c, reads or 0.0).total)
        found.append(_cadence(comparison, cheapest, reads))
    return tuple(found)


def _mode(
    table: Identifier, operation: str, current: Variant, comparison: Comparison, here: Sequence[Costs], reads: float | None, margin: float
) -> Advice:
    setting = f"write.{operation}.mode"
    even = _even(comparison, here)
    if reads is None:
        return Advice(
            setting, current.mode, current.mode, f"{even}. How often the table is read is not known: state reads_per_day to choose."
        )
    there = comparison.of(current)
    if there is None or not here:
        return Advice(setting, current.mode, current.mode, f"{even}. The mode in force was not measured, so nothing is advised.")
    winner = min(here, key=lambda c: comparison.per_commit(c, reads).total)
    base = reads * comparison.read_seconds
    before, after = (comparison.per_commit(c, reads).total + base for c in (there, winner))
    gain = 1 - after / before if before else 0.0
    said = f"{before:.2f} s a commit now, reads included, {after:.2f} s with {winner.variant.name}, at {reads:,.3g} reads a commit; {even}"
    if winner.variant.mode == current.mode or gain < margin:
        why = "it is the cheaper mode" if winner.variant.mode == current.mode else f"the gain of {percent(gain)} is under {percent(margin)}"
        return Advice(setting, current.mode, current.mode, f"Leave it as it is: {why} ({said}).")
    sql = set_properties(table, {setting: winner.variant.mode})
    return Advice(setting, current.mode, winner.variant.mode, f"Saves {percent(gain)} ({said}).", sql)


def _even(comparison: Comparison, here: Sequence[Costs]) -> str:
    found = Comparison(tuple(here), comparison.read_seconds, comparison.commits).main_break_even()
    if found is None:
        return "one of the two modes was not measured"
    _, rival, reads = found
    if math.isinf(reads):
        return "merge-on-read is the cheaper at any number of reads"
    if reads == 0:
        return "copy-on-write is the cheaper at any number of reads"
    return f"copy-on-write is the cheaper above {reads:,.3g} reads a commit, {rival.variant.name} below"


def _granularity(table: Identifier, facts: TableFacts, comparison: Comparison, mode: str, reads: float, margin: float) -> list[Advice]:
    per_file, per_partition = (comparison.of(Variant("merge-on-read", 2, kind)) for kind in ("file", "partition"))
    if facts.format_version >= 3 or mode != "merge-on-read" or per_file is None or per_partition is None:
        return []
    now = facts.properties.get(_GRANULARITY) or "file"
    costs = {"file": comparison.per_commit(per_file, reads).total, "partition": comparison.per_commit(per_partition, reads).total}
    best = min(costs, key=lambda kind: costs[kind])
    said = f"{costs['file']:.2f} s a commit per file, {costs['partition']:.2f} s per partition, at {reads:,.3g} reads a commit"
    if best == now or 1 - costs[best] / costs[now] < margin:
        return [Advice(_GRANULARITY, now, now, f"Leave it as it is ({said}).")]
    return [Advice(_GRANULARITY, now, best, f"Cheaper ({said}).", set_properties(table, {_GRANULARITY: best}))]


def _version(
    table: Identifier, operation: str, comparison: Comparison, here: Sequence[Costs], current: Variant, reads: float, margin: float
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
    now, value = str(current.format_version), str(best_newer.variant.format_version)
    if gain < margin:
        return [Advice("format-version", now, now, f"Leave it as it is: {said}.")]
    return [Advice("format-version", now, value, f"Saves {percent(gain)}: {said}.", set_properties(table, sets), _V3)]


def _isolation(facts: TableFacts, operation: str, history: WriteHistory) -> Advice:
    setting = f"write.{operation}.isolation-level"
    now = facts.setting(setting) or "serializable"
    if history.writer_count < 2:
        said = "Leave it as it is: the snapshots show one writer, which conflicts with nobody."
    else:
        said = (
            f"{count(history.writer_count, 'application')} changed rows of the table. Under serializable a commit fails when another has added rows that "
            "its condition might match; snapshot lets it pass, and is right only if missing such rows is."
        )
    return Advice(setting, now, now, said)


def _cadence(comparison: Comparison, costs: Costs, reads: float | None) -> Advice:
    until = commits_until(costs, comparison.read_seconds, READS_COST_MORE)
    more = f"a full scan costs {percent(READS_COST_MORE)} more"
    said = f"after {count(until, 'commit')} {more}" if until is not None else f"{more} at no number of commits that was considered"
    best = None
    if reads:
        best = best_cycle(costs, reads)
        said += f"; at {reads:,.3g} reads a commit, compacting every {count(best, 'commit')} costs least"
    return Advice("compaction", None, None if best is None and until is None else str(best or until), f"With {costs.variant.name}, {said}.")
