"""Findings about column statistics tell the figures they rest on, and begin exactly at their
limits.
"""

import dataclasses

import pytest

from icekit.facts.definition import Column, PartitionSpec, SortField
from icekit.facts.files import EqualityKey
from icekit.facts.manifest_counts import MetricsSample
from icekit.facts.model import TableFacts
from tests.diagnose.told import absent, present, required, shows, told
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
from tests.golden import Golden

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


def scattered(column: Column) -> TableFacts:
    """A table with one more column, by which queries filter, and whose values lie in nearly all
    files.
    """
    sample = MetricsSample(20, (column_sample(column.name, 20, stab_share=0.9),))
    return table_facts(
        columns=(*COLUMNS, column), metrics_sample=sample, filter_columns=(column.name,)
    )


def sampled(column: str = "amount", files: int = 20, **overrides: object) -> MetricsSample:
    return MetricsSample(
        files,
        tuple(
            column_sample(c.name, files, **(overrides if c.name == column else {})) for c in COLUMNS
        ),
    )


def test_missing_metrics_are_told_by_column_and_files(golden: Golden) -> None:
    facts = table_facts(
        columns=(*COLUMNS[:3], AMOUNT),
        metrics_sample=sampled(bounds_file_count=3, counts_file_count=3),
        filter_columns=("gone", "amount"),
    )

    shows(golden, "metrics_missing", facts)
    absent("metrics_missing", dataclasses.replace(facts, filter_columns=()))
    unsampled = dataclasses.replace(facts, metrics_sample=MetricsSample(20, ()))
    assert (
        told(unsampled, "metrics_missing")[2]
        == "amount (mode none) has no bounds in 20 of 20 sampled data files"
    )
    absent(
        "metrics_missing",
        dataclasses.replace(facts, metrics_sample=sampled()),
        dataclasses.replace(facts, metrics_sample=MetricsSample()),
    )


def test_five_columns_without_bounds_are_spelled_out() -> None:
    columns = many(6, whole=0)
    names = tuple(c.name for c in columns)
    facts = table_facts(columns=columns, metrics_sample=MetricsSample(20, ()), filter_columns=names)
    found = told(facts, "metrics_missing")

    assert found[1] == names
    assert found[2].endswith("; c4 (mode none) has no bounds in 20 of 20 sampled data files")


def test_a_partition_field_needs_bounds_of_its_source_unless_it_is_void() -> None:
    by_amount = dataclasses.replace(
        BY_DAY.fields[0],
        source_id=4,
        source="amount",
        transform="truncate[9]",
        result_type="double",
    )
    void = dataclasses.replace(by_amount, transform="void")
    bare = {
        "columns": (*COLUMNS[:3], AMOUNT),
        "metrics_sample": sampled(bounds_file_count=0),
        "groups": (file_group(),),
    }

    assert told(table_facts(specs=(PartitionSpec(0, (by_amount,)),), **bare), "metrics_missing")[
        2
    ].startswith("amount (mode")
    absent(
        "metrics_missing",
        table_facts(specs=(PartitionSpec(0, (*BY_DAY.fields, void)),), **bare),
        table_facts(filter_columns=("amount",), metrics_sample=sampled(bounds_file_count=0)),
    )


def test_columns_past_the_limit_are_told_and_the_default_stated_where_filters_are_declared(
    golden: Golden,
) -> None:
    columns = many(103, whole=100)
    keys = (EqualityKey((7, 9), 1, 10),)
    declared = table_facts(
        columns=columns, filter_columns=("c3",), equality_keys=keys, specs=(UNPARTITIONED,)
    )

    shows(golden, "columns_past_metrics_limit", table_facts(columns=columns))
    stated = {"write.metadata.metrics.default": "none"}
    absent("columns_past_metrics_limit", table_facts(columns=columns, properties=stated))
    assert told(declared, "columns_past_metrics_limit")[3] == (
        f"{TABLE} SET TBLPROPERTIES ('write.metadata.metrics.default' = 'none', "
        "'write.metadata.metrics.column.c3' = 'truncate(16)', 'write.metadata.metrics.column.c7' "
        "= 'truncate(16)', 'write.metadata.metrics.column.c9' = 'truncate(16)')",
    )
    absent("columns_past_metrics_limit", table_facts(columns=columns[:100]))


def test_leaves_are_counted_where_iceberg_limits_metrics_not_top_level_columns() -> None:
    columns = tuple(
        Column(i, f"s{i % 3}.f{i}", "int", False, i % 3, "truncate(16)" if i < 100 else "none")
        for i in range(301)
    )

    assert told(table_facts(columns=columns), "columns_past_metrics_limit")[2] == (
        "301 columns; 201 columns beyond the first 100 get no metrics"
    )


def test_a_partition_value_answers_a_filter_so_identity_columns_need_no_bounds() -> None:
    (by_carrier,) = BY_CARRIER.fields
    by_bucket = dataclasses.replace(by_carrier, name="carrier_bucket", transform="bucket[4]")

    def of(*specs: PartitionSpec) -> TableFacts:
        groups = tuple(file_group(of=partition("UA", spec_id=spec.spec_id)) for spec in specs)
        return table_facts(
            specs=specs,
            metrics_sample=unbounded("carrier"),
            filter_columns=("carrier",),
            groups=groups,
        )

    absent("metrics_missing", of(BY_CARRIER))
    present(
        "metrics_missing",
        of(PartitionSpec(0, (by_bucket,))),
        of(PartitionSpec(0, (by_bucket,)), PartitionSpec(1, (by_carrier,))),
    )


def test_no_statement_sets_the_mode_that_a_column_has() -> None:
    facts = table_facts(metrics_sample=unbounded("carrier"), filter_columns=("carrier",))

    assert told(facts, "metrics_missing")[3] == ()


def test_too_many_metrics_are_told_with_what_they_cost(golden: Golden) -> None:
    """Nobody is told to drop metrics before filter columns are declared."""
    # Forty entries of 400 bytes.
    shows(golden, "too_many_metrics", table_facts(columns=many(65)))
    absent("too_many_metrics", table_facts(columns=many(64)))
    declared = required(table_facts(columns=many(65), filter_columns=("c3",)), "too_many_metrics")
    assert "'write.metadata.metrics.column.c3' = 'truncate(16)'" in declared.sql[0]


def test_an_unclustered_column_is_told_with_the_files_a_lookup_reads(golden: Golden) -> None:
    facts = table_facts(
        metrics_sample=sampled("carrier", 10, stab_share=0.5), filter_columns=("carrier",)
    )

    shows(golden, "unclustered_filter_columns", facts)


@pytest.mark.parametrize(
    ("name", "path", "order"),
    [("s.x", ("s", "x"), "`s`.`x`"), ("a.b", ("a.b",), "`a.b`")],
    ids=["in a struct", "with a dot"],
)
def test_a_column_is_sorted_by_its_path(name: str, path: tuple[str, ...], order: str) -> None:
    found = told(
        scattered(Column(90, name, "string", False, 9, "full", path)), "unclustered_filter_columns"
    )

    assert f"sort_order => '{order} ASC NULLS LAST'" in found[3][0]


def test_of_a_sort_order_only_the_first_column_as_it_is_should_be_clustered() -> None:
    first, second = (
        SortField(column, "identity", "asc", "nulls-first") for column in ("amount", "carrier")
    )
    sample = sampled("carrier", stab_share=0.9)

    def ordered(*order: SortField) -> TableFacts:
        return table_facts(sort_order=order, metrics_sample=sample)

    absent(
        "unclustered_filter_columns",
        ordered(first, second),
        ordered(dataclasses.replace(second, transform="bucket[4]")),
    )
    # It is sorted by already, and so the order is not declared again.
    assert len(told(ordered(second), "unclustered_filter_columns")[3]) == 1


def test_a_sort_column_that_never_had_metrics_is_named() -> None:
    order = (SortField("amount", "identity", "asc", "nulls-first"),)
    sample = sampled(bounds_file_count=0, counts_file_count=0)

    present("metrics_missing", table_facts(sort_order=order, metrics_sample=sample))


def test_a_declared_column_that_lies_in_half_of_the_files_is_unclustered() -> None:
    def of(share: float, files: int = 20, filters: tuple[str, ...] = ("carrier",)) -> TableFacts:
        sample = sampled("carrier", files, stab_share=share)
        return table_facts(metrics_sample=sample, filter_columns=filters)

    present("unclustered_filter_columns", of(0.5))
    absent("unclustered_filter_columns", of(0.49), of(1.0, files=9), of(1.0, filters=()))


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
    assert finding.sql[1] == f"ALTER TABLE `prod`.`db`.`events` WRITE ORDERED BY {order}"
    assert "icekit tune layout db.events" in finding.remedy
