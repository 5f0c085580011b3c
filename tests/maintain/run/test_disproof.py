"""After a proof that failed nothing goes on until a person has looked; what was undone is not
counted as done.
"""

from collections.abc import Callable

import pytest

from icekit.cli.main import main
from icekit.common.errors import ParameterError, RunDisproved
from icekit.engine.interrupting import Stop
from icekit.maintain.run.blocked import clear_blocking_runs
from icekit.maintain.run.options import Limits
from icekit.maintain.run.verbs import new_run_id
from tests.maintain.tables import Table, is_proved

pytestmark = [pytest.mark.spark, pytest.mark.core]


def damaging(sick: Table, run_id: str) -> Callable[[str], None]:
    """Tells of progress; when the first action begins a row goes, in a commit that carries the
    run's tags.
    """

    def progress(line: str) -> None:
        if not line.startswith("[1/2]"):
            return
        rows = sick.spark.sql(
            f"SELECT /*+ REPARTITION(5) */ * FROM {sick.sql_name} WHERE part = 0 AND id <> 0"
        )
        write = rows.writeTo(sick.sql_name)
        # Spark 3.5 takes these from a write only, and not from the session.
        for key, value in {"icekit.run-id": run_id, "icekit.action-id": "a1"}.items():
            write = write.option(f"snapshot-property.{key}", value)
        write.overwritePartitions()

    return progress


def stopping_at(stop: Stop, start: str) -> Callable[[str], None]:
    return lambda line: stop.set() if line.startswith(start) else None


def rolled_back(sick: Table, snapshot_id: int | None) -> None:
    sick.call("rollback_to_snapshot", f"snapshot_id => {snapshot_id}")
    sick.files.refresh()


def test_after_a_disproof_nothing_is_resumed_or_run_until_a_person_clears_it(
    sick: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    before, good, run_id = sick.rows(), sick.snapshot_id(), new_run_id()
    made = sick.plan(max_action_partitions=1)
    outcome = sick.run(made, run_id=run_id, progress=damaging(sick, run_id))

    assert outcome.status == "disproved"
    assert outcome.exit_status == 1
    assert [a.status for a in outcome.actions] == ["disproved", "pending"]
    here = sick.snapshot_id()
    refused = rf"run {run_id}.* ROWS CHANGED.*rollback_to_snapshot.*--clear {run_id}"
    with pytest.raises(RunDisproved, match=refused):
        sick.resume()
    with pytest.raises(RunDisproved, match=refused):
        sick.run(made)
    command = ["compact", ".".join(sick.name), "--ledger", str(sick.book)]
    assert main([*command, "--resume"]) == 1
    assert sick.snapshot_id() == here

    rolled_back(sick, good)
    assert main([*command, "--clear", "another"]) == 2
    assert main([*command, "--clear", run_id]) == 0
    assert "Plan again" in capsys.readouterr().out
    with pytest.raises(ParameterError, match="no unfinished run"):
        sick.resume()
    assert sick.compact().status == "done"
    assert sick.file_count() == 2
    assert sick.rows() == before


@pytest.mark.slow
def test_a_table_that_has_nothing_left_to_do_is_still_held_after_a_disproof(sick: Table) -> None:
    run_id = new_run_id()
    sick.run(sick.plan(max_action_partitions=1), run_id=run_id, progress=damaging(sick, run_id))
    sick.sql("DELETE FROM {t}")

    with pytest.raises(RunDisproved, match=run_id):
        sick.compact()
    assert [
        record.run_id for record in clear_blocking_runs(sick.lake, sick.name, ledger=str(sick.book))
    ] == [run_id]
    assert sick.compact().status == "nothing to do"


@pytest.mark.slow
def test_what_was_done_and_rolled_back_is_done_again_by_a_resume(sick: Table) -> None:
    before, good, stop = sick.rows(), sick.snapshot_id(), Stop()
    outcome = sick.run(
        sick.plan(max_action_partitions=1), stop=stop, progress=stopping_at(stop, "[2/2]")
    )
    assert [a.status for a in outcome.actions] == ["done", "stopped"]
    rolled_back(sick, good)

    resumed = is_proved(sick.resume())
    assert [a.actual.files_in for a in resumed.actions] == [5, 5]
    assert sick.file_count() == 2
    assert sick.rows() == before


def test_a_run_that_is_interrupted_before_its_last_proof_is_not_done(sick: Table) -> None:
    def progress(line: str) -> None:
        if line.startswith("  done"):
            raise KeyboardInterrupt

    outcome = sick.run(sick.plan(), progress=progress)
    assert outcome.status == "stopped"
    assert outcome.exit_status == 130
    assert outcome.proof is None

    is_proved(sick.resume())


def test_a_run_whose_work_is_done_and_proved_when_its_time_ends_is_done(sick: Table) -> None:
    stop = Stop()
    outcome = sick.run(sick.plan(), stop=stop, progress=stopping_at(stop, "  done"))

    record = sick.ledger().run(str(is_proved(outcome).run_id))
    assert record is not None
    assert record.status == "done"


def test_what_could_not_be_proved_is_not_done_when_it_is_resumed(sick: Table) -> None:
    stop = Stop()

    def progress(line: str) -> None:
        if line.startswith("  done"):
            # Another's expiry takes the snapshot that the commit would be compared with.
            sick.call(
                "expire_snapshots", "older_than => TIMESTAMP '2999-01-01'", "retain_last => 1"
            )
            stop.set()

    compared = Limits(prove="full")
    outcome = sick.run(
        sick.plan(max_action_partitions=1), stop=stop, progress=progress, limits=compared
    )
    assert [a.status for a in outcome.actions] == ["unproved", "pending"]

    resumed = sick.resume(limits=compared)
    assert resumed.status == "unproved"
    assert resumed.exit_status == 1
    assert [a.status for a in resumed.actions] == ["unproved", "done"]
