"""Turn facts and findings into a plan: which partitions, in which order, with which statement,
within which budget.
"""

import datetime as dt
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from icekit.common.command_line import command_line
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import ParameterError, TableContradicted, require_known
from icekit.common.units import count, percent, size, span
from icekit.engine.cluster import Cluster
from icekit.health.diagnose.findings import Finding, Findings, Thresholds
from icekit.health.facts.column_support import order_refusal, require_supported
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import sort_key
from icekit.iceberg.definition import dropped_field_warning
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.filter_opens import FilterOpens
from icekit.iceberg.partition import Partition
from icekit.maintain.action import Action
from icekit.maintain.engine_prediction import Speed
from icekit.maintain.plan import Explained, Plan, Skipped, SkipReason
from icekit.maintain.planning.candidates import Candidate
from icekit.maintain.planning.file_order import file_order_column
from icekit.maintain.planning.rewrite_actions import (
    RewriteInputs,
    dangling_deletes_action,
    parallelism,
    rewrite_action,
)
from icekit.maintain.planning.selection import (
    BudgetLimits,
    RewriteSelection,
    conflicting_commit_share,
    overrun,
    select,
    skipped_partitions,
)
from icekit.maintain.policy import findings_of, thresholds_of
from icekit.maintain.prediction import Prediction, total_of
from icekit.rows.rewrite.rewrite_order import RewriteOrder

#: Replaces an estimate with the engine's prediction; see
# :class:`icekit.maintain.planning.table_plan.EnginePlanner`.
Predict = Callable[[Action], Action]
# How often an action is planned again because the planner takes more than the budget allows.
_TRIMS = 4


def plan(
    facts: TableFacts,
    findings: Findings,
    policy: CompactionPolicy | None = None,
    *,
    thresholds: Thresholds | None = None,
    cluster: Cluster | None = None,
    recent: Iterable[Partition] = (),
    predict: Predict = lambda action: action,
    speed: Speed | None = None,
    now: dt.datetime | None = None,
    attended: bool = True,
) -> Plan:
    """Plan the rewrites of data files that are worth it; pure except for ``predict``; runs nothing.

    ``recent`` are partitions written lately: they are skipped if the policy says so, or else if a
    commit is likely to conflict with their rewrite. ``speed`` is that of past runs, needed for a
    budget in minutes. A policy with limits of its own (``min_files``, ``delete_ratio``) has
    ``findings`` made again with these. The rest is as in :func:`plan_selection`.
    """
    policy = policy or CompactionPolicy()
    now = now or dt.datetime.now(dt.UTC)
    thresholds = thresholds or Thresholds()
    policy_thresholds = thresholds_of(policy, thresholds)
    policy_findings = findings_of(policy, facts, findings, thresholds)
    selection = select(
        facts, policy_findings, policy, policy_thresholds, recent=recent, speed=speed, now=now
    )
    return plan_selection(
        facts,
        policy_findings,
        policy,
        policy_thresholds,
        selection,
        cluster=cluster,
        predict=predict,
        now=now,
        attended=attended,
    )


def plan_selection(
    facts: TableFacts,
    findings: Findings,
    policy: CompactionPolicy,
    thresholds: Thresholds,
    selection: RewriteSelection,
    *,
    cluster: Cluster | None = None,
    predict: Predict = lambda action: action,
    now: dt.datetime | None = None,
    attended: bool = True,
) -> Plan:
    """Plan the rewrites that are selected; ``findings`` and ``thresholds`` are those of the policy.

    ``predict`` asks the engine; without it predictions are those of the metadata. Unless somebody
    is there to read the plan (``attended``), rewrites that make a filter slower are left alone. A
    table where nothing is worth doing gives a plan without actions. Raises
    :class:`~icekit.common.errors.ParameterError` for a policy that does not fit the table,
    :class:`~icekit.common.errors.TableContradicted` for a table with
    :attr:`~icekit.health.facts.model.TableFacts.contradictions`, and
    :class:`~icekit.common.errors.ColumnsUnsupported` for one with
    :attr:`~icekit.health.facts.model.TableFacts.unsupported_columns`.
    """
    _check_rewritable(facts)
    now = now or dt.datetime.now(dt.UTC)
    order = row_order(facts, policy)
    explained_options: Sequence[Explained] = ()
    if cluster:
        rewrite_total = total_of(c.prediction for c in selection.selected_candidates)
        explained_options = tuple(
            parallelism(
                cluster,
                facts.target_bytes,
                rewrite_total.bytes_in,
                rewrite_total.groups,
                is_sorting=order.is_sorting,
                is_whole=policy.scope == "major",
            )
        )
    rewrite_inputs = RewriteInputs(
        facts, thresholds, order, {option.name: option.value for option in explained_options}
    )
    action_planner = _Planner(
        rewrite_inputs, predict, selection.budget_limits, list(selection.skipped), attended
    )
    for batch in _batches(selection.selected_candidates, policy):
        action_planner.add(batch)
    action_planner.add_dangling(findings)
    actions = tuple(action_planner.actions)
    slower_notes = _slower_filter_notes(facts, action_planner.slower_filters)
    small_target_finding = next((f for f in findings if f.name == "target_too_small"), None)
    return Plan(
        facts.catalog,
        facts.table,
        facts.table_uuid,
        facts.snapshot_id,
        facts.ref,
        actions,
        parallelism=tuple(
            option for option in explained_options if any(option.name in a.options for a in actions)
        ),
        left_alone=tuple(action_planner.skipped),
        notes=(*_notes(facts, findings, actions, policy, small_target_finding), *slower_notes),
        made_at_ms=int(now.timestamp() * 1000),
        waits=None if actions else _waiting_reason(selection, small_target_finding, slower_notes),
    )


def row_order(facts: TableFacts, policy: CompactionPolicy) -> RewriteOrder:
    """The row order that a policy asks for: its columns, else the table's sort order, else its
    filter columns.

    Raises :class:`~icekit.common.errors.ParameterError` for an unknown column, or if none is known.
    """
    columns_by_name = {column.name: column for column in facts.columns}
    for column_name in policy.columns:
        require_known(column_name, columns_by_name, "column")
    if policy.strategy == "binpack":
        return RewriteOrder(files_by=file_order_column(facts))
    column_names = policy.columns
    if not column_names and policy.strategy == "sort" and facts.sort_order:
        return RewriteOrder("sort")
    if not column_names:
        column_names = tuple(f.source for f in facts.sort_order) or facts.filter_columns
    if not column_names:
        raise ParameterError(
            f"{facts.name} has no sort order and declares no filter columns. Name the columns to "
            f"{policy.strategy} by (columns: a,b), or set the table property "
            "icekit.filter-columns."
        )
    if refusal := order_refusal(facts, policy.strategy, column_names):
        is_sortable = order_refusal(facts, "sort", column_names) is None
        advice = "Use the strategy sort." if is_sortable else "Use other columns."
        raise ParameterError(
            f"The strategy {policy.strategy} does not work for {facts.name}: {refusal}. {advice}"
        )
    return RewriteOrder(
        policy.strategy, tuple(columns_by_name[column_name].names for column_name in column_names)
    )


def _check_rewritable(facts: TableFacts) -> None:
    """Raise for a table, or a snapshot of one, that must not or cannot be rewritten."""
    if facts.contradictions:
        raise TableContradicted(
            f"The metadata of {facts.name} must be fixed first "
            f"({', '.join(facts.contradictions)}), so nothing is rewritten. icekit look "
            f"{facts.name} says what is wrong, and what to do.",
            facts.contradictions,
        )
    require_supported(facts)
    branch_names = {ref.name for ref in facts.history.refs if ref.type == "branch"}
    if facts.ref and facts.ref not in branch_names:
        raise ParameterError(
            f"{facts.ref} is not a branch. Only the table itself or a branch can be rewritten; "
            "leave ref out."
        )


@dataclass
class _Planner:
    """Turns batches of candidates into actions, as long as the budget lasts."""

    inputs: RewriteInputs
    predict: Predict
    budget_limits: BudgetLimits
    skipped: list[Skipped]
    attended: bool = True
    actions: list[Action] = field(default_factory=list)
    slower_filters: list[FilterOpens] = field(default_factory=list)

    def add(self, batch: Sequence[Candidate]) -> None:
        """Add the action of a batch, or say why its partitions are left alone."""
        facts = self.inputs.facts
        partitions = [p for c in batch for p in c.partitions]
        # A run finds the commits of an action by this name, so no two actions have the same.
        action = rewrite_action(self.inputs, self._next_id, batch, self.actions)
        if (
            batch[0].mode == "spec"
            and action.where is None
            and any(p.spec_id == facts.default_spec_id for p in facts.partitions())
        ):
            return self._skip(SkipReason.NO_FILTER, action.partitions)
        fitted_action = self._within_budget(action, batch)
        if fitted_action is None:
            return self._skip(SkipReason.OVER_BUDGET, partitions)
        if not fitted_action.prediction.groups:
            return self._skip(SkipReason.PLANNER_FINDS_NOTHING, partitions)
        if saves_nothing(fitted_action):
            return self._skip(SkipReason.SAVES_NOTHING, partitions)
        if fitted_action.prediction.slower_filters and not self.attended:
            self.slower_filters += fitted_action.prediction.slower_filters
            return self._skip(SkipReason.SLOWER_FILTERS, fitted_action.partitions)
        self.actions.append(fitted_action)
        if over_budget_partitions := sorted(
            set(partitions).difference(fitted_action.partitions), key=sort_key
        ):
            self._skip(SkipReason.OVER_BUDGET, over_budget_partitions)
        return None

    def add_dangling(self, findings: Findings) -> None:
        """Add the action that only drops delete files that apply to nothing, if none else does."""
        action = dangling_deletes_action(self.inputs.facts, findings, self.actions)
        if action is not None:
            predicted_action = self.predict(replace(action, action_id=self._next_id))
            if predicted_action.prediction.delete_files_removed:
                self.actions.append(predicted_action)

    @property
    def _next_id(self) -> str:
        return f"a{len(self.actions) + 1}"

    def _skip(self, reason: SkipReason, partitions: Sequence[Partition]) -> None:
        self.skipped.append(skipped_partitions(reason, partitions, self.inputs.facts))

    def _within_budget(self, action: Action, batch: Sequence[Candidate]) -> Action | None:
        """The action with its prediction, cut down until the engine's own figures fit the rest of
        the budget: of bytes, files and rows.
        """
        remaining_limits = tuple(
            limit if limit is None else limit - used_amount
            for limit, used_amount in zip(
                self.budget_limits, _total_prediction(self.actions).budget_figures, strict=True
            )
        )
        remaining_candidates = list(batch)
        for _ in range(_TRIMS):
            fitted_action = self.predict(action)
            overrun_factor = overrun(fitted_action.prediction.budget_figures, remaining_limits)
            if overrun_factor <= 1:
                return fitted_action
            remaining_candidates = remaining_candidates[
                : math.floor(len(remaining_candidates) / overrun_factor)
            ]
            if not remaining_candidates:
                return None
            action = rewrite_action(
                self.inputs, action.action_id, remaining_candidates, self.actions
            )
        return None


def _total_prediction(actions: Iterable[Action]) -> Prediction:
    return total_of(action.prediction for action in actions)


def saves_nothing(action: Action) -> bool:
    """Whether a rewrite that is only worth it for saved file opens saves none, according to its
    prediction.
    """
    return action.must_save and action.prediction.file_opens_saved <= 0


def _slower_filter_notes(facts: TableFacts, slower_filters: Sequence[FilterOpens]) -> list[str]:
    """Why rewrites wait for a person: the filter that gets slowest; empty if none does."""
    if not slower_filters:
        return []
    slowest_filter = max(
        slower_filters,
        key=lambda filter_opens: filter_opens.opens_after / filter_opens.opens_before,
    )
    command = command_line("compact", facts.catalog, facts.name, "--execute")
    return [
        f"{slowest_filter.warning}: such a rewrite starts only when a person starts it at a "
        f"terminal, with `{command}`."
    ]


def _waiting_reason(
    selection: RewriteSelection, small_target_finding: Finding | None, slower_notes: Sequence[str]
) -> str | None:
    """Why nothing is planned although rewrites would help: every candidate was left alone, the
    target file size is wrong, or a person should decide.
    """
    if slower_notes:
        return slower_notes[0]
    if selection.all_candidates and not selection.selected_candidates:
        has_recent_partitions = any(s.is_recent for s in selection.skipped)
        flag_hint = (
            " To plan them anyway, add --leave-alone '0 minutes'." if has_recent_partitions else ""
        )
        return f"Skipped {selection.postponed_text}{flag_hint}"
    if small_target_finding is not None and not selection.all_candidates:
        return (
            "No rewrite helps before the target file size changes: "
            f"{small_target_finding.evidence}. The statement is in the finding target_too_small."
        )
    return None


def _batches(candidates: Sequence[Candidate], policy: CompactionPolicy) -> list[list[Candidate]]:
    """Candidates grouped into actions: rewritten in the same way, and limited in what one attempt
    risks.
    """
    batches: list[list[Candidate]] = []
    open_batches: dict[tuple[str, frozenset[int]], list[Candidate]] = {}
    for candidate in candidates:
        batch_key = candidate.mode, frozenset(p.spec_id for p in candidate.partitions)
        batch = open_batches.get(batch_key)
        is_full = batch is not None and (
            sum(c.prediction.bytes_in for c in (*batch, candidate)) > policy.max_action_bytes
            or sum(len(c.partitions) for c in batch) + len(candidate.partitions)
            > policy.max_action_partitions
        )
        if batch is None or is_full:
            batch = open_batches[batch_key] = []
            batches.append(batch)
        batch.append(candidate)
    return batches


def _notes(
    facts: TableFacts,
    findings: Findings,
    actions: Sequence[Action],
    policy: CompactionPolicy,
    small_target_finding: Finding | None,
) -> Iterable[str]:
    if policy.columns and policy.strategy == "binpack":
        yield "The columns are not used: binpack does not order rows; sort, zorder and hilbert do."
    seconds_between_commits = facts.history.median_seconds_between_commits
    conflicting_share = conflicting_commit_share(facts)
    if actions and seconds_between_commits and conflicting_share:
        yield (
            f"Commits are {span(seconds_between_commits * 1000)} apart; "
            f"{percent(conflicting_share)} of the last {len(facts.history.commits[-100:])} delete, "
            "overwrite or replace files, and could conflict with this rewrite."
        )
    if actions:
        rewrite_total = _total_prediction(actions)
        table_share = rewrite_total.bytes_in / max(1, facts.data.size_in_bytes)
        yield (
            f"The plan reads {size(rewrite_total.bytes_in)} of {size(facts.data.size_in_bytes)} "
            f"({percent(table_share)} of the table), about {count(rewrite_total.rows_in, 'row')}."
        )
        largest_action_bytes = max(action.prediction.bytes_in for action in actions)
        if largest_action_bytes > policy.max_action_bytes:
            yield (
                f"An action takes up to {size(largest_action_bytes)}, more than the limit of "
                f"{size(policy.max_action_bytes)}: no action is smaller than one partition."
            )
        if estimated_count := sum(a.prediction.source == "facts" for a in actions):
            yield (
                f"The metadata gives the predictions of {estimated_count:,} of "
                f"{count(len(actions), 'action')}; the engine's planner was not asked. Where no "
                "delete applies, and no older partition spec is rewritten, it selects the same "
                "files."
            )
        if small_target_finding is not None:
            yield (
                "Change the target file size before this plan runs, or its files stay small: "
                f"{small_target_finding.evidence}."
            )
        if facts.other_optimizer:
            yield facts.other_optimizer.note
    if facts.dropped_fields_under_deletes:
        yield dropped_field_warning(facts.dropped_fields_under_deletes)
        return
    if not policy.old_specs and "old_partition_spec" in findings.names:
        yield (
            "Files of older partition specs move into the current one only where that saves file "
            "opens; --old-specs moves all of them."
        )
    has_older_specs = any(
        g.partition.spec_id != facts.default_spec_id for g in facts.of_kind(Kind.DATA)
    )
    current_spec_ids = {facts.default_spec_id}
    if has_older_specs and any(
        {p.spec_id for p in a.partitions} == current_spec_ids for a in actions
    ):
        yield (
            "A CALL that is run by itself also takes files of older partition specs, if they may "
            "hold rows of its partitions; icekit leaves these files where they are."
        )
