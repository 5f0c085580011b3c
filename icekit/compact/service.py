"""Plan for a table of a catalog: what the pure plan needs is read here, and nothing is run."""

from __future__ import annotations

import datetime as dt
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from icekit.catalog import Lake
from icekit.compact.calibration import throughput
from icekit.compact.execute import Stop
from icekit.compact.ledger import opened
from icekit.compact.ledger_api import Ledger
from icekit.compact.model import Action, Plan
from icekit.compact.plan import plan
from icekit.compact.policy import Policy
from icekit.compact.predict import predict
from icekit.compact.records import ActionRecord
from icekit.compact.trial import try_plan
from icekit.diagnose import diagnose
from icekit.diagnose.findings import Findings, Thresholds
from icekit.engine.cluster import cluster_of
from icekit.facts.head import head, written_since
from icekit.facts.model import TableFacts
from icekit.sql import display_name


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
