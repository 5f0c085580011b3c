"""A review has the shape of every answer; a proposal that leaves other rows is no longer on it."""

from __future__ import annotations

from dataclasses import replace

from icekit.answer.grid import Grid
from icekit.engine.predicate import Span
from icekit.tune.card import answer_html, answer_text
from icekit.tune.merge import EnginePlan, MergeRun, MergeTrial, PartitionedJoin, Review, Rewrite, Scan
from icekit.tune.merge.model import NARROWER, MergeContext, advise, opened
from icekit.tune.statement import Statement

WHOLE = Scan(90, 900_000, 0, 90)
PLAN = EnginePlan("merge-on-read", "SortMergeJoinExec", "RightOuter", ("id",), WHOLE, None, None, "hash", "hash", 10, "the tree")
NARROW = "MERGE INTO t USING s ON t.id = s.id AND t.d = ';' WHEN MATCHED THEN DELETE"
STATEMENT = Statement(
    "MERGE", "MERGE INTO t", ("lake", "db", "t"), None, "t", "t.id = s.id", "s", "s", "", ("matched",), Span(0, 0), None, "t", ()
)
KNOWN = MergeContext(fields=(("d", "days"),), keyed=frozenset({"d"}), source_columns=frozenset(), broadcast_bytes=None)
NO_JOIN = PartitionedJoin(False, False)
JOIN = PartitionedJoin(False, True, (("a.b", "true"), ("c.d", "false")), plan=PLAN, before=(("a.b", "false"), ("c.d", None)))


def review(*, rewrite: bool = True, joined: PartitionedJoin = NO_JOIN, trials: tuple[MergeTrial, ...] = ()) -> Review:
    narrow = Rewrite(NARROW, "t.d = ';'", (), "SELECT count(*)", replace(PLAN, scan=Scan(3, 30_000, 0, 3)))
    made = Review(
        statement=STATEMENT,
        table=("lake", "db", "t"),
        total=WHOLE,
        plan=PLAN,
        rewrite=narrow if rewrite else None,
        partitioned_join=joined,
        trials=trials,
    )
    return replace(made, advice=advise(made, "the source has no value", KNOWN))


def run(rows: str) -> MergeRun:
    return MergeRun(2.0, 90, 900_000, 5_000, rows)


def test_the_narrower_statement_comes_whole_with_its_check_and_its_cost() -> None:
    found = review(joined=JOIN)
    shown, _ = answer_html(found).split("<details>", 1)

    assert found.script.sql == (NARROW,)
    assert "3 of 90 data files" in found.verdict()
    assert [(e.now, e.after, e.is_cost) for e in found.effects()] == [("90", "3", False), ("879 KiB", "29.3 KiB", False), ("–", "1", True)]
    assert found.confidence().startswith("medium: ")
    assert shown.index("SELECT count(*)") < shown.index("<strong>SQL</strong>")
    assert "Alternative" in shown
    assert isinstance(found.tables()["ways"], Grid)


def test_the_settings_of_a_partitioned_join_can_be_undone() -> None:
    found = review(rewrite=False, joined=JOIN)

    assert found.script.sql == ("SET a.b = true", "SET c.d = false")
    assert found.script.undo == ("SET a.b = false", "RESET c.d")
    assert found.verdict().startswith("Use 2 session settings: ")


def test_a_proposal_that_leaves_other_rows_is_dropped() -> None:
    found = review(trials=(MergeTrial(NARROWER, run("1"), run("2")),))

    assert found.script.sql == ()
    assert NARROW not in answer_text(found)
    assert found.verdict().startswith("Do not use the proposed narrower ON")
    assert found.confidence().startswith("low: ")
    assert "✖ different rows" in answer_html(found)
    assert found.failure is not None


def test_rows_that_cannot_be_compared_lower_the_confidence_and_keep_the_proposal() -> None:
    found = review(trials=(MergeTrial(NARROWER, run("1"), run("2"), "current_timestamp()"),))

    assert found.script.sql == (NARROW,)
    assert found.confidence().startswith("medium: ")
    assert "✖" not in answer_html(found)


def test_a_proof_without_anything_to_compare_says_that_it_proved_nothing() -> None:
    asked = replace(review(rewrite=False), is_proof_asked=True)

    assert "--prove (prove=True) proved nothing" in asked.confidence()
    assert "With --prove (prove=True) it runs on clones" in review(rewrite=False).confidence()


def test_a_delete_file_that_several_data_files_open_is_not_counted_as_several() -> None:
    assert (
        opened(Scan(4, 40_000, 8, 2), WHOLE) == "4 of 90 data files, 39.1 KiB of 879 KiB, in 2 of 90 partitions, and delete files 8 times"
    )


def test_a_statement_without_a_better_one_stays_as_it_is() -> None:
    found = review(rewrite=False)

    assert found.verdict().startswith("No change: it opens 90 of 90 data files")
    assert found.script.sql == ()
    assert "✔ no change" in answer_html(found)
