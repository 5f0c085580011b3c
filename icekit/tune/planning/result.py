"""What the question about planning came to, in figures, words and tables."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from icekit.tune.answer import Answer, Shown
from icekit.tune.filters import Filter
from icekit.tune.planning.encoding import Encoding
from icekit.tune.planning.manifests import Rewritten
from icekit.tune.planning.measure import Timing
from icekit.tune.planning.mode import Circumstances, Decision
from icekit.tune.planning.storage import REQUEST_SECONDS, Storage
from icekit.units import count, percent, shorten, size, span


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
