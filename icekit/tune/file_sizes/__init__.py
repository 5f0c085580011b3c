"""Explain the sizes of a table's files, and advise settings: the settings in force, a trial on clones, the origin of small files.

Only reads the table itself. Trials write its rows again to clones, which are removed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from icekit.answer.grid import BYTES, COUNT, FLAG, IDENTIFIER, NUMBER, SHARE, TEXT, Grid
from icekit.catalog.lake import session_of
from icekit.diagnose import Finding, diagnose
from icekit.engine.bridge import session_value
from icekit.engine.cluster import cluster_of
from icekit.engine.metadata_tables import metadata_table_sql
from icekit.errors import ParameterError
from icekit.facts.head import head
from icekit.facts.metadata import TARGET, split_bytes
from icekit.facts.model import Commit
from icekit.sandbox.trial import BUDGET_BYTES, BUDGET_SECONDS, Budget, Trial
from icekit.sql import Identifier, display_name
from icekit.tune.card import Advice, Answer, Effect, to_set, tried_or_not
from icekit.tune.file_sizes import advisory_size as sizes
from icekit.tune.file_sizes import distribution as spreading
from icekit.tune.file_sizes.advisory_size import (
    DISTRIBUTION_SESSION,
    ICEBERG_SESSION,
    Chain,
    SizeStep,
    SizeTrial,
    limits,
    said,
    steps,
    try_sizes,
)
from icekit.tune.file_sizes.distribution import (
    Cadence,
    Cohorts,
    Mode,
    ModeTrial,
    Until,
    advised_mode,
    cadence,
    commits_for,
    skew,
    try_modes,
    try_statement,
    until_sick,
)
from icekit.tune.file_sizes.written import Written, aim, large, usual, write
from icekit.tune.write_mode.history import OPERATIONS, shaped_like, synthetic, write_history
from icekit.units import count, percent, raised, size, span

if TYPE_CHECKING:
    from icekit.catalog import Lake
    from icekit.facts.model import TableFacts


# --- The trials behind an answer on file sizes, in order: modes and sizes of appends, then statements that change rows


#: The bytes that a writer's task reads if not known: Spark's split.
_SPLIT_BYTES = 128 * 2**20
_MOST_TASKS = 200


class Trials:
    """The trials of one answer, as far as they got.

    ``before`` and ``after`` are a typical commit with the current and with the advised settings.
    """

    def __init__(self, trial: Trial, chain: Chain, modes: tuple[Mode, ...]) -> None:
        self.trial, self.facts, self.chain, self.modes = trial, trial.facts, chain, modes
        self.mode_trials: list[ModeTrial] = []
        self.size_trial: SizeTrial | None = None
        self.before: Written | None = None
        self.after: Written | None = None
        self.past_ratio: float | None = None

    def run(self, operation: str | None) -> None:
        """Try appends, then row-level statements, while the budget lasts."""
        with self.trial.attempt():
            self._appends()
            if self.trial.stopped is None:
                self._row_level(operation)

    def _appends(self) -> None:
        trial, facts, progress = self.trial, self.facts, self.trial.progress
        lake, sample = trial.lake, trial.sample_bytes
        name = lake.sql_name(facts.table)
        target = aim(facts, sample)
        tasks = max(self.chain.cluster.cores, -(-facts.data.size_in_bytes // max(facts.history.lineage_count, 1) // _SPLIT_BYTES))
        often = usual(facts, sample_bytes=sample, tasks=min(tasks, _MOST_TASKS))
        can_shuffle = not facts.default_spec.is_unpartitioned or bool(facts.sort_order)
        data_files = metadata_table_sql(lake.spark, name, "data_files", facts.snapshot_id)
        whole = large(facts, data_files, target_bytes=target, sample_bytes=sample, shuffled=can_shuffle)
        assert whole is not None
        with trial.sandbox() as box:
            if often is not None:
                progress(f"{display_name(facts.table)}: {often.described}")
            self.mode_trials.append(try_modes(trial, box, often or whole, self.chain))
            mode = advised_mode(facts, self.modes[0], self.mode_trials[0])
            if often is not None:
                self._next(mode, facts.history.commits)
            progress(f"{display_name(facts.table)}: {whole.described}")
            other = mode if mode != self.modes[0].value else None
            self.size_trial = try_sizes(
                trial, box, whole, target_bytes=target, distribution=other, advisory_bytes=self.chain.advisory_bytes
            )
            candidate, _ = self.size_trial.chosen
            if trial.stopped is None and often is not None and candidate is not None and target == facts.target_bytes:
                under = {DISTRIBUTION_SESSION: mode, ICEBERG_SESSION: str(candidate.size_in_bytes)}
                self.after = write(box, often, target, under)
                progress(f"the typical commit with the advised settings: {said(self.after)}")

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
        lake, facts = self.trial.lake, self.facts
        history = write_history(head(lake, facts.table).lineage())
        kinds = [operation] if operation else [o.kind for o in history.row_level if o.kind in OPERATIONS]
        for kind in dict.fromkeys(kinds):
            workload = synthetic(lake, facts, shaped_like(facts, history, operation=kind), 1)
            now = next(m.value for m in self.modes if m.operation == kind)
            self.mode_trials.append(try_statement(self.trial, workload, now))


# --- The answer on file sizes, in figures, sentences and tables


@dataclass(frozen=True, repr=False)
class FileSizes(Answer):
    """Why files have their sizes, and what to set.

    ``next_before`` and ``next_after`` are a typical commit's rows written with the current and with the advised settings;
    ``size_trial`` is the same for a commit that is large enough for full files; all are None if
    not tried. ``until_*`` say when a partition has enough small files for a rewrite.
    ``past_ratio`` is the shuffle bytes per row of the trial divided by the file bytes per row of past commits.
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

    def verdict(self) -> str:
        """What to set and the files that a commit then writes, or that nothing should change."""
        target = next((a for a in self.advice if a.setting == TARGET and a.sql), None)
        first = f"First set {TARGET} to {target.proposed}: the target of {size(self.facts.target_bytes)} is too small. " if target else ""
        if self.next_before is None and self.size_trial is None:
            return first.rstrip() or f"No advice: nothing was tried{f' ({self.stopped})' if self.stopped else ''}."
        changes = [f"set {a.setting} to {a.proposed or 'its default'}" for a in self.advice if a.sql and a is not target]
        # No setting makes a full file from a commit with too few bytes.
        less_often = "commit less often, or compact" if any(a.setting == COMMIT_FREQUENCY for a in self.advice) else ""
        if not changes:
            return f"{first}{raised(less_often) or ('No other change' if first else 'No change')}: no setting that was tried makes fewer or better-sized files."
        told = " and ".join(changes)
        won = next(
            (f": {of} writes {made(after)} instead of {made(before)}" for of, before, after in _tried(self) if after is not before), ""
        )
        return f"{first}{raised(told)}{won}.{f' Also {less_often}.' if less_often else ''}"

    def effects(self) -> list[Effect]:
        """The files that a typical and a large commit write, now and as advised, and the bytes that they shuffle."""
        if not self.is_change:
            return []
        found = []
        for of, before, after in _tried(self):
            found.append(Effect(f"data files that {of} writes", made(before), made(after)))
            now, then = before.well_sized_share, after.well_sized_share
            if of != _USUAL and now is not None and then is not None:
                found.append(Effect(f"share of the bytes of {of} in well-sized files", percent(now), percent(then)))
            shuffled, shuffles = (w.shuffle.size_in_bytes if w.shuffle else 0 for w in (before, after))
            if shuffles > shuffled:
                found.append(Effect(f"bytes that {of} shuffles", size(shuffled), size(shuffles), is_cost=True))
        return found

    def confidence(self) -> str:
        """The confidence, from how much was tried."""
        if not self.mode_trials:
            return f"low: {self.stopped or 'nothing was tried'}."
        if self.next_before is None:
            return tried_or_not(
                self, level="medium", why="only a large commit was written again; the files of a typical commit are not known."
            )
        return tried_or_not(
            self, level="high", why="rows of a typical and of a large commit were written again on a clone, with each setting."
        )

    def tables(self) -> dict[str, Grid]:
        """The settings in force, the modes, the trials, the commits that wrote small files."""
        worst = [
            (c.snapshot_id, c.operation or "expired", c.writer, c.files, c.small_files, c.partitions, c.looks_like)
            for c in self.cohorts.worst
        ]
        caption = (
            f"Commits that wrote the most small files ({self.cohorts.traced:,} of {self.cohorts.small_files:,} small files; "
            f"{count(self.cohorts.commit_count, 'commit')} in total)"
        )
        return {
            "chain": Grid("Settings that decide the file size of appends", _CHAIN, self.chain.rows()),
            "modes": Grid("Distribution modes", _MODES, [(m.operation, m.value, m.why, m.brings_together) for m in self.modes]),
            "mode_trials": _mode_trials(self.mode_trials),
            "commits": Grid("Commits in the trial", _COMMITS, [(commit, s.name, *_row(s.written)) for commit, s in commits(self)]),
            "large_commit": _large_commit(self.size_trial),
            "worst_commits": Grid(caption, _WORST, worst),
        }

    def basis(self) -> tuple[str, ...]:
        """The limits of the sizes, when the table needs a rewrite again, and the basis of the answer."""
        data, mean = self.facts.data, self.facts.data.mean_bytes
        found = [
            f"The table has {count(data.file_count, 'data file')} of {size(mean or 0)} on average; the target is {size(self.facts.target_bytes)}."
        ]
        found += limits(self.chain, self.size_trial)
        if self.past_ratio is not None:
            found.append(
                f"Past commits had about {self.past_ratio:.2f} bytes of shuffle per byte of file (commits do not record their shuffle, so this uses the trial's bytes per row); Iceberg assumes {self.chain.ratio:g}."
            )
        skewed = skew(self.mode_trials[0] if self.mode_trials else None)
        found += [skewed] if skewed else []
        found += _sick(self.until_before, self.until_after)
        if self.modes[0].fanout:
            found.append(
                "Fanout is on: a task keeps one file open per partition instead of sorting, so its memory grows with the number of partitions."
            )
        if self.mode_trials:
            found.append(
                "The trials wrote rows of the table again, to clones that were removed. How rows are distributed over a writer's tasks is known only if each task wrote a file; "
                "otherwise rows were read in no particular order."
            )
        return tuple(found)


_DAY_MS = 86_400_000


_USUAL = "a typical commit"
#: The setting of the advice to commit less often.
COMMIT_FREQUENCY = "commit frequency"


def _tried(answer: FileSizes) -> list[tuple[str, Written, Written]]:
    """The commits tried: with the current and with the advised settings (the same without advice)."""
    found = []
    if answer.next_before is not None:
        found.append((_USUAL, answer.next_before, answer.next_after or answer.next_before))
    if answer.size_trial is not None:
        _, chosen = answer.size_trial.chosen
        found.append((f"a large commit of {size(chosen.size_in_bytes)}", answer.size_trial.before, chosen))
    return found


def made(written: Written) -> str:
    """``4 files of 1.2 MiB``."""
    mean = written.mean_bytes
    return f"{count(written.files, 'file')} of {size(mean)}" if mean is not None else "no data file"


def interval(facts: TableFacts, rhythm: Cadence, after: Written, wanted: int) -> str:
    """A sentence on commits that are too small for any setting, with what would be enough."""
    each = after.size_in_bytes / max(after.partitions, 1)
    largest = max((g.size_in_bytes for g in facts.groups if g.kind.value == "data"), default=0)
    said = f"A typical commit adds {size(each)} to a partition, so no setting makes a file of {size(facts.target_bytes)}"
    if largest < facts.target_bytes and not facts.default_spec.is_unpartitioned:
        return f"{said}, and the largest partition has only {size(largest)}: use a coarser partition transform, or compact each partition into one file (icekit compact)."
    gap = 1 / rhythm.commits_per_day * _DAY_MS if rhythm.commits_per_day else None
    how = f": one commit every {span(gap * wanted)} instead of every {span(gap)}" if gap else ""
    return f"{said}; {wanted:,} such commits combined would make one{how}. Commit less often, or compact (icekit compact)."


_CHAIN = {"what": TEXT("setting"), "value": TEXT, "origin": TEXT("origin")}
_MODES = {"operation": TEXT, "mode": TEXT, "why": TEXT, "brings_together": TEXT("rows are grouped by")}
_WRITTEN = {
    "files": COUNT,
    "fewest_files": COUNT("fewest"),
    "mean_bytes": BYTES("mean"),
    "min_bytes": BYTES("smallest"),
    "max_bytes": BYTES("largest"),
    "well_sized_share": SHARE("well-sized bytes"),
    "tasks": COUNT,
    "shuffle_ratio": NUMBER("shuffle bytes ÷ file bytes"),
    "delete_files": COUNT,
}
_COMMITS = {"commit": TEXT, "settings": TEXT, **_WRITTEN}
_WORST = {
    "snapshot_id": IDENTIFIER("snapshot"),
    "operation": TEXT,
    "writer": TEXT,
    "files": COUNT,
    "small_files": COUNT("small"),
    "partitions": COUNT,
    "looks_like": TEXT,
}


def _row(w: Written) -> tuple[object, ...]:
    tasks = w.shuffle.tasks if w.shuffle else None
    return w.files, w.fewest, w.mean_bytes, w.min_bytes, w.max_bytes, w.well_sized_share, tasks, w.ratio, w.delete_files


def _mode_trials(trials: Sequence[ModeTrial]) -> Grid:
    columns = {"operation": TEXT, "mode": TEXT, "in_force": FLAG, "predicted_files": COUNT("predicted"), **_WRITTEN}
    rows = [
        (trial.operation, t.mode, t.mode == trial.in_force, t.predicted.files if t.predicted else None, *_row(t.written))
        for trial in trials
        for t in trial.tried
    ]
    return Grid("; ".join(f"{trial.operation}: {trial.described}" for trial in trials), columns, rows)


def _large_commit(trial: SizeTrial | None) -> Grid:
    rows = [(s.name, *_row(s.written)) for s in steps(trial)] if trial else []
    return Grid(f"A large commit: {trial.source.described}" if trial else "", {"advisory_size": TEXT, **_WRITTEN}, rows)


def commits(answer: FileSizes) -> list[tuple[str, SizeStep]]:
    """A typical and a large commit in the trial: with the current settings, and with the advised ones if they differ."""
    found: list[tuple[str, SizeStep]] = []
    if answer.next_before is not None:
        found.append(("typical", SizeStep("now", None, answer.next_before)))
        if answer.next_after is not None and answer.next_after is not answer.next_before:
            found.append(("typical", SizeStep("as advised", None, answer.next_after)))
    if answer.size_trial is not None:
        found.append(("large", SizeStep("now", None, answer.size_trial.before)))
        candidate, chosen = answer.size_trial.chosen
        if chosen is not answer.size_trial.before:
            found.append(("large", SizeStep("as advised", candidate.size_in_bytes if candidate else None, chosen)))
    return found


def _sick(before: Until | None, after: Until | None) -> list[str]:
    if before is None:
        return []
    if before.visits is None:
        return ["A typical commit writes no small file, so the table stays healthy."]
    said = f"At the current rate of commits, a partition has enough small files for a rewrite after {_until(before)}"
    return [f"{said}; with the advised settings after {_until(after)}." if after is not None and after != before else f"{said}."]


def _until(until: Until) -> str:
    if until.visits is None:
        return "no number of commits"
    days = f", in {span(until.days * _DAY_MS)}" if until.days is not None else ""
    return f"{count(until.visits, 'commit')} to it{days}"


def tune_file_sizes(
    lake: Lake,
    table: str | Identifier,
    *,
    operation: str | None = None,
    budget_seconds: float = BUDGET_SECONDS,
    budget_bytes: str = BUDGET_BYTES,
    sample_bytes: str = "1 GB",
    trial: bool = True,
    progress: Callable[[str], None] = print,
) -> FileSizes:
    """Measure what decides the sizes of a table's files, and advise settings.

    The answer always covers appends; ``operation`` (delete, update, merge) adds a row-level operation, and without it
    those of the table's history are added. Without ``trial`` nothing is
    written: the answer has the settings, the modes, the origin of small files and the rate of commits, but no verified advice.
    A trial writes rows of at most ``sample_bytes`` at a time, and stops at ``budget_seconds`` or
    ``budget_bytes`` (written in total).

    Raises :class:`~icekit.errors.ParameterError` for a table without data files or an unknown operation.
    """
    if operation is not None and operation not in OPERATIONS:
        raise ParameterError(f"The operation is {operation!r}, but must be one of {', '.join(OPERATIONS)}, or left out.")
    attempt = Trial.of(lake, table, Budget(budget_seconds, budget_bytes), sample_bytes, progress, if_empty="there is nothing to measure")
    facts = attempt.facts
    with session_of(lake):
        session = {name: session_value(lake.spark, name) for name in sizes.SESSION_SETTINGS}
        found = spreading.modes(facts, session)
        chain = sizes.chain(facts, session, cluster_of(lake.spark), mode=found[0].value)
        run = Trials(attempt, chain, found)
        if trial:
            run.run(operation)
        return _answer(run, spreading.cohorts(lake, facts))


def _answer(run: Trials, cohorts: Cohorts) -> FileSizes:
    """Build the answer from the measurements."""
    facts, appends = run.facts, run.mode_trials[0] if run.mode_trials else None
    mode = spreading.advised_mode(facts, run.modes[0], appends)
    findings = {f.name: f for f in diagnose(facts)}
    rhythm = cadence(facts)
    before, after = _file_sizes_until(rhythm, run.before), _file_sizes_until(rhythm, run.after)
    advice = (
        *_target(facts, findings.get("target_too_small")),
        *spreading.advise(facts, run.modes[0], appends),
        *sizes.advise(facts, run.chain, mode, run.size_trial),
        *spreading.advise_order(facts, facts.filter_columns if "unclustered_filter_columns" in findings else ()),
        *_interval(facts, rhythm, run.after),
    )
    return FileSizes(
        facts=facts,
        advice=advice,
        stopped=run.trial.stopped,
        chain=run.chain,
        modes=run.modes,
        cohorts=cohorts,
        cadence=rhythm,
        mode_trials=tuple(run.mode_trials),
        next_before=run.before,
        next_after=run.after,
        size_trial=run.size_trial,
        until_before=before,
        until_after=after,
        past_ratio=run.past_ratio,
    )


def _target(facts: TableFacts, small: Finding | None) -> tuple[Advice, ...]:
    """Advice to raise a target that is far below a read split, before anything that is measured against it."""
    if small is None:
        return ()
    evidence = f"{raised(small.evidence)}. The other advice was measured with the current target: ask again after this change."
    return (to_set(facts, {TARGET: str(split_bytes(facts))}, current=facts.properties.get(TARGET), evidence=evidence),)


def _file_sizes_until(rhythm: Cadence | None, written: Written | None) -> Until | None:
    if rhythm is None or written is None or not written.partitions:
        return None
    return until_sick(rhythm, written.small_files / written.partitions)


def _interval(facts: TableFacts, rhythm: Cadence | None, after: Written | None) -> tuple[Advice, ...]:
    """Advice if single commits are too small for any setting: commit less often, or compact."""
    if rhythm is None or after is None or not after.is_too_few:
        return ()
    wanted = commits_for(facts.target_bytes, after.size_in_bytes / max(after.partitions, 1))
    if wanted is None or wanted < 2:
        return ()
    return (Advice(COMMIT_FREQUENCY, "as it is", "lower", interval(facts, rhythm, after, wanted)),)
