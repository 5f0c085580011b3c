"""Answer which write mode a table should have: history, trial on clones, model, advice. Never writes to the table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from icekit.answer.grid import BYTES, COUNT, NUMBER, SECONDS, SHARE, TEXT, Grid, Unit
from icekit.catalog.lake import session_of
from icekit.engine.effort import CLOCK, CPU, TASKS
from icekit.engine.planner import query_of
from icekit.engine.predicate import read_predicate
from icekit.errors import ParameterError, require_number
from icekit.facts.files import Kind
from icekit.facts.head import head
from icekit.facts.model import TableFacts
from icekit.sandbox.trial import BUDGET_BYTES, Budget, Trial
from icekit.sql import Identifier, display_name, identifier
from icekit.tune.card import Advice, Answer, Effect, tried_or_not
from icekit.tune.queries import reads_per_day as read_from_log
from icekit.tune.statement import Statement, parse
from icekit.tune.write_mode.history import (
    COPY_ON_WRITE,
    MERGE_ON_READ,
    OperationHistory,
    Workload,
    WriteHistory,
    own,
    shaped_like,
    synthetic,
    write_history,
)
from icekit.tune.write_mode.model import (
    INTERVAL,
    MAX_CYCLE,
    BreakEven,
    Changed,
    Cost,
    CostComparison,
    Costs,
    Variant,
    advise,
    best_cycle,
    close_sentence,
    commits_until,
    current_variant,
    even_sentence,
    is_robust,
    sensitivity,
)
from icekit.tune.write_mode.trial import (
    TrialSandboxes,
    VariantMeasures,
    WriteModeTrial,
    clean,
    compare,
    is_lost_in_noise,
    prepare,
    run_trial,
)
from icekit.units import count, elapsed, percent, plain, raised

if TYPE_CHECKING:
    from icekit.catalog import Lake


# --- The answer on the write mode, in figures, sentences and tables


@dataclass(frozen=True, repr=False)
class WriteModeChoice(Answer):
    """The answer with its basis.

    ``reads`` are reads per row-level commit (None if not known), ``reads_from`` is their
    source; ``comparison`` is None if too little was measured to compare.
    """

    question: ClassVar[str] = "write-mode"

    history: WriteHistory
    operation: str
    current: Variant
    reads: float | None
    reads_from: str
    trial: WriteModeTrial
    comparison: CostComparison | None
    cycle_from: str
    sensitivity: tuple[Changed, ...]
    margin: float

    @property
    def is_answered(self) -> bool:
        """Tell whether the modes could be compared."""
        return self.comparison is not None

    @property
    def close(self) -> BreakEven | None:
        """The break-even point, if the reads per commit are too close to it to say which mode is cheaper; else None."""
        if self.comparison is None or self.reads is None:
            return None
        even = self.comparison.within(self.current.format_version).main_break_even()
        return even if even is not None and even.is_close(self.reads) else None

    def verdict(self) -> str:
        """The mode to set and what it saves, that nothing should change, or that the modes are too close to call."""
        if self.comparison is None:
            return f"No advice: too little was measured to compare the modes ({self.stopped})."
        changes = [a for a in self.advice if a.sql and not a.is_alternative]
        compact = next((f" Compact {a.proposed}." for a in self.advice if a.setting == INTERVAL and a.is_change), "")
        instead = next((a for a in self.advice if a.is_alternative), None)
        at = f" at {plain(self.reads)} reads per commit" if self.reads is not None else ""
        more = (
            f" Format version {instead.proposed} {'would save more' if changes else 'would cost less'}, but the upgrade cannot be undone."
            if instead is not None
            else ""
        )
        if self.close is not None and self.reads is not None:
            sets = "".join(f" {raised(f'set {a.setting} to {a.proposed}')}." for a in changes)
            return f"{raised(close_sentence(self.close, self.reads))}.{sets}{compact}{more}"
        if not changes:
            if self.reads is None:
                even = even_sentence(self.comparison.within(self.current.format_version))
                return f"No advice: the number of reads of the table is not known. {even}"
            kept = f"no mode of format version {self.current.format_version} costs clearly less than {self.current.name}{at}"
            return f"Keep {self.current.name}: {kept}.{compact}{more}" if compact or more else f"No change: {kept}."
        sets = " and ".join(f"set {a.setting} to {a.proposed}" for a in changes)
        before, after = self._before_and_after()
        won = (
            f": a commit costs {elapsed(after.total)} of {self.trial.unit} instead of {elapsed(before.total)}, reads included{at}"
            if before and after
            else ""
        )
        return f"{raised(sets)}{won}.{compact}{more}"

    def _before_and_after(self) -> tuple[Cost | None, Cost | None]:
        """The cost of a commit now and as advised, including the reads that follow it; None if not known."""
        c, reads = self.comparison, self.reads
        there = c.of(self.current) if c is not None else None
        if c is None or reads is None or there is None:
            return None, None
        proposed = {a.setting: a.proposed for a in self.advice if a.sql and not a.is_alternative}
        mode = proposed.get(f"write.{self.operation}.mode") or self.current.mode
        granularity = (
            proposed.get("write.delete.granularity")
            or self.current.granularity
            or self.facts.properties.get("write.delete.granularity", "file")
        )
        version = int(proposed.get("format-version") or self.current.format_version)
        then = c.of(Variant(mode, version, granularity if mode == MERGE_ON_READ and version < 3 else None))
        return c.per_commit(there, reads), c.per_commit(then, reads) if then is not None else None

    def effects(self) -> list[Effect]:
        """The cost of a commit now and as advised: in total, to write, for its reads, and its share of a compaction."""
        before, after = self._before_and_after()
        if before is None or after is None or before == after:
            return []
        parts = (
            (f"a commit, including its reads ({self.trial.unit})", before.total, after.total),
            ("writing the commit", before.write, after.write),
            ("reading", before.scan + before.read, after.scan + after.read),
            ("the commit's share of a compaction", before.compaction, after.compaction),
        )
        return [Effect(name, elapsed(now), elapsed(then), then > now) for name, now, then in parts]

    def confidence(self) -> str:
        """Whether the answer changes with other inputs, and whether reads differed by more than noise."""
        if self.comparison is None:
            return "low: the modes were not compared."
        commits = count(max((len(m.writes) for m in self.trial.measured), default=0), "commit")
        how = f"{commits} and the scans after them were measured ({self.trial.unit}) {'on a copied sample, and scaled' if self.trial.scale > 1 else 'on clones'}"
        if self.close is not None:
            return f"low: {how}; the table's reads per commit are within the interval of the break-even point."
        if is_lost_in_noise(self.trial):
            return f"low: {how}; deletes slow a read by less than two reads of the same rows differ."
        if self.reads is not None and not is_robust(self.sensitivity, self.comparison.winner(self.reads).variant):
            return tried_or_not(self, level="medium", why=f"{how}; another mode would be cheaper if one input were half or twice as large.")
        level = "medium" if self.trial.scale > 1 or self.reads is None else "high"
        return tried_or_not(
            self,
            level=level,
            why=f"{how}{'; the mode stays the same with any one input half or twice as large' if self.reads is not None else ''}.",
        )

    def tables(self) -> dict[str, Grid]:
        """The measurements, the table's own row-level commits, and the costs with each input half and twice as large."""
        changed = [(c.name, c.factor, c.winner.name, _finite(c.break_even)) for c in self.sensitivity]
        return {
            "measured": _measured(self.trial),
            "history": Grid("The table's own commits", _HISTORY, [_commits(o) for o in self.history.row_level]),
            "costs": Grid(f"Cost of a commit, in seconds of {self.trial.unit}", _COSTS, _costs(self)),
            "sensitivity": Grid("Cheapest mode if one input is half or twice as large", _SENSITIVITY, changed),
        }

    def basis(self) -> tuple[str, ...]:
        """The basis of the answer, one sentence each."""
        if self.comparison is None:
            return ()
        c = self.comparison
        reads = (
            "The number of reads of the table is not known."
            if self.reads is None
            else f"{plain(self.reads)} reads per commit, {self.reads_from}."
        )
        kind = f"reads WHERE {self.trial.filter}" if self.trial.filter else "full scans"
        lines = [
            f"{reads} {_cycles(self)}; reads are {kind}, {c.read_seconds:.2f} s of {c.unit} without deletes.",
            f"{_UNITS[c.unit]} Assumed: each commit changes a new random choice of files. A change is advised if it saves "
            f"{percent(self.margin)} or more of the total cost, including reads, and if the reads are outside the interval of the break-even point.",
        ]
        if self.facts.has_deletes and self.trial.scale == 1:
            lines.append(
                "The table's existing deletes were first compacted away on the clones, so only the deletes of the trial are compared."
            )
        if is_lost_in_noise(self.trial):
            lines.append(
                "Deletes slow a read by less than two reads of the same rows differ, so the break-even point is a guess: try more commits or more repeats."
            )
        if self.trial.scale > 1:
            lines.append(
                f"Measured on a copied sample and multiplied by {self.trial.scale:,.1f}, the size of the table divided by the size of the sample."
            )
            if self.trial.workload.operation == "merge" and not self.trial.workload.is_synthetic:
                lines.append(
                    "Source rows of your MERGE without a match in the sample were inserted there, so writes are more expensive than on the table."
                )
        if self.trial.workload.operation == "merge" and self.trial.workload.is_synthetic:
            lines.append("An UPDATE replaced the MERGE: the join costs the same in each mode and is not included.")
        if self.trial.equality is not None:
            e = self.trial.equality
            lines.append(
                f"The table's equality deletes belong to neither mode: a full scan costs {e.scan:.2f} s of {self.trial.unit} with them and {e.resolved_scan:.2f} s after a "
                f"conversion to position deletes, which cost {e.resolving:.2f} s (icekit convert)."
            )
        if self.reads is not None and self.sensitivity:
            winner = c.winner(self.reads).variant
            flips = sorted({f"{x.name} × {x.factor:g}" for x in self.sensitivity if x.winner.mode != winner.mode})
            lines.append(
                "The mode stays the same with any one input half or twice as large."
                if is_robust(self.sensitivity, winner)
                else f"Another mode would be cheaper in one of these cases: {', '.join(flips)}."
            )
        return tuple(lines)


#: What the unit of the costs holds and what it leaves out.
_UNITS = {
    CPU: "Costs are the CPU time of Spark's tasks and of the threads that read delete files, without the driver's planning and commits; other load on the machine hardly changes them.",
    TASKS: "Costs are the time of Spark's tasks, added up, including waits for the storage, without the driver's planning and commits.",
    CLOCK: "Costs are wall-clock time, because this session does not report the CPU time of its tasks: other load on the machine changes them.",
}
_HISTORY = {
    "operation": TEXT("what"),
    "mode": TEXT("how"),
    "commits": COUNT,
    "rows_changed": NUMBER,
    "rows_written_per_row": NUMBER,
    "bytes_per_row": BYTES,
    "files_touched": SHARE,
    "partitions": NUMBER,
}
_COSTS = {
    "mode": TEXT,
    "write_seconds": NUMBER("writing"),
    "scan_seconds": NUMBER("reads"),
    "read_seconds": NUMBER("slower reads"),
    "compaction_seconds": NUMBER("compaction"),
}
_COSTS |= {"total_seconds": NUMBER("total"), "commits_between_compactions": NUMBER}
_SENSITIVITY = {
    "input": TEXT,
    "factor": NUMBER("×"),
    "winner": TEXT("cheapest mode"),
    "break_even_reads_per_commit": NUMBER("break-even, reads per commit"),
}


def _cycles(choice: WriteModeChoice) -> str:
    """How often each variant is compacted."""
    c = choice.comparison
    assert c is not None
    if c.commits is not None:
        return f"{count(c.commits, 'commit')} between compactions, {choice.cycle_from}"
    if choice.reads is None:
        return f"Compacted {choice.cycle_from}"
    merging = [
        (x.variant.name.removeprefix("merge-on-read, "), c.cycle(x, choice.reads)) for x in c.costs if not x.variant.is_copy_on_write
    ]
    each = ", ".join(f"every {count(n, 'commit')} with {name}" if n < MAX_CYCLE else f"never with {name}" for name, n in merging)
    return f"Compacted {choice.cycle_from}: {each}"


def _commits(o: OperationHistory) -> tuple[object, ...]:
    return o.kind, o.mode, o.commit_count, o.rows_changed, o.row_amplification, o.bytes_per_row_changed, o.file_share, o.partitions


def _measured(trial: WriteModeTrial) -> Grid:
    """The costs in the trial's unit, with the clock next to it where that is another one, and the counts."""
    clock = trial.unit != CLOCK
    columns: dict[str, tuple[Unit, Callable[[VariantMeasures], object]]] = {
        "mode": (TEXT, lambda m: m.variant.name),
        "commit_cost": (SECONDS(f"commit ({trial.unit})"), lambda m: m.write),
        "scan_cost": (SECONDS(f"full scan ({trial.unit})"), lambda m: m.scan),
        "filtered_cost": (SECONDS(f"filtered scan ({trial.unit})"), lambda m: m.filtered),
        "compaction_cost": (SECONDS(f"compaction ({trial.unit})"), lambda m: m.compaction),
        "delete_opens": (COUNT("delete files opened"), lambda m: m.planned.delete_opens if m.planned else None),
        "bytes_written": (BYTES("written"), lambda m: m.bytes_written),
        "files_written": (NUMBER("files"), lambda m: m.files_written),
    }
    if clock:
        columns["commit_seconds"] = (SECONDS("commit (wall-clock)"), lambda m: m.write_seconds)
        columns["scan_seconds"] = (SECONDS("full scan (wall-clock)"), lambda m: m.scan_seconds)
    units = {name: unit for name, (unit, _) in columns.items()}
    return Grid("Measured", units, [[value(m) for _, value in columns.values()] for m in trial.measured])


def _costs(choice: WriteModeChoice) -> list[tuple[object, ...]]:
    """The cost of a commit in each mode, including the reads that follow it (one read if the number is not known)."""
    c, reads = choice.comparison, choice.reads if choice.reads is not None else 1.0
    if c is None:
        return []
    costs = [(each, c.per_commit(each, reads)) for each in c.costs]
    return [(x.variant.name, y.write, y.scan, y.read, y.compaction, y.total, c.cycle(x, reads)) for x, y in costs]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


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
    budget_bytes: str = BUDGET_BYTES,
    sample_bytes: str = "1 GB",
    sample: bool = False,
    versions: Sequence[int] = (),
    warm: bool = True,
    progress: Callable[[str], None] = print,
) -> WriteModeChoice:
    """Measure the cost of merge-on-read and copy-on-write for a table, and advise one.

    ``statement`` is the DELETE, UPDATE or MERGE to try. Without one, icekit tries ``commits`` synthetic
    statements of ``operation``, which change a ``share`` of the rows, ``scattered`` over
    all files or ``clustered`` in ``file_share`` of them; missing values come from the table's history.

    Reads per commit are ``reads_per_commit``, or ``reads_per_day`` (stated, or counted in a Spark
    ``event_log``) divided by the commits per day of the history. With ``read_filter`` the reads are
    scans with that condition. ``compact_every`` is the number of commits between compactions
    (default: as in the history, or else the cheapest). ``margin`` is the share of the total cost that a
    change must save to be advised. ``versions`` are the format versions to try (default: the table's, and 3).
    ``warm`` first runs the statement on clones that are not measured, because a cold JVM is slow.

    A trial that reaches ``budget_seconds`` or ``budget_bytes`` (data written) stops and says so.
    If the catalog supports no clones, or with ``sample``, the trial uses a copy of ``sample_bytes`` and scales the result.

    Raises :class:`~icekit.errors.ParameterError` and :class:`~icekit.errors.StatementRefused`.
    """
    _check(statement, [share, operation, spread, file_share], commits=commits, repeats=repeats, compact_every=compact_every)
    _check_numbers(margin=margin, reads_per_day=reads_per_day, reads_per_commit=reads_per_commit)
    budget = Budget(budget_seconds, budget_bytes)
    with session_of(lake):
        said: Statement | None = None
        if statement is not None:
            said = parse(lake.spark, statement)
            _check_target(lake, table, said)
            # Reject statements that Spark cannot analyse before the trial.
            query_of(lake.spark, said.sql, is_planned=False)
        attempt = Trial.of(lake, table, budget, sample_bytes, progress, if_empty="there is nothing to measure")
        facts = attempt.facts
        if read_filter is not None:
            # Before anything is written for it.
            read_predicate(lake.spark, lake.spark.table(identifier(*lake.sql_name(facts.table))), read_filter)
        history = write_history(head(lake, facts.table).lineage())
        shape = shaped_like(facts, history, operation=operation, share=share, spread=spread, file_share=file_share)
        kind = said.kind.lower() if said is not None else shape.operation
        reads, reads_from = _reads(facts, history, reads_per_commit, reads_per_day, event_log)
        variants = _variants(facts, versions)
        upserts = has_equality_deletes(facts)
        nothing = Workload(kind, "not begun", (), is_synthetic=said is None)
        trial = WriteModeTrial(
            workload=nothing, measured=(), filter=read_filter, seconds=0.0, scale=1.0, stopped="nothing was measured", equality=None
        )
        with attempt.attempt(), attempt.sandboxes(len(variants) + 2 * warm + upserts, always_sample=sample) as boxes:
            first = boxes[0]
            rows = first.observe() if first.is_sample else facts
            workload = own(said) if said is not None else synthetic(lake, rows, shape, commits, is_copied=first.is_sample)
            progress(f"{display_name(facts.table)}: {workload.described}, with {count(len(variants), 'variant')}")
            cold = boxes[len(variants) : len(variants) + 2 * warm]
            for variant, box in zip((*variants, *(variants[0], variants[-1])[: len(cold)]), boxes, strict=False):
                if facts.has_deletes and not box.is_sample:
                    clean(box, progress)
                prepare(box, variant)
            # Samples are copies of rows, without deletes.
            upserted = boxes[-1] if upserts and not first.is_sample else None
            used = TrialSandboxes(variants=dict(zip(variants, boxes, strict=False)), cold=cold, upserted=upserted)
            trial = run_trial(attempt, used, workload, read_filter=read_filter, repeats=repeats)
        trial = replace(trial, stopped=attempt.stopped)
    comparison, cycle_from = compare(trial, history, compact_every)
    advice: tuple[Advice, ...] = ()
    changes: tuple[Changed, ...] = ()
    if comparison is not None:
        advice = advise(facts, history, comparison, kind, reads, margin=margin)
        changes = sensitivity(comparison, reads) if reads is not None else ()
    return WriteModeChoice(
        facts=facts,
        advice=advice,
        stopped=trial.stopped,
        history=history,
        operation=kind,
        current=current_variant(facts, kind),
        reads=reads,
        reads_from=reads_from,
        trial=trial,
        comparison=comparison,
        cycle_from=cycle_from,
        sensitivity=changes,
        margin=margin,
    )


def has_equality_deletes(facts: TableFacts) -> bool:
    """Tell whether the table has equality deletes, which no write mode leaves but every reader pays for."""
    return facts.total(Kind.EQUALITY_DELETES).file_count > 0


def _variants(facts: TableFacts, versions: Sequence[int]) -> tuple[Variant, ...]:
    own_version = max(facts.format_version, 2)
    wanted = sorted({own_version, *(versions or (3,))})
    if wanted[0] < own_version or wanted[-1] > 3:
        raise ParameterError(
            f"Format versions {', '.join(map(str, wanted))} cannot be tried; a table of version {own_version} can only be upgraded to 3."
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
        raise ParameterError(
            "The table's history has no row-level commits, so reads per day cannot be converted to reads per commit; give reads_per_commit instead."
        )
    return (
        per_day / history.writes_per_day,
        f"{plain(per_day)} reads per day ({where}) divided by {plain(history.writes_per_day)} row-level commits per day",
    )


def _check(statement: str | None, shape: Sequence[object], **positive: int | None) -> None:
    for name, value in positive.items():
        if value is not None and value < 1:
            raise ParameterError(f"{name} is {value}, but must be 1 or more.")
    if statement is not None and any(given is not None for given in shape):
        raise ParameterError("Your own statement determines the operation and the rows; leave out operation, share, spread and file_share.")


def _check_numbers(**given: float | None) -> None:
    for name, value in given.items():
        require_number(name, value)


def _check_target(lake: Lake, table: str | Identifier, said: Statement) -> None:
    name = lake.sql_name(lake.identifier(table) if isinstance(table, str) else table)
    if tuple(p.casefold() for p in said.target) != tuple(p.casefold() for p in name):
        raise ParameterError(f"The statement writes to {display_name(said.target)}, not to {display_name(name)}; give that table.")
    if said.branch is not None:
        raise ParameterError(
            f"The statement writes to branch {said.branch!r}; a trial uses the table's main branch, so leave out the branch."
        )


__all__ = [
    "CostComparison",
    "Costs",
    "Variant",
    "WriteHistory",
    "WriteModeChoice",
    "best_cycle",
    "choose_write_mode",
    "commits_until",
    "sensitivity",
    "write_history",
]
