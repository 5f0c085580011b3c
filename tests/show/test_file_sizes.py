"""File sizes in words and pictures: what the next writes are, what to set, what limits them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from icekit.facts.metadata import TARGET as TARGET_SIZE
from icekit.facts.model import TableFacts
from icekit.show import tune_charts as charts
from icekit.tune.card import Advice, answer_html, answer_text, to_set
from icekit.tune.file_sizes import FileSizes, interval
from icekit.tune.file_sizes.advisory_size import SizeCandidate, SizeTrial, chain
from icekit.tune.file_sizes.distribution import Cohort, Cohorts, ModeTrial, Predicted, TriedMode, cadence, modes, until_sick
from icekit.tune.file_sizes.written import Written
from tests.factories import MIB, TARGET, commit, history, partition, table_facts
from tests.factories import file_group as group
from tests.tune.file_sizes.making import CLUSTER, SOURCE, written

SMALL = written(*[TARGET // 4] * 60)
TABLE = ("prod", "db", "events")


def answer(*tried: Written, facts: TableFacts | None = None, **overrides: Any) -> FileSizes:
    """An answer whose trial of sizes made these commits, the first as things are."""
    facts = facts or table_facts()
    rhythm = cadence(facts)
    first, *rest = tried or (written(),)
    trial = SizeTrial(SOURCE, TARGET, first, first, tuple((SizeCandidate(900 * MIB, "one file a task"), w) for w in rest))
    mode_trial = ModeTrial(
        "append", "a usual commit", "hash", None, (TriedMode("none", Predicted("none", 8, "so"), SMALL), TriedMode("hash", None, first))
    )
    made = FileSizes(
        facts=facts,
        advice=(Advice("write.distribution-mode", "hash", "hash", "Leave it as it is."),),
        stopped=None,
        chain=chain(facts, {}, CLUSTER, mode="hash"),
        modes=modes(facts),
        cohorts=Cohorts((Cohort(7, 8, 8, 8 * MIB, 2, None, None, None, TARGET),), 1, 10, 8),
        cadence=rhythm,
        mode_trials=(mode_trial,),
        next_before=first,
        next_after=first,
        size_trial=trial,
        until_before=until_sick(rhythm, 4.0) if rhythm else None,
        until_after=until_sick(rhythm, 1.0) if rhythm else None,
        past_ratio=2.5,
    )
    return replace(made, **overrides)


def test_a_healthy_table_is_told_to_stay_as_it_is() -> None:
    said = answer_text(answer())

    assert said.startswith("db.events: No change: ")
    assert "Confidence: high: " in said
    assert "SQL:" not in said
    assert "✔ no change" in answer_html(answer())


def test_a_change_is_told_with_the_next_writes_before_and_after() -> None:
    advice = (to_set(table_facts(), {"write.spark.advisory-partition-size-bytes": "943718400"}, current="384 MiB", evidence="So."),)

    found = answer(SMALL, written(), advice=advice)

    assert found.verdict() == (
        "Set write.spark.advisory-partition-size-bytes to 943718400: a large commit of 6 GiB writes 12 files of 512 MiB instead of 60 files of 128 MiB."
    )
    large = next(e for e in found.effects() if e.figure == "data files that a large commit of 6 GiB writes")
    assert (large.now, large.after, large.is_cost) == ("60 files of 128 MiB", "12 files of 512 MiB", False)
    assert "No change" not in answer_text(found).splitlines()[0]
    assert "Undo:" in answer_text(found)


def test_a_target_that_is_too_small_comes_before_what_was_measured_with_it() -> None:
    facts = table_facts(properties={TARGET_SIZE: str(MIB)})
    first = to_set(facts, {TARGET_SIZE: str(128 * MIB)}, current=str(MIB), evidence="So.")

    assert answer(facts=facts, advice=(first,)).verdict() == (
        "First set write.target-file-size-bytes to 134217728: the target of 1 MiB is too small. "
        "No other change: no setting that was tried makes fewer or better-sized files."
    )
    untried = answer(facts=facts, advice=(first,), next_before=None, size_trial=None)
    assert untried.verdict() == "First set write.target-file-size-bytes to 134217728: the target of 1 MiB is too small."


def test_advice_without_a_statement_is_on_the_card_as_what_to_do() -> None:
    less_often = Advice("commit frequency", "as it is", "lower", "A typical commit adds 2 KiB to a partition.")

    found = answer(advice=(*answer().advice, less_often))
    page = answer_html(found)
    shown, folded = page.split("<details>", 1)

    assert found.verdict() == "Commit less often, or compact: no setting that was tried makes fewer or better-sized files."
    assert "▲ change" in page
    assert "A typical commit adds" in shown
    assert "A typical commit adds" not in folded
    assert answer_text(found).index("A typical commit adds") < answer_text(found).index("Also checked")


def test_without_a_trial_nothing_is_said_to_be_right() -> None:
    found = answer(mode_trials=(), next_before=None, next_after=None, size_trial=None, until_before=None, stopped="there is no bridge")

    assert "nothing was tried" in found.verdict()
    assert "Confidence: low: there is no bridge." in answer_text(found)
    assert charts.next_writes_chart(found).figure is None
    assert charts.modes_chart(found).figure is None


def test_expired_commits_are_listed_as_such_and_the_next_rewrite_is_foretold() -> None:
    said = answer_text(answer())

    assert "expired" in said
    assert "enough small files for a rewrite after 2 commits to it" in said
    assert "with the advised settings after 5 commits to it" in said


def test_the_chart_says_in_words_what_it_shows_and_has_its_figures() -> None:
    chart = charts.next_writes_chart(answer(SMALL, written(), next_before=SMALL, next_after=written()))

    assert chart.alt.startswith("The target is 512 MiB. Typical, now: 60 files of 128 MiB. Typical, as advised: 12 files of 512 MiB.")
    assert list(chart.table["files"]) == [60, 12, 60, 12]
    assert chart.png()


def test_commits_that_are_too_small_are_told_how_many_would_do_or_that_the_partitioning_is_too_fine() -> None:
    few = written(TARGET // 8)
    roomy = table_facts(history=history(*(commit(n) for n in (2, 1, 0))))
    fine = table_facts(groups=tuple(group(10 * MIB, of=partition(20_454 + n)) for n in range(9)))
    rhythm = cadence(roomy)
    assert rhythm is not None

    assert "8 such commits combined would make one: one commit every 8 hours instead of every 1 hour" in interval(roomy, rhythm, few, 8)
    assert "use a coarser partition transform" in interval(fine, rhythm, few, 8)


def test_the_document_holds_bytes_and_not_text() -> None:
    document = answer(SMALL, written()).document()

    assert [step["files"] for step in document["tables"]["large_commit"]] == [60, 12]
    assert document["tables"]["large_commit"][1]["mean_bytes"] == TARGET
    assert document["measured"]["size_trial"]["before"]["files"] == 60
