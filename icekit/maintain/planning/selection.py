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
from icekit.maintain.planning.candidates import (
    Candidate,
    candidates,
    has_filter,
    window_partitions,
)
from icekit.maintain.prediction import Prediction

BudgetLimits = tuple[int | None, ...]


@frozen
class RewriteSelection:
    """The candidates for a rewrite: all, those to rewrite now, and the partitions ``skipped``, with
    reasons.

    ``budget_limits`` are the bytes, files and rows that the plan may read; None is no limit.
    """

    all_candidates: tuple[Candidate, ...]
    selected_candidates: tuple[Candidate, ...]
    skipped: tuple[Skipped, ...]
    budget_limits: BudgetLimits

    @property
    def postponed_text(self) -> str:
        """Which partitions wait, why, and what rewriting them would save, as the end of a sentence;
        empty if none wait.
        """
        all_opens_saved = sum(c.prediction.file_opens_saved for c in self.all_candidates)
        opens_saved_now = sum(c.prediction.file_opens_saved for c in self.selected_candidates)
        reasons_text = "; ".join(skipped.count_and_reason for skipped in self.skipped)
        opens_text = count(all_opens_saved - opens_saved_now, "file open")
        saving_sentence = (
            f" Rewriting them would save each full scan {opens_text}."
            if all_opens_saved > opens_saved_now
            else ""
        )
        return f"{reasons_text}.{saving_sentence}" if reasons_text else ""


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
    budget_limits = (
        _budget_bytes(policy, speed, all_candidates),
        policy.budget_files,
        policy.budget_rows,
    )
    partitions_left_alone = _partitions_left_alone(facts, all_candidates, policy, frozenset(recent))
    partitions_in_window = window_partitions(facts, policy, now or dt.datetime.now(dt.UTC))
    partitions_by_reason: dict[SkipReason, list[Partition]] = {}
    selected_candidates: list[Candidate] = []
    selected_totals = Prediction().budget_figures
    for candidate in all_candidates:
        totals_with_candidate = tuple(
            map(add, selected_totals, candidate.prediction.budget_figures)
        )
        is_selectable = candidate.mode in {"spec", "table"} or has_filter(
            facts, candidate.partitions
        )
        if partitions_in_window is not None and not partitions_in_window.issuperset(
            candidate.partitions
        ):
            reason = SkipReason.OUTSIDE_WINDOW
        elif not partitions_left_alone.isdisjoint(candidate.partitions):
            has_stated_time = policy.leave_alone_minutes is not None
            reason = SkipReason.RECENT if has_stated_time else SkipReason.LIKELY_CONFLICT
        elif not is_selectable:
            reason = SkipReason.NO_FILTER
        elif overrun(totals_with_candidate, budget_limits) > 1:
            reason = SkipReason.OVER_BUDGET
        else:
            selected_candidates.append(candidate)
            selected_totals = totals_with_candidate
            continue
        partitions_by_reason.setdefault(reason, []).extend(candidate.partitions)
    skipped = tuple(
        skipped_partitions(reason, partitions, facts)
        for reason, partitions in partitions_by_reason.items()
    )
    return RewriteSelection(all_candidates, tuple(selected_candidates), skipped, budget_limits)


def overrun(read_figures: Sequence[float], budget_limits: BudgetLimits) -> float:
    """The largest of some figures as a multiple of its limit."""
    return max(
        (
            figure / max(limit, 1)
            for figure, limit in zip(read_figures, budget_limits, strict=True)
            if limit is not None
        ),
        default=0.0,
    )


def _budget_bytes(
    policy: CompactionPolicy, speed: Speed | None, candidates: Sequence[Candidate]
) -> int | None:
    """What the plan may read: its budget in bytes or in time, whichever is smaller."""
    if policy.budget_minutes is None:
        return policy.budget_bytes
    if speed is None or speed.max_known_bytes < min(c.prediction.bytes_in for c in candidates):
        raise ParameterError(
            "A budget in minutes needs the speed of past runs of about this size, and the ledger "
            "has none. For the first run give the budget in bytes (budget: 200 GB)."
        )
    bytes_in_time = speed.bytes_within(policy.budget_minutes * 60)
    return bytes_in_time if policy.budget_bytes is None else min(policy.budget_bytes, bytes_in_time)


def skipped_partitions(
    reason: SkipReason, partitions: Sequence[Partition], facts: TableFacts
) -> Skipped:
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
    seconds_between_commits = facts.history.median_seconds_between_commits
    conflicting_share = conflicting_commit_share(facts)
    return (
        1 - math.exp(-seconds / seconds_between_commits * conflicting_share)
        if seconds_between_commits and conflicting_share
        else 0.0
    )


def conflicting_commit_share(facts: TableFacts) -> float:
    """The share of the last 100 commits that delete, overwrite or replace files.

    An upsert that removes no file adds only rows and equality deletes, which a rewrite at its
    starting sequence number leaves in force.
    """
    recent_commits = facts.history.commits[-100:]
    has_only_equality_deletes = {kind for kind in DELETE_KINDS if facts.total(kind).file_count} == {
        Kind.EQUALITY_DELETES
    }
    conflicting_operations = (
        {"delete", "replace"} if has_only_equality_deletes else {"delete", "replace", "overwrite"}
    )
    conflicting_count = sum(
        commit.operation in conflicting_operations
        or (commit.operation == "overwrite" and bool(commit.removed_data_files))
        for commit in recent_commits
    )
    return conflicting_count / len(recent_commits) if recent_commits else 0.0


def _partitions_left_alone(
    facts: TableFacts,
    candidates: Sequence[Candidate],
    policy: CompactionPolicy,
    recent_partitions: frozenset[Partition],
) -> frozenset[Partition]:
    """The recently written partitions to leave alone: all that the policy names, or those with a
    likely conflict.
    """
    # A group may be hit from the start of its action to the commit.
    total_bytes = min(sum(c.prediction.bytes_in for c in candidates), policy.max_action_bytes)
    conflict_probability = conflict_chance(facts, max(_LEAST_SECONDS, total_bytes / _ASSUMED_RATE))
    is_left_alone = (
        policy.leave_alone_minutes is not None or conflict_probability >= LIKELY_CONFLICT
    )
    return recent_partitions if is_left_alone else frozenset()
