"""The health card, the report, ``plan``, ``compact`` and ``maintain`` give the same answer for each
of the lab's tables.
"""

import datetime as dt

import pytest

import icekit
from icekit.api import Lake
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import sort_key
from icekit.maintain.planning.maintenance import plan_maintenance_table
from icekit.maintain.planning.proposals import propose
from icekit.maintain.planning.savings import (
    current_selection,
    savings_of,
    savings_sentences,
    waiting_sentence,
)
from icekit.maintain.planning.table_plan import plan_table
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
    saved, proposals = savings_of(facts, findings), propose(lake, facts, findings)
    by_rewrite = saved.opens_saved
    kinds = {proposal.kind for proposal in proposals.proposals}

    assert sum(p.file_opens_saved or 0 for p in proposals.proposals) == by_rewrite
    assert sum(p.delete_rows_gone or 0 for p in proposals.proposals) == saved.delete_rows_gone
    maintenance = plan_maintenance_table(lake, facts, findings, now=now)
    assert ("maintain" in kinds) == bool(maintenance.actions)
    manifests = [a.prediction for a in maintenance.actions if a.prediction.unit == "manifest"]
    gone = sum(p.file_opens_saved for p in manifests)
    assert sum(p.manifests_gone or 0 for p in proposals.proposals) == saved.manifests_gone == gone
    assert (proposals.file_opens, proposals.delete_rows, proposals.manifests) == (
        saved.scan_opens,
        saved.scan_delete_rows,
        saved.scan_manifests,
    )
    skipped = current_selection(facts, findings).skipped
    sentence = waiting_sentence(facts, findings)
    assert bool(sentence) == bool(facts.contradictions or skipped)
    assert savings_sentences(facts, findings).get("", "").endswith(sentence)
    assert all(
        any(each.count_and_reason in line for line in (*proposals.notes, proposals.verdict))
        for each in skipped
    )
    if facts.contradictions:
        assert (saved.opens_saved, saved.manifests_gone) == (0, 0)
        return

    planned = plan_table(lake, facts, findings, now=now)
    chosen = current_selection(facts, findings).selected_candidates
    rewrites = [action for action in planned.actions if not action.only_drops_deletes]
    opens = max(sum(action.prediction.file_opens_saved for action in rewrites), 0)

    assert sorted((p for a in rewrites for p in a.partitions), key=sort_key) == sorted(
        (p for c in chosen for p in c.partitions), key=sort_key
    )
    assert ("compact" in kinds) == bool(planned.actions)
    assert sum(s.partition_count for s in planned.left_alone) == sum(
        s.partition_count for s in skipped
    )
    # Iceberg packs files into tasks, each of which writes a file of its own: metadata alone cannot
    # tell how many more that are.
    assert by_rewrite * 0.9 <= opens <= by_rewrite
