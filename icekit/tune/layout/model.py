"""What a layout is made of, and what was measured and tried of it; frozen, bounded in size."""

from __future__ import annotations

from dataclasses import dataclass

from icekit.facts.files import Partition
from icekit.tune.layout.transforms import Field

SORT, ZORDER, HILBERT = "sort", "zorder", "hilbert"


@dataclass(frozen=True, slots=True)
class Order:
    """An order of rows within a partition: ``kind`` is sort, zorder or hilbert."""

    kind: str
    columns: tuple[str, ...]

    @property
    def is_curve(self) -> bool:
        """Tell whether it is a space-filling curve, which exists only in a rewrite."""
        return self.kind != SORT

    @property
    def name(self) -> str:
        """``origin, tailnum``; ``hilbert(origin, tailnum)``."""
        listed = ", ".join(self.columns)
        return listed if self.kind == SORT else f"{self.kind}({listed})"


@dataclass(frozen=True, slots=True)
class Spread:
    """Partitions that a spec would have (those not sampled estimated), and the mean and largest bytes of one."""

    partitions: int
    mean_bytes: float
    largest_bytes: float


@dataclass(frozen=True, slots=True)
class Level:
    """What a filter reads now, at each level; shares are of the table's data bytes.

    ``partition_share`` is left when partitions are pruned by the specs they were written with. ``manifests`` are read and
    ``skipped_manifests`` ruled out, ``files`` and ``file_share`` left by bounds; None where Iceberg could not be asked.
    ``queries`` is how many bound filters it is the mean of.
    """

    text: str
    origin: str
    columns: tuple[str, ...]
    weight: float
    queries: int
    partition_share: float
    manifests: float | None = None
    skipped_manifests: float | None = None
    files: float | None = None
    file_share: float | None = None

    @property
    def is_ignored_by_spec(self) -> bool:
        """Tell whether partitions rule nothing out."""
        return self.partition_share >= 1.0


@dataclass(frozen=True, slots=True)
class Step:
    """Orders by so many columns: ``shares`` of the bytes that filters would read, by kind; the best is ``order``."""

    order: Order
    share: float
    shares: tuple[tuple[Order, float], ...]


@dataclass(frozen=True, slots=True)
class Orders:
    """Orders compared on a sample: the rows as they came, the table's own order, and the best of one column, two and so on.

    ``best`` is the step beyond which another column does not pay; None without a column to order by.
    """

    as_they_came: float
    own: float | None
    steps: tuple[Step, ...]
    best: Step | None
    is_coarse: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partition spec tried on the sample: the share of bytes that filters would read, and its partitions.

    ``order`` is that of rows within, None for as they came; ``fits`` tells that partitions are well filled.
    """

    spec: tuple[Field, ...]
    share: float
    spread: Spread
    fits: bool
    order: Order | None = None

    @property
    def name(self) -> str:
        """``day(time_hour), bucket[16](id)``; ``unpartitioned``."""
        return spec_name(self.spec)


def spec_name(spec: tuple[Field, ...]) -> str:
    """A spec in words: identity fields by column alone."""
    return ", ".join(f.column if f.transform == "identity" else f"{f.transform}({f.column})" for f in spec) or "unpartitioned"


@dataclass(frozen=True, slots=True)
class Worn:
    """A partition whose files overlap on the first sort column: a lookup opens ``depth`` of its ``files`` on average."""

    partition: Partition
    path: str
    files: int
    size_in_bytes: int
    depth: float


@dataclass(frozen=True, slots=True)
class BloomCheck:
    """Whether a bloom filter would serve a column: why not, or None where it would; ``is_there`` if it is set.

    ``is_judged`` is false where that cannot be told: no filters are known, or the column was not sampled.
    """

    column: str
    is_there: bool
    distinct: float
    distinct_bytes: float
    reason: str | None
    is_judged: bool = True


@dataclass(frozen=True, slots=True)
class BloomTrial:
    """Lookups on a sample without and with a bloom filter: rows read for all of them, and bytes of data files."""

    column: str
    lookups: int
    rows_without: int
    rows_with: int
    bytes_without: int
    bytes_with: int


@dataclass(frozen=True, slots=True)
class Tried:
    """A layout written to a trial's place: shares of bytes that the filters read before and after, and what writing took."""

    spec: tuple[Field, ...]
    order: Order | None
    share_before: float
    share_after: float
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    seconds: float
    is_sample: bool
    scale: float


@dataclass(frozen=True, slots=True)
class Sizing:
    """Rows and row groups against a writer's memory; ``heap_bytes`` is a task's share of an executor's heap, None if not known.

    ``open_files`` are those a task has open at once.
    """

    row_bytes: float
    columns: int
    row_group_bytes: int
    rows_a_group: float
    chunk_bytes: float
    open_files: int
    open_files_from: str
    heap_bytes: int | None

    @property
    def writer_bytes(self) -> int:
        """Row groups that a task holds in memory at once."""
        return self.row_group_bytes * self.open_files
