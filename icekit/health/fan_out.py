"""Find into which partitions of the current spec a rewrite puts the rows of each partition; from
metadata alone.
"""

import contextlib
import math

from icekit.common import frozen
from icekit.health.definition import PartitionField, PartitionSpec
from icekit.health.files import FileGroup, Kind, Partition, Scalar
from icekit.health.model import TableFacts
from icekit.health.rollup import expected_files
from icekit.health.where import UNITS, start_of

# The most values of the next finer transform of time in a value.
_MOST_IN_ONE = {"year": 12, "month": 31, "day": 24}


@frozen
class RewriteGroup:
    """The data files whose rows go into the same partitions of the current spec: those of one of
    its partitions, or of older specs.

    ``partitions_out`` is the most partitions that the rows of one of the ``groups`` go to (1 in the
    current spec); None if only the number of rows limits it.
    """

    groups: tuple[FileGroup, ...]
    partitions_out: int | None = 1

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions that the files are in now."""
        return tuple(group.partition for group in self.groups)

    @property
    def is_certain(self) -> bool:
        """Whether the number of partitions is known, and not only its maximum."""
        return self.partitions_out == 1

    def files_out(self, size_in_bytes: int, rows: int, target_bytes: int) -> int:
        """The files that a rewrite of some of the files leaves: exactly by Iceberg's rule for one
        partition, at most for several.
        """
        if not size_in_bytes or self.is_certain:
            return expected_files(size_in_bytes, target_bytes) if size_in_bytes else 0
        # A row each, or one file in each partition and another wherever the target size is reached.
        most = (
            rows
            if self.partitions_out is None
            else self.partitions_out * len(self.groups) + size_in_bytes // target_bytes
        )
        return max(1, min(rows, most))


def rewrite_groups(facts: TableFacts) -> tuple[RewriteGroup, ...]:
    """The data files that rewrites combine. Those of an older spec go into the current one, however
    they were partitioned.
    """
    rewrites: list[RewriteGroup] = []
    older: dict[tuple[object, ...], list[FileGroup]] = {}
    for group in facts.of_kind(Kind.DATA):
        if group.partition.spec_id == facts.default_spec_id:
            rewrites.append(RewriteGroup((group,)))
        else:
            # Files of one older partition are not split, so values that are not known are those of
            # the partition itself.
            known = values_of(
                facts.spec(group.partition.spec_id), group.partition, facts.default_spec
            )
            key = known if None not in known else (group.partition,)
            older.setdefault(key, []).append(group)
    for several in older.values():
        specs = {facts.spec(group.partition.spec_id) for group in several}
        limits = [most_partitions(spec, facts.default_spec) for spec in specs]
        most = None if None in limits else max(limit for limit in limits if limit is not None)
        rewrites.append(RewriteGroup(tuple(several), most))
    return tuple(rewrites)


def most_partitions(older: PartitionSpec, current: PartitionSpec) -> int | None:
    """The most partitions of the current spec that hold rows of one partition of an older spec;
    None if the specs do not limit it.
    """
    most = 1
    for field in current.active_fields:
        several = [
            _most_values(before, field)
            for before in older.active_fields
            if before.source_id == field.source_id
        ]
        if field.buckets:
            several.append(field.buckets + 1)
        known = [n for n in several if n is not None]
        if not known:
            return None
        most *= min(known)
    return most


def values_of(
    older: PartitionSpec, partition: Partition, current: PartitionSpec
) -> tuple[tuple[object, ...] | None, ...]:
    """What is known of the current spec's values of all rows of an older partition: equal for equal
    values; None for a field without one value.
    """
    return tuple(
        next(
            (
                _value(before, value, field)
                for before, value in zip(older.fields, partition.values, strict=True)
                if before.source_id == field.source_id and _most_values(before, field) == 1
            ),
            None,
        )
        for field in current.active_fields
    )


def _most_values(before: PartitionField, field: PartitionField) -> int | None:
    """The most values of a field in one value of another field of the same column; None without a
    limit.
    """
    if before.transform in (field.transform, "identity"):
        return 1
    if before.transform in UNITS and field.transform in UNITS:
        first, last = UNITS.index(before.transform), UNITS.index(field.transform)
        return math.prod(_MOST_IN_ONE[unit] for unit in UNITS[first:last])
    if before.buckets and field.buckets:
        return field.buckets if before.buckets % field.buckets else 1
    return None


def _value(before: PartitionField, value: Scalar, field: PartitionField) -> tuple[object, ...]:
    """The field's own value where it is easily computed; else what it is computed from, which tells
    fewer values apart as equal.
    """
    if value is None:
        return (None,)
    unit = "day" if before.result_type == "date" else before.transform
    if isinstance(value, int) and unit in UNITS and field.transform in UNITS:
        # Times before year 1 or after 9999 have no calendar here.
        with contextlib.suppress(ValueError, OverflowError):
            return start_of(unit, value).timetuple()[: UNITS.index(field.transform) + 1]
    if isinstance(value, int) and before.buckets:
        return (value % field.buckets,)
    return before.transform, value
