"""Find into which partitions of the current spec a rewrite puts the rows of each partition; from
metadata alone.
"""

import contextlib
import math
from collections.abc import Sequence

from icekit.common import frozen
from icekit.health.facts.files import Bucket, FileGroup
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import ROWS_PER_LOOK, expected_files, packed_files
from icekit.iceberg.definition import PartitionField, PartitionSpec
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.metadata import ROW_GROUP
from icekit.iceberg.partition import Partition, Scalar
from icekit.iceberg.where import UNITS, WITHOUT_FUNCTIONS, time_unit_start

# The most values of the next finer transform of time in a value.
_MOST_IN_ONE = {"year": 12, "month": 31, "day": 24}


@frozen
class RewriteGroup:
    """The data files whose rows go into the same partitions of the current spec: those of one of
    its partitions, or of older specs.

    ``max_partitions_out`` is the most partitions that the rows of one of the ``groups`` go to (1 in
    the current spec); None if only the number of rows limits it. ``has_older_specs``: the files are
    of older specs.
    """

    groups: tuple[FileGroup, ...]
    max_partitions_out: int | None = 1
    has_older_specs: bool = False
    row_group_bytes: int = 128 * 2**20

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions that the files are in now."""
        return tuple(group.partition for group in self.groups)

    @property
    def has_exact_partition_count(self) -> bool:
        """Whether the number of partitions is known, and not only its maximum."""
        return self.max_partitions_out == 1

    def files_out(self, buckets: Sequence[Bucket], target_bytes: int) -> int:
        """The files that a rewrite of some of the files leaves: about, by how Iceberg packs them,
        for one partition, at most for several.
        """
        size_in_bytes = sum(bucket.size_in_bytes for bucket in buckets)
        if not size_in_bytes:
            return 0
        if self.has_exact_partition_count:
            # Those that move are shuffled.
            expected_file_count = expected_files(size_in_bytes, target_bytes)
            return (
                expected_file_count
                if self.has_older_specs
                else packed_files(buckets, target_bytes, self.row_group_bytes)
            )
        # A row each, or one file in each partition and another wherever the target size is reached.
        record_count = sum(bucket.record_count for bucket in buckets)
        max_file_count = (
            record_count
            if self.max_partitions_out is None
            else self.max_partitions_out * len(self.groups) + size_in_bytes // target_bytes
        )
        return max(1, min(record_count, max_file_count))


def rewrite_groups(facts: TableFacts) -> tuple[RewriteGroup, ...]:
    """The data files that rewrites combine. Those of an older spec go into the current one, however
    they were partitioned.
    """
    rewrites: list[RewriteGroup] = []
    row_group_bytes = facts.int_setting(ROW_GROUP)
    older_groups_by_values: dict[tuple[object, ...], list[FileGroup]] = {}
    for file_group in facts.of_kind(Kind.DATA):
        if file_group.partition.spec_id == facts.default_spec_id:
            rewrites.append(RewriteGroup((file_group,), row_group_bytes=row_group_bytes))
        else:
            # Files of one older partition are not split, so values that are not known are those of
            # the partition itself.
            current_values = values_in_spec(
                facts.spec(file_group.partition.spec_id), file_group.partition, facts.default_spec
            )
            key = current_values if None not in current_values else (file_group.partition,)
            older_groups_by_values.setdefault(key, []).append(file_group)
    for older_groups in older_groups_by_values.values():
        older_specs = {facts.spec(file_group.partition.spec_id) for file_group in older_groups}
        max_partition_counts = [most_partitions(spec, facts.default_spec) for spec in older_specs]
        max_partitions = (
            None
            if None in max_partition_counts
            else max(
                partition_count
                for partition_count in max_partition_counts
                if partition_count is not None
            )
        )
        rewrites.append(RewriteGroup(tuple(older_groups), max_partitions, has_older_specs=True))
    return tuple(rewrites)


# What a Parquet writer holds of a column before it compresses it (write.parquet.page-size-bytes);
# until then it takes the rows for as large as they are uncompressed.
_PAGE_BYTES = 2**20


def most_output_partitions(
    older_spec: PartitionSpec, current_spec: PartitionSpec, partition_count: int, row_count: int
) -> int:
    """The most partitions of the current spec that hold rows of so many partitions of another."""
    outputs_per_partition = (
        1
        if older_spec.spec_id == current_spec.spec_id
        else most_partitions(older_spec, current_spec)
    )
    return (
        row_count
        if outputs_per_partition is None
        else min(row_count, outputs_per_partition * partition_count)
    )


def is_separable_by_filter(older_spec: PartitionSpec, current_spec: PartitionSpec) -> bool:
    """Whether a filter for one partition of an older spec selects no file of the current spec that
    holds only rows of earlier ones, in their order.

    Such a file is told by its partition, if the current spec has the same fields, or by the bounds
    of a single column.
    """
    current_transforms = {
        (field.source_id, field.transform) for field in current_spec.active_fields
    }
    older_fields = older_spec.active_fields
    return all(
        (field.source_id, field.transform) in current_transforms for field in older_fields
    ) or (
        len(older_fields) == 1
        and older_fields[0].transform in WITHOUT_FUNCTIONS
        and not current_spec.is_unpartitioned
    )


def most_rolled_files(
    size_in_bytes: int, row_count: int, max_file_bytes: int, column_count: int
) -> int:
    """The most files that a writer ends because they have reached their largest size."""
    buffered_bytes = column_count * _PAGE_BYTES
    if max_file_bytes <= 2 * buffered_bytes:
        return row_count // ROWS_PER_LOOK
    return size_in_bytes // (max_file_bytes - buffered_bytes)


def most_partitions(older_spec: PartitionSpec, current_spec: PartitionSpec) -> int | None:
    """The most partitions of the current spec that hold rows of one partition of an older spec;
    None if the specs do not limit it.
    """
    max_partition_count = 1
    for current_field in current_spec.active_fields:
        max_value_counts = [
            _most_values(older_field, current_field)
            for older_field in older_spec.active_fields
            if older_field.source_id == current_field.source_id
        ]
        if current_field.bucket_count:
            max_value_counts.append(current_field.bucket_count + 1)
        finite_counts = [n for n in max_value_counts if n is not None]
        if not finite_counts:
            return None
        max_partition_count *= min(finite_counts)
    return max_partition_count


def values_in_spec(
    older_spec: PartitionSpec, partition: Partition, current_spec: PartitionSpec
) -> tuple[tuple[object, ...] | None, ...]:
    """What is known of the current spec's values of all rows of an older partition: equal for equal
    values; None for a field without one value.
    """
    return tuple(
        next(
            (
                _derived_value(older_field, older_value, current_field)
                for older_field, older_value in zip(
                    older_spec.fields, partition.values, strict=True
                )
                if older_field.source_id == current_field.source_id
                and _most_values(older_field, current_field) == 1
            ),
            None,
        )
        for current_field in current_spec.active_fields
    )


def _most_values(older_field: PartitionField, current_field: PartitionField) -> int | None:
    """The most values of a field in one value of another field of the same column; None without a
    limit.
    """
    if older_field.transform in (current_field.transform, "identity"):
        return 1
    if older_field.transform in UNITS and current_field.transform in UNITS:
        older_unit_index = UNITS.index(older_field.transform)
        current_unit_index = UNITS.index(current_field.transform)
        return math.prod(_MOST_IN_ONE[unit] for unit in UNITS[older_unit_index:current_unit_index])
    if older_field.bucket_count and current_field.bucket_count:
        return (
            current_field.bucket_count
            if older_field.bucket_count % current_field.bucket_count
            else 1
        )
    return None


def _derived_value(
    older_field: PartitionField, older_value: Scalar, current_field: PartitionField
) -> tuple[object, ...]:
    """The field's own value where it is easily computed; else what it is computed from, which tells
    fewer values apart as equal.
    """
    if older_value is None:
        return (None,)
    time_unit = "day" if older_field.result_type == "date" else older_field.transform
    if isinstance(older_value, int) and time_unit in UNITS and current_field.transform in UNITS:
        # Times before year 1 or after 9999 have no calendar here.
        with contextlib.suppress(ValueError, OverflowError):
            return time_unit_start(time_unit, older_value).timetuple()[
                : UNITS.index(current_field.transform) + 1
            ]
    if isinstance(older_value, int) and older_field.bucket_count:
        return (older_value % current_field.bucket_count,)
    return older_field.transform, older_value
