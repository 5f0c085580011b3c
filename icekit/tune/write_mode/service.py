"""Answer the question for a table: history, trial on clones, model, advice. The table itself is never written to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from icekit.catalog.lake import session_of
from icekit.engine.predicate import read_predicate
from icekit.errors import ParameterError, require_number
from icekit.facts.collect import observe
from icekit.facts.files import Kind
from icekit.facts.head import head
from icekit.facts.model import TableFacts
from icekit.parsing import size_in_bytes
from icekit.sql import Identifier, display_name, identifier
from icekit.tune.advice import Advice
from icekit.tune.budget import Budget, BudgetSpent
from icekit.tune.event_log import reads_per_day as read_from_log
from icekit.tune.place import places
from icekit.tune.statement import Statement, parse
from icekit.tune.write_mode.advise import advise, current_variant
from icekit.tune.write_mode.fit import compare
from icekit.tune.write_mode.history import COPY_ON_WRITE, MERGE_ON_READ, WriteHistory, write_history
from icekit.tune.write_mode.model import Changed, Variant, sensitivity
from icekit.tune.write_mode.result import WriteModeChoice
from icekit.tune.write_mode.trial import Trial, clean, prepare, run_trial
from icekit.tune.write_mode.workload import Workload, own, shaped_like, synthetic

if TYPE_CHECKING:
    from icekit.catalog import Lake


def choose_write_mode(
    lake: Lake,
    table: str | Identifier,
    *,
    statement: str | None = None,
    operation: str | None = None,
    share: float | None = None,
    spread: str | None = None,
    file_share: float | None = None,
    reads_per_day: float | None = None,
    reads_per_commit: float | None = None,
    event_log: str | None = None,
    read_filter: str | None = None,
    commits: int = 2,
    repeats: int = 3,
    compact_every: int | None = None,
    margin: float = 0.1,
    budget_seconds: float = 1800,
    budget_bytes: str = "20 GB",
    sample_bytes: str = "1 GB",
    sample: bool = False,
    versions: Sequence[int] = (),
    warm: bool = True,
    progress: Callable[[str], None] = print,
) -> WriteModeChoice:
    """Measure what merge-on-read and copy-on-write cost a table, and say which to set.

    ``statement`` is the DELETE, UPDATE or MERGE to try. Without one, ``commits`` synthetic
    statements of ``operation`` are tried that change a ``share`` of the rows, ``scattered`` over
    all files or ``clustered`` in ``file_share`` of them; what is not given is as in the table's history.

    Reads per commit are ``reads_per_commit``, or ``reads_per_day`` (stated, or counted in a Spark
    ``event_log``) by the commits per day of the history. With ``read_filter`` the reads are taken
    to be scans with that condition. ``compact_every`` is the number of commits between compactions
    (default: as in the history, else what costs least). ``margin`` is the share of all cost that a
    change must save to be advised. ``versions`` are the format versions to try (default: the table's, and 3).
    ``warm`` first runs the statement on clones that are not measured, as a cold JVM is slow.

    A trial that meets ``budget_seconds`` or ``budget_bytes`` (data written) ends there and says so.
    Where the catalog takes no clones, or with ``sample``, a copy of ``sample_bytes`` is tried and scaled.

    Raises :class:`~icekit.errors.ParameterError` and :class:`~icekit.errors.StatementRefused`.
    """
    _check(statement, [share, operation, spread, file_share], commits=commits, repeats=repeats, compact_every=compact_every)
    _check_numbers(margin=margin, reads_per_day=reads_per_day, reads_per_commit=reads_per_commit)
    budget = Budget(budget_seconds, size_in_bytes(budget_bytes))
    with session_of(lake):
        said: Statement | None = None
        if statement is not None:
            said = parse(lake.spark, statement)
            _check_target(lake, table, said)
        facts = observe(lake, table, collector="spark")
        if not facts.data.file_count:
            raise ParameterError(f"{display_name(facts.table)} has no data files, so there is nothing to measure.")
        if read_filter is not None:
            # Before anything is written for it.
            read_predicate(lake.spark, lake.spark.table(identifier(*lake.sql_name(facts.table))), read_filter)
        history = write_history(head(lake, facts.table).lineage())
        shape = shaped_like(facts, history, operation=operation, share=share, spread=spread, file_share=file_share)
        kind = said.kind.lower() if said is not None else shape.operation
        reads, reads_from = _reads(facts, history, reads_per_commit, reads_per_day, event_log)
        variants = _variants(facts, versions)
        upserts = has_equality_deletes(facts)
        started = time.monotonic()
        try:
            with places(
                lake,
                facts,
                len(variants) + 2 * warm + upserts,
                sample_bytes=size_in_bytes(sample_bytes),
                always_sample=sample,
                budget=budget,
                progress=progress,
            ) as stack:
                first = stack.places[0]
                rows = observe(lake, first.table, collector="spark") if first.is_sample else facts
                workload = own(said) if said is not None else synthetic(lake, rows, shape, commits, is_copied=first.is_sample)
                progress(f"{display_name(facts.table)}: {workload.described}, in {len(variants)} ways")
                cold = stack.places[len(variants) : len(variants) + 2 * warm]
                for variant, place in zip((*variants, *(variants[0], variants[-1])[: len(cold)]), stack.places, strict=False):
                    if facts.has_deletes and not place.is_sample:
                        clean(lake, place, budget, progress)
                    prepare(lake, place.table, variant)
                trial = run_trial(
                    lake,
                    dict(zip(variants, stack.places, strict=False)),
                    workload,
                    read_filter=read_filter,
                    repeats=repeats,
                    budget=budget,
                    progress=progress,
                    cold=cold,
                    # Samples are copies of rows, without deletes.
                    upserted=stack.places[-1] if upserts and not first.is_sample else None,
                )
        except BudgetSpent as error:
            nothing = Workload(kind, "not begun", (), is_synthetic=said is None)
            trial = Trial(nothing, (), read_filter, time.monotonic() - started, 1.0, str(error))
    comparison, cycle_from = compare(trial, history, compact_every)
    advice: tuple[Advice, ...] = ()
    changes: tuple[Changed, ...] = ()
    if comparison is not None:
        advice = advise(facts, lake.sql_name(facts.table), history, comparison, kind, reads, margin=margin)
        changes = sensitivity(comparison, reads) if reads is not None else ()
    return WriteModeChoice(
        lake.sql_name(facts.table),
        facts,
        advice,
        trial.stopped,
        history,
        kind,
        current_variant(facts, kind),
        reads,
        reads_from,
        trial,
        comparison,
        cycle_from,
        changes,
        margin,
    )


def has_equality_deletes(facts: TableFacts) -> bool:
    """Tell whether the table has equality deletes, which no write mode leaves but every reader pays for."""
    return facts.total(Kind.EQUALITY_DELETES).file_count > 0


def _variants(facts: TableFacts, versions: Sequence[int]) -> tuple[Variant, ...]:
    own_version = max(facts.format_version, 2)
    wanted = sorted({own_version, *(versions or (3,))})
    if wanted[0] < own_version or wanted[-1] > 3:
        raise ParameterError(
            f"Format versions {', '.join(map(str, wanted))} cannot be tried; a table of version {own_version} can become 3."
        )
    found = [Variant(COPY_ON_WRITE, own_version)]
    for version in wanted:
        if version >= 3:
            found.append(Variant(MERGE_ON_READ, version))
        else:
            found.append(Variant(MERGE_ON_READ, version, "file"))
            found.append(Variant(MERGE_ON_READ, version, "partition"))
    return tuple(found)


def _reads(
    facts: TableFacts, history: WriteHistory, per_commit: float | None, per_day: float | None, event_log: str | None
) -> tuple[float | None, str]:
    if per_commit is not None:
        return per_commit, "as stated"
    where = "as stated"
    if per_day is None and event_log is not None:
        per_day, where = read_from_log(event_log, facts.table), "from the event log"
    if per_day is None:
        return None, "not known"
    if not history.writes_per_day:
        raise ParameterError("The table's snapshots show no row-level commits to divide reads per day by; state reads_per_commit instead.")
    return (
        per_day / history.writes_per_day,
        f"{per_day:,.3g} reads a day, {where}, by {history.writes_per_day:,.3g} row-level commits a day",
    )


def _check(statement: str | None, shape: Sequence[object], **positive: int | None) -> None:
    for name, value in positive.items():
        if value is not None and value < 1:
            raise ParameterError(f"{name} is {value}; give 1 or more.")
    if statement is not None and any(given is not None for given in shape):
        raise ParameterError("A statement of your own has its own operation and rows; leave out operation, share, spread and file_share.")


def _check_numbers(**given: float | None) -> None:
    for name, value in given.items():
        require_number(name, value)


def _check_target(lake: Lake, table: str | Identifier, said: Statement) -> None:
    name = lake.sql_name(lake.identifier(table) if isinstance(table, str) else table)
    if tuple(p.casefold() for p in said.target) != tuple(p.casefold() for p in name):
        raise ParameterError(f"The statement writes to {display_name(said.target)}, not to {display_name(name)}; name that table.")
    if said.branch is not None:
        raise ParameterError(f"The statement writes to branch {said.branch!r}; a trial is of the table itself, so leave out the branch.")
