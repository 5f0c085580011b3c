"""How scans of a table are planned, where its files lie and how they are written: measured, tried on a clone, advised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icekit.catalog.lake import session_of
from icekit.engine.bridge import has_bridge
from icekit.engine.errors import engine_errors, reason
from icekit.engine.session import session_value
from icekit.errors import ParameterError, SparkUnavailable
from icekit.facts.collect import observe
from icekit.parsing import size_in_bytes
from icekit.sql import Identifier, reset_session
from icekit.tune.advice import Advice
from icekit.tune.budget import Budget, BudgetSpent
from icekit.tune.filters import Filter, bind, leaves, read_filters, sample
from icekit.tune.place import places
from icekit.tune.planning import advise
from icekit.tune.planning.encoding import SESSION_CODEC, try_encodings
from icekit.tune.planning.manifests import MOST_FILTERS, try_rewrite
from icekit.tune.planning.measure import in_each_mode, with_threads
from icekit.tune.planning.mode import decide
from icekit.tune.planning.result import Planning
from icekit.tune.planning.session import circumstances, file_io
from icekit.tune.planning.storage import look

if TYPE_CHECKING:
    from icekit.catalog import Lake
    from icekit.facts.model import TableFacts

_VALUES_ROWS = 1_000
#: Spark plans a scan with all its tasks in the driver's memory.
MOST_PLANNED_FILES = 500_000


def tune_planning(
    lake: Lake,
    table: str | Identifier,
    *,
    filters: Sequence[str] = (),
    event_log: str = "",
    scan_reports: str = "",
    repeats: int = 2,
    budget_seconds: float = 900,
    budget_bytes: str = "20 GB",
    sample_bytes: str = "256 MB",
    trial: bool = True,
    progress: Callable[[str], None] = print,
) -> Planning:
    """Measure how scans of a table are planned and what other settings would change; the table is only read.

    ``filters`` (predicates or queries), a Spark ``event_log`` and Iceberg ``scan_reports`` say what queries ask for; without
    them the declared columns do. With ``trial`` the manifests of a zero-copy clone are rewritten, and a sample of
    ``sample_bytes`` is written with other codecs, row groups and pages. A trial that meets its budget ends there and says so.

    Raises :class:`~icekit.errors.ParameterError`, and :class:`~icekit.errors.SparkUnavailable` under Spark Connect, which has no planner to ask.
    """
    if repeats < 1:
        raise ParameterError(f"repeats is {repeats}; give 1 or more.")
    if not has_bridge(lake.spark):
        raise SparkUnavailable(
            "Spark Connect gives no access to Iceberg's planner; run this in a classic session. `look` and `report` work over Connect."
        )
    budget = Budget(budget_seconds, size_in_bytes(budget_bytes))
    with session_of(lake) as spark:
        facts = observe(lake, table, collector="spark")
        name = lake.sql_name(facts.table)
        found = read_filters(lake, facts, sql=filters, event_log=event_log, scan_reports=scan_reports)
        bound = _with_values(lake, facts, found.filters)
        c = circumstances(spark, facts)
        answer = Planning(
            table=name,
            facts=facts,
            advice=(),
            stopped=None,
            circumstances=c,
            decisions=decide(c),
            modes=(),
            threads=(),
            rewritten=None,
            storage=look(spark, name, facts, slots=c.slots, file_io=file_io(spark, name)),
            encodings=(),
            sampled_bytes=0,
            split_bytes=int(facts.properties.get("read.split.target-size") or 134_217_728),
            filters=bound,
            notes=found.notes,
        )
        if facts.data.file_count:
            answer = _measured(lake, answer, repeats, size_in_bytes(sample_bytes), budget, trial=trial, progress=progress)
    return replace(answer, advice=tuple(_advice(answer)))


def _with_values(lake: Lake, facts: TableFacts, filters: Sequence[Filter]) -> tuple[Filter, ...]:
    names = {leaf.column for f in filters[:MOST_FILTERS] for leaf in leaves(f.tree) if not leaf.is_bound}
    if not names:
        return tuple(filters)
    return bind(filters, sample(lake, facts, sorted(names), rows=_VALUES_ROWS))


def _measured(
    lake: Lake, answer: Planning, repeats: int, sample_bytes: int, budget: Budget, *, trial: bool, progress: Callable[[str], None]
) -> Planning:
    """What can be measured within the budget, one thing after the other."""
    facts = answer.facts
    try:
        if facts.data.file_count <= MOST_PLANNED_FILES:
            answer = replace(answer, modes=in_each_mode(lake.spark, answer.table, None, repeats=repeats, budget=budget))
            progress(f"a full scan is planned {', '.join(f'{t.name} in {t.seconds:.2f} s' for t in answer.modes)}")
        else:
            said = f"A full scan of more than {MOST_PLANNED_FILES:,} files was not planned in each mode: Spark would hold a task for each in the driver."
            answer = replace(answer, notes=(*answer.notes, said))
        manifests = answer.circumstances.data.count
        answer = replace(answer, threads=with_threads(lake.spark, answer.table, manifests, repeats=repeats, budget=budget))
        if not trial:
            return answer
        options: dict[str, Any] = {"sample_bytes": sample_bytes, "budget": budget, "progress": progress}
        with places(lake, facts, 1, always_sample=False, **options) as copies:
            if not copies.places[0].is_sample:
                rewritten = try_rewrite(lake, facts, copies.places[0].table, answer.filters, repeats=repeats, budget=budget)
                answer = replace(answer, rewritten=rewritten)
                progress(f"rewritten on a clone, {rewritten.count_before:,} data manifests are {rewritten.count_after:,}")
        codec = session_value(lake.spark, SESSION_CODEC)
        if codec is not None:
            said = f"The session's {SESSION_CODEC} = {codec} overrides the table's codec; no other way to write was tried: {reset_session(SESSION_CODEC)} first."
            return replace(answer, notes=(*answer.notes, said))
        # How rows are encoded does not depend on their partition, and one file shows it better than many small ones.
        with places(lake, facts, 1, always_sample=True, partitioned=False, **options) as copies:
            tried = try_encodings(lake, facts, copies.places[0], repeats=repeats, budget=budget, progress=progress)
            answer = replace(answer, encodings=tried, sampled_bytes=copies.places[0].size_in_bytes)
    except BudgetSpent as error:
        progress(f"stopped: {error}; what follows rests on the part that was measured")
        answer = replace(answer, stopped=str(error))
    except engine_errors() as error:
        # One thing that the engine cannot do costs no more than what comes after it.
        progress(f"stopped: {reason(error)}")
        answer = replace(answer, stopped=f"the engine failed ({reason(error)})")
    return answer


def _advice(answer: Planning) -> list[Advice]:
    table, facts = answer.table, answer.facts
    return [
        *advise.planning_mode(table, facts, answer.circumstances, answer.modes),
        *advise.worker_threads(answer.circumstances, answer.threads),
        advise.manifests(table, facts, answer.rewritten),
        advise.object_storage(table, facts, answer.storage),
        advise.encoding(table, facts, answer.encodings, answer.sampled_bytes),
    ]
