"""Say why files are as large as they are, and what to set: the chain in force, a trial on clones, the small files' origin.

The table itself is only read. Trials write its own rows again to clones, which are gone afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from icekit.catalog.lake import session_of
from icekit.diagnose import diagnose
from icekit.engine.bridge import has_bridge
from icekit.engine.cluster import cluster_of
from icekit.engine.session import session_value
from icekit.errors import ParameterError
from icekit.facts.collect import observe
from icekit.parsing import size_in_bytes
from icekit.sql import Identifier, display_name
from icekit.tune import advisory_size as sizes
from icekit.tune import distribution as spreading
from icekit.tune.advice import Advice
from icekit.tune.advisory_size import advise as size_advice
from icekit.tune.advisory_size.written import Written
from icekit.tune.budget import Budget
from icekit.tune.distribution import advise as mode_advice
from icekit.tune.distribution.cadence import Cadence, Until, cadence, commits_for, until_sick
from icekit.tune.distribution.cohorts import Cohorts
from icekit.tune.file_sizes_result import FileSizes
from icekit.tune.file_sizes_trials import Trials
from icekit.tune.write_mode.workload import OPERATIONS

if TYPE_CHECKING:
    from icekit.catalog import Lake
    from icekit.facts.model import TableFacts


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
        facts = observe(lake, table, collector="spark")
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
    from icekit.tune.file_sizes_result import interval

    if rhythm is None or after is None or not after.is_too_few:
        return ()
    wanted = commits_for(facts.target_bytes, after.size_in_bytes / max(after.partitions, 1))
    if wanted is None or wanted < 2:
        return ()
    return (Advice("commits", None, None, interval(facts, rhythm, after, wanted)),)
