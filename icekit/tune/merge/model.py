"""What a review of a MERGE is made of: how the engine would run it, what would narrow it, what would spare its shuffle."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan of the target as the engine's own planner has planned it: what it would open.

    ``filters`` are those that reached Iceberg, ``grouped_by`` the partition fields whose
    partitions it keeps apart. ``size_in_bytes`` is the size of the data files, of which a columnar
    scan reads some; ``partitions`` is None where it could not be told.
    """

    files: int
    size_in_bytes: int
    delete_files: int
    partitions: int | None
    filters: tuple[str, ...] = ()
    runtime_filters: tuple[str, ...] = ()
    grouped_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """How Spark would run a MERGE, asked without running it.

    ``mode`` is copy-on-write, merge-on-read or append (no clause touches an existing row).
    ``group_filter`` is the scan by which a copy-on-write MERGE finds the files that hold matches,
    at run time. ``broadcast`` is the side that is sent to every task, source or target. ``exchange`` is the shuffle of the target before the join, None where there is
    none; ``write_exchange`` that of the rows before they are written.
    """

    mode: str
    join: str | None
    join_type: str | None
    keys: tuple[str, ...]
    scan: Scan
    group_filter: Scan | None
    broadcast: str | None
    exchange: str | None
    write_exchange: str | None
    source_bytes: int | None
    tree: str

    @property
    def is_target_shuffled(self) -> bool:
        """Tell whether the target's rows go through a shuffle before the join."""
        return self.exchange is not None

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the target's files that are opened: by the scan itself, and by the search for matches before it."""
        return self.scan.size_in_bytes + (self.group_filter.size_in_bytes if self.group_filter else 0)


@dataclass(frozen=True, slots=True)
class Added:
    """One predicate that narrows the target, and what it was made from.

    ``column`` is the target's column, ``expression`` what ON sets equal to it, ``form`` how
    the source's values are told: values, ranges or bounds.
    """

    column: str
    expression: str
    form: str
    predicate: str
    distinct: int
    has_nulls: bool


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The statement with predicates that ON implies for every row of this source.

    ``guard`` counts the source's rows that the predicates leave out: it must give 0 just before
    the statement is run, because such rows would be inserted although they are there.
    """

    sql: str
    predicate: str
    added: tuple[Added, ...]
    guard: str
    plan: EnginePlan


@dataclass(frozen=True, slots=True)
class PartitionedJoin:
    """Whether a storage-partitioned join would spare the shuffle.

    ``is_used`` tells of the session as it is, ``settings`` which are missing (the smallest set
    found, by leaving out one after the other). Where the layout is at fault ``lacks`` says how,
    and ``layout`` is SQL for a source that would do.
    """

    is_used: bool
    is_possible: bool
    settings: tuple[tuple[str, str], ...] = ()
    lacks: tuple[str, ...] = ()
    layout: tuple[str, ...] = ()
    plan: EnginePlan | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of advice: what it is about, one or two sentences, and the SQL to paste."""

    about: str
    said: str
    sql: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """One statement run on a clone: what it really opened and shuffled."""

    seconds: float
    files: int
    size_in_bytes: int
    shuffle_bytes: int
    rows: str


@dataclass(frozen=True, slots=True)
class Trial:
    """Two ways of running the same MERGE, each on a clone of its own.

    ``unstable`` is what makes the statement write other values each time, as ``current_timestamp()`` does.
    """

    what: str
    before: Run
    after: Run
    unstable: str | None = None

    @property
    def is_same(self) -> bool:
        """Tell whether both left the same rows."""
        return self.before.rows == self.after.rows
