"""Say why files are as large as they are, and what to set: the chain in force, a trial on clones, the small files' origin.

The table itself is only read. Trials write its own rows again to clones, which are gone afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from icekit.compact.cluster import cluster_of
from icekit.compact.policy import size_in_bytes
from icekit.diagnose import diagnose
from icekit.errors import ParameterError
from icekit.facts.bridge import has_bridge
from icekit.sql import Identifier, display_name
from icekit.tune import advisory_size as sizes
from icekit.tune import distribution as spreading
from icekit.tune.advice import Advice
from icekit.tune.advisory_size import advise as size_advice
from icekit.tune.advisory_size.trial import SizeTrial
from icekit.tune.advisory_size.written import Written
from icekit.tune.answer import Answer
from icekit.tune.budget import Budget
from icekit.tune.current import session_of
from icekit.tune.distribution import advise as mode_advice
from icekit.tune.distribution.cadence import Cadence, Until, cadence, commits_for, until_sick
from icekit.tune.distribution.cohorts import Cohorts
from icekit.tune.distribution.modes import Mode
from icekit.tune.distribution.trial import ModeTrial
from icekit.tune.file_sizes_trials import Trials
from icekit.tune.in_force import session_value
from icekit.tune.write_mode.workload import OPERATIONS

if TYPE_CHECKING:
    from icekit.catalog import Lake
    from icekit.facts.model import TableFacts


@dataclass(frozen=True, repr=False)
class FileSizes(Answer):
    """Why files are as large as they are, and what to set.

    ``next_before`` and ``next_after`` are a usual commit's rows written as things are and as advised;
    ``size_trial`` the same for a commit that is large enough for full files; all are None where
    they were not tried. ``until_*`` say when a partition has enough small files for a rewrite.
    ``past_ratio`` is the shuffle of the trial, a row, by the file bytes, a row, of past commits.
    """

    question: ClassVar[str] = "file-sizes"

    chain: sizes.Chain
    modes: tuple[Mode, ...]
    cohorts: Cohorts
    cadence: Cadence | None
    mode_trials: tuple[ModeTrial, ...]
    next_before: Written | None
    next_after: Written | None
    size_trial: SizeTrial | None
    until_before: Until | None
    until_after: Until | None
    past_ratio: float | None

    def figures(self) -> dict[str, Any]:
        """Everything that was measured; bytes and seconds."""
        trial = self.size_trial
        return {
            "target_bytes": self.facts.target_bytes,
            "advisory_bytes": self.chain.advisory_bytes,
            "ratio_guessed": self.chain.ratio,
            "ratio_of_past_commits": self.past_ratio,
            "chain": [list(row) for row in self.chain.rows()],
            "modes": {m.operation: {"mode": m.value, "why": m.why} for m in self.modes},
            "mode_trials": [
                {
                    "operation": t.operation,
                    "rows": t.described,
                    "spread": asdict(t.spread) if t.spread else None,
                    "modes": [
                        {"mode": m.mode, "predicted": m.predicted.files if m.predicted else None, **_figures(m.written)} for m in t.tried
                    ],
                }
                for t in self.mode_trials
            ],
            "next_commit": {"before": _figures(self.next_before), "after": _figures(self.next_after)},
            "large_commit": [{"name": s.name, "advisory_bytes": s.advisory, **_figures(s.written)} for s in size_advice.steps(trial)]
            if trial
            else [],
            "cohorts": asdict(self.cohorts),
            "cadence": asdict(self.cadence) if self.cadence else None,
            "until_sick": {
                "before": asdict(self.until_before) if self.until_before else None,
                "after": asdict(self.until_after) if self.until_after else None,
            },
        }


def tune_file_sizes(
    lake: Lake,
    table: str | Identifier,
    *,
    operation: str | None = None,
    budget_seconds: float = 900,
    budget_bytes: str = "20 GB",
    sample_bytes: str = "1 GB",
    trial: bool = True,
    progress: Callable[[str], None] = print,
) -> FileSizes:
    """Measure what decides the sizes of a table's files, and say what to set.

    Appends are always looked at; ``operation`` (delete, update, merge) adds one that changes rows, without it
    those of the table's history are added. Without ``trial``, and under Spark Connect, nothing is
    written anywhere: the chain, the modes, the origin of small files and the cadence are told, and nothing is verified.
    A trial writes rows of at most ``sample_bytes`` at a time, and ends where ``budget_seconds`` or
    ``budget_bytes`` (written in all) do.

    Raises :class:`~icekit.errors.ParameterError` for a table without data files or an unknown operation.
    """
    if operation is not None and operation not in OPERATIONS:
        raise ParameterError(f"The operation is {operation!r}; give one of {', '.join(OPERATIONS)}, or leave it out.")
    sample, budget = size_in_bytes(sample_bytes), Budget(budget_seconds, size_in_bytes(budget_bytes))
    with session_of(lake):
        facts = lake.observe(table, collector="spark")
        if not facts.data.file_count:
            raise ParameterError(f"{display_name(facts.table)} has no data files, so there is nothing to measure; write to it first.")
        session = {name: session_value(lake.spark, name) for name in sizes.SESSION}
        found = spreading.modes(facts, session)
        chain = sizes.chain(facts, session, cluster_of(lake.spark), mode=found[0].value)
        run = Trials(lake, facts, chain, found, sample, budget, progress)
        stopped = None
        if trial and has_bridge(lake.spark):
            run.run(operation)
        elif trial:
            stopped = "under Spark Connect there is no bridge to the JVM for clones and shuffle metrics, so nothing was tried"
        return _answer(run, run.stopped or stopped, spreading.cohorts(lake, facts))


def _answer(run: Trials, stopped: str | None, cohorts: Cohorts) -> FileSizes:
    """Put the answer together from what was measured."""
    facts, appends = run.facts, run.mode_trials[0] if run.mode_trials else None
    table = run.lake.sql_name(facts.table)
    mode = mode_advice.advised_mode(facts, run.modes[0], appends)
    unclustered = next((f for f in diagnose(facts) if f.name == "unclustered_filter_columns"), None)
    rhythm = cadence(facts)
    before, after = _until(rhythm, run.before), _until(rhythm, run.after)
    advice = (
        *mode_advice.advise(table, facts, run.modes[0], appends),
        *size_advice.advise(table, facts, run.chain, mode, run.size_trial),
        *mode_advice.advise_order(table, facts, facts.filter_columns if unclustered else ()),
        *_interval(facts, rhythm, run.after),
    )
    return FileSizes(
        table,
        facts,
        advice,
        stopped,
        run.chain,
        run.modes,
        cohorts,
        rhythm,
        tuple(run.mode_trials),
        run.before,
        run.after,
        run.size_trial,
        before,
        after,
        run.past_ratio,
    )


def _until(rhythm: Cadence | None, written: Written | None) -> Until | None:
    if rhythm is None or written is None or not written.partitions:
        return None
    return until_sick(rhythm, written.small_files / written.partitions)


def _interval(facts: TableFacts, rhythm: Cadence | None, after: Written | None) -> tuple[Advice, ...]:
    """What to do where single commits are too small for any setting: commit less often, or compact."""
    from icekit.show.file_sizes import interval

    if rhythm is None or after is None or not after.is_too_few:
        return ()
    wanted = commits_for(facts.target_bytes, after.size_in_bytes / max(after.partitions, 1))
    if wanted is None or wanted < 2:
        return ()
    return (Advice("commits", None, None, interval(facts, rhythm, after, wanted)),)


def _figures(written: Written | None) -> dict[str, Any]:
    if written is None:
        return {}
    return {**asdict(written), "mean_bytes": written.mean_bytes, "ratio": written.ratio, "hits": written.hits}
