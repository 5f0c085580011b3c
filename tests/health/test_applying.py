"""Which deletes apply to nothing, and what manifests contradict, without Spark: manifests of a
test's own.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest

from icekit.health.facts import local
from icekit.health.facts.counts import Rollup
from icekit.health.facts.integrity import DeleteState
from icekit.health.facts.rollup import bucket_edges
from icekit.health.facts.summaries import FieldRange, narrow_summaries
from icekit.iceberg.definition import PartitionField, PartitionSpec
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.key_bounds import KeyColumn
from icekit.iceberg.partition import Partition
from tests.avro import PAIR, array_type, manifest, optional
from tests.factories import TARGET

BY_DAY = PartitionSpec(0, (PartitionField(1000, "day", "identity", 1, "day", "int"),))
GLOBAL = PartitionSpec(1, ())
VOID = PartitionSpec(2, (PartitionField(1000, "day", "void", 1, "day", "int"),))
SPECS = {spec.spec_id: spec for spec in (BY_DAY, GLOBAL, VOID)}

OF_FILE: dict[str, Any] = {
    "referenced_data_file": optional("string"),
    "content_offset": optional("long"),
    "content_size_in_bytes": optional("long"),
    "lower_bounds": optional(array_type(PAIR)),
    "upper_bounds": optional(array_type("pair")),
    "equality_ids": optional(array_type("int")),
}


class Lists:
    """Manifests of a snapshot; each has one or several files of one sequence number."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.contents: dict[str, bytes] = {}

    def add(
        self,
        sequence: int,
        *paths: str,
        day: int | None = 1,
        spec: PartitionSpec = BY_DAY,
        content: int = 0,
        **more: Any,
    ) -> Lists:
        entries = [
            {
                "status": 1,
                "data_file": {
                    "content": content,
                    "file_path": path,
                    "file_format": "PARQUET",
                    "record_count": 10,
                    "file_size_in_bytes": 1000,
                    "partition": {field.name: day for field in spec.fields},
                    **more,
                },
            }
            for path in paths
        ]
        name, partition = f"m{len(self.records)}", {f.name: optional("int") for f in spec.fields}
        self.contents[name] = manifest(partition, entries, **OF_FILE)
        self.records.append(
            {
                "manifest_path": name,
                "partition_spec_id": spec.spec_id,
                "content": int(content > 0),
                "sequence_number": sequence,
                "added_snapshot_id": 100 + sequence,
                "added_files_count": len(paths),
                "existing_files_count": 0,
            }
        )
        return self

    def deletes(
        self,
        sequence: int,
        of: str | None = None,
        *,
        content: int = 1,
        path: str = "d",
        **more: Any,
    ) -> Lists:
        return self.add(sequence, path, content=content, referenced_data_file=of, **more)

    def keys(self, sequence: int, low: int, high: int, *, path: str = "", **more: Any) -> Lists:
        """A file with bounds of the key, column 7: of data, or equality deletes if a ``content``
        says so.
        """
        lower, upper = (
            [{"key": 3, "value": b"x" * 64}, {"key": 7, "value": struct.pack("<q", each)}]
            for each in (low, high)
        )
        ids = [7] if more.get("content") == 2 else None
        return self.add(
            sequence,
            path or f"{sequence}-{low}",
            lower_bounds=lower,
            upper_bounds=upper,
            equality_ids=ids,
            **more,
        )

    def counted(self, width: int = 1) -> Rollup:
        columns = {7: KeyColumn("long", True, "k")}
        rollup = Rollup(
            self.records, SPECS, columns, bucket_edges(TARGET), TARGET, sequence_width=width
        )
        local.roll_up(rollup, self.contents.__getitem__)
        return rollup


def states(lists: Lists) -> list[tuple[Kind, DeleteState, int]]:
    return [
        (each.kind, each.state, each.file_count) for each in lists.counted().unapplied_deletes()
    ]


POSITION, EQUALITY = Kind.POSITION_DELETES, Kind.EQUALITY_DELETES
DANGLING = [(POSITION, DeleteState.DANGLING, 1)]


@pytest.mark.parametrize(
    ("content", "sequence", "is_dangling"),
    [(1, 2, True), (1, 3, False), (2, 2, True), (2, 3, True), (2, 4, False)],
)
def test_deletes_dangle_if_all_data_of_their_partition_is_too_new(
    content: int, sequence: int, is_dangling: bool
) -> None:
    """Position deletes apply to data of the same sequence number, equality deletes do not."""
    lists = Lists().add(3, "a").add(1, "b", day=2).deletes(sequence, content=content)
    kind = (POSITION, EQUALITY)[content - 1]

    assert states(lists) == ([(kind, DeleteState.DANGLING, 1)] if is_dangling else [])


@pytest.mark.parametrize("spec", [GLOBAL, VOID])
def test_equality_deletes_of_an_unpartitioned_spec_dangle_only_if_older_than_all_data(
    spec: PartitionSpec,
) -> None:
    lists = Lists().add(3, "a", spec=spec, day=None).add(1, "b")

    assert states(lists.deletes(2, content=2, spec=spec, day=None)) == []
    # Position deletes apply to data of their own spec only.
    assert states(lists.deletes(2, path="p", spec=spec, day=None)) == DANGLING
    assert states(lists.deletes(1, content=2, path="e", spec=spec, day=None))[1:] == [
        (EQUALITY, DeleteState.DANGLING, 1)
    ]


@pytest.mark.parametrize(
    ("named", "options", "expected"),
    [
        ("s3://b/x/a", {}, None),
        ("s3://b/x/gone", {}, DeleteState.DANGLING),
        ("s3://b/x/newer", {}, DeleteState.DANGLING),
        ("s3://b/x/a", {"day": 2}, DeleteState.MISFILED),
        ("s3://b/x/a", {"spec": GLOBAL, "day": None}, DeleteState.MISFILED),
        ("s3a://b/x/a", {}, DeleteState.UNMATCHED),
        ("s3a://b/x/a", {"day": 2}, DeleteState.DANGLING),
        ("s3a://b/x/newer", {}, DeleteState.DANGLING),
    ],
)
def test_a_delete_of_one_file_applies_by_path_partition_and_sequence_number(
    named: str, options: dict[str, Any], expected: DeleteState | None
) -> None:
    rollup = (
        Lists()
        .add(1, "s3://b/x/a", "s3://b/x/b")
        .add(5, "s3://b/x/newer")
        .deletes(3, named, **options)
        .counted()
    )

    assert [each.state for each in rollup.unapplied_deletes()] == ([expected] if expected else [])
    assert rollup.file_counts() == (3, 1)
    assert sum(rollup.file_scoped_counts.values()) == (0 if expected else 1)
    misplaced = [
        (each.state, each.named_path, each.data_path) for each in rollup.integrity.misplaced
    ]
    assert misplaced == (
        [(expected, named, "s3://b/x/a")] if expected not in (None, DeleteState.DANGLING) else []
    )


def test_in_a_range_of_sequence_numbers_equality_deletes_count_as_later_than_the_data() -> None:
    lists = (
        Lists()
        .keys(2, 50, 59)
        .keys(2, 50, 59, content=2, path="same")
        .keys(3, 0, 9)
        .keys(3, 0, 9, content=2, path="own")
    )
    lists.keys(3, 90, 95, content=2, path="new", day=2).keys(1, 0, 9, day=2)

    assert states(lists) == [
        (EQUALITY, DeleteState.DANGLING, 1),
        (EQUALITY, DeleteState.NEW_KEYS, 1),
        (EQUALITY, DeleteState.NEW_KEYS, 1),
    ]
    found = lists.counted(width=10)
    assert [(each.partition.values, each.state) for each in found.unapplied_deletes()] == [
        ((2,), DeleteState.NEW_KEYS)
    ]


def test_files_that_are_listed_twice_are_named_with_the_snapshots_that_added_them() -> None:
    """Also one that is listed in two partitions."""
    lists = Lists().add(1, "c", "a", "b").add(2, "b").add(2, "a", day=2).deletes(3).deletes(4)
    found = lists.counted().integrity

    assert [(each.path, each.entry_count, each.snapshot_ids) for each in found.duplicates] == [
        ("a", 2, (101, 102)),
        ("b", 2, (101, 102)),
        ("d", 2, (103, 104)),
    ]
    assert found.duplicate_data_file_count == 2
    assert found.duplicate_delete_file_count == 1
    assert found.duplicate_record_count == 20
    assert found.duplicate_partitions == (Partition(0, (1,)), Partition(0, (2,)))


def test_vectors_of_one_puffin_file_are_not_one_file() -> None:
    lists = Lists().add(1, "a", "b")
    for offset, path in enumerate("ab"):
        lists.deletes(
            2,
            path,
            file_format="PUFFIN",
            content_offset=offset,
            content_size_in_bytes=5,
            path="v.puffin",
        )

    assert lists.counted().integrity.duplicates == ()


def _summary(low: int | None, high: int | None, **more: object) -> dict[str, Any]:
    bounds = {
        name: None if value is None else struct.pack("<i", value)
        for name, value in (("lower_bound", low), ("upper_bound", high))
    }
    return {
        "manifest_path": "m",
        "partition_spec_id": 0,
        "partitions": [{"contains_null": True, "contains_nan": True, **bounds, **more}],
    }


@pytest.mark.parametrize(
    ("listed", "held", "expected"),
    [
        (_summary(1, 9), FieldRange(1, 9), []),
        (_summary(1, 9), FieldRange(2, 3), []),
        (_summary(2, 9), FieldRange(1, 9), [None]),
        (_summary(1, 8), FieldRange(1, 9), [None]),
        # A filter takes a summary without bounds for one of nulls alone.
        (_summary(None, None), FieldRange(1, 1), [None]),
        (_summary(None, None), FieldRange(has_null=True), []),
        (_summary(1, 9, contains_null=False), FieldRange(1, 9, has_null=True), ["null"]),
        (_summary(1, 9, contains_nan=False), FieldRange(1, 9, has_nan=True), ["NaN"]),
        (_summary(1, 9, contains_nan=None), FieldRange(1, 9, has_nan=True), []),
        ({**_summary(1, 9), "partitions": None}, FieldRange(1, 9, has_null=True), []),
    ],
)
def test_a_summary_may_be_wider_than_the_entries_and_not_narrower(
    listed: Any, held: FieldRange, expected: Sequence[str | None]
) -> None:
    assert [each.missing for each in narrow_summaries(listed, BY_DAY.fields, [held])] == expected
