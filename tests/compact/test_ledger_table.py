"""The ledger as a table of the catalog: the same answers, and one claim of several machines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

import icekit
from icekit.api import Lake
from icekit.compact.claims import LEASE, claimed
from icekit.compact.ledger import TableLedger
from icekit.errors import ClaimLost, LedgerUnusable, TableClaimed
from icekit.owner import Owner
from icekit.sql import identifier
from tests.compact.records import ACTION, RUN, TABLE, Clock

pytestmark = pytest.mark.spark

RACERS, ROUNDS = 4, 6


@pytest.fixture
def clock() -> Clock:
    return Clock(step=1)


@pytest.fixture
def ledger(lake: Lake, scratch: str, clock: Clock) -> TableLedger:
    return TableLedger(lake, scratch, clock=clock)


@pytest.fixture
def machines(lake: Lake) -> list[Lake]:
    """The same catalog as several machines see it: each session has a catalog and a cache of its own."""
    return [icekit.connect(lake.name, spark=lake.spark.newSession()) for _ in range(RACERS)]


def rows(lake: Lake, query: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in lake.spark.sql(query).collect()]


def test_reading_makes_no_table(lake: Lake, scratch: str, ledger: TableLedger) -> None:
    assert (ledger.run("r1"), ledger.actions("r1"), ledger.claims(), ledger.outcomes()) == (None, (), (), ())
    ledger.release(TABLE, "r1")

    assert (scratch, "ledger") not in lake.tables.names()


def test_what_is_saved_comes_back_and_saving_again_replaces(ledger: TableLedger, lake: Lake, scratch: str) -> None:
    ledger.save_run(RUN)
    ledger.save_run(replace(RUN, status="stopped"))
    ledger.save_actions([replace(ACTION, action_id=f"a{n}", ordinal=n) for n in (2, 10, 1)])
    done = replace(ACTION, action_id="a2", ordinal=2, status="done", actual={"seconds": 2}, snapshot_ids=(8, 9), ended_ms=2)
    ledger.save_action(done)

    assert ledger.run("r1") == ledger.last_run(TABLE) == replace(RUN, status="stopped")
    assert ledger.last_run(TABLE, ["running"]) is None
    assert [a.action_id for a in ledger.actions("r1")] == ["a1", "a2", "a10"]
    assert ledger.actions("r1")[1] == done
    assert rows(lake, f"SELECT kind, count(*) FROM {identifier(lake.name, scratch, 'ledger')} GROUP BY kind ORDER BY kind") == [
        ("action", 3),
        ("run", 1),
    ]


def test_a_ledger_of_an_earlier_icekit_is_taken_over_and_its_living_claims_hold(
    ledger: TableLedger, clock: Clock, lake: Lake, scratch: str
) -> None:
    held = replace(RUN, status="disproved")
    ledger.save_run(held)
    # By name, as it was before; and so is the version.
    ledger.claim(TABLE, "old")
    table = identifier(lake.name, scratch, "ledger")
    lake.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('icekit.ledger-version' = '1')")
    now = TableLedger(lake, scratch, clock=lambda: clock.now + LEASE * 1000 + 1)

    assert now.disproved() == (held,)
    with pytest.raises(TableClaimed, match="run old"):
        TableLedger(lake, scratch, clock=lambda: clock.now).claim(TABLE, "new", "uuid")
    # Its process is this one, and lives; only its lease is over.
    now.claim(TABLE, "new", "uuid")
    assert [(claim.run_id, claim.uuid) for claim in now.claims()] == [("new", "uuid")]
    assert ("icekit.ledger-version", "2") in rows(lake, f"SHOW TBLPROPERTIES {table}")


def test_outcomes_are_the_measured_ones_newest_first(ledger: TableLedger) -> None:
    done = replace(ACTION, status="done", actual={"seconds": 1})
    ledger.save_actions(
        [
            *(replace(done, action_id=f"a{n}", ended_ms=n) for n in (1, 30, 2)),
            replace(done, action_id="unmeasured", actual=None, ended_ms=4),
            replace(done, action_id="failed", status="failed", ended_ms=5),
            replace(done, action_id="u", table="lake.db.u", ended_ms=6),
        ]
    )

    assert [a.action_id for a in ledger.outcomes(TABLE)] == ["a30", "a2", "a1"]
    assert [a.action_id for a in ledger.outcomes(limit=2)] == ["a30", "u"]


def test_no_text_is_changed_on_the_way(ledger: TableLedger) -> None:
    odd = "${spark.app.name} $x :y ? \\n \\\\ \\u0041 ' '' \" ` \n\r\t ü 🧊 -- /* %s {}"
    action = replace(ACTION, run_id=odd, action_id=odd, table=f"lake.db.`{odd}`", sql=odd, predicted={odd: odd})
    ledger.claim(action.table, odd)
    ledger.save_action(action)

    assert ledger.actions(odd) == (action,)
    assert [(c.table, c.run_id) for c in ledger.claims()] == [(action.table, odd)]
    ledger.release(action.table, odd)
    assert ledger.claims() == ()


def test_the_table_stays_small(ledger: TableLedger, clock: Clock, lake: Lake, scratch: str) -> None:
    name = identifier(lake.name, scratch, "ledger")
    for n in range(6):
        ledger.save_action(replace(ACTION, action_id=f"a{n}"))
    lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('history.expire.max-snapshot-age-ms' = '1')")

    ledger.save_run(replace(RUN, status="done", ended_ms=5))
    lake.spark.sql(f"REFRESH TABLE {name}")

    assert rows(lake, f"SELECT count(*) FROM {name}.snapshots") == [(1,)]
    assert rows(lake, f"SELECT count(*) FROM {name}.files") == [(2,)]
    assert len(ledger.actions("r1")) == 6


def test_a_claim_is_refused_until_its_lease_is_over_and_its_run_is_told(ledger: TableLedger, clock: Clock) -> None:
    ledger.claim(TABLE, "first")
    clock.now += 90_000
    ledger.heartbeat(TABLE, "first")
    clock.now += 90_000

    with pytest.raises(TableClaimed, match=r"run first on .* 3 minutes ago .*--resume"):
        ledger.claim(TABLE, "second")
    clock.now += LEASE * 1000 - 90_000
    ledger.claim(TABLE, "second")

    with pytest.raises(ClaimLost, match="run second"):
        ledger.heartbeat(TABLE, "first")
    ledger.release(TABLE, "first")
    assert [(claim.run_id, claim.owner) for claim in ledger.claims()] == [("second", Owner.here())]


def test_a_heartbeat_does_not_bring_back_a_claim_that_is_gone(ledger: TableLedger) -> None:
    with claimed(ledger, TABLE, "r1"):
        assert [claim.run_id for claim in ledger.claims()] == ["r1"]

    with pytest.raises(ClaimLost):
        ledger.heartbeat(TABLE, "r1")
    assert ledger.claims() == ()


def test_a_table_that_is_no_ledger_is_left_alone(lake: Lake, scratch: str, ledger: TableLedger) -> None:
    lake.spark.sql(f"CREATE TABLE {identifier(lake.name, scratch, 'ledger')} (x int) USING iceberg")

    with pytest.raises(LedgerUnusable, match=r"scratch\.ledger exists but is not an icekit ledger"):
        ledger.claim(TABLE, "r1")


def race(machines: list[Lake], scratch: str, attempt: Callable[[TableLedger, int], None]) -> list[int]:
    """The numbers of those that got the claim, when all try after all have read that it is free."""
    have_read = threading.Barrier(len(machines))
    won: list[int] = []
    broken: list[BaseException] = []

    def run(number: int) -> None:
        first = True

        def clock() -> int:
            # Asked for between reading who holds the table and the MERGE that takes it.
            nonlocal first
            if first:
                first = False
                have_read.wait(timeout=600)
            return 1_000_000

        try:
            attempt(TableLedger(machines[number], scratch, clock=clock), number)
            won.append(number)
        except TableClaimed:
            pass
        except BaseException as error:
            broken.append(error)

    threads = [threading.Thread(target=run, args=[number]) for number in range(len(machines))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert broken == []
    return won


@pytest.mark.soak
def test_of_machines_that_race_for_a_free_table_one_wins_every_time(machines: list[Lake], scratch: str, ledger: TableLedger) -> None:
    # The first round is of an empty table without a snapshot.
    for number in range(ROUNDS):
        table = f"lake.db.t{number}"
        won = race(machines, scratch, lambda ledger, n, table=table: ledger.claim(table, f"run{n}"))  # type: ignore[misc]

        assert len(won) == 1
        assert [claim.run_id for claim in ledger.claims() if claim.table == table] == [f"run{won[0]}"]


@pytest.mark.slow
def test_of_machines_that_race_for_a_dead_claim_one_wins_every_time(machines: list[Lake], scratch: str, ledger: TableLedger) -> None:
    long_ago = TableLedger(machines[0], scratch, clock=lambda: 1_000)
    for number in range(ROUNDS // 2):
        table = f"lake.db.t{number}"
        long_ago.claim(table, "dead")
        won = race(machines, scratch, lambda ledger, n, table=table: ledger.claim(table, f"run{n}"))  # type: ignore[misc]

        assert len(won) == 1
        assert [claim.run_id for claim in ledger.claims() if claim.table == table] == [f"run{won[0]}"]


def test_machines_that_save_at_once_lose_nothing(machines: list[Lake], scratch: str, ledger: TableLedger) -> None:
    def save(number: int) -> None:
        mine = TableLedger(machines[number], scratch)
        for n in range(2):
            mine.save_action(replace(ACTION, action_id=f"{number}-{n}"))

    threads = [threading.Thread(target=save, args=[number]) for number in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(ledger.actions("r1")) == 2 * RACERS
