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
from icekit.iceberg.metadata import number_property
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


def bucket_edges(target_bytes: int, ratios: Iterable[float] = ()) -> tuple[int, ...]:
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
    full_file_count, remaining_bytes = divmod(size_in_bytes, target_bytes)
    if remaining_bytes > MIN_SIZE_RATIO * target_bytes:
        return full_file_count + 1
    return (
        full_file_count
        if size_in_bytes / full_file_count < 1.1 * target_bytes
        else full_file_count + 1
    )


def packed_files(buckets: Sequence[Bucket], target_bytes: int, row_group_bytes: int) -> int:
    """About the number of tasks that a rewrite reads files in, each of which writes one file: as
    many as the bytes come to, if files fit so (``Splits`` in Java); a file is split by its row
    groups only.

    The order of the files is not known; in most orders it is as many as the largest first need.
    """
    total_bytes = sum(bucket.size_in_bytes for bucket in buckets)
    file_count = expected_files(total_bytes, target_bytes)
    if file_count == 1:
        return 1
    max_task_bytes = target_bytes + (max_file_size(target_bytes) - target_bytes) // 2
    task_bytes = max(target_bytes, min(total_bytes // file_count + _SPLIT_OVERHEAD, max_task_bytes))
    if any(bucket.max_bytes > task_bytes for bucket in buckets):
        # Only its footer says where a file can be split.
        return file_count
    task_count = _packed_task_count(buckets, task_bytes, row_group_bytes)
    if task_count <= file_count:
        return task_count
    return max(
        file_count,
        _packed_task_count(buckets, max(task_bytes, int(_FULL * max_task_bytes)), row_group_bytes),
    )


def _packed_task_count(buckets: Sequence[Bucket], task_bytes: int, row_group_bytes: int) -> int:
    """The tasks of at most so many bytes that hold files, the largest first."""
    pieces: list[tuple[float, int]] = []
    for bucket in buckets:
        row_group_count, rest_bytes = divmod(
            bucket.size_in_bytes / bucket.file_count, row_group_bytes
        )
        pieces.append((row_group_bytes, int(row_group_count) * bucket.file_count))
        pieces.append((rest_bytes, bucket.file_count))
    # How many tasks have how many bytes free.
    tasks: list[tuple[int, float]] = []
    for piece_bytes, pieces_left in sorted(pieces, reverse=True):
        next_tasks: list[tuple[int, float]] = []
        for task_count, free_bytes in (*tasks, (pieces_left, float(task_bytes))):
            pieces_per_task = int(free_bytes // piece_bytes) if piece_bytes else pieces_left
            full_task_count = (
                min(task_count, pieces_left // pieces_per_task) if pieces_per_task else 0
            )
            rest_count = (
                pieces_left - full_task_count * pieces_per_task
                if full_task_count < task_count
                else 0
            )
            last_task_pieces = min(rest_count, pieces_per_task)
            open_task_count = task_count - full_task_count - (1 if last_task_pieces else 0)
            if full_task_count:
                next_tasks.append((full_task_count, free_bytes - pieces_per_task * piece_bytes))
            if last_task_pieces:
                next_tasks.append((1, free_bytes - last_task_pieces * piece_bytes))
            if open_task_count and free_bytes < task_bytes:
                next_tasks.append((open_task_count, free_bytes))
            pieces_left -= full_task_count * pieces_per_task + last_task_pieces
        tasks = next_tasks
    return max(1, sum(task_count for task_count, _ in tasks))


def lower_edge_of(size_in_bytes: int, edges: tuple[int, ...]) -> int:
    """The lower edge of the bucket that a size falls into."""
    return edges[bisect_right(edges, size_in_bytes) - 1]


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
    facts: TableFacts, edges: tuple[int, ...], size_range: tuple[int, int]
) -> tuple[HistogramBar, ...]:
    """Data files by size, from the smallest bar in use to the largest; empty without files.

    ``edges`` are those of the facts, or others that no bucket crosses; empty bars extend to the
    sizes in ``size_range``.
    """
    buckets: dict[int, list[Bucket]] = defaultdict(list)
    for group in facts.of_kind(Kind.DATA):
        for bucket in group.buckets:
            buckets[lower_edge_of(bucket.min_bytes, edges)].append(bucket)
    if not buckets:
        return ()
    sizes = (*buckets, *size_range)
    first_edge = lower_edge_of(min(sizes), edges)
    last_edge = lower_edge_of(max(sizes), edges)
    bars = []
    for edge, next_edge in zip_longest(edges, edges[1:]):
        if first_edge <= edge <= last_edge:
            total = Totals.of_buckets(buckets[edge])
            bars.append(HistogramBar(edge, next_edge, total.file_count, total.size_in_bytes))
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
        data_file_count = self.totals[Kind.DATA].file_count
        return (
            sum(self.totals[kind].file_count for kind in DELETE_KINDS) / data_file_count
            if data_file_count
            else None
        )

    @property
    def by_records(self) -> float | None:
        """Delete records per data record."""
        data_record_count = self.totals[Kind.DATA].record_count
        return self.delete_record_count / data_record_count if data_record_count else None


def delete_ratio(facts: TableFacts) -> DeleteRatio:
    """Deletes compared with data, for the entire table."""
    return DeleteRatio({kind: facts.total(kind) for kind in Kind})


def delete_ratios(facts: TableFacts) -> dict[Partition, DeleteRatio]:
    """Deletes compared with data, for each partition with deletes; highest ratio by records
    first.
    """
    totals: dict[Partition, dict[Kind, Totals]] = {}
    for group in facts.groups:
        totals_by_kind = totals.setdefault(group.partition, dict.fromkeys(Kind, Totals()))
        totals_by_kind[group.kind] = Totals.of_groups((group,))
    ratios = {
        partition: DeleteRatio(totals_by_kind)
        for partition, totals_by_kind in totals.items()
        if any(totals_by_kind[kind].file_count for kind in DELETE_KINDS)
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
class AppliedEqualityDeletes:
    """The equality deletes that apply to the data of one partition, and how much data they apply
    to.

    At least one delete applies to each of the data files counted; ``record_loads`` counts each
    delete record once per data file that loads it, which is the real cost for readers, and
    ``file_opens`` each delete file once per data file that it is opened for.
    """

    partition: Partition
    data_file_count: int
    data_record_count: int
    well_sized_file_count: int
    well_sized_bytes: int
    max_deletes_per_file: int
    record_loads: int
    file_opens: int


def equality_deletes_applied(facts: TableFacts) -> Iterator[AppliedEqualityDeletes]:
    """Find the equality deletes that apply in each partition: deletes with a higher sequence number
    whose key bounds meet those of the data.

    Deletes written under an unpartitioned spec apply to every partition (table spec,
    "Scan Planning"). Bounds tell what a scan reads, not which keys match: this is an upper bound.
    """
    counts_by_partition = sequences_by_partition(facts)
    # Within a range of sequence numbers the order is not known, so deletes count as later.
    least_distance = 1 if facts.sequence_width == 1 else 0
    global_deletes = [
        s
        for p, rows in counts_by_partition.items()
        if facts.spec(p.spec_id).is_unpartitioned
        for s in rows
    ]
    for partition, rows in counts_by_partition.items():
        is_global = facts.spec(partition.spec_id).is_unpartitioned
        deletes = sorted(
            global_deletes if is_global else rows + global_deletes, key=lambda s: -s.sequence_number
        )
        pending_records = pending_files = delete_index = 0
        file_count = record_count = well_sized_count = well_sized_bytes = record_loads = (
            max_records
        ) = file_opens = 0
        for row in sorted(rows, key=lambda s: -s.sequence_number):
            least_sequence = row.sequence_number + least_distance
            while (
                delete_index < len(deletes)
                and deletes[delete_index].sequence_number >= least_sequence
            ):
                pending_records += deletes[delete_index].equality_delete_record_count
                pending_files += deletes[delete_index].equality_delete_file_count
                delete_index += 1
            applied_records = pending_records - row.ruled_out_record_count
            if applied_records > 0 and row.data_file_count:
                file_count += row.data_file_count
                record_count += row.data_record_count
                well_sized_count += row.well_sized_file_count
                well_sized_bytes += row.well_sized_bytes
                record_loads += applied_records * row.data_file_count
                file_opens += (pending_files - row.ruled_out_file_count) * row.data_file_count
                max_records = max(max_records, applied_records)
        if file_count:
            yield AppliedEqualityDeletes(
                partition,
                file_count,
                record_count,
                well_sized_count,
                well_sized_bytes,
                max_records,
                record_loads,
                file_opens,
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
    return number_property(facts.properties, "read.split.target-size", SPLIT_BYTES)


def open_file_cost(facts: TableFacts) -> int:
    """The bytes that Iceberg counts for opening a file when it packs read tasks."""
    return number_property(facts.properties, "read.split.open-file-cost", OPEN_FILE_COST)
