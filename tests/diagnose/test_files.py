"""Symptoms of data files, judged by the limits that Iceberg's rewrite has."""

from __future__ import annotations

import dataclasses

import pytest

from icekit import Severity, Thresholds, diagnose
from icekit.diagnose.findings import Finding
from icekit.errors import ParameterError
from icekit.facts.model import FileGroup, Partition, PartitionSpec, SharedPlace, Sharing, StorageFacts, TableFacts
from tests.factories import BY_DAY, FIRST_DAY, GIB, MIB, UNPARTITIONED, empty_facts, file_group, healthy_groups, partition, table_facts


def found(facts: TableFacts, name: str, thresholds: Thresholds | None = None) -> Finding | None:
    return next((f for f in diagnose(facts, thresholds) if f.name == name), None)


def with_groups(*groups: FileGroup, **more: object) -> TableFacts:
    return table_facts(groups=groups, **more)


def test_a_healthy_table_has_nothing_to_do() -> None:
    assert diagnose(table_facts()) == ()


def test_an_empty_table_has_nothing_to_do() -> None:
    assert diagnose(empty_facts()) == ()


def test_five_undersized_files_in_one_partition_are_small_files() -> None:
    finding = found(with_groups(file_group(*[MIB] * 5)), "small_files")

    assert finding is not None
    assert finding.severity is Severity.WARNING
    assert finding.evidence.startswith("compaction would remove 4 of 5 data files: 5 files of 1 MiB on average in 1 partition")
    assert finding.where == ("event_day=2026-01-01",)


def test_four_undersized_files_are_left_alone_as_the_rewrite_would_leave_them() -> None:
    assert found(with_groups(file_group(*[MIB] * 4)), "small_files") is None


def test_undersized_files_of_different_partitions_are_not_added_up() -> None:
    groups = [file_group(MIB, MIB, of=partition(FIRST_DAY + day)) for day in range(50)]

    assert found(with_groups(*groups), "small_files") is None


def test_files_of_older_specs_are_combined_where_a_rewrite_puts_them_into_one_partition() -> None:
    groups = [file_group(MIB, of=partition(day, spec_id=0)) for day in range(6)]
    facts = with_groups(*groups, specs=(BY_DAY, PartitionSpec(1, ())))
    finding = found(facts, "small_files")

    assert finding is not None
    assert finding.where_count == 6
    assert found(with_groups(*groups, specs=(BY_DAY, dataclasses.replace(BY_DAY, spec_id=1))), "small_files") is None


def test_the_limit_is_three_quarters_of_the_target_in_force_and_exact() -> None:
    properties = {"write.target-file-size-bytes": str(100 * MIB)}
    at = [file_group(*[75 * MIB] * 5, target_bytes=100 * MIB)]
    below = [file_group(*[75 * MIB - 1] * 5, target_bytes=100 * MIB)]

    assert found(with_groups(*at, properties=properties), "small_files") is None
    assert found(with_groups(*below, properties=properties), "small_files") is not None


def test_small_files_are_critical_when_most_of_many_files_would_disappear() -> None:
    finding = found(with_groups(file_group(*[MIB] * 200)), "small_files")

    assert finding is not None
    assert finding.severity is Severity.CRITICAL


def test_the_partition_with_most_to_win_comes_first_and_ten_are_listed() -> None:
    groups = [file_group(*[MIB] * (5 + day), of=partition(FIRST_DAY + day)) for day in range(12)]
    finding = found(with_groups(*groups), "small_files")

    assert finding is not None
    assert (finding.where[0], len(finding.where), finding.where_count) == ("event_day=2026-01-12", 10, 12)


def test_a_changed_ratio_changes_the_judgement() -> None:
    ratio = Thresholds().with_changes(min_file_size_ratio=0.5)
    group = file_group(*[300 * MIB] * 6, ratios=ratio.size_ratios)

    assert found(with_groups(group), "small_files", ratio) is None
    assert found(with_groups(file_group(*[300 * MIB] * 6)), "small_files") is not None


def test_a_limit_that_facts_were_not_cut_at_is_refused_rather_than_guessed() -> None:
    facts = with_groups(file_group(*[260 * MIB, 300 * MIB] * 6))

    with pytest.raises(ParameterError, match="size_ratios"):
        diagnose(facts, Thresholds().with_changes(min_file_size_ratio=0.55))


def test_a_file_over_nine_fifths_of_the_target_is_oversized() -> None:
    finding = found(with_groups(file_group(500 * MIB, 2 * GIB)), "oversized_files")

    assert finding is not None
    assert "1 data file of 2 with 2 GiB (80 % of the bytes); the largest is 2 GiB" in finding.evidence
    assert found(with_groups(file_group(int(1.8 * 512 * MIB))), "oversized_files") is None


def test_one_partition_ten_times_the_median_is_skew() -> None:
    groups = [*healthy_groups(days=5, files_per_day=1), file_group(*[500 * MIB] * 20, of=partition(FIRST_DAY + 9))]
    finding = found(with_groups(*groups), "skewed_partitions")

    assert finding is not None
    assert finding.where == ("event_day=2026-01-10",)
    assert "20 × the median" in finding.evidence


def test_skew_below_one_target_file_or_among_few_partitions_is_none() -> None:
    small = [file_group(MIB, of=partition(day)) for day in range(5)]

    assert found(with_groups(*small, file_group(100 * MIB, of=partition(9))), "skewed_partitions") is None
    assert found(with_groups(*healthy_groups(3, 1), file_group(*[500 * MIB] * 20, of=partition(99))), "skewed_partitions") is None


def test_files_of_a_spec_left_behind_are_named() -> None:
    groups = [*healthy_groups(days=3), file_group(*[500 * MIB] * 3, of=partition(spec_id=1))]
    facts = with_groups(*groups, specs=(BY_DAY, PartitionSpec(1, BY_DAY.fields)), default_spec_id=1)
    finding = found(facts, "old_partition_spec")

    assert finding is not None
    assert finding.files_at_stake == 12
    assert found(with_groups(*groups[:3]), "old_partition_spec") is None


def test_orphans_are_named_only_when_storage_was_listed() -> None:
    facts = table_facts()
    listed = dataclasses.replace(facts, storage=StorageFacts(0, 3, ("s3://bucket/a",)))

    assert found(facts, "orphan_files") is None
    assert found(dataclasses.replace(facts, storage=StorageFacts(0, 0)), "orphan_files") is None
    finding = found(listed, "orphan_files")
    assert finding is not None
    assert finding.where == ("s3://bucket/a",)
    assert "dry_run => true" in finding.sql[0]


def test_a_location_that_another_table_shares_is_named_in_place_of_orphans() -> None:
    sharing = Sharing(tuple(SharedPlace(f"db.t{n}", "s3://bucket/db/events") for n in range(7)))
    facts = dataclasses.replace(table_facts(), storage=StorageFacts(0, 0, sharing=sharing))

    assert found(facts, "orphan_files") is None
    finding = found(facts, "shared_location")
    assert finding is not None
    assert "shared location with db.t0 (s3://bucket/db/events), " in finding.evidence
    assert "and 2 more tables; " in finding.evidence
    assert finding.sql == ()


def test_orphans_that_may_be_another_tables_say_so() -> None:
    unknown = StorageFacts(0, 3, sharing=Sharing(unchecked="db.broken cannot be read: it is gone"))
    finding = found(dataclasses.replace(table_facts(), storage=unknown), "orphan_files")

    assert finding is not None
    assert "they may belong to another table (db.broken cannot be read: it is gone)" in finding.evidence


def test_an_unpartitioned_table_is_one_partition_without_a_name() -> None:
    finding = found(with_groups(file_group(*[MIB] * 9, of=partition_of_nothing()), specs=(UNPARTITIONED,)), "small_files")

    assert finding is not None
    assert finding.where == ("(unpartitioned)",)


def partition_of_nothing() -> Partition:
    return Partition(0, ())
