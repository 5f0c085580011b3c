"""Propose what is worth doing on a table, of all kinds, in the order to do it; reads only metadata
and runs nothing.
"""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from icekit.common import frozen
from icekit.common.command_line import command_line
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import ClassicSessionRequired, ConversionRefused
from icekit.common.sql import display_name
from icekit.common.units import capitalized, count, count_with_verb, percent, size
from icekit.common.view import Block, Item, Sentence, Shown
from icekit.engine.cluster import Executor
from icekit.engine.lake import Lake
from icekit.health.collect import declared_filter_columns
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.findings import (
    COMPACTED,
    MAINTAINED,
    Finding,
    Findings,
    Severity,
    Thresholds,
)
from icekit.health.facts.head import head, partitions_written_within
from icekit.health.facts.heap import HeapForecast
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import open_file_cost
from icekit.iceberg.partition import Partition
from icekit.iceberg.where import lookup_of
from icekit.maintain.plan import Plan
from icekit.maintain.planning.compaction import plan_selection
from icekit.maintain.planning.conversion import forecast_facts, plan_conversion
from icekit.maintain.planning.maintenance import plan_maintenance
from icekit.maintain.planning.savings import Savings, savings_of_selection
from icekit.maintain.planning.selection import select
from icekit.maintain.planning.table_plan import past_speed
from icekit.maintain.policy import findings_of, recent_minutes, thresholds_of
from icekit.maintain.prediction import total_of
from icekit.maintain.record.ledger import Ledger

#: Findings that come back unless a setting changes, each with the ``icekit tune`` question that
# finds the setting.
TUNED = {
    "small_files": "file-sizes",
    "distribution_mode": "file-sizes",
    "position_deletes": "write-mode",
    "deletion_vectors": "write-mode",
    "metrics_missing": "metrics-columns",
    "columns_past_metrics_limit": "metrics-columns",
    "too_many_metrics": "metrics-columns",
    "unclustered_filter_columns": "layout",
    "skewed_partitions": "layout",
    "over_partitioned": "layout",
}
#: The questions that depend on what queries filter by.
_FILTERED = {"metrics-columns", "layout"}

#: Incremented when a field of the JSON document changes its meaning or is removed.
SCHEMA_VERSION = 3


@frozen
class Proposal:
    """One thing worth doing: the findings it fixes, what it gains and costs in words and figures,
    and its command.

    ``share`` is the share of a full scan's cost that it saves (0.1 is 10 %), as in
    :class:`~icekit.maintain.planning.savings.Savings`. Unknown figures are None.
    """

    kind: Literal["convert", "compact", "maintain", "tune"]
    findings: tuple[str, ...]
    gain: str
    costs: str
    command: str
    file_opens_saved: int | None = None
    delete_rows_gone: int | None = None
    manifests_gone: int | None = None
    rewrite_bytes: int | None = None
    seconds: float | None = None
    share: float | None = None

    @property
    def gain_and_share(self) -> str:
        """The gain, with its share of a full scan's cost."""
        share_text = f", {percent(self.share)} of a full scan's cost" if self.share else ""
        return f"{self.gain}{share_text}"


@frozen
class ByHand:
    """A finding that no command of icekit fixes."""

    finding: str
    severity: str
    remedy: str
    sql: Sequence[str]

    @classmethod
    def of(cls, finding: Finding) -> ByHand:
        """From a finding."""
        return cls(finding.name, str(finding.severity), finding.remedy, finding.sql)


@dataclass(frozen=True, repr=False, kw_only=True)
class Proposals(Shown):
    """Everything worth doing on a table, in the order to do it, and the findings that no command of
    icekit fixes; docs/json.md explains the fields.

    ``file_opens``, ``delete_rows`` and ``manifests`` are the totals of one full scan.
    """

    schema_version: int = SCHEMA_VERSION
    catalog: str
    table: str
    verdict: str
    file_opens: int
    delete_rows: int
    manifests: int
    proposals: tuple[Proposal, ...]
    by_hand: tuple[ByHand, ...]
    notes: tuple[str, ...] = ()

    def document(self) -> Proposals:
        """The document that ``icekit plan --json`` prints."""
        return self

    def blocks(self) -> list[Block]:
        """The verdict, each proposal with its gain, cost and command, and what is left to fix by
        hand.
        """
        return [
            Sentence(self.verdict, is_strong=True),
            *(
                Item(
                    f"{proposal_number}  {proposal.kind}: {_titles(proposal.findings)}",
                    [("gain", proposal.gain_and_share), ("cost", proposal.costs)],
                    [proposal.command],
                )
                for proposal_number, proposal in enumerate(self.proposals, 1)
            ),
            *(
                Item(f"By hand: {_titles([finding.finding])}: {finding.remedy}", (), finding.sql)
                for finding in self.by_hand
            ),
            *map(Sentence, self.notes),
        ]


def verdict(
    table: str,
    proposals: Sequence[Proposal],
    by_hand: Sequence[Finding],
    *,
    is_healthy: bool = False,
    waits: str | None = None,
) -> str:
    """What is worth doing, in one sentence; ``waits`` is the sentence of a compaction that leaves
    all candidates alone.
    """
    if is_healthy:
        return f"{table} is healthy: nothing to do."
    if not proposals:
        waiting_reason = (waits or "no command helps now").rstrip(".")
        by_hand_text = (
            f"; {count(len(by_hand), 'finding')} to fix by hand, see below" if by_hand else ""
        )
        return f"{table}: {waiting_reason}{by_hand_text}."
    critical_titles = [
        finding.title for finding in by_hand if finding.severity is Severity.CRITICAL
    ]
    critical_text = (
        f"critical, to fix by hand first: {', '.join(critical_titles)}; then "
        if critical_titles
        else ""
    )
    best_proposal = max(proposals, key=lambda proposal: proposal.share or 0)
    best_share_text = (
        f"; {best_proposal.kind} saves most: {percent(best_proposal.share)} of a full scan's cost"
        if best_proposal.share
        else ""
    )
    actions_text = count(len(proposals), "action is", "actions are")
    summary = f"{table}: {critical_text}{actions_text} worthwhile{best_share_text}."
    return f"{summary} {waits}" if waits else summary


@frozen
class _Case:
    """What each kind of work is planned from; ``command_options`` go to commands, ``notes`` are
    collected.
    """

    lake: Lake
    facts: TableFacts
    findings: Findings
    savings: Savings
    command_options: str
    notes: list[str] = field(default_factory=list)


def propose(
    lake: Lake,
    facts: TableFacts,
    findings: Findings | None = None,
    *,
    thresholds: Thresholds | None = None,
    executor: Executor | str = "",
    policy: CompactionPolicy | None = None,
    command_options: str = "",
    ledger: Ledger | str | None = None,
) -> Proposals:
    """Plan everything that findings ask for, from one observation: conversion, compaction,
    maintenance, settings.

    The compaction resolves equality deletes; they are converted only if it leaves their partitions
    alone and Spark's own read may not fit the heap of the ``executor`` (default: the session's).
    The compaction has the options of ``policy``. ``command_options`` are added to the commands of
    compact and maintain, so that they see the same findings. The ``ledger`` has the speed of past
    runs, for a budget in minutes. Figures are those of the metadata; the
    engine's planner is asked by the commands themselves. Starts Spark only for equality deletes,
    writes nothing, and raises the errors of :mod:`icekit.common.errors`.
    """
    thresholds = thresholds or Thresholds()
    if findings is None:
        findings = diagnose(facts, thresholds, session_conf=lake.session_conf())
    policy = policy or CompactionPolicy()
    policy_thresholds = thresholds_of(policy, thresholds)
    policy_findings = findings_of(policy, facts, findings, thresholds)
    is_rewritable = not facts.contradictions and not facts.unsupported_columns
    recent: Iterable[Partition] = ()
    speed = None
    if is_rewritable:
        recent = _recent_partitions(lake, facts, policy)
        if policy.budget_minutes is not None:
            speed = past_speed(ledger, display_name(lake.sql_name(facts.table)))
    selection = select(
        facts, policy_findings, policy, policy_thresholds, recent=recent, speed=speed
    )
    savings = savings_of_selection(facts, policy_findings, selection)
    case = _Case(lake, facts, findings, savings, command_options)
    proposals: list[Proposal] = []
    forecast = compaction_plan = None
    if "equality_deletes" in findings.names and not facts.has_unreadable_columns:
        forecast = forecast_facts(lake, facts, executor)
        case.notes.append(_heap_sentence(forecast))
    if is_rewritable:
        compaction_plan = plan_selection(
            facts, policy_findings, policy, policy_thresholds, selection
        )
    if (
        forecast
        and forecast.verdict != "fits"
        and not (compaction_plan and compaction_plan.actions)
    ):
        proposals += _conversion_proposals(case, forecast)
    if compaction_plan:
        proposals += _compaction_proposals(case, compaction_plan, policy_findings, policy)
    note_count = len(case.notes)
    proposals += _maintenance_proposals(case)
    # Findings that compact or maintain leave alone are in a note.
    explained_findings = (COMPACTED if compaction_plan else frozenset()) | (
        MAINTAINED.keys() if len(case.notes) > note_count else frozenset()
    )
    if not facts.unsupported_columns:
        proposals += _tune_proposals(facts, findings)
    waiting_reason = compaction_plan.waits if compaction_plan else None
    planned_findings = explained_findings.union(*(proposal.findings for proposal in proposals))
    by_hand_findings = [finding for finding in findings if finding.name not in planned_findings]
    return Proposals(
        catalog=facts.catalog,
        table=facts.name,
        verdict=verdict(
            facts.name,
            proposals,
            by_hand_findings,
            is_healthy=not (findings or policy_findings or proposals),
            waits=waiting_reason,
        ),
        file_opens=case.savings.scan_opens,
        delete_rows=case.savings.scan_delete_rows,
        manifests=case.savings.scan_manifests,
        proposals=tuple(proposals),
        by_hand=tuple(map(ByHand.of, by_hand_findings)),
        notes=tuple(case.notes),
    )


def _heap_sentence(forecast: HeapForecast) -> str:
    return (
        f"Equality deletes: an executor has {size(forecast.executor.heap_bytes)} of heap; to read "
        f"or rewrite the table, Spark itself needs about {size(forecast.needed_bytes)} "
        f"({forecast.verdict})."
    )


def _conversion_proposals(case: _Case, forecast: HeapForecast) -> list[Proposal]:
    try:
        conversion_plan = plan_conversion(case.lake, case.facts.table)
    except (ClassicSessionRequired, ConversionRefused) as refused:
        case.notes.append(f"The equality deletes cannot be converted: {refused}")
        return []
    if not conversion_plan.actions:
        return []
    prediction = conversion_plan.prediction
    return [
        Proposal(
            "convert",
            ("equality_deletes",),
            f"{count(forecast.delete_record_count, 'equality delete record')} in "
            f"{count_with_verb(prediction.files_in, 'file', 'becomes', 'become')} position deletes, "
            "so that reading and rewriting the table need little heap",
            f"{size(prediction.bytes_in)} to read{prediction.duration_suffix}",
            conversion_plan.command_with(),
            delete_rows_gone=0,
            seconds=prediction.seconds,
        )
    ]


def _recent_partitions(
    lake: Lake, facts: TableFacts, policy: CompactionPolicy
) -> Iterable[Partition]:
    """The partitions written within the policy's time."""
    if policy.leave_alone_minutes is None:
        return facts.recent
    table_head = head(lake, facts.table, facts.ref)
    read = lake.tables.source(facts.table).read
    return partitions_written_within(
        read, table_head, recent_minutes(policy), facts.collected_at_ms
    )


def _compaction_proposals(
    case: _Case, compaction_plan: Plan, findings: Findings, policy: CompactionPolicy
) -> list[Proposal]:
    if compaction_plan.waits is None:
        case.notes.extend(
            f"Skipped by compact: {a.count_and_reason}." for a in compaction_plan.left_alone
        )
        if not policy.leave_alone and any(a.is_recent for a in compaction_plan.left_alone):
            case.notes.append("To plan them anyway, add --leave-alone '0 minutes'.")
    if not compaction_plan.actions:
        case.notes.extend(compaction_plan.notes)
        return []
    savings = case.savings
    prediction = compaction_plan.prediction
    opens_saved = max(prediction.file_opens_saved, 0)
    dropped_count = sum(
        a.prediction.delete_files_removed for a in compaction_plan.actions if a.only_drops_deletes
    )
    delete_records_text = count(savings.scan_delete_rows, "delete record")
    gain_counts = {
        f"of {count(savings.scan_opens, 'file open')} of a full scan saved": opens_saved,
        "dangling delete files removed": dropped_count,
        f"of {delete_records_text} no longer applied": savings.delete_rows_gone,
    }
    gain_text = ", ".join(
        f"{gain_count:,} {gain_words}"
        for gain_words, gain_count in gain_counts.items()
        if gain_count
    )
    if gain_text:
        gain_text = f"{prediction.certainty.number_prefix}{gain_text}"
    else:
        files_become_text = count_with_verb(prediction.files_in, "file", "becomes", "become")
        gain_text = f"{files_become_text} {prediction.files_out:,}: filters can skip more"
    return [
        Proposal(
            "compact",
            tuple(finding.name for finding in findings if finding.name in COMPACTED),
            gain_text,
            f"{size(prediction.bytes_in)} to rewrite{prediction.duration_suffix}",
            _command_text(
                compaction_plan,
                "--trial",
                case.command_options,
                shlex.join(policy.option_words(CompactionPolicy)),
            ),
            file_opens_saved=opens_saved,
            delete_rows_gone=savings.delete_rows_gone,
            rewrite_bytes=prediction.bytes_in,
            seconds=prediction.seconds,
            share=savings.share_of(
                opens_saved * open_file_cost(case.facts)
                + max(prediction.bytes_in - prediction.bytes_out, 0)
            ),
        )
    ]


def _maintenance_proposals(case: _Case) -> list[Proposal]:
    facts = case.facts
    findings = case.findings
    if facts.ref or not MAINTAINED.keys() & findings.names:
        return []
    metadata = head(case.lake, facts.table).metadata
    now = dt.datetime.now(dt.UTC)
    maintenance_plan = plan_maintenance(facts, findings, metadata=metadata, now=now)
    if maintenance_plan.refused or not maintenance_plan.actions:
        case.notes.extend(maintenance_plan.notes)
    if not maintenance_plan.actions:
        return []
    expiries = [action.expiry for action in maintenance_plan.actions if action.expiry is not None]
    case.notes.extend(
        f"{capitalized(sentence)}." for expiry in expiries for sentence in expiry.staying_sentences
    )
    predictions = [action.prediction for action in maintenance_plan.actions]
    totals_by_unit = {
        prediction.unit: total_of(predictions, prediction.unit) for prediction in predictions
    }
    opens_saved = sum(prediction.file_opens_saved for prediction in totals_by_unit.values())
    rewritten_bytes = sum(prediction.bytes_in for prediction in totals_by_unit.values())
    planned_procedures = {action.procedure for action in maintenance_plan.actions}
    time_travel_text = (
        "; no more time travel to expired snapshots" if "snapshot" in totals_by_unit else ""
    )
    return [
        Proposal(
            "maintain",
            tuple(
                finding.name
                for finding in findings
                if MAINTAINED.get(finding.name) in planned_procedures
            ),
            ", ".join(prediction.change_text for prediction in totals_by_unit.values()),
            f"{size(rewritten_bytes)} to rewrite{time_travel_text}",
            _command_text(maintenance_plan, case.command_options),
            manifests_gone=total_of(predictions, "manifest").file_opens_saved,
            rewrite_bytes=rewritten_bytes,
            share=case.savings.share_of(opens_saved * open_file_cost(facts)),
        )
    ]


def _tune_proposals(facts: TableFacts, findings: Findings) -> list[Proposal]:
    """A tune question for each setting that findings ask for, the most serious finding first."""
    names_by_question: dict[str, list[str]] = {}
    for finding in findings:
        if (question := TUNED.get(finding.name)) is not None:
            names_by_question.setdefault(question, []).append(finding.name)
    return [
        Proposal(
            "tune",
            tuple(finding_names),
            "finds the setting that prevents these findings",
            "one trial on a clone or a sample; no setting changes",
            command_line(f"tune {question}", facts.catalog, facts.name)
            + (_lookup_options(facts) if question in _FILTERED else ""),
        )
        for question, finding_names in names_by_question.items()
    ]


def _lookup_options(facts: TableFacts) -> str:
    """The filter columns as options, unless the table declares these itself."""
    if list(facts.filter_columns) == declared_filter_columns(facts.properties):
        return ""
    lookup_texts = (lookup_of(facts.by_name[column_name]) for column_name in facts.filter_columns)
    return "".join(f" --filter {shlex.quote(lookup)}" for lookup in lookup_texts if lookup)


def _command_text(plan: Plan, *options: str) -> str:
    return " ".join(filter(None, [plan.command_with(), *options]))


def _titles(finding_names: Sequence[str]) -> str:
    return ", ".join(finding_name.replace("_", " ") for finding_name in finding_names)
