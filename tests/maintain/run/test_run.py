"""Plans run on real tables: proved, tagged, recorded, and nothing left when run again."""

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from icekit.common.errors import ParameterError, TableClaimed
from icekit.maintain.plan import Plan
from icekit.maintain.run import failures
from icekit.maintain.run.options import Limits, Retry
from icekit.maintain.run.outcome import Outcome
from icekit.maintain.run.run_plan import PlanRun
from icekit.rows.deletes import dangling
from icekit.rows.proof.proof import CHECKED, SCANNED
from tests.elsewhere import elsewhere
from tests.maintain.records import claimed_by
from tests.maintain.tables import ROWS, Named, Table, is_proved, tags
from tests.moments import Around

pytestmark = pytest.mark.spark


def cured(sick: Table, plan: Plan | None = None, **policy: Any) -> tuple[Plan, Outcome]:
    """Plan and run: it is done, proved and tagged, changed no row and left no delete file."""
    before, plan = sick.rows(), plan or sick.plan(**policy)
    outcome = is_proved(sick.run(plan))
    assert outcome.exit_status == 0
    assert sick.rows() == before
    own = {i for o in outcome.actions for i in o.snapshot_ids}
    assert len(own) == outcome.actual.commits > 0
    assert sum(run_id == outcome.run_id for run_id, _ in tags(sick.summaries())) == len(own)
    assert sick.delete_files() == 0
    return plan, outcome


@pytest.mark.core
def test_a_dry_run_writes_nothing_and_a_run_is_proved_tagged_and_recorded_as_it_came(
    sick: Table,
) -> None:
    before = sorted(sick.location.rglob("*"))
    assert [a.status for a in sick.run(sick.plan(), execute=False).actions] == ["planned"]
    assert sorted(sick.location.rglob("*")) == before
    assert not sick.book.exists()

    plan, outcome = cured(sick)

    (action,) = outcome.actions
    assert sick.file_count() == 2
    assert action.actual.bytes_in == plan.prediction.bytes_in > 0
    assert action.actual.files_in == plan.prediction.files_in == 10
    assert action.actual.files_out == plan.prediction.files_out == 2
    assert {t for t in tags(sick.summaries()) if t[0]} == {(outcome.run_id, "a1")}
    book = sick.ledger()
    record = book.last_run(sick.full_name)
    (kept,) = book.actions(str(outcome.run_id))
    assert record is not None
    assert (record.status, kept.status) == ("done", "done")
    assert (kept.predicted, kept.actual) == (action.action.prediction, action.actual)
    assert kept.snapshot_ids == action.snapshot_ids
    assert book.claims() == ()


def test_an_outcome_says_that_nothing_was_compared(sick: Table) -> None:
    outcome = sick.run(sick.plan(), limits=Limits(prove="none"))

    assert (outcome.status, outcome.proof) == ("done", None), outcome
    assert "Nothing was compared before or after the commits: prove is none." in repr(outcome)


def test_nothing_is_left_when_it_is_planned_again(sick: Table) -> None:
    stale = sick.plan()
    sick.run(stale)
    here = sick.snapshot_id()

    assert sick.plan().actions == ()
    # The old plan is as good as done: its files are gone, and nothing is rewritten twice.
    again = sick.run(stale)
    assert [a.status for a in again.actions] == ["skipped"]
    assert again.status == "done"
    assert again.exit_status == 0
    assert sick.snapshot_id() == here


@pytest.mark.core
def test_a_table_that_another_run_holds_is_refused_with_the_first_ones_id(sick: Table) -> None:
    plan = sick.plan()
    here = sick.snapshot_id()
    with (
        claimed_by(sick.book, sick.full_name, "first77") as first,
        pytest.raises(TableClaimed, match=rf"by run first77 on .* \(process {first.pid}\)"),
    ):
        sick.run(plan)

    assert sick.snapshot_id() == here
    # Its process has ended: the claim is taken over.
    assert sick.run(plan).status == "done"


@pytest.mark.core
def test_a_bad_partition_does_not_stop_the_others_and_a_resume_does_only_what_is_left(
    named: Named,
) -> None:
    sick = (
        named("sick")
        .create()
        .fill(select="id, cast(id % 3 AS int) AS part, cast(id AS string) AS name")
    )
    before = sick.rows()
    bad = next(path for path in sick.data_files() if "part=1/" in str(path))
    kept = bad.read_bytes()
    plan = sick.plan()
    bad.unlink()
    limits = Limits(Retry(attempts=2, first_wait=0.01, longest_wait=0.02))
    outcome = sick.run(plan, limits=limits)
    by_status = {s: [o for o in outcome.actions if o.status == s] for s in ("done", "failed")}

    assert outcome.status == "failed"
    assert outcome.exit_status == 1
    assert all(p.values == (1,) for o in by_status["failed"] for p in o.action.partitions)
    assert bad.name in str(by_status["failed"][0].error)
    assert sick.file_count() == 2 + 5

    bad.write_bytes(kept)
    again = is_proved(sick.resume(limits=limits))
    assert again.run_id == outcome.run_id
    assert sick.file_count() == 3
    assert sick.rows() == before
    taken = sum(int(s.get("deleted-data-files", 0)) for s in sick.summaries())
    assert taken == 15
    with pytest.raises(ParameterError, match="no unfinished run"):
        sick.resume()


def test_a_run_whose_commit_cannot_be_read_stops_and_is_proved_when_it_is_resumed(
    sick: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, plan, rewritten = sick.rows(), sick.plan(), PlanRun._execute

    def and_then_unread(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(failures, "head", lambda *_: 1 // 0)
        return rewritten(*given, **options)

    monkeypatch.setattr(PlanRun, "_execute", and_then_unread)
    assert sick.run(plan).status == "stopped"

    monkeypatch.undo()
    outcome = is_proved(sick.resume())
    assert outcome.actual.commits > 0
    assert sick.rows() == before


@pytest.mark.core
def test_a_run_on_a_branch_changes_only_the_branch(sick: Table) -> None:
    sick.sql("ALTER TABLE {t} CREATE BRANCH audit")
    sick.fill(start=100, branch="audit")
    main, rows = sick.snapshot_id(), sick.rows("VERSION AS OF 'audit'")
    plan = sick.plan(ref="audit")
    outcome = is_proved(sick.run(plan))

    assert outcome.actual.files_in == plan.prediction.files_in == 20
    assert sick.snapshot_id() == main
    assert sick.rows("VERSION AS OF 'audit'") == rows
    assert len(sick.rows()) == 40
    assert sick.plan(ref="audit").actions == ()
    assert len(sick.plan().actions) == 1


def test_deletes_that_dangle_on_a_branch_are_dropped_there_and_nowhere_else(
    named: Named,
) -> None:
    sick = named("sick").under_deletes(files=2)
    sick.call(
        "rewrite_data_files",
        "options => map('rewrite-all', 'true', 'use-starting-sequence-number', 'false')",
    )
    sick.sql("ALTER TABLE {t} CREATE BRANCH audit")
    main, before = sick.snapshot_id(), sick.rows()
    plan = sick.plan(ref="audit")
    (action,) = plan.actions

    assert action.prediction.source == "metadata"
    outcome = is_proved(sick.run(plan))
    assert outcome.actual.files_in == 0
    assert outcome.actual.delete_files_removed == action.prediction.delete_files_removed > 0
    assert sick.snapshot_id() == main
    assert sick.rows("VERSION AS OF 'audit'") == before
    assert tags(sick.summaries())[-1] == (outcome.run_id, "a1")


def test_position_deletes_are_applied_and_every_commit_is_tagged_also_the_one_that_drops_them(
    named: Named,
) -> None:
    sick = named("sick").under_deletes()
    plan, outcome = cured(sick)

    # The commit that only drops deletes was proved after it.
    assert outcome.proof is not None
    assert outcome.proof.mode == f"{CHECKED}, {SCANNED}"
    assert f"commits, {CHECKED}, {SCANNED}; " in repr(outcome.proof)
    assert outcome.actual.delete_files_removed == plan.prediction.delete_files_removed > 0
    assert outcome.actual.files_in == plan.prediction.files_in
    assert outcome.actual.bytes_in == plan.prediction.bytes_in
    by_action = {o.action.action_id: o.actual.commits for o in outcome.actions}
    assert {i: tags(sick.summaries()).count((outcome.run_id, i)) for i in by_action} == by_action
    assert (
        by_action[next(a.action_id for a in plan.actions if "remove-dangling-deletes" in a.options)]
        == 2
    )


def test_only_the_commit_that_drops_dangling_deletes_is_tried_again_when_a_writer_came_first(
    named: Named, around: Around
) -> None:
    sick = named("sick").under_deletes()
    plan = sick.plan()
    late = f"INSERT INTO {sick.sql_name} VALUES (1000, 1, 'late')"
    tries = around(dangling, "_commit", lambda: elsewhere(sick.spark).sql(late))
    outcome = is_proved(sick.run(plan))

    assert sum(a.attempts for a in outcome.actions) == len(plan.actions) + 1
    assert sick.delete_files() == 0
    assert sick.sql("SELECT count(*) FROM {t}")[0][0] == 31
    assert len(tries) == 2


# Columns, partitioning and select of tables of every shape, and properties.
SHAPES: dict[str, dict[str, Any]] = {
    "format version 1": {"version": 1},
    "unpartitioned": {"by": ""},
    "partition column inside a struct": {
        "columns": "id bigint, s struct<part: int, x: string>",
        "by": "s.part",
        "select": "id, named_struct('part', cast(id % 2 AS int), 'x', 'y')",
    },
    "odd names": {
        "columns": "`an id` bigint, `it's a ``part``` int, `a.b` string",
        "by": "`it's a ``part```",
    },
    "a hundred columns": {
        "columns": "id bigint, part int, " + ", ".join(f"c{i} int" for i in range(98)),
        "select": "id, cast(id % 2 AS int), " + ", ".join(["1"] * 98),
    },
    "partitioned by hour and bucket": {
        "columns": "id bigint, at timestamp, name string",
        "by": "hours(at), bucket(2, id)",
        "select": "0, timestamp '2026-01-01 05:00:00', 'x'",
    },
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_table_of_any_shape_is_cured(named: Named, shape: str) -> None:
    given = dict(SHAPES[shape])
    select = given.pop("select", ROWS)
    sick = (
        named("odd `name`, it's" if shape == "odd names" else "sick")
        .create(**given)
        .fill(select=select)
    )
    plan, outcome = cured(sick)

    assert outcome.actual.files_in == plan.prediction.files_in
    assert outcome.actual.bytes_in == plan.prediction.bytes_in
    assert sick.plan().actions == ()


def test_deletion_vectors_are_applied(named: Named) -> None:
    plan, outcome = cured(named("sick").under_deletes(version=3))

    assert outcome.actual.files_in == plan.prediction.files_in
    assert outcome.actual.delete_files_removed == plan.prediction.delete_files_removed > 0


@pytest.mark.core
def test_a_table_whose_spec_schema_and_partition_column_changed_is_cured(
    sick: Table,
) -> None:
    for change in (
        "ADD PARTITION FIELD bucket(2, id)",
        "RENAME COLUMN part TO `the part`",
        "DROP COLUMN name",
        "ADD COLUMN more int",
    ):
        sick.sql(f"ALTER TABLE {{t}} {change}")
    sick.fill(select="id, cast(id % 2 AS int), 1", start=100)
    plan, outcome = cured(sick)

    # Filters of both specs take files of the other, so what is predicted of each action overlaps.
    assert 10 <= outcome.actual.files_in <= plan.prediction.files_in


@pytest.mark.parametrize(
    ("strategy", "columns"),
    [
        ("sort", ["a.b", "it's `odd`", "s.x"]),
        ("zorder", ["an id", "it's odd"]),
        ("hilbert", ["an id", "it's odd"]),
    ],
)
def test_rows_are_ordered_by_columns_of_odd_names(
    named: Named, strategy: str, columns: list[str]
) -> None:
    sick = named("sick").create(
        "`an id` bigint, part int, `it's ``odd``` string, `it's odd` string, `a.b` int, s "
        "struct<x: bigint>"
    )
    sick.fill(
        select="id, cast(id % 2 AS int), cast(id AS string), cast(id AS string), cast(id AS int), "
        "named_struct('x', id)"
    )
    _, outcome = cured(sick, strategy=strategy, columns=columns)

    assert outcome.actual.files_in == 10


def test_a_table_without_rows_has_nothing_to_do(named: Named) -> None:
    empty = named("sick").create()

    assert empty.plan().actions == empty.plan(scope="major").actions
    assert empty.compact().status == "nothing to do"
    assert empty.compact().exit_status == 0
    assert not empty.book.exists()

    empty.fill().sql("DELETE FROM {t}")
    assert empty.compact().status == "nothing to do"


@pytest.mark.core
def test_a_table_made_again_since_the_plan_is_refused(sick: Table) -> None:
    plan = sick.plan()
    sick.sql("DROP TABLE {t} PURGE")
    sick.create().fill()
    here = sick.snapshot_id()

    with pytest.raises(ParameterError, match="was dropped and created again"):
        sick.run(plan)
    assert sick.snapshot_id() == here


@pytest.mark.core
def test_a_rollback_since_the_plan_leaves_what_the_table_is_now(sick: Table) -> None:
    first, before = sick.snapshot_id(), sick.rows()
    sick.fill(start=100)
    plan = sick.plan()
    sick.call("rollback_to_snapshot", f"snapshot_id => {first}")
    assert sick.rows() == before

    assert cured(sick, plan)[1].actual.files_in == 10


def test_a_run_that_is_interrupted_stops_and_is_resumed(named: Named) -> None:
    # So many actions that it cannot be done with all before it hears the signal, whatever else this
    # machine is at.
    sick = (
        named("sick")
        .create()
        .fill(rows=160, select="id, cast(id % 6 AS int) AS part, cast(id AS string) AS name")
    )
    before = sick.rows()
    options = "--execute --leave-alone 0m --max-action-partitions 1 --ledger".split()
    command = ["icekit", "compact", ".".join(sick.name), *options, str(sick.book)]
    child = subprocess.Popen(
        [sys.executable, "-m", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert child.stdout is not None
    said = []
    for line in child.stdout:
        said.append(line)
        if line.startswith("[1/6]"):
            os.kill(child.pid, signal.SIGINT)
            break
    rest, _ = child.communicate(timeout=600)

    assert child.returncode == 130, "".join(said) + rest
    assert "--resume" in rest
    sick.files.refresh()
    assert sick.rows() == before
    is_proved(sick.resume())
    assert sick.file_count() == 6
    assert sick.rows() == before
