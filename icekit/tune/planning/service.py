"""Answer how a table's scans are planned, where its files lie and how they are written: measured, tried on a clone, advised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from icekit.catalog.lake import session_of
from icekit.engine.bridge import has_bridge, session_value
from icekit.engine.errors import engine_errors, reason
from icekit.errors import ParameterError, SparkUnavailable
from icekit.facts.collect import observe
from icekit.parsing import size_in_bytes
from icekit.sql import Identifier, reset_session
from icekit.tune.answer import Advice, Answer, Shown
from icekit.tune.filters import Filter, bind, leaves, read_filters, sample
from icekit.tune.place import Budget, BudgetSpent, places
from icekit.tune.planning import advise
from icekit.tune.planning.measure import (
    MOST_FILTERS,
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
    look,
    try_encodings,
    try_rewrite,
    with_threads,
)
from icekit.units import count, percent, shorten, size, span

if TYPE_CHECKING:
    from icekit.catalog import Lake
    from icekit.facts.model import TableFacts


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

    def summary(self) -> str:
        """The answer in a sentence or two."""
        data = self.decisions[0]
        m = self.facts.manifests
        if not self.facts.data.file_count:
            return "The table has no data files, so there is nothing to plan. Nothing to change."
        took = next((f" It takes {t.seconds:.2f} s." for t in self.modes if t.name == data.place), "")
        said = f"a full scan opens {count(m.data_count, 'data manifest')} of {size(m.data_bytes)}, {_PLACES[data.place]}.{took}"
        changes = [a for a in self.advice if a.is_change]
        what = f"Change {', '.join(a.setting for a in changes)}: " if changes else "Nothing to change: "
        return f"{what}{said}"

    def tables(self) -> tuple[Shown, ...]:
        """Where planning runs and how long it takes, what rewriting manifests changes, encodings, storage."""
        return (_modes(self), _threads(self), _reads(self), _encodings(self), _storage(self))

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

    def figures(self) -> dict[str, Any]:
        """What was measured; bytes and seconds."""
        return {
            "circumstances": asdict(self.circumstances),
            "decisions": [asdict(d) for d in self.decisions],
            "planning_seconds": {t.name: t.seconds for t in self.modes},
            "planning_seconds_by_threads": {t.name: t.seconds for t in self.threads},
            "manifests": asdict(self.rewritten) if self.rewritten else None,
            "storage": {**asdict(self.storage), "store": self.storage.store, "is_at_risk": self.storage.is_at_risk},
            "encodings": [asdict(e) for e in self.encodings],
            "sampled_bytes": self.sampled_bytes,
            "split_bytes": self.split_bytes,
            "splits": self.splits,
            "notes": list(self.notes),
        }


_PLACES = {"local": "in the driver", "distributed": "by the executors"}


def _modes(answer: Planning) -> Shown:
    rows = []
    for d in answer.decisions:
        layer = answer.circumstances.data if d.kind == "data" else answer.circumstances.deletes
        rows.append((d.kind, _PLACES[d.place], f"{layer.count:,}", size(layer.size_in_bytes), d.reasons[0]))
    return Shown("Where the engine plans", ("manifests of", "planned", "manifests", "bytes", "because"), tuple(rows), frozenset({0, 1, 4}))


def _threads(answer: Planning) -> Shown:
    rows = [(_PLACES[t.name], "", f"{t.seconds:.3f} s") for t in answer.modes]
    rows += [("in the driver, Iceberg alone", t.name, f"{t.seconds:.3f} s") for t in answer.threads]
    return Shown("Time to plan a full scan", ("where", "threads", "time"), tuple(rows))


def _reads(answer: Planning) -> Shown:
    reads = answer.rewritten.reads if answer.rewritten else ()
    rows = [
        (
            shorten(r.text or "full scan", 60),
            f"{r.before.manifests:,}",
            f"{r.after.manifests:,}",
            f"{r.before.data_files:,}",
            f"{r.before.seconds:.3f} s",
            f"{r.after.seconds:.3f} s",
        )
        for r in reads
    ]
    head = ("query", "manifests opened", "once rewritten", "data files", "planning now", "once rewritten")
    return Shown("Manifests, as they are and rewritten on a clone", head, tuple(rows))


def _encodings(answer: Planning) -> Shown:
    here = answer.encodings[0].size_in_bytes if answer.encodings else 0
    rows = [
        (
            e.name,
            size(e.size_in_bytes),
            percent(e.size_in_bytes / here) if here else "–",
            f"{e.write_seconds:.2f} s",
            f"{e.scan_seconds:.2f} s",
        )
        for e in answer.encodings
    ]
    head = ("written as", "bytes", "of now", "to write", "to read all")
    return Shown(f"A sample of {size(answer.sampled_bytes)}, written in other ways", head, tuple(rows))


def _storage(answer: Planning) -> Shown:
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
    return Shown("Where the files lie", ("what", "how"), rows, frozenset({0, 1}))


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
