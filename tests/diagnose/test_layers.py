"""Symptoms of manifests, snapshots, metadata files, writes and column statistics."""

from __future__ import annotations

import dataclasses

import pytest

from icekit import Severity, Thresholds, diagnose
from icekit.diagnose.findings import Finding, Findings
from icekit.errors import ParameterError
from icekit.facts.model import Column, History, MetricsSample, RangeOverlap, SortField, TableFacts
from tests.factories import (
    COLUMNS,
    KIB,
    MIB,
    column_sample,
    commit,
    file_group,
    finding,
    healthy_groups,
    history,
    manifest_facts,
    table_facts,
)


def found(facts: TableFacts, name: str, **options: object) -> Finding | None:
    return next((f for f in diagnose(facts, **options) if f.name == name), None)  # type: ignore[arg-type]


def with_manifests(**overrides: object) -> TableFacts:
    return table_facts(manifests=manifest_facts(healthy_groups(), **overrides))


def test_a_hundred_small_manifests_that_fit_into_one_are_fragmented() -> None:
    assert (
        found(with_manifests(data_count=100, undersized_data_manifest_count=100, data_bytes=100 * 8 * KIB), "fragmented_manifests")
        is not None
    )
    assert found(with_manifests(data_count=99, undersized_data_manifest_count=99, data_bytes=99 * 8 * KIB), "fragmented_manifests") is None


def test_fragmented_manifests_say_what_a_rewrite_saves() -> None:
    finding = found(with_manifests(data_count=100, undersized_data_manifest_count=100, data_bytes=100 * 8 * KIB), "fragmented_manifests")

    assert finding is not None
    assert "saves a query up to 99 requests: 2.0 s of planning on an object store" in finding.effect


def test_many_manifests_of_a_large_table_are_not_fragmented() -> None:
    assert (
        found(with_manifests(data_count=5000, undersized_data_manifest_count=150, data_bytes=5000 * 8 * MIB), "fragmented_manifests")
        is None
    )


def test_merging_that_is_turned_off_is_part_of_the_remedy() -> None:
    facts = with_manifests(data_count=100, undersized_data_manifest_count=100, data_bytes=MIB)
    off = dataclasses.replace(table_facts(properties={"commit.manifest-merge.enabled": "false"}), manifests=facts.manifests)

    assert [len(f.sql) for f in (found(facts, "fragmented_manifests"), found(off, "fragmented_manifests")) if f] == [1, 2]


@pytest.mark.parametrize(
    ("overlaps", "named"),
    [
        ([("event_day", 0.9)], True),
        ([("event_day", 0.4)], False),
        ([("event_day", 0.9), ("carrier", 0.1)], False),
    ],
)
def test_manifests_overlap_when_no_partition_field_tells_them_apart(overlaps: list[tuple[str, float]], named: bool) -> None:
    ranges = tuple(RangeOverlap(0, field, 20, share) for field, share in overlaps)

    assert (found(with_manifests(data_bytes=160 * MIB, overlaps=ranges), "overlapping_manifests") is not None) is named
    assert found(with_manifests(data_bytes=MIB, overlaps=ranges), "overlapping_manifests") is None


def test_a_hundred_snapshots_are_a_pile_and_the_remedy_never_expires_now() -> None:
    pile = found(table_facts(history=history(*[commit(n) for n in reversed(range(100))])), "snapshots_piling_up")

    assert pile is not None
    assert pile.sql == ("CALL `prod`.system.expire_snapshots(table => 'db.events', retain_last => 10)",)
    assert found(table_facts(history=history(*[commit(n) for n in reversed(range(99))])), "snapshots_piling_up") is None


def test_an_expiry_that_would_remove_no_snapshot_is_no_remedy() -> None:
    every = [commit(n) for n in reversed(range(100))]
    none, some = (found(table_facts(history=history(*every, expirable_count=n)), "snapshots_piling_up") for n in (0, 7))

    assert none is not None
    assert some is not None
    assert (none.sql, len(some.sql)) == ((), 1)
    assert "every branch keeps its own" in none.remedy
    assert some.evidence.endswith("; 7 would expire now")


def test_a_full_metadata_log_is_named_unless_commits_delete_what_they_drop() -> None:
    full = history(metadata_log_count=100)

    assert found(table_facts(history=full), "metadata_files_piling_up") is not None
    assert (
        found(table_facts(history=full, properties={"write.metadata.delete-after-commit.enabled": "true"}), "metadata_files_piling_up")
        is None
    )
    assert found(
        table_facts(history=history(metadata_log_count=20), properties={"write.metadata.previous-versions-max": "20"}),
        "metadata_files_piling_up",
    )


def appends(files: int, partitions: int, mean: int) -> History:
    return history(
        *[commit(n, added_data_files=files, changed_partitions=partitions, added_bytes=files * mean) for n in reversed(range(20))]
    )


def test_several_small_files_per_partition_and_commit_are_at_odds_with_any_distribution() -> None:
    none = found(table_facts(history=appends(12, 3, MIB), properties={"write.distribution-mode": "none"}), "distribution_mode")
    hashed = found(table_facts(history=appends(12, 3, MIB)), "distribution_mode")

    assert none is not None
    assert hashed is not None
    assert "'write.distribution-mode' = 'hash'" in none.sql[0]
    assert hashed.sql == ()


def test_files_that_the_bytes_explain_are_nobodys_fault() -> None:
    assert found(table_facts(history=appends(12, 3, 480 * MIB)), "distribution_mode") is None
    assert found(table_facts(history=appends(6, 3, MIB)), "distribution_mode") is None


def test_a_filter_column_whose_metrics_are_off_is_named_with_the_property_that_turns_them_on() -> None:
    columns = (*COLUMNS[:3], dataclasses.replace(COLUMNS[3], metrics_mode="none"))
    sample = MetricsSample(
        20,
        1,
        (*(column_sample(c.name) for c in COLUMNS[:3]), column_sample("amount", bounds_file_count=0, counts_file_count=0, stab_share=None)),
    )
    facts = table_facts(columns=columns, metrics_sample=sample)

    assert found(facts, "metrics_missing") is None
    named = found(dataclasses.replace(facts, filter_columns=("amount",)), "metrics_missing")
    assert named is not None
    assert "'write.metadata.metrics.column.amount' = 'truncate(16)'" in named.sql[0]


def test_a_sort_column_that_never_had_metrics_is_named() -> None:
    sample = MetricsSample(
        20,
        1,
        tuple(
            column_sample(c.name) if c.name != "amount" else column_sample("amount", bounds_file_count=0, counts_file_count=0)
            for c in COLUMNS
        ),
    )
    order = (SortField("amount", "identity", "asc", "nulls-first"),)

    assert found(table_facts(sort_order=order, metrics_sample=sample), "metrics_missing") is not None


def test_more_columns_than_the_limit_are_named_unless_the_default_is_stated() -> None:
    columns = tuple(Column(i, f"c{i}", "int", False, i, "truncate(16)" if i < 100 else "none") for i in range(103))

    named = found(table_facts(columns=columns), "columns_past_metrics_limit")
    assert named is not None
    assert named.where == ("c100", "c101", "c102")
    assert found(table_facts(columns=columns, properties={"write.metadata.metrics.default": "none"}), "columns_past_metrics_limit") is None


def test_statistics_of_very_many_columns_are_named() -> None:
    columns = tuple(Column(i, f"c{i}", "int", False, i, "truncate(16)") for i in range(65))

    assert found(table_facts(columns=columns), "too_many_metrics") is not None
    assert found(table_facts(columns=columns[:64]), "too_many_metrics") is None


def test_a_declared_column_that_lies_in_half_of_the_files_is_unclustered() -> None:
    def sampled(share: float, files: int = 20) -> TableFacts:
        samples = tuple(column_sample(c.name, files, stab_share=share if c.name == "carrier" else 0.01) for c in COLUMNS)
        return table_facts(metrics_sample=MetricsSample(files, 1, samples), filter_columns=("carrier",))

    named = found(sampled(0.5), "unclustered_filter_columns")
    assert named is not None
    assert named.where == ("carrier",)
    assert "sort_order => '`carrier` ASC NULLS LAST'" in named.sql[0]
    assert found(sampled(0.49), "unclustered_filter_columns") is None
    assert found(sampled(1.0, files=9), "unclustered_filter_columns") is None
    assert found(dataclasses.replace(sampled(1.0), filter_columns=()), "unclustered_filter_columns") is None


def test_a_column_with_a_dot_in_its_name_is_sorted_by_its_name_and_not_by_its_parts() -> None:
    odd = Column(90, "a.b", "string", False, 9, "full", ("a.b",))
    sample = MetricsSample(20, 1, (column_sample("a.b", 20, stab_share=0.9),))

    named = found(table_facts(columns=(*COLUMNS, odd), metrics_sample=sample, filter_columns=("a.b",)), "unclustered_filter_columns")

    assert named is not None
    assert "sort_order => '`a.b` ASC NULLS LAST'" in named.sql[0]


def test_findings_come_most_serious_first_and_then_by_what_is_at_stake() -> None:
    facts = dataclasses.replace(
        with_manifests(data_count=200, undersized_data_manifest_count=200, data_bytes=MIB),
        history=history(snapshot_count=500, metadata_log_count=100),
    )

    assert [f.name for f in diagnose(facts)] == ["fragmented_manifests", "snapshots_piling_up", "metadata_files_piling_up"]


def test_of_equal_bytes_the_finding_with_more_files_comes_first() -> None:
    facts = dataclasses.replace(
        with_manifests(data_count=200, undersized_data_manifest_count=200, data_bytes=0),
        history=history(snapshot_count=500, metadata_log_count=0),
    )

    assert [(f.name, f.files_at_stake) for f in diagnose(facts)] == [("snapshots_piling_up", 500), ("fragmented_manifests", 200)]


def test_the_worst_severity_of_findings_is_none_without_any() -> None:
    assert Findings(()).worst is None
    assert Findings([finding(severity=Severity.INFO), finding(severity=Severity.CRITICAL)]).worst is Severity.CRITICAL


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"min_file_size_rati": 0.5}, "did you mean min_file_size_ratio"),
        ({"snapshots": "many"}, "must be a whole number"),
        ({"snapshots": 1.5}, "must be a whole number"),
        ({"delete_ratio": -1}, "0 or more"),
        ({"delete_ratio": True}, "must be a number"),
        ({"delete_ratio": float("inf")}, "must be a number"),
        ({"qqqq": 1}, r"no threshold 'qqqq'; known thresholds: min_file_size_ratio, max_file_size_ratio, .*, vectors_rewritten\.$"),
        ({"max_file_size_ratio": 1}, "^min_file_size_ratio must be 1 or less and max_file_size_ratio more than 1"),
        ({"min_file_size_ratio": 1.01}, "^min_file_size_ratio must be 1 or less and max_file_size_ratio more than 1"),
    ],
)
def test_a_threshold_that_is_unknown_or_senseless_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        Thresholds().with_changes(**changes)


def test_a_threshold_may_lie_on_its_limit() -> None:
    changed = Thresholds().with_changes(delete_ratio=0, min_file_size_ratio=1, snapshots=7.0)

    assert (changed.delete_ratio, changed.min_file_size_ratio, repr(changed.snapshots)) == (0.0, 1.0, "7")
    assert changed.size_ratios == (1.0, 1.8)


def test_findings_are_read_a_line_each() -> None:
    several = Findings([finding(severity=Severity.CRITICAL, evidence="bad"), finding("skewed_partitions", Severity.INFO, evidence="odd")])

    assert repr(several) == "critical small_files: bad\ninfo     skewed_partitions: odd"
    assert several.names == {"small_files", "skewed_partitions"}
    assert repr(Findings()) == "Nothing to do: no finding at these thresholds."


def test_the_remedy_keeps_as_many_snapshots_as_the_owner_wants_and_none_is_expired_where_files_are_shared() -> None:
    pile = history(*[commit(n) for n in reversed(range(100))])
    kept = found(table_facts(history=pile, properties={"history.expire.min-snapshots-to-keep": "500"}), "snapshots_piling_up")
    shared = found(table_facts(history=pile, properties={"gc.enabled": "false"}), "snapshots_piling_up")

    assert kept is not None
    assert "retain_last => 500" in kept.sql[0]
    assert shared is not None
    assert shared.sql == ()


def test_nobody_is_told_to_drop_metrics_before_filter_columns_are_declared() -> None:
    columns = tuple(Column(i, f"c{i}", "int", False, i, "truncate(16)") for i in range(65))
    undeclared = found(table_facts(columns=columns), "too_many_metrics")
    declared = found(table_facts(columns=columns, filter_columns=("c3",)), "too_many_metrics")

    assert undeclared is not None
    assert undeclared.sql == ()
    assert declared is not None
    assert "'write.metadata.metrics.column.c3' = 'truncate(16)'" in declared.sql[0]


def test_several_filter_columns_are_sorted_by_the_first_two_and_a_trial_is_named() -> None:
    samples = tuple(column_sample(c.name, stab_share=1.0) for c in COLUMNS)
    named = found(
        table_facts(metrics_sample=MetricsSample(20, 1, samples), filter_columns=("carrier", "amount", "event_id")),
        "unclustered_filter_columns",
    )

    assert named is not None
    order = "`carrier` ASC NULLS LAST, `amount` ASC NULLS LAST"
    assert f"sort_order => '{order}'" in named.sql[0]
    assert named.sql[1] == f"ALTER TABLE `prod`.`db`.`events` WRITE ORDERED BY {order}"
    assert "icekit tune layout db.events" in named.remedy


def test_a_rewrite_carries_the_limits_that_were_changed() -> None:
    limits = Thresholds().with_changes(min_input_files=2)
    facts = table_facts(groups=(file_group(MIB, MIB),))
    named = found(facts, "small_files", thresholds=limits)

    assert named is not None
    assert named.sql == (
        "CALL `prod`.system.rewrite_data_files(table => 'db.events', options => map('partial-progress.enabled', 'true', 'min-input-files', '2', 'use-starting-sequence-number', 'false'))",
    )


def test_changed_ratios_reach_a_rewrite_in_bytes() -> None:
    limits = Thresholds().with_changes(min_file_size_ratio=0.5, max_file_size_ratio=2.0)
    facts = table_facts(groups=(file_group(*[MIB] * 5, ratios=limits.size_ratios),))
    named = found(facts, "small_files", thresholds=limits)

    assert named is not None
    # Half of 512 MiB, and twice as much.
    assert named.sql[0].endswith(
        "options => map('partial-progress.enabled', 'true', 'min-file-size-bytes', '268435456', 'max-file-size-bytes', '1073741824', 'use-starting-sequence-number', 'false'))"
    )
