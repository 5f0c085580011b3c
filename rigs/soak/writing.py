"""Compact while a writer of another process commits, and check that nothing it wrote is lost."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import icekit
from icekit.api import Lake
from icekit.common.sql import identifier
from icekit.maintain.planning.conversion import plan_conversion
from icekit.maintain.planning.table_plan import plan_table
from icekit.maintain.record.ledger import Ledger
from icekit.maintain.run.failures import Conflict
from icekit.maintain.run.options import Limits, Retry
from icekit.maintain.run.outcome import Outcome
from rigs.soak.table import NAMESPACE, create, desk, fill
from rigs.soak.victim import policy
from rigs.soak.writer import expected
from tests.child import Child


@dataclass(frozen=True)
class Written:
    """What came of it: the writer's commits, every run's outcome, and all that is wrong."""

    commits: int
    outcomes: tuple[Outcome, ...]
    wrong: tuple[str, ...]
    said: tuple[str, ...]

    @property
    def conflicts(self) -> int:
        """Attempts that met a conflict and were made again."""
        return sum("a conflict (" in line for line in self.said)


def compact_while_written(
    lake: Lake,
    namespace: str,
    name: str,
    commits: int,
    seed: int,
    logs: Path,
    partitions: int = 4,
    *,
    conversions: int = 0,
) -> Written:
    """Plan and run, again and again, until the writer has made so many commits; at least one run
    begins and ends under it.

    With ``conversions`` equality deletes are converted instead, until so many have been committed.
    """
    at = desk(lake, name, namespace)
    at.start()
    create(at)
    fill(at, partitions, commits=4)
    table = identifier(*lake.sql_name((namespace, name)))
    before = {
        int(r[0]): str(r[1]) for r in lake.spark.sql(f"SELECT id, value FROM {table}").collect()
    }
    log = logs / f"{name}-writes.jsonl"
    log.with_suffix(".stop").unlink(missing_ok=True)
    ledger = Ledger(logs / f"{name}-ledger.db")
    writer = Child(
        "rigs.soak.writer",
        [namespace, name, partitions, seed, commits, log],
        logs / f"{name}-writer.log",
    )
    outcomes: list[Outcome] = []
    said: list[str] = []
    # Of conversions the rows are compared with the writer's log in the end: a proof of each would
    # take most of the time.
    limits = Limits(
        Retry(first_wait=0.2, longest_wait=2), prove="none" if conversions else "checked"
    )
    converted = 0
    try:
        writer.go()
        writer.until(lambda: log.exists() and log.read_text().count("\n") >= 1)
        while not outcomes or log.read_text().count("\n") < commits or converted < conversions:
            assert not writer.ended, "\n".join(writer.lines)
            if conversions:
                plan = plan_conversion(lake, (namespace, name), ledger=ledger)
            else:
                plan = plan_table(
                    lake, lake.observe(f"{namespace}.{name}"), policy=policy("minor"), ledger=ledger
                )
            outcomes.append(
                lake.run(plan, execute=True, ledger=ledger, limits=limits, progress=said.append)
            )
            converted += (
                sum(len(a.snapshot_ids) for a in outcomes[-1].actions) if conversions else 0
            )
        log.with_suffix(".stop").touch()
        writer.until(lambda: writer.ended)
        assert any(line.startswith("ended") for line in writer.lines), "\n".join(writer.lines)
        said.append(writer.lines[-1])
    finally:
        writer.kill()
    lake.spark.sql(f"REFRESH TABLE {table}")
    rows = [
        (int(r[0]), str(r[1])) for r in lake.spark.sql(f"SELECT id, value FROM {table}").collect()
    ]
    return Written(
        log.read_text().count("\n"),
        tuple(outcomes),
        tuple(_wrong(rows, expected(before, log), outcomes, ledger)),
        tuple(said),
    )


def _wrong(
    rows: list[tuple[int, str]], wanted: dict[int, str], outcomes: list[Outcome], ledger: Ledger
) -> list[str]:
    wrong = []
    if len(rows) != len(dict(rows)):
        wrong.append(f"{len(rows) - len(dict(rows))} keys are there twice")
    if dict(rows) != wanted:
        lost, extra = wanted.items() - dict(rows).items(), dict(rows).items() - wanted.items()
        wrong.append(
            f"{len(lost)} rows are lost and {len(extra)} too many: {sorted(lost)[:3]} "
            f"{sorted(extra)[:3]}"
        )
    for outcome in outcomes:
        if outcome.proof is not None and not outcome.proof.ok:
            wrong.append(repr(outcome.proof))
        # A run may give up in the end, if it says that it was a conflict.
        unnamed = [
            a.error
            for a in outcome.actions
            if a.status not in {"done", "skipped", "split"} and a.error_class != Conflict.__name__
        ]
        wrong += [f"an action ended without a named conflict: {error}" for error in unnamed]
    if ledger.claims():
        wrong.append(f"a claim is left: {ledger.claims()}")
    return wrong


def soak_writer(commits: int, seed: int, logs: Path, conversions: int = 0) -> int:
    """Run it on a lake of its own and print what came of it."""
    started = time.monotonic()
    lake = icekit.connect()
    try:
        found = compact_while_written(
            lake,
            NAMESPACE,
            f"written_{os.getpid()}",
            commits,
            seed,
            logs.resolve(),
            conversions=conversions,
        )
    finally:
        lake.close()
    print(
        f"seed {seed}: {found.commits} commits by the writer, {len(found.outcomes)} runs, "
        f"{found.conflicts} conflicts retried"
    )
    print(
        "  "
        + ", ".join(
            f"{n} {status}" for status, n in Counter(o.status for o in found.outcomes).items()
        )
    )
    for number, outcome in enumerate(found.outcomes[:5], 1):
        attempts = sum(a.attempts for a in outcome.actions)
        print(
            f"  run {number}: {outcome.status}, {len(outcome.actions)} actions, {attempts} "
            f"attempts, {outcome.actual.commits} commits"
        )
    print(f"  {found.said[-1]}; {time.monotonic() - started:.0f} s")
    for each in found.wrong:
        print(f"  ✖ {each}")
    return 1 if found.wrong else 0
