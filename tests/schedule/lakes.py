"""A lake without Spark, and a pass on it that is taken step by step."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from icekit.api import Lake, connect
from icekit.schedule.one_pass import _OnePass
from icekit.schedule.policy import SchedulePolicy
from icekit.schedule.state import StartedRun, State, TableRecord, state_path
from tests.schedule.making import NOW, policy


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """A lake of two empty tables, db.a and db.b, made and read without Spark."""
    (tmp_path / "lake").mkdir()
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path / "lake"))
    with SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake/catalog.db", warehouse=str(tmp_path / "lake" / "warehouse")) as catalog:
        catalog.create_namespace("db")
        for name in ("a", "b"):
            catalog.create_table(f"db.{name}", Schema(NestedField(1, "id", LongType(), required=False)))
    found = connect(None)
    yield found
    found.close()


def by(tmp_path: Path, text: str = "", **top: str) -> SchedulePolicy:
    """A policy whose files are the test's own."""
    return policy(text, output=str(tmp_path / "out"), state=str(tmp_path / "passes.db"), ledger=str(tmp_path / "ledger.db"), **top)


def begin(state: State, table: str, run: StartedRun) -> TableRecord:
    """As a pass does that begins a run on a table, and is killed then."""
    state.apply(table, "take")
    return state.apply(table, "begin", run=run)


def one_pass(
    wanted: SchedulePolicy, *, clock: Callable[[], dt.datetime] | None = None, say: Callable[[str], None] | None = None
) -> _OnePass:
    return _OnePass(wanted, State(state_path(wanted)), False, clock or (lambda: NOW), say or (lambda _: None))
