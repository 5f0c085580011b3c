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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from icekit.answer.grid import BYTES, NUMBER, SECONDS
from icekit.engine.effort import CLOCK
from icekit.engine.errors import engine_errors, reason
from icekit.engine.planner import query_of
from icekit.engine.predicate import read_predicate
from icekit.errors import ParameterError, StatementRefused
from icekit.facts.head import head
from icekit.facts.model import TableFacts
from icekit.options.commands import WriteModeOptions
from icekit.resolve.convert import convert
from icekit.sandbox.trial import Sandbox, Trial
from icekit.secrets import scrub
from icekit.sql import call, display_name, identifier, set_properties
from icekit.tune.answer import Answer, Change, Confidence, Measure, Measurements, median, to_set
from icekit.tune.experiment import Experiment, Figures, SetUp
from icekit.tune.queries import reads_per_day as read_from_log
from icekit.tune.statement import Statement, parse
from icekit.tune.write_cost import (
    TOTAL,
    UNITS,
    BreakEven,
    Costs,
    Mode,
    best_cycle,
    break_even_grid,
    interval_of,
    total,
)
from icekit.tune.write_history import (
    COPY_ON_WRITE,
    MERGE_ON_READ,
    OPERATIONS,
    ForTable,
    Shape,
    WriteHistory,
    shaped_like,
    synthetic,
)
from icekit.units import count, elapsed, percent, plain, raised

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
# multiple of those asked for; what a scan of the deletes must stand out by from what repeats
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
) -> Iterator[Costs]:
    """The costs of the modes that were measured completely; reads of copy-on-write, which leaves no
    deletes, are what the others are held against.
    """
    reference = measured.value(COPY_ON_WRITE, SCAN)
    for mode in modes:
        name = mode.name
        write, scan, compaction = (
            measured.value(name, measure) for measure in (COMMIT, SCAN, COMPACTION)
        )
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
    reference = measured.value(COPY_ON_WRITE, SCAN) or 0.0
    merging = [name for name in measured.rounds if name != COPY_ON_WRITE]
    return all(
        (measured.value(name, SCAN) or 0.0) - reference
        > _STANDS_OUT * (measured.spread(name, SCAN) + measured.spread(COPY_ON_WRITE, SCAN))
        for name in merging
    )


def current_mode(facts: TableFacts, operation: str) -> Mode:
    """The current write mode of an operation."""
    mode = facts.setting(f"write.{operation}.mode") or COPY_ON_WRITE
    version = max(facts.format_version, 2)
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
    """The changes, the verdict and the variant advised, at a number of ``reads`` per commit and of
    ``commits`` between compactions (None: not known, the cheapest).
    """
    setting, current = f"write.{operation}.mode", current_mode(facts, operation)
    own = [c for c in costs if c.mode.format_version == current.format_version]
    even = interval_of(own, commits)
    existing = next((c for c in own if c.mode == current), None)
    if even is None or existing is None:
        why = "too little was measured to compare the modes."
        return (_kept(setting, current, raised(why)),), f"No advice: {why}", None
    if reads is None:
        why = f"{raised(str(even))}."
        verdict = f"the number of reads of the table is not known. {why} Give reads_per_day."
        return (_kept(setting, current, why),), f"No advice: {verdict}", None
    case = _Case(facts, setting, even, reads, commits)
    best = min(own, key=case.cost)
    change, verdict, advised = case.advice(existing, best)
    newer = [c for c in costs if c.mode.format_version > current.format_version]
    upgrade = case.upgrade(best, min(newer, key=case.cost)) if newer else None
    if upgrade is None:
        return (change,), verdict, advised
    version = f"Format version {upgrade.proposed} would cost less"
    return (change, upgrade), f"{verdict} {version}, but the upgrade cannot be undone.", advised


def _kept(setting: str, mode: Mode, why: str) -> Change:
    return Change(setting, mode.mode, mode.mode, why)


@dataclass(frozen=True, slots=True)
class _Case:
    """The costs of modes at a number of reads per commit and of commits between compactions."""

    facts: TableFacts
    setting: str
    even: BreakEven
    reads: float
    commits: int | None

    def cost(self, costs: Costs) -> float:
        return total(costs, self.reads, self.commits)

    def advice(self, existing: Costs, best: Costs) -> tuple[Change, str, str | None]:
        """The change, the verdict and the variant advised, within the table's format version."""
        now, mode = existing.mode, best.mode
        before, after = self.cost(existing), self.cost(best)
        gain = 1 - after / before if before else 0.0
        at = f"at {plain(self.reads)} reads per commit"
        figures = (
            f"a commit costs {elapsed(before)} now and {elapsed(after)} with {mode.name}, {at}"
        )
        if mode.mode != now.mode and self.even.is_close(self.reads):
            verdict = f"Too close to call {at}: {self.even}."
            return _kept(self.setting, now, verdict), verdict, None
        if mode == now or gain < _MARGIN:
            change = _kept(self.setting, now, f"{raised(figures)}; {self.even}.")
            verdict = f"No change: {now.name} costs least, or nearly, {at}; {self.even}."
            return change, verdict, None
        is_upgrade = self.facts.format_version < 2 and not mode.is_copy_on_write
        properties = {
            **_granularity(mode),
            **({"format-version": "2"} if is_upgrade else {}),
            self.setting: mode.mode,
        }
        why = f"It saves {percent(gain)}: {figures}; {self.even}."
        effect = _V2 if is_upgrade else None
        change = to_set(self.facts, properties, why, now=now.mode, side_effect=effect)
        granularity = f", {mode.granularity} granularity" if mode.granularity else ""
        return change, f"Set {self.setting} to {mode.mode}{granularity}: {figures}.", mode.name

    def upgrade(self, best: Costs, newer: Costs) -> Change | None:
        """Another format version; None unless it saves more than the error, because the upgrade
        cannot be undone.
        """
        before, after = self.cost(best), self.cost(newer)
        if before - after <= max(best.write_error + newer.write_error, _MARGIN * before):
            return None
        version = str(newer.mode.format_version)
        properties = {"format-version": version, self.setting: newer.mode.mode}
        return Change(
            "format-version",
            str(self.facts.format_version),
            version,
            f"A commit costs {elapsed(after)} with {newer.mode.name}; {_V3}.",
            set_properties(self.facts.sql_name, properties),
            is_alternative=True,
        )


def tune_write_mode(trial: Trial, options: WriteModeOptions) -> Answer:
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
    lake, facts = trial.lake, trial.facts
    own = _own_statement(trial, options) if options.statement else None
    if options.read_filter is not None:
        # Before anything is written for it.
        rows = lake.spark.table(identifier(*lake.sql_name(facts.table)))
        read_predicate(lake.spark, rows, options.read_filter)
    history = WriteHistory.of(head(lake, facts.table).lineage())
    shape = shaped_like(
        facts, history, **options.only("operation", "share", "spread", "file_share")
    )
    workload = WriteTrial(own, shape, options)
    reads, reads_from = _reads(facts, history, options)
    modes = _modes(max(facts.format_version, 2))
    experiment = Experiment(
        trial=trial,
        variants={mode.name: set_up_as(facts, mode, trial.progress) for mode in modes},
        measures=_MEASURES,
        always_sample=bool(options.sample_bytes),
        spare=1,
    )
    with experiment.open():
        workload.run(experiment)
    cycle = options.compact_every or round(history.commits_between_compactions or 0) or None
    files = facts.data.file_count
    costs = tuple(costs_of(experiment.measured, modes, workload.commits, files))
    if reads is not None:
        for each in costs:
            experiment.measured.add(each.mode.name, {TOTAL: total(each, reads, cycle)})
    changes, verdict, advised = advise(facts, costs, workload.operation, reads, cycle)
    unknown = {
        "confidence": Confidence.NONE,
        "because": f"too little was measured ({trial.stopped}).",
    }
    notes = _notes(experiment, costs, reads, cycle, reads_from)
    return experiment.answer(
        "write-mode",
        verdict,
        changes,
        (f"Tried {workload}.", *notes),
        now=current_mode(facts, workload.operation).name,
        advised=advised,
        tables={"break_even": break_even_grid(costs, cycle), "history": history.grid()},
        **({} if costs else unknown),
    )


def _own_statement(trial: Trial, options: WriteModeOptions) -> Statement:
    """Read a person's statement, and refuse one that Spark cannot analyse, or that is for another
    table or branch, before the trial.
    """
    if any(options.only("operation", "share", "spread", "file_share").values()):
        raise ParameterError(
            "Your own statement determines the operation and the rows; leave out operation, "
            "share, spread and file_share."
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


def _granularity(mode: Mode) -> dict[str, str]:
    return {_GRANULARITY: mode.granularity} if mode.granularity else {}


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
        properties = {"format-version": str(mode.format_version), **_granularity(mode)}
        properties |= {f"write.{operation}.mode": mode.mode for operation in OPERATIONS}
        box.set(set_properties(box.name, properties))

    return set_up


@dataclass(frozen=True, slots=True)
class WriteTrial:
    """A person's own statement, or synthetic ones of a shape, and the scans and the compaction
    after them.
    """

    own: Statement | None
    shape: Shape
    options: WriteModeOptions

    def __str__(self) -> str:
        return f"your {self.own.kind}" if self.own is not None else str(self.shape)

    @property
    def operation(self) -> str:
        """Delete, update or merge."""
        return self.own.kind.lower() if self.own is not None else self.shape.operation

    @property
    def commits(self) -> int:
        """How many statements are run."""
        return 1 if self.own is not None else self.options.commits

    def statements(self, trial: Trial, box: Sandbox | None) -> list[ForTable]:
        """The statements, each for any table; ``box`` is a sandbox of the trial."""
        if self.own is not None:
            return [self.own.on]
        copy = box.observe() if box is not None and box.is_sample else None
        is_copied, facts = copy is not None, copy or trial.facts
        return synthetic(trial.lake, facts, self.shape, self.commits, is_copied=is_copied)

    def run(self, experiment: Experiment) -> None:
        """Commit, scan until the deletes stand out, and compact, in every mode in turn; after a
        warm-up on a spare clone.
        """
        trial, boxes = experiment.trial, experiment.boxes
        statements = self.statements(trial, boxes.get(COPY_ON_WRITE))
        modes = count(len(experiment.variants), "mode")
        trial.progress(f"{display_name(trial.facts.table)}: {self}, in {modes}")
        is_own, read_filter = self.own is not None, self.options.read_filter
        for box in experiment.spares:
            run_commit(box, statements[0], is_own=is_own)
            box.scan(read_filter)
        for number, statement in enumerate(statements, 1):

            def commit(_: str, box: Sandbox, statement: ForTable = statement) -> Figures:
                return run_commit(box, statement, is_own=is_own)

            experiment.measure(f"commit {number} of {len(statements)}", commit)
        if boxes and not any(experiment.measured.value(name, FILES) for name in boxes):
            raise ParameterError(
                "The statement changes no row of this table, so there is nothing to compare; give "
                "a statement that changes rows."
            )
        experiment.measure("the delete files", lambda _, box: {OPENS: box.plan().delete_opens})
        experiment.measure(
            "the scans",
            lambda _, box: {SCAN: box.scan(read_filter).cost},
            rounds=self.options.repeats,
            most_rounds=self.options.repeats * _MOST_ROUNDS,
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
    facts: TableFacts, history: WriteHistory, options: WriteModeOptions
) -> tuple[float | None, str]:
    """Reads per row-level commit and their source; None if they are not known."""
    if options.reads_per_commit:
        return options.reads_per_commit, "as stated"
    per_day, source = options.reads_per_day, "as stated"
    if not per_day and options.event_log:
        per_day, source = read_from_log(options.event_log, facts.table), "from the event log"
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
    cycle: int | None,
    reads_from: str,
) -> Iterator[str]:
    yield UNITS[next((box.unit for box in experiment.boxes.values()), CLOCK)]
    if reads is not None:
        yield f"Reads per commit: {plain(reads)}, {reads_from}."
        cheapest = ", ".join(
            f"every {count(best_cycle(each, reads), 'commit')} with {each.mode.name}"
            for each in costs
            if not each.mode.is_copy_on_write
        )
        yield (
            f"Compacted every {count(cycle, 'commit')}; cheapest is {cheapest}."
            if cycle
            else f"Compacted {cheapest}, which is cheapest."
        )
    if costs and not is_settled(experiment.measured):
        yield (
            "Deletes slow a scan by little more than repeated scans differ: more commits or "
            "repeats would narrow the break-even point."
        )
    if experiment.is_sample:
        yield (
            f"Costs are those of a sample; the table is {experiment.scale:,.1f} times as large, "
            "and modes are compared, not times."
        )
