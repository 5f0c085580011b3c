"""A sample is of whole partitions from all over the table, as many as fit and as a predicate can
name.
"""

from __future__ import annotations

import pytest

from icekit.iceberg.definition import PartitionField, PartitionSpec
from icekit.iceberg.partition import Partition
from icekit.iceberg.where import MOST_PARTITIONS
from icekit.sandbox.trial import sample_partitions
from tests.factories import FIRST_DAY, MIB, UNPARTITIONED, file_group, partition, table_facts


def test_partitions_of_a_sample_come_from_all_over_the_table_and_fit() -> None:
    facts = table_facts(
        groups=tuple(file_group(10 * MIB, of=partition(FIRST_DAY + n)) for n in range(400))
    )

    chosen = sample_partitions(facts, 405 * MIB)

    days = sorted(int(str(p.values[0])) - FIRST_DAY for p in chosen)
    assert len(days) == 40
    assert days[0] < 100
    assert days[-1] >= 300
    assert chosen == sample_partitions(facts, 405 * MIB)


def test_a_partition_that_is_too_large_is_passed_over() -> None:
    groups = (
        file_group(900 * MIB, of=partition(FIRST_DAY)),
        file_group(10 * MIB, of=partition(FIRST_DAY + 1)),
    )

    assert sample_partitions(table_facts(groups=groups), 20 * MIB) == [partition(FIRST_DAY + 1)]


def test_no_more_partitions_are_taken_than_a_predicate_can_name() -> None:
    days = range(FIRST_DAY, FIRST_DAY + MOST_PARTITIONS + 500)
    facts = table_facts(groups=tuple(file_group(1, of=partition(day)) for day in days))

    assert len(sample_partitions(facts, 1 << 30)) == MOST_PARTITIONS


@pytest.mark.parametrize(
    ("spec", "of"),
    [
        (UNPARTITIONED, partition(spec_id=0)),
        (
            PartitionSpec(0, (PartitionField(1000, "old", "identity", 99, None, "string"),)),
            partition("x"),
        ),
    ],
    ids=["unpartitioned", "dropped column"],
)
def test_partitions_that_no_predicate_can_name_are_left_to_single_files(
    spec: PartitionSpec, of: Partition
) -> None:
    facts = table_facts(specs=(spec,), groups=(file_group(MIB, of=of),))

    assert sample_partitions(facts, 1 << 30) == []
