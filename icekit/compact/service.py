"""Plan for a table of a catalog: read the inputs of the pure plan, and try a plan on a clone;
writes nothing to the table.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from icekit.catalog import Lake
from icekit.compact.asking import ask_planner
from icekit.compact.candidates import dropped_by, is_bounded
from icekit.compact.claims import ActionRecord
from icekit.compact.ledger import Ledger, open_ledger
from icekit.compact.model import DANGLING, Action, KeySample, Plan, Prediction
from icekit.compact.plan import plan
from icekit.compact.policy import Policy
from icekit.compact.speed import Speed, speed_of
from icekit.diagnose import diagnose
from icekit.diagnose.findings import Findings, Thresholds
from icekit.engine.bridge import has_bridge, load_now, missing_api
from icekit.engine.cluster import cluster_of
from icekit.engine.errors import engine_errors, explain
from icekit.engine.interrupting import Stop
from icekit.engine.planner import PlannedRewrite
from icekit.errors import MetadataUnreadable
from icekit.facts.fan_out import most_partitions
from icekit.facts.files import DELETE_KINDS, Kind, Partition
from icekit.facts.head import Head, head, written_within
from icekit.facts.model import TableFacts
from icekit.facts.snapshot_statistics import statistics_of
from icekit.facts.where import transformed
from icekit.sql import display_name, identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def past_speed(
    of_table: Iterable[ActionRecord],
    of_all: Iterable[ActionRecord],
    unit: str = "file",
    figure: str = "bytes_in",
) -> Speed | None:
    """The speed of past actions whose prediction counts ``unit`` (in rows per second for
    ``rows_in``): of the table's own, or of all if its own are too much alike in size.
    """

    def speed(records: Iterable[ActionRecord]) -> Speed | None:
        return speed_of(
            (getattr(record.actual, figure), record.seconds)
            for record in records
            if record.is_outcome and record.predicted.unit == unit
        )

    own = speed(of_table)
    return own if own and not own.least_bytes else speed(of_all)


def sample_keys(spark: SparkSession, action: Action) -> KeySample | None:
    """How many rows a sample of delete keys deletes in an action; None if nothing is small enough
    to look at, or only Iceberg's own reader can apply the deletes.

    Writes nothing. Raises the errors of :mod:`icekit.errors`.
    """
    from icekit.compact.group_rows import NotHere
    from icekit.compact.rewrite import CheckedRewrite
    from icekit.compact.trial import SAMPLE_BYTES

    try:
        return CheckedRewrite(
            spark, action, load_now(spark, action.sql_name), {}, check=False
        ).drawn(SAMPLE_BYTES)
    except NotHere:
        return None
    except engine_errors() as error:
        raise explain(error, action.sql_name) from error


def delete_files_removed(
    facts: TableFacts, action: Action, planned: PlannedRewrite, sequence_number: int
) -> int:
    """The delete files that a rewrite removes: as the planner counts them, or those that apply to
    no data file afterwards.
    """
    if "delete-ratio-threshold" not in action.options and action.options.get(DANGLING) == "true":
        renewed = action.options.get("use-starting-sequence-number") == "false"
        return dropped_by(facts, action.partitions, sequence_number + renewed)
    # The planner counts a delete file once for each data file.
    return min(
        planned.delete_files or 0, sum(facts.total(kind).file_count for kind in DELETE_KINDS)
    )


@dataclass
class EnginePlanner:
    """Predicts actions: the first ``most`` by the engine's own planner, with one sample of keys for
    all of them; the estimates of the others stay, and their ``source`` says so.

    The seconds are those of the bytes or of the rows (``row_speed``, if past runs counted them),
    whichever take longer. Without a session with a bridge every estimate stays.
    """

    spark: SparkSession | None
    facts: TableFacts
    sequence_number: int
    speed: Speed | None = None
    row_speed: Speed | None = None
    most: int = 0
    sample: KeySample | None = None
    is_sampled: bool = False
    asked: set[str] = field(default_factory=set)

    def __call__(self, action: Action) -> Action:
        """The action with its prediction instead of the estimate that it was selected by."""
        # Also once more, if it is cut down to a budget.
        if len(self.asked) < self.most:
            self.asked.add(action.action_id)
        p, spark = action.prediction, self.spark if action.action_id in self.asked else None
        if action.only_drops and spark is not None:
            from icekit.resolve.dangling import count_dangling

            files = count_dangling(spark, action.sql_name, branch=action.branch)
            p = replace(p, delete_files_removed=files)
        elif not action.only_drops:
            p = self._by_planner(spark, action) if spark is not None else p
            shuffled = p.bytes_in if p.shuffle_bytes else 0
            p = replace(p, shuffle_bytes=shuffled, seconds=self._seconds(p))
        return replace(action, prediction=p)

    def _seconds(self, p: Prediction) -> float | None:
        """The seconds of an action by its bytes, or by its rows if these take longer; None if past
        runs say nothing about as many of either.
        """
        times = [self.speed.seconds(p.bytes_in) if self.speed else None]
        if self.row_speed:
            times.append(self.row_speed.seconds(p.rows_in))
        known = [seconds for seconds in times if seconds is not None]
        return max(known) if len(known) == len(times) else None

    def _by_planner(self, spark: SparkSession, action: Action) -> Prediction:
        """The files and bytes of a rewrite by the engine's planner, and a sample of keys."""
        facts, estimate = self.facts, action.prediction
        # Each file must be examined only where deletes decide which files are taken.
        planned = ask_planner(spark, action, deletes="delete-ratio-threshold" in action.options)
        live = estimate.bytes_out / estimate.bytes_in if estimate.bytes_in else 1.0
        files_out = planned.files_out
        under = _under_equality_deletes(facts, action.partitions)
        is_maximum = bool(under)
        sample = self._sampled(spark, action) if under and planned.files_in else None
        if sample is not None:
            # As if they deleted as much of each of their partitions as of the sample.
            sizes = {g.partition: g.size_in_bytes for g in facts.of_kind(Kind.DATA)}
            every, hit = (sum(sizes.get(p, 0) for p in some) for some in (action.partitions, under))
            live *= 1 - sample.deleted_rows / sample.rows * hit / max(1, every)
        if any(p.spec_id != facts.default_spec_id for p in action.partitions):
            counted = partitions_after(spark, facts, action) if planned.files_in else None
            share = planned.files_in / max(estimate.files_in, 1)
            files_out = max(files_out, counted or math.ceil(estimate.files_out * share))
            is_maximum = is_maximum or (estimate.is_maximum and counted is None)
        opens_of_deletes = estimate.file_opens_saved - (estimate.files_in - estimate.files_out)
        return replace(
            estimate,
            files_in=planned.files_in,
            bytes_in=planned.bytes_in,
            rows_in=round(estimate.rows_in * planned.bytes_in / max(1, estimate.bytes_in)),
            files_out=files_out,
            bytes_out=round(planned.bytes_in * live),
            delete_files_removed=delete_files_removed(facts, action, planned, self.sequence_number),
            groups=planned.groups,
            is_maximum=is_maximum,
            is_sampled=sample is not None,
            file_opens_saved=max(opens_of_deletes, 0) + planned.files_in - files_out,
            source="planner",
        )

    def _sampled(self, spark: SparkSession, action: Action) -> KeySample | None:
        # Once for a plan: it reads rows.
        if not self.is_sampled:
            self.sample, self.is_sampled = sample_keys(spark, action), True
        return self.sample


def _under_equality_deletes(facts: TableFacts, partitions: Sequence[Partition]) -> set[Partition]:
    """Those of the partitions to which equality deletes may apply: their own, or those of an
    unpartitioned spec.
    """
    under = {g.partition for g in facts.of_kind(Kind.EQUALITY_DELETES)}
    is_global = any(facts.spec(p.spec_id).is_unpartitioned for p in under)
    return set(partitions) if is_global else under & set(partitions)


#: A choice: the most rows of which the columns of the new partition fields are read to count the
# partitions that they go to.
COUNTED_ROWS = 200_000_000


def partitions_after(spark: SparkSession, facts: TableFacts, action: Action) -> int | None:
    """The partitions of the current spec that the action's rows of older specs go to, which are its
    files at least; None if the specs tell how many those are, or if there are too many rows to
    look.

    Reads the columns of the current partition fields in the action's partitions.
    """
    named = [p for p in action.partitions if p.spec_id != facts.default_spec_id]
    if all(most_partitions(facts.spec(p.spec_id), facts.default_spec) == 1 for p in named):
        return None
    taken = set(action.partitions)
    rows = sum(g.record_count for g in facts.of_kind(Kind.DATA) if g.partition in taken)
    values = [
        transformed(facts.catalog, field, facts.columns)
        for field in facts.default_spec.active_fields
    ]
    if rows > COUNTED_ROWS or not values or None in values:
        return None
    predicate = facts.where(named, of_rows=True) if is_bounded(facts, named) else None
    version = f"VERSION AS OF {facts.snapshot_id}"
    table = spark.sql(f"SELECT * FROM {identifier(*facts.sql_name)} {version}").where(
        f"_spec_id <> {facts.default_spec_id}"
    )
    return (
        (table.where(predicate) if predicate else table)
        .selectExpr(*(f"{v} AS `icekit value {i}`" for i, v in enumerate(values) if v))
        .distinct()
        .count()
    )


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
    policy: Policy | None = None,
    *,
    thresholds: Thresholds | None = None,
    ledger: Ledger | str | None = None,
    trial: bool = False,
    exact: bool = True,
    now: dt.datetime | None = None,
    stop: Stop | None = None,
    progress: Callable[[str], None] = print,
) -> Plan:
    """Plan the rewrites that are worth it on a table, as the engine's planner predicts them.

    Of a large table it predicts only the first actions (:data:`PLANNED_FILES`), which save the most
    file opens per byte; at least one. ``trial`` also tries each action on a zero-copy clone,
    complete or as a sample, and predicts from the result: that registers a second table in the
    namespace ``icekit_scratch``, writes next to the table for a while, and writes nothing to the
    table. ``stop`` ends a trial early. Without ``exact``, a plan that is only to be looked at starts
    no Spark where the metadata tells what is selected: no deletes, no older partition spec.

    Reads the table's metadata, the partitions written lately, the cluster's size, past
    outcomes from the ledger and, under equality deletes, the keys of a sample of rows; runs
    nothing. Raises the errors of :mod:`icekit.errors`.
    """
    _check_present(facts)
    policy, now = policy or Policy(), now or dt.datetime.now(dt.UTC)
    if findings is None:
        findings = diagnose(facts, thresholds, session_conf=lake.session_conf())
    at = head(lake, facts.table, facts.ref)
    now_ms = int(now.timestamp() * 1000)
    recent = written_within(lake, facts.table, at, policy.recent_minutes, now_ms)
    past = outcomes_of(ledger, display_name(lake.sql_name(facts.table)))
    is_asked = exact or trial or lake.spark_is_running or not _is_plain(facts)
    spark = lake.spark if is_asked else None
    unasked = missing_api(spark) if spark else _UNASKED
    most = 0 if unasked else max(1, PLANNED_FILES // max(1, facts.data.file_count))
    speed, row_speed = past_speed(*past), past_speed(*past, figure="rows_in")
    bridge = spark if spark is not None and has_bridge(spark) else None
    planner = EnginePlanner(bridge, facts, at.sequence_number, speed, row_speed, most)
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
    )
    planned = _completed(planned, at, planner.sample, unasked)
    if not trial:
        return planned
    from icekit.compact.trial import try_plan

    return try_plan(lake, facts, planned, stop=stop, progress=progress)


def _completed(planned: Plan, at: Head, sample: KeySample | None, unasked: str | None) -> Plan:
    """The plan with the snapshot it was made for, and notes on how it was predicted."""
    notes = unasked if planned.actions else None, sample.text if sample else None
    return replace(
        planned,
        key_sample=sample,
        snapshot_id=at.snapshot_id,
        statistics=statistics_of(at.metadata, at.snapshot_id),
        notes=(*planned.notes, *filter(None, notes)),
    )


def outcomes_of(
    ledger: Ledger | str | None, table: str
) -> tuple[Sequence[ActionRecord], Sequence[ActionRecord]]:
    """Past outcomes of a table, and of all tables of the catalog."""
    book = open_ledger(ledger)
    return book.outcomes(table), book.outcomes()
