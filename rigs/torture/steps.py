"""What icekit does to a table in a round, with random options."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icekit.api import Lake
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import (
    ColumnsUnsupported,
    ColumnUnhashed,
    ConversionRefused,
    DeletesUnmatched,
    ParameterError,
    ReadersDisagree,
    RemovalRefused,
    Status,
    TableContradicted,
)
from icekit.common.sql import Identifier
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.retention import Retention
from icekit.maintain.planning.maintenance import PROCEDURES, plan_maintenance_table
from icekit.maintain.planning.table_plan import plan_table
from icekit.maintain.run.failures import Conflict
from icekit.maintain.run.options import Limits, Retry
from icekit.maintain.run.outcome import Outcome
from icekit.maintain.run.rewrite import ConvertFirst

RETRY = Retry(attempts=2, first_wait=0.01, longest_wait=0.02)
THRESHOLDS = Thresholds().with_changes(snapshots=2, fragmented_manifests=2)


#: The answers that icekit documents for what a table, an option or an engine is.
REFUSALS = {
    kind.__name__
    for kind in (
        ColumnsUnsupported,
        ColumnUnhashed,
        ConversionRefused,
        ConvertFirst,
        DeletesUnmatched,
        ParameterError,
        ReadersDisagree,
        RemovalRefused,
        TableContradicted,
    )
}
#: And where another job commits meanwhile.
REFUSALS_BESIDE_OTHERS = {*REFUSALS, Conflict.__name__}


@dataclass(frozen=True)
class Ending:
    """How a step of icekit's ended: ``status`` is None if it raised an error. ``error_classes`` are
    those of this error, or of the actions that failed. ``error`` also says why nothing was proved.
    """

    step: str
    status: Status | None
    error: str = ""
    error_classes: tuple[str, ...] = ()


class Steps:
    """The steps on one table. ``steps`` are their names and how often each is drawn."""

    def __init__(self, lake: Lake, table: Identifier, chance: random.Random, folder: Path) -> None:
        self._lake = lake
        self._table = table
        self._chance = chance
        self._ledger = str(folder / "ledger.db")
        self.steps: Mapping[Callable[[], Outcome], int] = {
            self.compact: 5,
            self.convert: 3,
            self.maintain: 2,
        }

    def random_step(self) -> Ending:
        """Do something; an error is an ending, too."""
        (step,) = self._chance.choices(list(self.steps), list(self.steps.values()))
        self._summary = step.__name__
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcome = step()
        except Exception as error:
            name = type(error).__name__
            return Ending(self._summary, None, f"{name}: {error}", (name,))
        failed = [action for action in outcome.actions if action.error_class]
        lines = [f"{action.error_class}: {action.error}" for action in failed]
        if outcome.status is Status.UNPROVED and outcome.proof is not None:
            lines += outcome.proof.lines()
        return Ending(
            self._summary,
            outcome.status,
            " | ".join(lines),
            tuple(action.error_class for action in failed if action.error_class),
        )

    def _limits(self) -> Limits:
        return Limits(RETRY, self._chance.choice(("checked", "checked", "full")))

    def compact(self) -> Outcome:
        """Rewrite data files by a random policy."""
        chance = self._chance
        options: dict[str, Any] = {
            "scope": chance.choice(("minor", "major", "major")),
            "strategy": chance.choice(("binpack", "binpack", "binpack", "sort", "zorder")),
            "min_files": chance.choice((2, 2, 5)),
            "old_specs": chance.random() < 0.4,
            "leave_alone": "0 minutes",
        }
        if options["strategy"] != "binpack":
            options["columns"] = ("id",)
        limits = self._limits()
        self._summary = f"compact {options} {limits.prove}"
        plan = plan_table(
            self._lake,
            self._lake.observe(self._table),
            None,
            CompactionPolicy(**options),
            ledger=self._ledger,
        )
        return self._run(plan, limits)

    def convert(self) -> Outcome:
        """Turn equality deletes into deletes by position."""
        batch = self._chance.choice((None, None, 500))
        limits = self._limits()
        self._summary = f"convert batch={batch} {limits.prove}"
        return self._lake.convert(
            self._table,
            execute=True,
            batch_bytes=batch,
            ledger=self._ledger,
            limits=limits,
            progress=lambda _: None,
        )

    def maintain(self) -> Outcome:
        """Run one procedure, where a finding asks for it."""
        procedure = self._chance.choice(PROCEDURES)
        limits = self._limits()
        self._summary = f"maintain {procedure} {limits.prove}"
        facts = self._lake.observe(
            self._table,
            storage=procedure == "remove_orphan_files",
            size_ratios=THRESHOLDS.size_ratios,
        )
        plan = plan_maintenance_table(
            self._lake,
            facts,
            diagnose(facts, THRESHOLDS),
            Retention(keep_last=2, keep_hours=1),
            thresholds=THRESHOLDS,
            procedures=[procedure],
        )
        return self._run(plan, limits)

    def _run(self, plan: Any, limits: Limits) -> Outcome:
        return self._lake.run(
            plan,
            execute=True,
            ledger=self._ledger,
            limits=limits,
            progress=lambda _: None,
        )
