"""Try a plan on a zero-copy clone, each action whole or a bounded sample, and correct its predictions by what came out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from icekit.catalog import Lake
from icekit.compact.execute import ask_planner, execute, narrowed
from icekit.compact.model import Action, Plan, Prediction
from icekit.compact.outcome import RUN_TAG, Actual, actual
from icekit.engine.interrupting import Stop, Stopped
from icekit.engine.planner import PlannedRewrite
from icekit.errors import RehearsalFailed
from icekit.facts.files import Kind, Partition
from icekit.facts.head import head, since
from icekit.facts.model import TableFacts
from icekit.prove import prove_commits
from icekit.sandbox import Clone, clone
from icekit.units import count, size

#: Bytes of one action that a trial rewrites at most; at least one partition's files, up to so many.
SAMPLE_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class PlanTrial:
    """What rewriting a sample on a clone came to, beside what the planner said of that sample."""

    planned: PlannedRewrite
    actual: Actual
    seconds: float
    is_whole: bool


def try_plan(
    lake: Lake,
    facts: TableFacts,
    plan: Plan,
    *,
    sample_bytes: int = SAMPLE_BYTES,
    stop: Stop | None = None,
    progress: Callable[[str], None] = print,
) -> Plan:
    """The plan with each prediction corrected by a trial on a clone; the table is not written to.

    An action of at most ``sample_bytes`` is tried whole, and its prediction is what came out. Of
    a larger one some partitions are tried, and files, bytes and seconds are scaled by what the
    planner says of the rest. Rows are compared before and after, as a run does. Raises
    :class:`~icekit.errors.CloneRefused`, and :class:`~icekit.errors.RehearsalFailed` if a row changed.
    Once ``stop`` is set it raises :class:`~icekit.engine.interrupting.Stopped`, the clone removed.
    """
    todo = [a for a in plan.actions if a.procedure == "rewrite_data_files"]
    if not todo:
        return plan
    tried: dict[str, Action] = {}
    with clone(lake, plan.table) as copy:
        first = head(lake, copy.table, plan.ref).snapshot_id
        for action in todo:
            trial = _try(lake, facts, copy, action, sample_bytes, stop)
            tried[action.action_id] = replace(action, prediction=_corrected(action.prediction, trial))
            part = "all" if trial.is_whole else size(trial.planned.bytes_in)
            progress(f"tried {action.action_id} on a clone ({part} of {size(action.prediction.bytes_in)}) in {trial.seconds:.1f} s")
        commits = [int(s["snapshot-id"]) for s in since(head(lake, copy.table, plan.ref), first)] if first is not None else []
        proof = prove_commits(lake, copy.table, commits) if commits else None
    if proof is not None and proof.ok is False:
        raise RehearsalFailed(
            f"On a clone of {plan.name} the plan changed rows; nothing was run on the table itself. Keep what follows and report it.\n{proof!r}"
        )
    said = repr(proof).split("\n", 1)[0].partition(": ")[2] if proof is not None else None
    return replace(plan, actions=tuple(tried.get(a.action_id, a) for a in plan.actions), rehearsed=said)


def _try(lake: Lake, facts: TableFacts, copy: Clone, action: Action, sample_bytes: int, stop: Stop | None) -> PlanTrial:
    sample = _sample(facts, action, sample_bytes)
    is_whole = sample is None
    moved = replace(action, table=copy.table)
    if sample is not None:
        partitions, mean_bytes = sample
        # A partition may be larger than the sample is to be.
        most = {"max-files-to-rewrite": str(max(2, int(sample_bytes / max(mean_bytes, 1.0))))}
        moved = replace(narrowed(lake, moved, partitions), options={**action.options, **most})
    planned = ask_planner(lake.spark, moved)
    before = head(lake, copy.table, action.branch)
    started = time.monotonic()
    try:
        answer = execute(lake.spark, moved, {RUN_TAG: "trial"}, stop=stop or Stop(), tick=lambda _: None)
    except Stopped:
        if stop is not None:
            raise
        raise KeyboardInterrupt from None
    seconds = time.monotonic() - started
    came = actual(since(head(lake, copy.table, action.branch), before.snapshot_id))
    if answer.failed_groups or (planned.files_in and not came.any):
        raise RehearsalFailed(
            f"On a clone {count(answer.failed_groups, 'group')} of {planned.groups:,} of action {action.action_id} failed; nothing was run on the table itself. "
            "Run it without a trial to have it split and named, or make it smaller with max_action_bytes."
        )
    return PlanTrial(planned, came, seconds, is_whole)


def _sample(facts: TableFacts, action: Action, sample_bytes: int) -> tuple[tuple[Partition, ...], float] | None:
    """Partitions of middling size that are a sample's worth, and their mean file size; None to take all of the action."""
    if action.prediction.bytes_in <= sample_bytes or not action.partitions:
        return None
    wanted = frozenset(action.partitions)
    sizes = {g.partition: g for g in facts.of_kind(Kind.DATA) if g.partition in wanted}
    ordered = sorted(action.partitions, key=lambda p: sizes[p].size_in_bytes if p in sizes else 0)
    # From the middle outwards: neither the tiniest nor the one that is unlike all others.
    middle = len(ordered) // 2
    outwards = sorted(range(len(ordered)), key=lambda i: abs(i - middle))
    chosen: list[Partition] = []
    total = files = 0
    for place in outwards:
        group = sizes.get(ordered[place])
        if chosen and total + (group.size_in_bytes if group else 0) > sample_bytes:
            break
        chosen.append(ordered[place])
        total += group.size_in_bytes if group else 0
        files += group.file_count if group else 0
    return tuple(chosen), total / max(files, 1)


def _corrected(p: Prediction, trial: PlanTrial) -> Prediction:
    """A prediction scaled by what the sample came to."""
    done, planned = trial.actual, trial.planned
    if trial.is_whole:
        opens = p.file_opens_saved - (p.files_in - p.files_out) + (done.files_in - done.files_out)
        return replace(
            p,
            files_in=done.files_in,
            files_out=done.files_out,
            bytes_out=done.bytes_out,
            delete_files_removed=done.delete_files_removed,
            seconds=trial.seconds,
            file_opens_saved=max(opens, 0),
            source="trial",
        )
    if not done.any or not planned.bytes_in or not planned.files_out:
        return p
    files = round(p.files_out * done.files_out / planned.files_out)
    return replace(
        p,
        files_out=files,
        bytes_out=round(p.bytes_in * done.bytes_out / planned.bytes_in),
        seconds=trial.seconds * p.bytes_in / planned.bytes_in,
        file_opens_saved=max(p.file_opens_saved + p.files_out - files, 0),
        source="trial of a sample",
    )
