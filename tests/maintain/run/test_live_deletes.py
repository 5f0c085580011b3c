"""Equality deletes that are committed while a rewrite runs: they apply to what it writes, or the
rewrite begins again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from icekit.engine import bridge
from icekit.maintain.run import execute as execution
from icekit.maintain.run.options import Limits, Retry
from icekit.maintain.run.outcome import Outcome
from tests.deletes.writing import Files
from tests.elsewhere import elsewhere
from tests.maintain.tables import Named, Table, is_proved
from tests.shapes import Shapes

pytestmark = [pytest.mark.spark, pytest.mark.core]

QUICK = Limits(Retry(attempts=3, first_wait=0.01, longest_wait=0.02))


@pytest.fixture
def streamed(named: Named, shapes: Shapes) -> Table:
    """Five small files of p=0 and one of p=1; no equality delete has been committed yet."""
    table = named("streamed")

    def build() -> None:
        table.create("id bigint, p int", "p")
        for number in range(5):
            table.sql(f"INSERT INTO {{t}} VALUES ({number}, 0)")
        table.sql("INSERT INTO {t} VALUES (100, 1)")

    shapes.have(table.name, "", build)
    return table


class Stream:
    """A writer elsewhere, whose commits the session that compacts has not seen."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.files = Files(elsewhere(table.spark), table.full)

    def deletes(self, row_id: int, p: int = 0) -> Stream:
        self.files.commit().deletes("id", f"SELECT {row_id}L", {"p": p}, spec=0).done()
        return self

    def upserts(self, row_id: int) -> Stream:
        self.files.commit().deletes("id", f"SELECT {row_id}L", {"p": 0}).data(
            f"SELECT {row_id}L, 0", {"p": 0}
        ).done()
        return self

    def overwrites(self, p: int, row_id: int) -> Stream:
        self.files._spark.sql(
            f"INSERT OVERWRITE {self.table.sql_name} PARTITION (p = {p}) SELECT {row_id}L"
        )
        return self


def compact_while(
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    event: Callable[[], Any],
    **policy: Any,
) -> Outcome:
    """Compact, and let something happen elsewhere after a rewrite has begun and before it is
    planned, read and committed.
    """
    original = execution._rewrite_data
    begun: list[bool] = []

    def rewrite(*given: Any, **options: Any) -> Any:
        if not begun:
            begun.append(True)
            event()
        return original(*given, **options)

    plan = table.plan(**policy)
    monkeypatch.setattr(execution, "_rewrite_data", rewrite)
    outcome = table.run(plan, limits=QUICK)
    monkeypatch.setattr(execution, "_rewrite_data", original)
    assert begun
    return outcome


@pytest.mark.parametrize(
    ("is_every_file", "event", "rows", "attempts"),
    [
        pytest.param(
            False,
            lambda s: s.deletes(1).overwrites(1, 200),
            [(0, 0), (2, 0), (200, 1), (3, 0), (4, 0)],
            2,
            id="older file replaced",
        ),
        pytest.param(
            False,
            lambda s: s.deletes(1).upserts(2),
            [(0, 0), (100, 1), (2, 0), (3, 0), (4, 0)],
            1,
            id="older file stays",
        ),
        pytest.param(
            True,
            lambda s: s.deletes(1).upserts(2),
            [(0, 0), (2, 0), (3, 0), (4, 0)],
            2,
            id="no older file",
        ),
        # The stream's first data file is as old as its first deletes, so none are dropped.
        pytest.param(
            True,
            lambda s: s.upserts(1).upserts(2).upserts(1),
            [(n, 0) for n in range(5)],
            1,
            id="stream of upserts",
        ),
    ],
)
def test_a_rewrite_begins_again_only_where_deletes_of_the_meantime_would_be_dropped(
    streamed: Table,
    monkeypatch: pytest.MonkeyPatch,
    is_every_file: bool,
    event: Callable[[Stream], Any],
    rows: list[Any],
    attempts: int,
) -> None:
    if is_every_file:
        streamed.sql("DELETE FROM {t} WHERE p = 1")

    outcome = compact_while(streamed, monkeypatch, lambda: event(Stream(streamed)), min_files=5)

    assert streamed.rows() == rows
    assert [a.attempts for a in is_proved(outcome).actions] == [attempts]


def test_a_delete_of_the_meantime_is_a_conflict_for_files_that_move_to_another_spec(
    streamed: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(streamed)
    streamed.sql("ALTER TABLE {t} REPLACE PARTITION FIELD p WITH bucket(2, id)")

    outcome = compact_while(streamed, monkeypatch, lambda: stream.deletes(1), old_specs=True)

    assert streamed.rows() == [(0, 0), (100, 1), (2, 0), (3, 0), (4, 0)]
    assert [a.attempts for a in is_proved(outcome).actions] == [2]


def test_the_printed_statement_loses_no_delete_either(streamed: Table) -> None:
    """As it has to say by itself what icekit sees to where it runs a rewrite itself."""
    (action,) = streamed.plan(min_files=5).actions

    assert "'use-starting-sequence-number', 'false'" in action.sql


def test_where_nothing_can_look_at_the_commit_nothing_is_rewritten(
    streamed: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge, "java_object", lambda *_: 1 // 0)
    before, snapshots = streamed.rows(), streamed.snapshots()
    (action,) = streamed.run(streamed.plan(min_files=5)).actions

    assert "icekit cannot check the commits of this table" in str(action.error)
    assert (streamed.rows(), streamed.snapshots()) == (before, snapshots)
