"""Open the history of a table's health, and find trends: a robust slope, the days until a threshold, what got worse.

The slope is the Theil–Sen estimator: the median of the slopes between all pairs of runs (Sen 1968, "Estimates of
the regression coefficient based on Kendall's tau"). A single odd run does not change it. The Mann–Kendall test
on the same pairs, at 5 % and corrected for ties, decides whether there is a trend.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icekit.catalog import Lake
from icekit.catalog.tables import EmbeddedTables, ProfileTables
from icekit.diagnose.findings import Findings, Thresholds
from icekit.errors import LedgerUnusable
from icekit.facts.model import TableFacts
from icekit.facts.rollup import min_file_size
from icekit.history.iceberg import IcebergStore, SparkStore
from icekit.history.store import LAST, Health, SqliteStore, Store, health, severity_of
from icekit.saving import naming, slug
from icekit.sql import display_name
from icekit.units import count, percent, size

#: Fewer runs show no trend: with four, even a steady rise happens by chance one time in twelve.
LEAST_RUNS = 5
#: The number of runs that decide a trend.
RECENT_RUNS = 30
#: A step that at least halves a figure is maintenance: earlier runs do not predict what follows.
RESET = 0.5
#: Two-sided, of the normal distribution.
_FIVE_PERCENT = 1.96
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure that is tracked over time: how to read it, its limit, how to format it.

    ``limit`` returns None without a threshold. ``falls_ill`` is 1 if more is worse, -1 if less is worse, 0 if neither.
    """

    name: str
    title: str
    unit: str
    value: Callable[[Health], float | None]
    limit: Callable[[Health, Thresholds], float | None]
    falls_ill: int
    write: Callable[[float], str]


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _smallest(health: Health, limits: Thresholds) -> float | None:
    target = health.target_file_bytes
    return None if target is None else float(min_file_size(target, limits.min_file_size_ratio))


def _none(_health: Health, _limits: Thresholds) -> float | None:
    return None


#: In the order of the report.
MEASURES: tuple[Measure, ...] = (
    Measure(name="data_files", title="data files", unit="files", value=lambda h: h.data_files, limit=_none, falls_ill=0, write=_whole),
    Measure(
        name="mean_file_bytes",
        title="mean size of a data file",
        unit="bytes",
        value=lambda h: h.mean_file_bytes,
        limit=_smallest,
        falls_ill=-1,
        write=size,
    ),
    Measure(
        name="delete_ratio",
        title="delete records per data record",
        unit="share",
        value=lambda h: h.delete_ratio,
        limit=lambda _, t: t.delete_ratio,
        falls_ill=1,
        write=percent,
    ),
    Measure(
        name="undersized_manifests",
        title="small data manifests",
        unit="manifests",
        value=lambda h: h.undersized_manifests,
        limit=lambda _, t: t.fragmented_manifests,
        falls_ill=1,
        write=_whole,
    ),
    Measure(
        name="snapshots",
        title="snapshots",
        unit="snapshots",
        value=lambda h: h.snapshots,
        limit=lambda _, t: t.snapshots,
        falls_ill=1,
        write=_whole,
    ),
)


@dataclass(frozen=True, slots=True)
class Trend:
    """The trend of a figure.

    ``per_day`` is the slope per day, None without a trend; ``why`` then says why. ``days`` is the number of days until
    the figure reaches the threshold: 0.0 if it is past the threshold, None if it does not approach it; never NaN or infinite.
    ``runs`` is the number of runs behind the trend.
    """

    measure: Measure
    now: float | None
    limit: float | None
    per_day: float | None
    days: float | None
    runs: int
    why: str

    @property
    def days_told(self) -> str:
        """The days as text: 0 if already past the threshold, – if never."""
        if not self.days:
            return "–" if self.days is None else "0"
        return "over 365" if self.days > 365 else "under 1" if self.days < 1 else f"{round(self.days)}"

    @property
    def sentence(self) -> str:
        """The trend as a sentence, without a full stop."""
        if self.now is None:
            return "not known"
        now = self.measure.write(self.now)
        over = self.days == 0.0 and self.limit is not None
        told = f"{now}, past {self.measure.write(self.limit or 0.0)}" if over else now
        if self.per_day is None:
            return f"{told}; {self.why}"
        step = self.measure.write(abs(self.per_day)) if abs(self.per_day) >= 0.5 or self.measure.unit == "share" else "under 1"
        told += f"; {'up' if self.per_day > 0 else 'down'} {step} a day"
        if self.days:
            when = {"over 365": "more than a year", "under 1": "less than a day"}.get(
                self.days_told, f"about {count(round(self.days), 'day')}"
            )
            told += f"; {when} until {self.measure.write(self.limit or 0.0)}"
        return told


def trends(runs: Sequence[Health], thresholds: Thresholds | None = None) -> tuple[Trend, ...]:
    """The trend of each figure, from the runs of one table, oldest first; empty without runs."""
    limits = thresholds or Thresholds()
    own = same_table(runs)
    return tuple(_trend(measure, own, limits) for measure in MEASURES) if own else ()


def same_table(runs: Sequence[Health]) -> Sequence[Health]:
    """The runs since the table with that name was last re-created."""
    uuid = runs[-1].table_uuid if runs else None
    return list(itertools.takewhile(lambda h: h.table_uuid == uuid, reversed(runs)))[::-1]


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """The Theil–Sen slope of (x, y); None if the Mann–Kendall test finds no trend or there are fewer than :data:`LEAST_RUNS` points.

    Points that are not finite are left out; the slope is finite or None.
    """
    points = [point for point in points if all(map(math.isfinite, point))]
    if len(points) < LEAST_RUNS:
        return None
    pairs = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.combinations(sorted(points), 2) if b[0] > a[0]]
    if not pairs:
        return None
    n = len(points)
    score = sum((dy > 0) - (dy < 0) for _, dy in pairs)
    ties = Counter(y for _, y in points).values()
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    if score == 0 or variance <= 0 or (abs(score) - 1) / math.sqrt(variance) < _FIVE_PERCENT:
        return None
    return _finite(statistics.median(dy / dx for dx, dy in pairs))


def since_reset(points: Sequence[tuple[float, float]], falls_ill: int) -> Sequence[tuple[float, float]]:
    """The points after the last improvement that halved the figure (or doubled it, if less is worse)."""
    start = 0
    for place, ((_, before), (_, after)) in enumerate(itertools.pairwise(points), 1):
        better = after < before * RESET if falls_ill >= 0 else before < after * RESET
        if better and max(before, after) > 0:
            start = place
    return points[start:]


def _trend(measure: Measure, runs: Sequence[Health], limits: Thresholds) -> Trend:
    every = [(h.observed_at_ms / _DAY_MS, float(v)) for h in runs if (v := measure.value(h)) is not None and math.isfinite(v)]
    if not every:
        return Trend(measure=measure, now=None, limit=None, per_day=None, days=None, runs=0, why="not known")
    recent = since_reset(every, measure.falls_ill)[-RECENT_RUNS:]
    now, limit = every[-1][1], measure.limit(runs[-1], limits)
    per_day = slope(recent)
    over = limit is not None and (now - limit) * measure.falls_ill >= 0
    if per_day is None:
        fixed = len(recent) < len(every) and len(recent) < LEAST_RUNS
        why = (
            f"{count(len(recent), 'run')} since it was fixed"
            if fixed
            else "too few runs for a trend"
            if len(recent) < LEAST_RUNS
            else "no trend"
        )
        return Trend(measure=measure, now=now, limit=limit, per_day=None, days=0.0 if over else None, runs=len(recent), why=why)
    days: float | None = 0.0 if over else None
    if limit is not None and not over and per_day * measure.falls_ill > 0:
        # From the line, not from the last run, which may be an outlier.
        fitted = statistics.median(y - per_day * x for x, y in recent) + per_day * recent[-1][0]
        ahead = _finite((limit - fitted) / per_day)
        days = None if ahead is None else max(ahead, 0.01)
    return Trend(measure=measure, now=now, limit=limit, per_day=per_day, days=days, runs=len(recent), why="")


def _finite(value: float) -> float | None:
    """A finite number, or None."""
    return value if math.isfinite(value) else None


def worse(before: Health, now: Health, thresholds: Thresholds | None = None) -> tuple[str, ...]:
    """The changes for the worse between two runs: findings that are new or more serious, thresholds that were crossed."""
    if before.table_uuid != now.table_uuid:
        return ()
    limits = thresholds or Thresholds()
    had: Mapping[str, str] = dict(before.findings)
    told = []
    for name, severity in now.findings:
        title = name.replace("_", " ")
        if name not in had:
            told.append(f"{title} is new")
        elif severity_of(severity) > severity_of(had[name]):
            told.append(f"{title} is now {severity}")
    for measure in MEASURES:
        was, value, limit = measure.value(before), measure.value(now), measure.limit(now, limits)
        if was is None or value is None or limit is None:
            continue
        if (value - limit) * measure.falls_ill >= 0 > (was - limit) * measure.falls_ill:
            told.append(f"{measure.title}: {measure.write(was)} → {measure.write(value)}")
    return tuple(told)


def better(before: Health, now: Health) -> tuple[str, ...]:
    """The findings that are gone since an earlier run."""
    if before.table_uuid != now.table_uuid:
        return ()
    names = {name for name, _ in now.findings}
    return tuple(name.replace("_", " ") for name, _ in before.findings if name not in names)


# --- Find the store of a history by its name: an Iceberg table, a SQLite file, or one table's records in a JSON file.


def store(where: str, lake: Lake) -> Store | None:
    """The store for a name: none if empty, ``table``, or a SQLite file; contacts and creates nothing yet."""
    if not where:
        return None
    if where == "table":
        return table_store(lake)
    return SqliteStore(Path(where).expanduser())


@contextlib.contextmanager
def opened(where: str, lake: Lake) -> Iterator[Store | None]:
    """Like :func:`store`, for a ``with`` block."""
    yield store(where, lake)


def handed_over(records: Sequence[Health], table: str, folder: Path) -> str:
    """Write the stored runs of a table, possibly none, to a file for its notebook; returns the file."""
    path = folder / f"{slug(table)}.history.json"
    with naming(path):
        path.write_text(json.dumps([record.plain() for record in records]), encoding="utf-8")
    return str(path)


def remembered(where: str, lake: Lake, table: str, count: int = LAST) -> tuple[Health, ...]:
    """The newest runs of one table, oldest first; ``where`` may also be a ``.json`` file from a report."""
    if where.endswith(".json"):
        return tuple(Health.of_plain(kept) for kept in json.loads(Path(where).read_text(encoding="utf-8")))
    found = store(where, lake)
    return tuple(found.last([table], count).get(table, ())) if found else ()


def table_store(lake: Lake) -> Store:
    """The store in the Iceberg table: pyiceberg for a profile and the embedded lake, Spark for a catalog that only a session knows."""
    if isinstance(lake.tables, ProfileTables):
        tables = lake.tables
        return IcebergStore(lambda: tables.catalog)
    if isinstance(lake.tables, EmbeddedTables):
        path = lake.tables.path
        return IcebergStore(lambda: _embedded(lake.name, str(path)))
    return SparkStore(lake)


def _embedded(name: str, path: str) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog(name, uri=f"sqlite:///{path}/catalog.db", warehouse=f"{path}/warehouse")


# --- Assemble the history of one table: its earlier runs, the current one, and the maintenance between them


_PROCEDURE = re.compile(r"\.system\.(\w+)\(|icekit (\w+)")
#: The number of compaction outcomes to read.
_OUTCOMES = 200


@dataclass(frozen=True, slots=True)
class Maintained:
    """An icekit action that ended in the time of the runs; ``what`` is its procedure."""

    ended_ms: int
    what: str
    files_in: int | None = None
    files_out: int | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """One table over time: ``runs`` oldest first, the last one is now; ``is_kept`` says whether there is a history store."""

    table: str
    runs: tuple[Health, ...]
    maintained: tuple[Maintained, ...]
    thresholds: Thresholds
    is_kept: bool = True

    @property
    def trends(self) -> tuple[Trend, ...]:
        """The trend of each figure."""
        return trends(self.runs, self.thresholds)

    @property
    def worse(self) -> tuple[str, ...]:
        """The changes for the worse since the previous run."""
        return worse(self.runs[-2], self.runs[-1], self.thresholds) if len(self.runs) > 1 else ()

    @property
    def better(self) -> tuple[str, ...]:
        """The findings that are gone since the previous run."""
        return better(self.runs[-2], self.runs[-1]) if len(self.runs) > 1 else ()


def past(
    lake: Lake,
    facts: TableFacts,
    findings: Findings,
    where: str,
    thresholds: Thresholds | None = None,
    *,
    count: int = LAST,
    before: Sequence[Health] | None = None,
) -> Past:
    """The history of a table in ``where`` (``table``, a SQLite file; empty: none), with the current facts; writes nothing.

    Has at most ``count`` earlier runs, and the actions in the compaction ledger that ended since the first of them. ``before`` are
    earlier runs that were read already.
    """
    # Imported here: reports import the history, and the savings come from reports.
    from icekit.maintain.savings import wins

    limits = thresholds or Thresholds()
    now = health(facts, findings, wins(facts, findings, limits), "now", limits)
    if before is None:
        before = remembered(where, lake, facts.name, count) if where else ()
    runs = tuple(same_table([*(h for h in before if h.observed_at_ms < now.observed_at_ms), now]))
    done = _maintained(facts, runs[0].observed_at_ms) if where else ()
    return Past(facts.name, runs, done, limits, bool(where))


def _maintained(facts: TableFacts, since_ms: int) -> tuple[Maintained, ...]:
    """The ledger's outcomes of a table; none if the ledger cannot be read."""
    from icekit.compact.ledger import open_ledger

    try:
        done = open_ledger(None).outcomes(display_name((facts.catalog, *facts.table)), _OUTCOMES)
    except LedgerUnusable:
        return ()
    found = [
        Maintained(r.ended_ms, _what(r.sql), (r.actual or {}).get("files_in"), (r.actual or {}).get("files_out"))
        for r in done
        if r.ended_ms is not None and since_ms <= r.ended_ms <= facts.collected_at_ms
    ]
    return tuple(sorted(found, key=lambda m: m.ended_ms))


def _what(sql: str) -> str:
    match = _PROCEDURE.search(sql)
    return (match[1] or match[2]) if match else "maintenance"
