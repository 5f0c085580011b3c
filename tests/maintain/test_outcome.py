"""What became of a plan, in one word and one exit status."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from icekit.common.errors import Status
from icekit.common.saving import as_data
from icekit.maintain.action import CONVERT
from icekit.maintain.prediction import EQUALITY_DELETE, Prediction
from icekit.maintain.record.results import Actual
from icekit.maintain.run.outcome import (
    ActionOutcome,
    Outcome,
    comparison_grid,
    document,
    recorded_outcome,
)
from icekit.report.schedule.result import executed_step
from icekit.rows.proof.fingerprint import Fingerprint
from icekit.rows.proof.proof import CHECKED, Check, CommitProof, Proof
from tests.maintain.records import ACTION
from tests.show.test_plan import action, plan


def outcome(*statuses: Status, proof: Proof | None = None, run_id: str | None = "r1") -> Outcome:
    actions = tuple(action(f"a{i + 1}") for i in range(len(statuses)))
    return Outcome(
        plan(*actions),
        run_id,
        tuple(ActionOutcome(a, s) for a, s in zip(actions, statuses, strict=True)),
        proof,
    )


def proof(ok: bool | None) -> Proof:
    return Proof(
        "db.events", (CommitProof(5, statement="x"),), 0.1, maintenance_checks=(Check(ok, "y"),)
    )


@pytest.mark.parametrize(
    ("became", "said", "exit_status"),
    [
        (outcome(), "nothing to do", 0),
        (outcome(Status.PLANNED, run_id=None), "planned", 0),
        (outcome(Status.DONE), "done", 0),
        (outcome(Status.DONE, Status.SKIPPED), "done", 0),
        (outcome(Status.SPLIT, Status.DONE, Status.DONE), "done", 0),
        (outcome(Status.DONE, Status.FAILED), "failed", 1),
        (outcome(Status.DONE, Status.STOPPED), "stopped", 130),
        (outcome(Status.DONE, Status.PENDING), "stopped", 130),
        (outcome(Status.FAILED, Status.PENDING), "failed", 1),
        (outcome(Status.FAILED, Status.STOPPED), "failed", 1),
        (outcome(Status.SPLIT, Status.DONE, Status.PENDING), "stopped", 130),
        # Changed rows outweigh everything, and what cannot be proved is not done.
        (outcome(Status.DONE, proof=proof(False)), "disproved", 1),
        (outcome(Status.STOPPED, proof=proof(False)), "disproved", 1),
        (outcome(Status.DONE, proof=proof(None)), "unproved", 1),
        (outcome(Status.STOPPED, proof=proof(None)), "stopped", 130),
        (outcome(Status.DONE, proof=proof(True)), "done", 0),
    ],
)
def test_a_run_is_as_good_as_its_proof_and_its_worst_action(
    became: Outcome, said: str, exit_status: int
) -> None:
    assert (became.status, became.exit_status) == (said, exit_status)
    assert became.is_dry_run is (said == "planned")


def test_the_actual_is_the_sum_of_all_actions() -> None:
    each = ActionOutcome(action(), Status.DONE, actual=Actual(5, 500, 1, 400, 2, 1, rows_in=70))
    became = Outcome(plan(), "r1", (each, each))

    assert became.actual == Actual(10, 1000, 2, 800, 4, 2, rows_in=140)


def test_what_a_conversion_read_and_wrote_counts_and_is_kept_for_a_resumed_run() -> None:
    predicted = Prediction(4, 500, 9, unit=EQUALITY_DELETE, data_files_read=9)
    converting = replace(action("e1"), procedure=CONVERT, prediction=predicted)
    ran = ActionOutcome(converting, Status.DONE, 1, Actual(13, 500, 6, 40, 4, 1, 4, 6), 2.0, (7,))
    became = Outcome(replace(plan(converting), converts=True), "r1", (ran,))
    rewritten = ActionOutcome(action(), Status.DONE, actual=Actual(90, 500, 1, 400, items_before=9))

    assert rewritten.change == rewritten.action.prediction.change_text == "90 files → 1 file"
    assert became.actual == ran.actual
    (row,) = comparison_grid(became).rows
    assert row[2:5] == (
        "4 equality delete files → 6 position delete files (predicted 9)",
        "500 B → 40 B",
        "4 (predicted 0)",
    )
    assert became.plan.files_and_bytes_read == (13, 500)
    assert became.plan.prediction.unit == EQUALITY_DELETE
    record = replace(ACTION, attempts=1, actual=ran.actual, seconds=2.0, snapshot_ids=(7,))
    assert recorded_outcome(converting, record) == ran


def test_the_document_is_written_beside_the_reports(tmp_path: Path) -> None:
    done = ActionOutcome(action(), Status.DONE, 1, Actual(5, 500, 1, 390, 0, 1), 2.0, (7,))
    became = Outcome(
        plan(action(), action("a2")),
        "r1",
        (done, ActionOutcome(action("a2"), Status.FAILED, error="no")),
        proof(True),
    )
    path = became.write_into(tmp_path)

    assert path.name == "db.events.plan.json"
    assert json.loads(path.read_text()) == as_data(document(became))


def test_the_document_has_the_figures_of_a_sample() -> None:
    rows = Fingerprint(10, 7)
    commit = CommitProof(1, before=rows, after=rows, mode=CHECKED, unseen_keys=300)
    sampled = Proof("db.events", (commit,), 0.1)
    written = document(outcome(Status.DONE, proof=sampled)).proof

    assert written is not None
    assert (written.mode, written.is_sampled, written.ok) == (CHECKED, True, True)
    assert "no difference found in 1 commit" in written.lines[0]
    assert executed_step("compact", outcome(Status.DONE, proof=sampled)).summary.endswith(
        ", no difference found in a sample"
    )
    assert executed_step("compact", outcome(Status.DONE, proof=proof(True))).summary.endswith(
        ", proved"
    )
