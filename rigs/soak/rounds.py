"""One round: a fresh copy of the sick table, a victim, a kill at a chosen moment, and what comes of
it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from icekit.api import Lake
from icekit.common.commands.compaction_policy import Scope
from icekit.common.sql import display_name
from icekit.iceberg.partition import Scalar
from icekit.maintain.record.ledger import Ledger
from icekit.rows.proof.fingerprint import Fingerprint, fingerprint
from rigs.soak.table import NAMESPACE, TEMPLATE, clone, folder, forget
from rigs.soak.verify import check, files_on_disk, go_on, where_killed
from tests.child import Child

#: Metadata files that a clone begins with: its properties are set once.
_OF_CLONE = 1


@dataclass(frozen=True, slots=True)
class Moment:
    """When to kill: ``seconds`` after the start, or after so many commits or new metadata files or
    action records.

    ``kind`` is ``time``, ``commit`` (the catalog has it), ``metadata`` (its file is being
    written, and the catalog may not have it), ``record`` (the action is recorded as running)
    or ``proof`` (it is done, and is being proved). ``with_jvm`` kills the JVM too; without, it
    notices by itself that Python is gone, and may still commit.
    """

    kind: str
    count: int
    seconds: float
    with_jvm: bool

    def __str__(self) -> str:
        at = (
            f"{self.seconds:.2f} s"
            if self.kind == "time"
            else f"{self.kind} {self.count} + {self.seconds:.3f} s"
        )
        return f"{at}{'' if self.with_jvm else ', Python alone'}"


@dataclass(frozen=True, slots=True)
class Length:
    """What a run that nobody kills takes: seconds, commits and actions."""

    seconds: float
    commits: int
    actions: int


@dataclass(frozen=True, slots=True)
class Result:
    """What one round came to."""

    where: str
    wrong: tuple[str, ...]
    seconds: float


def choose(chance: random.Random, length: Length) -> Moment:
    """A moment: half of them uniformly over the run, the others just around what matters."""
    kind = chance.choices(("time", "commit", "metadata", "record", "proof"), (50, 15, 15, 10, 10))[
        0
    ]
    of = length.commits if kind in {"commit", "metadata"} else length.actions
    seconds = chance.uniform(0, length.seconds) if kind == "time" else chance.uniform(0, 0.1)
    return Moment(kind, chance.randint(1, max(of, 1)), seconds, chance.random() < 0.7)


class Rounds:
    """Runs rounds on one lake; the victim of the next round starts while this one is checked."""

    def __init__(
        self, lake: Lake, logs: Path, namespace: str = NAMESPACE, template: str = TEMPLATE
    ) -> None:
        self.lake, self.logs, self.namespace, self.template = lake, logs, namespace, template
        self.ledger = Ledger(logs / "ledger.db")
        self.before: dict[tuple[Scalar, ...], Fingerprint] = dict(
            fingerprint(lake.spark, (lake.name, namespace, template))
        )
        self._waiting: dict[str, Child] = {}

    def prepare(self, name: str, scope: Scope) -> None:
        """Start a round's victim, which waits once its JVM runs."""
        if name not in self._waiting:
            arguments = [f"{self.namespace}.{name}", scope, self.ledger.path]
            self._waiting[name] = Child("rigs.soak.victim", arguments, self.logs / f"{name}.log")

    def close(self) -> None:
        """End the victims that were not needed."""
        for child in self._waiting.values():
            child.kill()

    def whole(self, name: str, scope: Scope) -> tuple[Length, Result]:
        """A round that nobody kills, and how long its run takes."""
        table, child = self._begin(name, scope)
        started = time.monotonic()
        child.until(lambda: child.ended)
        seconds = time.monotonic() - started
        assert "ended" in child.lines, "\n".join(child.lines)
        child.kill()
        run_id = self._run_id(table)
        from rigs.soak.verify import own

        length = Length(
            seconds, len(own(self.lake, table, run_id)), len(self.ledger.actions(run_id))
        )
        return length, self._finish(name, scope, "not killed", started)

    def killed(
        self, name: str, scope: Scope, moment: Moment, meanwhile: Callable[[], None] = lambda: None
    ) -> Result:
        """A round whose victim is killed; ``meanwhile`` runs once it is dead."""
        started = time.monotonic()
        table, child = self._begin(name, scope)
        child.until(self._reached(moment, table, child))
        time.sleep(0 if moment.kind == "time" else moment.seconds)
        child.kill(with_jvm=moment.with_jvm)
        try:
            # Asked before the JVM that Python left behind has ended, so that both are at the table
            # at once.
            where = where_killed(self.lake, table, self.ledger, child.lines)
            meanwhile()
            return self._finish(name, scope, where, started, child.lines)
        finally:
            child.kill()

    def _begin(self, name: str, scope: Scope) -> tuple[str, Child]:
        self.prepare(name, scope)
        child = self._waiting.pop(name)
        table = clone(self.lake, name, self.namespace, self.template)
        child.go()
        return table, child

    def _reached(self, moment: Moment, table: str, child: Child) -> Callable[[], bool]:
        """Whether the moment has come, as seen from outside the victim."""
        started = time.monotonic()
        name = self.lake.identifier(table)
        if moment.kind == "time":
            return lambda: time.monotonic() - started >= moment.seconds
        if moment.kind == "metadata":
            metadata = folder(self.lake, name[1], self.namespace) / "metadata"
            return lambda: (
                sum(1 for _ in metadata.glob("*.metadata.json")) >= moment.count + _OF_CLONE
            )
        if moment.kind == "commit":
            seen = {self.lake.tables.source(name).metadata_location}

            def committed() -> bool:
                seen.add(self.lake.tables.source(name).metadata_location)
                return len(seen) > moment.count

            return committed
        if moment.kind == "proof":
            return lambda: sum(line.startswith("  done") for line in child.lines) >= moment.count

        def recorded() -> bool:
            run = self.ledger.last_run(self._full(table))
            return run is not None and len(self.ledger.actions(run.run_id)) >= moment.count

        return recorded

    def _finish(
        self, name: str, scope: Scope, where: str, started: float, lines: list[str] | None = None
    ) -> Result:
        table = f"{self.namespace}.{name}"
        there = files_on_disk(self.lake, table)
        proved = (
            _proved(lines or [], self.ledger, self._full(table))
            if lines is not None
            else self._every_action(table)
        )
        said: list[str] = []
        outcome = go_on(self.lake, table, scope, self.ledger, said.append)
        with (self.logs / f"{name}.log").open("a") as log:
            log.write("\n".join(["", f"--- killed: {where}", *said, ""]))
        wrong = check(self.lake, table, scope, self.ledger, self.before, outcome, there, proved)
        if not wrong:
            forget(self.lake, name, self.namespace)
        return Result(where, tuple(wrong), time.monotonic() - started)

    def _every_action(self, table: str) -> set[str]:
        return {action.action_id for action in self.ledger.actions(self._run_id(table))}

    def _run_id(self, table: str) -> str:
        run = self.ledger.last_run(self._full(table))
        assert run is not None
        return run.run_id

    def _full(self, table: str) -> str:
        return display_name(self.lake.sql_name(self.lake.identifier(table)))


def _proved(lines: list[str], ledger: Ledger, full: str) -> set[str]:
    """The actions whose proof the victim has reported, which is a line each."""
    run = ledger.last_run(full)
    told = sum("no row changed" in line for line in lines)
    return {action.action_id for action in ledger.actions(run.run_id)[:told]} if run else set()
