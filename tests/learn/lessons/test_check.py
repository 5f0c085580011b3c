"""What a check says: of an exercise that is not solved, of a wrong answer, of a right one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from icekit import diagnose
from icekit.common.errors import Status
from icekit.health.facts.model import TableFacts
from icekit.health.facts.retention import Retention
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.partition import Partition
from icekit.learn.lessons import check
from icekit.learn.lessons.check import ExerciseResult
from icekit.maintain.action import Action
from icekit.maintain.plan import Plan, Skipped, SkipReason
from icekit.maintain.prediction import Prediction
from icekit.maintain.run.outcome import ActionOutcome, Outcome
from tests.factories import (
    KIB,
    MIB,
    column_sample,
    commit,
    file_group,
    history,
    metrics_sample,
    partition,
    table_facts,
)
from tests.golden import Golden

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


def plan(
    *partitions: Partition, of: TableFacts = SMALL, size: int = MIB, saved: int = 10, **more: Any
) -> Plan:
    """A plan of one action for these partitions; of none without any."""
    names = tuple(of.partition_name(p) for p in partitions)
    prediction = Prediction(files_in=100, bytes_in=size, file_opens_saved=saved)
    action = Action(
        "a1", "rewrite_data_files", of.catalog, of.table, "", prediction, partitions, names
    )
    return Plan(of.catalog, of.table, None, 1, None, (action,) if partitions else (), **more)


def dry(*partitions: Partition, run_id: str | None = None) -> Outcome:
    made = plan(*partitions)
    return Outcome(made, run_id, tuple(ActionOutcome(a, Status.PLANNED) for a in made.actions))


def sampled(event_time: float | None) -> TableFacts:
    """Facts by which a lookup of an event time reads this share of the files."""
    columns = (
        column_sample("event_time", stab_share=event_time),
        column_sample("carrier", stab_share=0.5),
    )
    return table_facts(metrics_sample=replace(metrics_sample(), columns=columns))


def hot(reason: SkipReason) -> Plan:
    return plan(left_alone=(Skipped(reason, 1), Skipped(SkipReason.OVER_BUDGET, 3)))


def written(mode: str, files: int, partitions: int = 1) -> TableFacts:
    newest = commit(added_data_files=files, changed_partitions=partitions)
    return table_facts(
        properties={"write.distribution-mode": mode}, history=history(commit(1), newest)
    )


def pays_back(answer: Any) -> ExerciseResult:
    return check.plan_pays_back(
        answer, EVERYTHING, SMALL, least_opens_share=0.9, most_byte_share=0.4
    )


EVERYTHING = plan(ONE, OTHER, size=10 * MIB, saved=100)
ELSEWHERE = plan(ONE, of=table_facts(table=("db", "others")))
RECENT = SkipReason.RECENT
FINDINGS = diagnose(
    table_facts(
        groups=SMALL.groups, history=history(*[commit(n, added_data_files=9) for n in range(20)])
    )
)

#: The check of an answer, an answer that is right (exactly at its limit, where there is one), and
# wrong ones.
CASES: dict[str, tuple[Callable[[Any], ExerciseResult], Any, list[Any]]] = {
    "guess": (lambda a: check.guess(a, "data files"), 0, ["5", True, -1]),
    "read off": (lambda a: check.data_file_count(a, SMALL), 300, [3]),
    "budget": (
        lambda a: check.within_budget(a, SMALL, MIB),
        plan(ONE),
        [
            plan(ONE, size=2 * MIB),
            plan(),
            ELSEWHERE,
        ],
    ),
    "cause": (
        lambda a: check.recurring_cause(a, FINDINGS),
        "distribution mode",
        ["small_files", "smallness"],
    ),
    "thrown away": (lambda a: check.deleted_row_count(a, DELETED), 21, [12]),
    "one partition": (
        lambda a: check.partitions_with_deletes(a, DELETED, 0.12),
        plan(ONE, of=DELETED),
        [plan(ONE, OTHER, of=DELETED), plan(of=DELETED), ELSEWHERE],
    ),
    "square": (check.work_at_half_the_commits, 0.25, [0.5, 25, 0, 1, 1.5]),
    "small first": (
        check.one_partition_dry_run,
        dry(ONE),
        [dry(ONE, OTHER), dry(ONE, run_id="r"), dry()],
    ),
    "retention": (
        lambda a: check.retention(a, 72),
        Retention.of({"keep": "72 hours", "need": "72 hours"}),
        [Retention.of({"keep": "1 day"}), Retention.of({"keep": "4 days"})],
    ),
    "live": (lambda a: check.live_share(a, 30, 100), 0.3, [0.7]),
    "who pays": (
        lambda a: check.slower_lookup_column(a, sampled(0.25), sampled(0.5)),
        "event_time",
        ["carrier", "nothing"],
    ),
    "pays back": (
        pays_back,
        plan(ONE, size=4 * MIB, saved=90),
        [plan(ONE, size=MIB, saved=50), plan(ONE, size=9 * MIB, saved=95), ELSEWHERE],
    ),
    "left alone": (
        lambda a: check.reason_left_alone(a, hot(RECENT)),
        RECENT,
        [SkipReason.OVER_BUDGET, "because"],
    ),
    "writer": (
        check.writer_is_fixed,
        written("hash", 2, 2),
        [written("none", 1), written("hash", 8), written("hash", 12, 2)],
    ),
    "a day": (lambda a: check.files_a_day(a, 10), 144, [24]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_check_says_of_each_answer_what_its_golden_file_says(case: str, golden: Golden) -> None:
    checked, right, wrong = CASES[case]

    # The facts of the writer's exercise are observed, and never missing.
    said = [checked(answer) for answer in (right, *wrong, *([] if case == "writer" else [None]))]

    golden(f"lessons/{case.replace(' ', '-')}.txt", "\n".join(map(repr, said)))
    assert [one.is_done for one in said] == [True] + [False] * (len(said) - 1)


@pytest.mark.parametrize(("was", "now"), [(0.3, 0.5), (0.1, 0.4), (None, 0.9), (0.1, None)])
def test_a_column_that_lost_little_or_whose_loss_is_not_known_has_not_paid(
    was: float, now: float
) -> None:
    assert not check.slower_lookup_column("event_time", sampled(was), sampled(now)).is_done


def test_what_the_plan_leaves_does_not_come_out_below_nothing() -> None:
    won = pays_back(plan(ONE, size=MIB, saved=120))

    assert won.sentence.endswith("The rest would save 0 % for 90 %.")


def test_what_is_said_is_escaped(golden: Golden) -> None:
    golden(
        "lessons/check.html",
        "".join(ExerciseResult(is_done, "So it is.")._repr_html_() for is_done in (True, False)),
    )
    assert "<b>" not in ExerciseResult(False, "<b>")._repr_html_()
