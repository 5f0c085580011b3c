"""Answer how a table's scans are planned, where its files lie and how they are written: measured, tried on a clone, advised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from icekit.answer.grid import BYTES, COUNT, FIGURE, NAME, SECONDS, SHARE, TEXT, Grid
from icekit.catalog.lake import session_of
from icekit.engine.bridge import has_bridge, session_value
from icekit.errors import ParameterError, SparkUnavailable
from icekit.facts.model import TableFacts
from icekit.sandbox.trial import BUDGET_BYTES, BUDGET_SECONDS, Budget, Trial
from icekit.sql import Identifier, call, display_name, reset_session
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
    SESSION_CODEC,
    Circumstances,
    Decision,
    Encoding,
    Rewritten,
    Storage,
    Timing,
    circumstances,
    decide,
    file_io,
    in_each_mode,
    is_too_small_a_result,
    look,
    try_encodings,
    try_rewrite,
    with_threads,
)
from icekit.tune.queries import bind, read_filters, sample
from icekit.units import count, elapsed, percent, raised, size, span

if TYPE_CHECKING:
    from icekit.catalog import Lake


# --- From what was measured of planning and storage to settings. Pure


#: A choice: planning in another place must save this share of the time, and this many seconds, or it is lost in noise.
MODE_GAIN, MODE_SECONDS = 0.25, 1.0
#: A choice: rewriting manifests must save a query this share of those it opens, and this many.
MANIFEST_GAIN, MANIFESTS_SAVED = 0.5, 8
#: A choice: another encoding must save this share of the bytes, and slow no scan or write by more than this share.
BYTES_GAIN, SLOWER = 0.15, 0.1


def planning_mode(facts: TableFacts, c: Circumstances, timings: Sequence[Timing]) -> tuple[Advice, ...]:
    """Where data manifests are planned, and where they ought to be; a setting of the session goes first."""
    name = "read.data-planning-mode"
    decision = decide(c)[0]
    now = f"{(c.data_mode.value or AUTO).lower()} ({decision.place})"
    why = f"planned {'in the driver' if decision.place == LOCAL else 'by the executors'}: {decision.reasons[0]}"
    measured = {t.name: t.seconds for t in timings}
    if not measured:
        return (Advice(name, now, now, f"{raised(why)}. It was not measured."),)
    here, there = measured[decision.place], measured[DISTRIBUTED if decision.place == LOCAL else LOCAL]
    said = f"a full scan is planned in {measured[LOCAL]:.2f} s in the driver and in {measured[DISTRIBUTED]:.2f} s by the executors"
    if here - there < max(MODE_SECONDS, MODE_GAIN * here):
        return (Advice(name, now, now, f"{raised(why)}; {said}."),)
    better = DISTRIBUTED if decision.place == LOCAL else LOCAL
    if is_too_small_a_result(c):
        # A setting of the cluster, which no statement changes.
        wanted = size(LEAST_RESULT_BYTES)
        told = Advice(
            "spark.driver.maxResultSize",
            size(c.max_result_bytes),
            wanted,
            f"{raised(why)}; {said}. Start the session with more.",
        )
        return (told,)
    evidence = f"{raised(said)}; it is {why}."
    # Both kinds were measured in one place, and are set to it; named after the first.
    properties = {**({"read.delete-planning-mode": better} if c.deletes.count else {}), name: better}
    found = [to_set(facts, properties, current=now, evidence=evidence, verified=f"{said}.")]
    decides = [mode.decides for mode in (c.data_mode, c.delete_mode) if mode.decides is not None and mode.decides.where == SESSION]
    return (*found, *(overriding(link, "") for link in decides))


def worker_threads(c: Circumstances, timings: Sequence[Timing]) -> tuple[Advice, ...]:
    """Whether more threads in the driver plan faster; no statement sets them, so only a clear gain is named."""
    if not timings or decide(c)[0].place != LOCAL:
        return ()
    # What was tried is up to the number in force, or just above it.
    seconds = {int(t.name): t.seconds for t in timings}
    here = seconds[max((n for n in seconds if n <= c.threads), default=min(seconds))]
    best = min(seconds, key=lambda n: seconds[n])
    if best <= c.threads or here - seconds[best] < max(MODE_SECONDS, MODE_GAIN * here):
        return ()
    evidence = (
        f"Planning a full scan takes {here:.2f} s with {count(c.threads, 'thread')} of the driver and {seconds[best]:.2f} s with {best}: it waits for storage. "
        f"Start the session with spark.driver.extraJavaOptions=-Diceberg.worker.num-threads={best}."
    )
    return (Advice("iceberg.worker.num-threads", str(c.threads), str(best), evidence, verified="planned with that many threads."),)


def manifests(facts: TableFacts, tried: Rewritten | None) -> Advice:
    """Whether rewriting the manifests pays."""
    name, m = "manifests", facts.manifests
    now = f"{m.data_count:,} of {size(m.data_bytes)}"
    if tried is None:
        return Advice(name, now, now, "Rewriting them was not tried.")
    whole = tried.reads[0]
    after = f"{tried.count_after:,} of {size(tried.bytes_after)}"
    asked = "a query" if len(tried.reads) > 1 else "a full scan"
    said = (
        f"{asked} opens {tried.mean_before:,.3g} of {tried.count_before:,} data manifests now and {tried.mean_after:,.3g} of {tried.count_after:,} "
        "once they are rewritten by partition"
    )
    timed = (
        f"on a clone a full scan was planned in {whole.before.seconds:.2f} s before and {whole.after.seconds:.2f} s after, "
        f"and opened the same {count(whole.after.data_files, 'data file')}."
    )
    saved = tried.mean_before - tried.mean_after
    if saved < max(MANIFESTS_SAVED, MANIFEST_GAIN * tried.mean_before):
        return Advice(name, now, now, f"{raised(said)}.", verified=timed)
    sql = call(facts.catalog, "rewrite_manifests", table=display_name(facts.table))
    return Advice(name, now, after, f"{raised(said)}; it touches no data file.", sql, timed)


def object_storage(facts: TableFacts, s: Storage) -> Advice:
    """Whether hashed paths would spread requests."""
    name = "write.object-storage.enabled"
    now = str(s.is_enabled).lower()
    if s.store is None:
        return Advice(name, now, now, f"The table lies on {s.scheme}:, where no requests are throttled by prefix.")
    said = (
        f"{percent(s.largest_prefix_share)} of {count(s.file_count, 'file')} lie under one prefix, {percent(s.hashed_share)} have a hash in their path; this session's "
        f"task slots make {s.gets_per_second:,.0f} requests a second at most ({s.store} takes {GETS_PER_SECOND:,} reads and {PUTS_PER_SECOND:,} writes for one prefix before it splits it), "
        f"and a recent commit added up to {count(s.puts_per_commit, 'file')}"
    )
    if s.is_enabled or not s.is_at_risk:
        return Advice(name, now, now, f"{raised(said)}.")
    return to_set(
        facts,
        {name: "true"},
        current=now,
        evidence=f"{raised(said)}.",
        breaks="new files no longer lie in folders by partition that people may browse; files that are there stay where they are until they are rewritten",
    )


def encoding(facts: TableFacts, tried: Sequence[Encoding], sampled_bytes: int) -> Advice:
    """Whether another codec, level, row group or page size is worth it."""
    name = "write.parquet.compression-codec"
    if not tried:
        now = facts.setting(name)
        return Advice(name, now, now, "No other way to write was tried.")
    here = tried[0]
    fine = [
        e
        for e in tried[1:]
        if e.size_in_bytes <= here.size_in_bytes * (1 - BYTES_GAIN)
        and e.scan_seconds <= here.scan_seconds * (1 + SLOWER)
        and e.write_seconds <= here.write_seconds * (1 + SLOWER)
    ]
    smallest = min(tried, key=lambda e: e.size_in_bytes)
    sample = f"of a sample of {size(sampled_bytes)}"
    if not fine:
        gain = 1 - smallest.size_in_bytes / here.size_in_bytes if here.size_in_bytes else 0.0
        said = (
            f"{sample}, the smallest ({smallest.name}) saves {percent(gain)} of the bytes, written in {smallest.write_seconds:.2f} s instead of {here.write_seconds:.2f} and read in "
            f"{smallest.scan_seconds:.2f} s instead of {here.scan_seconds:.2f}; {percent(BYTES_GAIN)} without writing or reading slower by {percent(SLOWER)} are asked for"
        )
        return Advice(
            name,
            here.name,
            here.name,
            f"{raised(said)}." if smallest is not here else "Nothing that was tried is smaller.",
        )
    best = min(fine, key=lambda e: e.size_in_bytes)
    gain = 1 - best.size_in_bytes / here.size_in_bytes
    said = (
        f"{size(here.size_in_bytes)} became {size(best.size_in_bytes)} ({sample}), written in {best.write_seconds:.2f} s instead of {here.write_seconds:.2f} "
        f"and read in {best.scan_seconds:.2f} s instead of {here.scan_seconds:.2f}"
    )
    return to_set(
        facts,
        dict(best.properties),
        current=here.name,
        evidence=f"{best.name} saves {percent(gain)} of the bytes; files that are there keep theirs until they are rewritten.",
        verified=f"{said}.",
    )


# --- What the question about planning came to, in figures, words and tables


@dataclass(frozen=True, repr=False)
class Planning(Answer):
    """How scans are planned and files laid out; ``rewritten`` and ``encodings`` are empty where no trial ran."""

    question: ClassVar[str] = "planning"

    circumstances: Circumstances
    decisions: tuple[Decision, Decision]
    modes: tuple[Timing, ...]
    threads: tuple[Timing, ...]
    rewritten: Rewritten | None
    storage: Storage
    encodings: tuple[Encoding, ...]
    sampled_bytes: int
    split_bytes: int
    filters: tuple[Filter, ...]
    notes: tuple[str, ...]

    @property
    def splits(self) -> int:
        """Tasks of a full scan: at least one for each so many bytes."""
        return -(-self.facts.data.size_in_bytes // self.split_bytes)

    def verdict(self) -> str:
        """What to change and what planning then takes, or that nothing has to be."""
        if not self.facts.data.file_count:
            return "Leave it as it is: the table has no data files, so there is nothing to plan."
        changes = [a for a in self.advice if a.is_change or a.proposed != a.current]
        m, place = self.facts.manifests, self.decisions[0].place
        took = next((f" in {elapsed(t.seconds)}" for t in self.modes if t.name == place), "")
        if not changes:
            return f"Leave it as it is: a full scan is planned {_PLACES[place]}{took} from {count(m.data_count, 'data manifest')} of {size(m.data_bytes)}."
        said = " and ".join(_DOING.get(a.setting, f"set {a.setting} to {a.proposed}") for a in changes)
        won = [f"{e.figure}: {e.after} instead of {e.now}" for e in self.effects() if not e.is_cost]
        return f"{raised(said)}{f' ({won[0]})' if won else ''}."

    def effects(self) -> list[Effect]:
        """What the changes that are advised do to manifests, planning, bytes and the time to write and to read them."""
        changed = {a.setting for a in self.advice if a.is_change or a.proposed != a.current}
        found = []
        tried = self.rewritten
        if "manifests" in changed and tried is not None:
            whole = tried.reads[0]
            found += [
                Effect("manifests that a query opens", f"{tried.mean_before:,.3g}", f"{tried.mean_after:,.3g}"),
                Effect("planning a full scan, manifests rewritten", elapsed(whole.before.seconds), elapsed(whole.after.seconds)),
                Effect("manifests to rewrite", "–", f"{tried.count_before:,} of {size(tried.bytes_before)}", is_cost=True),
            ]
        times = {t.name: t.seconds for t in self.modes}
        mode = next((a for a in self.advice if a.setting == "read.data-planning-mode" and a.is_change), None)
        if mode is not None and mode.proposed in times:
            found.append(Effect("planning a full scan", elapsed(times[self.decisions[0].place]), elapsed(times[mode.proposed])))
        chosen = next((a for a in self.advice if a.properties and a.setting.startswith("write.parquet.")), None)
        other = next((e for e in self.encodings[1:] if chosen and dict(e.properties) == dict(chosen.properties)), None)
        if other is not None:
            here = self.encodings[0]
            of = f"a sample of {size(self.sampled_bytes)}"
            found += [
                Effect(f"bytes of {of}", size(here.size_in_bytes), size(other.size_in_bytes)),
                Effect("writing it", elapsed(here.write_seconds), elapsed(other.write_seconds), other.write_seconds > here.write_seconds),
                Effect("reading it", elapsed(here.scan_seconds), elapsed(other.scan_seconds), other.scan_seconds > here.scan_seconds),
            ]
        return found

    def confidence(self) -> str:
        """Where the seconds come from, and whether the changes were tried."""
        if not self.modes and self.rewritten is None:
            return tried_or_not(self, level="low", why="nothing was timed; the engine's own rules say where it plans.")
        where = "a local disk" if self.storage.store is None else self.storage.store
        return tried_or_not(
            self, level="medium", why=f"counts are exact, by Iceberg's planner on a clone; seconds are of this session and of {where}."
        )

    def tables(self) -> dict[str, Grid]:
        """Where planning runs and how long it takes, what rewriting manifests changes, encodings, storage."""
        return {
            "modes": _modes(self),
            "times": _threads(self),
            "manifests": _reads(self),
            "encodings": _encodings(self),
            "storage": _storage(self),
        }

    def basis(self) -> tuple[str, ...]:
        """What the answer rests on and what limits it."""
        c = self.circumstances
        lines = [
            f"The driver has {count(c.driver_cores, 'core')}, {size(c.driver_heap_bytes)} of heap and {count(c.threads, 'planning thread')} (iceberg.worker.num-threads); "
            f"spark.driver.maxResultSize is {size(c.max_result_bytes) if c.max_result_bytes else 'without limit'}; Iceberg counts a parallelism of {c.parallelism:,}, the session has {count(c.slots, 'task slot')}.",
            *(f"Also: {reason}." for reason in self.decisions[0].reasons[1:]),
            "Seconds are of this session and this storage: on an object store each manifest is a request of tens of milliseconds, and more threads or fewer manifests save more than here.",
        ]
        if self.storage.store is not None:
            lines.append(
                f"A request is taken to last {REQUEST_SECONDS * 1000:.0f} ms, so that a task slot makes {1 / REQUEST_SECONDS:.0f} a second at most."
            )
        if not self.filters:
            lines.append(
                "What queries filter by is not known: declare it (icekit.filter-columns), or give filters, an event log or scan reports."
            )
        return (*lines, *self.notes)


_DOING = {"manifests": "rewrite the manifests"}
_PLACES = {"local": "in the driver", "distributed": "by the executors"}


def _modes(answer: Planning) -> Grid:
    rows = []
    for d in answer.decisions:
        layer = answer.circumstances.data if d.kind == "data" else answer.circumstances.deletes
        rows.append((d.kind, _PLACES[d.place], layer.count, layer.size_in_bytes, d.reasons[0]))
    columns = {"content": TEXT("manifests of"), "planned": TEXT, "manifests": COUNT, "size_in_bytes": BYTES("bytes"), "because": TEXT}
    return Grid("Where the engine plans", columns, rows)


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
        "manifests_now": COUNT("manifests opened"),
        "manifests_rewritten": COUNT("once rewritten"),
        "data_files": COUNT,
        "planning_seconds_now": SECONDS("planning now"),
        "planning_seconds_rewritten": SECONDS("once rewritten"),
    }
    return Grid("Manifests, as they are and rewritten on a clone", columns, rows)


def _encodings(answer: Planning) -> Grid:
    here = answer.encodings[0].size_in_bytes if answer.encodings else 0
    rows = [(e.name, e.size_in_bytes, e.size_in_bytes / here if here else None, e.write_seconds, e.scan_seconds) for e in answer.encodings]
    columns = {
        "written_as": TEXT,
        "size_in_bytes": BYTES("bytes"),
        "share_of_now": SHARE("of now"),
        "write_seconds": SECONDS("to write"),
        "scan_seconds": SECONDS("to read all"),
    }
    return Grid(f"A sample of {size(answer.sampled_bytes)}, written in other ways", columns, rows)


def _storage(answer: Planning) -> Grid:
    s = answer.storage
    rows = (
        ("store", s.store or f"a file system ({s.scheme}:)"),
        ("FileIO", s.file_io),
        (
            "files",
            f"{s.file_count:,} in {count(s.folder_count, 'folder')}, under {count(s.prefix_count, 'prefix', 'prefixes')} of the data folder",
        ),
        ("in the fullest prefix", percent(s.largest_prefix_share)),
        ("with a hash in the path", percent(s.hashed_share)),
        ("outside the table's location", f"{s.elsewhere_count:,}"),
        ("files of a commit", _commits(s)),
        ("tasks of a full scan", f"{answer.splits:,} of {size(answer.split_bytes)} for {count(answer.circumstances.slots, 'task slot')}"),
    )
    return Grid("Where the files lie", {"what": TEXT, "how": TEXT}, rows)


def _commits(s: Storage) -> str:
    gap = "" if s.seconds_between_commits is None else f", a commit every {span(s.seconds_between_commits * 1000)} (median)"
    return f"up to {s.puts_per_commit:,}{gap}"


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
    budget_seconds: float = BUDGET_SECONDS,
    budget_bytes: str = BUDGET_BYTES,
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
    attempt = Trial.of(lake, table, Budget(budget_seconds, budget_bytes), sample_bytes, progress)
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
            encodings=(),
            sampled_bytes=0,
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
    """What can be measured within the budget, one thing after the other."""
    lake, facts, progress = trial.lake, trial.facts, trial.progress
    with trial.attempt():
        if facts.data.file_count <= MOST_PLANNED_FILES:
            answer = replace(answer, modes=in_each_mode(lake.spark, answer.table, None, repeats=repeats, budget=trial.budget))
            progress(f"a full scan is planned {', '.join(f'{t.name} in {t.seconds:.2f} s' for t in answer.modes)}")
        else:
            said = f"A full scan of more than {MOST_PLANNED_FILES:,} files was not planned in each mode: Spark would hold a task for each in the driver."
            answer = replace(answer, notes=(*answer.notes, said))
        manifests = answer.circumstances.data.count
        answer = replace(answer, threads=with_threads(lake.spark, answer.table, manifests, repeats=repeats, budget=trial.budget))
        if not is_tried:
            return answer
        with trial.sandbox() as box:
            if not box.is_sample:
                rewritten = try_rewrite(trial, box, answer.filters, repeats=repeats)
                answer = replace(answer, rewritten=rewritten)
                progress(f"rewritten on a clone, {rewritten.count_before:,} data manifests are {rewritten.count_after:,}")
        codec = session_value(lake.spark, SESSION_CODEC)
        if codec is not None:
            said = f"The session's {SESSION_CODEC} = {codec} overrides the table's codec; no other way to write was tried: {reset_session(SESSION_CODEC)} first."
            return replace(answer, notes=(*answer.notes, said))
        # How rows are encoded does not depend on their partition, and one file shows it better than many small ones.
        with trial.sandbox(always_sample=True, partitioned=False) as box:
            answer = replace(answer, encodings=try_encodings(trial, box, repeats=repeats), sampled_bytes=box.size_in_bytes)
    return replace(answer, stopped=trial.stopped)


def _advice(answer: Planning) -> list[Advice]:
    facts = answer.facts
    return [
        *planning_mode(facts, answer.circumstances, answer.modes),
        *worker_threads(answer.circumstances, answer.threads),
        manifests(facts, answer.rewritten),
        object_storage(facts, answer.storage),
        encoding(facts, answer.encodings, answer.sampled_bytes),
    ]
