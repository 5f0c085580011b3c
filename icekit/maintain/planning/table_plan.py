"""Plan for a table of a catalog: read the inputs of the pure plan; writes nothing to the
table.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import MetadataUnreadable
from icekit.common.sql import display_name
from icekit.common.terminal import is_attended
from icekit.engine.bridge import has_bridge, old_iceberg_message
from icekit.engine.cluster import cluster_of
from icekit.engine.lake import Lake
from icekit.engine.planner import PlannedRewrite
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.findings import Findings, Thresholds
from icekit.health.facts.fan_out import most_output_partitions, most_rolled_files
from icekit.health.facts.head import head, partitions_written_within
from icekit.health.facts.model import TableFacts
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.manifests import manifest_list
from icekit.maintain.action import Action
from icekit.maintain.engine_prediction import Speed, ask_planner, planner_prediction, speed_of
from icekit.maintain.plan import Plan, statistics_notes
from icekit.maintain.planning.candidates import dropped_and_dangling_delete_count
from icekit.maintain.planning.compaction import plan
from icekit.maintain.planning.file_order import FileBounds, predicted_filter_opens, range_columns
from icekit.maintain.policy import findings_of, recent_minutes, thresholds_of
from icekit.maintain.prediction import Certainty, Prediction
from icekit.maintain.record.claims import ActionRecord
from icekit.maintain.record.ledger import Ledger, open_ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def past_speed(
    ledger: Ledger | str | None, table: str, unit: str = "file", actual_field: str = "bytes_in"
) -> Speed | None:
    """The speed of past actions whose prediction counts ``unit``, in ``bytes_in`` or ``rows_in``:
    that of the table's own actions, or without any that of all tables.
    """
    opened_ledger = open_ledger(ledger)

    def speed(records: Iterable[ActionRecord]) -> Speed | None:
        return speed_of(
            (getattr(record.actual, actual_field), record.seconds)
            for record in records
            if record.actual is not None and record.predicted.unit == unit
        )

    return speed(opened_ledger.outcomes(table)) or speed(opened_ledger.outcomes())


def delete_files_removed(
    facts: TableFacts, action: Action, planned_rewrite: PlannedRewrite, sequence_number: int
) -> int:
    """The delete files that a rewrite removes: those that apply to no data file afterwards."""
    partitions = set(action.partitions)
    data_groups = [
        data_group for data_group in facts.of_kind(Kind.DATA) if data_group.partition in partitions
    ]
    takes_all = planned_rewrite.files_in >= sum(data_group.file_count for data_group in data_groups)
    if takes_all or not {"rewrite-all", "delete-file-threshold"}.isdisjoint(action.options):
        is_renewed = action.options.get("use-starting-sequence-number") == "false"
        return dropped_and_dangling_delete_count(
            facts, action.partitions, sequence_number + is_renewed
        )
    # Files that stay may still need the others.
    return planned_rewrite.scoped_deletes + dropped_and_dangling_delete_count(
        facts, (), sequence_number
    )


def with_dangling_once(actions: Iterable[Action], dangling_count: int) -> tuple[Action, ...]:
    """The actions, of which only the first that removes delete files removes the dangling ones:
    those that go with any rewrite, and are in the prediction of each.
    """
    corrected_actions: list[Action] = []
    is_dangling_uncounted = True
    for action in actions:
        removed_count = action.prediction.delete_files_removed
        if removed_count and not is_dangling_uncounted:
            remaining_count = max(removed_count - dangling_count, 0)
            prediction = replace(action.prediction, delete_files_removed=remaining_count)
            corrected_actions.append(replace(action, prediction=prediction))
            continue
        corrected_actions.append(action)
        is_dangling_uncounted = is_dangling_uncounted and not removed_count
    return tuple(corrected_actions)


@dataclass
class EnginePlanner:
    """Predicts actions: the first ``max_asked_actions`` by the engine's own planner; the estimates
    of the others stay, and their ``source`` says so.

    Without a session with a bridge every estimate stays. ``file_bounds`` then tell what filters
    open, if the table has few files.
    """

    spark: SparkSession | None
    facts: TableFacts
    sequence_number: int
    speed: Speed | None = None
    row_speed: Speed | None = None
    max_asked_actions: int = 0
    file_bounds: FileBounds | None = None
    asked_action_ids: set[str] = field(default_factory=set)

    def __call__(self, action: Action) -> Action:
        """The action with its prediction instead of the estimate that it was selected by."""
        # Also once more, if it is cut down to a budget.
        if len(self.asked_action_ids) < self.max_asked_actions:
            self.asked_action_ids.add(action.action_id)
        p = action.prediction
        spark = self.spark if action.action_id in self.asked_action_ids else None
        if action.only_drops_deletes and spark is not None:
            from icekit.rows.deletes.dangling import count_dangling

            dangling_count = count_dangling(spark, action.sql_name, branch=action.branch)
            p = replace(p, delete_files_removed=dangling_count)
        elif not action.only_drops_deletes:
            if spark is not None:
                action = self._planner_action(spark, action)
                p = action.prediction
            elif self.file_bounds is not None and self.file_bounds.is_small:
                p = replace(p, filters=self.file_bounds.filter_opens(action))
            shuffle_bytes = p.bytes_in if p.shuffle_bytes else 0
            p = replace(p, shuffle_bytes=shuffle_bytes, seconds=self._predicted_seconds(p))
        return replace(action, prediction=p)

    def _predicted_seconds(self, prediction: Prediction) -> float | None:
        """The seconds of an action by its bytes, or by its rows if these take longer."""
        seconds_by_bytes = self.speed.seconds(prediction.bytes_in) if self.speed else None
        seconds_by_rows = self.row_speed.seconds(prediction.rows_in) if self.row_speed else None
        if seconds_by_bytes is None:
            return None
        return max(seconds_by_bytes, seconds_by_rows or 0.0)

    def _planner_action(self, spark: SparkSession, action: Action) -> Action:
        """A rewrite with the files and bytes that the engine's planner gives it."""
        facts = self.facts
        estimate = action.prediction
        columns = range_columns(facts, estimate.files_in)
        planned_rewrite = ask_planner(spark, action, [column.name for column in columns])
        files_out = planned_rewrite.files_out + self._max_moved_files(action, planned_rewrite)
        certainty = Certainty.EXACT
        if planned_rewrite.is_estimate:
            certainty = Certainty.ABOUT
        elif planned_rewrite.is_upper_bound or planned_rewrite.moved:
            certainty = Certainty.AT_MOST
        delete_opens_saved = estimate.file_opens_saved - (estimate.files_in - estimate.files_out)
        prediction = planner_prediction(
            estimate,
            planned_rewrite,
            files_out,
            certainty=certainty,
            rows_in=planned_rewrite.rows_in,
            delete_files_removed=delete_files_removed(
                facts, action, planned_rewrite, self.sequence_number
            ),
            file_opens_saved=max(delete_opens_saved, 0) + planned_rewrite.files_in - files_out,
            filters=predicted_filter_opens(columns, planned_rewrite.ranges)
            if planned_rewrite.ranges
            else (),
        )
        # Files that stay too large, because row groups and footers cannot be split, would be
        # rewritten again and again.
        takes_wrong_sizes = not (action.order.is_sorting or "rewrite-all" in action.options)
        leaves_all_oversized = (
            takes_wrong_sizes and planned_rewrite.oversized_out >= planned_rewrite.oversized_in
        )
        return replace(
            action, prediction=prediction, must_save=action.must_save or leaves_all_oversized
        )

    def _max_moved_files(self, action: Action, planned_rewrite: PlannedRewrite) -> int:
        """The most files that come of files that move to another partition spec: as many as the
        facts say, or, where the filter takes other partitions along, as the specs allow.
        """
        facts = self.facts
        moved_groups = planned_rewrite.moved
        max_file_count = sum(
            most_output_partitions(
                facts.spec(moved_group.spec_id),
                facts.default_spec,
                moved_group.partition_count,
                moved_group.row_count,
            )
            for moved_group in moved_groups
        )
        moved_partitions = {p for p in action.partitions if p.spec_id != facts.default_spec_id}
        if len(moved_partitions) == sum(
            moved_group.partition_count for moved_group in moved_groups
        ):
            max_file_count = min(max_file_count, action.prediction.files_out)
        rolled_file_count = sum(
            most_rolled_files(
                moved_group.size_in_bytes,
                moved_group.row_count,
                planned_rewrite.max_file_bytes,
                len(facts.columns),
            )
            for moved_group in moved_groups
        )
        return min(
            max_file_count + rolled_file_count,
            sum(moved_group.row_count for moved_group in moved_groups),
        )


#: A choice: the most data files that the planner goes through for one plan. It may go through all
# of the table for each action, and plans about 200,000 a second.
PLANNED_FILES = 2_000_000


_UNASKED_NOTE = (
    "`icekit compact --exact` asks the planner, and shows the options that Spark's size decides."
)


def _is_selected_by_metadata(facts: TableFacts) -> bool:
    """Whether the metadata alone tells which files the engine's planner selects: no delete file
    decides it, and no row goes into another partition. Its packing decides how many are written.
    """
    return not facts.has_deletes and all(
        partition.spec_id == facts.default_spec_id for partition in facts.partitions()
    )


def _check_files_present(facts: TableFacts) -> None:
    """Raise for a table with missing files, without which it cannot be read."""
    if facts.missing is not None and facts.missing.fails_scans:
        raise MetadataUnreadable(
            f"Files of {facts.name} are missing from storage, for example "
            f"{facts.missing.examples[0].path}, so it is not compacted. Restore them, or follow "
            "the finding missing_files (icekit look --storage)."
        )


def plan_table(
    lake: Lake,
    facts: TableFacts,
    findings: Findings | None = None,
    policy: CompactionPolicy | None = None,
    *,
    thresholds: Thresholds | None = None,
    ledger: Ledger | str | None = None,
    exact: bool = True,
    now: dt.datetime | None = None,
    attended: bool = True,
) -> Plan:
    """Plan the rewrites that are worth it on a table, as the engine's planner predicts them.

    Of a large table it predicts only the first actions (:data:`PLANNED_FILES`), which save the most
    file opens per byte. Without ``exact``, a plan starts no Spark where the metadata tells what is
    selected: no deletes, no older partition spec. If nobody reads the plan before it runs (not
    ``attended``, or ``ICEKIT_ATTENDED=no``), rewrites after which a filter opens more files are
    left alone.

    Reads metadata and the ledger; runs nothing. Raises the errors of :mod:`icekit.common.errors`.
    """
    _check_files_present(facts)
    policy = policy or CompactionPolicy()
    now = now or dt.datetime.now(dt.UTC)
    thresholds = thresholds or Thresholds()
    policy_thresholds = thresholds_of(policy, thresholds)
    if findings is None:
        findings = diagnose(facts, policy_thresholds, session_conf=lake.session_conf())
    else:
        findings = findings_of(policy, facts, findings, thresholds)
    table_head = head(lake, facts.table, facts.ref)
    read = lake.tables.source(facts.table).read
    recent_partitions = partitions_written_within(
        read, table_head, recent_minutes(policy), int(now.timestamp() * 1000)
    )
    needs_spark = exact or lake.spark_is_running or not _is_selected_by_metadata(facts)
    spark = lake.spark if needs_spark else None
    unasked_note = old_iceberg_message(spark) if spark else _UNASKED_NOTE
    max_asked_actions = (
        0 if unasked_note else max(1, PLANNED_FILES // max(1, facts.data.file_count))
    )
    full_name = display_name(lake.sql_name(facts.table))
    speed = past_speed(ledger, full_name)
    row_speed = past_speed(ledger, full_name, actual_field="rows_in")
    bridge_session = spark if spark is not None and has_bridge(spark) else None
    file_bounds = None
    manifest_list_path = (table_head.snapshot or {}).get("manifest-list")
    if manifest_list_path and _is_selected_by_metadata(facts) and policy.strategy == "binpack":
        file_bounds = FileBounds(
            facts, read, manifest_list(read(manifest_list_path), manifest_list_path)
        )
    engine_planner = EnginePlanner(
        bridge_session,
        facts,
        table_head.sequence_number,
        speed,
        row_speed,
        max_asked_actions,
        file_bounds,
    )
    compaction_plan = plan(
        facts,
        findings,
        policy,
        thresholds=policy_thresholds,
        cluster=cluster_of(bridge_session) if bridge_session is not None else None,
        recent=recent_partitions,
        predict=engine_planner,
        speed=speed,
        now=now,
        attended=attended and is_attended(),
    )
    notes = [*compaction_plan.notes]
    if compaction_plan.actions:
        notes += statistics_notes(
            facts.catalog, facts.table, table_head.metadata, table_head.snapshot_id
        )
        notes += [unasked_note] if unasked_note else []
    return replace(
        compaction_plan,
        snapshot_id=table_head.snapshot_id,
        actions=with_dangling_once(
            compaction_plan.actions,
            dropped_and_dangling_delete_count(facts, (), table_head.sequence_number),
        ),
        notes=tuple(notes),
    )
