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

    ``partitions_out`` is the most partitions that the rows of one of the ``groups`` go to (1 in the
    current spec); None if only the number of rows limits it. ``has_older_specs``: the files are of
    older specs.
    """

    groups: tuple[FileGroup, ...]
    partitions_out: int | None = 1
    has_older_specs: bool = False
    row_group_bytes: int = 128 * 2**20

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions that the files are in now."""
        return tuple(group.partition for group in self.groups)

    @property
    def has_exact_partition_count(self) -> bool:
        """Whether the number of partitions is known, and not only its maximum."""
        return self.partitions_out == 1

    def files_out(self, buckets: Sequence[Bucket], target_bytes: int) -> int:
        """The files that a rewrite of some of the files leaves: about, by how Iceberg packs them,
        for one partition, at most for several.
        """
        size_in_bytes = sum(bucket.size_in_bytes for bucket in buckets)
        if not size_in_bytes:
            return 0
        if self.has_exact_partition_count:
            # Those that move are shuffled.
            expected_count = expected_files(size_in_bytes, target_bytes)
            return (
                expected_count
                if self.has_older_specs
                else packed_files(buckets, target_bytes, self.row_group_bytes)
            )
        # A row each, or one file in each partition and another wherever the target size is reached.
        record_count = sum(bucket.record_count for bucket in buckets)
        max_files = (
            record_count
            if self.partitions_out is None
            else self.partitions_out * len(self.groups) + size_in_bytes // target_bytes
        )
        return max(1, min(record_count, max_files))


def rewrite_groups(facts: TableFacts) -> tuple[RewriteGroup, ...]:
    """The data files that rewrites combine. Those of an older spec go into the current one, however
    they were partitioned.
    """
    rewrites: list[RewriteGroup] = []
    row_group_bytes = facts.int_setting(ROW_GROUP)
    groups_by_values: dict[tuple[object, ...], list[FileGroup]] = {}
    for group in facts.of_kind(Kind.DATA):
        if group.partition.spec_id == facts.default_spec_id:
            rewrites.append(RewriteGroup((group,), row_group_bytes=row_group_bytes))
        else:
            # Files of one older partition are not split, so values that are not known are those of
            # the partition itself.
            current_values = values_in_spec(
                facts.spec(group.partition.spec_id), group.partition, facts.default_spec
            )
            key = current_values if None not in current_values else (group.partition,)
            groups_by_values.setdefault(key, []).append(group)
    for older_groups in groups_by_values.values():
        specs = {facts.spec(group.partition.spec_id) for group in older_groups}
        partition_limits = [most_partitions(spec, facts.default_spec) for spec in specs]
        max_partitions = (
            None
            if None in partition_limits
            else max(limit for limit in partition_limits if limit is not None)
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
    targets_per_partition = (
        1
        if older_spec.spec_id == current_spec.spec_id
        else most_partitions(older_spec, current_spec)
    )
    return (
        row_count
        if targets_per_partition is None
        else min(row_count, targets_per_partition * partition_count)
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
    fields = older_spec.active_fields
    return all((field.source_id, field.transform) in current_transforms for field in fields) or (
        len(fields) == 1
        and fields[0].transform in WITHOUT_FUNCTIONS
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
    product = 1
    for field in current_spec.active_fields:
        value_counts = [
            _most_values(older_field, field)
            for older_field in older_spec.active_fields
            if older_field.source_id == field.source_id
        ]
        if field.bucket_count:
            value_counts.append(field.bucket_count + 1)
        known_counts = [n for n in value_counts if n is not None]
        if not known_counts:
            return None
        product *= min(known_counts)
    return product


def values_in_spec(
    older_spec: PartitionSpec, partition: Partition, current_spec: PartitionSpec
) -> tuple[tuple[object, ...] | None, ...]:
    """What is known of the current spec's values of all rows of an older partition: equal for equal
    values; None for a field without one value.
    """
    return tuple(
        next(
            (
                _derived_value(older_field, value, field)
                for older_field, value in zip(older_spec.fields, partition.values, strict=True)
                if older_field.source_id == field.source_id
                and _most_values(older_field, field) == 1
            ),
            None,
        )
        for field in current_spec.active_fields
    )


def _most_values(older_field: PartitionField, field: PartitionField) -> int | None:
    """The most values of a field in one value of another field of the same column; None without a
    limit.
    """
    if older_field.transform in (field.transform, "identity"):
        return 1
    if older_field.transform in UNITS and field.transform in UNITS:
        first_unit = UNITS.index(older_field.transform)
        last_unit = UNITS.index(field.transform)
        return math.prod(_MOST_IN_ONE[unit] for unit in UNITS[first_unit:last_unit])
    if older_field.bucket_count and field.bucket_count:
        return field.bucket_count if older_field.bucket_count % field.bucket_count else 1
    return None


def _derived_value(
    older_field: PartitionField, value: Scalar, field: PartitionField
) -> tuple[object, ...]:
    """The field's own value where it is easily computed; else what it is computed from, which tells
    fewer values apart as equal.
    """
    if value is None:
        return (None,)
    time_unit = "day" if older_field.result_type == "date" else older_field.transform
    if isinstance(value, int) and time_unit in UNITS and field.transform in UNITS:
        # Times before year 1 or after 9999 have no calendar here.
        with contextlib.suppress(ValueError, OverflowError):
            return time_unit_start(time_unit, value).timetuple()[: UNITS.index(field.transform) + 1]
    if isinstance(value, int) and older_field.bucket_count:
        return (value % field.bucket_count,)
    return older_field.transform, value
