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
# By how much a split may be larger than its share of the bytes
# (SizeBasedFileRewritePlanner.SPLIT_OVERHEAD).
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
    expected_count = expected_files(total_bytes, target_bytes)
    if expected_count == 1:
        return 1
    max_task_bytes = target_bytes + (max_file_size(target_bytes) - target_bytes) // 2
    task_bytes = max(
        target_bytes, min(total_bytes // expected_count + _SPLIT_OVERHEAD, max_task_bytes)
    )
    if any(bucket.max_bytes > task_bytes for bucket in buckets):
        # Only its footer says where a file can be split.
        return expected_count
    task_count = _packed_task_count(buckets, task_bytes, row_group_bytes)
    if task_count <= expected_count:
        return task_count
    return max(
        expected_count,
        _packed_task_count(buckets, max(task_bytes, int(_FULL * max_task_bytes)), row_group_bytes),
    )


def _packed_task_count(buckets: Sequence[Bucket], task_bytes: int, row_group_bytes: int) -> int:
    """The tasks of at most so many bytes that hold files, the largest first."""
    sizes_and_counts: list[tuple[float, int]] = []
    for bucket in buckets:
        row_groups_per_file, rest_bytes_per_file = divmod(
            bucket.size_in_bytes / bucket.file_count, row_group_bytes
        )
        sizes_and_counts.append((row_group_bytes, int(row_groups_per_file) * bucket.file_count))
        sizes_and_counts.append((rest_bytes_per_file, bucket.file_count))
    # How many tasks have how many bytes free.
    open_tasks: list[tuple[int, float]] = []
    for piece_bytes, pieces_left in sorted(sizes_and_counts, reverse=True):
        next_open_tasks: list[tuple[int, float]] = []
        for task_count, free_bytes in (*open_tasks, (pieces_left, float(task_bytes))):
            pieces_per_task = int(free_bytes // piece_bytes) if piece_bytes else pieces_left
            full_task_count = (
                min(task_count, pieces_left // pieces_per_task) if pieces_per_task else 0
            )
            unplaced_piece_count = (
                pieces_left - full_task_count * pieces_per_task
                if full_task_count < task_count
                else 0
            )
            last_task_piece_count = min(unplaced_piece_count, pieces_per_task)
            untouched_task_count = (
                task_count - full_task_count - (1 if last_task_piece_count else 0)
            )
            if full_task_count:
                next_open_tasks.append(
                    (full_task_count, free_bytes - pieces_per_task * piece_bytes)
                )
            if last_task_piece_count:
                next_open_tasks.append((1, free_bytes - last_task_piece_count * piece_bytes))
            if untouched_task_count and free_bytes < task_bytes:
                next_open_tasks.append((untouched_task_count, free_bytes))
            pieces_left -= full_task_count * pieces_per_task + last_task_piece_count
        open_tasks = next_open_tasks
    return max(1, sum(task_count for task_count, _ in open_tasks))


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
    buckets_by_edge: dict[int, list[Bucket]] = defaultdict(list)
    for group in facts.of_kind(Kind.DATA):
        for bucket in group.buckets:
            buckets_by_edge[lower_edge_of(bucket.min_bytes, edges)].append(bucket)
    if not buckets_by_edge:
        return ()
    shown_sizes = (*buckets_by_edge, *size_range)
    first_edge = lower_edge_of(min(shown_sizes), edges)
    last_edge = lower_edge_of(max(shown_sizes), edges)
    bars = []
    for lower_edge, upper_edge in zip_longest(edges, edges[1:]):
        if first_edge <= lower_edge <= last_edge:
            bar_total = Totals.of_buckets(buckets_by_edge[lower_edge])
            bars.append(
                HistogramBar(lower_edge, upper_edge, bar_total.file_count, bar_total.size_in_bytes)
            )
    return tuple(bars)


@frozen
class DeleteRatio:
    """Deletes compared with data, in one partition or the entire table: the totals of each kind,
    in the order of the kinds.

    Ratios are delete files per data file and delete records per data record; None without
    data.
    """

    totals_by_kind: Mapping[Kind, Totals]

    @property
    def delete_record_count(self) -> int:
        """Delete records of all three kinds."""
        return sum(self.totals_by_kind[kind].record_count for kind in DELETE_KINDS)

    @property
    def by_files(self) -> float | None:
        """Delete files and deletion vectors per data file."""
        data_file_count = self.totals_by_kind[Kind.DATA].file_count
        return (
            sum(self.totals_by_kind[kind].file_count for kind in DELETE_KINDS) / data_file_count
            if data_file_count
            else None
        )

    @property
    def by_records(self) -> float | None:
        """Delete records per data record."""
        data_record_count = self.totals_by_kind[Kind.DATA].record_count
        return self.delete_record_count / data_record_count if data_record_count else None


def delete_ratio(facts: TableFacts) -> DeleteRatio:
    """Deletes compared with data, for the entire table."""
    return DeleteRatio({kind: facts.total(kind) for kind in Kind})


def delete_ratios(facts: TableFacts) -> dict[Partition, DeleteRatio]:
    """Deletes compared with data, for each partition with deletes; highest ratio by records
    first.
    """
    totals_by_partition: dict[Partition, dict[Kind, Totals]] = {}
    for group in facts.groups:
        totals_by_kind = totals_by_partition.setdefault(
            group.partition, dict.fromkeys(Kind, Totals())
        )
        totals_by_kind[group.kind] = Totals.of_groups((group,))
    ratios_by_partition = {
        partition: DeleteRatio(totals_by_kind)
        for partition, totals_by_kind in totals_by_partition.items()
        if any(totals_by_kind[kind].file_count for kind in DELETE_KINDS)
    }

    def order(partition: Partition) -> tuple[object, ...]:
        record_ratio = ratios_by_partition[partition].by_records
        return record_ratio is not None, -(record_ratio or 0), sort_key(partition)

    return {
        partition: ratios_by_partition[partition]
        for partition in sorted(ratios_by_partition, key=order)
    }


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
    min_sequence_distance = 1 if facts.sequence_width == 1 else 0
    global_delete_counts = [
        s
        for p, partition_counts in counts_by_partition.items()
        if facts.spec(p.spec_id).is_unpartitioned
        for s in partition_counts
    ]
    for partition, partition_counts in counts_by_partition.items():
        is_unpartitioned = facts.spec(partition.spec_id).is_unpartitioned
        deletes_newest_first = sorted(
            global_delete_counts if is_unpartitioned else partition_counts + global_delete_counts,
            key=lambda s: -s.sequence_number,
        )
        newer_record_count = newer_file_count = delete_index = 0
        data_file_count = data_record_count = well_sized_file_count = well_sized_bytes = (
            record_loads
        ) = max_deletes_per_file = file_opens = 0
        for data_counts in sorted(partition_counts, key=lambda s: -s.sequence_number):
            min_delete_sequence = data_counts.sequence_number + min_sequence_distance
            while (
                delete_index < len(deletes_newest_first)
                and deletes_newest_first[delete_index].sequence_number >= min_delete_sequence
            ):
                newer_record_count += deletes_newest_first[
                    delete_index
                ].equality_delete_record_count
                newer_file_count += deletes_newest_first[delete_index].equality_delete_file_count
                delete_index += 1
            applied_record_count = newer_record_count - data_counts.ruled_out_record_count
            if applied_record_count > 0 and data_counts.data_file_count:
                data_file_count += data_counts.data_file_count
                data_record_count += data_counts.data_record_count
                well_sized_file_count += data_counts.well_sized_file_count
                well_sized_bytes += data_counts.well_sized_bytes
                record_loads += applied_record_count * data_counts.data_file_count
                file_opens += (
                    newer_file_count - data_counts.ruled_out_file_count
                ) * data_counts.data_file_count
                max_deletes_per_file = max(max_deletes_per_file, applied_record_count)
        if data_file_count:
            yield AppliedEqualityDeletes(
                partition,
                data_file_count,
                data_record_count,
                well_sized_file_count,
                well_sized_bytes,
                max_deletes_per_file,
                record_loads,
                file_opens,
            )


def sequences_by_partition(facts: TableFacts) -> dict[Partition, list[SequenceCounts]]:
    """The sequence counts, by partition."""
    counts_by_partition: dict[Partition, list[SequenceCounts]] = {}
    for sequence_counts in facts.sequences:
        counts_by_partition.setdefault(sequence_counts.partition, []).append(sequence_counts)
    return counts_by_partition


#: TableProperties.SPLIT_SIZE_DEFAULT and SPLIT_OPEN_FILE_COST_DEFAULT.
SPLIT_BYTES = 128 * 2**20
OPEN_FILE_COST = 4 * 2**20


def split_bytes(facts: TableFacts) -> int:
    """The bytes that one read task takes."""
    return number_property(facts.properties, "read.split.target-size", SPLIT_BYTES)


def open_file_cost(facts: TableFacts) -> int:
    """The bytes that Iceberg counts for opening a file when it packs read tasks."""
    return number_property(facts.properties, "read.split.open-file-cost", OPEN_FILE_COST)
