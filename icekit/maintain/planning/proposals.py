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
from icekit.maintain.planning.compaction import plan
from icekit.maintain.planning.conversion import forecast_facts, plan_conversion
from icekit.maintain.planning.maintenance import plan_maintenance
from icekit.maintain.planning.savings import Savings, savings_of
from icekit.maintain.policy import findings_of, recent_minutes
from icekit.maintain.prediction import total_of

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
        share = f", {percent(self.share)} of a full scan's cost" if self.share else ""
        return f"{self.gain}{share}"


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
                    f"{number}  {p.kind}: {_titles(p.findings)}",
                    [("gain", p.gain_and_share), ("cost", p.costs)],
                    [p.command],
                )
                for number, p in enumerate(self.proposals, 1)
            ),
            *(
                Item(f"By hand: {_titles([each.finding])}: {each.remedy}", (), each.sql)
                for each in self.by_hand
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
        reason = (waits or "no command helps now").rstrip(".")
        by_hand_text = (
            f"; {count(len(by_hand), 'finding')} to fix by hand, see below" if by_hand else ""
        )
        return f"{table}: {reason}{by_hand_text}."
    critical = [f.title for f in by_hand if f.severity is Severity.CRITICAL]
    first = f"critical, to fix by hand first: {', '.join(critical)}; then " if critical else ""
    best = max(proposals, key=lambda p: p.share or 0)
    gains = (
        f"; {best.kind} saves most: {percent(best.share)} of a full scan's cost"
        if best.share
        else ""
    )
    actions = count(len(proposals), "action is", "actions are")
    return f"{table}: {first}{actions} worthwhile{gains}. {waits or ''}".rstrip()


@frozen
class _Case:
    """The input for each kind of work; ``options`` go to commands, ``notes`` are collected."""

    lake: Lake
    facts: TableFacts
    findings: Findings
    savings: Savings
    options: str
    notes: list[str] = field(default_factory=list)


def propose(
    lake: Lake,
    facts: TableFacts,
    findings: Findings | None = None,
    *,
    thresholds: Thresholds | None = None,
    executor: Executor | str = "",
    policy: CompactionPolicy | None = None,
    options: str = "",
) -> Proposals:
    """Plan everything that findings ask for, from one observation: conversion, compaction,
    maintenance, settings.

    The compaction resolves equality deletes; they are converted only if it leaves their partitions
    alone and Spark's own read may not fit the heap of the ``executor`` (default: the session's).
    The compaction has the options of ``policy``. ``options`` are added to the commands of compact and
    maintain, so that they see the same findings. Figures are those of the metadata; the engine's
    planner is asked by the commands themselves. Starts Spark only for equality deletes, writes
    nothing, and raises the errors of :mod:`icekit.common.errors`.
    """
    limits = thresholds or Thresholds()
    if findings is None:
        findings = diagnose(facts, limits, session_conf=lake.session_conf())
    policy = policy or CompactionPolicy()
    compaction_findings = findings_of(policy, facts, findings, limits)
    savings = savings_of(facts, compaction_findings, limits, policy)
    case = _Case(lake, facts, findings, savings, options)
    proposals: list[Proposal] = []
    forecast = compaction = None
    if "equality_deletes" in findings.names and not facts.is_unreadable:
        forecast = forecast_facts(lake, facts, executor)
        case.notes.append(_sentence(forecast))
    if not facts.contradictions and not facts.unsupported_columns:
        speed = None
        if policy.budget_minutes is not None:
            from icekit.maintain.planning.table_plan import past_speed

            speed = past_speed(None, display_name(lake.sql_name(facts.table)))
        recent = _recent(case, policy)
        compaction = plan(facts, findings, policy, thresholds=limits, recent=recent, speed=speed)
    if forecast and forecast.verdict != "fits" and not (compaction and compaction.actions):
        proposals += _conversion(case, forecast)
    if compaction:
        proposals += _compaction(case, compaction, compaction_findings, policy)
    before = len(case.notes)
    proposals += _maintenance(case)
    # Findings that compact or maintain leave alone are in a note.
    explained = (COMPACTED if compaction else frozenset()) | (
        MAINTAINED.keys() if len(case.notes) > before else frozenset()
    )
    if not facts.unsupported_columns:
        proposals += _settings(facts, findings)
    waits = compaction.waits if compaction else None
    planned_findings = explained.union(*(p.findings for p in proposals))
    by_hand = [f for f in findings if f.name not in planned_findings]
    return Proposals(
        catalog=facts.catalog,
        table=facts.name,
        verdict=verdict(
            facts.name, proposals, by_hand, is_healthy=not (findings or proposals), waits=waits
        ),
        file_opens=case.savings.opens,
        delete_rows=case.savings.delete_rows,
        manifests=case.savings.manifests,
        proposals=tuple(proposals),
        by_hand=tuple(map(ByHand.of, by_hand)),
        notes=tuple(case.notes),
    )


def _sentence(forecast: HeapForecast) -> str:
    return (
        f"Equality deletes: an executor has {size(forecast.executor.heap_bytes)} of heap; to read "
        f"or rewrite the table, Spark itself needs about {size(forecast.needed_bytes)} "
        f"({forecast.verdict})."
    )


def _conversion(case: _Case, forecast: HeapForecast) -> list[Proposal]:
    try:
        conversion = plan_conversion(case.lake, case.facts.table)
    except (ClassicSessionRequired, ConversionRefused) as refused:
        case.notes.append(f"The equality deletes cannot be converted: {refused}")
        return []
    if not conversion.actions:
        return []
    total = conversion.prediction
    return [
        Proposal(
            "convert",
            ("equality_deletes",),
            f"{count(forecast.delete_record_count, 'equality delete record')} in "
            f"{count_with_verb(total.files_in, 'file', 'becomes', 'become')} position deletes, so that reading and "
            "rewriting the table need little heap",
            f"{size(total.bytes_in)} to read{total.duration_suffix}",
            conversion.command_with(),
            delete_rows_gone=0,
            seconds=total.seconds,
        )
    ]


def _recent(case: _Case, policy: CompactionPolicy) -> Iterable[Partition]:
    """The partitions written within the policy's time."""
    facts = case.facts
    if policy.leave_alone_minutes is None:
        return facts.recent
    table_head = head(case.lake, facts.table, facts.ref)
    read = case.lake.tables.source(facts.table).read
    return partitions_written_within(
        read, table_head, recent_minutes(policy), facts.collected_at_ms
    )


def _compaction(
    case: _Case, compaction: Plan, findings: Findings, policy: CompactionPolicy
) -> list[Proposal]:
    if compaction.waits is None:
        case.notes.extend(
            f"Skipped by compact: {a.count_and_reason}." for a in compaction.left_alone
        )
        if not policy.leave_alone and any(a.is_recent for a in compaction.left_alone):
            case.notes.append("To plan them anyway, add --leave-alone '0 minutes'.")
    if not compaction.actions:
        case.notes.extend(compaction.notes)
        return []
    savings = case.savings
    total = compaction.prediction
    opens = max(total.file_opens_saved, 0)
    dropped = sum(
        a.prediction.delete_files_removed for a in compaction.actions if a.only_drops_deletes
    )
    gains = {
        f"of {count(savings.opens, 'file open')} of a full scan saved": opens,
        "dangling delete files removed": dropped,
        f"of {count(savings.delete_rows, 'delete record')} no longer applied": savings.delete_rows_gone,
    }
    gained = ", ".join(f"{number:,} {what}" for what, number in gains.items() if number)
    return [
        Proposal(
            "compact",
            tuple(f.name for f in findings if f.name in COMPACTED),
            f"{total.certainty.number_prefix}{gained}"
            if gained
            else f"{count_with_verb(total.files_in, 'file', 'becomes', 'become')} {total.files_out:,}: filters can skip more",
            f"{size(total.bytes_in)} to rewrite{total.duration_suffix}",
            _command(
                compaction,
                "--trial",
                case.options,
                shlex.join(policy.words(CompactionPolicy)),
            ),
            file_opens_saved=opens,
            delete_rows_gone=savings.delete_rows_gone,
            rewrite_bytes=total.bytes_in,
            seconds=total.seconds,
            share=savings.share_of(
                opens * open_file_cost(case.facts) + max(total.bytes_in - total.bytes_out, 0)
            ),
        )
    ]


def _maintenance(case: _Case) -> list[Proposal]:
    facts = case.facts
    findings = case.findings
    if facts.ref or not MAINTAINED.keys() & findings.names:
        return []
    metadata = head(case.lake, facts.table).metadata
    now = dt.datetime.now(dt.UTC)
    maintenance = plan_maintenance(facts, findings, metadata=metadata, now=now)
    if maintenance.refused or not maintenance.actions:
        case.notes.extend(maintenance.notes)
    if not maintenance.actions:
        return []
    expiries = [action.expiry for action in maintenance.actions if action.expiry is not None]
    case.notes.extend(
        f"{capitalized(stay)}." for each in expiries for stay in each.staying_sentences
    )
    predictions = [action.prediction for action in maintenance.actions]
    change = {p.unit: total_of(predictions, p.unit) for p in predictions}
    opens = sum(p.file_opens_saved for p in change.values())
    rewritten = sum(p.bytes_in for p in change.values())
    planned_procedures = {action.procedure for action in maintenance.actions}
    travel = "; no more time travel to expired snapshots" if "snapshot" in change else ""
    return [
        Proposal(
            "maintain",
            tuple(f.name for f in findings if MAINTAINED.get(f.name) in planned_procedures),
            ", ".join(p.change_text for p in change.values()),
            f"{size(rewritten)} to rewrite{travel}",
            _command(maintenance, case.options),
            manifests_gone=total_of(predictions, "manifest").file_opens_saved,
            rewrite_bytes=rewritten,
            share=case.savings.share_of(opens * open_file_cost(facts)),
        )
    ]


def _settings(facts: TableFacts, findings: Findings) -> list[Proposal]:
    """A tune question for each setting that findings ask for, the most serious finding first."""
    findings_by_setting: dict[str, list[str]] = {}
    for finding in findings:
        if (question := TUNED.get(finding.name)) is not None:
            findings_by_setting.setdefault(question, []).append(finding.name)
    return [
        Proposal(
            "tune",
            tuple(names),
            "finds the setting that prevents these findings",
            "one trial on a clone or a sample; no setting changes",
            command_line(f"tune {question}", facts.catalog, facts.name)
            + (_lookups(facts) if question in _FILTERED else ""),
        )
        for question, names in findings_by_setting.items()
    ]


def _lookups(facts: TableFacts) -> str:
    """The filter columns as options, unless the table declares these itself."""
    if list(facts.filter_columns) == declared_filter_columns(facts.properties):
        return ""
    lookups = (lookup_of(facts.by_name[name]) for name in facts.filter_columns)
    return "".join(f" --filter {shlex.quote(lookup)}" for lookup in lookups if lookup)


def _command(plan: Plan, *options: str) -> str:
    return " ".join(filter(None, [plan.command_with(), *options]))


def _titles(names: Sequence[str]) -> str:
    return ", ".join(name.replace("_", " ") for name in names)
