"""Answer the question for a table: history, trial on clones, model, advice. The table itself is never written to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from icekit.compact.lineage import head
from icekit.compact.policy import size_in_bytes
from icekit.errors import ParameterError
from icekit.facts.files import Kind
from icekit.facts.model import TableFacts
from icekit.sql import Identifier, display_name
from icekit.tune.advice import Advice
from icekit.tune.budget import Budget
from icekit.tune.event_log import reads_per_day as read_from_log
from icekit.tune.statement import Statement, parse
from icekit.tune.write_mode.advise import advise, current_variant
from icekit.tune.write_mode.history import WriteHistory, write_history
from icekit.tune.write_mode.model import COPY_ON_WRITE, MERGE_ON_READ, Changed, Comparison, Costs, Variant, best_cycle, sensitivity
from icekit.tune.write_mode.place import places
from icekit.tune.write_mode.trial import Measured, Trial, prepare, run_trial, warm_up
from icekit.tune.write_mode.workload import own, shaped_like, synthetic

if TYPE_CHECKING:
    from icekit.catalog import Lake

#: Commits between two compactions where neither the history nor the reads tell.
DEFAULT_CYCLE = 10


@dataclass(frozen=True)
class WriteModeChoice:
    """The answer, with all that it rests on.

    ``reads`` are those per row-level commit (None if not known), ``reads_from`` says where that
    comes from; ``comparison`` is None when too little was measured to compare.
    """

    table: Identifier
    facts: TableFacts
    history: WriteHistory
    operation: str
    current: Variant
    reads: float | None
    reads_from: str
    trial: Trial
    comparison: Comparison | None
    cycle_from: str
    sensitivity: tuple[Changed, ...]
    advice: tuple[Advice, ...]
    margin: float

    @property
    def name(self) -> str:
        """The table's name, without its catalog."""
        return display_name(self.facts.table)

    @property
    def sql(self) -> tuple[str, ...]:
        """The statements to paste; empty where everything may stay."""
        return tuple(a.sql for a in self.advice if a.sql)

    def __repr__(self) -> str:
        from icekit.show.write_mode import choice_text

        return choice_text(self)

    def _repr_html_(self) -> str:
        from icekit.show.write_mode import choice_html

        return choice_html(self)


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
    _check(statement, share, operation, commits=commits, repeats=repeats, compact_every=compact_every)
    said: Statement | None = None
    if statement is not None:
        said = parse(lake.spark, statement)
        _check_target(lake, table, said)
    facts = lake.observe(table, collector="spark")
    if not facts.data.file_count:
        raise ParameterError(f"{display_name(facts.table)} has no data files, so there is nothing to measure.")
    history = write_history(head(lake, facts.table).lineage())
    shape = shaped_like(facts, history, operation=operation, share=share, spread=spread, file_share=file_share)
    kind = said.kind.lower() if said is not None else shape.operation
    reads, reads_from = _reads(facts, history, reads_per_commit, reads_per_day, event_log)
    variants = _variants(facts, versions)
    extra = 2 * warm + has_equality_deletes(facts)
    budget = Budget(budget_seconds, size_in_bytes(budget_bytes))
    with places(
        lake, facts, len(variants) + extra, sample_bytes=size_in_bytes(sample_bytes), always_sample=sample, progress=progress
    ) as stack:
        workload = own(said) if said is not None else synthetic(lake, facts, shape, commits)
        progress(f"{display_name(facts.table)}: {workload.described}, in {len(variants)} ways")
        for variant, place in zip((*variants, *(variants[0], variants[-1])[: 2 * warm]), stack.places, strict=False):
            prepare(lake, place.table, variant)
        trial = run_trial(
            lake,
            dict(zip(variants, stack.places, strict=False)),
            workload,
            read_filter=read_filter,
            repeats=repeats,
            budget=budget,
            progress=progress,
            warm=warm_up(lake, stack.places[len(variants) : len(variants) + 2], workload) if warm else None,
            # Samples are copies of rows, without deletes.
            upserted=stack.places[-1] if has_equality_deletes(facts) and stack.places[-1].scale == 1 else None,
        )
    comparison, cycle_from = compare(trial, history, reads, compact_every)
    advice: tuple[Advice, ...] = ()
    changes: tuple[Changed, ...] = ()
    if comparison is not None:
        advice = advise(facts, lake.sql_name(facts.table), history, comparison, kind, reads, margin=margin)
        changes = sensitivity(comparison, reads) if reads is not None else ()
    return WriteModeChoice(
        lake.sql_name(facts.table),
        facts,
        history,
        kind,
        current_variant(facts, kind),
        reads,
        reads_from,
        trial,
        comparison,
        cycle_from,
        changes,
        advice,
        margin,
    )


def compare(trial: Trial, history: WriteHistory, reads: float | None, compact_every: int | None) -> tuple[Comparison | None, str]:
    """Fit the model to a trial; None where copy-on-write or all of merge-on-read is missing, and where the cycle comes from.

    Scans of the copy-on-write clone are what the others are held against: it has the same rows and no deletes.
    """
    whole = [m for m in trial.measured if m.write is not None and _read(trial, m) is not None]
    reference = next((m for m in whole if m.variant.is_copy_on_write), None)
    merging = [m for m in whole if not m.variant.is_copy_on_write and m.compaction_seconds is not None]
    if reference is None or not merging:
        return None, ""
    costs = tuple(_costs(trial, m, reference) for m in (reference, *merging))
    comparison = Comparison(costs, (_read(trial, reference) or 0.0) * trial.scale, DEFAULT_CYCLE)
    if compact_every is not None:
        return Comparison(costs, comparison.read_seconds, compact_every), "as stated"
    if history.commits_between_compactions:
        return Comparison(costs, comparison.read_seconds, max(1, round(history.commits_between_compactions))), "as in the history"
    if reads:
        own = tuple(c if c.variant.is_copy_on_write else replace(c, cycle=best_cycle(c, reads)) for c in costs)
        return Comparison(own, comparison.read_seconds, DEFAULT_CYCLE), "what costs each way to write least at the table's reads"
    return comparison, "assumed"


def has_equality_deletes(facts: TableFacts) -> bool:
    """Tell whether the table has equality deletes, which no write mode leaves but every reader pays for."""
    return facts.total(Kind.EQUALITY_DELETES).file_count > 0


def _read(trial: Trial, measured: Measured) -> float | None:
    return measured.filtered if trial.filter else measured.scan


def _costs(trial: Trial, measured: Measured, reference: Measured) -> Costs:
    """What was measured of one variant, as the model takes it."""
    scale, made = trial.scale, len(measured.write_seconds)
    write = (measured.write or 0.0) * scale
    files = reference.planned.data_files if reference.planned else 1
    touched = [c.file_share for c in reference.changes if c.file_share is not None]
    share = sum(touched) / len(touched) if touched else 1.0
    if measured.variant.is_copy_on_write:
        return Costs(measured.variant, write, 0.0, 1.0, touched_share=share)
    opens = measured.planned.delete_opens if measured.planned else 0
    slower = max(0.0, (_read(trial, measured) or 0.0) - (_read(trial, reference) or 0.0))
    limit = float(measured.planned.data_files if measured.planned else files) if measured.variant.format_version >= 3 else None
    per_commit = opens / made
    if limit:
        # What so many commits reached together; each reaches as much of the rest.
        per_commit = limit * (1 - (1 - min(opens / limit, 1.0)) ** (1 / made))
    total = measured.planned.data_bytes if measured.planned else 0
    rewritten = measured.compacted_bytes
    whole = (measured.compaction_seconds or 0.0) * total / rewritten if rewritten else 0.0
    # A share of the bytes rewritten, so that N commits of the trial's kind come to what was measured.
    reached = min(1.0, rewritten / total) if total else 1.0
    each = 1 - (1 - reached) ** (1 / made) if reached < 1 else max(share, 1 / max(files, 1))
    return Costs(
        measured.variant,
        write,
        slower / opens if opens else 0.0,
        per_commit * scale,
        limit * scale if limit else None,
        each,
        whole * scale,
    )


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


def _check(statement: str | None, share: float | None, operation: str | None, **positive: int | None) -> None:
    for name, value in positive.items():
        if value is not None and value < 1:
            raise ParameterError(f"{name} is {value}; give 1 or more.")
    if statement is not None and (share is not None or operation is not None):
        raise ParameterError("A statement of your own has its own operation and share of rows; leave out operation and share.")


def _check_target(lake: Lake, table: str | Identifier, said: Statement) -> None:
    name = lake.sql_name(lake.identifier(table) if isinstance(table, str) else table)
    if tuple(p.casefold() for p in said.target) != tuple(p.casefold() for p in name):
        raise ParameterError(f"The statement writes to {display_name(said.target)}, not to {display_name(name)}; name that table.")
    if said.branch is not None:
        raise ParameterError(f"The statement writes to branch {said.branch!r}; a trial is of the table itself, so leave out the branch.")
