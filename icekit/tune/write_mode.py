"""Answer whether a table should be written copy-on-write or merge-on-read: its own statements,
tried on clones in every mode.

Over a cycle of N commits between two compactions, with R reads after each, a mode costs for each
commit

    write  +  R · scan  +  R · (mean cost of the deletes that have piled up)  +  compaction / N

seconds of the unit that was measured (:mod:`icekit.engine.effort`). The deletes cost a scan as much
as the delete files that it opens: position delete files pile up, and a data file has at most one
deletion vector.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from icekit.common.commands import WriteModeOptions
from icekit.common.errors import ParameterError, StatementRefused
from icekit.common.sql import call, display_name, identifier, set_properties
from icekit.common.units import capitalized, elapsed, percent, plain
from icekit.common.view import BYTES, NUMBER, SECONDS
from icekit.deletes.convert import convert
from icekit.engine.effort import CPU
from icekit.engine.errors import engine_errors, reason
from icekit.engine.planner import query_of
from icekit.engine.predicate import read_predicate
from icekit.health.facts.head import head
from icekit.health.facts.model import TableFacts
from icekit.sandbox.trial import Sandbox, Trial
from icekit.tune.answer import Answer, Change, Measure, Measurements, median, to_set
from icekit.tune.experiment import Experiment, Figures, unchanged
from icekit.tune.queries import reads_per_day as read_from_log
from icekit.tune.statement import Statement, parse
from icekit.tune.write_cost import TOTAL, Costs, Mode, interval_of, total
from icekit.tune.write_history import (
    COPY_ON_WRITE,
    MERGE_ON_READ,
    OPERATIONS,
    ForTable,
    PastCommit,
    commits_between_compactions,
    past_commits,
    shaped_like,
    synthetic,
    writes_per_day,
)

COMMIT = "cost of a commit"
SCAN = "cost of a scan"
COMPACTION = "cost of a compaction"
OPENS = "delete files that a scan opens"
WRITTEN = "bytes that a commit writes"
FILES = "files that a commit writes"
_MEASURES = (
    Measure(TOTAL, SECONDS),
    Measure(COMMIT, SECONDS, of=median),
    Measure(SCAN, SECONDS),
    Measure(COMPACTION, SECONDS),
    Measure(OPENS, NUMBER),
    Measure(WRITTEN, BYTES, of=median),
    Measure(FILES, NUMBER, of=median),
)
#: Compact only files with deletes: the rest costs the same in every mode.
_REWRITE = {"delete-file-threshold": "1", "min-file-size-bytes": "0", "min-input-files": "1000000"}
#: Choices: the share of the cost that a change must save; what a scan of the deletes must stand
# out by from what repeats differ by.
_MARGIN = 0.1
_STANDS_OUT = 4.0
#: A clone that is not measured: the first statements and scans of a session take longer.
_WARM_UP = "warm-up"
#: What an upgrade to a format version means.
_UPGRADES = {
    2: "merge-on-read needs format version 2: the upgrade cannot be undone, and all readers must "
    "support deletes",
    3: "the upgrade cannot be undone, and every reader and writer of the table must support "
    "version 3 (Spark with Iceberg 1.8 or newer for deletion vectors; check Flink, Trino, Athena, "
    "Snowflake and pyiceberg)",
}


def costs_of(
    measured: Measurements, modes: Sequence[Mode], commits: int, data_files: int
) -> Iterator[Costs]:
    """The costs of the modes that were measured completely; reads of copy-on-write, which leaves no
    deletes, are what the others are held against.
    """
    reference = measured.value(COPY_ON_WRITE, SCAN)
    for mode in modes:
        name = mode.name
        write = measured.value(name, COMMIT)
        scan = measured.value(name, SCAN)
        compaction = measured.value(name, COMPACTION)
        if mode.is_copy_on_write:
            compaction = 0.0
        if write is None or scan is None or reference is None or compaction is None:
            continue
        opens = measured.value(name, OPENS) or 0.0
        share = opens / max(data_files, 1)
        error = measured.spread(name, SCAN) + measured.spread(COPY_ON_WRITE, SCAN)
        yield Costs(
            mode=mode,
            write=write,
            scan=reference,
            data_files=data_files,
            open_seconds=max(0.0, scan - reference) / opens if opens else 0.0,
            # A data file has at most one vector, so those of several commits overlap.
            touched=share / commits
            if mode.granularity
            else 1 - (1 - min(share, 1.0)) ** (1 / commits),
            compaction=compaction,
            commits=commits,
            write_error=measured.spread(name, COMMIT),
            open_error=error / opens if opens else 0.0,
        )


def is_settled(measured: Measurements) -> bool:
    """Tell whether what deletes add to a scan stands out from what repeats of it differ by."""
    reference = measured.value(COPY_ON_WRITE, SCAN)
    error = measured.spread(COPY_ON_WRITE, SCAN)
    return all(
        (measured.value(name, SCAN) or 0.0) - (reference or 0.0)
        > _STANDS_OUT * (measured.spread(name, SCAN) + error)
        for name in measured.rounds
        if name != COPY_ON_WRITE
    )


def current_mode(facts: TableFacts, operation: str) -> Mode:
    """The current write mode of an operation."""
    mode = facts.setting(f"write.{operation}.mode") or COPY_ON_WRITE
    version = max(facts.format_version, 2)
    if mode == COPY_ON_WRITE or version >= 3:
        return Mode(mode, version)
    # The property's default says partition, but Spark writes per file unless it is set
    # (SparkWriteConf).
    return Mode(mode, version, facts.properties.get("write.delete.granularity") or "file")


#: The changes, the verdict, and the variant that is advised.
Advice = tuple[tuple[Change, ...], str, str | None]


def advise(
    facts: TableFacts,
    costs: Sequence[Costs],
    operation: str,
    reads: float | None,
    commits: int | None,
) -> Advice:
    """What to do at a number of ``reads`` per commit and of ``commits`` between compactions (None:
    not known, the cheapest).
    """
    setting = f"write.{operation}.mode"
    now = current_mode(facts, operation)

    def kept(verdict: str) -> Advice:
        return (Change(setting, now.mode, now.mode, ""),), verdict, None

    own = [c for c in costs if c.mode.format_version == now.format_version]
    even = interval_of(own, commits)
    existing = next((c for c in own if c.mode == now), None)
    if even is None or existing is None:
        return kept("No advice: too little was measured to compare the modes.")
    if reads is None:
        return kept(
            f"No advice: the number of reads of the table is not known. {capitalized(str(even))}. Give "
            "reads_per_day."
        )
    cost = {c: total(c, reads, commits) for c in costs}
    best = min(own, key=cost.__getitem__)
    gain = 1 - cost[best] / cost[existing] if cost[existing] else 0.0
    at = f"at {plain(reads)} reads per commit"
    if best.mode.mode != now.mode and even.is_close(reads):
        changes, verdict, advised = kept(f"Too close to call {at}: {even}.")
    elif best is existing or gain < _MARGIN:
        changes, verdict, advised = kept(
            f"No change: no other mode costs clearly less than {now.name} {at}; {even}."
        )
    else:
        figures = (
            f"a commit costs {elapsed(cost[existing])} now and {elapsed(cost[best])} with "
            f"{best.mode.name}, {at}"
        )
        why = f"It saves {percent(gain)}: {figures}; {even}."
        changes = (_to_mode(facts, operation, best.mode, why, now.mode),)
        verdict = f"Set {setting} to {best.mode.mode}: {figures}."
        advised = best.mode.name
    newer = [c for c in costs if c.mode.format_version > now.format_version]
    upgrade = min(newer, key=cost.__getitem__, default=best)
    least = max(best.write_error + upgrade.write_error, _MARGIN * cost[best])
    if cost[best] - cost[upgrade] <= least:
        return changes, verdict, advised
    # Only where it saves more than the error, because it cannot be undone.
    version = upgrade.mode.format_version
    why = f"A commit costs {elapsed(cost[upgrade])} with {upgrade.mode.name}; {_UPGRADES[version]}."
    change = _to_mode(facts, operation, upgrade.mode, why, now.mode)
    verdict += f" Format version {version} would cost less, but the upgrade cannot be undone."
    return (*changes, replace(change, is_alternative=True)), verdict, advised


def _to_mode(facts: TableFacts, operation: str, mode: Mode, why: str, now: str) -> Change:
    """Set the mode, and the format version that it needs."""
    version = {}
    effect = None
    if mode.format_version > facts.format_version and not mode.is_copy_on_write:
        version = {"format-version": str(mode.format_version)}
        effect = _UPGRADES[mode.format_version]
    properties = {**version, **mode.properties(operation)}
    return to_set(facts, properties, why, now=now, side_effect=effect)


def tune_write_mode(trial: Trial, options: WriteModeOptions) -> Answer:
    """Measure the cost of merge-on-read and copy-on-write for a table, and advise one; zero and
    empty text stand for what the history says.

    ``statement`` is the DELETE, UPDATE or MERGE to try. Without one, icekit tries ``commits``
    synthetic statements of ``operation``, which change a ``share`` of the rows in a ``file_share``
    of the files. Reads per commit are ``reads_per_commit``, or ``reads_per_day`` (stated, or
    counted in a Spark ``event_log``) divided by the commits per day of the history. With
    ``read_filter`` the reads are scans with that condition.
    ``compact_every`` is the number of commits between compactions. With ``sample_bytes`` the trial
    uses copied samples of that size instead of clones.

    Raises :class:`~icekit.common.errors.ParameterError` and
    :class:`~icekit.common.errors.StatementRefused`.
    """
    lake = trial.lake
    facts = trial.facts
    own = _own_statement(trial, options) if options.statement else None
    if options.read_filter is not None:
        # Before anything is written for it.
        rows = lake.spark.table(identifier(*lake.sql_name(facts.table)))
        read_predicate(lake.spark, rows, options.read_filter)
    history = past_commits(head(lake, facts.table).lineage())
    shape = shaped_like(facts, history, options)
    operation = shape.operation
    tried = str(shape)
    commits = options.commits
    if own is not None:
        operation = own.kind.lower()
        tried = f"your {own.kind}"
        commits = 1
    reads, reads_from = _reads(facts, history, options)
    modes = _modes(max(facts.format_version, 2))
    experiment = Experiment(
        trial=trial,
        variants={
            _WARM_UP: unchanged,
            **{mode.name: partial(set_up, facts, mode) for mode in modes},
        },
        measures=_MEASURES,
        always_sample=bool(options.sample_bytes),
    )
    with experiment.open():
        # A sample does not have all partitions of the table.
        box = experiment.boxes.get(COPY_ON_WRITE)
        copy = box.observe() if box is not None and box.is_sample else None
        statements = [own.on] if own else synthetic(lake, copy or facts, shape, commits)
        _measure(experiment, statements, options)
    cycle = options.compact_every or round(commits_between_compactions(history) or 0) or None
    costs = tuple(costs_of(experiment.measured, modes, commits, facts.data.file_count))
    if reads is not None:
        for each in costs:
            experiment.measured.add(each.mode.name, {TOTAL: total(each, reads, cycle)})
    changes, verdict, advised = advise(facts, costs, operation, reads, cycle)
    notes = _notes(experiment, costs, reads, cycle, reads_from)
    return experiment.answer(
        "write-mode",
        verdict,
        changes,
        (f"Tried {tried}.", *notes),
        now=current_mode(facts, operation).name,
        advised=advised,
        is_enough=bool(costs),
    )


def _own_statement(trial: Trial, options: WriteModeOptions) -> Statement:
    """Read a person's statement, and refuse one that Spark cannot analyse, or that is for another
    table or branch, before the trial.
    """
    if any(options.only("operation", "share", "file_share").values()):
        raise ParameterError(
            "Your own statement determines the operation and the rows; leave out operation, "
            "share and file_share."
        )
    lake = trial.lake
    parsed = parse(lake.spark, options.statement)
    name = lake.sql_name(trial.facts.table)
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
    granularities = ("file", "partition") if version < 3 else ()
    merging = (Mode(MERGE_ON_READ, 2, granularity) for granularity in granularities)
    return (Mode(COPY_ON_WRITE, version), *merging, Mode(MERGE_ON_READ, 3))


def set_up(facts: TableFacts, mode: Mode, box: Sandbox) -> None:
    """Compact existing deletes away, so that only those of the trial are measured, and write like
    the mode.
    """
    if facts.has_deletes and not box.is_sample:
        with box.budget.watching(box.lake.spark):
            convert(box.lake.spark, box.name)
        compact(box)
    properties = {"format-version": str(mode.format_version), **mode.properties(*OPERATIONS)}
    box.set(set_properties(box.name, properties))


def _measure(
    experiment: Experiment, statements: Sequence[ForTable], options: WriteModeOptions
) -> None:
    """Commit, scan until the deletes stand out, and compact, in every mode in turn; after a warm-up
    on a clone of its own.
    """
    boxes = experiment.boxes
    is_own = bool(options.statement)
    warm_up = boxes.pop(_WARM_UP, None)
    if warm_up is not None:
        run_commit(warm_up, statements[0], is_own=is_own)
        warm_up.scan(options.read_filter)
    for number, statement in enumerate(statements, 1):

        def commit(_: str, box: Sandbox, statement: ForTable = statement) -> Figures:
            return run_commit(box, statement, is_own=is_own)

        experiment.measure(f"commit {number} of {len(statements)}", commit)
    if boxes and not any(experiment.measured.value(name, FILES) for name in boxes):
        raise ParameterError(
            "The statement changes no row of what is tried, so there is nothing to compare; give "
            "a statement that changes rows, or file_share=1."
        )
    experiment.measure("the delete files", lambda _, box: {OPENS: box.plan().delete_opens})
    experiment.measure(
        "the scans",
        lambda _, box: {SCAN: box.scan(options.read_filter).cost},
        rounds=options.repeats,
        is_settled=is_settled,
    )
    experiment.measure(
        "the compaction",
        lambda name, box: {} if name == COPY_ON_WRITE else {COMPACTION: compact(box)},
    )


def run_commit(box: Sandbox, statement: ForTable, *, is_own: bool) -> Figures:
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
            "changed. Fix the statement and try again; columns that are qualified by the "
            "table's full name need an alias of the table instead."
        ) from error
    files = done.summed("added-data-files") + done.summed("added-delete-files")
    return {COMMIT: done.cost, WRITTEN: done.summed("added-files-size"), FILES: files}


def compact(box: Sandbox) -> float:
    """Rewrite the data files with deletes; returns the cost."""
    sql = call(box.lake.name, "rewrite_data_files", table=display_name(box.table), options=_REWRITE)
    return box.run(sql, expected_bytes=box.size_in_bytes).cost


def _reads(
    facts: TableFacts, history: Sequence[PastCommit], options: WriteModeOptions
) -> tuple[float | None, str]:
    """Reads per row-level commit and their source; None if they are not known."""
    if options.reads_per_commit:
        return options.reads_per_commit, "as stated"
    per_day = options.reads_per_day
    source = "as stated"
    if not per_day and options.event_log:
        per_day = read_from_log(options.event_log, facts.table)
        source = "from the event log"
    if not per_day:
        return None, "not known"
    writes = writes_per_day(history)
    if not writes:
        raise ParameterError(
            "The table's history has no row-level commits, so reads per day cannot be converted "
            "to reads per commit; give reads_per_commit instead."
        )
    return (
        per_day / writes,
        f"{plain(per_day)} a day ({source}), for {plain(writes)} row-level commits a day",
    )


def _notes(
    experiment: Experiment,
    costs: Sequence[Costs],
    reads: float | None,
    cycle: int | None,
    reads_from: str,
) -> Iterator[str]:
    unit = next((box.unit for box in experiment.boxes.values()), CPU)
    yield f"Costs are in {unit}, without the driver's planning and commits."
    if reads is not None:
        yield f"Reads per commit: {plain(reads)}, {reads_from}."
    between = cycle or "the cheapest number for each mode"
    yield f"Commits between compactions: {between}."
    for version in sorted({c.mode.format_version for c in costs}):
        of_version = (
            c for c in costs if c.mode.is_copy_on_write or c.mode.format_version == version
        )
        even = interval_of(list(of_version), cycle)
        if even is not None:
            yield f"In format version {version}, {even}."
