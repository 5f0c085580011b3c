"""From measured costs to properties to set, and to leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from icekit.facts.model import TableFacts
from icekit.tune.card import Advice
from icekit.tune.write_mode.history import COPY_ON_WRITE, MERGE_ON_READ, WriteHistory, write_history
from icekit.tune.write_mode.model import CostComparison, Costs, Variant, advise, current_variant
from tests import factories

TABLE = ("lake", "db", "my table")
COW = Costs(Variant(COPY_ON_WRITE, 2), 20.0, 0.0, 1.0)
FILE = Costs(Variant(MERGE_ON_READ, 2, "file"), 4.0, 0.01, 50, touched_share=0.5, rewrite_seconds=10.0)
PARTITION = Costs(Variant(MERGE_ON_READ, 2, "partition"), 3.5, 0.01, 200, touched_share=0.5, rewrite_seconds=10.0)
VECTORS = Costs(Variant(MERGE_ON_READ, 3), 4.0, 0.001, 50, 100, touched_share=0.5, rewrite_seconds=10.0)


def advised(
    reads: float | None, *costs: Costs, facts: TableFacts | None = None, history: WriteHistory | None = None, **options: Any
) -> dict[str, Advice]:
    found = advise(
        facts or factories.table_facts(catalog="lake", table=TABLE[1:]),
        history or write_history([]),
        CostComparison(costs or (COW, FILE, PARTITION, VECTORS), 1.0, 10),
        "merge",
        reads,
        **{"margin": 0.1, **options},
    )
    return {a.setting: a for a in found}


def test_few_reads_get_merge_on_read_with_the_statement_that_sets_it() -> None:
    advice = advised(0.5)["write.merge.mode"]

    assert (advice.current, advice.proposed) == (COPY_ON_WRITE, MERGE_ON_READ)
    assert advice.sql == "ALTER TABLE `lake`.`db`.`my table` SET TBLPROPERTIES ('write.merge.mode' = 'merge-on-read')"
    assert advice.evidence.startswith("It saves ")


def test_many_reads_leave_copy_on_write() -> None:
    advice = advised(500.0, COW, FILE, PARTITION)["write.merge.mode"]

    assert not advice.is_change
    assert "The current mode is cheaper" in advice.evidence


def test_a_gain_under_the_margin_is_left_and_said() -> None:
    advice = advised(0.5, margin=0.99)["write.merge.mode"]

    assert not advice.is_change
    assert "is less than 99 %" in advice.evidence


def test_unknown_reads_change_nothing_and_tell_the_break_even() -> None:
    advice = advised(None)["write.merge.mode"]

    assert not advice.is_change
    assert "Copy-on-write is cheaper above" in advice.evidence
    assert "give reads_per_day" in advice.evidence


def test_a_newer_format_version_is_an_advice_that_names_what_it_breaks() -> None:
    advice = advised(20.0)["format-version"]

    assert advice.proposed == "3"
    assert advice.breaks is not None
    assert "cannot be undone" in advice.breaks
    assert advice.sql is not None
    assert advice.sql.endswith("('format-version' = '3', 'write.merge.mode' = 'merge-on-read')")
    assert "format-version" not in advised(20.0, COW, FILE)


def test_the_mode_advised_is_of_the_version_that_the_table_has() -> None:
    # Only vectors would beat copy-on-write at these reads; the table has none to write.
    found = advised(30.0)

    assert not found["write.merge.mode"].is_change
    assert found["format-version"].is_change


def test_granularity_is_advised_with_merge_on_read_only() -> None:
    assert advised(0.5)["write.delete.granularity"].proposed == "file"
    assert "write.delete.granularity" not in advised(500.0)
    assert advised(0.5, COW, replace(FILE, write_seconds=9.0), replace(PARTITION, open_seconds=0.0001))["write.delete.granularity"].sql


def test_the_cadence_is_of_the_mode_advised() -> None:
    assert "is cheapest" in advised(0.5)["compaction interval"].evidence
    assert "compaction" not in advised(500.0, COW, FILE)


def test_several_writers_are_told_what_their_isolation_level_means() -> None:
    made = [
        {
            "timestamp-ms": n,
            "summary": {"operation": "delete", "added-delete-files": "1", "added-position-deletes": "1", "spark.app.id": f"a{n}"},
        }
        for n in range(2)
    ]

    assert "0 applications" in advised(1.0)["write.merge.isolation-level"].evidence
    assert "2 applications" in advised(1.0, history=write_history(made))["write.merge.isolation-level"].evidence


def test_a_table_of_version_1_gets_version_2_with_merge_on_read() -> None:
    advice = advised(0.5, facts=factories.table_facts(format_version=1))

    assert advice["write.merge.mode"].sql is not None
    assert "'format-version' = '2'" in advice["write.merge.mode"].sql
    assert advice["write.merge.mode"].breaks is not None
    assert advice["format-version"].current == "1"


def test_compacting_that_never_pays_is_said_not_to() -> None:
    never = replace(FILE, open_seconds=1e-9, rewrite_seconds=50.0)

    assert "compaction is not worth it" in advised(0.5, COW, never)["compaction interval"].evidence


def test_the_mode_in_force_is_read_from_the_properties() -> None:
    merging = factories.table_facts(properties={"write.merge.mode": "merge-on-read", "write.delete.granularity": "partition"})

    assert current_variant(factories.table_facts(), "merge") == COW.variant
    assert current_variant(merging, "merge") == PARTITION.variant
    assert current_variant(merging, "delete") == COW.variant


def test_no_gain_that_repeated_runs_could_explain_calls_for_a_format_version() -> None:
    vague = (replace(cost, error_seconds=60.0) for cost in (COW, FILE, PARTITION, VECTORS))

    assert advised(3.0)["format-version"].is_change
    left = advised(3.0, *vague)["format-version"]
    assert not left.is_change
    assert "within the variation of repeated runs (120 s)" in left.evidence


def test_reads_within_the_interval_of_the_break_even_are_too_close_to_call() -> None:
    vague = replace(COW, error_seconds=4.0), replace(FILE, error_seconds=1.0, open_error=0.003)
    even = CostComparison(vague, 1.0, 10).main_break_even()
    assert even is not None

    inside = advised((even.low + even.reads) / 2, *vague)["write.merge.mode"]
    outside = advised(even.low * 0.5, *vague)["write.merge.mode"]

    assert not inside.is_change
    assert inside.evidence.startswith("Too close to call at ")
    assert "below " in inside.evidence
    assert outside.proposed == MERGE_ON_READ
