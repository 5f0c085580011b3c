"""Findings about column statistics, and about what the bytes of files are, begin exactly at their
limits.
"""

import dataclasses
from typing import Any

import pytest

from icekit.health.facts.files import EqualityKey
from icekit.health.facts.metadata_sections import MetadataSection
from icekit.health.facts.model import TableFacts
from icekit.iceberg.definition import Column, PartitionSpec, SortField
from icekit.iceberg.manifest_counts import MetricsSample
from icekit.iceberg.snapshots import WriterState
from tests.factories import (
    BY_CARRIER,
    BY_DAY,
    COLUMNS,
    GIB,
    KIB,
    MIB,
    NOW_MS,
    UNPARTITIONED,
    column_sample,
    file_group,
    history,
    manifest_facts,
    partition,
    table_facts,
)
from tests.health.diagnose.told import Borders, required

AMOUNT = dataclasses.replace(COLUMNS[3], metrics_mode="none")


def many(count: int, whole: int = 200) -> tuple[Column, ...]:
    """Columns c0, c1 and so on, the first of them with metrics."""
    return tuple(
        Column(i, f"c{i}", "int", False, i, "truncate(16)" if i < whole else "none")
        for i in range(count)
    )


def unbounded(column: str) -> MetricsSample:
    """Twenty files without bounds of a column."""
    return MetricsSample(20, (column_sample(column, bounds_file_count=0, counts_file_count=0),))


def sampled(column: str = "amount", files: int = 20, **overrides: object) -> MetricsSample:
    return MetricsSample(
        files,
        tuple(
            column_sample(c.name, files, **(overrides if c.name == column else {})) for c in COLUMNS
        ),
    )


def missing(**overrides: object) -> TableFacts:
    """Queries filter by a column whose metrics are off."""
    return table_facts(
        columns=(*COLUMNS[:3], AMOUNT), filter_columns=("gone", "amount"), **overrides
    )


def by_amount(transform: str) -> PartitionSpec:
    field = dataclasses.replace(
        BY_DAY.fields[0],
        source_id=4,
        source="amount",
        transform=transform,
        result_type="double",
    )
    return PartitionSpec(0, (*BY_DAY.fields, field))


def of_specs(*specs: PartitionSpec) -> TableFacts:
    """Queries filter by the carrier, which has no bounds."""
    groups = tuple(file_group(of=partition("UA", spec_id=spec.spec_id)) for spec in specs)
    return table_facts(
        specs=specs,
        metrics_sample=unbounded("carrier"),
        filter_columns=("carrier",),
        groups=groups,
    )


def clustered(share: float, files: int = 20, filters: tuple[str, ...] = ("carrier",)) -> TableFacts:
    sample = sampled("carrier", files, stab_share=share)
    return table_facts(metrics_sample=sample, filter_columns=filters)


def ordered(*order: SortField, **overrides: object) -> TableFacts:
    sample = sampled("carrier", 20, stab_share=0.9, **overrides)
    return table_facts(sort_order=order, metrics_sample=sample)


BLOOMS = {f"write.parquet.bloom-filter-enabled.column.{name}": "true" for name in ("a", "b", "c")}


def of_content(column_bytes: int, file_bytes: int, **properties: str) -> TableFacts:
    """Twenty files with bytes of columns among others."""
    sample = MetricsSample(
        20, (), sized_files=20, file_bytes=file_bytes * 20, column_bytes=column_bytes * 20
    )
    group = file_group(*[file_bytes] * 20, records_per_file=120)
    return table_facts(groups=(group,), metrics_sample=sample, properties=properties)


def wide(columns: int, *sizes: int, **properties: str) -> TableFacts:
    groups = (file_group(*sizes or [512 * MIB] * 4),)
    return table_facts(columns=many(columns, columns), groups=groups, properties=properties)


def metadata_of(manifests: int, data: int, file: int = KIB) -> TableFacts:
    groups = (file_group(data),)
    held = manifest_facts(groups, data_bytes=manifests)
    return table_facts(groups=groups, manifests=held, metadata_bytes=file)


def huge(
    metadata_bytes: int = 9 * MIB,
    snapshots: int = 9000,
    name: str = "snapshots",
    largest: str | None = None,
    **more: Any,
) -> TableFacts:
    """A metadata file that is full of one section, and that of one of its keys."""
    size = 8 * MIB if largest else 0
    section = MetadataSection(name, 8 * MIB, 0.9, 500, largest, size)
    return dataclasses.replace(
        metadata_of(KIB, GIB, metadata_bytes),
        history=history(snapshot_count=snapshots, **more),
        metadata_sections=(section,),
    )


ROW_GROUP = "write.parquet.row-group-size-bytes"
BARE = {"columns": (*COLUMNS[:3], AMOUNT), "metrics_sample": sampled(bounds_file_count=0)}
BY_BUCKET = PartitionSpec(
    0, (dataclasses.replace(BY_CARRIER.fields[0], transform="bucket[4]", name="bucket"),)
)
BY_SORT, THEN = (
    SortField(column, "identity", "asc", "nulls-first") for column in ("carrier", "amount")
)
BORDERS: Borders = {
    # The value of a partition answers a filter on the column of an identity field, in files of
    # every spec that has it.
    "metrics_missing": (
        [
            missing(metrics_sample=MetricsSample(20, ())),
            table_facts(specs=(by_amount("truncate[9]"),), groups=(file_group(),), **BARE),
            ordered(BY_SORT, bounds_file_count=9),
            of_specs(BY_BUCKET),
            of_specs(BY_BUCKET, dataclasses.replace(BY_CARRIER, spec_id=1)),
        ],
        [
            missing(metrics_sample=sampled()),
            missing(metrics_sample=MetricsSample()),
            table_facts(**BARE),
            table_facts(specs=(by_amount("void"),), groups=(file_group(),), **BARE),
            ordered(BY_SORT, bounds_file_count=3, null_file_count=7),
            of_specs(BY_CARRIER),
        ],
    ),
    "columns_past_metrics_limit": (
        [table_facts(columns=many(103, whole=100))],
        [
            table_facts(columns=many(100)),
            table_facts(
                columns=many(103, whole=100),
                properties={"write.metadata.metrics.default": "none"},
            ),
        ],
    ),
    "too_many_metrics": ([table_facts(columns=many(65))], [table_facts(columns=many(64))]),
    # Half of five files or more. Of a sort order, only the first column as it is.
    "unclustered_filter_columns": (
        [clustered(0.5), clustered(0.5, files=5), ordered(BY_SORT)],
        [
            clustered(0.49),
            clustered(1.0, files=4),
            clustered(1.0, filters=()),
            ordered(THEN, BY_SORT),
            ordered(dataclasses.replace(BY_SORT, transform="bucket[4]")),
        ],
    ),
    # Half of the bytes and a mebibyte per file; entries of ORC and Avro have no column sizes.
    "bytes_outside_columns": (
        [of_content(MIB, 2 * MIB)],
        [of_content(MIB + 1, 2 * MIB), of_content(KIB, MIB), of_content(0, 3 * MIB)],
    ),
    "thin_column_chunks": (
        [wide(129)],
        [wide(128), wide(250, 127 * MIB), wide(250, GIB, **{ROW_GROUP: str(250 * MIB)})],
    ),
    # A mebibyte and a tenth of the data, or a file of eight mebibytes.
    "heavy_metadata": (
        [metadata_of(MIB, 10 * MIB), huge(8 * MIB)],
        [metadata_of(MIB, 10 * MIB + 20), metadata_of(MIB - 1, MIB), huge(8 * MIB - 1)],
    ),
}


FLINK = WriterState("Flink", "job 7f1c", ("7f1c",), "checkpoint 41", ("main",), 7, NOW_MS, 0)
FILTERED = ("carrier", "amount", "event_id")
SHOWN = {
    "metrics_missing": missing(metrics_sample=sampled(bounds_file_count=3, counts_file_count=3)),
    # Five are spelled out.
    "metrics_missing of six columns": table_facts(
        columns=many(6, whole=0),
        metrics_sample=MetricsSample(20, ()),
        filter_columns=tuple(c.name for c in many(6)),
    ),
    "columns_past_metrics_limit": table_facts(columns=many(103, whole=100)),
    # Forty entries of 400 bytes.
    "too_many_metrics": table_facts(columns=many(65)),
    "unclustered_filter_columns": clustered(0.5, files=10),
    "unclustered_filter_columns of which two are sorted by": table_facts(
        metrics_sample=MetricsSample(20, tuple(column_sample(n, stab_share=1.0) for n in FILTERED)),
        filter_columns=FILTERED,
    ),
    "bytes_outside_columns": of_content(4 * KIB, 3 * MIB),
    "bytes_outside_columns in bloom filters": of_content(4 * KIB, 3 * MIB, **BLOOMS),
    "thin_column_chunks": wide(250),
    "heavy_metadata": metadata_of(4600 * KIB, 6300 * KIB),
    "heavy_metadata in one file": huge(8 * MIB),
    **{
        f"heavy_metadata of {name}": huge(name=name, snapshots=1)
        for name in (
            "snapshots",
            "snapshot-log",
            "metadata-log",
            "refs",
            "statistics",
            "partition-statistics",
            "encryption-keys",
            "schemas",
            "sort-orders",
            "some-new-section",
        )
    },
    "heavy_metadata of schemas beside refs past their limits": huge(
        name="schemas", past_limits=3, refs_past_limits=("audit",), writers=(FLINK,)
    ),
    "heavy_metadata of one property": huge(name="properties", largest="quality.report"),
    "heavy_metadata of summaries": huge(largest="my.offsets", expirable_count=0),
    "heavy_metadata of summaries of partitions": huge(largest="partitions."),
    "heavy_metadata of statistics of many": huge(name="statistics", expirable_count=7),
}


@pytest.mark.parametrize("name", [case for case in SHOWN if case.startswith("heavy_metadata of")])
def test_nobody_is_told_to_expire_the_only_snapshot(name: str) -> None:
    finding = required(SHOWN[name], "heavy_metadata")

    if SHOWN[name].history.snapshot_count == 1:
        assert "icekit maintain" not in finding.remedy
        assert "xpire" not in finding.remedy
    assert all("1970-01-01" in each for each in finding.sql if "expire_snapshots" in each)


def test_metrics_are_dropped_only_where_filter_columns_are_declared_and_never_of_delete_keys() -> (
    None
):
    keys = (EqualityKey((7, 9), 1, 10),)
    facts = table_facts(columns=many(103, whole=100), equality_keys=keys, specs=(UNPARTITIONED,))
    declared = dataclasses.replace(facts, filter_columns=("c3",))

    for name in ("columns_past_metrics_limit", "too_many_metrics"):
        assert required(facts, name).sql == ()
        assert required(declared, name).sql == (
            "ALTER TABLE `prod`.`db`.`events` SET TBLPROPERTIES ("
            "'write.metadata.metrics.default' = 'none', "
            "'write.metadata.metrics.column.c3' = 'truncate(16)', "
            "'write.metadata.metrics.column.c7' = 'truncate(16)', "
            "'write.metadata.metrics.column.c9' = 'truncate(16)')",
        )


def test_no_statement_sets_the_mode_or_the_order_that_a_column_has() -> None:
    bounded = table_facts(metrics_sample=unbounded("carrier"), filter_columns=("carrier",))

    assert required(bounded, "metrics_missing").sql == ()
    assert len(required(ordered(BY_SORT), "unclustered_filter_columns").sql) == 1
    row_groups = wide(2000, 2 * GIB, **{ROW_GROUP: str(GIB)})
    assert required(row_groups, "thin_column_chunks").sql == ()


@pytest.mark.parametrize(
    ("name", "path", "order"),
    [("s.x", ("s", "x"), "`s`.`x`"), ("a.b", ("a.b",), "`a.b`")],
    ids=["in a struct", "with a dot"],
)
def test_a_column_is_sorted_by_its_path(name: str, path: tuple[str, ...], order: str) -> None:
    facts = table_facts(
        columns=(*COLUMNS, Column(90, name, "string", False, 9, "full", path)),
        metrics_sample=MetricsSample(20, (column_sample(name, 20, stab_share=0.9),)),
        filter_columns=(name,),
    )

    statement = required(facts, "unclustered_filter_columns").sql[0]
    assert f"sort_order => '{order} ASC NULLS LAST'" in statement
