"""Try a plan on a zero-copy clone, each action complete or as a bounded sample, and correct its
predictions from the result.
"""

import statistics
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate

from icekit.common.errors import RehearsalFailed
from icekit.common.units import count, size
from icekit.engine.errors import explain_errors
from icekit.engine.interrupting import Stop, Stopped
from icekit.engine.lake import Lake
from icekit.engine.planner import PlannedRewrite
from icekit.health.facts.files import Totals
from icekit.health.facts.head import commits_since, head
from icekit.health.facts.model import TableFacts
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.partition import Partition
from icekit.maintain.action import Action
from icekit.maintain.engine_prediction import ask_planner
from icekit.maintain.plan import Plan, Skipped, SkipReason
from icekit.maintain.planning.compaction import saves_nothing
from icekit.maintain.prediction import Certainty, Prediction
from icekit.maintain.record.results import RUN_TAG, Actual, actual_of
from icekit.maintain.run.execute import execute
from icekit.maintain.run.preconditions import require_api
from icekit.maintain.run.smaller_actions import narrowed_action
from icekit.rows.proof.commits import prove_rewrites
from icekit.sandbox.clones import clone
from icekit.sandbox.scratch import ScratchTable

#: Most bytes of one action that a trial rewrites; at least the files of one partition, up to this
# size.
SAMPLE_BYTES = 256 * 2**20


def try_plan(
    lake: Lake,
    facts: TableFacts,
    plan: Plan,
    *,
    sample_bytes: int = SAMPLE_BYTES,
    stop: Stop | None = None,
    progress: Callable[[str], None] = print,
) -> Plan:
    """The plan of a compaction with each prediction corrected by a trial on a clone; the table is
    not written to.

    An action of at most ``sample_bytes`` is tried in full, and its prediction is the result. Of a
    larger action some partitions are tried, and files, bytes and seconds are scaled by the
    planner's figures for the rest. Rows are compared before and after, as in a run. Raises
    :class:`~icekit.common.errors.CloneRefused`, and :class:`~icekit.common.errors.RehearsalFailed`
    if a row changed. Once ``stop`` is set it raises :class:`~icekit.engine.interrupting.Stopped`
    and removes the clone.
    """
    if not plan.actions:
        return plan
    require_api(lake.spark, plan.actions)
    with clone(lake, plan.table) as table_clone:
        first_snapshot_id = head(lake, table_clone.table, plan.ref).snapshot_id
        tried_actions = tuple(
            _tried_action(
                lake, facts, table_clone, action, sample_bytes=sample_bytes, stop=stop, say=progress
            )
            for action in plan.actions
        )
        clone_commits = commits_since(head(lake, table_clone.table, plan.ref), first_snapshot_id)
        commits_by_id = {int(snapshot["snapshot-id"]): snapshot for snapshot in clone_commits}
        proof = prove_rewrites(lake, table_clone.table, commits_by_id) if commits_by_id else None
    if proof is not None and proof.ok is False:
        raise RehearsalFailed(
            f"On a clone of {plan.table_name} the plan changed rows. Nothing was run on the table "
            "itself. Keep the proof below and report it.\n" + "\n".join(proof.lines())
        )
    proof_summary = proof.lines()[0].partition(": ")[2] if proof is not None else None
    return without_gain(replace(plan, actions=tried_actions, rehearsed=proof_summary))


def without_gain(plan: Plan) -> Plan:
    """The plan without the actions for which a trial has found that they save nothing; a note says
    which.
    """
    idle_actions = [a for a in plan.actions if saves_nothing(a)]
    skipped_partitions = tuple(
        Skipped(SkipReason.SAVES_NOTHING, len(a.partitions), a.partition_names[:3])
        for a in idle_actions
    )
    gaining_actions = tuple(a for a in plan.actions if a not in idle_actions)
    return replace(plan, actions=gaining_actions, left_alone=plan.left_alone + skipped_partitions)


def _tried_action(
    lake: Lake,
    facts: TableFacts,
    table_clone: ScratchTable,
    action: Action,
    *,
    sample_bytes: int,
    stop: Stop | None,
    say: Callable[[str], None],
) -> Action:
    """The action with a prediction from the result of rewriting it, or a sample of it, on a
    clone.
    """
    sample = _sampled_partitions(facts, action, sample_bytes)
    clone_action = replace(action, table=table_clone.table)
    if sample is not None:
        partitions, mean_bytes = sample
        # A partition may be larger than the sample should be.
        file_limit_option = {
            "max-files-to-rewrite": str(max(2, int(sample_bytes / max(mean_bytes, 1.0))))
        }
        clone_action = replace(
            narrowed_action(lake, clone_action, partitions),
            options={**clone_action.options, **file_limit_option},
        )
    planned_rewrite = ask_planner(lake.spark, clone_action)
    head_before = head(lake, table_clone.table, action.branch)
    start_time = time.monotonic()
    try:
        with explain_errors(action.sql_name):
            rewrite_result = execute(
                lake.spark, clone_action, {RUN_TAG: "trial"}, stop=stop or Stop()
            )
    except Stopped:
        if stop is not None:
            raise
        raise KeyboardInterrupt from None
    seconds = time.monotonic() - start_time
    actual_change = actual_of(
        commits_since(head(lake, table_clone.table, action.branch), head_before.snapshot_id)
    )
    if rewrite_result.failed_groups or (planned_rewrite.files_in and not actual_change.has_changes):
        raise RehearsalFailed(
            f"On a clone {count(rewrite_result.failed_groups, 'group')} of "
            f"{planned_rewrite.groups:,} of action {action.action_id} failed "
            f"({rewrite_result.failure_reason}). Nothing was run on the table itself. Run without "
            "a trial, which splits the action and names the failing part, or make it smaller with "
            "max_action_bytes."
        )
    size_text = "all" if sample is None else size(planned_rewrite.bytes_in)
    say(
        f"tried {action.action_id} on a clone ({size_text} of "
        f"{size(action.prediction.bytes_in)}) in {seconds:.1f} s"
    )
    if sample is None:
        return replace(
            action, prediction=_prediction_of_full_trial(action.prediction, actual_change, seconds)
        )
    return replace(
        action,
        prediction=_prediction_of_sample(
            action.prediction, planned_rewrite, actual_change, seconds
        ),
    )


def _sampled_partitions(
    facts: TableFacts, action: Action, sample_bytes: int
) -> tuple[tuple[Partition, ...], float] | None:
    """Partitions of medium size that make up a sample, and their mean file size; None to take the
    complete action.
    """
    if action.prediction.bytes_in <= sample_bytes or not action.partitions:
        return None
    groups_by_partition = {g.partition: g for g in facts.of_kind(Kind.DATA)}
    action_groups = [groups_by_partition[p] for p in action.partitions if p in groups_by_partition]
    # Those of about the median size first: neither the smallest nor an outlier.
    median_bytes = statistics.median(group.size_in_bytes for group in action_groups)
    groups_near_median = sorted(
        action_groups, key=lambda group: abs(group.size_in_bytes - median_bytes)
    )
    cumulative_bytes = list(accumulate(group.size_in_bytes for group in groups_near_median))
    sampled_groups = groups_near_median[: max(1, bisect_right(cumulative_bytes, sample_bytes))]
    sample_totals = Totals.of_groups(sampled_groups)
    return tuple(g.partition for g in sampled_groups), sample_totals.mean_bytes or 0.0


def _prediction_of_full_trial(prediction: Prediction, actual: Actual, seconds: float) -> Prediction:
    """The prediction of an action that was tried in full: its result."""
    file_opens_saved = (
        prediction.file_opens_saved
        - (prediction.files_in - prediction.files_out)
        + (actual.files_in - actual.files_out)
    )
    return replace(
        prediction,
        files_in=actual.files_in,
        files_out=actual.files_out,
        bytes_out=actual.bytes_out,
        delete_files_removed=actual.delete_files_removed,
        seconds=seconds,
        file_opens_saved=file_opens_saved,
        source="trial",
        certainty=Certainty.EXACT,
    )


def _prediction_of_sample(
    prediction: Prediction, planned_rewrite: PlannedRewrite, actual: Actual, seconds: float
) -> Prediction:
    """A prediction scaled by the result of a sample, next to the planner's prediction for that
    sample.
    """
    if not actual.has_changes or not planned_rewrite.bytes_in or not planned_rewrite.files_out:
        return prediction
    file_count_out = round(prediction.files_out * actual.files_out / planned_rewrite.files_out)
    return replace(
        prediction,
        files_out=file_count_out,
        bytes_out=round(prediction.bytes_in * actual.bytes_out / planned_rewrite.bytes_in),
        seconds=seconds * prediction.bytes_in / planned_rewrite.bytes_in,
        file_opens_saved=prediction.file_opens_saved + prediction.files_out - file_count_out,
        source="trial of a sample",
        certainty=Certainty.ABOUT,
    )
