"""Select what would be rewritten now, for every command and page alike, and say why the rest
waits.
"""

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from operator import add

from icekit.common import frozen
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import ParameterError
from icekit.common.units import count
from icekit.health.diagnose.findings import Findings, Thresholds
from icekit.health.facts.model import TableFacts
from icekit.iceberg.file_kind import DELETE_KINDS, Kind
from icekit.iceberg.partition import Partition
from icekit.maintain.engine_prediction import Speed
from icekit.maintain.plan import Skipped, SkipReason
from icekit.maintain.planning.candidates import Candidate, candidates, has_filter, in_window
from icekit.maintain.prediction import Prediction

Limits = tuple[int | None, ...]


@frozen
class RewriteSelection:
    """The candidates for a rewrite: all that are ``found``, those ``chosen`` to be rewritten now,
    and the partitions ``skipped``, with reasons.

    ``limits`` are the bytes, files and rows that the plan may read; None is no limit.
    """

    found: tuple[Candidate, ...]
    chosen: tuple[Candidate, ...]
    skipped: tuple[Skipped, ...]
    limits: Limits

    @property
    def postponed(self) -> str:
        """Which partitions wait, why, and what rewriting them would save, as the end of a sentence;
        empty if none wait.
        """
        opens_found = sum(c.prediction.file_opens_saved for c in self.found)
        now = sum(c.prediction.file_opens_saved for c in self.chosen)
        reasons = "; ".join(skipped.count_and_reason for skipped in self.skipped)
        opens = count(opens_found - now, "file open")
        saved = f" Rewriting them would save each full scan {opens}." if opens_found > now else ""
        return f"{reasons}.{saved}" if reasons else ""


def select(
    facts: TableFacts,
    findings: Findings,
    policy: CompactionPolicy,
    thresholds: Thresholds,
    *,
    recent: Iterable[Partition] = (),
    speed: Speed | None = None,
    now: dt.datetime | None = None,
) -> RewriteSelection:
    """Choose what would be rewritten now, most file opens saved per byte first; pure.

    The one answer for health cards, reports, plans and compactions. ``recent`` are partitions
    written lately; ``speed`` is that of past runs, for a budget in minutes. Raises
    :class:`~icekit.common.errors.ParameterError` for a policy that does not fit the table.
    """
    all_candidates = candidates(facts, findings, policy, thresholds)
    if not all_candidates:
        return RewriteSelection((), (), (), (None, None, None))
    limits = _budget_bytes(policy, speed, all_candidates), policy.budget_files, policy.budget_rows
    held_partitions = _held(facts, all_candidates, policy, frozenset(recent))
    window = in_window(facts, policy, now or dt.datetime.now(dt.UTC))
    refused: dict[SkipReason, list[Partition]] = {}
    chosen_candidates: list[Candidate] = []
    read = Prediction().budget_figures
    for candidate in all_candidates:
        needed = tuple(map(add, read, candidate.prediction.budget_figures))
        is_selectable = candidate.mode in {"spec", "table"} or has_filter(
            facts, candidate.partitions
        )
        if window is not None and not window.issuperset(candidate.partitions):
            reason = SkipReason.OUTSIDE_WINDOW
        elif not held_partitions.isdisjoint(candidate.partitions):
            is_stated = policy.leave_alone_minutes is not None
            reason = SkipReason.RECENT if is_stated else SkipReason.LIKELY_CONFLICT
        elif not is_selectable:
            reason = SkipReason.NO_FILTER
        elif overrun(needed, limits) > 1:
            reason = SkipReason.OVER_BUDGET
        else:
            chosen_candidates.append(candidate)
            read = needed
            continue
        refused.setdefault(reason, []).extend(candidate.partitions)
    skipped = tuple(left(reason, partitions, facts) for reason, partitions in refused.items())
    return RewriteSelection(all_candidates, tuple(chosen_candidates), skipped, limits)


def overrun(needed: Sequence[float], limits: Limits) -> float:
    """The largest of some figures as a multiple of its limit."""
    return max(
        (n / max(limit, 1) for n, limit in zip(needed, limits, strict=True) if limit is not None),
        default=0.0,
    )


def _budget_bytes(
    policy: CompactionPolicy, speed: Speed | None, candidates: Sequence[Candidate]
) -> int | None:
    """What the plan may read: its budget in bytes or in time, whichever is smaller."""
    if policy.budget_minutes is None:
        return policy.budget_bytes
    if speed is None or speed.most_bytes < min(c.prediction.bytes_in for c in candidates):
        raise ParameterError(
            "A budget in minutes needs the speed of past runs of about this size, and the ledger "
            "has none. For the first run give the budget in bytes (budget: 200 GB)."
        )
    by_time = speed.bytes_within(policy.budget_minutes * 60)
    return by_time if policy.budget_bytes is None else min(policy.budget_bytes, by_time)


def left(reason: SkipReason, partitions: Sequence[Partition], facts: TableFacts) -> Skipped:
    """Partitions that are left alone for a reason, with the first three as examples."""
    examples = tuple(facts.partition_name(partition) for partition in partitions[:3])
    return Skipped(reason, len(partitions), examples)


#: A choice: a partition that was just written is left alone if a commit conflicts with its rewrite
# with this chance or more.
LIKELY_CONFLICT = 0.05
# What a rewrite takes at most; choices: seconds at least, and bytes per second.
_LEAST_SECONDS = 5.0
_ASSUMED_RATE = 32 * 2**20


def conflict_chance(facts: TableFacts, seconds: float) -> float:
    """The chance that a commit which deletes, overwrites or replaces files comes within
    ``seconds``; only such commits can conflict with a rewrite.

    Commits count as independent, at the table's usual rate; the commit may touch other files.
    """
    gap = facts.history.median_seconds_between_commits
    share = changing_share(facts)
    return 1 - math.exp(-seconds / gap * share) if gap and share else 0.0


def changing_share(facts: TableFacts) -> float:
    """The share of the last 100 commits that delete, overwrite or replace files.

    An upsert that removes no file adds only rows and equality deletes, which a rewrite at its
    starting sequence number leaves in force.
    """
    recent = facts.history.commits[-100:]
    upserts_alone = {kind for kind in DELETE_KINDS if facts.total(kind).file_count} == {
        Kind.EQUALITY_DELETES
    }
    changing = {"delete", "replace"} if upserts_alone else {"delete", "replace", "overwrite"}
    changed = sum(
        c.operation in changing or (c.operation == "overwrite" and bool(c.removed_data_files))
        for c in recent
    )
    return changed / len(recent) if recent else 0.0


def _held(
    facts: TableFacts,
    candidates: Sequence[Candidate],
    policy: CompactionPolicy,
    recent: frozenset[Partition],
) -> frozenset[Partition]:
    """The recently written partitions to leave alone: all that the policy names, or those with a
    likely conflict.
    """
    # A group may be hit from the start of its action to the commit.
    total_bytes = min(sum(c.prediction.bytes_in for c in candidates), policy.max_action_bytes)
    chance = conflict_chance(facts, max(_LEAST_SECONDS, total_bytes / _ASSUMED_RATE))
    is_held = policy.leave_alone_minutes is not None or chance >= LIKELY_CONFLICT
    return recent if is_held else frozenset()
