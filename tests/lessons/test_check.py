"""What a check says: of an exercise that is not solved, of a wrong answer, of a right one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from icekit import diagnose
from icekit.compact.model import Action, Plan, Prediction
from icekit.compact.outcome import ActionOutcome, Outcome
from icekit.facts.model import Kind, Partition, TableFacts
from icekit.lessons import check
from icekit.lessons.check import Checked
from icekit.maintain import Retention
from tests.factories import KIB, MIB, column_sample, commit, file_group, history, metrics_sample, partition, table_facts

ONE, OTHER = partition(1), partition(2)
SMALL = table_facts(groups=(file_group(*[MIB] * 200, of=ONE), file_group(*[MIB] * 100, of=OTHER)))
DELETED = table_facts(
    groups=(
        file_group(of=ONE, records_per_file=100),
        file_group(of=OTHER, records_per_file=100),
        file_group(KIB, of=ONE, kind=Kind.POSITION_DELETES, records_per_file=12),
        file_group(KIB, of=OTHER, kind=Kind.POSITION_DELETES, records_per_file=9),
    )
)


def plan(*partitions: Partition, of: TableFacts = SMALL, size: int = MIB, saved: int = 10, **more: Any) -> Plan:
    """A plan of one action for these partitions; of none without any."""
    names = tuple(of.partition_path(p) for p in partitions)
    prediction = Prediction(files_in=100, bytes_in=size, file_opens_saved=saved)
    action = Action("a1", "rewrite_data_files", of.catalog, of.table, "", prediction, partitions, names)
    return Plan(of.catalog, of.table, None, 1, None, (action,) if partitions else (), **more)


def dry(*partitions: Partition, run_id: str | None = None) -> Outcome:
    made = plan(*partitions)
    return Outcome(made, run_id, tuple(ActionOutcome(a, "planned") for a in made.actions))


def sampled(**shares: float) -> TableFacts:
    made = metrics_sample()
    columns = tuple(column_sample(c.column, stab_share=shares.get(c.column, 0.5)) for c in made.columns)
    return table_facts(metrics_sample=type(made)(made.file_count, 1, columns))


def hot(reason: str) -> Plan:
    from icekit.compact.model import Skipped

    return plan(left_alone=(Skipped(reason, 1, is_recent=True), Skipped("the budget goes to others", 3)))


def written(mode: str, files: int, partitions: int = 1) -> TableFacts:
    newest = commit(added_data_files=files, changed_partitions=partitions)
    return table_facts(properties={"write.distribution-mode": mode}, history=history(commit(1), newest))


EVERYTHING = plan(ONE, OTHER, size=10 * MIB, saved=100)
RECENT = "written within the last 60 minutes"
FINDINGS = diagnose(table_facts(groups=SMALL.groups, history=history(*[commit(n, added_data_files=9) for n in range(20)])))

#: The check of an answer, an answer that is right, and wrong ones with what is said of them.
CASES: dict[str, tuple[Callable[[Any], Checked], Any, list[tuple[Any, str]]]] = {
    "guess": (lambda a: check.guess(a, "data files"), 5, [("5", "Write a number"), (True, "Write a number"), (-1, "0 or more")]),
    "read off": (lambda a: check.read_off(a, SMALL), 300, [(3, "not 3")]),
    "budget": (
        lambda a: check.within_budget(a, SMALL, MIB),
        plan(ONE),
        [
            (plan(ONE, size=2 * MIB), "reads 2 MiB"),
            (plan(), "is empty"),
            (plan(ONE, of=table_facts(table=("db", "others"))), "plan for db.others"),
        ],
    ),
    "cause": (
        lambda a: check.cause(a, FINDINGS),
        "distribution mode",
        [("small_files", "describes existing files"), ("smallness", "not a finding")],
    ),
    "thrown away": (lambda a: check.thrown_away(a, DELETED), 21, [(12, "add up the position deletes")]),
    "one partition": (
        lambda a: check.one_partition(a, DELETED, 0.11),
        plan(ONE, of=DELETED),
        [(plan(ONE, OTHER, of=DELETED), "1 of them with deletes for less"), (plan(of=DELETED), "leaves out 1 partition")],
    ),
    "square": (check.half_the_commits, 0.25, [(0.5, "50 %"), (25, "between 0 and 1")]),
    "small first": (
        check.small_first,
        dry(ONE),
        [(dry(ONE, OTHER), "2 partitions"), (dry(ONE, run_id="r"), "executed"), (dry(), "0 partitions")],
    ),
    "retention": (
        lambda a: check.retention(a, 72),
        Retention.of({"keep": "4 days", "need": "3 days"}),
        [(Retention.of({"keep": "1 day"}), "keeps 1 day"), (Retention.of({"keep": "4 days"}), "State the need")],
    ),
    "live": (lambda a: check.live_share(a, 30, 100), 0.3, [(0.7, "not 70 %")]),
    "who pays": (
        lambda a: check.who_pays(a, sampled(event_time=0.1), sampled(event_time=1.0)),
        "event_time",
        [("carrier", "Look for a column that reads more files now"), ("nothing", "no column 'nothing'")],
    ),
    "pays back": (
        lambda a: check.pays_back(a, EVERYTHING, SMALL, least_win=0.9, most_bytes=0.4),
        plan(ONE, size=3 * MIB, saved=95),
        [(plan(ONE, size=MIB, saved=50), "should save 90 %"), (plan(ONE, size=9 * MIB, saved=95), "at most 40 %")],
    ),
    "left alone": (
        lambda a: check.left_alone(a, hot(RECENT)),
        RECENT,
        [("the budget goes to others", "not the reason"), ("because", "not the reason")],
    ),
    "writer": (check.writer_fixed, written("hash", 2, 2), [(written("none", 1), "still none"), (written("hash", 8), "8.0 files")]),
    "a day": (lambda a: check.files_a_day(a, 10), 144, [(24, "not 24")]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_right_answer_is_done_and_says_what_it_means(case: str) -> None:
    checked, right, _ = CASES[case]
    said = checked(right)

    assert said.is_done is True, said
    assert len(said.said) > 30
    assert repr(said).startswith("✔ ")


@pytest.mark.parametrize(
    ("case", "answer", "missing"), [(case, answer, said) for case, (_, _, wrong) in CASES.items() for answer, said in wrong]
)
def test_a_wrong_answer_is_told_what_is_missing(case: str, answer: object, missing: str) -> None:
    said = CASES[case][0](answer)

    assert said.is_done is False
    assert missing in said.said
    assert repr(said).startswith("… ")


@pytest.mark.parametrize("case", [case for case in CASES if case != "writer"])
def test_an_unsolved_exercise_is_told_what_to_write(case: str) -> None:
    said = CASES[case][0](None)

    assert said.is_done is False
    assert any(word in said.said for word in ("Write", "Make", "Assign"))


#: What a right answer means, in figures worked out by hand from the facts above.
MEANT = {
    "read off": "300 files for 300 MiB",
    "budget": "The plan reads 1 MiB, and a scan opens 10 fewer files",
    "thrown away": "10 % of the rows",  # 21 of 200
    "one partition": "event_day=1970-01-02 is rewritten",
    "retention": "4 days and the last 10 snapshots stay",
    "live": "70 % of the bytes",
    "who pays": "A lookup of one event_time read 10 % of the files before and reads 100 % now",
    "pays back": "saves 95 % of the possible file opens for 30 % of the bytes. The rest would save 5.0 % for 70 %",
    "writer": "2 files for 2 partitions",
}


@pytest.mark.parametrize("case", MEANT)
def test_what_a_right_answer_means_is_told_in_figures(case: str) -> None:
    checked, right, _ = CASES[case]

    assert MEANT[case] in checked(right).said


def test_an_answer_of_exactly_the_limit_is_right() -> None:
    assert check.within_budget(plan(ONE), SMALL, MIB).is_done
    assert check.retention(Retention.of({"keep": "72 hours", "need": "72 hours"}), 72).is_done
    assert check.pays_back(plan(ONE, size=4 * MIB, saved=90), EVERYTHING, SMALL, least_win=0.9, most_bytes=0.4).is_done
    assert check.one_partition(plan(ONE, of=DELETED), DELETED, 0.12).is_done
    assert check.who_pays("event_time", sampled(event_time=0.25), sampled(event_time=0.5)).is_done
    assert check.guess(0, "data files").is_done


@pytest.mark.parametrize("share", [0, 1, 1.5])
def test_a_share_is_between_none_and_all(share: float) -> None:
    assert "between 0 and 1" in check.half_the_commits(share).said


@pytest.mark.parametrize(("was", "now"), [(0.3, 0.5), (0.1, 0.4), (None, 0.9), (0.1, None)])
def test_a_column_that_lost_little_or_whose_loss_is_not_known_has_not_paid(was: float, now: float) -> None:
    assert check.who_pays("event_time", sampled(event_time=was), sampled(event_time=now)).is_done is False


def test_what_the_plan_leaves_does_not_come_out_below_nothing() -> None:
    won = check.pays_back(plan(ONE, size=MIB, saved=120), EVERYTHING, SMALL, least_win=0.9, most_bytes=0.4)

    assert won.said.endswith("The rest would save 0 % for 90 %.")


def test_a_plan_for_another_table_is_distinguished_from_no_plan_in_every_exercise_with_one() -> None:
    other = plan(ONE, of=table_facts(table=("db", "others")))

    for said in (
        check.one_partition(other, DELETED, 0.1),
        check.pays_back(other, EVERYTHING, SMALL, least_win=0.9, most_bytes=0.4),
    ):
        assert said.said == "That is a plan for db.others; make one for db.events."


def test_files_are_told_for_each_partition_of_the_newest_commit() -> None:
    assert "wrote 6.0 files into each partition" in check.writer_fixed(written("hash", 12, 2)).said


@pytest.mark.parametrize(("is_done", "mark", "badge"), [(True, "card fine", "done"), (False, "card info", "not yet")])
def test_a_check_looks_done_or_not_yet(is_done: bool, mark: str, badge: str) -> None:
    shown = Checked(is_done, "So it is.")._repr_html_()

    assert f'<div class="{mark}"><p><span class="badge">{badge}</span> So it is.</p></div>' in shown


def test_what_is_said_is_escaped() -> None:
    assert "<b>" not in Checked(False, "<b>")._repr_html_()
