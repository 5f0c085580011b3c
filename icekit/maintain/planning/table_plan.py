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
from icekit.maintain.planning.candidates import dropped_by
from icekit.maintain.planning.compaction import plan
from icekit.maintain.planning.file_order import FileBounds, planned_columns, predicted_opens
from icekit.maintain.policy import recent_minutes
from icekit.maintain.prediction import Certainty, Prediction
from icekit.maintain.record.claims import ActionRecord
from icekit.maintain.record.ledger import Ledger, open_ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def past_speed(
    ledger: Ledger | str | None, table: str, unit: str = "file", figure: str = "bytes_in"
) -> Speed | None:
    """The speed of past actions whose prediction counts ``unit`` (by their rows for ``rows_in``):
    of the table's own, or without any of those of all tables.
    """
    book = open_ledger(ledger)

    def speed(records: Iterable[ActionRecord]) -> Speed | None:
        return speed_of(
            (getattr(record.actual, figure), record.seconds)
            for record in records
            if record.actual is not None and record.predicted.unit == unit
        )

    return speed(book.outcomes(table)) or speed(book.outcomes())


def delete_files_removed(
    facts: TableFacts, action: Action, planned_rewrite: PlannedRewrite, sequence_number: int
) -> int:
    """The delete files that a rewrite removes: those that apply to no data file afterwards."""
    partitions = set(action.partitions)
    groups = [group for group in facts.of_kind(Kind.DATA) if group.partition in partitions]
    takes_all = planned_rewrite.files_in >= sum(group.file_count for group in groups)
    if takes_all or not {"rewrite-all", "delete-file-threshold"}.isdisjoint(action.options):
        renewed = action.options.get("use-starting-sequence-number") == "false"
        return dropped_by(facts, action.partitions, sequence_number + renewed)
    # Files that stay may still need the others.
    return planned_rewrite.scoped_deletes + dropped_by(facts, (), sequence_number)


def with_dangling_once(actions: Iterable[Action], dangling: int) -> tuple[Action, ...]:
    """The actions, of which only the first that removes delete files removes the ``dangling`` ones:
    those that go with any rewrite, and are in the prediction of each.
    """
    counted_once: list[Action] = []
    is_first = True
    for action in actions:
        removed = action.prediction.delete_files_removed
        if removed and not is_first:
            left = max(removed - dangling, 0)
            prediction = replace(action.prediction, delete_files_removed=left)
            counted_once.append(replace(action, prediction=prediction))
            continue
        counted_once.append(action)
        is_first = is_first and not removed
    return tuple(counted_once)


@dataclass
class EnginePlanner:
    """Predicts actions: the first ``most`` by the engine's own planner; the estimates of the others
    stay, and their ``source`` says so.

    Without a session with a bridge every estimate stays. ``bounds`` then tell what filters open, if
    the table has few files.
    """

    spark: SparkSession | None
    facts: TableFacts
    sequence_number: int
    speed: Speed | None = None
    row_speed: Speed | None = None
    most: int = 0
    bounds: FileBounds | None = None
    asked: set[str] = field(default_factory=set)

    def __call__(self, action: Action) -> Action:
        """The action with its prediction instead of the estimate that it was selected by."""
        # Also once more, if it is cut down to a budget.
        if len(self.asked) < self.most:
            self.asked.add(action.action_id)
        p = action.prediction
        spark = self.spark if action.action_id in self.asked else None
        if action.only_drops_deletes and spark is not None:
            from icekit.rows.deletes.dangling import count_dangling

            files = count_dangling(spark, action.sql_name, branch=action.branch)
            p = replace(p, delete_files_removed=files)
        elif not action.only_drops_deletes:
            if spark is not None:
                action = self._by_planner(spark, action)
                p = action.prediction
            elif self.bounds is not None and self.bounds.is_small:
                p = replace(p, filters=self.bounds.opens(action))
            shuffled = p.bytes_in if p.shuffle_bytes else 0
            p = replace(p, shuffle_bytes=shuffled, seconds=self._seconds(p))
        return replace(action, prediction=p)

    def _seconds(self, p: Prediction) -> float | None:
        """The seconds of an action by its bytes, or by its rows if these take longer."""
        by_bytes = self.speed.seconds(p.bytes_in) if self.speed else None
        by_rows = self.row_speed.seconds(p.rows_in) if self.row_speed else None
        return max(by_bytes, by_rows or 0.0) if by_bytes is not None else None

    def _by_planner(self, spark: SparkSession, action: Action) -> Action:
        """A rewrite with the files and bytes that the engine's planner gives it."""
        facts = self.facts
        estimate = action.prediction
        columns = planned_columns(facts, estimate.files_in)
        planned_rewrite = ask_planner(spark, action, [column.name for column in columns])
        files_out = planned_rewrite.files_out + self._files_of_moved(action, planned_rewrite)
        certainty = Certainty.EXACT
        if planned_rewrite.is_estimate:
            certainty = Certainty.ABOUT
        elif planned_rewrite.is_upper_bound or planned_rewrite.moved:
            certainty = Certainty.AT_MOST
        opens_of_deletes = estimate.file_opens_saved - (estimate.files_in - estimate.files_out)
        prediction = planner_prediction(
            estimate,
            planned_rewrite,
            files_out,
            certainty=certainty,
            rows_in=planned_rewrite.rows_in,
            delete_files_removed=delete_files_removed(
                facts, action, planned_rewrite, self.sequence_number
            ),
            file_opens_saved=max(opens_of_deletes, 0) + planned_rewrite.files_in - files_out,
            filters=predicted_opens(columns, planned_rewrite.ranges)
            if planned_rewrite.ranges
            else (),
        )
        # Files that stay too large, because row groups and footers cannot be split, would be
        # rewritten again and again.
        is_by_size = not (action.order.is_sorting or "rewrite-all" in action.options)
        splits_none = is_by_size and planned_rewrite.oversized_out >= planned_rewrite.oversized_in
        return replace(action, prediction=prediction, must_save=action.must_save or splits_none)

    def _files_of_moved(self, action: Action, planned_rewrite: PlannedRewrite) -> int:
        """The most files that come of files that move to another partition spec: as many as the
        facts say, or, where the filter takes other partitions along, as the specs allow.
        """
        facts = self.facts
        moved = planned_rewrite.moved
        most_files = sum(
            most_output_partitions(
                facts.spec(each.spec_id), facts.default_spec, each.partition_count, each.row_count
            )
            for each in moved
        )
        of_action = {p for p in action.partitions if p.spec_id != facts.default_spec_id}
        if len(of_action) == sum(each.partition_count for each in moved):
            most_files = min(most_files, action.prediction.files_out)
        rolled = sum(
            most_rolled_files(
                each.size_in_bytes,
                each.row_count,
                planned_rewrite.max_file_bytes,
                len(facts.columns),
            )
            for each in moved
        )
        return min(most_files + rolled, sum(each.row_count for each in moved))


#: A choice: the most data files that the planner goes through for one plan. It may go through all
# of the table for each action, and plans about 200,000 a second.
PLANNED_FILES = 2_000_000


_UNASKED = (
    "`icekit compact --exact` asks the planner, and shows the options that Spark's size decides."
)


def _is_plain(facts: TableFacts) -> bool:
    """Whether the metadata alone tells which files the engine's planner selects: no delete file
    decides it, and no row goes into another partition. Its packing decides how many are written.
    """
    return not facts.has_deletes and all(
        partition.spec_id == facts.default_spec_id for partition in facts.partitions()
    )


def _check_present(facts: TableFacts) -> None:
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
    file opens per byte. Without ``exact``, a plan starts no Spark
    where the metadata tells what is selected: no deletes, no older partition spec. If nobody reads
    the plan before it runs (not ``attended``, or ``ICEKIT_ATTENDED=no``), rewrites after which a
    filter opens more files are left alone.

    Reads metadata and the ledger; runs nothing. Raises the errors of :mod:`icekit.common.errors`.
    """
    _check_present(facts)
    policy = policy or CompactionPolicy()
    now = now or dt.datetime.now(dt.UTC)
    if findings is None:
        findings = diagnose(facts, thresholds, session_conf=lake.session_conf())
    table_head = head(lake, facts.table, facts.ref)
    read = lake.tables.source(facts.table).read
    recent = partitions_written_within(
        read, table_head, recent_minutes(policy), int(now.timestamp() * 1000)
    )
    is_asked = exact or lake.spark_is_running or not _is_plain(facts)
    spark = lake.spark if is_asked else None
    unasked = old_iceberg_message(spark) if spark else _UNASKED
    most_asked = 0 if unasked else max(1, PLANNED_FILES // max(1, facts.data.file_count))
    past = ledger, display_name(lake.sql_name(facts.table))
    speed = past_speed(*past)
    row_speed = past_speed(*past, figure="rows_in")
    bridge = spark if spark is not None and has_bridge(spark) else None
    bounds = None
    location = (table_head.snapshot or {}).get("manifest-list")
    if location and _is_plain(facts) and policy.strategy == "binpack":
        bounds = FileBounds(facts, read, manifest_list(read(location), location))
    planner = EnginePlanner(
        bridge, facts, table_head.sequence_number, speed, row_speed, most_asked, bounds
    )
    planned = plan(
        facts,
        findings,
        policy,
        thresholds=thresholds,
        cluster=cluster_of(bridge) if bridge is not None else None,
        recent=recent,
        predict=planner,
        speed=speed,
        now=now,
        attended=attended and is_attended(),
    )
    notes = [*planned.notes]
    if planned.actions:
        notes += statistics_notes(
            facts.catalog, facts.table, table_head.metadata, table_head.snapshot_id
        )
        notes += [unasked] if unasked else []
    return replace(
        planned,
        snapshot_id=table_head.snapshot_id,
        actions=with_dangling_once(
            planned.actions, dropped_by(facts, (), table_head.sequence_number)
        ),
        notes=tuple(notes),
    )
