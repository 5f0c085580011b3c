"""What statistics of columns cost in manifests, and what they let queries skip. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from icekit.units import count

NONE, COUNTS, FULL = "none", "counts", "full"
DEFAULT_LENGTH = 16
#: Lengths that are tried for the bounds of a text, the default first.
LENGTHS = (DEFAULT_LENGTH, 24, 32, 48, 64, 96, 128)
_TRUNCATE = re.compile(r"truncate\((\d+)\)", re.I)

FILTER, SORT, PARTITION, DELETE_KEY = "filter", "sort order", "partition source", "equality delete key"


def truncate(length: int) -> str:
    """The mode that keeps so many characters."""
    return f"truncate({length})"


def rank(mode: str) -> float:
    """An order of modes by what they keep: none, counts, truncate by its length, full."""
    found = _TRUNCATE.fullmatch(mode.strip())
    if found:
        return 1.0 + int(found[1])
    return {NONE: 0.0, COUNTS: 1.0, FULL: float("inf")}.get(mode.strip().lower(), 1.0 + DEFAULT_LENGTH)


@dataclass(frozen=True, slots=True)
class ColumnBytes:
    """One column's statistics in the sampled entries of manifests.

    ``count_bytes`` (sizes and counts of values, nulls, NaNs) and ``bound_bytes`` are means per entry, before
    compression; ``counted_files`` and ``bounded_files`` are sampled files that have counts and bounds of it.
    """

    column: str
    field_id: int
    count_bytes: float = 0.0
    bound_bytes: float = 0.0
    counted_files: int = 0
    bounded_files: int = 0

    @property
    def size_in_bytes(self) -> float:
        """All of it, per entry."""
        return self.count_bytes + self.bound_bytes


@dataclass(frozen=True, slots=True)
class EntryBytes:
    """What the entries of some manifests are made of.

    ``header_bytes`` is what a manifest begins with (its schemas, which no setting shortens), ``entry_bytes`` an entry
    before compression, ``stored_share`` what compression leaves of it; ``columns`` by their bytes, the largest first.
    ``gone_bytes`` is of columns that the table has no more.
    """

    files: int
    manifests: int
    header_bytes: float
    entry_bytes: float
    stored_share: float
    columns: tuple[ColumnBytes, ...]
    gone_bytes: float = 0.0

    @property
    def by_name(self) -> dict[str, ColumnBytes]:
        """The columns by name."""
        return {c.column: c for c in self.columns}


@dataclass(frozen=True, slots=True)
class Prefix:
    """How alike the values of a text column begin, in a sample.

    ``common`` is the number of characters that all share; ``colliding`` the share of distinct values whose first
    16 characters are another's too; ``needed`` the least of :data:`LENGTHS` at which at most one in a hundred is,
    None if none of them does.
    """

    column: str
    distinct: int
    common: int
    colliding: float
    needed: int | None


@dataclass(frozen=True, slots=True)
class Skipping:
    """Data files that the filters on one column read, by what they ask of this column alone; means over the filters.

    ``now`` is by Iceberg's own planner. The rest is simulated on the real bounds of ``sampled`` files (in their footers)
    and scaled to ``files``: ``by_mode`` with each mode from ``truncate(16)`` to ``full``. ``if_sorted`` is of sampled rows, sorted
    by the column and cut into as many files. None where it could not be told.
    """

    column: str
    weight: float
    kinds: frozenset[str]
    files: int
    now: float | None
    by_mode: tuple[tuple[str, float], ...] = ()
    if_sorted: float | None = None
    sampled: int = 0

    @property
    def full(self) -> float | None:
        """Files read with full bounds."""
        return self.by_mode[-1][1] if self.by_mode else None

    @property
    def best(self) -> tuple[str, float] | None:
        """The shortest mode whose reads are within one in a hundred of those with full bounds."""
        if not self.by_mode:
            return None
        limit = self.by_mode[-1][1] * 1.01 + 1e-9
        return next((mode, files) for mode, files in self.by_mode if files <= limit)


@dataclass(frozen=True, slots=True)
class FilterReads:
    """Data files that one filter reads, by Iceberg's planner on a clone: with the metrics as they are, and as advised."""

    text: str
    weight: float
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Manifests:
    """The same entries, written with some metrics: bytes of manifests, and seconds to plan a full scan of the table (the shortest)."""

    size_in_bytes: int
    header_bytes: int
    planning_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """What a clone showed. ``files`` of ``total_files`` data files had their entries written anew, first as they are, then as advised.

    ``stopped`` says why it is not whole, None where it is.
    """

    files: int
    total_files: int
    before: Manifests | None
    after: Manifests | None
    filters: tuple[FilterReads, ...]
    seconds: float
    is_sample: bool = False
    stopped: str | None = None

    @property
    def shrinks(self) -> float | None:
        """The share of the manifests' bytes that is gone; negative where they grow."""
        if self.before is None or self.after is None or not self.before.size_in_bytes:
            return None
        return 1 - self.after.size_in_bytes / self.before.size_in_bytes

    @property
    def entry_bytes(self) -> tuple[float, float] | None:
        """Bytes of an entry as stored, before and after, without the manifest's header."""
        if self.before is None or self.after is None or not self.files:
            return None
        return tuple((m.size_in_bytes - m.header_bytes) / self.files for m in (self.before, self.after))  # type: ignore[return-value]

    @property
    def reads(self) -> tuple[float, float] | None:
        """Data files that a filter reads, before and after: the mean."""
        total = sum(f.weight for f in self.filters)
        if not total:
            return None
        return sum(f.weight * f.before for f in self.filters) / total, sum(f.weight * f.after for f in self.filters) / total

    @property
    def losses(self) -> tuple[FilterReads, ...]:
        """Filters that would read more files than they do."""
        return tuple(f for f in self.filters if f.after > f.before)


def files_said(number: float) -> str:
    """A mean number of data files, for people."""
    whole = round(number)
    return count(whole, "data file") if abs(number - whole) < 0.05 else f"{number:,.1f} data files"
