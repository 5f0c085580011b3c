"""Four workloads with a known winner: whether the advice agrees with what was measured, and how
near the break-even is.

The prediction rests on a trial of two commits. What is measured beside it is a whole cycle in both
modes: all commits, a scan after each, and the compaction at its end.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import icekit
from icekit.api import Lake
from icekit.common.sql import identifier
from icekit.common.units import size
from icekit.health.facts.model import TableFacts
from icekit.learn.lab import unpack_lab
from icekit.sandbox.trial import Budget, Trial
from icekit.tune.write_cost import WriteMode, break_even_of_modes
from icekit.tune.write_history import COPY_ON_WRITE, CommitShape, synthetic_statements
from icekit.tune.write_mode import COMMIT, compact, costs_of_write_modes, run_commit, set_up_mode
from rigs.bench.measure import Others, show

SPARK_CONF = "spark.driver.memory=2g"
TABLE = "healthy_partitioned"
#: How often the rows of the lab table are inserted into it again: twice and eight times as many.
DOUBLINGS, LONG_DOUBLINGS = 1, 3
COMMITS, LONG_COMMITS = 6, 12
# Scans of the trial and, after each commit, of the cycle: the least of more scans is less.
ROUNDS = 7
#: The statements that a trial runs.
TRIED = 2
WITHIN = 0.25


@dataclass(frozen=True)
class Workload:
    """What is changed, how often the table is read after each commit, and the mode that is known to
    win.
    """

    name: str
    shape: CommitShape
    reads: float
    winner: str


WORKLOADS = (
    Workload("few rows in few files", CommitShape("update", 0.001, 0.05), 40, "copy-on-write"),
    Workload("sparse over all files", CommitShape("update", 0.001, 1.0), 1, "merge-on-read"),
    Workload("append-mostly", CommitShape("delete", 0.005, 0.2), 100, "copy-on-write"),
    Workload("heavy upsert", CommitShape("merge", 0.2, 1.0), 0.5, "merge-on-read"),
)


@dataclass
class Cycle:
    """What a cycle came to in one mode, in seconds of the trial's unit."""

    writes: float = 0.0
    reads: float = 0.0
    compaction: float = 0.0

    def total(self, reads: float) -> float:
        """All of it, with so many reads after each commit."""
        return self.writes + reads * self.reads + self.compaction


def run(sizes: Sequence[int], *, long: bool) -> None:
    """Run on the bench lake in a session of a known size; ``sizes`` are of other benches'
    tables.
    """
    del sizes
    os.environ["ICEKIT_SPARK_CONF"] = f"{os.environ.get('ICEKIT_SPARK_CONF', '')} {SPARK_CONF}"
    lake = icekit.connect()
    try:
        _bench(lake, LONG_DOUBLINGS if long else DOUBLINGS, LONG_COMMITS if long else COMMITS)
    finally:
        lake.close()


def _bench(lake: Lake, doublings: int, commits: int) -> None:
    unpack_lab(lake, [TABLE], reset=True, progress=lambda _: None)
    name = identifier(lake.name, "lab", TABLE)
    for _ in range(doublings):
        lake.spark.sql(f"INSERT INTO {name} SELECT * FROM {name}")
    facts = lake.observe(("lab", TABLE))
    heap = lake.spark._jvm.java.lang.Runtime.getRuntime().maxMemory()  # type: ignore[union-attr]
    print(
        f"\n{TABLE}: {facts.data.file_count:,} data files, "
        f"{size(facts.data.size_in_bytes)}, {facts.data.record_count:,} rows; driver heap "
        f"{size(heap)}; cycles of {commits} commits"
    )
    rows = []
    for workload in WORKLOADS:
        with Others() as others:
            found = _one(lake, facts, workload, commits)
        rows.append((*found, others))
        print(f"  {', '.join(found)}, others {others}", flush=True)
    header = (
        "workload",
        "reads",
        "known",
        "advice",
        "measured",
        "break-even predicted",
        "interval",
        "measured",
        f"within {WITHIN:.0%}",
        "others",
    )
    show(
        "The advice beside what a whole cycle came to; reads and break-even are per commit",
        header,
        rows,
    )


def _one(lake: Lake, facts: TableFacts, workload: Workload, commits: int) -> tuple[str, ...]:
    shape = workload.shape
    answer = lake.tune(
        "write-mode",
        facts.table,
        operation=shape.operation,
        share=shape.row_share,
        file_share=shape.file_share,
        reads_per_commit=workload.reads,
        commits=TRIED,
        compact_every=commits,
        repeats=ROUNDS,
        progress=lambda _: None,
    )
    modes = [WriteMode("merge-on-read", 2, kind) for kind in ("file", "partition")]
    rivals = [mode for mode in modes if answer.measured.value(mode.name, COMMIT)]
    tried = costs_of_write_modes(
        answer.measured, (WriteMode(COPY_ON_WRITE, 2), *rivals), TRIED, facts.data.file_count
    )
    even = break_even_of_modes(list(tried), commits)
    assert even is not None
    predicted = even.reads_per_commit
    advised = (
        "too close to call"
        if even.is_too_close_to_call(workload.reads)
        else "copy-on-write"
        if workload.reads > predicted
        else "merge-on-read"
    )
    cow, *mors = _cycles(lake, facts, shape, (WriteMode(COPY_ON_WRITE, 2), *rivals), commits)
    evens = [
        max(0.0, (cow.total(0) - mor.total(0)) / (mor.reads - cow.reads))
        if mor.reads > cow.reads
        else math.inf
        for mor in mors
    ]
    measured = max(evens)
    winner = "copy-on-write" if workload.reads > measured else "merge-on-read"
    near = math.isclose(predicted, measured, rel_tol=WITHIN) or predicted == measured
    return (
        workload.name,
        f"{workload.reads:g}",
        workload.winner,
        f"{advised} {'✔' if advised == winner else '✖'}",
        f"{winner} {'✔' if winner == workload.winner else '✖'}",
        f"{predicted:.3g}",
        f"{even.low_reads:.3g} to {even.high_reads:.3g}",
        f"{measured:.3g}{'' if even.low_reads <= measured <= even.high_reads else ' (outside)'}",
        "yes" if near else "NOT REACHED",
    )


def _cycles(
    lake: Lake, facts: TableFacts, shape: CommitShape, modes: Sequence[WriteMode], commits: int
) -> list[Cycle]:
    """Run a cycle in each mode, in turns; of the scans after each commit the cheapest counts."""
    statements = synthetic_statements(lake, facts, shape, commits)
    cycles = [Cycle() for _ in modes]
    trial = Trial(
        lake=lake,
        facts=facts,
        budget=Budget(7200, str(2**40)),
        sample_bytes=2**40,
        progress=lambda _: None,
    )
    with trial.sandboxes(len(modes)) as boxes:
        for box, mode in zip(boxes, modes, strict=True):
            set_up_mode(facts, mode, box)
        for statement in statements:
            for box, cycle in zip(boxes, cycles, strict=True):
                cycle.writes += run_commit(box, statement, is_own_statement=False)[COMMIT]
            turns = [[box.scan().cost for box in boxes] for _ in range(ROUNDS)]
            for cycle, *seconds in zip(cycles, *turns, strict=True):
                cycle.reads += min(seconds)
        for box, mode, cycle in zip(boxes, modes, cycles, strict=True):
            cycle.compaction = 0.0 if mode.is_copy_on_write else compact(box)
    return cycles
