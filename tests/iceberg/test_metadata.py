"""Table metadata is read for format versions 1 to 3."""

from typing import Any

import pytest

from icekit.health.facts.snapshot_statistics import statistics_of
from icekit.iceberg import metadata
from icekit.iceberg.definition import Column
from icekit.iceberg.snapshots import SnapshotStatistics


def column(field_id: int, name: str, kind: Any = "string") -> dict[str, Any]:
    return {"id": field_id, "name": name, "type": kind, "required": False}


def table(*columns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "format-version": 2,
        "schemas": [{"schema-id": 0, "fields": list(columns)}],
        "current-schema-id": 0,
        **more,
    }


NONE = {"write.distribution-mode": "none"}
MERGE_ON_READ = {**NONE, "write.merge.mode": "merge-on-read"}


@pytest.mark.parametrize(
    ("properties", "partitioned", "is_sorted", "expected"),
    [
        ({}, False, False, {"append": "none", "merge": "none"}),
        ({}, True, False, {"append": "hash"}),
        ({}, True, True, {"append": "range"}),
        ({}, False, True, {"append": "range", "merge": "range"}),
        (NONE, True, True, {"append": "none"}),
        (MERGE_ON_READ, True, False, {"delete": "hash", "update": "hash", "merge": "hash"}),
    ],
)
def test_distribution_follows_partitioning_order_and_properties(
    properties: dict[str, str], partitioned: bool, is_sorted: bool, expected: dict[str, str]
) -> None:
    """Row-level operations do not follow the property of appends, except a copy-on-write merge of
    an unpartitioned table.
    """
    modes = metadata.distribution_modes(properties, is_partitioned=partitioned, is_sorted=is_sorted)

    assert expected.items() <= {mode.operation: mode.mode for mode in modes}.items()


def columns_of(meta: dict[str, Any]) -> dict[str, Column]:
    return {c.name: c for c in metadata.columns(meta, metadata.schema_of(meta))}


def test_columns_past_the_limit_have_no_metrics_unless_sorted_or_stated() -> None:
    order = {"source-id": 102, "transform": "identity", "direction": "asc", "null-order": "first"}
    orders = {"sort-orders": [{"order-id": 1, "fields": [order]}], "default-sort-order-id": 1}
    meta = table(*[column(i, f"c{i}") for i in range(1, 104)], **orders)
    own = {"write.metadata.metrics.column.c103": "full"}
    modes = [c.metrics_mode for c in columns_of({**meta, "properties": own}).values()]

    assert modes[99:] == ["truncate(16)", "none", "truncate(16)", "full"]
    # A stated default holds for every column.
    stated = {**meta, "properties": {"write.metadata.metrics.default": "full"}}
    assert {c.metrics_mode for c in columns_of(stated).values()} == {"full"}


def test_nested_columns_are_leaves_and_a_type_that_is_not_known_is_one_too() -> None:
    nested = {"type": "struct", "fields": [column(3, "inner", "int")]}
    listed = {"type": "list", "element-id": 5, "element": "string", "element-required": False}
    meta = table(column(1, "s", nested), column(4, "l", listed), column(6, "v", "variant"))

    assert {name: each.type for name, each in columns_of(meta).items()} == {
        "s.inner": "int",
        "l.element": "string",
        "v": "variant",
    }


def test_version_1_metadata_with_one_schema_and_one_spec_is_read() -> None:
    meta = {
        "format-version": 1,
        "schema": {"fields": [column(1, "day", "date")]},
        "partition-spec": [
            {"name": "day_month", "transform": "month", "source-id": 1, "field-id": 1000}
        ],
    }
    (spec,) = metadata.specs(meta)

    assert spec.spec_id == 0
    assert spec.fields[0].source == "day"
    assert spec.fields[0].result_type == "int"


def test_a_renamed_partition_source_has_its_new_name_and_a_dropped_one_none() -> None:
    specs = [
        {
            "spec-id": number,
            "fields": [
                {"name": "f", "transform": "identity", "source-id": source, "field-id": 1000}
            ],
        }
        for number, source in enumerate((1, 9))
    ]
    meta = table(column(1, "new name", "date"), **{"partition-specs": specs})

    assert [spec.fields[0].source for spec in metadata.specs(meta)] == ["new name", None]


def test_statistics_are_those_of_one_snapshot() -> None:
    def file(snapshot_id: int, *fields: int) -> dict[str, Any]:
        return {
            "snapshot-id": snapshot_id,
            "blob-metadata": [{"fields": [field]} for field in fields],
        }

    struct = {"type": "struct", "fields": [column(3, "x", "int")]}
    columns = column(1, "a"), column(2, "s", struct), column(4, "b c")
    found = table(
        *columns,
        statistics=[file(7, 4, 1), file(8, 3, 1, 9)],
        **{"partition-statistics": [{"snapshot-id": 8}]},
    )

    assert statistics_of(found, 7) == (SnapshotStatistics("table"),)
    assert statistics_of(found, 8) == (
        SnapshotStatistics("table", ("s.x", "a")),
        SnapshotStatistics("partition"),
    )
    assert statistics_of(found, 9) == statistics_of(found, None) == statistics_of({}, 8) == ()
