"""Turn facts and findings into a plan: which partitions, in which order, with which statement, within which budget."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from icekit.compact.candidates import Candidate, candidates, in_window, is_bounded
from icekit.compact.model import DANGLING, REWRITE_NOTHING, Action, Explained, Plan, Policy, Prediction, RewriteOrder, Skipped
from icekit.compact.speed import Speed
from icekit.diagnose.findings import Finding, Findings, Thresholds, limit_options
from icekit.engine.cluster import Cluster
from icekit.errors import ParameterError, TableContradicted, nearest
from icekit.facts.definition import fragile
from icekit.facts.files import DELETE_KINDS, Kind, Partition
from icekit.facts.model import TableFacts
from icekit.facts.rollup import sort_key
from icekit.facts.where import askable, where
from icekit.units import count, percent, plain, raised, size, span

# --- Group candidates into actions: the partitions, the filter and the options of one rewrite, fitted to the cluster, and why


_NAMES = 10
_LONGEST_FILTER = 20_000
_GIB = 2**30
# Iceberg's defaults, kept unless the cluster gives a reason to change them.
_GROUP_BYTES = 100 * _GIB
_COMMITS = 10
# Size of compressed columns as rows in a shuffle: the ratio SparkWriteConf assumes for zstd files.
_ROWS_PER_FILE_BYTES = 3

_WHY = {
    "size": "combines or splits files of the wrong size; well-sized files stay as they are",
    "deletes": "delete-file-threshold=1 also takes well-sized files that a delete may apply to, which the default ignores",
    "vectors": "delete-ratio-threshold also takes well-sized files with enough deleted rows; it counts only deletes that name a single data file",
    "all": "rewrites every file of these partitions",
    "spec": "moves every file of these partitions into the current spec, so that its filters prune them; the rows are shuffled",
    "table": "rewrites every file of the table in one commit, because after a commit of some of them the deletes may no longer apply to the others",
}


def _at_once(groups: int, at_once: int, tasks_per_group: int) -> str:
    tasks = count(tasks_per_group, "task")
    if groups == 1:
        return f"the only group has {tasks}"
    if at_once == 1:
        return f"a group has {tasks} on average, so 1 group at once keeps the cores busy"
    return f"a group has {tasks} on average, so {count(at_once, 'group')} at once keep the cores busy while others start and commit"


def parallelism(
    cluster: Cluster, target_bytes: int, bytes_in: int, group_count: int, *, sorting: bool, whole: bool = False
) -> tuple[Mapping[str, str], tuple[Explained, ...]]:
    """Options of ``rewrite_data_files`` for a cluster and the plan's sizes, each with its reason.

    ``whole`` is for rewrites of every file of a partition. Those keep the engine's largest
    group: only when all groups of a partition are done can a resumed run see which files are done,
    so it would rewrite a partition of several groups twice.
    """
    options: dict[str, str] = {}
    said: list[Explained] = []

    def choose(name: str, value: int, why: str) -> None:
        options[name] = str(value)
        said.append(Explained(name, str(value), why))

    # Groups: enough at once that no core waits for the last task of another group.
    tasks_per_group = max(1, math.ceil(bytes_in / max(group_count, 1) / target_bytes))
    at_once = min(max(group_count, 1), max(1, math.ceil(2 * cluster.cores / tasks_per_group)), 4 * cluster.cores)
    choose(
        "max-concurrent-file-group-rewrites",
        at_once,
        f"{cluster.source}; {_at_once(max(group_count, 1), at_once, tasks_per_group)}",
    )
    if not sorting and not whole:
        # A failure loses one group; small groups lose little, and still give every core a few tasks.
        group = min(_GROUP_BYTES, max(_GIB, 4 * cluster.cores * target_bytes))
        choose(
            "max-file-group-size-bytes",
            group,
            f"limits what one failure costs: four files of {size(target_bytes)} for each of {count(cluster.cores, 'core')}, at least 1 GiB",
        )
    elif sorting:
        rows = target_bytes * _ROWS_PER_FILE_BYTES
        per_file = max(1, math.ceil(rows / cluster.task_memory_bytes))
        choose(
            "shuffle-partitions-per-file",
            per_file,
            f"a file of {size(target_bytes)} is about {size(rows)} of rows, and a task may use {size(cluster.task_memory_bytes)}",
        )
    commits = max(1, min(_COMMITS, group_count, max(2, math.ceil(bytes_in / _GIB))))
    choose(
        "partial-progress.max-commits",
        commits,
        f"{count(max(group_count, 1), 'group')} of {size(bytes_in)}: finished groups are committed during the run, in at most this many snapshots (one per GiB, two to ten)",
    )
    return options, tuple(said)


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The inputs that all rewrites of a plan share; ``parallel`` are the options that fit them to the cluster."""

    facts: TableFacts
    limits: Thresholds
    policy: Policy
    order: RewriteOrder
    parallel: Mapping[str, str]


def rewrite_action(shared: Rewriting, action_id: str, batch: Sequence[Candidate], taken: Sequence[Action] = ()) -> Action:
    """One rewrite of the partitions of similar candidates; its prediction is their sum, until the engine predicts it.

    ``taken`` are earlier actions, whose files one that moves files of older specs leaves out.
    """
    facts, order = shared.facts, shared.order
    mode = batch[0].mode
    partitions = tuple(sorted((p for c in batch for p in c.partitions), key=sort_key))
    limits = limit_options(shared.limits, facts.target_bytes)
    options = {"partial-progress.enabled": "true", **shared.parallel, **limits}
    if mode == "table":
        options = {key: value for key, value in options.items() if not key.startswith("partial-progress")}
    if mode in {"all", "spec", "table"}:
        options["rewrite-all"] = "true"
    elif mode == "deletes":
        options["delete-file-threshold"] = "1"
    elif mode == "vectors":
        options["delete-ratio-threshold"] = f"{shared.limits.delete_ratio:g}"
    if mode != "size" and facts.has_deletes:
        options[DANGLING] = "true"
        if _renews(facts):
            options["use-starting-sequence-number"] = "false"
    specs = {spec.spec_id: spec for spec in facts.specs}
    reasons = ", ".join(dict.fromkeys(r for c in batch for r in c.reasons))
    files_in, bytes_in = sum(c.files_in for c in batch), sum(c.bytes_in for c in batch)
    why = f"{reasons} in {count(len(partitions), 'partition')}: {_WHY[mode]}"
    if mode in {"all", "spec", "table"} and order.is_sorting:
        why += f", rows ordered by {order.sql or 'the sort order of the table'}"
    if mode not in {"spec", "table"} and any(p.spec_id != facts.default_spec_id for p in partitions):
        why += "; files of older specs go into the current one, and its files that hold matching rows are rewritten with them"
    asked = None if mode == "table" or not is_bounded(facts, partitions) else where(facts.catalog, specs, facts.columns, partitions)
    unless = _kept_out(shared, partitions, taken) if mode == "spec" else None
    worst = sorted((c for c in batch), key=lambda c: -c.file_opens_saved)
    return Action(
        action_id=action_id,
        procedure="rewrite_data_files",
        catalog=facts.catalog,
        table=facts.table,
        why=why,
        prediction=Prediction(
            files_in,
            bytes_in,
            sum(c.files_out for c in batch),
            sum(c.bytes_out for c in batch),
            groups=len(batch),
            shuffle_bytes=bytes_in if order.is_sorting or mode == "spec" else 0,
            file_opens_saved=sum(c.file_opens_saved for c in batch),
            rows_in=round(bytes_in * _rows_per_byte(facts)),
            is_maximum=any(c.is_maximum for c in batch),
        ),
        partitions=partitions,
        partition_names=tuple(facts.partition_name(p) for c in worst for p in c.partitions)[:_NAMES],
        where=asked if unless is None else f"NOT ({unless})" if asked is None else f"({asked}) AND NOT ({unless})",
        unless=unless,
        must_save=all(c.must_save for c in batch),
        order=order,
        options=options,
        branch=facts.ref,
    )


def _kept_out(shared: Rewriting, partitions: Sequence[Partition], taken: Sequence[Action]) -> str | None:
    """A filter for rows of the current spec's partitions, and of those of other specs that earlier actions move; None if there is none that is short.

    No filter selects the files of one spec. But a filter for what is *not* in these partitions skips their files,
    and takes files of older specs unless all their rows belong to them.
    """
    facts = shared.facts
    current = [g.partition for g in facts.of_kind(Kind.DATA) if g.partition.spec_id == facts.default_spec_id]
    own = {p.spec_id for p in partitions}
    moved = [p for action in taken for p in action.partitions if p.spec_id not in own]
    named = [p for p in dict.fromkeys((*current, *moved)) if askable(facts.spec(p.spec_id), p)]
    held = where(facts.catalog, facts.specs_by_id, facts.columns, named) if named else None
    return held if held is not None and len(held) <= _LONGEST_FILTER else None


def drop_dangling(facts: TableFacts, findings: Findings, actions: Sequence[Action]) -> Action | None:
    """Drop delete files that apply to nothing, and rewrite nothing; None if another action does so anyway."""
    if "dangling_deletes" not in findings.names or facts.fragile_fields or any(a.options.get(DANGLING) for a in actions):
        return None
    found = next(f for f in findings if f.name == "dangling_deletes")
    return Action(
        "",
        "rewrite_data_files",
        facts.catalog,
        facts.table,
        f"{found.evidence}: drops those that a scan gives to no data file, and rewrites none",
        Prediction(delete_files_removed=found.files_at_stake, source="metadata"),
        options={"partial-progress.enabled": "true", **REWRITE_NOTHING, DANGLING: "true"},
        branch=facts.ref,
    )


def has_global_deletes(facts: TableFacts) -> bool:
    """Whether equality deletes of an unpartitioned spec apply to partitions of another spec."""
    return len(facts.specs) > 1 and any(facts.spec(g.partition.spec_id).is_unpartitioned for g in facts.of_kind(Kind.EQUALITY_DELETES))


def _renews(facts: TableFacts) -> bool:
    """Whether rewritten files should get a new sequence number.

    By default they keep the sequence number of the snapshot that the rewrite starts from, so that equality deletes
    of a live stream still apply to them. Position deletes of that same snapshot that name no
    single file then also apply to them, according to the specification, and are never dropped:
    the rewrite would never be finished. A table without equality deletes does not need this.
    """
    scoped = all(g.file_scoped_count == g.file_count for g in facts.of_kind(Kind.POSITION_DELETES))
    return not scoped and not facts.equality_delete_partitions


#: Replaces an estimate with the engine's prediction; see :func:`icekit.compact.service.predict`.
Predict = Callable[[Action], Action]
# How often an action is planned again because the planner takes more than the budget allows.
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
    speed: Speed | None = None,
    now: dt.datetime | None = None,
) -> Plan:
    """Plan the rewrites of data files that are worth it; pure except for ``predict``; runs nothing.

    ``recent`` are partitions written lately: they are skipped if the policy says so, or else if a commit is likely to conflict
    with their rewrite (:func:`conflict_chance`). ``predict`` asks the
    engine; without it predictions are estimates from facts. ``speed`` is that of past runs,
    needed for a budget in minutes. A table where nothing is worth doing
    gives a plan without actions. Raises :class:`~icekit.errors.ParameterError` for a policy
    that does not fit the table, and :class:`~icekit.errors.TableContradicted` for a table with
    :attr:`~icekit.facts.model.TableFacts.contradictions`.
    """
    if facts.contradictions:
        raise _contradicted(facts, findings)
    policy, now = policy or Policy(), now or dt.datetime.now(dt.UTC)
    limits = policy.within(thresholds or Thresholds())
    if facts.ref and not any(r.name == facts.ref and r.type == "branch" for r in facts.history.refs):
        raise ParameterError(f"{facts.ref} is not a branch. Only the table itself or a branch can be rewritten; leave ref out.")
    order = sort_by(facts, policy)
    selected = select(facts, findings, policy, limits, recent=recent, speed=speed, now=now)
    chosen, budget_bytes = selected.chosen, selected.budget_bytes
    batches = _batches(chosen, policy)
    total, groups = sum(c.bytes_in for c in chosen), len(chosen)
    sorting, whole = order.is_sorting, policy.scope == "major"
    options, explained = parallelism(cluster, facts.target_bytes, total, groups, sorting=sorting, whole=whole) if cluster else ({}, ())
    shared = Rewriting(facts, limits, policy, order, options)
    notes = (
        ["The columns are not used: binpack does not order rows; sort, zorder and hilbert do."]
        if policy.columns and policy.strategy == "binpack"
        else []
    )
    left = list(selected.skipped)
    actions: list[Action] = []
    spent = 0
    for batch in batches:
        # A run finds the commits of an action by this name, so no two actions have the same.
        action = rewrite_action(shared, f"a{len(actions) + 1}", batch, actions)
        if batch[0].mode == "spec" and action.where is None and any(p.spec_id == facts.default_spec_id for p in facts.partitions()):
            left.append(_left("no filter that is short selects only the files of older specs", action.partitions, facts))
            continue
        files_left = None if policy.budget_files is None else policy.budget_files - sum(a.prediction.files_in for a in actions)
        rows_left = None if policy.budget_rows is None else policy.budget_rows - sum(a.prediction.rows_in for a in actions)
        rest = None if budget_bytes is None else budget_bytes - spent
        fitted = _fitted(shared, action, batch, actions, predict, (rest, files_left, rows_left))
        if fitted is None:
            left.append(
                _left("the engine's planner takes more than the rest of the budget", [p for c in batch for p in c.partitions], facts)
            )
        elif predict and not fitted.prediction.groups:
            left.append(_left("the engine's planner finds nothing to rewrite", [p for c in batch for p in c.partitions], facts))
        elif saves_nothing(fitted):
            left.append(_left("a rewrite would save no file open", [p for c in batch for p in c.partitions], facts))
        else:
            spent += fitted.prediction.bytes_in
            actions.append(fitted)
            cut = sorted(set(action.partitions).difference(fitted.partitions), key=sort_key)
            if cut:
                left.append(_left("the engine's planner takes more than the rest of the budget", cut, facts))
    if (dropping := drop_dangling(facts, findings, actions)) is not None:
        numbered = replace(dropping, action_id=f"a{len(actions) + 1}")
        ready = predict(numbered) if predict else numbered
        if ready.prediction.delete_files_removed:
            actions.append(ready)
    if actions:
        notes += _notes(facts, actions, policy)
    small_target = next((f for f in findings if f.name == "target_too_small"), None)
    if small_target is not None and actions:
        notes.append(f"Change the target file size before this plan runs, or its files stay small: {small_target.evidence}.")
    if actions and facts.other_optimizer:
        notes.append(facts.other_optimizer.note)
    if facts.fragile_fields:
        notes.append(fragile(facts.fragile_fields))
    elif not policy.old_specs and "old_partition_spec" in findings.names:
        notes.append(_of_older_specs(facts, actions))
    return Plan(
        facts.catalog,
        facts.table,
        facts.table_uuid,
        facts.snapshot_id,
        facts.ref,
        tuple(actions),
        parallelism=tuple(e for e in explained if any(e.name in a.options for a in actions)),
        left_alone=tuple(left),
        notes=tuple(notes),
        made_at_ms=int(now.timestamp() * 1000),
        waits=None if actions else _waits(selected, small_target),
    )


def _contradicted(facts: TableFacts, findings: Findings) -> TableContradicted:
    """The error for a table that must not be rewritten yet: what is wrong, and what to do."""
    first = facts.contradictions[0]
    remedy = " ".join(f"{finding.title}: {finding.evidence}. {finding.remedy}" for finding in findings if finding.name == first)
    return TableContradicted(
        f"The manifests of {facts.name} contradict each other ({', '.join(facts.contradictions)}), so nothing is rewritten. "
        f"{raised(remedy)} icekit look {facts.name} has the statements.",
        facts.contradictions,
    )


def saves_nothing(action: Action) -> bool:
    """Whether a rewrite that is only worth it for saved file opens saves none, according to its prediction."""
    return action.must_save and action.prediction.file_opens_saved <= 0


def _of_older_specs(facts: TableFacts, actions: Sequence[Action]) -> str:
    """What becomes of the files of older specs, as a sentence."""
    taken = {p for action in actions for p in action.partitions if p.spec_id != facts.default_spec_id}
    if not taken:
        return "Files of older partition specs stay where they are; --old-specs moves them into the current one."
    return (
        f"Files of older partition specs in {count(len(taken), 'partition')} move into the current one, because that saves file opens; "
        "the others stay where they are, unless --old-specs moves them."
    )


def _waits(selected: RewriteSelection, small: Finding | None) -> str | None:
    """Why nothing is planned although rewrites would help: every candidate was left alone, or the target file size is wrong."""
    found = selected.found
    if found and not selected.chosen:
        _, files, opens = _sums(found)
        reasons = "; ".join(f"{count(s.partition_count, 'partition')}, {s.reason}" for s in selected.skipped)
        is_recent = any(s.is_recent for s in selected.skipped)
        flag = " To plan them anyway, add --leave-alone '0 minutes' (in Python: leave_alone='0 minutes')." if is_recent else ""
        return (
            f"{'The only candidate' if len(found) == 1 else f'Each of the {len(found):,} candidates'} was left alone ({reasons}). "
            f"A rewrite of {count(files, 'file')} would save a full scan {count(opens, 'file open')}.{flag}"
        )
    if small is not None and not found:
        return f"No rewrite helps before the target file size changes: {small.evidence}. The statement is in the finding target_too_small."
    return None


#: A choice: rows that one task should not have to write into one file.
MANY_ROWS = 100_000_000


def _rows_per_byte(facts: TableFacts) -> float:
    return facts.data.record_count / max(1, facts.data.size_in_bytes)


#: A choice: a partition that was just written is left alone if a commit conflicts with its rewrite with this chance or more.
LIKELY_CONFLICT = 0.05
#: What a rewrite takes at most; choices: seconds at least, and bytes per second.
_LEAST_SECONDS, _ASSUMED_RATE = 5.0, 32 * 2**20


def conflict_chance(facts: TableFacts, seconds: float) -> float:
    """The chance that a commit which deletes, overwrites or replaces files comes within ``seconds``; only such commits can conflict with a rewrite.

    Commits count as independent, at the table's usual rate; the commit may touch other files.
    """
    gap, share = facts.history.median_seconds_between_commits, _changing_share(facts)
    return 1 - math.exp(-seconds / gap * share) if gap and share else 0.0


def _changing_share(facts: TableFacts) -> float:
    """The share of the last 100 commits that delete, overwrite or replace files.

    An upsert that removes no file adds only rows and equality deletes, which a rewrite at its starting sequence number leaves in force.
    """
    recent = facts.history.commits[-100:]
    upserts_alone = {kind for kind in DELETE_KINDS if facts.total(kind).file_count} == {Kind.EQUALITY_DELETES}
    changing = {"delete", "replace"} if upserts_alone else {"delete", "replace", "overwrite"}
    found = sum(c.operation in changing or (c.operation == "overwrite" and bool(c.removed_data_files)) for c in recent)
    return found / len(recent) if recent else 0.0


def _held(facts: TableFacts, found: Sequence[Candidate], policy: Policy, recent: frozenset[Partition]) -> dict[Partition, str]:
    """The recently written partitions to leave alone, each with the reason: all that the policy names, or those with a likely conflict."""
    reason = f"written within the last {plain(policy.recent_minutes, 6)} minutes"
    if policy.leave_alone_minutes is not None:
        return dict.fromkeys(recent, reason)
    # A group may be hit from the start of its action to the commit.
    together = min(sum(c.bytes_in for c in found), policy.max_action_bytes)
    if conflict_chance(facts, max(_LEAST_SECONDS, together / _ASSUMED_RATE)) < LIKELY_CONFLICT:
        return {}
    wanted = {p for c in found for p in c.partitions}
    return dict.fromkeys(recent & wanted, f"{reason}, and a commit is likely to conflict with the rewrite")


def sort_by(facts: TableFacts, policy: Policy) -> RewriteOrder:
    """The row order that a policy asks for: its columns, else the table's sort order, else its filter columns.

    Raises :class:`~icekit.errors.ParameterError` for an unknown column, or if none is known.
    """
    known = {column.name: column for column in facts.columns}
    for name in policy.columns:
        if name not in known:
            what = "order rows" if policy.strategy == "binpack" else policy.strategy
            raise ParameterError(
                f"There is no column {name!r} to {what} by{nearest(name, known) or '; the columns are ' + _some(known) + '.'}"
            )
    if policy.strategy == "binpack":
        return RewriteOrder()
    wanted = policy.columns
    if not wanted and policy.strategy == "sort" and facts.sort_order:
        return RewriteOrder("sort")
    if not wanted:
        wanted = tuple(f.source for f in facts.sort_order) or facts.filter_columns
    if not wanted:
        raise ParameterError(
            f"{facts.name} has no sort order and declares no filter columns. Name the columns to {policy.strategy} by (columns: a,b), or set the table property icekit.filter-columns."
        )
    for name in wanted:
        path = known[name].names
        if policy.strategy != "sort" and (len(path) > 1 or "." in path[0] or "`" in path[0]):
            raise ParameterError(
                f"Spark cannot {policy.strategy} by {name!r}: a curve cannot use a column inside a struct, or with a dot or a backtick in its name. Use the strategy sort."
            )
    if policy.strategy != "sort" and (refused := _refused_by_curve(facts, policy.strategy, wanted)):
        raise ParameterError(f"Iceberg cannot {policy.strategy} {facts.name}: {refused}. Use the strategy sort.")
    direction = "ASC NULLS FIRST" if policy.strategy == "sort" else ""
    return RewriteOrder(policy.strategy, tuple((known[name].names, direction) for name in wanted))


# The column that a curve's action adds while it sorts (Z_COLUMN and H_COLUMN of Iceberg's SparkZOrderFileRewriteRunner and SparkHilbertFileRewriteRunner).
_CURVE_COLUMNS = {"zorder": "ICEZVALUE", "hilbert": "ICEHVALUE"}
# Types that SparkZOrderUDF has no bytes for.
_NOT_ZORDERED = ("decimal", "time(", "variant", "geometry", "geography", "unknown")


def _refused_by_curve(facts: TableFacts, strategy: str, columns: Sequence[str]) -> str | None:
    """Why Iceberg's own action would refuse a curve through these columns, after the run has begun; None if it would not."""
    reserved = _CURVE_COLUMNS[strategy]
    if any(column.names[0].upper() == reserved for column in facts.columns):
        return f"the table has a column named {reserved}, which the action needs for its own values"
    constant = {field.source for field in facts.default_spec.fields if field.transform == "identity"}
    if constant.issuperset(columns):
        return "all columns are identity partition columns, which have one value in each partition"
    types = {name: facts.by_name[name].type for name in columns}
    unusable = [f"{name} ({kind})" for name, kind in types.items() if kind == "time" or kind.startswith(_NOT_ZORDERED)]
    return f"it has no bytes for the type of {', '.join(unusable)}" if strategy == "zorder" and unusable else None


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:10]) + (", …" if len(listed) > 10 else "")


@dataclass(frozen=True, slots=True)
class RewriteSelection:
    """The candidates for a rewrite: all that are ``found``, those ``chosen`` to be rewritten now, and the partitions ``skipped``, with reasons.

    ``budget_bytes`` is what the plan may read; None without a limit.
    """

    found: tuple[Candidate, ...]
    chosen: tuple[Candidate, ...]
    skipped: tuple[Skipped, ...]
    budget_bytes: int | None = None


def select(
    facts: TableFacts,
    findings: Findings,
    policy: Policy,
    thresholds: Thresholds,
    *,
    recent: Iterable[Partition] = (),
    speed: Speed | None = None,
    now: dt.datetime | None = None,
) -> RewriteSelection:
    """Choose what would be rewritten now, most file opens saved per byte first; pure.

    The one answer for health cards, reports, plans and compactions. ``recent`` are partitions written lately; ``speed`` is that of past
    runs, for a budget in minutes. Raises :class:`~icekit.errors.ParameterError` for a policy that does not fit the table.
    """
    found = candidates(facts, findings, policy, thresholds)
    budget_bytes = _budget_bytes(policy, speed, found) if found else policy.budget_bytes
    held = _held(facts, found, policy, frozenset(recent))
    window = in_window(facts, policy, now or dt.datetime.now(dt.UTC)) if found else None
    refused: dict[str, list[Partition]] = {}
    chosen: list[Candidate] = []
    files = total = 0
    for candidate in found:
        parts = candidate.partitions
        reason = None
        if window is not None and not window.issuperset(parts):
            reason = "outside the time window"
        elif any(p in held for p in parts):
            reason = next(held[p] for p in parts if p in held)
        elif candidate.mode not in {"spec", "table"} and not all(askable(facts.spec(p.spec_id), p) for p in parts):
            reason = "its value is NaN, for which Iceberg has no filter"
        elif candidate.mode not in {"spec", "table"} and not is_bounded(facts, parts):
            reason = "no filter selects only this partition: its partition columns were dropped, or the table was not partitioned then"
        elif (
            (budget_bytes is not None and total + candidate.bytes_in > budget_bytes)
            or (policy.budget_files is not None and files + candidate.files_in > policy.budget_files)
            or (policy.budget_rows is not None and (total + candidate.bytes_in) * _rows_per_byte(facts) > policy.budget_rows)
        ):
            reason = _over_budget(found, policy, budget_bytes)
        if reason:
            refused.setdefault(reason, []).extend(parts)
        else:
            chosen.append(candidate)
            files, total = files + candidate.files_in, total + candidate.bytes_in
    waits = set(held.values())
    skipped = tuple(_left(reason, partitions, facts, is_recent=reason in waits) for reason, partitions in refused.items())
    return RewriteSelection(found, tuple(chosen), skipped, budget_bytes)


def _over_budget(found: Sequence[Candidate], policy: Policy, budget_bytes: int | None) -> str:
    """Why the budget does not cover a candidate: others save more, or it covers none of them."""
    files, total = min(c.files_in for c in found), min(c.bytes_in for c in found)
    for budget, least, told in (
        (policy.budget_files, files, f"{policy.budget_files} files is less than the {files:,}"),
        (budget_bytes, total, f"{size(budget_bytes or 0)} is less than the {size(total)}"),
    ):
        if budget is not None and least > budget:
            return f"the budget of {told} of {'the only' if len(found) == 1 else 'the smallest'} partition, which is rewritten as a whole"
    return "the budget goes to partitions that save more file opens per byte"


def _budget_bytes(policy: Policy, speed: Speed | None, found: Sequence[Candidate]) -> int | None:
    """What the plan may read: its budget in bytes or in time, whichever is smaller."""
    if policy.budget_minutes is None:
        return policy.budget_bytes
    if speed is None or speed.most_bytes < min(candidate.bytes_in for candidate in found):
        runs = "the ledger has none" if speed is None else "those in the ledger are far smaller than this table's rewrites"
        raise ParameterError(
            f"A budget in minutes needs the speed of past runs, and {runs}. For the first run give the budget in bytes (budget: 200 GB)."
        )
    by_time = speed.bytes_within(policy.budget_minutes * 60)
    return by_time if policy.budget_bytes is None else min(policy.budget_bytes, by_time)


def _left(reason: str, partitions: Sequence[Partition], facts: TableFacts, *, is_recent: bool = False) -> Skipped:
    return Skipped(reason, len(partitions), tuple(facts.partition_name(p) for p in partitions[:3]), is_recent)


def _batches(chosen: Sequence[Candidate], policy: Policy) -> list[list[Candidate]]:
    """Candidates grouped into actions: rewritten in the same way, and limited in what one attempt risks."""
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
    shared: Rewriting,
    action: Action,
    batch: Sequence[Candidate],
    taken: Sequence[Action],
    predict: Predict | None,
    rest: tuple[int | None, ...],
) -> Action | None:
    """The action with its prediction, cut down until the engine's own figures fit the rest of the budget: of bytes, files and rows."""
    kept = list(batch)
    for _ in range(_TRIMS):
        fitted = predict(action) if predict else action
        needed = fitted.prediction.bytes_in, fitted.prediction.files_in, fitted.prediction.rows_in
        over = max(amount / max(left, 1) if left is not None else 0.0 for amount, left in zip(needed, rest, strict=True))
        if over <= 1:
            return fitted
        kept = kept[: math.floor(len(kept) / over)]
        if not kept:
            return None
        action = rewrite_action(shared, action.action_id, kept, taken)
    return None


def _notes(facts: TableFacts, actions: Sequence[Action], policy: Policy) -> list[str]:
    notes = []
    gap = facts.history.median_seconds_between_commits
    recent = facts.history.commits[-100:]
    if gap and recent:
        share = _changing_share(facts)
        seconds = max((a.prediction.seconds for a in actions if a.prediction.seconds), default=None)
        said = f"Commits are {span(gap * 1000)} apart, and {percent(share)} of the last {len(recent)} delete, overwrite or replace files; only such commits can conflict with a rewrite"
        if seconds and share:
            seconds = max(_LEAST_SECONDS, seconds)
            chance = conflict_chance(facts, seconds)
            said += f"; the longest action takes about {span(seconds * 1000)}, with a {percent(chance)} chance of such a commit in that time (if the commit touches the same files, icekit retries the action)"
        notes.append(said + ".")
    total = sum(a.prediction.bytes_in for a in actions)
    if large := [a for a in actions if a.prediction.bytes_in > policy.max_action_bytes]:
        most = size(max(a.prediction.bytes_in for a in large))
        notes.append(
            f"{count(len(large), 'action')} {'takes' if len(large) == 1 else 'take'} up to {most}, more than the limit of {size(policy.max_action_bytes)}: "
            "no action is smaller than one partition."
        )
    if facts.data.size_in_bytes:
        rows = sum(a.prediction.rows_in for a in actions)
        notes.append(
            f"The plan reads {size(total)} of {size(facts.data.size_in_bytes)} ({percent(total / facts.data.size_in_bytes)} of the table), "
            f"about {count(rows, 'row')}."
        )
        per_file = round(facts.target_bytes * _rows_per_byte(facts))
        if per_file > MANY_ROWS:
            notes.append(
                f"A file of the target size ({size(facts.target_bytes)}) would hold about {count(per_file, 'row')}, because a row takes "
                f"{1 / _rows_per_byte(facts):.2g} bytes; one task writes a file, whatever its bytes. icekit tune file-sizes {facts.name} tries smaller targets."
            )
    sources = [a.prediction.source for a in actions]
    if "facts" in sources and "planner" in sources:
        notes.append(
            f"The engine's planner predicts {sources.count('planner'):,} of {count(len(actions), 'action')}, because it reads the table's metadata "
            "for each; the others are estimated from facts."
        )
    elif "facts" in sources:
        notes.append("Predictions are estimated from facts: the engine's planner cannot be asked in this session.")
    return notes


# --- Report how much of the candidates a budget covers; pure arithmetic on a plan


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the candidates a plan takes, by their own figures; ``of_*`` is the sum over all candidates."""

    candidates: int
    bytes_in: int
    files_in: int
    file_opens_saved: int
    of_candidates: int
    of_bytes_in: int
    of_files_in: int
    of_file_opens_saved: int

    @property
    def share_won(self) -> float | None:
        """File opens saved as a share of what all candidates would save; None if there is nothing to save."""
        return self.file_opens_saved / self.of_file_opens_saved if self.of_file_opens_saved else None


def coverage(found: Sequence[Candidate], plan: Plan) -> Coverage:
    """Count the candidates whose partitions are all in the plan's actions."""
    chosen = {p for action in plan.actions for p in action.partitions}
    taken = [c for c in found if chosen.issuperset(c.partitions)]
    return Coverage(len(taken), *_sums(taken), len(found), *_sums(found))


def _sums(some: Sequence[Candidate]) -> tuple[int, int, int]:
    return sum(c.bytes_in for c in some), sum(c.files_in for c in some), sum(c.file_opens_saved for c in some)
