"""Turn aggregated rows into file groups, size histograms, delete ratios and worst partitions; used
by both collectors.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from icekit.common import frozen
from icekit.health.facts.files import Bucket, FileGroup, SequenceCounts, Totals
from icekit.health.facts.model import TableFacts
from icekit.iceberg import values
from icekit.iceberg.file_kind import DELETE_KINDS, Kind
from icekit.iceberg.metadata import number
from icekit.iceberg.partition import Partition

# rewrite_data_files leaves a file alone when 0.75 x target <= size <= 1.8 x target
# (SizeBasedFileRewritePlanner, MIN_FILE_SIZE_DEFAULT_RATIO and MAX_FILE_SIZE_DEFAULT_RATIO).
MIN_SIZE_RATIO = 0.75
MAX_SIZE_RATIO = 1.8
#: A writer looks at the size of its file after each thousand rows
# (BaseRollingFileWriter.ROWS_DIVISOR).
ROWS_PER_LOOK = 1000
# What a split may be larger than its share of the bytes (SizeBasedFileRewritePlanner.SPLIT_OVERHEAD).
_SPLIT_OVERHEAD = 5 * 1024
# The share of the largest file to be written that a task may have (``Splits.FULL`` in Java).
_FULL = 0.86
_RATIOS = (*(2.0**-k for k in range(14, 0, -1)), 1.0, *(2.0**k for k in range(2, 8)))


def edges(target_bytes: int, ratios: Iterable[float] = ()) -> tuple[int, ...]:
    """Inclusive lower edges of the size buckets, ascending from 0.

    The edges are halves and doubles of the target, Iceberg's two limits, and the ``ratios`` of
    the thresholds, so that a count on either side of a limit is exact.
    """
    edge_set = {0}
    edge_set.update(int(target_bytes * ratio) for ratio in _RATIOS)
    for ratio in (MIN_SIZE_RATIO, MAX_SIZE_RATIO, *ratios):
        # A rewrite leaves a file of exactly either limit alone; no bucket is a single byte.
        if ratio <= 1:
            edge_set.add(min_file_size(target_bytes, ratio))
        else:
            edge_set.discard(max_file_size(target_bytes, ratio))
            edge_set.add(max_file_size(target_bytes, ratio) + 1)
    return tuple(sorted(edge_set))


def min_file_size(target_bytes: int, ratio: float = MIN_SIZE_RATIO) -> int:
    """The smallest file size that a rewrite leaves alone, in bytes."""
    return int(target_bytes * ratio)


def max_file_size(target_bytes: int, ratio: float = MAX_SIZE_RATIO) -> int:
    """The largest file size that a rewrite leaves alone, in bytes."""
    return int(target_bytes * ratio)


def expected_files(size_in_bytes: int, target_bytes: int) -> int:
    """The number of files that a rewrite writes for ``size_in_bytes`` of data.

    A remainder becomes a separate file only if it is large enough not to be rewritten
    next time, or if spreading it would make the other files much too large
    (SizeBasedFileRewritePlanner.expectedOutputFiles).
    """
    if size_in_bytes < target_bytes:
        return 1
    whole, remainder = divmod(size_in_bytes, target_bytes)
    if remainder > MIN_SIZE_RATIO * target_bytes:
        return whole + 1
    return whole if size_in_bytes / whole < 1.1 * target_bytes else whole + 1


def packed_files(buckets: Sequence[Bucket], target_bytes: int, row_group_bytes: int) -> int:
    """About the number of tasks that a rewrite reads files in, each of which writes one file: as
    many as the bytes come to, if files fit so (``Splits`` in Java); a file is split by its row
    groups only.

    The order of the files is not known; in most orders it is as many as the largest first need.
    """
    total = sum(bucket.size_in_bytes for bucket in buckets)
    number = expected_files(total, target_bytes)
    if number == 1:
        return 1
    largest = target_bytes + (max_file_size(target_bytes) - target_bytes) // 2
    least = max(target_bytes, min(total // number + _SPLIT_OVERHEAD, largest))
    if any(bucket.max_bytes > least for bucket in buckets):
        # Only its footer says where a file can be split.
        return number
    tasks = _tasks(buckets, least, row_group_bytes)
    if tasks <= number:
        return tasks
    return max(number, _tasks(buckets, max(least, int(_FULL * largest)), row_group_bytes))


def _tasks(buckets: Sequence[Bucket], split: int, row_group_bytes: int) -> int:
    """The tasks of at most so many bytes that hold files, the largest first."""
    pieces: list[tuple[float, int]] = []
    for bucket in buckets:
        whole, remainder = divmod(bucket.size_in_bytes / bucket.file_count, row_group_bytes)
        pieces.append((row_group_bytes, int(whole) * bucket.file_count))
        pieces.append((remainder, bucket.file_count))
    # How many tasks have how many bytes free.
    tasks: list[tuple[int, float]] = []
    for size, pieces_left in sorted(pieces, reverse=True):
        packed: list[tuple[int, float]] = []
        for count, free in (*tasks, (pieces_left, float(split))):
            each = int(free // size) if size else pieces_left
            full = min(count, pieces_left // each) if each else 0
            rest_of_one = pieces_left - full * each if full < count else 0
            last = min(rest_of_one, each)
            is_open = count - full - (1 if last else 0)
            if full:
                packed.append((full, free - each * size))
            if last:
                packed.append((1, free - last * size))
            if is_open and free < split:
                packed.append((is_open, free))
            pieces_left -= full * each + last
        tasks = packed
    return max(1, sum(count for count, _ in tasks))


def bucket_of(size_in_bytes: int, bucket_edges: tuple[int, ...]) -> int:
    """The lower edge of the bucket that a size falls into."""
    return bucket_edges[bisect_right(bucket_edges, size_in_bytes) - 1]


def kind_of(content: int, file_format: str) -> Kind:
    """The kind of a file, from its content and format (deletion vectors are Puffin blobs)."""
    if content == 0:
        return Kind.DATA
    if content == 2:
        return Kind.EQUALITY_DELETES
    return Kind.DELETION_VECTORS if file_format.upper() == "PUFFIN" else Kind.POSITION_DELETES


def sort_key(partition: Partition) -> tuple[int, tuple[object, ...]]:
    """A total order over partitions, whatever their values are."""
    return partition.spec_id, tuple(map(values.sort_key, partition.values))


@frozen
class HistogramBar:
    """Files with ``lower_bytes <= size < upper_bytes``; the last bar is open (None)."""

    lower_bytes: int
    upper_bytes: int | None
    file_count: int
    size_in_bytes: int


def file_size_histogram(
    facts: TableFacts, edges: tuple[int, ...], reach: tuple[int, int]
) -> tuple[HistogramBar, ...]:
    """Data files by size, from the smallest bar in use to the largest; empty without files.

    ``edges`` are those of the facts, or others that no bucket crosses; empty bars extend to the
    sizes in ``reach``.
    """
    buckets: dict[int, list[Bucket]] = defaultdict(list)
    for group in facts.of_kind(Kind.DATA):
        for bucket in group.buckets:
            buckets[bucket_of(bucket.min_bytes, edges)].append(bucket)
    if not buckets:
        return ()
    sizes = (*buckets, *reach)
    first = bucket_of(min(sizes), edges)
    last = bucket_of(max(sizes), edges)
    bars = []
    for edge, upper in zip_longest(edges, edges[1:]):
        if first <= edge <= last:
            total = Totals.of_buckets(buckets[edge])
            bars.append(HistogramBar(edge, upper, total.file_count, total.size_in_bytes))
    return tuple(bars)


@frozen
class DeleteRatio:
    """Deletes compared with data, in one partition or the entire table: the totals of each kind,
    in the order of the kinds.

    Ratios are delete files per data file and delete records per data record; None without
    data.
    """

    totals: Mapping[Kind, Totals]

    @property
    def delete_record_count(self) -> int:
        """Delete records of all three kinds."""
        return sum(self.totals[kind].record_count for kind in DELETE_KINDS)

    @property
    def by_files(self) -> float | None:
        """Delete files and deletion vectors per data file."""
        data = self.totals[Kind.DATA].file_count
        return sum(self.totals[kind].file_count for kind in DELETE_KINDS) / data if data else None

    @property
    def by_records(self) -> float | None:
        """Delete records per data record."""
        data = self.totals[Kind.DATA].record_count
        return self.delete_record_count / data if data else None


def delete_ratio(facts: TableFacts) -> DeleteRatio:
    """Deletes compared with data, for the entire table."""
    return DeleteRatio({kind: facts.total(kind) for kind in Kind})


def delete_ratios(facts: TableFacts) -> dict[Partition, DeleteRatio]:
    """Deletes compared with data, for each partition with deletes; highest ratio by records
    first.
    """
    totals: dict[Partition, dict[Kind, Totals]] = {}
    for group in facts.groups:
        of_kinds = totals.setdefault(group.partition, dict.fromkeys(Kind, Totals()))
        of_kinds[group.kind] = Totals.of((group,))
    ratios = {
        partition: DeleteRatio(of_kinds)
        for partition, of_kinds in totals.items()
        if any(of_kinds[kind].file_count for kind in DELETE_KINDS)
    }

    def order(partition: Partition) -> tuple[object, ...]:
        by_records = ratios[partition].by_records
        return by_records is not None, -(by_records or 0), sort_key(partition)

    return {partition: ratios[partition] for partition in sorted(ratios, key=order)}


def worst_partitions(facts: TableFacts, limit: int = 20) -> tuple[FileGroup, ...]:
    """Partitions with the most data files beyond the number needed at the target size."""

    def excess(group: FileGroup) -> int:
        return group.file_count - expected_files(group.size_in_bytes, facts.target_bytes)

    return tuple(
        sorted(
            facts.of_kind(Kind.DATA),
            key=lambda g: (-excess(g), -g.file_count, sort_key(g.partition)),
        )[:limit]
    )


@frozen
class Applied:
    """The equality deletes that apply to the data of one partition, and how much data they apply
    to.

    At least one delete applies to each of the data files counted; ``loads`` counts each delete
    record once per data file that loads it, which is the real cost for readers, and ``opens`` each
    delete file once per data file that it is opened for.
    """

    partition: Partition
    data_file_count: int
    data_record_count: int
    well_sized_file_count: int
    well_sized_bytes: int
    max_deletes_per_file: int
    loads: int
    opens: int


def equality_deletes_applied(facts: TableFacts) -> Iterator[Applied]:
    """Find the equality deletes that apply in each partition: deletes with a higher sequence number
    whose key bounds meet those of the data.

    Deletes written under an unpartitioned spec apply to every partition (table spec,
    "Scan Planning"). Bounds tell what a scan reads, not which keys match: this is an upper bound.
    """
    by_partition = sequences_by_partition(facts)
    # Within a range of sequence numbers the order is not known, so deletes count as later.
    exact = 1 if facts.sequence_width == 1 else 0
    everywhere = [
        s
        for p, rows in by_partition.items()
        if facts.spec(p.spec_id).is_unpartitioned
        for s in rows
    ]
    for partition, rows in by_partition.items():
        is_global = facts.spec(partition.spec_id).is_unpartitioned
        deletes = sorted(
            everywhere if is_global else rows + everywhere, key=lambda s: -s.sequence_number
        )
        pending = pending_files = next_delete = 0
        files = records = well_files = well_bytes = loads = most_records = opens = 0
        for row in sorted(rows, key=lambda s: -s.sequence_number):
            least = row.sequence_number + exact
            while next_delete < len(deletes) and deletes[next_delete].sequence_number >= least:
                pending += deletes[next_delete].equality_delete_record_count
                pending_files += deletes[next_delete].equality_delete_file_count
                next_delete += 1
            reaching = pending - row.ruled_out_record_count
            if reaching > 0 and row.data_file_count:
                files += row.data_file_count
                records += row.data_record_count
                well_files += row.well_sized_file_count
                well_bytes += row.well_sized_bytes
                loads += reaching * row.data_file_count
                opens += (pending_files - row.ruled_out_file_count) * row.data_file_count
                most_records = max(most_records, reaching)
        if files:
            yield Applied(
                partition, files, records, well_files, well_bytes, most_records, loads, opens
            )


def sequences_by_partition(facts: TableFacts) -> dict[Partition, list[SequenceCounts]]:
    """The sequence counts, by partition."""
    rows: dict[Partition, list[SequenceCounts]] = {}
    for row in facts.sequences:
        rows.setdefault(row.partition, []).append(row)
    return rows


#: TableProperties.SPLIT_SIZE_DEFAULT and SPLIT_OPEN_FILE_COST_DEFAULT.
SPLIT_BYTES = 128 * 2**20
OPEN_FILE_COST = 4 * 2**20


def split_bytes(facts: TableFacts) -> int:
    """The bytes that one read task takes."""
    return number(facts.properties, "read.split.target-size", SPLIT_BYTES)


def open_file_cost(facts: TableFacts) -> int:
    """The bytes that Iceberg counts for opening a file when it packs read tasks."""
    return number(facts.properties, "read.split.open-file-cost", OPEN_FILE_COST)
