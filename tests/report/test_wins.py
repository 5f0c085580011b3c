"""What maintenance would save a full scan of a table: each term by hand."""

import pytest

from icekit import Thresholds, diagnose
from icekit.health.diagnose.findings import Findings
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import OPEN_FILE_COST
from icekit.health.facts.storage import SharedPlace, Sharing, StorageFacts
from icekit.health.storage.orphans import estimated_bytes
from icekit.iceberg.file_kind import Kind
from icekit.maintain.planning.savings import Savings, savings_of, savings_sentences, savings_total
from tests.factories import (
    MIB,
    file_group,
    finding,
    findings,
    manifest_facts,
    partition,
    sequence,
    table_facts,
)
from tests.maintain.delete_counts import facts_of


def fragmented(count: int, manifest_bytes: int, entries: int) -> TableFacts:
    manifests = manifest_facts(
        data_count=count,
        data_bytes=count * manifest_bytes,
        data_entry_count=entries,
        undersized_count=count,
    )
    return table_facts(groups=(file_group(*[500 * MIB] * 4),), manifests=manifests)


def won(facts: TableFacts) -> Savings:
    return savings_of(facts, diagnose(facts))


def test_small_files_save_an_open_each_at_the_tables_own_cost() -> None:
    group = file_group(*[MIB] * 100)
    facts = table_facts(groups=(group,), manifests=manifest_facts((group,), data_bytes=50_000))
    savings = won(facts)

    assert savings.opens_saved == 99
    assert savings.rewrite_bytes == 100 * MIB
    assert savings.saved_bytes == 99 * OPEN_FILE_COST
    # A full scan opens 100 files and one manifest, and reads both.
    assert savings.scan_cost_bytes == 101 * OPEN_FILE_COST + 100 * MIB + 50_000
    assert savings.share == pytest.approx(savings.saved_bytes / savings.scan_cost_bytes)
    own = table_facts(groups=(group,), properties={"read.split.open-file-cost": "1048576"})
    assert won(own).saved_bytes == 99 * MIB


def test_what_is_won_is_what_a_plan_by_the_same_limits_would_take() -> None:
    groups = (
        file_group(*[MIB] * 8, records_per_file=1000),
        file_group(*[500 * MIB] * 4, of=partition(7), records_per_file=1000),
    )
    facts = table_facts(groups=groups)
    found = diagnose(facts)

    assert savings_of(facts, found).opens_saved == 7
    assert savings_of(facts, found, Thresholds(min_input_files=9)).opens_saved == 0


def test_a_healthy_table_and_an_empty_one_win_nothing() -> None:
    healthy = won(table_facts())

    assert (healthy.saved_bytes, healthy.share, healthy.rewrite_bytes) == (0, 0.0, 0)
    assert Savings().share is None


def test_deletes_save_their_opens_their_rows_and_the_bytes_of_deleted_rows() -> None:
    data = file_group(*[500 * MIB] * 4, records_per_file=1000)
    deletes = file_group(
        *[MIB] * 4, kind=Kind.POSITION_DELETES, records_per_file=250, file_scoped_count=4
    )
    rows = sequence(
        2,
        data_file_count=4,
        data_record_count=4000,
        position_delete_file_count=4,
        position_delete_record_count=1000,
    )
    savings = won(table_facts(groups=(data, deletes), sequences=(rows,)))

    assert savings.delete_rows_gone == 1000
    # One file of four, and the four delete files that are opened with them.
    assert savings.opens_saved == 5
    assert savings.saved_bytes == 5 * OPEN_FILE_COST + 2000 * MIB // 4 + 4 * MIB


def test_manifests_go_only_where_a_finding_asks_for_it() -> None:
    assert won(fragmented(200, 4096, 200)).manifests_gone == 199
    assert won(fragmented(20, 4096, 200)).manifests_gone == 0


def test_what_a_remedy_saves_is_said_of_each_finding_that_makes_a_scan_cheaper() -> None:
    facts = table_facts(groups=(file_group(*[10 * MIB] * 9),))
    found = diagnose(facts)

    assert found.names == {"small_files"}
    saves = (
        "each full scan 8 of 9 file opens (25 % cheaper by Iceberg's weights) by rewriting 90 MiB."
    )
    assert savings_sentences(facts, found) == {"small_files": f"Saves {saves}"}
    both = savings_sentences(facts, Findings((*found, finding("distribution_mode"))))
    assert both[""] == f"Fixing all of these saves {saves}"
    many = fragmented(150, 10_000, 300)
    assert "of 150 manifests" in savings_sentences(many, diagnose(many))["fragmented_manifests"]
    assert savings_sentences(table_facts(), findings("distribution_mode")) == {}


def test_what_one_action_saves_is_said_once() -> None:
    # A later equality delete file applies to all data files; four of them are well-sized.
    sizes = (*[MIB] * 20, *[500 * MIB] * 4)
    data = file_group(*sizes, records_per_file=1000)
    rows = [
        sequence(
            1,
            data_file_count=24,
            data_record_count=24_000,
            well_sized_file_count=4,
            well_sized_bytes=2000 * MIB,
        ),
        sequence(2, equality_delete_file_count=1, equality_delete_record_count=100),
    ]
    facts = facts_of(rows, data)
    found = diagnose(facts)
    others = {"deletes_default_rewrite_ignores", "small_files"}
    assert {"equality_deletes", *others} <= found.names

    sentences = savings_sentences(facts, found)

    saves = sentences["equality_deletes"].removeprefix("Saves")
    assert sentences[""] == f"Fixing all of these saves{saves}"
    assert others.isdisjoint(sentences)
    assert str(won(facts).opens_saved) in saves


def test_totals_leave_out_what_is_not_known() -> None:
    summed = savings_total(
        [
            Savings(saved_bytes=5, scan_cost_bytes=10),
            Savings(saved_bytes=2, scan_cost_bytes=10, orphan_files=3),
        ]
    )

    assert (summed.saved_bytes, summed.scan_cost_bytes, summed.orphan_files) == (7, 20, 3)
    assert summed.orphan_bytes is None
    assert savings_total([]).saved_bytes == 0


def test_orphan_files_are_counted_and_weighed_where_storage_was_listed() -> None:
    listed = won(table_facts(storage=StorageFacts(0, 7, ("a",), 700, 7)))
    unlisted = won(table_facts())

    assert (listed.orphan_files, listed.orphan_bytes) == (7, 700)
    assert not listed.are_orphans_estimated
    assert unlisted.orphan_files is unlisted.orphan_bytes is None
    # What nobody reads is saved by no scan.
    assert listed.saved_bytes == unlisted.saved_bytes
    # Nor are they counted where another table shares the location.
    shared = StorageFacts(0, 0, sharing=Sharing((SharedPlace("db.other", "s3://bucket/db"),)))

    assert won(table_facts(storage=shared)).orphan_files is None


def test_sizes_of_some_stand_for_all_and_no_sizes_for_none() -> None:
    assert estimated_bytes(0, []) == 0
    assert estimated_bytes(1_000_000, [10, 20]) == 15_000_000
    assert estimated_bytes(3, []) is None
