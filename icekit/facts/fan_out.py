"""Find into which partitions of the current spec a rewrite puts the rows of each partition; from
metadata alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from icekit.facts.definition import PartitionField, PartitionSpec
from icekit.facts.files import FileGroup, Kind, Partition, Scalar
from icekit.facts.model import TableFacts
from icekit.facts.rollup import expected_files
from icekit.facts.where import start_of

# Transforms of time, the coarsest first, with the most values of the next finer one in a value.
_UNITS = ("year", "month", "day", "hour")
_MOST_IN_ONE = {"year": 12, "month": 31, "day": 24}


@dataclass(frozen=True, slots=True)
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
        most = max(
            (
                most_partitions(facts.spec(g.partition.spec_id), facts.default_spec) or math.inf
                for g in several
            ),
        )
        rewrites.append(RewriteGroup(tuple(several), None if math.isinf(most) else int(most)))
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
) -> tuple[tuple[Scalar, ...] | None, ...]:
    """What is known of the current spec's values of all rows of an older partition: equal for equal
    values; None for a field without one value.
    """
    pairs = list(zip(older.fields, partition.values, strict=True))
    values_known: list[tuple[Scalar, ...] | None] = []
    for field in current.active_fields:
        same = [
            (before, value)
            for before, value in pairs
            if before.source_id == field.source_id and before.transform != "void"
        ]
        values = [
            _value(before, value, field)
            for before, value in same
            if _most_values(before, field) == 1
        ]
        values_known.append(min(values, key=len, default=None))
    return tuple(values_known)


def _most_values(before: PartitionField, field: PartitionField) -> int | None:
    """The most values of a field in one value of another field of the same column; None without a
    limit.
    """
    if before.transform in (field.transform, "identity"):
        return 1
    if before.transform in _UNITS and field.transform in _UNITS:
        first, last = _UNITS.index(before.transform), _UNITS.index(field.transform)
        return math.prod(_MOST_IN_ONE[unit] for unit in _UNITS[first:last])
    if before.buckets and field.buckets:
        return field.buckets if before.buckets % field.buckets else 1
    return None


def _value(before: PartitionField, value: Scalar, field: PartitionField) -> tuple[Scalar, ...]:
    """The field's own value where it is easily computed; else what it is computed from, which tells
    fewer values apart as equal.
    """
    if before.transform == field.transform or value is None:
        return (value,)
    if isinstance(value, int) and before.transform in _UNITS:
        return (_coarser(before.transform, value, field.transform),)
    if isinstance(value, int) and before.result_type == "date" and field.transform in _UNITS[:3]:
        return (_coarser("day", value, field.transform),)
    if isinstance(value, int) and before.buckets:
        return (value % field.buckets,)
    return before.transform, value


def _coarser(unit: str, value: int, wanted: str) -> int:
    """Hours, days or months since 1970 in a coarser unit."""
    if unit == "hour":
        unit, value = "day", value // 24
    if unit == wanted:
        return value
    if unit == "day":
        start = start_of(unit, value)
        value = (start.year - 1970) * 12 + start.month - 1
    return value // 12 if wanted == "year" else value
