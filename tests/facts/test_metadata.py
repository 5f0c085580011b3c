"""Table metadata is read for format versions 1 to 3."""

from typing import Any

from icekit.facts import metadata
from icekit.facts.snapshot_statistics import statistics_of
from icekit.facts.snapshots import SnapshotStatistics


def column(field_id: int, name: str, kind: Any = "string") -> dict[str, Any]:
    return {"id": field_id, "name": name, "type": kind, "required": False}


def table(*columns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "format-version": 2,
        "schemas": [{"schema-id": 0, "fields": list(columns)}],
        "current-schema-id": 0,
        **more,
    }


def modes(**arguments: Any) -> dict[str, str]:
    return {m.operation: m.mode for m in metadata.distribution_modes(**arguments)}


def test_append_distribution_follows_partitioning_and_sort_order() -> None:
    assert modes(properties={}, partitioned=False, is_sorted=False)["append"] == "none"
    assert modes(properties={}, partitioned=True, is_sorted=False)["append"] == "hash"
    assert modes(properties={}, partitioned=True, is_sorted=True)["append"] == "range"
    assert (
        modes(properties={"write.distribution-mode": "none"}, partitioned=True, is_sorted=True)[
            "append"
        ]
        == "none"
    )


def test_row_level_operations_do_not_follow_the_append_property() -> None:
    found = modes(
        properties={"write.distribution-mode": "none", "write.merge.mode": "merge-on-read"},
        partitioned=True,
        is_sorted=False,
    )

    assert found["delete"] == "hash"
    assert found["update"] == "hash"
    assert found["merge"] == "hash"


def test_copy_on_write_merge_of_an_unpartitioned_table_follows_the_append_rule() -> None:
    assert modes(properties={}, partitioned=False, is_sorted=False)["merge"] == "none"
    assert modes(properties={}, partitioned=False, is_sorted=True)["merge"] == "range"


def test_columns_past_the_limit_have_no_metrics_unless_sorted_or_stated() -> None:
    columns = [column(i, f"c{i}") for i in range(1, 104)]
    meta = table(
        *columns,
        properties={"write.metadata.metrics.column.c103": "full"},
        **{
            "sort-orders": [
                {
                    "order-id": 1,
                    "fields": [
                        {
                            "source-id": 102,
                            "transform": "identity",
                            "direction": "asc",
                            "null-order": "nulls-first",
                        }
                    ],
                }
            ]
        },
        **{"default-sort-order-id": 1},
    )
    found = {c.name: c.metrics_mode for c in metadata.columns(meta, metadata.schema_of(meta))}

    assert found["c100"] == "truncate(16)"
    assert found["c101"] == "none"
    assert found["c102"] == "truncate(16)"
    assert found["c103"] == "full"


def test_a_stated_default_holds_for_every_column_however_many() -> None:
    meta = table(
        *[column(i, f"c{i}") for i in range(1, 104)],
        properties={"write.metadata.metrics.default": "counts"},
    )

    assert {c.metrics_mode for c in metadata.columns(meta, metadata.schema_of(meta))} == {"counts"}


def test_nested_columns_are_leaves_with_dotted_names() -> None:
    nested = {"type": "struct", "fields": [column(3, "inner", "int")]}
    listed = {"type": "list", "element-id": 5, "element": "string", "element-required": False}
    meta = table(column(1, "s", nested), column(4, "l", listed))

    assert [c.name for c in metadata.columns(meta, metadata.schema_of(meta))] == [
        "s.inner",
        "l.element",
    ]


def test_a_type_that_no_library_knows_yet_does_not_stop_the_diagnosis() -> None:
    meta = table(column(1, "v", "variant"), column(2, "g", "geometry(srid:4326)"))

    assert [c.type for c in metadata.columns(meta, metadata.schema_of(meta))] == [
        "variant",
        "geometry(srid:4326)",
    ]


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
    meta = table(
        column(1, "new name", "date"),
        **{
            "partition-specs": [
                {
                    "spec-id": 0,
                    "fields": [
                        {"name": "day", "transform": "identity", "source-id": 1, "field-id": 1000}
                    ],
                },
                {
                    "spec-id": 1,
                    "fields": [
                        {"name": "gone", "transform": "identity", "source-id": 9, "field-id": 1001}
                    ],
                },
            ]
        },
    )

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
