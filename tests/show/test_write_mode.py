"""The choice of a write mode as text, HTML and pictures."""

from __future__ import annotations

from dataclasses import replace

from icekit.engine.effort import CPU, Effort
from icekit.engine.planner import PlannedScan
from icekit.show.tune_charts import cost_chart, parts_chart
from icekit.tune.card import answer_html, answer_text
from icekit.tune.write_mode import WriteModeChoice
from icekit.tune.write_mode.history import COPY_ON_WRITE, MERGE_ON_READ, Workload, write_history
from icekit.tune.write_mode.model import CostComparison, Costs, Variant, advise, current_variant, sensitivity
from icekit.tune.write_mode.trial import VariantMeasures, WriteModeTrial
from tests import factories

COW, MOR = Variant(COPY_ON_WRITE, 2), Variant(MERGE_ON_READ, 2, "file")
COSTS = (Costs(COW, 20.0, 0.0, 1.0), Costs(MOR, 4.0, 0.01, 50, touched_share=0.5, rewrite_seconds=10.0))


def choice(reads: float | None = 0.5, stopped: str | None = None) -> WriteModeChoice:
    facts = factories.table_facts()
    history = write_history([])
    comparison = None if stopped else CostComparison(COSTS, 2.0, 10)
    measured = (
        VariantMeasures(COW, [Effort(30.0, 20.0)], scans=[Effort(3.0, 2.0)], planned=PlannedScan(40, 2**30, 0)),
        VariantMeasures(
            MOR, [Effort(6.0, 4.0)], scans=[Effort(3.5, 2.5)], planned=PlannedScan(40, 2**30, 50), compactions=[Effort(7.0, 5.0)]
        ),
    )
    return WriteModeChoice(
        facts,
        advise(facts, history, comparison, "merge", reads, margin=0.1) if comparison else (),
        stopped,
        history,
        "merge",
        current_variant(facts, "merge"),
        reads,
        "as stated",
        WriteModeTrial(Workload("merge", "your MERGE", (), is_synthetic=False), measured, None, 60.0, 1.0, stopped),
        comparison,
        "as stated",
        sensitivity(comparison, reads) if comparison and reads is not None else (),
        0.1,
    )


def test_the_text_tells_the_answer_the_figures_and_the_statement_to_paste() -> None:
    said = answer_text(choice())

    assert "Set write.merge.mode to merge-on-read" in said
    assert "position deletes per file" in said
    assert "('write.merge.mode' = 'merge-on-read');" in said
    assert "10 commits between compactions, as stated" in said


def test_html_has_the_statement_to_copy_and_escapes_names() -> None:
    one = choice()
    named = replace(one, facts=replace(one.facts, table=("db", "<script>")))

    assert "'write.merge.mode' = 'merge-on-read'" in answer_html(one).replace("&#x27;", "'")
    assert "<script>alert" not in answer_html(named)
    assert "&lt;script&gt;" in answer_html(named)


def test_reads_that_nobody_knows_are_said_not_to_be_known() -> None:
    said = answer_text(choice(None))

    assert "number of reads of the table is not known." in said
    assert "No advice: the number of reads of the table is not known. Copy-on-write is cheaper above" in said


def test_a_trial_that_was_stopped_has_no_chart_but_a_sentence() -> None:
    one = choice(stopped="the time budget of 9 s ran out")

    for chart in (cost_chart(one), parts_chart(one)):
        assert chart.figure is None
        assert "the time budget of 9 s ran out" in chart.alt
    assert one.document()["measured"]["comparison"] is None


def test_reads_near_the_break_even_are_too_close_to_call_and_change_nothing() -> None:
    one = choice(3.5)
    assert one.comparison is not None
    vague = replace(one.comparison, costs=tuple(replace(c, error_seconds=3.0) for c in one.comparison.costs), unit=CPU)
    near = replace(one, comparison=vague, advice=advise(one.facts, one.history, vague, "merge", 3.5, margin=0.1))

    assert near.verdict().startswith("Too close to call at 3.5 reads per commit (merge-on-read")
    assert "by repeated measurements)" in repr(near)
    assert near.confidence().startswith("low: ")
    assert near.script.sql == ()


def test_costs_are_named_by_their_unit_with_the_clock_next_to_them() -> None:
    one = choice()
    cpu = replace(one, trial=replace(one.trial, unit=CPU))

    assert "of CPU time instead of" in cpu.verdict()
    assert cpu.tables()["measured"]["commit_cost"] == [20.0, 4.0]
    assert cpu.tables()["measured"]["commit_seconds"] == [30.0, 6.0]
    assert "commit_seconds" not in one.tables()["measured"].columns
    assert one.tables()["costs"].caption.endswith("wall-clock time")


def test_charts_and_tables_tell_the_same_figures() -> None:
    one = choice()

    assert cost_chart(one).png().startswith(b"\x89PNG")
    assert "The table has 0.5 reads per commit." in cost_chart(one).alt
    parts = parts_chart(one)
    assert parts.png().startswith(b"\x89PNG")
    tables = one.tables()
    assert parts.table["total_seconds"] == [w + s + r + c for _, w, s, r, c, *_ in tables["costs"].rows]
    assert tables["measured"]["delete_opens"] == [0, 50]
    assert len(tables["sensitivity"]) == 12
