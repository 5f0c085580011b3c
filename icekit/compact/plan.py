"""From facts and findings to a plan: which partitions, in which order, by which statement."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from icekit.compact.actions import Rewriting, drop_dangling, move_old_specs, parallelism, partition_name, rewrite_action
from icekit.compact.candidates import Candidate, candidates, in_window
from icekit.compact.model import Action, LeftAlone, Order, Plan
from icekit.compact.policy import Policy
from icekit.diagnose.findings import Findings, Thresholds
from icekit.engine.cluster import Cluster
from icekit.errors import ParameterError, nearest
from icekit.facts.files import Partition
from icekit.facts.model import TableFacts
from icekit.facts.rollup import sort_key
from icekit.facts.where import askable, unfiltered_fields
from icekit.units import percent, size, span

#: What makes an estimate into the engine's prediction; see :func:`icekit.compact.predict.predict`.
Predict = Callable[[Action], Action]
# How often an action is planned anew because the planner takes more than the budget.
_TRIMS = 4


def plan(
    facts: TableFacts,
    findings: Findings,
    policy: Policy | None = None,
    *,
    thresholds: Thresholds | None = None,
    cluster: Cluster | None = None,
    recent: Iterable[Partition] = (),
    predict: Predict | None = None,
    bytes_per_second: float | None = None,
    now: dt.datetime | None = None,
) -> Plan:
    """Plan the rewrites of data files that pay back; pure but for ``predict``, and nothing runs.

    ``recent`` are partitions written lately, which are left alone. ``predict`` asks the
    engine; without it predictions are estimates from facts. ``bytes_per_second`` is the
    throughput of past runs, which a budget in minutes needs. A table with nothing worth doing
    gives a plan without actions. Raises :class:`~icekit.errors.ParameterError` for a policy
    that does not fit the table.
    """
    policy, limits, now = policy or Policy(), thresholds or Thresholds(), now or dt.datetime.now(dt.UTC)
    if facts.ref and not any(r.name == facts.ref and r.type == "branch" for r in facts.history.refs):
        raise ParameterError(f"{facts.ref} is not a branch, and only the table itself or a branch can be rewritten; leave ref out.")
    order = sort_by(facts, policy)
    found = candidates(facts, findings, policy, limits)
    budget_bytes = _budget_bytes(policy, bytes_per_second) if found else policy.budget_bytes
    chosen, left = _choose(facts, found, policy, frozenset(recent), budget_bytes, now)
    batches = _batches(chosen, policy)
    total, groups = sum(c.bytes_in for c in chosen), len(chosen)
    sorting, whole = order.is_sorting, policy.scope == "major"
    options, explained = parallelism(cluster, facts.target_bytes, total, groups, sorting=sorting, whole=whole) if cluster else ({}, ())
    shared = Rewriting(facts, limits, policy, order, options)
    notes = (
        ["The columns are not used: binpack orders no rows; sort, zorder and hilbert do."]
        if policy.columns and policy.strategy == "binpack"
        else []
    )
    actions: list[Action] = []
    spent = 0
    for place, batch in enumerate(batches):
        action = rewrite_action(shared, f"a{place + 1}", batch)
        files_left = None if policy.budget_files is None else policy.budget_files - sum(a.prediction.files_in for a in actions)
        rest = None if budget_bytes is None else budget_bytes - spent
        fitted = _fitted(shared, action, batch, predict, rest, files_left)
        if fitted is None:
            left.append(
                _left("the engine's planner takes more than is left of the budget", [p for c in batch for p in c.partitions], facts)
            )
        elif predict and not fitted.prediction.groups:
            left.append(_left("the engine's planner finds nothing to rewrite", [p for c in batch for p in c.partitions], facts))
        else:
            spent += fitted.prediction.bytes_in
            actions.append(fitted)
            cut = sorted(set(action.partitions).difference(fitted.partitions), key=sort_key)
            if cut:
                left.append(_left("the engine's planner takes more than is left of the budget", cut, facts))
    for special in (move_old_specs(shared, findings), drop_dangling(facts, findings, actions)):
        if special is None:
            continue
        numbered = replace(special, action_id=f"a{len(actions) + 1}")
        ready = predict(numbered) if predict else numbered
        if budget_bytes is not None and spent + ready.prediction.bytes_in > budget_bytes:
            left.append(LeftAlone("what is left of the budget does not reach for it", len(ready.partitions), ready.partition_names[:3]))
        elif ready.prediction.groups or ready.prediction.delete_files_removed:
            spent += ready.prediction.bytes_in
            actions.append(ready)
    if actions:
        notes += _notes(facts, actions)
    if not policy.old_specs and "old_partition_spec" in findings.names:
        notes.append("Files of older partition specs stay where they are; set old_specs to move them into the current one.")
    return Plan(
        facts.catalog,
        facts.table,
        facts.table_uuid,
        facts.snapshot_id,
        facts.ref,
        tuple(actions),
        parallelism=explained if actions else (),
        left_alone=tuple(left),
        notes=tuple(notes),
        made_at_ms=int(now.timestamp() * 1000),
    )


def sort_by(facts: TableFacts, policy: Policy) -> Order:
    """The order a policy asks for: its columns, else the table's sort order, else its filter columns.

    Raises :class:`~icekit.errors.ParameterError` for an unknown column, or where none is known.
    """
    known = {column.name: column for column in facts.columns}
    for name in policy.columns:
        if name not in known:
            what = "order rows" if policy.strategy == "binpack" else policy.strategy
            raise ParameterError(f"There is no column {name!r} to {what} by{nearest(name, known) or '; there are ' + _some(known) + '.'}")
    if policy.strategy == "binpack":
        return Order()
    wanted = policy.columns
    if not wanted and policy.strategy == "sort" and facts.sort_order:
        return Order("sort")
    if not wanted:
        wanted = tuple(f.source for f in facts.sort_order) or facts.filter_columns
    if not wanted:
        raise ParameterError(
            f"{facts.name} has no sort order and declares no filter columns; name the columns to {policy.strategy} by (columns: a,b), or set the table property icekit.filter-columns."
        )
    for name in wanted:
        path = known[name].names
        if policy.strategy != "sort" and (len(path) > 1 or "." in path[0] or "`" in path[0]):
            raise ParameterError(
                f"Spark cannot {policy.strategy} by {name!r}: a curve takes no column inside a struct, nor one with a dot or a backtick in its name; use the strategy sort."
            )
    direction = "ASC NULLS FIRST" if policy.strategy == "sort" else ""
    return Order(policy.strategy, tuple((known[name].names, direction) for name in wanted))


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:10]) + (", …" if len(listed) > 10 else "")


def _choose(
    facts: TableFacts,
    found: Sequence[Candidate],
    policy: Policy,
    recent: frozenset[Partition],
    budget_bytes: int | None,
    now: dt.datetime,
) -> tuple[list[Candidate], list[LeftAlone]]:
    """What the policy lets through, best win per byte first, and what it does not."""
    window = in_window(facts, policy, now) if found else None
    refused: dict[str, list[Partition]] = {}
    chosen: list[Candidate] = []
    files = total = 0
    for candidate in found:
        parts = candidate.partitions
        reason = None
        if window is not None and not window.issuperset(parts):
            reason = "outside the window of time"
        elif not recent.isdisjoint(parts):
            reason = f"written within the last {policy.leave_alone_minutes:g} minutes"
        elif not all(askable(facts.spec(p.spec_id), p) for p in parts):
            reason = "its value is not a number (NaN), and Iceberg has no filter for that"
        elif not _is_bounded(facts, parts):
            reason = "no filter can ask for it alone: the columns it was partitioned by were dropped, or it was not partitioned then"
        elif (budget_bytes is not None and total + candidate.bytes_in > budget_bytes) or (
            policy.budget_files is not None and files + candidate.files_in > policy.budget_files
        ):
            reason = "the budget buys others that win more per byte"
        if reason:
            refused.setdefault(reason, []).extend(parts)
        else:
            chosen.append(candidate)
            files, total = files + candidate.files_in, total + candidate.bytes_in
    return chosen, [_left(reason, partitions, facts) for reason, partitions in refused.items()]


def _budget_bytes(policy: Policy, bytes_per_second: float | None) -> int | None:
    """What the plan may read: its budget in bytes or in time, the smaller one of both."""
    if policy.budget_minutes is None:
        return policy.budget_bytes
    if bytes_per_second is None:
        raise ParameterError(
            "A budget in minutes needs the throughput of a past run and the ledger has none; give it in bytes (budget: 200 GB) for the first run."
        )
    by_time = int(policy.budget_minutes * 60 * bytes_per_second)
    return by_time if policy.budget_bytes is None else min(policy.budget_bytes, by_time)


def _is_bounded(facts: TableFacts, partitions: Sequence[Partition]) -> bool:
    """Tell whether a filter keeps to these partitions; a table that was never partitioned needs none."""
    spec_ids = {p.spec_id for p in partitions}
    if len(facts.specs) > 1 and any(facts.spec(i).is_unpartitioned for i in spec_ids):
        return False
    return all(facts.spec(i).is_unpartitioned or not unfiltered_fields(facts.spec(i), facts.columns) for i in spec_ids)


def _left(reason: str, partitions: Sequence[Partition], facts: TableFacts) -> LeftAlone:
    return LeftAlone(reason, len(partitions), tuple(partition_name(facts, p) for p in partitions[:3]))


def _batches(chosen: Sequence[Candidate], policy: Policy) -> list[list[Candidate]]:
    """Candidates put into actions: alike in how they are rewritten, and bounded in what one attempt risks."""
    batches: list[list[Candidate]] = []
    open_by_mode: dict[tuple[str, frozenset[int]], list[Candidate]] = {}
    for candidate in chosen:
        key = candidate.mode, frozenset(p.spec_id for p in candidate.partitions)
        batch = open_by_mode.get(key)
        full = batch is not None and (
            sum(c.bytes_in for c in batch) + candidate.bytes_in > policy.max_action_bytes
            or sum(len(c.partitions) for c in batch) + len(candidate.partitions) > policy.max_action_partitions
        )
        if batch is None or full:
            batch = open_by_mode[key] = []
            batches.append(batch)
        batch.append(candidate)
    return batches


def _fitted(
    shared: Rewriting, action: Action, batch: Sequence[Candidate], predict: Predict | None, rest: int | None, files_left: int | None
) -> Action | None:
    """The action with its prediction, cut down until the engine's own figure is within what is left of the budget."""
    kept = list(batch)
    for _ in range(_TRIMS):
        fitted = predict(action) if predict else action
        over = max(
            fitted.prediction.bytes_in / max(rest, 1) if rest is not None else 0.0,
            fitted.prediction.files_in / max(files_left, 1) if files_left is not None else 0.0,
        )
        if over <= 1:
            return fitted
        kept = kept[: math.floor(len(kept) / over)]
        if not kept:
            return None
        action = rewrite_action(shared, action.action_id, kept)
    return None


def _notes(facts: TableFacts, actions: Sequence[Action]) -> list[str]:
    notes = []
    gap = facts.history.median_seconds_between_commits
    recent = facts.history.commits[-100:]
    if gap and recent:
        rival = [c for c in recent if c.operation in ("overwrite", "delete", "replace")]
        share = len(rival) / len(recent)
        seconds = max((a.prediction.seconds for a in actions if a.prediction.seconds), default=None)
        said = f"Commits are {span(gap * 1000)} apart, and {percent(share)} of the last {len(recent)} delete, overwrite or replace files: only those can conflict with a rewrite"
        if seconds and share:
            chance = 1 - math.exp(-seconds / gap * share)
            said += f"; the longest action takes about {span(seconds * 1000)}, in which one comes with a chance of {percent(chance)} (it conflicts if it touches the same files, and is retried)"
        notes.append(said + ".")
    total = sum(a.prediction.bytes_in for a in actions)
    if facts.data.size_in_bytes:
        notes.append(
            f"It reads {size(total)} of {size(facts.data.size_in_bytes)} ({percent(total / facts.data.size_in_bytes)} of the table)."
        )
    if any(a.prediction.source == "facts" for a in actions):
        notes.append("Predictions are estimated from facts: without the JVM bridge (Spark Connect) the engine's planner cannot be asked.")
    return notes
