"""Findings about column statistics begin exactly at their limits."""

import dataclasses

import pytest

from icekit.facts.definition import Column, PartitionSpec, SortField
from icekit.facts.files import EqualityKey
from icekit.facts.manifest_counts import MetricsSample
from icekit.facts.model import TableFacts
from tests.diagnose.told import required
from tests.factories import (
    BY_CARRIER,
    BY_DAY,
    COLUMNS,
    UNPARTITIONED,
    column_sample,
    file_group,
    partition,
    table_facts,
)

TABLE = "ALTER TABLE `prod`.`db`.`events`"
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


BARE = {"columns": (*COLUMNS[:3], AMOUNT), "metrics_sample": sampled(bounds_file_count=0)}
BY_BUCKET = PartitionSpec(
    0, (dataclasses.replace(BY_CARRIER.fields[0], transform="bucket[4]", name="bucket"),)
)
BY_SORT, THEN = (
    SortField(column, "identity", "asc", "nulls-first") for column in ("carrier", "amount")
)
#: For each finding, facts that it is made of and facts that it is not made of.
BORDERS: dict[str, tuple[list[TableFacts], list[TableFacts]]] = {
    # The value of a partition answers a filter on the column of an identity field, in files of
    # every spec that has it.
    "metrics_missing": (
        [
            missing(metrics_sample=MetricsSample(20, ())),
            table_facts(specs=(by_amount("truncate[9]"),), groups=(file_group(),), **BARE),
            ordered(BY_SORT, bounds_file_count=0, counts_file_count=0),
            of_specs(BY_BUCKET),
            of_specs(BY_BUCKET, dataclasses.replace(BY_CARRIER, spec_id=1)),
        ],
        [
            missing(metrics_sample=sampled()),
            missing(metrics_sample=MetricsSample()),
            table_facts(**BARE),
            table_facts(specs=(by_amount("void"),), groups=(file_group(),), **BARE),
            table_facts(filter_columns=("amount",), metrics_sample=sampled(bounds_file_count=0)),
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
    # Half of ten files or more. Of a sort order, only the first column as it is.
    "unclustered_filter_columns": (
        [clustered(0.5), clustered(0.5, files=10), ordered(BY_SORT)],
        [
            clustered(0.49),
            clustered(1.0, files=9),
            clustered(1.0, filters=()),
            ordered(THEN, BY_SORT),
            ordered(dataclasses.replace(BY_SORT, transform="bucket[4]")),
        ],
    ),
}


SHOWN = {
    "metrics_missing": missing(metrics_sample=sampled(bounds_file_count=3, counts_file_count=3)),
    "columns_past_metrics_limit": table_facts(columns=many(103, whole=100)),
    # Forty entries of 400 bytes.
    "too_many_metrics": table_facts(columns=many(65)),
    "unclustered_filter_columns": clustered(0.5, files=10),
}


def test_five_columns_without_bounds_are_spelled_out() -> None:
    columns = many(6, whole=0)
    names = tuple(c.name for c in columns)
    finding = required(
        table_facts(columns=columns, metrics_sample=MetricsSample(20, ()), filter_columns=names),
        "metrics_missing",
    )

    assert finding.where == names
    assert finding.evidence.endswith(
        "; c4 (mode none) has no bounds in 20 of 20 sampled data files"
    )


def test_metrics_are_dropped_only_where_filter_columns_are_declared_and_never_of_delete_keys() -> (
    None
):
    keys = (EqualityKey((7, 9), 1, 10),)
    facts = table_facts(columns=many(103, whole=100), equality_keys=keys, specs=(UNPARTITIONED,))
    declared = dataclasses.replace(facts, filter_columns=("c3",))

    for name in ("columns_past_metrics_limit", "too_many_metrics"):
        assert required(facts, name).sql == ()
        assert required(declared, name).sql == (
            f"{TABLE} SET TBLPROPERTIES ('write.metadata.metrics.default' = 'none', "
            "'write.metadata.metrics.column.c3' = 'truncate(16)', "
            "'write.metadata.metrics.column.c7' = 'truncate(16)', "
            "'write.metadata.metrics.column.c9' = 'truncate(16)')",
        )


def test_leaves_are_counted_where_iceberg_limits_metrics_not_top_level_columns() -> None:
    columns = tuple(
        Column(i, f"s{i % 3}.f{i}", "int", False, i % 3, "truncate(16)" if i < 100 else "none")
        for i in range(301)
    )

    assert required(table_facts(columns=columns), "columns_past_metrics_limit").evidence == (
        "301 columns; 201 columns beyond the first 100 get no metrics"
    )


def test_no_statement_sets_the_mode_or_the_order_that_a_column_has() -> None:
    bounded = table_facts(metrics_sample=unbounded("carrier"), filter_columns=("carrier",))

    assert required(bounded, "metrics_missing").sql == ()
    assert len(required(ordered(BY_SORT), "unclustered_filter_columns").sql) == 1


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


def test_several_filter_columns_are_sorted_by_the_first_two_and_a_trial_is_named() -> None:
    samples = tuple(column_sample(c.name, stab_share=1.0) for c in COLUMNS)
    finding = required(
        table_facts(
            metrics_sample=MetricsSample(20, samples),
            filter_columns=("carrier", "amount", "event_id"),
        ),
        "unclustered_filter_columns",
    )

    order = "`carrier` ASC NULLS LAST, `amount` ASC NULLS LAST"
    assert f"sort_order => '{order}'" in finding.sql[0]
    assert finding.sql[1] == f"{TABLE} WRITE ORDERED BY {order}"
    assert "icekit tune layout db.events" in finding.remedy
