"""Plan for a table of a catalog: what the pure plan needs is read here, and nothing is run."""

from __future__ import annotations

import datetime as dt
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from icekit.catalog import Lake
from icekit.compact.candidates import dropped_by
from icekit.compact.claims import ActionRecord, Ledger
from icekit.compact.execute import ask_planner
from icekit.compact.ledger import opened
from icekit.compact.model import EQUALITY_DELETE, Action, Plan, Policy
from icekit.compact.plan import plan
from icekit.compact.trial import try_plan
from icekit.diagnose import diagnose
from icekit.diagnose.findings import Findings, Thresholds
from icekit.engine.bridge import has_bridge
from icekit.engine.cluster import cluster_of
from icekit.engine.interrupting import Stop
from icekit.facts.head import head, written_since
from icekit.facts.model import TableFacts
from icekit.sql import display_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# --- How near predictions came to what happened, and how fast past actions were; pure


#: What a plan predicts of each action; ``bytes_out`` in bytes, ``seconds`` in seconds.
QUANTITIES = ("files_out", "bytes_out", "delete_files_removed", "seconds")


@dataclass(frozen=True, slots=True)
class Pair:
    """One prediction and what came of it.

    ``error`` is ``|actual - predicted| / actual``, 0 where both are 0, and None where only
    the actual is: no share of nothing can be given. ``ratio`` is ``actual / predicted``,
    None where nothing was predicted.
    """

    quantity: str
    ended_ms: int | None
    table: str
    run_id: str
    action_id: str
    predicted: float
    actual: float

    @property
    def error(self) -> float | None:
        """The absolute error as a share of the actual; 0.1 is 10 %."""
        if self.actual == self.predicted:
            return 0.0
        return abs(self.actual - self.predicted) / abs(self.actual) if self.actual else None

    @property
    def ratio(self) -> float | None:
        """The actual as a multiple of the prediction: 2.0 is twice as much."""
        return self.actual / self.predicted if self.predicted else None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How well one quantity was predicted over ``count`` actions.

    ``mean_absolute_percentage_error`` is a share (0.1 is 10 %); it and ``median_ratio``
    (actual / predicted) are None where no action gives one.
    """

    quantity: str
    count: int
    mean_absolute_percentage_error: float | None
    median_ratio: float | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """The accuracy of each of :data:`QUANTITIES`, and every pair it rests on, newest first."""

    quantities: tuple[Accuracy, ...]
    rows: tuple[Pair, ...]

    def of(self, quantity: str) -> Accuracy:
        """The accuracy of one quantity; KeyError if it is none of :data:`QUANTITIES`."""
        for accuracy in self.quantities:
            if accuracy.quantity == quantity:
                return accuracy
        raise KeyError(quantity)


def calibration(outcomes: Iterable[ActionRecord]) -> Calibration:
    """Compare predicted with actual, of actions that are done and of what both sides know."""
    done = sorted((o for o in outcomes if o.is_outcome), key=lambda o: -(o.ended_ms or 0))
    rows = tuple(pair for outcome in done for quantity in QUANTITIES if (pair := _pair(outcome, quantity)) is not None)
    return Calibration(tuple(_accuracy(quantity, [row for row in rows if row.quantity == quantity]) for quantity in QUANTITIES), rows)


def throughput(outcomes: Iterable[ActionRecord]) -> float | None:
    """Bytes read per second: the median of past done actions; None before there are any.

    The median, as one action that waited for a full cluster says nothing of the next.
    """
    rates = []
    for outcome in outcomes:
        read, seconds = _number(outcome.actual, "bytes_in"), _number(outcome.actual, "seconds")
        if outcome.is_outcome and read and seconds and read > 0 and seconds > 0:
            rates.append(read / seconds)
    return statistics.median(rates) if rates else None


def conversion_rate(outcomes: Iterable[ActionRecord]) -> float | None:
    """Bytes of data and delete files per second of past conversions, their median; None before there are any."""
    rates = []
    for outcome in outcomes:
        read, seconds = _number(outcome.predicted, "bytes_in"), _number(outcome.actual, "seconds")
        if outcome.is_outcome and (outcome.predicted or {}).get("unit") == EQUALITY_DELETE and read and seconds:
            rates.append(read / seconds)
    return statistics.median(rates) if rates else None


def _pair(outcome: ActionRecord, quantity: str) -> Pair | None:
    predicted, actual = _number(outcome.predicted, quantity), _number(outcome.actual, quantity)
    if predicted is None or actual is None:
        return None
    return Pair(
        quantity=quantity,
        ended_ms=outcome.ended_ms,
        table=outcome.table,
        run_id=outcome.run_id,
        action_id=outcome.action_id,
        predicted=predicted,
        actual=actual,
    )


def _accuracy(quantity: str, rows: list[Pair]) -> Accuracy:
    errors = [row.error for row in rows if row.error is not None]
    ratios = [row.ratio for row in rows if row.ratio is not None]
    return Accuracy(
        quantity,
        len(rows),
        statistics.fmean(errors) if errors else None,
        statistics.median(ratios) if ratios else None,
    )


def _number(values: Mapping[str, Any] | None, name: str) -> float | None:
    value = (values or {}).get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


# --- Plan, with the engine's prediction of each action


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


def plan_table(
    lake: Lake,
    facts: TableFacts,
    findings: Findings | None = None,
    policy: Policy | None = None,
    *,
    thresholds: Thresholds | None = None,
    ledger: Ledger | str | None = None,
    trial: bool = False,
    now: dt.datetime | None = None,
    stop: Stop | None = None,
    progress: Callable[[str], None] = print,
) -> Plan:
    """Plan the rewrites that pay back on a table, as the engine's planner predicts them.

    ``trial`` also tries each action on a zero-copy clone, whole or a sample, and predicts by
    what came out: that registers a second table in the namespace ``icekit_scratch``, writes
    beside the table for a while, and writes nothing to the table. ``stop`` ends a trial early.

    Reads the table's metadata, the partitions written lately, the cluster's size and past
    outcomes from the ledger; starts Spark, and runs nothing. Raises the errors of
    :mod:`icekit.errors`.
    """
    policy, now = policy or Policy(), now or dt.datetime.now(dt.UTC)
    findings = diagnose(facts, thresholds, session_conf=lake.session_conf()) if findings is None else findings
    at = head(lake, facts.table, facts.ref)
    since_ms = int((now - dt.timedelta(minutes=policy.leave_alone_minutes)).timestamp() * 1000)
    recent = (
        written_since(lake.tables.source(facts.table), at.metadata, at.snapshot, since_ms) if policy.leave_alone_minutes else frozenset()
    )
    own, every = _outcomes(ledger, lake, facts)
    rate = throughput(own) or throughput(every)
    ask: Callable[[Action], Action] = partial(
        predict, lake.spark, facts, sequence_number=at.sequence_number, bytes_ratio=_bytes_ratio(own), bytes_per_second=rate
    )
    made = plan(
        facts,
        findings,
        policy,
        thresholds=thresholds,
        cluster=cluster_of(lake.spark),
        recent=recent,
        predict=ask,
        bytes_per_second=rate,
        now=now,
    )
    made = replace(made, snapshot_id=at.snapshot_id)
    return try_plan(lake, facts, made, stop=stop, progress=progress) if trial else made


def _outcomes(ledger: Ledger | str | None, lake: Lake, facts: TableFacts) -> tuple[Sequence[ActionRecord], Sequence[ActionRecord]]:
    """Past outcomes of this table, and of all tables of the catalog."""
    with opened(ledger, lake) as book:
        return book.outcomes(display_name(lake.sql_name(facts.table))), book.outcomes()


def _bytes_ratio(outcomes: Sequence[ActionRecord]) -> float:
    """Bytes written per live byte read in past runs on the table, so that the next prediction is nearer.

    A rewrite of small files shrinks them by what headers and dictionaries took, which only the
    table's own data tells. The median; 1 before any run.
    """
    ratios = []
    for outcome in outcomes:
        read, written = outcome.predicted.get("bytes_untaught"), (outcome.actual or {}).get("bytes_out")
        if read and written:
            ratios.append(written / read)
    return statistics.median(ratios) if ratios else 1.0
