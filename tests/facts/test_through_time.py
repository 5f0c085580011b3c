"""Snapshots of the past are chosen evenly, read once, and left out when they are gone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icekit
from icekit.facts.head import SizesAt, spread, through_time
from tests.factories import commit

COMMITS = tuple(commit(n) for n in reversed(range(40)))


def test_few_commits_are_all_taken() -> None:
    assert spread(COMMITS[:5], 30) == COMMITS[:5]


def test_of_many_the_first_the_last_and_an_even_spread_are_taken() -> None:
    chosen = spread(COMMITS, 4)

    assert [COMMITS.index(c) for c in chosen] == [0, 13, 26, 39]


@pytest.mark.parametrize(("at_most", "places"), [(0, []), (1, [39]), (2, [0, 39])])
def test_very_few_are_the_newest_then_both_ends(at_most: int, places: list[int]) -> None:
    assert [COMMITS.index(c) for c in spread(COMMITS, at_most)] == places


def test_no_history_gives_nothing() -> None:
    assert spread((), 5) == ()


@pytest.fixture
def lake(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A table of five appends, made without Spark."""
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path))
    rows = pa.table({"id": [1, 2, 3]})
    with SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse")) as catalog:
        catalog.create_namespace("db")
        table = catalog.create_table(("db", "t"), rows.schema)
        for _ in range(5):
            table.append(rows)
    connected = icekit.connect()
    yield connected
    connected.close()


def test_each_snapshot_is_seen_as_it_was_and_read_once(lake: Any, tmp_path: Path) -> None:
    facts = lake.observe("db.t")
    known: dict[int, SizesAt] = {}
    told: list[tuple[int, int]] = []

    found = through_time(lake, facts, 3, known=known, progress=lambda read, of: told.append((read, of)))

    assert [s.file_count for s in found] == [1, 3, 5]
    assert [sum(b.file_count for b in s.bars) for s in found] == [1, 3, 5]
    assert told == [(0, 3), (1, 3), (2, 3)]
    shutil.rmtree(tmp_path / "warehouse")
    assert through_time(lake, facts, 3, known=known) == found


def test_who_stops_the_reading_keeps_what_was_read(lake: Any) -> None:
    facts = lake.observe("db.t")
    known: dict[int, SizesAt] = {}

    def stop_at_two(read: int, of: int) -> None:
        if read == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        through_time(lake, facts, 5, known=known, progress=stop_at_two)
    assert len(known) == 2
