"""The health card, the report, ``plan``, ``compact`` and ``maintain`` give the same answer for each
of the lab's tables.
"""

import datetime as dt

import pytest

import icekit
from icekit.api import Lake
from icekit.compact.service import plan_table
from icekit.facts.model import TableFacts
from icekit.facts.rollup import sort_key
from icekit.maintain.plan import plan_maintenance_table
from icekit.maintain.proposals import propose
from icekit.maintain.savings import savings_told, selection, waiting, wins
from tests.workshop import each_lab_table


def observed(lake: Lake, name: str) -> tuple[TableFacts, icekit.Findings, dt.datetime]:
    facts = lake.observe(f"lab.{name}", size_ratios=icekit.Thresholds().size_ratios)
    return (
        facts,
        icekit.diagnose(facts),
        dt.datetime.fromtimestamp(facts.collected_at_ms / 1000, dt.UTC),
    )


@pytest.mark.spark
@each_lab_table()
def test_the_savings_of_a_report_are_those_of_the_plan_and_of_what_compact_would_run_now(
    lake: Lake, name: str
) -> None:
    facts, findings, now = observed(lake, name)
    saved, proposals = wins(facts, findings), propose(lake, facts, findings)
    by_rewrite = saved.opens_saved
    compacted = next((p for p in proposals.proposals if p.kind == "compact"), None)
    maintained = next((p for p in proposals.proposals if p.kind == "maintain"), None)

    assert (compacted.file_opens_saved if compacted else 0) == by_rewrite
    assert (compacted.delete_rows_gone if compacted else 0) == saved.delete_rows_gone
    maintenance = plan_maintenance_table(lake, facts, findings, now=now)
    assert bool(maintained) == bool(maintenance.actions)
    manifests = [a.prediction for a in maintenance.actions if a.prediction.unit == "manifest"]
    gone = sum(max(p.files_in - p.files_out, 0) for p in manifests)
    assert (maintained.manifests_gone if maintained else 0) == saved.manifests_gone == gone
    assert proposals.file_opens == saved.opens
    assert proposals.delete_rows == saved.delete_rows
    assert proposals.manifests == saved.manifests
    skipped = selection(facts, findings).skipped
    assert bool(waiting(facts, findings)) == bool(facts.contradictions or skipped)
    assert all(
        any(each.text in line for line in (*proposals.notes, proposals.verdict)) for each in skipped
    )
    if facts.contradictions:
        assert saved.opens_saved == 0
        assert saved.manifests_gone == 0
        return

    planned = plan_table(lake, facts, findings, now=now, progress=lambda _: None)
    chosen = selection(facts, findings).chosen
    rewrites = [action for action in planned.actions if not action.only_drops]
    opens = sum(action.prediction.file_opens_saved for action in rewrites)

    assert sorted((p for a in rewrites for p in a.partitions), key=sort_key) == sorted(
        (p for c in chosen for p in c.partitions), key=sort_key
    )
    assert bool(compacted) == bool(planned.actions)
    assert sum(s.partition_count for s in planned.left_alone) == sum(
        s.partition_count for s in skipped
    )
    # Iceberg packs files into tasks, each of which writes a file of its own: metadata alone cannot
    # tell how many more that are.
    assert by_rewrite * 0.9 <= opens <= by_rewrite


@pytest.mark.spark
@pytest.mark.lab("position_deletes")
def test_a_report_says_what_compaction_leaves_alone_for_now(lake: Lake) -> None:
    facts, findings, _ = observed(lake, "position_deletes")
    sentence = waiting(facts, findings)

    # Each of its partitions was written while the lab was built.
    assert (wins(facts, findings).opens_saved == 0) is bool(sentence)
    assert (savings_told(facts, findings).get("", "").endswith(sentence)) is True
