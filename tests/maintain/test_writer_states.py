"""An expiry leaves what snapshots hold for their writers: a restarted writer goes on where it was,
and a staged write can be published.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from icekit.engine.bridge import temporary_settings
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.head import head
from icekit.health.facts.retention import Retention
from icekit.maintain.run import guard
from icekit.maintain.run.outcome import Outcome, document
from tests.elsewhere import elsewhere
from tests.maintain.tables import Named, Table, is_proved
from tests.maintain.test_retention import FLINK, walk
from tests.moments import Around

pytestmark = pytest.mark.spark

Make = Callable[..., Any]
CHECKPOINT = "flink.max-committed-checkpoint-id"


def written(table: Table, summary: dict[str, str], branch: str = "") -> None:
    """Append a row in a commit with these entries in its summary."""
    name = f"{table.sql_name}.branch_{branch}" if branch else table.sql_name
    writer = table.spark.range(1).writeTo(name)
    for key, value in summary.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    writer.append()


def expired(table: Table, **retention: Any) -> Outcome:
    plan = table.maintenance(
        "expire_snapshots",
        retention=Retention(keep_last=2, **retention),
        thresholds=Thresholds(snapshots=1),
    )
    return table.run(plan)


def state(table: Table, branch: str = "main") -> str | None:
    return walk(head(table.lake, table.name).metadata, CHECKPOINT, branch)


@pytest.fixture
def table(named: Named) -> Table:
    return named("streamed").create("id bigint", by="")


@pytest.mark.core
def test_writers_on_main_and_on_a_branch_find_their_state_and_the_outcome_says_what_stays(
    table: Table, aged: Make
) -> None:
    for summary in ({}, {}, FLINK, {}, {}):
        written(table, summary)
    table.sql("ALTER TABLE {t} CREATE BRANCH audit")
    for summary in ({**FLINK, CHECKPOINT: "50"}, {}, {}):
        written(table, summary, "audit")
    for summary in ({}, {}):
        written(table, summary)
    table.sql(f"ALTER TABLE {{t}} CREATE TAG old AS OF VERSION {table.snapshots()[0]}")
    aged(table)
    rows = table.rows()

    outcome = is_proved(expired(table))

    assert (state(table), state(table, "audit")) == ("41", "50")
    assert table.rows() == rows
    lines = repr(outcome.proof)
    assert "2 writers found their state again" in lines
    assert "Flink job 7f1c on branch audit, checkpoint 50" in lines
    assert "removed for good: 1 snapshot of" in lines
    is_proved(expired(table, keep_writers_hours=0))
    assert (state(table), state(table, "audit")) == (None, None)


def test_what_goes_for_good_is_named_in_plan_outcome_and_document(table: Table, aged: Make) -> None:
    for summary in (FLINK, {}, {}, {}):
        written(table, summary)
    aged(table)

    outcome = is_proved(expired(table, keep_writers_hours=0))

    assert state(table) is None
    named = "the state of 1 writer: Flink job 7f1c, checkpoint 41"
    assert named in outcome.plan.actions[0].why
    assert outcome.proof is not None
    assert "lost nothing" not in repr(outcome.proof)
    assert "this run removed nothing that had to stay" in repr(outcome.proof)
    assert any(named in each for each in outcome.proof.removals)
    done = document(outcome)
    expiry = done.actions[0].expiry
    assert expiry is not None
    assert [each.ids for each in expiry.states_lost] == [("7f1c", "op1")]
    assert done.proof is not None
    assert done.proof.removed == outcome.proof.removals


@pytest.mark.core
def test_a_staged_write_stays_until_its_age_and_can_be_published(table: Table, aged: Make) -> None:
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    written(table, {})
    with temporary_settings(table.spark, {"spark.wap.id": "audit-1"}):
        table.sql("INSERT INTO {t} SELECT id + 100 FROM range(50)")
    for _ in range(3):
        written(table, {})
    aged(table)
    facts = table.lake.observe(table.name)

    (finding,) = (each for each in diagnose(facts) if each.name == "staged_writes")
    assert "wap.id audit-1, 50 rows" in finding.evidence
    outcome = is_proved(expired(table))

    assert "1 unpublished staged write stays: wap.id audit-1, 50 rows" in repr(outcome.proof)
    table.call("publish_changes", "wap_id => 'audit-1'")
    assert len(table.rows()) == 54
    assert table.lake.observe(table.name).history.staged == ()


def test_a_staged_write_past_its_age_goes_and_is_named(table: Table, aged: Make) -> None:
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    written(table, {})
    with temporary_settings(table.spark, {"spark.wap.id": "audit-1"}):
        written(table, {})
    written(table, {})
    aged(table)

    outcome = is_proved(expired(table, keep_staged_hours=24))

    assert "1 unpublished staged write: wap.id audit-1" in outcome.plan.actions[0].why
    assert "removed for good: 1 unpublished staged write: wap.id audit-1" in repr(outcome.proof)
    assert len(table.snapshots()) == 2


def test_a_branch_that_comes_after_the_look_up_and_needs_a_state_ends_the_expiry(
    table: Table, aged: Make, around: Around
) -> None:
    for summary in (FLINK, {}, {**FLINK, CHECKPOINT: "42"}, {}, {}):
        written(table, summary)
    aged(table)
    second = table.snapshots()[1]
    statement = f"ALTER TABLE {table.sql_name} CREATE BRANCH late AS OF VERSION {second}"
    around(
        guard.ExpiryGuard,
        "action_to_run",
        lambda: elsewhere(table.spark).sql(statement).collect(),
        after=True,
    )

    outcome = expired(table)

    assert outcome.actions[0].status == "failed"
    assert "another job changed a branch meanwhile" in str(outcome.actions[0].error)
    assert state(table, "late") == "41"


@pytest.mark.core
def test_a_stream_of_spark_writes_no_batch_again_after_an_expiry_and_a_restart(
    table: Table, aged: Make, tmp_path: Path
) -> None:
    """Its checkpoint is from before the batch was recorded there, as after a crash."""
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()
    (source / "a.json").write_text("\n".join(json.dumps({"id": n}) for n in range(10)))

    def restart() -> None:
        stream = table.spark.readStream.schema("id bigint").json(str(source))
        query = (
            stream.writeStream.format("iceberg")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .toTable(table.sql_name)
        )
        query.awaitTermination()

    written(table, {})
    restart()
    for _ in range(3):
        written(table, {})
    aged(table)
    is_proved(expired(table))
    for commit in (checkpoint / "commits").iterdir():
        commit.unlink()
    restart()

    assert len(table.rows()) == 14
