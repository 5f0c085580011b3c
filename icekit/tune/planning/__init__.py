"""Answer how a table's scans are planned, where its files are stored and how they are written: measured, tried on a clone, advised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from icekit.answer.grid import BYTES, COUNT, FIGURE, NAME, SECONDS, TEXT, Grid
from icekit.catalog.lake import session_of
from icekit.errors import ParameterError
from icekit.facts.model import TableFacts
from icekit.sandbox.trial import BUDGET_BYTES, BUDGET_SECONDS, Budget, Trial
from icekit.sql import Identifier, call, display_name
from icekit.tune.answer import SESSION, Advice, Answer, Effect, overriding, to_set, tried_or_not
from icekit.tune.filters import Filter, leaves
from icekit.tune.planning.measure import (
    AUTO,
    DISTRIBUTED,
    GETS_PER_SECOND,
    LEAST_RESULT_BYTES,
    LOCAL,
    MOST_FILTERS,
    PUTS_PER_SECOND,
    REQUEST_SECONDS,
    Circumstances,
    Decision,
    Rewritten,
    Storage,
    Timing,
    circumstances,
    decide,
    file_io,
    in_each_mode,
    is_too_small_a_result,
    look,
    try_rewrite,
    with_threads,
)
from icekit.tune.queries import bind, read_filters, sample
from icekit.units import count, elapsed, percent, plain, raised, size, span

if TYPE_CHECKING:
    from icekit.catalog import Lake


# --- From measurements of planning and storage to settings. Pure


#: A choice: planning in another place must save this share of the time and this many seconds, to be more than noise.
MODE_GAIN, MODE_SECONDS = 0.25, 1.0
#: The setting of the advice on manifests.
MANIFESTS = "existing manifests"
#: A choice: rewriting manifests must save a query this share of the manifests it opens, and this many.
MANIFEST_GAIN, MANIFESTS_SAVED = 0.5, 8
#: A choice: and this many seconds of planning, or nobody would notice.
MANIFEST_SECONDS = 1.0


def planning_mode(facts: TableFacts, c: Circumstances, timings: Sequence[Timing]) -> tuple[Advice, ...]:
    """Where data manifests are planned, and where they should be; a setting of the session takes precedence."""
    name = "read.data-planning-mode"
    decision = decide(c)[0]
    now = f"{(c.data_mode.value or AUTO).lower()} ({decision.place})"
    why = f"planned {'in the driver' if decision.place == LOCAL else 'on the executors'}: {decision.reasons[0]}"
    measured = {t.name: t.seconds for t in timings}
    if not measured:
        return (Advice(name, now, now, f"{raised(why)}. This was not measured."),)
    here, there = measured[decision.place], measured[DISTRIBUTED if decision.place == LOCAL else LOCAL]
    said = f"a full scan is planned in {measured[LOCAL]:.2f} s in the driver and in {measured[DISTRIBUTED]:.2f} s on the executors"
    if here - there < max(MODE_SECONDS, MODE_GAIN * here):
        return (Advice(name, now, now, f"{raised(why)}; {said}."),)
    better = DISTRIBUTED if decision.place == LOCAL else LOCAL
    if is_too_small_a_result(c):
        # A setting of the cluster, which no statement can change.
        wanted = size(LEAST_RESULT_BYTES)
        told = Advice(
            "spark.driver.maxResultSize",
            size(c.max_result_bytes),
            wanted,
            f"{raised(why)}; {said}. Start the session with a larger value.",
        )
        return (told,)
    evidence = f"{raised(said)}; it is now {why}."
    # Data and delete manifests were measured together, so both are set; the advice is named after the first.
    properties = {**({"read.delete-planning-mode": better} if c.deletes.count else {}), name: better}
    found = [to_set(facts, properties, current=now, evidence=evidence, verified=f"{said}.")]
    decides = [mode.decides for mode in (c.data_mode, c.delete_mode) if mode.decides is not None and mode.decides.where == SESSION]
    return (*found, *(overriding(link, "") for link in decides))


def worker_threads(c: Circumstances, timings: Sequence[Timing]) -> tuple[Advice, ...]:
    """Whether more threads in the driver plan faster; no statement sets them, so only a clear gain is reported."""
    if not timings or decide(c)[0].place != LOCAL:
        return ()
    # The numbers tried go up to the number in force, or just above it.
    seconds = {int(t.name): t.seconds for t in timings}
    here = seconds[max((n for n in seconds if n <= c.threads), default=min(seconds))]
    best = min(seconds, key=lambda n: seconds[n])
    if best <= c.threads or here - seconds[best] < max(MODE_SECONDS, MODE_GAIN * here):
        return ()
    evidence = (
        f"Planning a full scan takes {here:.2f} s with {count(c.threads, 'thread')} in the driver and {seconds[best]:.2f} s with {count(best, 'thread')}, because planning waits for storage. "
        f"Start the session with spark.driver.extraJavaOptions=-Diceberg.worker.num-threads={best}."
    )
    return (Advice("iceberg.worker.num-threads", str(c.threads), str(best), evidence, verified="planned with that many threads."),)


def manifests(facts: TableFacts, tried: Rewritten | None) -> Advice:
    """Whether a rewrite of the manifests is worth it."""
    name, m = MANIFESTS, facts.manifests
    now = f"{m.data_count:,}, {size(m.data_bytes)}"
    if tried is None:
        return Advice(name, now, now, "A rewrite of the manifests was not tried.")
    whole = tried.reads[0]
    after = f"{tried.count_after:,}, {size(tried.bytes_after)}"
    asked = "a query" if len(tried.reads) > 1 else "a full scan"
    said = (
        f"{asked} opens {plain(tried.mean_before)} of {tried.count_before:,} data manifests now and {plain(tried.mean_after)} of {tried.count_after:,} "
        "after a rewrite by partition"
    )
    timed = (
        f"on a clone, planning a full scan took {elapsed(whole.before.seconds)} before and {elapsed(whole.after.seconds)} after, "
        f"and opened the same {count(whole.after.data_files, 'data file')}."
    )
    if not _opens_far_fewer(tried):
        return Advice(name, now, now, f"{raised(said)}.", verified=timed)
    if tried.saved_seconds < MANIFEST_SECONDS:
        return Advice(name, now, now, f"{raised(said)}; {_small_gain(tried)}.", verified=timed)
    sql = call(facts.catalog, "rewrite_manifests", table=display_name(facts.table))
    return Advice(name, now, after, f"{raised(said)}. The rewrite does not touch data files.", sql, timed)


def _opens_far_fewer(tried: Rewritten) -> bool:
    return tried.mean_before - tried.mean_after >= max(MANIFESTS_SAVED, MANIFEST_GAIN * tried.mean_before)


def _small_gain(tried: Rewritten) -> str:
    saved = f"saves {elapsed(tried.saved_seconds)}" if tried.saved_seconds > 0 else "saves no time"
    return f"that {saved} of planning, and a rewrite is advised from {MANIFEST_SECONDS:g} s"


def object_storage(facts: TableFacts, s: Storage) -> Advice:
    """Whether hashed paths would spread requests."""
    name = "write.object-storage.enabled"
    now = str(s.is_enabled).lower()
    if s.store is None:
        return Advice(name, now, now, f"The table is stored on {s.scheme}:, which does not throttle requests by prefix.")
    said = (
        f"{percent(s.largest_prefix_share)} of {count(s.file_count, 'file')} are under one prefix, {percent(s.hashed_share)} have a hash in their path; this session's "
        f"task slots make at most {s.gets_per_second:,.0f} requests per second ({s.store} allows {GETS_PER_SECOND:,} reads and {PUTS_PER_SECOND:,} writes per second for one prefix before it splits the prefix), "
        f"and a recent commit added up to {count(s.puts_per_commit, 'file')}"
    )
    if s.is_enabled or not s.is_at_risk:
        return Advice(name, now, now, f"{raised(said)}.")
    return to_set(
        facts,
        {name: "true"},
        current=now,
        evidence=f"{raised(said)}.",
        breaks="new files are no longer in one folder per partition, which people may browse; existing files stay where they are until they are rewritten",
    )


# --- The answer on planning, in figures, sentences and tables


@dataclass(frozen=True, repr=False)
class Planning(Answer):
    """How scans are planned and files are stored; ``rewritten`` is None without a trial."""

    question: ClassVar[str] = "planning"

    circumstances: Circumstances
    decisions: tuple[Decision, Decision]
    modes: tuple[Timing, ...]
    threads: tuple[Timing, ...]
    rewritten: Rewritten | None
    storage: Storage
    split_bytes: int
    filters: tuple[Filter, ...]
    notes: tuple[str, ...]

    @property
    def splits(self) -> int:
        """The number of tasks of a full scan: at least one per ``split_bytes``."""
        return -(-self.facts.data.size_in_bytes // self.split_bytes)

    def verdict(self) -> str:
        """What to change and what it saves, or that nothing should change."""
        if not self.facts.data.file_count:
            return "No change: the table has no data files, so there is nothing to plan."
        changes = [a for a in self.advice if a.is_change]
        m, place = self.facts.manifests, self.decisions[0].place
        took = next((f" in {elapsed(t.seconds)}" for t in self.modes if t.name == place), "")
        tried = self.rewritten
        if not changes and tried is not None and _opens_far_fewer(tried):
            # The manifests could be fewer, so it is said why they stay.
            merged = f"a rewrite would turn {count(tried.count_before, 'data manifest')} into {tried.count_after:,}"
            return f"No change: {merged}, but {_small_gain(tried)}."
        if not changes:
            return f"No change: Iceberg plans a full scan {_PLACES[place]}{took} from {count(m.data_count, 'data manifest')} of {size(m.data_bytes)}."
        said = " and ".join(_DOING.get(a.setting, f"set {a.setting} to {a.proposed}") for a in changes)
        won = [f"{e.figure}: {e.after} instead of {e.now}" for e in self.effects() if not e.is_cost]
        return f"{raised(said)}{f' ({won[0]})' if won else ''}."

    def effects(self) -> list[Effect]:
        """The effects of the advised changes on manifests, planning, bytes, and write and read time."""
        changed = {a.setting for a in self.advice if a.is_change}
        found = []
        tried = self.rewritten
        if MANIFESTS in changed and tried is not None:
            whole = tried.reads[0]
            found += [
                Effect("manifests that a query opens", f"{plain(tried.mean_before)}", f"{plain(tried.mean_after)}"),
                Effect("time to plan a full scan (manifests rewritten)", elapsed(whole.before.seconds), elapsed(whole.after.seconds)),
                Effect(
                    "one-time rewrite of manifests",
                    "–",
                    f"{count(tried.count_before, 'manifest')}, {size(tried.bytes_before)}",
                    is_cost=True,
                ),
            ]
        times = {t.name: t.seconds for t in self.modes}
        mode = next((a for a in self.advice if a.setting == "read.data-planning-mode" and a.is_change), None)
        if mode is not None and mode.proposed in times:
            found.append(Effect("time to plan a full scan", elapsed(times[self.decisions[0].place]), elapsed(times[mode.proposed])))
        return found

    def confidence(self) -> str:
        """The source of the times, and whether the changes were tried."""
        if not self.modes and self.rewritten is None:
            return tried_or_not(self, level="low", why="nothing was timed; the result follows from the engine's rules.")
        where = "a local disk" if self.storage.store is None else self.storage.store
        return tried_or_not(
            self,
            level="medium",
            why=f"counts are exact, from Iceberg's planner on a clone; times were measured in this session on {where}.",
        )

    def tables(self) -> dict[str, Grid]:
        """Where planning runs and how long it takes, the effect of a manifest rewrite, storage."""
        return {
            "modes": _modes(self),
            "times": _threads(self),
            "manifests": _reads(self),
            "storage": _storage(self),
        }

    def basis(self) -> tuple[str, ...]:
        """The basis and the limits of the answer."""
        c = self.circumstances
        lines = [
            f"The driver has {count(c.driver_cores, 'core')}, {size(c.driver_heap_bytes)} of heap and {count(c.threads, 'planning thread')} (iceberg.worker.num-threads); "
            f"spark.driver.maxResultSize is {size(c.max_result_bytes) if c.max_result_bytes else 'unlimited'}; Iceberg assumes a parallelism of {c.parallelism:,}, but the session has {count(c.slots, 'task slot')}.",
            *(f"Also: {reason}." for reason in self.decisions[0].reasons[1:]),
            "Times were measured in this session on this storage. On an object store each manifest is a request of tens of milliseconds, so more threads or fewer manifests save more than here.",
        ]
        if self.storage.store is not None:
            lines.append(
                f"Assumed: a request takes {REQUEST_SECONDS * 1000:.0f} ms, so a task slot makes at most {1 / REQUEST_SECONDS:.0f} requests per second."
            )
        if not self.filters:
            lines.append(
                "The filters of your queries are not known: declare filter columns (icekit.filter-columns), or give filters, an event log or scan reports."
            )
        return (*lines, *self.notes)


_DOING = {MANIFESTS: "rewrite the manifests"}
_PLACES = {"local": "in the driver", "distributed": "on the executors"}


def _modes(answer: Planning) -> Grid:
    rows = []
    for d in answer.decisions:
        layer = answer.circumstances.data if d.kind == "data" else answer.circumstances.deletes
        rows.append((d.kind, _PLACES[d.place], layer.count, layer.size_in_bytes, d.reasons[0]))
    columns = {
        "content": TEXT("manifests of"),
        "planned": TEXT("planned"),
        "manifests": COUNT,
        "size_in_bytes": BYTES("bytes"),
        "because": TEXT,
    }
    return Grid("Where planning runs", columns, rows)


def _threads(answer: Planning) -> Grid:
    rows = [(_PLACES[t.name], "", t.seconds) for t in answer.modes]
    rows += [("in the driver, Iceberg alone", t.name, t.seconds) for t in answer.threads]
    return Grid("Time to plan a full scan", {"where": TEXT, "threads": FIGURE, "seconds": SECONDS("time")}, rows)


def _reads(answer: Planning) -> Grid:
    reads = answer.rewritten.reads if answer.rewritten else ()
    rows = [
        (
            r.text or "full scan",
            r.before.manifests,
            r.after.manifests,
            r.before.data_files,
            r.before.seconds,
            r.after.seconds,
        )
        for r in reads
    ]
    columns = {
        "query": NAME,
        "manifests_now": COUNT("manifests opened now"),
        "manifests_rewritten": COUNT("manifests opened, rewritten"),
        "data_files": COUNT,
        "planning_seconds_now": SECONDS("planning time now"),
        "planning_seconds_rewritten": SECONDS("planning time, rewritten"),
    }
    return Grid("Manifests that queries open, now and rewritten on a clone", columns, rows)


def _storage(answer: Planning) -> Grid:
    s = answer.storage
    rows = (
        ("store", s.store or f"a file system ({s.scheme}:)"),
        ("FileIO", s.file_io),
        (
            "files",
            f"{s.file_count:,} in {count(s.folder_count, 'folder')}, under {count(s.prefix_count, 'prefix', 'prefixes')} of the data folder",
        ),
        ("files in the largest prefix", percent(s.largest_prefix_share)),
        ("files with a hash in the path", percent(s.hashed_share)),
        ("files outside the table's location", f"{s.elsewhere_count:,}"),
        ("files per commit", _commits(s)),
        ("tasks of a full scan", f"{answer.splits:,} of {size(answer.split_bytes)} for {count(answer.circumstances.slots, 'task slot')}"),
    )
    return Grid("Where the files are stored", {"what": TEXT, "how": TEXT("value")}, rows)


def _commits(s: Storage) -> str:
    gap = "" if s.seconds_between_commits is None else f", a commit every {span(s.seconds_between_commits * 1000)} (median)"
    return f"up to {s.puts_per_commit:,}{gap}"


_VALUES_ROWS = 1_000
#: Spark keeps all tasks of a planned scan in the driver's memory.
MOST_PLANNED_FILES = 500_000


def tune_planning(
    lake: Lake,
    table: str | Identifier,
    *,
    filters: Sequence[str] = (),
    event_log: str = "",
    scan_reports: str = "",
    repeats: int = 2,
    budget_seconds: float = BUDGET_SECONDS,
    budget_bytes: str = BUDGET_BYTES,
    trial: bool = True,
    progress: Callable[[str], None] = print,
) -> Planning:
    """Measure how scans of a table are planned and the effect of other settings; only reads the table.

    ``filters`` (predicates or queries), a Spark ``event_log`` and Iceberg ``scan_reports`` give the filters of queries;
    without them, the declared columns do. With ``trial``, icekit rewrites the manifests of a zero-copy clone. A trial that reaches its budget stops and says so.

    Raises :class:`~icekit.errors.ParameterError`.
    """
    if repeats < 1:
        raise ParameterError(f"repeats is {repeats}, but must be 1 or more.")
    attempt = Trial.of(lake, table, Budget(budget_seconds, budget_bytes), progress=progress)
    facts = attempt.facts
    with session_of(lake) as spark:
        name = lake.sql_name(facts.table)
        found = read_filters(lake, facts, sql=filters, event_log=event_log, scan_reports=scan_reports)
        bound = _with_values(lake, facts, found.filters)
        c = circumstances(spark, facts)
        answer = Planning(
            facts=facts,
            advice=(),
            stopped=None,
            circumstances=c,
            decisions=decide(c),
            modes=(),
            threads=(),
            rewritten=None,
            storage=look(spark, name, facts, slots=c.slots, file_io=file_io(spark, name)),
            split_bytes=int(facts.properties.get("read.split.target-size") or 134_217_728),
            filters=bound,
            notes=found.notes,
        )
        if facts.data.file_count:
            answer = _measured(attempt, answer, repeats, is_tried=trial)
    return replace(answer, advice=tuple(_advice(answer)))


def _with_values(lake: Lake, facts: TableFacts, filters: Sequence[Filter]) -> tuple[Filter, ...]:
    names = {leaf.column for f in filters[:MOST_FILTERS] for leaf in leaves(f.tree) if not leaf.is_bound}
    if not names:
        return tuple(filters)
    return bind(filters, sample(lake, facts, sorted(names), rows=_VALUES_ROWS))


def _measured(trial: Trial, answer: Planning, repeats: int, *, is_tried: bool) -> Planning:
    """Measure as much as the budget allows, one measurement after the other."""
    lake, facts, progress = trial.lake, trial.facts, trial.progress
    with trial.attempt():
        if facts.data.file_count <= MOST_PLANNED_FILES:
            answer = replace(answer, modes=in_each_mode(lake.spark, answer.table, None, repeats=repeats, budget=trial.budget))
            progress(f"planning a full scan takes {', '.join(f'{t.seconds:.2f} s {t.name}' for t in answer.modes)}")
        else:
            said = f"A full scan of more than {MOST_PLANNED_FILES:,} files was not planned in each mode: Spark would keep a task for each file in the driver."
            answer = replace(answer, notes=(*answer.notes, said))
        manifests = answer.circumstances.data.count
        answer = replace(answer, threads=with_threads(lake.spark, answer.table, manifests, repeats=repeats, budget=trial.budget))
        if not is_tried:
            return answer
        with trial.clones(1) as (box,):
            rewritten = try_rewrite(trial, box, answer.filters, repeats=repeats)
            answer = replace(answer, rewritten=rewritten)
            progress(f"a rewrite on a clone turns {count(rewritten.count_before, 'data manifest')} into {rewritten.count_after:,}")
    return replace(answer, stopped=trial.stopped)


def _advice(answer: Planning) -> list[Advice]:
    facts = answer.facts
    return [
        *planning_mode(facts, answer.circumstances, answer.modes),
        *worker_threads(answer.circumstances, answer.threads),
        manifests(facts, answer.rewritten),
        object_storage(facts, answer.storage),
    ]


__all__ = ["Planning", "tune_planning"]
