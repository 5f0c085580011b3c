"""Propose what is worth doing on a table, of all kinds, in the order to do it; reads only metadata
and runs nothing.
"""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from icekit.answer.view import Block, Item, Sentence, Shown
from icekit.catalog import Lake
from icekit.compact.equality_deletes.plan import forecast_facts, plan_conversion
from icekit.compact.model import Plan, Prediction
from icekit.compact.plan import plan
from icekit.compact.policy import Policy
from icekit.diagnose import diagnose
from icekit.diagnose.findings import COMPACTED, MAINTAINED, Finding, Findings, Severity, Thresholds
from icekit.diagnose.heap import HeapForecast
from icekit.engine.cluster import Executor
from icekit.errors import ClassicSessionRequired, ConversionRefused
from icekit.facts.collect import declared_filter_columns
from icekit.facts.files import Partition
from icekit.facts.head import head, written_within
from icekit.facts.model import TableFacts
from icekit.facts.where import lookup_of
from icekit.maintain.plan import plan_maintenance
from icekit.maintain.savings import Savings, wins
from icekit.units import count, percent, size

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
SCHEMA_VERSION = 2


@dataclass(frozen=True, slots=True)
class Proposal:
    """One thing worth doing: the findings it fixes, what it gains and costs in words and figures,
    and its command.

    ``share`` is the share of a full scan's cost that it saves (0.1 is 10 %), as in
    :class:`~icekit.maintain.savings.Savings`. Unknown figures are None.
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


@dataclass(frozen=True, slots=True)
class ByHand:
    """A finding that no command of icekit fixes."""

    finding: str
    severity: str
    remedy: str
    sql: Sequence[str]


@dataclass(frozen=True, slots=True)
class ProposalsDocument:
    """The JSON document of proposals; docs/json.md explains its fields."""

    schema_version: int
    catalog: str
    table: str
    verdict: str
    file_opens: int
    delete_rows: int
    manifests: int
    proposals: Sequence[Proposal]
    by_hand: Sequence[ByHand]
    forecast: str | None
    notes: Sequence[str]


@dataclass(frozen=True, repr=False)
class Proposals(Shown):
    """Everything worth doing on a table, in the order to do it, and the findings that no command of
    icekit fixes.

    ``file_opens``, ``delete_rows`` and ``manifests`` are the totals of one full scan; ``forecast``
    is about equality deletes; ``left_alone`` partitions would be compacted, but were written
    recently; ``waits`` is the sentence of a compaction that leaves all candidates alone.
    """

    catalog: str
    table: str
    proposals: tuple[Proposal, ...]
    by_hand: tuple[Finding, ...]
    findings: int
    file_opens: int
    delete_rows: int
    manifests: int
    forecast: str | None = None
    notes: tuple[str, ...] = ()
    left_alone: int = 0
    waits: str | None = None

    @property
    def verdict(self) -> str:
        """The verdict, in one sentence."""
        if not self.findings:
            return f"{self.table} is healthy: nothing to do."
        if not self.proposals:
            rest = (
                f"; {count(len(self.by_hand), 'finding')} to fix by hand, see below"
                if self.by_hand
                else ""
            )
            if self.waits:
                return f"{self.table}: {self.waits.rstrip('.')}{rest}."
            return f"{self.table}: no command helps now{self._waits}{rest}."
        grave = [f.title for f in self.by_hand if f.severity is Severity.CRITICAL]
        first = f"critical, to fix by hand first: {', '.join(grave)}; then " if grave else ""
        number = (
            f"{self.table}: {first}{count(len(self.proposals), 'action is', 'actions are')} "
            f"worthwhile{self._waits}"
        )
        best = max(self.proposals, key=lambda p: p.share or 0)
        return f"{number}; {best.kind} gains most: {best.gain}." if best.share else f"{number}."

    @property
    def _waits(self) -> str:
        return (
            f"; compaction is postponed for {count(self.left_alone, 'partition')} that were just "
            "written"
            if self.left_alone
            else ""
        )

    def document(self) -> ProposalsDocument:
        """The document that ``icekit plan --json`` prints."""
        return ProposalsDocument(
            SCHEMA_VERSION,
            self.catalog,
            self.table,
            self.verdict,
            self.file_opens,
            self.delete_rows,
            manifests=self.manifests,
            proposals=self.proposals,
            by_hand=[
                ByHand(f.name, f.severity.name.lower(), f.remedy, f.sql) for f in self.by_hand
            ],
            forecast=self.forecast,
            notes=self.notes,
        )

    def blocks(self) -> list[Block]:
        """The verdict, each proposal with its gain, cost and command, and what is left to fix by
        hand.
        """
        return [
            Sentence(self.verdict, is_strong=True),
            *(
                Item(
                    f"{number}  {p.kind}: {_titles(p.findings)}",
                    [("gain", p.gain), ("cost", p.costs)],
                    [p.command],
                )
                for number, p in enumerate(self.proposals, 1)
            ),
            *(Item(f"By hand: {f.title}: {f.remedy}", (), f.sql) for f in self.by_hand),
            *map(Sentence, (*filter(None, [self.forecast]), *self.notes)),
        ]


@dataclass(frozen=True)
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
    leave_alone: str = "",
    options: str = "",
) -> Proposals:
    """Plan everything that findings ask for, from one observation: conversion, compaction,
    maintenance, settings.

    The compaction resolves equality deletes; they are converted only if it leaves their partitions
    alone and Spark's own read may not fit the heap of the ``executor`` (default: the session's).
    Partitions written within ``leave_alone`` ("2 hours"; default: 60 minutes, and only if a commit
    is likely to conflict) are not compacted. ``options`` are added to the commands of compact and
    maintain, so that they see the same findings. Figures are those of the metadata; the engine's
    planner is asked by the commands themselves. Starts Spark only for equality deletes, writes
    nothing, and raises the errors of :mod:`icekit.errors`.
    """
    limits = thresholds or Thresholds()
    if findings is None:
        findings = diagnose(facts, limits, session_conf=lake.session_conf())
    case = _Case(lake, facts, findings, wins(facts, findings, limits), options)
    proposals: list[Proposal] = []
    has_equality_deletes = "equality_deletes" in findings.names
    forecast = forecast_facts(lake, facts, executor) if has_equality_deletes else None
    compaction = None
    if not facts.contradictions:
        policy = Policy.of({"leave_alone": leave_alone})
        compaction = plan(facts, findings, policy, thresholds=limits, recent=_recent(case, policy))
    is_large = forecast is not None and forecast.verdict != "fits"
    if forecast and is_large and not (compaction and compaction.actions):
        proposals += _conversion(case, forecast)
    proposals += _compaction(case, compaction, leave_alone) if compaction else []
    before = len(case.notes)
    proposals += _maintenance(case)
    # Findings that compact or maintain leave alone are in a note.
    explained = (COMPACTED if compaction else frozenset()) | (
        MAINTAINED.keys() if len(case.notes) > before else frozenset()
    )
    proposals += _settings(facts, findings)
    if compaction and compaction.waits and proposals:
        case.notes.append(compaction.waits)
    planned = explained.union(*(p.findings for p in proposals))
    return Proposals(
        catalog=facts.catalog,
        table=facts.name,
        proposals=tuple(proposals),
        by_hand=tuple(f for f in findings if f.name not in planned),
        findings=len(findings),
        file_opens=case.savings.opens,
        delete_rows=case.savings.delete_rows,
        manifests=case.savings.manifests,
        forecast=None if forecast is None else _said(forecast),
        notes=tuple(case.notes),
        left_alone=compaction.recent_partitions if compaction else 0,
        waits=compaction.waits if compaction else None,
    )


def _said(forecast: HeapForecast) -> str:
    return (
        f"Equality deletes: an executor has {size(forecast.executor.heap_bytes)} of heap; to read "
        f"or rewrite the table, Spark itself needs about {size(forecast.needed_bytes)} "
        f"({forecast.verdict})."
    )


def _conversion(case: _Case, forecast: HeapForecast) -> list[Proposal]:
    try:
        plan = plan_conversion(case.lake, case.facts.table)
    except (ClassicSessionRequired, ConversionRefused) as refused:
        case.notes.append(f"The equality deletes cannot be converted: {refused}")
        return []
    if not plan.actions:
        return []
    total = plan.prediction
    now = "does not fit" if forecast.verdict == "will not fit" else "may not fit"
    return [
        Proposal(
            "convert",
            ("equality_deletes",),
            f"{count(forecast.delete_record_count, 'equality delete record')} in "
            f"{count(total.files_in, 'file')} become position deletes, so that reading and "
            f"rewriting the table need little heap (Spark's own read or rewrite {now} the "
            "executor's)",
            f"{size(total.bytes_in)} to read{total.about}",
            plan.command_with("--execute"),
            delete_rows_gone=0,
            seconds=total.seconds,
        )
    ]


def _recent(case: _Case, policy: Policy) -> Sequence[Partition]:
    """The partitions written within the policy's time."""
    if policy.leave_alone_minutes is None:
        return case.facts.recent
    at = head(case.lake, case.facts.table, case.facts.ref)
    return tuple(
        written_within(
            case.lake, case.facts.table, at, policy.recent_minutes, case.facts.collected_at_ms
        )
    )


def _compaction(case: _Case, compaction: Plan, leave_alone: str) -> list[Proposal]:
    if compaction.waits is None:
        case.notes.extend(f"Skipped by compact: {a.text}." for a in compaction.left_alone)
    if not compaction.actions:
        case.notes.extend(compaction.notes)
    if compaction.recent_partitions and not (leave_alone or compaction.waits):
        case.notes.append("To plan them anyway, add --leave-alone '0 minutes'.")
    if not compaction.actions:
        return []
    given = shlex.join(["--leave-alone", leave_alone]) if leave_alone else ""
    savings, total = case.savings, compaction.prediction
    rows = savings.delete_rows_gone
    dropped = sum(a.prediction.delete_files_removed for a in compaction.actions if a.only_drops)
    share = _share(
        total.file_opens_saved * savings.open_file_cost + max(total.bytes_in - total.bytes_out, 0),
        savings,
    )
    most = "at most " if total.is_maximum else ""
    return [
        Proposal(
            "compact",
            tuple(f.name for f in case.findings if f.name in COMPACTED),
            _list(
                f"{most}{total.file_opens_saved:,} of {count(savings.opens, 'file open')} of a "
                "full scan saved"
                if total.file_opens_saved
                else "",
                f"{count(dropped, 'dangling delete file')} removed" if dropped else "",
                f"{rows:,} of {count(savings.delete_rows, 'delete row')} no longer applied"
                if rows
                else "",
                f"{percent(share)} of the scan's cost saved" if share else "",
            ),
            f"{size(total.bytes_in)} to rewrite{total.about}",
            _command(compaction, case.options, given),
            file_opens_saved=total.file_opens_saved,
            delete_rows_gone=rows,
            rewrite_bytes=total.bytes_in,
            seconds=total.seconds,
            share=share,
        )
    ]


def _maintenance(case: _Case) -> list[Proposal]:
    findings, savings = case.findings, case.savings
    if case.facts.ref or not MAINTAINED.keys() & findings.names:
        return []
    metadata = head(case.lake, case.facts.table).metadata
    maintenance = plan_maintenance(
        case.facts, findings, metadata=metadata, now=dt.datetime.now(dt.UTC)
    )
    if not maintenance.actions:
        case.notes.extend(f"Skipped by maintain: {note}" for note in maintenance.notes)
        return []
    change: dict[str, Prediction] = {}
    for action in maintenance.actions:
        p = action.prediction
        change[p.unit] = change.get(p.unit, Prediction(unit=p.unit)) + p
    gone = {unit: max(p.files_in - p.files_out, 0) for unit, p in change.items()}
    manifests = gone.get("manifest", 0)
    share = _share((manifests + gone.get("delete file", 0)) * savings.open_file_cost, savings)
    rewritten = sum(p.bytes_in for p in change.values())
    planned = {action.procedure for action in maintenance.actions}
    return [
        Proposal(
            "maintain",
            tuple(f.name for f in findings if MAINTAINED.get(f.name) in planned),
            _list(
                *(
                    f"{count(p.files_in, unit)} become {p.files_out:,}"
                    for unit, p in change.items()
                    if unit != "snapshot"
                ),
                f"{gone['snapshot']:,} of {count(change['snapshot'].files_in, 'snapshot')} expire"
                if "snapshot" in change
                else "",
                f"{percent(share)} of a full scan's cost saved" if share else "",
            ),
            (f"{size(rewritten)} to rewrite" if rewritten else "nothing to rewrite")
            + ("; no more time travel to expired snapshots" if "snapshot" in change else ""),
            _command(maintenance, case.options),
            manifests_gone=manifests,
            rewrite_bytes=rewritten,
            share=share,
        )
    ]


def _settings(facts: TableFacts, findings: Findings) -> list[Proposal]:
    """A tune question for each setting that findings ask for, the most serious finding first."""
    asked: dict[str, list[str]] = {}
    for finding in findings:
        if (question := TUNED.get(finding.name)) is not None:
            asked.setdefault(question, []).append(finding.name)
    catalog = "" if facts.catalog == "lake" else f" --catalog {shlex.quote(facts.catalog)}"
    return [
        Proposal(
            "tune",
            tuple(names),
            "finds the setting that prevents these findings",
            "one trial on a clone or a sample; no setting changes",
            f"icekit tune {question} {shlex.quote(facts.name)}{catalog}"
            + (_lookups(facts) if question in _FILTERED else ""),
        )
        for question, names in asked.items()
    ]


def _lookups(facts: TableFacts) -> str:
    """The filter columns as options, unless the table declares these itself."""
    if list(facts.filter_columns) == declared_filter_columns(facts.properties):
        return ""
    lookups = (lookup_of(facts.by_name[name]) for name in facts.filter_columns)
    return "".join(f" --filter {shlex.quote(lookup)}" for lookup in lookups if lookup)


def _command(plan: Plan, *options: str) -> str:
    return " ".join(filter(None, [plan.command_with("--execute"), *options]))


def _share(saved: int, savings: Savings) -> float | None:
    return min(saved / savings.scan_cost, 1.0) if savings.scan_cost and saved else None


def _list(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _titles(names: Sequence[str]) -> str:
    return ", ".join(name.replace("_", " ") for name in names)
