"""Apply the options of a compaction: the thresholds that they set, the findings that follow from
these, and which partitions count as recent.
"""

from typing import Any

from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.findings import Findings, Thresholds
from icekit.health.facts.head import RECENT_MINUTES
from icekit.health.facts.model import TableFacts


def thresholds_of(policy: CompactionPolicy, thresholds: Thresholds) -> Thresholds:
    """The thresholds of the findings, with those that the policy sets."""
    policy_values: dict[str, Any] = {}
    if policy.min_files is not None:
        policy_values["min_input_files"] = policy.min_files
    if policy.delete_ratio is not None:
        policy_values["delete_ratio"] = policy.delete_ratio
    return thresholds.with_changes(**policy_values)


def findings_of(
    policy: CompactionPolicy, facts: TableFacts, findings: Findings, thresholds: Thresholds
) -> Findings:
    """The findings, made again if the policy sets thresholds of its own: candidates are made only
    for findings.
    """
    policy_thresholds = thresholds_of(policy, thresholds)
    return findings if policy_thresholds == thresholds else diagnose(facts, policy_thresholds)


def recent_minutes(policy: CompactionPolicy) -> float:
    """How long ago a partition was written, at most, to count as recent."""
    leave_alone_minutes = policy.leave_alone_minutes
    return RECENT_MINUTES if leave_alone_minutes is None else leave_alone_minutes
