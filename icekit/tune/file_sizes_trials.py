"""The trials behind an answer on file sizes, in order: modes and sizes of appends, then statements that change rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from icekit.engine.metadata_tables import metadata_table_sql
from icekit.facts.head import head
from icekit.facts.parts import Commit
from icekit.sql import display_name
from icekit.tune.advisory_size.chain import DISTRIBUTION_SESSION, ICEBERG_SESSION, Chain
from icekit.tune.advisory_size.source import aim, large, usual
from icekit.tune.advisory_size.trial import SizeTrial, insert, said, try_sizes
from icekit.tune.advisory_size.written import Written, write
from icekit.tune.budget import Budget, BudgetSpent
from icekit.tune.distribution.advise import advised_mode
from icekit.tune.distribution.modes import Mode
from icekit.tune.distribution.trial import ModeTrial, try_modes, try_statement
from icekit.tune.place import Places, places
from icekit.tune.write_mode.history import MERGE_ON_READ, write_history
from icekit.tune.write_mode.workload import OPERATIONS, shaped_like, synthetic

if TYPE_CHECKING:
    from icekit.catalog import Lake
    from icekit.facts.model import TableFacts

#: What a task of a writer reads, where nobody knows better: Spark's split.
_SPLIT_BYTES = 128 * 2**20
_MOST_TASKS = 200


class Trials:
    """The trials of one answer, as far as they got; ``stopped`` says why they ended early.

    ``before`` and ``after`` are a usual commit as things are and as advised.
    """

    def __init__(
        self,
        lake: Lake,
        facts: TableFacts,
        chain: Chain,
        modes: tuple[Mode, ...],
        sample: int,
        budget: Budget,
        progress: Callable[[str], None],
    ) -> None:
        self.lake, self.facts, self.chain, self.modes = lake, facts, chain, modes
        self.sample, self.budget, self.progress = sample, budget, progress
        self.mode_trials: list[ModeTrial] = []
        self.size_trial: SizeTrial | None = None
        self.before: Written | None = None
        self.after: Written | None = None
        self.past_ratio: float | None = None
        self.stopped: str | None = None

    def run(self, operation: str | None) -> None:
        """Try appends, then what changes rows, while the budget lasts."""
        try:
            self._appends()
            self._row_level(operation)
        except BudgetSpent as error:
            self.stopped = str(error)
            self.progress(f"stopped: {self.stopped}; what follows rests on the part that was measured")

    def _appends(self) -> None:
        lake, facts = self.lake, self.facts
        name = lake.sql_name(facts.table)
        target = aim(facts, self.sample)
        tasks = max(self.chain.cluster.cores, -(-facts.data.size_in_bytes // max(facts.history.lineage_count, 1) // _SPLIT_BYTES))
        often = usual(facts, name, sample_bytes=self.sample, tasks=min(tasks, _MOST_TASKS))
        can_shuffle = not facts.default_spec.is_unpartitioned or bool(facts.sort_order)
        data_files = metadata_table_sql(lake.spark, name, "data_files", facts.snapshot_id)
        whole = large(facts, name, data_files, target_bytes=target, sample_bytes=self.sample, shuffled=can_shuffle)
        assert whole is not None
        with self._places(1) as stack:
            place = stack.places[0].table
            if often is not None:
                self.progress(f"{display_name(facts.table)}: {often.described}")
            self.mode_trials.append(try_modes(lake, facts, place, often or whole, self.chain, self.budget, self.progress))
            mode = advised_mode(facts, self.modes[0], self.mode_trials[0])
            if often is not None:
                self._next(mode, facts.history.commits)
            self.progress(f"{display_name(facts.table)}: {whole.described}")
            other = mode if mode != self.modes[0].value else None
            self.size_trial = try_sizes(lake, facts, place, whole, target, other, self.chain.advisory_bytes, self.budget, self.progress)
            if self.size_trial.stopped is not None:
                raise BudgetSpent(self.size_trial.stopped)
            candidate, _ = self.size_trial.chosen
            if often is not None and candidate is not None and target == facts.target_bytes:
                under = {DISTRIBUTION_SESSION: mode, ICEBERG_SESSION: str(candidate.size_in_bytes)}
                self.after = write(
                    lake, place, insert(lake, place, often), target, self.budget, settings=under, expected_bytes=often.size_in_bytes
                )
                self.progress(f"the usual commit as advised: {said(self.after)}")

    def _next(self, mode: str, commits: Sequence[Commit]) -> None:
        trial = self.mode_trials[0]
        there, then = trial.of(self.modes[0].value), trial.of(mode)
        self.before, self.after = there.written if there else None, then.written if then else None
        shuffled = next((t.written for t in trial.tried if t.written.shuffle and t.written.records), None)
        rows, size = (
            sum(c.added_records or 0 for c in commits if c.operation == "append"),
            sum(c.added_bytes or 0 for c in commits if c.operation == "append"),
        )
        if shuffled is not None and shuffled.shuffle is not None and rows and size:
            self.past_ratio = shuffled.shuffle.planned_bytes / shuffled.records / (size / rows)

    def _row_level(self, operation: str | None) -> None:
        lake, facts = self.lake, self.facts
        history = write_history(head(lake, facts.table).lineage())
        kinds = [operation] if operation else [o.kind for o in history.row_level if o.kind in OPERATIONS]
        for kind in dict.fromkeys(kinds):
            workload = synthetic(lake, facts, shaped_like(facts, history, operation=kind), 1)
            now = next(m.value for m in self.modes if m.operation == kind)
            merging = (facts.setting(f"write.{kind}.mode") or "") == MERGE_ON_READ
            with ExitStack() as stack:
                self.mode_trials.append(
                    try_statement(
                        lake,
                        facts,
                        lambda stack=stack: stack.enter_context(self._places(1)).places[0].table,  # type: ignore[misc]
                        kind,
                        workload.described,
                        workload.statements[0],
                        now,
                        merging and kind == "delete",
                        self.budget,
                        self.progress,
                    )
                )

    def _places(self, number: int) -> Places:
        return places(
            self.lake, self.facts, number, sample_bytes=self.sample, always_sample=False, budget=self.budget, progress=self.progress
        )
