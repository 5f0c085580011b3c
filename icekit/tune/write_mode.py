"""Answer whether a table should be written copy-on-write or merge-on-read: its own statements,
tried on clones in every mode.

Over a cycle of N commits between two compactions, with R reads after each, a mode costs for each
commit

    write  +  R · scan  +  R · (mean cost of the deletes that have piled up)  +  compaction / N

seconds of the unit that was measured (:mod:`icekit.engine.effort`). The deletes cost a scan as much
as the delete files that it opens: position delete files pile up, and a data file has at most one
deletion vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from icekit.answer.grid import BYTES, NUMBER, SECONDS
from icekit.catalog.lake import session_of
from icekit.engine.effort import CLOCK
from icekit.engine.errors import engine_errors, reason
from icekit.engine.planner import query_of
from icekit.engine.predicate import read_predicate
from icekit.errors import ParameterError, StatementRefused, require_number
from icekit.facts.head import head
from icekit.facts.model import TableFacts
from icekit.resolve.convert import convert
from icekit.sandbox.trial import BUDGET_BYTES, Budget, Sandbox, Trial
from icekit.secrets import scrub
from icekit.sql import Identifier, call, display_name, identifier, set_properties
from icekit.tune.answer import Answer, Change, Confidence, Measure, Measurements, median, to_set
from icekit.tune.experiment import Experiment, SetUp
from icekit.tune.queries import reads_per_day as read_from_log
from icekit.tune.statement import Statement, parse
from icekit.tune.write_cost import (
    TOTAL,
    UNITS,
    Costs,
    Mode,
    best_cycle,
    break_even_grid,
    interval_of,
)
from icekit.tune.write_history import (
    COPY_ON_WRITE,
    MERGE_ON_READ,
    OPERATIONS,
    WriteHistory,
    shaped_like,
    synthetic,
)
from icekit.units import count, elapsed, percent, plain, raised

if TYPE_CHECKING:
    from icekit.catalog import Lake

COMMIT, SCAN, COMPACTION = "cost of a commit", "cost of a scan", "cost of a compaction"
OPENS, WRITTEN, FILES = (
    "delete files that a scan opens",
    "bytes that a commit writes",
    "files that a commit writes",
)
_MEASURES = (
    Measure(TOTAL, SECONDS),
    Measure(COMMIT, SECONDS, of=median),
    Measure(SCAN, SECONDS),
    Measure(COMPACTION, SECONDS),
    Measure(OPENS, NUMBER),
    Measure(WRITTEN, BYTES, of=median),
    Measure(FILES, NUMBER, of=median),
)
_GRANULARITY = "write.delete.granularity"
#: Compact only files with deletes: the rest costs the same in every mode.
_REWRITE = {"delete-file-threshold": "1", "min-file-size-bytes": "0", "min-input-files": "1000000"}
#: Choices: the share of the cost that a change must save; the rounds of scans at most, as a
# multiple of those asked for; what a scan of the deletes : must stand out by from what repeats
# differ by; the most commits between compactions to consider.
_MARGIN, _MOST_ROUNDS, _STANDS_OUT = 0.1, 3, 4.0
_V3 = (
    "the upgrade cannot be undone, and every reader and writer of the table must support version "
    "3 (Spark with Iceberg 1.8 or newer for deletion vectors; check Flink, Trino, Athena, "
    "Snowflake and pyiceberg)"
)
_V2 = (
    "merge-on-read needs format version 2: the upgrade cannot be undone, and all readers must "
    "support deletes"
)


def costs_of(
    measured: Measurements, modes: Sequence[Mode], commits: int, data_files: int
) -> tuple[Costs, ...]:
    """The costs of the modes that were measured completely; reads of copy-on-write, which leaves no
    deletes, are what the others are held against.
    """
    reference = measured.value(COPY_ON_WRITE, SCAN)
    costs = []
    for mode in modes:
        write, scan = measured.value(mode.name, COMMIT), measured.value(mode.name, SCAN)
        compaction, opens = (
            measured.value(mode.name, COMPACTION),
            measured.value(mode.name, OPENS) or 0.0,
        )
        share = opens / max(data_files, 1)
        if (
            write is None
            or scan is None
            or reference is None
            or (compaction is None and not mode.is_copy_on_write)
        ):
            continue
        error = measured.spread(mode.name, SCAN) + measured.spread(COPY_ON_WRITE, SCAN)
        costs.append(
            Costs(
                mode=mode,
                write=write,
                scan=reference,
                data_files=data_files,
                open_seconds=max(0.0, scan - reference) / opens if opens else 0.0,
                # A data file has at most one vector, so those of several commits overlap.
                touched=share / commits
                if mode.granularity
                else 1 - (1 - min(share, 1.0)) ** (1 / commits),
                compaction=compaction or 0.0,
                commits=commits,
                write_error=measured.spread(mode.name, COMMIT),
                open_error=error / opens if opens else 0.0,
            )
        )
    return tuple(costs)


def is_settled(measured: Measurements) -> bool:
    """Tell whether what deletes add to a scan stands out from what repeats of it differ by."""
    reference = measured.value(COPY_ON_WRITE, SCAN) or 0.0
    merging = [name for name in measured.rounds if name != COPY_ON_WRITE]
    return all(
        (measured.value(name, SCAN) or 0.0) - reference
        > _STANDS_OUT * (measured.spread(name, SCAN) + measured.spread(COPY_ON_WRITE, SCAN))
        for name in merging
    )


def current_mode(facts: TableFacts, operation: str) -> Mode:
    """The current write mode of an operation."""
    mode, version = (
        facts.setting(f"write.{operation}.mode") or COPY_ON_WRITE,
        max(facts.format_version, 2),
    )
    if mode == COPY_ON_WRITE or version >= 3:
        return Mode(mode, version)
    # The property's default says partition, but Spark writes per file unless it is set
    # (SparkWriteConf).
    return Mode(mode, version, facts.properties.get(_GRANULARITY) or "file")


def advise(
    facts: TableFacts,
    costs: Sequence[Costs],
    operation: str,
    reads: float | None,
    commits: int | None,
) -> tuple[tuple[Change, ...], str, str | None]:
    """The changes, the verdict and the variant advised, with so many reads per commit and commits
    between compactions (None: not known, the cheapest).
    """
    setting, current = f"write.{operation}.mode", current_mode(facts, operation)
    own = [c for c in costs if c.mode.format_version == current.format_version]
    even = interval_of(own, commits)
    existing = next((c for c in own if c.mode == current), None)
    if even is None or existing is None:
        kept = Change(
            setting, current.mode, current.mode, "Too little was measured to compare the modes."
        )
        return (kept,), "No advice: too little was measured to compare the modes.", None
    if reads is None:
        kept = Change(setting, current.mode, current.mode, f"{raised(str(even))}.")
        return (
            (kept,),
            f"No advice: the number of reads of the table is not known. {raised(str(even))}. Give "
            "reads_per_day.",
            None,
        )

    def total(one: Costs) -> float:
        return one.per_commit(reads, commits or best_cycle(one, reads))

    best = min(own, key=total)
    gain = 1 - total(best) / total(existing) if total(existing) else 0.0
    figures = (
        f"a commit costs {elapsed(total(existing))} now and {elapsed(total(best))} with "
        f"{best.mode.name}, at {plain(reads)} reads per commit"
    )
    changes: list[Change] = []
    advised = None
    if best.mode.mode != current.mode and even.is_close(reads):
        verdict = f"Too close to call at {plain(reads)} reads per commit: {even}."
        changes.append(Change(setting, current.mode, current.mode, verdict))
    elif best.mode == current or gain < _MARGIN:
        verdict = (
            f"No change: {current.name} costs least, or nearly, at {plain(reads)} reads per "
            f"commit; {even}."
        )
        changes.append(Change(setting, current.mode, current.mode, f"{raised(figures)}; {even}."))
    else:
        properties = {_GRANULARITY: best.mode.granularity} if best.mode.granularity else {}
        if facts.format_version < 2 and not best.mode.is_copy_on_write:
            properties["format-version"] = "2"
        properties[setting] = best.mode.mode
        effect = _V2 if "format-version" in properties else None
        changes.append(
            to_set(
                facts,
                properties,
                f"It saves {percent(gain)}: {figures}; {even}.",
                now=current.mode,
                side_effect=effect,
            )
        )
        advised = best.mode.name
        verdict = (
            f"Set {setting} to "
            f"{best.mode.mode}{f', {best.mode.granularity} granularity' if best.mode.granularity else ''}: "
            f"{figures}."
        )
    newer = min(
        (c for c in costs if c.mode.format_version > current.format_version),
        key=total,
        default=None,
    )
    # The upgrade cannot be undone, so a gain within the error does not count.
    error = best.write_error + (newer.write_error if newer is not None else 0.0)
    if newer is not None and total(best) - total(newer) > max(error, _MARGIN * total(best)):
        version = str(newer.mode.format_version)
        sql = set_properties(facts.sql_name, {"format-version": version, setting: newer.mode.mode})
        why = f"A commit costs {elapsed(total(newer))} with {newer.mode.name}; {_V3}."
        changes.append(
            Change(
                "format-version", str(facts.format_version), version, why, sql, is_alternative=True
            )
        )
        verdict += f" Format version {version} would cost less, but the upgrade cannot be undone."
    return tuple(changes), verdict, advised


def tune_write_mode(
    lake: Lake,
    table: str | Identifier,
    *,
    statement: str = "",
    operation: str = "",
    share: float = 0,
    spread: str = "",
    file_share: float = 0,
    reads_per_day: float = 0,
    reads_per_commit: float = 0,
    event_log: str = "",
    read_filter: str | None = None,
    commits: int = 2,
    repeats: int = 3,
    compact_every: int = 0,
    budget_seconds: float = 1800,
    budget_bytes: str = BUDGET_BYTES,
    sample_bytes: str = "",
    progress: Callable[[str], None] = print,
) -> Answer:
    """Measure the cost of merge-on-read and copy-on-write for a table, and advise one; zero and
    empty text stand for what the history says.

    ``statement`` is the DELETE, UPDATE or MERGE to try. Without one, icekit tries ``commits``
    synthetic statements of ``operation``, which change a ``share`` of the rows, ``scattered`` over
    all files or ``clustered`` in ``file_share`` of them. Reads per commit are ``reads_per_commit``,
    or ``reads_per_day`` (stated, or counted in a Spark ``event_log``) divided by the commits per
    day of the history. With ``read_filter`` the reads are scans with that condition.
    ``compact_every`` is the number of commits between compactions. With ``sample_bytes`` the trial
    uses copied samples of that size instead of clones.

    Raises :class:`~icekit.errors.ParameterError` and :class:`~icekit.errors.StatementRefused`.
    """
    for name, number in {"commits": commits, "repeats": repeats}.items():
        if number < 1:
            raise ParameterError(f"{name} is {number}, but must be 1 or more.")
    for name, value in {
        "reads_per_day": reads_per_day,
        "reads_per_commit": reads_per_commit,
        "compact_every": compact_every,
    }.items():
        require_number(name, value)
    if statement and (operation or share or spread or file_share):
        raise ParameterError(
            "Your own statement determines the operation and the rows; leave out operation, "
            "share, spread and file_share."
        )
    with session_of(lake):
        own = _own_statement(lake, table, statement) if statement else None
        budget = Budget(budget_seconds, budget_bytes)
        trial = Trial.of(
            lake,
            table,
            budget,
            sample_bytes or "1 GB",
            progress,
            if_empty="there is nothing to measure",
        )
        facts = trial.facts
        if read_filter is not None:
            # Before anything is written for it.
            read_predicate(
                lake.spark, lake.spark.table(identifier(*lake.sql_name(facts.table))), read_filter
            )
        history = WriteHistory.of(head(lake, facts.table).lineage())
        shape = shaped_like(
            facts, history, operation=operation, share=share, spread=spread, file_share=file_share
        )
        reads, reads_from = _reads(facts, history, reads_per_commit, reads_per_day, event_log)
        modes = _modes(max(facts.format_version, 2))
        experiment = Experiment(
            trial=trial,
            variants={mode.name: set_up_as(facts, mode, progress) for mode in modes},
            measures=_MEASURES,
            always_sample=bool(sample_bytes),
            spare=1,
        )
        described = f"your {own.kind}" if own is not None else str(shape)
        with experiment.open():
            box = experiment.boxes.get(COPY_ON_WRITE)
            rows, is_copied = (
                (box.observe(), True) if box is not None and box.is_sample else (facts, False)
            )
            statements = (
                (own.on,)
                if own is not None
                else synthetic(lake, rows, shape, commits, is_copied=is_copied)
            )
            progress(f"{display_name(facts.table)}: {described}, in {count(len(modes), 'mode')}")
            _run(experiment, statements, read_filter, repeats, is_own=own is not None)
    operation = own.kind.lower() if own is not None else shape.operation
    cycle = compact_every or round(history.commits_between_compactions or 0) or None
    costs = costs_of(
        experiment.measured, modes, 1 if own is not None else commits, facts.data.file_count
    )
    for one in costs if reads is not None else ():
        experiment.measured.add(
            one.mode.name,
            {TOTAL: one.per_commit(reads or 0.0, cycle or best_cycle(one, reads or 0.0))},
        )
    changes, verdict, advised = advise(facts, costs, operation, reads, cycle)
    confidence, because = (
        experiment.confidence()
        if costs
        else (Confidence.NONE, f"too little was measured ({trial.stopped}).")
    )
    return Answer(
        question="write-mode",
        facts=facts,
        verdict=verdict,
        changes=changes,
        measured=experiment.measured,
        now=current_mode(facts, operation).name,
        advised=advised,
        confidence=confidence,
        because=because,
        notes=(f"Tried {described}.", *_notes(experiment, costs, reads, reads_from, cycle)),
        tables={"break_even": break_even_grid(costs, cycle), "history": history.grid()},
        stopped=trial.stopped,
    )


def _own_statement(lake: Lake, table: str | Identifier, sql: str) -> Statement:
    """Read a person's statement, and refuse one that Spark cannot analyse, or that is for another
    table or branch, before the trial.
    """
    parsed = parse(lake.spark, sql)
    name = lake.sql_name(lake.identifier(table) if isinstance(table, str) else table)
    if tuple(p.casefold() for p in parsed.target) != tuple(p.casefold() for p in name):
        raise ParameterError(
            f"The statement writes to {display_name(parsed.target)}, not to {display_name(name)}; "
            "give that table."
        )
    if parsed.branch is not None:
        raise ParameterError(
            f"The statement writes to branch {parsed.branch!r}; a trial uses the main branch, so "
            "leave out the branch."
        )
    query_of(lake.spark, parsed.sql, is_planned=False)
    return parsed


def _modes(version: int) -> tuple[Mode, ...]:
    kinds = (
        [Mode(MERGE_ON_READ, 2, "file"), Mode(MERGE_ON_READ, 2, "partition")] if version < 3 else []
    )
    return (Mode(COPY_ON_WRITE, version), *kinds, Mode(MERGE_ON_READ, 3))


def set_up_as(facts: TableFacts, mode: Mode, progress: Callable[[str], None]) -> SetUp:
    """Compact existing deletes away, so that only those of the trial are measured, and write like
    the mode.
    """

    def set_up(box: Sandbox) -> None:
        if facts.has_deletes and not box.is_sample:
            progress("compacting existing deletes away on a clone")
            with box.budget.watching(box.lake.spark):
                convert(box.lake.spark, box.name)
            compact(box)
        modes = {f"write.{operation}.mode": mode.mode for operation in OPERATIONS}
        granularity = {_GRANULARITY: mode.granularity} if mode.granularity else {}
        box.set(
            set_properties(
                box.name, {"format-version": str(mode.format_version), **modes, **granularity}
            )
        )

    return set_up


def _run(
    experiment: Experiment,
    statements: Sequence[Callable[[Identifier], str]],
    read_filter: str | None,
    repeats: int,
    *,
    is_own: bool,
) -> None:
    """Commit, scan until the deletes stand out, and compact, in every mode in turn; after a warm-up
    on a spare clone.
    """
    for box in experiment.spares:
        run_commit(box, statements[0], is_own=is_own)
        box.scan(read_filter)
    for number, statement in enumerate(statements, 1):

        def commit(
            _: str, box: Sandbox, statement: Callable[[Identifier], str] = statement
        ) -> dict[str, float]:
            return run_commit(box, statement, is_own=is_own)

        experiment.measure(f"commit {number} of {len(statements)}", commit)
    if experiment.boxes and not any(
        experiment.measured.value(name, FILES) for name in experiment.boxes
    ):
        raise ParameterError(
            "The statement changes no row of this table, so there is nothing to compare; give a "
            "statement that changes rows."
        )
    experiment.measure("the delete files", lambda _, box: {OPENS: box.plan().delete_opens})
    experiment.measure(
        "the scans",
        lambda _, box: {SCAN: box.scan(read_filter).cost},
        rounds=repeats,
        most_rounds=repeats * _MOST_ROUNDS,
        is_settled=is_settled,
    )
    experiment.measure(
        "the compaction",
        lambda name, box: {} if name == COPY_ON_WRITE else {COMPACTION: compact(box)},
    )


def run_commit(
    box: Sandbox, statement: Callable[[Identifier], str], *, is_own: bool
) -> dict[str, float]:
    """Run one statement, which may write the entire table; raises StatementRefused with the
    engine's reason if a person's own one fails.
    """
    try:
        done = box.run(statement(box.name), expected_bytes=box.size_in_bytes)
    except engine_errors() as error:
        if not is_own:
            raise
        raise StatementRefused(
            f"Spark could not run the statement on a clone ({reason(error)}); the table was not "
            "changed. Fix the statement and try again.",
            detail=scrub(str(error)),
        ) from error
    files = done.summed("added-data-files") + done.summed("added-delete-files")
    return {COMMIT: done.cost, WRITTEN: done.summed("added-files-size"), FILES: files}


def compact(box: Sandbox) -> float:
    """Rewrite the data files with deletes; returns the cost."""
    sql = call(box.lake.name, "rewrite_data_files", table=display_name(box.table), options=_REWRITE)
    return box.run(sql, expected_bytes=box.size_in_bytes).cost


def _reads(
    facts: TableFacts, history: WriteHistory, per_commit: float, per_day: float, event_log: str
) -> tuple[float | None, str]:
    """Reads per row-level commit and their source; None if they are not known."""
    if per_commit:
        return per_commit, "as stated"
    source = "as stated"
    if not per_day and event_log:
        per_day, source = read_from_log(event_log, facts.table), "from the event log"
    if not per_day:
        return None, "not known"
    if not history.writes_per_day:
        raise ParameterError(
            "The table's history has no row-level commits, so reads per day cannot be converted "
            "to reads per commit; give reads_per_commit instead."
        )
    return (
        per_day / history.writes_per_day,
        f"{plain(per_day)} a day ({source}), for {plain(history.writes_per_day)} row-level "
        "commits a day",
    )


def _notes(
    experiment: Experiment,
    costs: Sequence[Costs],
    reads: float | None,
    reads_from: str,
    cycle: int | None,
) -> tuple[str, ...]:
    unit = next((box.unit for box in experiment.boxes.values()), CLOCK)
    notes = [UNITS[unit]]
    if reads is not None:
        notes.append(f"Reads per commit: {plain(reads)}, {reads_from}.")
        cycles = {
            one.mode.name: best_cycle(one, reads) for one in costs if not one.mode.is_copy_on_write
        }
        cheapest = ", ".join(
            f"every {count(number, 'commit')} with {name.removeprefix('merge-on-read, ')}"
            for name, number in cycles.items()
        )
        notes.append(
            f"Compacted every {count(cycle, 'commit')}; cheapest is {cheapest}."
            if cycle
            else f"Compacted {cheapest}, which is cheapest."
        )
    if costs and not is_settled(experiment.measured):
        notes.append(
            "Deletes slow a scan by little more than repeated scans differ: more commits or "
            "repeats would narrow the break-even point."
        )
    if experiment.is_sample:
        notes.append(
            f"Costs are those of a sample; the table is {experiment.scale:,.1f} times as large, "
            "and modes are compared, not times."
        )
    return tuple(notes)


__all__ = ["tune_write_mode"]
