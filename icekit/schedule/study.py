"""Find each table's rule and whether it is due; observe it, plan what the rule asks for, share one budget among many tables; runs nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from icekit.catalog import Lake
from icekit.catalog.lake import DeadlineExceeded, in_time
from icekit.compact import candidates, plan_table
from icekit.compact.candidates import Candidate
from icekit.compact.model import Plan, Policy
from icekit.compact.outcome import RUN_TAG
from icekit.diagnose import diagnose
from icekit.diagnose.findings import Findings
from icekit.engine.interrupting import Stop
from icekit.errors import EXIT_CRASHED, IcekitError, nearest
from icekit.facts import observe
from icekit.facts.metadata import Json, choose_snapshot, int_setting, lineage, settings, snapshots_by_id
from icekit.facts.model import TableFacts
from icekit.facts.rollup import min_file_size
from icekit.report import FactsCache
from icekit.schedule.policy import Compact, Convert, Maintain, PassBudget, Rule, SchedulePolicy, Trigger, begins, until
from icekit.sql import Identifier, display_name, matches, pattern_levels
from icekit.units import count, span


@dataclass(frozen=True, slots=True)
class Watermark:
    """What the last finished pass of a table saw: its snapshot then, and the time, in milliseconds since 1970.

    ``left_id`` is the snapshot that the pass left, after icekit's own commits; None if it made none, or if unknown.
    """

    table_uuid: str | None
    snapshot_id: int | None
    passed_ms: int
    left_id: int | None = None


@dataclass(frozen=True, slots=True)
class Since:
    """The changes to a table since a snapshot, from the summaries of its commits.

    ``small_files`` counts the data files of commits whose mean added file is undersized: a summary does not have
    the size of each file.
    """

    commits: int = 0
    delete_records: int = 0
    small_files: int = 0


@dataclass(frozen=True, slots=True)
class Due:
    """Whether a table is due, and why or why not."""

    is_due: bool
    why: str


def due(metadata: Json, seen: Watermark | None, trigger: Trigger, now_ms: int, small_ratio: float) -> Due:
    """Decide whether one table is due. ``small_ratio`` is the share of the target below which a file is undersized."""
    if seen is None:
        return Due(True, "its first pass")
    if seen.table_uuid is not None and metadata.get("table-uuid") != seen.table_uuid:
        return Due(True, "it was dropped and created again since its last pass")
    ago = max(0, now_ms - seen.passed_ms)
    if trigger.every is not None and ago >= trigger.every * 1000:
        return Due(True, f"its last pass was {span(ago)} ago")
    found = since(metadata, seen.snapshot_id, small_ratio)
    if found is None:
        return Due(True, "the snapshot of its last pass is gone (expired or rolled back)")
    if seen.left_id is not None and since(metadata, seen.left_id, small_ratio) is None:
        return Due(True, "the commits of its last pass are no longer in its history (rolled back or restored)")
    reached, not_yet = [], []
    for name, noun in (("commits", "commit"), ("delete_records", "delete record"), ("small_files", "small file")):
        limit, value = getattr(trigger, name), getattr(found, name)
        if limit is None:
            continue
        if value >= limit:
            reached.append(f"{count(value, noun)} since its last pass (due from {limit:,})")
        else:
            not_yet.append(f"{value:,} of {count(limit, noun)}")
    if reached:
        return Due(True, "; ".join(reached))
    if trigger.every is not None:
        not_yet.append(f"{span(ago)} of {span(trigger.every * 1000)}")
    return Due(False, f"since its last pass: {', '.join(not_yet)}")


def since(metadata: Json, snapshot_id: int | None, small_ratio: float) -> Since | None:
    """The changes after a snapshot; None if it is no longer an ancestor of the current one."""
    current, _ = choose_snapshot(metadata, None)
    in_force = settings(metadata.get("properties") or {})
    target = int_setting(in_force, "write.target-file-size-bytes")
    small = min_file_size(target, small_ratio)
    commits = deletes = files = 0
    for snapshot in lineage(snapshots_by_id(metadata), current):
        if snapshot["snapshot-id"] == snapshot_id:
            return Since(commits, deletes, files)
        said: Mapping[str, Any] = snapshot.get("summary") or {}
        if RUN_TAG in said:
            continue  # icekit's own commits need no attention
        commits += 1
        deletes += _number(said, "added-position-deletes") + _number(said, "added-equality-deletes")
        added = _number(said, "added-data-files")
        if added and _number(said, "added-files-size") / added < small:
            files += added
    return Since(commits, deletes, files) if snapshot_id is None else None


def _number(summary: Mapping[str, Any], name: str) -> int:
    return int(summary.get(name) or 0)


# --- Decide whether work on a table may begin now, why not, and when it must end


@dataclass(frozen=True, slots=True)
class Permit:
    """Permission to work until ``end`` (None: no end), or the reason why not; ``why`` also explains the end."""

    granted: bool
    why: str = ""
    end: dt.datetime | None = None


def quiet(rule: Rule, zone: ZoneInfo, now: dt.datetime) -> str | None:
    """Why a table is not even read now; None if it may be read."""
    end = until(rule.quiet_hours, zone, now)
    return None if end is None else f"quiet hours until {_clock(end, zone)}"


def permit(rule: Rule, zone: ZoneInfo, now: dt.datetime, deadline: dt.datetime | None = None) -> Permit:
    """Whether an action may begin on a rule's table at ``now``; ``deadline`` is when the pass must end."""
    if silent := quiet(rule, zone, now):
        return Permit(False, silent)
    ends: list[tuple[dt.datetime, str]] = []
    if rule.hours:
        end = until(rule.hours, zone, now)
        if end is None:
            following = begins(rule.hours, zone, now)
            return Permit(False, f"outside its hours, which begin at {_clock(following, zone)}" if following else "outside its hours")
        ends.append((end, f"its hours ended at {_clock(end, zone)}"))
    if (hush := begins(rule.quiet_hours, zone, now)) is not None:
        ends.append((hush, f"its quiet hours began at {_clock(hush, zone)}"))
    if deadline is not None:
        if now >= deadline:
            return Permit(False, "the pass's time is up")
        ends.append((deadline, "the pass's time ran out"))
    end, why = min(ends, default=(None, ""))
    return Permit(True, why, end)


def stopping_at(end: dt.datetime | None, now: dt.datetime) -> Stop:
    """A stop that the clock sets at ``end``; commits made by then stay."""
    return Stop(None if end is None else (end - now).total_seconds())


def _clock(moment: dt.datetime, zone: ZoneInfo) -> str:
    return f"{moment.astimezone(zone):%a %H:%M %Z}"


# --- Give each table of a catalog the first rule that matches it; pure


#: Namespaces that icekit itself creates.
_OWN = frozenset({"icekit", "icekit_scratch"})


@dataclass(frozen=True)
class Assigned:
    """The tables that a policy covers, each with its rule, and the patterns that match nothing."""

    tables: tuple[tuple[Identifier, Rule], ...]
    unmatched: tuple[str, ...] = ()


def assign(policy: SchedulePolicy, names: Sequence[Identifier]) -> Assigned:
    """The first matching rule of each table, in the catalog's order.

    A rule takes tables that match ``match`` but not ``exclude``; tables that the policy excludes belong to no rule.
    """
    found = []
    for name in names:
        if _matches(name, policy.exclude):
            continue
        rule = next((r for r in policy.tables if _takes(name, r)), None)
        if rule is not None:
            found.append((name, rule))
    known = [display_name(name) for name in names]
    lost = [
        f"rule {rule.name}: no table matches {pattern!r}{nearest(pattern.strip('*.'), known, count=1) or '.'}"
        for rule in policy.tables
        for pattern in rule.match
        if not any(matches(pattern, name) for name in names)
    ]
    return Assigned(tuple(found), tuple(lost))


def _takes(name: Identifier, rule: Rule) -> bool:
    patterns: Iterable[str] = rule.match
    if name[0] in _OWN:
        # Clones, the ledger and the history are skipped, unless a pattern names their namespace.
        patterns = [pattern for pattern in patterns if pattern_levels(pattern)[0].startswith("icekit")]
    return _matches(name, patterns) and not _matches(name, rule.exclude)


def _matches(name: Identifier, patterns: Iterable[str]) -> bool:
    return any(matches(pattern, name) for pattern in patterns)


# --- Share one budget among the partitions of many tables, most file opens saved per byte first; pure


@dataclass(frozen=True, slots=True)
class Offer:
    """What rewriting one partition saves and costs; like :class:`~icekit.compact.candidates.Candidate`, without its partitions."""

    file_opens_saved: int
    bytes_in: int
    files_in: int

    @property
    def win_per_byte(self) -> float:
        """File opens that a full scan saves per byte rewritten."""
        return self.file_opens_saved / max(self.bytes_in, 1)


@dataclass(frozen=True, slots=True)
class Share:
    """How much of the pass's budget one table may read; ``cut`` if its plan wanted more. None: no limit."""

    bytes: int | None = None
    files: int | None = None
    cut: bool = False

    @property
    def is_limited(self) -> bool:
        """Whether the pass has a budget of bytes or files."""
        return self.bytes is not None or self.files is not None

    @property
    def is_nothing(self) -> bool:
        """Whether other tables got the complete budget."""
        return self.cut and (self.bytes == 0 or self.files == 0)


def offers(plan: Plan, found: Sequence[Candidate]) -> tuple[Offer, ...]:
    """The candidates that a plan has taken."""
    planned = {partition for action in plan.actions for partition in action.partitions}
    return tuple(Offer(c.file_opens_saved, c.bytes_in, c.files_in) for c in found if planned.issuperset(c.partitions))


def less(budget: PassBudget, bytes_in: int, files_in: int = 0) -> PassBudget:
    """What is left of a budget after some reading."""
    return replace(
        budget,
        bytes=None if budget.bytes is None else max(0, budget.bytes - bytes_in),
        files=None if budget.files is None else max(0, budget.files - files_in),
    )


def share_out(wanted: Mapping[str, Sequence[Offer]], budget: PassBudget) -> dict[str, Share]:
    """Each table's share of a budget.

    Partitions of all tables are in one queue, by file opens saved per byte; a partition that is more expensive than the rest of the budget is
    skipped, as in :func:`icekit.compact.plan.plan` within a table.
    """
    if budget.bytes is None and budget.files is None:
        return {table: Share() for table in wanted}
    queue = sorted(
        ((offer, table) for table, several in wanted.items() for offer in several),
        key=lambda one: (-one[0].win_per_byte, -one[0].file_opens_saved, one[1]),
    )
    bytes_left, files_left = budget.bytes, budget.files
    spent = {table: [0, 0] for table in wanted}
    taken = dict.fromkeys(wanted, 0)
    for offer, table in queue:
        if (bytes_left is not None and offer.bytes_in > bytes_left) or (files_left is not None and offer.files_in > files_left):
            continue
        bytes_left = None if bytes_left is None else bytes_left - offer.bytes_in
        files_left = None if files_left is None else files_left - offer.files_in
        spent[table][0] += offer.bytes_in
        spent[table][1] += offer.files_in
        taken[table] += 1
    return {
        table: Share(
            None if budget.bytes is None else spent[table][0],
            None if budget.files is None else spent[table][1],
            taken[table] < len(several),
        )
        for table, several in wanted.items()
    }


# --- Observe one table and plan what its rule asks for; reads only metadata, runs nothing


T = TypeVar("T")


@dataclass(frozen=True)
class Studied:
    """The plans that have something to do, by action, in the order in which they run.

    ``offers`` are the partitions of the compaction, for the budget that tables share. ``refusal`` is why orphan files stay
    although the rule names their removal. ``idle`` is why an action of the rule has no plan.
    """

    plans: Mapping[str, Plan]
    offers: tuple[Offer, ...] = ()
    refusal: str | None = None
    idle: Mapping[str, str] = field(default_factory=dict)

    @property
    def convert_reads(self) -> tuple[int, int]:
        """The data and delete files, and their bytes, that a conversion is predicted to read."""
        plan = self.plans.get("convert")
        return (0, 0) if plan is None else plan.reads


class PlanTimedOut(IcekitError):
    """Planning a table took longer than the policy allows."""

    exit_status = EXIT_CRASHED


def timely(lake: Lake, seconds: float | None, work: Callable[[Lake], T]) -> T:
    """Plan on the lake within this many seconds; otherwise raises :class:`PlanTimedOut` and cancels the Spark work."""
    try:
        return in_time(lake, seconds, work)
    except DeadlineExceeded:
        raise PlanTimedOut(
            f"planning took longer than {span((seconds or 0.0) * 1000)}; raise `timeout:` or narrow the window (since, until, skip_last)"
        ) from None


def study(lake: Lake, table: Identifier, rule: Rule, *, ledger: str, now: dt.datetime, known: FactsCache | None = None) -> Studied:
    """Plan every action of a rule for the current table, without a trial; raises the errors of :mod:`icekit.errors`."""
    if not rule.actions:
        return Studied({}, idle={"report": "its rule has no action"})
    facts, findings = observed(lake, table, rule, known)
    plans: dict[str, Plan] = {}
    idle: dict[str, str] = {}
    on_offer: tuple[Offer, ...] = ()

    def add(action: str, plan: Plan, nothing: str) -> None:
        if plan.actions:
            plans[action] = plan
        else:
            idle[action] = why_idle(plan, nothing if findings else "the table has no finding")

    if rule.convert:
        add("convert", _convert(lake, table, findings, rule.convert, ledger), "no equality deletes to convert")
    if rule.compact:
        policy = compaction_policy(rule, findings)
        compacting = _nothing(facts.catalog, facts.table)
        if policy is not None:
            compacting = plan_table(
                lake, facts, findings, policy, thresholds=rule.limits, ledger=ledger or None, now=now, progress=lambda _: None
            )
        add("compact", compacting, "no partition is worth a rewrite")
        if compacting.actions:
            on_offer = offers(compacting, candidates(facts, findings, rule.compact.settings(), rule.limits))
    if rule.maintain:
        add("maintain", maintenance(lake, facts, findings, rule), "no finding asks for a procedure of the rule")
    names_orphans = rule.maintain is not None and "remove_orphan_files" in rule.maintain.procedures
    return Studied(plans, on_offer, facts.storage.sharing.refusal if facts.storage and names_orphans else None, idle)


def why_idle(plan: Plan, nothing: str) -> str:
    """Why a plan has no actions: what it says itself, the partitions that it leaves alone, its notes, or else ``nothing``."""
    left = [f"{count(s.partition_count, 'partition')} left alone: {s.reason}" for s in plan.left_alone]
    return plan.waits or "; ".join([*left, *plan.notes]) or nothing


def observed(lake: Lake, table: Identifier, rule: Rule, known: FactsCache | None = None) -> tuple[TableFacts, Findings]:
    """A table's facts and findings with its rule's limits; those of its report if the table has not changed since."""
    limits = rule.limits
    needs_storage = rule.maintain is not None and "remove_orphan_files" in rule.maintain.procedures

    def collect() -> TableFacts:
        return observe(
            lake,
            table,
            size_ratios=limits.size_ratios,
            filter_columns=list(rule.filter_columns) or None,
            storage=needs_storage,
        )

    facts = (known or FactsCache()).facts(lake, table, collect, storage=needs_storage)
    if not needs_storage:
        facts = replace(facts, storage=None)
    return facts, diagnose(facts, limits, session_conf=lake.session_conf())


def compaction_policy(rule: Rule, findings: Findings, share: Share | None = None) -> Policy | None:
    """The policy of a rule's compaction, within a share of the pass's budget; None if nothing can be worth it.

    A table without findings needs no plan, and so no Spark, unless the rule rewrites or sorts healthy files too.
    """
    wanted: Compact | None = rule.compact
    if wanted is None:
        return None
    policy = wanted.settings(share.bytes if share else None, share.files if share else None)
    return policy if findings or policy.scope != "minor" else None


def maintenance(lake: Lake, facts: TableFacts, findings: Findings, rule: Rule) -> Plan:
    """The plan of a rule's maintenance, with only the procedures that it names."""
    from icekit.maintain import plan_maintenance_table

    wanted: Maintain | None = rule.maintain
    if wanted is None or not findings:
        return _nothing(facts.catalog, facts.table)
    # In a policy the retention is the limit of an expiry, and the finding its reason.
    procedures = [p for p in wanted.procedures if p != "expire_snapshots" or "snapshots_piling_up" in findings.names]
    plan = plan_maintenance_table(lake, facts, findings, wanted.retention(), thresholds=rule.limits, procedures=procedures)
    # A pass reports a refusal separately.
    return replace(plan, refused=None)


def _convert(lake: Lake, table: Identifier, findings: Findings, wanted: Convert, ledger: str) -> Plan:
    from icekit.compact.equality_deletes import plan_conversion

    if "equality_deletes" not in findings.names:
        return _nothing(lake.name, table)
    return plan_conversion(lake, table, where=wanted.where, batch_bytes=wanted.batch_bytes, ledger=ledger or None)


def _nothing(catalog: str, table: Identifier) -> Plan:
    return Plan(catalog, table, None, None, None, ())
