"""Plans and outcomes as people read them: predicted beside actual, nothing secret, nothing
unescaped.
"""

import dataclasses
import json
from typing import Any

import pytest

from icekit.common import secrets
from icekit.common.errors import Status
from icekit.common.saving import as_data
from icekit.common.view import as_html
from icekit.maintain.action import Action
from icekit.maintain.plan import Explained, Plan, Skipped, SkipReason, prediction_sentence
from icekit.maintain.prediction import Certainty, Prediction
from icekit.maintain.record.results import Actual
from icekit.maintain.run.outcome import ActionOutcome, Outcome, comparison_grid, document
from icekit.rows.proof.fingerprint import Fingerprint
from icekit.rows.proof.proof import CommitProof, Proof
from tests.factories import MIB, partition
from tests.golden import Golden

ODD = 'city=<b>Köln</b> & "co"'


def action(action_id: str = "a1", **more: object) -> Action:
    prediction = Prediction(
        90, 90 * MIB, 1, 85 * MIB, 3, groups=1, seconds=12.0, file_opens_saved=89, source="planner"
    )
    made = Action(
        action_id,
        "rewrite_data_files",
        "prod",
        ("db", "events"),
        "small files in 1 partition",
        prediction,
        (partition(),),
        (ODD,),
    )
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


def plan(*actions: Action, **more: object) -> Plan:
    return Plan("prod", ("db", "events"), "uuid", 1, None, actions, **more)  # type: ignore[arg-type]


def ran(**more: object) -> Outcome:
    first = ActionOutcome(
        action(), Status.DONE, 1, Actual(90, 90 * MIB, 2, 80 * MIB, 3, 2), 10.0, (5, 6)
    )
    second = ActionOutcome(action("a2"), Status.FAILED, 5, error="File <gone> is not there")
    rows = Fingerprint(5, 7)
    commits = [CommitProof(number, partitions=1, before=rows, after=rows) for number in (5, 6)]
    proof = Proof("db.events", tuple(commits), 0.1)
    return Outcome(plan(action(), action("a2")), "run77", (first, second), proof, 14.0, **more)  # type: ignore[arg-type]


def test_a_part_of_a_split_action_has_no_prediction_of_its_own() -> None:
    parts = (
        ActionOutcome(action(), Status.SPLIT),
        ActionOutcome(action("a1.1"), Status.DONE, 1, Actual(5, 5, 1, 4, 0, 1)),
    )
    rows = comparison_grid(Outcome(plan(action()), "r", parts)).rows

    assert rows[1][2] == "5 files → 1 file"


def test_names_and_errors_are_escaped() -> None:
    for page in (
        as_html(
            plan(action(why="<i>"), left_alone=(Skipped(SkipReason.NO_FILTER, 1, (ODD,)),)).blocks()
        ),
        as_html(ran(notes=("<u>note</u>",)).blocks()),
    ):
        assert not any(tag in page for tag in ("<b>Köln", "<gone>", "<i>", "<u>"))


def test_secrets_are_in_neither_rendering() -> None:
    secrets.remember_secrets({"s3.secret-access-key": "open-sesame-42"})
    told = "no access with open-sesame-42"
    outcome = Outcome(plan(action()), "r", (ActionOutcome(action(), Status.FAILED, error=told),))
    made = plan(action(why=told), notes=(told,))

    for text in (made.text(), as_html(made.blocks()), outcome.text(), as_html(outcome.blocks())):
        assert "open-sesame" not in text


PLANS = {
    "empty": plan(),
    "full": plan(
        action(),
        left_alone=(
            Skipped(SkipReason.RECENT, 2, (ODD,)),
            Skipped(SkipReason.OVER_BUDGET, 4, ("a", "b", "c")),
        ),
        parallelism=(Explained("max-commits", "3", "three groups"),),
        notes=("It reads 10 % of the table.",),
        rehearsed="the same 100 rows",
    ),
}
OUTCOMES = {
    "empty": Outcome(plan(), None, ()),
    "dry-run": Outcome(plan(action()), None, (ActionOutcome(action(), Status.PLANNED),)),
    "failed": ran(),
    "stopped": Outcome(plan(action()), "r", (ActionOutcome(action(), Status.STOPPED),)),
}


@pytest.mark.parametrize("case", PLANS)
def test_a_plan_looks_like_its_golden_file(case: str, golden: Golden) -> None:
    golden(f"plan/{case}.txt", PLANS[case].text())
    golden(f"plan/{case}.html", as_html(PLANS[case].blocks()))


@pytest.mark.parametrize("case", OUTCOMES)
def test_an_outcome_looks_like_its_golden_file(case: str, golden: Golden) -> None:
    golden(f"outcome/{case}.txt", OUTCOMES[case].text())
    golden(f"outcome/{case}.html", as_html(OUTCOMES[case].blocks()))
    golden(
        f"outcome/{case}.json",
        json.dumps(
            as_data(document(OUTCOMES[case])) | {"versions": None}, indent=2, ensure_ascii=False
        ),
    )


def test_a_prediction_says_where_it_is_from(golden: Golden) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"seconds": None, "source": "facts"},
        {"source": "trial"},
        {"shuffle_bytes": 90 * MIB},
        *({"certainty": each} for each in Certainty),
    ]

    golden(
        "plan/predictions.txt",
        "\n".join(
            prediction_sentence(dataclasses.replace(action().prediction, **changed))
            for changed in changes
        ),
    )
