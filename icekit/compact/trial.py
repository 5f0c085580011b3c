"""Predict what a plan's actions would do: by the engine's own planner, and on a bounded sample of a zero-copy clone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from icekit.catalog import Lake
from icekit.compact.candidates import dropped_by
from icekit.compact.execute import RUN_TAG, Actual, actual, execute, smaller_conversions
from icekit.compact.model import CONVERT, REWRITE_NOTHING, Action, Plan, Prediction
from icekit.engine.bridge import has_bridge
from icekit.engine.interrupting import Stop, Stopped
from icekit.engine.planner import PlannedRewrite, partitions_with_files_up_to, plan_rewrite, rolled_up
from icekit.errors import ParameterError, RehearsalFailed
from icekit.facts.files import Kind, Partition
from icekit.facts.head import head, since
from icekit.facts.metadata import columns, schema_of, specs
from icekit.facts.model import TableFacts
from icekit.facts.where import where
from icekit.prove import prove_commits
from icekit.sandbox import Clone, clone
from icekit.units import count, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# --- Ask the engine's own planner what a rewrite would take, without running it


def ask_planner(spark: SparkSession, action: Action, *, deletes: bool = False) -> PlannedRewrite:
    """What ``rewrite_data_files`` would rewrite with this action's filter and options, by its own planner.

    ``deletes`` also counts the delete files over them. Needs the JVM bridge; raises the errors
    of :mod:`icekit.errors`.
    """
    return rolled_up(_plan(spark, action), deletes=deletes)


def partitions_left(spark: SparkSession, action: Action, sequence_number: int) -> tuple[Partition, ...] | None:
    """The partitions in which the planner selects a file that was there at a sequence number.

    What a run has written itself may be selected again (deletes of the sequence number that
    it starts from still apply to its files), and is not left to do. None where groups cannot be
    told by partition: those of older specs.
    """
    plan = _plan(spark, action)
    if plan is None:
        return ()
    # Texts that differ from Java's are not found, and nothing is left out then.
    known = {tuple(str(value) for value in p.values): p for p in action.partitions}
    left: list[Partition] = []
    for values in partitions_with_files_up_to(spark, plan, sequence_number):
        if values not in known:
            return None
        left.append(known[values])
    return tuple(dict.fromkeys(left))


def _plan(spark: SparkSession, action: Action) -> Any:
    return plan_rewrite(spark, action.sql_name, action.options, where=action.where, branch=action.branch)


def predict(
    spark: SparkSession | None,
    facts: TableFacts,
    action: Action,
    *,
    sequence_number: int,
    bytes_ratio: float = 1.0,
    bytes_per_second: float | None = None,
) -> Action:
    """The action with the engine's prediction in place of the estimate it was chosen by.

    ``bytes_ratio`` is bytes written per live byte read, from a trial or past runs.
    ``bytes_per_second`` is the throughput of past runs. Without a bridge the estimate stays,
    and says so by its source.
    """
    estimate = action.prediction
    if estimate.source == "metadata":
        return action
    if spark is not None and has_bridge(spark):
        # Only where deletes decide which files are taken must each file be looked at.
        by_ratio = "delete-ratio-threshold" in action.options
        planned = ask_planner(spark, action, deletes=by_ratio)
        removed = planned.delete_files or 0
        if not by_ratio and action.options.get("remove-dangling-deletes") == "true":
            renewed = action.options.get("use-starting-sequence-number") == "false"
            removed = dropped_by(facts, action.partitions, sequence_number + renewed)
        live = estimate.bytes_out / estimate.bytes_in if estimate.bytes_in else 1.0
        estimate = replace(
            estimate,
            files_in=planned.files_in,
            bytes_in=planned.bytes_in,
            files_out=planned.files_out,
            bytes_out=round(planned.bytes_in * live * bytes_ratio),
            bytes_untaught=round(planned.bytes_in * live),
            delete_files_removed=removed,
            groups=planned.groups,
            file_opens_saved=max(estimate.file_opens_saved - (estimate.files_in - estimate.files_out), 0)
            + max(planned.files_in - planned.files_out, 0),
            source="planner",
        )
    else:
        estimate = replace(estimate, bytes_out=round(estimate.bytes_out * bytes_ratio))
    return replace(
        action,
        prediction=replace(
            estimate,
            shuffle_bytes=estimate.bytes_in if action.order.is_sorting else 0,
            seconds=estimate.bytes_in / bytes_per_second if bytes_per_second else None,
        ),
    )


# --- Cut an action down: to some of its partitions, to parts for one that was too large, to its dangling deletes


def narrowed(lake: Lake, action: Action, partitions: Sequence[Partition]) -> Action:
    """The action for some of its partitions."""
    metadata = head(lake, action.table).metadata
    known = {spec.spec_id: spec for spec in specs(metadata)}
    asked = where(action.catalog, known, columns(metadata, schema_of(metadata)), partitions)
    if asked is None and action.where is not None:
        raise ParameterError(f"No filter asks for {count(len(partitions), 'partition')} of {action.title} alone any more; plan again.")
    return replace(action, partitions=tuple(partitions), where=asked, partition_names=())


def smaller_parts(lake: Lake, action: Action, *, floor_bytes: int) -> tuple[Action, ...]:
    """The action in smaller parts: fewer partitions, then smaller groups, then one group at a time.

    Groups become no smaller than ``floor_bytes``. The last part runs without partial progress,
    under which an engine only logs why a group failed. Empty when there is nothing smaller than that.
    """
    parts = action.partitions
    if action.procedure == CONVERT:
        return smaller_conversions(action)
    if len(parts) > 1:
        middle = len(parts) // 2
        names = ("1", "2")
        return tuple(
            replace(narrowed(lake, action, chosen), action_id=f"{action.action_id}.{name}", options=_gentler(action.options))
            for name, chosen in zip(names, (parts[:middle], parts[middle:]), strict=True)
        )
    if has_bridge(lake.spark) and action.options.get("rewrite-all") != "true":
        smaller = ask_planner(lake.spark, action).largest_group_bytes // 2
        if smaller >= floor_bytes:
            options = {**_gentler(action.options), "max-file-group-size-bytes": str(smaller)}
            return (replace(action, action_id=f"{action.action_id}.s", options=options),)
    if action.options.get("partial-progress.enabled") != "true":
        return ()
    alone = {k: v for k, v in action.options.items() if not k.startswith("partial-progress")}
    return (replace(action, action_id=f"{action.action_id}.c", options={**alone, "max-concurrent-file-group-rewrites": "1"}),)


def only_dangling(action: Action) -> Action | None:
    """What drops an action's dangling deletes and rewrites nothing, for a kill between its two commits; None where it drops none."""
    if action.options.get("remove-dangling-deletes") != "true":
        return None
    options = {key: value for key, value in action.options.items() if key not in {"rewrite-all", "delete-file-threshold"}}
    return replace(action, options={**options, **REWRITE_NOTHING})


def _gentler(options: Mapping[str, str]) -> dict[str, str]:
    """The same options with half the groups at once."""
    at_once = int(options.get("max-concurrent-file-group-rewrites", "5"))
    return {**options, "max-concurrent-file-group-rewrites": str(max(1, at_once // 2))}


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
