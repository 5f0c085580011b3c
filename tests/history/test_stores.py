"""Where health is kept: appended once, read back bounded, widened by later columns."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icekit
from icekit import diagnose
from icekit.api import Lake
from icekit.errors import HistoryUnusable
from icekit.history import iceberg
from icekit.history.iceberg import IcebergStore
from icekit.history.store import COLUMNS, Health, RecentRuns, SqliteStore, Store, health
from icekit.history.trend import handed_over, past, remembered, store
from icekit.maintain.savings import wins
from icekit.show import history_charts
from tests.factories import NOW_MS, file_group, history, table_facts

DAY = 86_400_000


def record(day: int = 0, table: str = "db.events", **changes: Any) -> Health:
    facts = table_facts(groups=(file_group(1024, 2048),), table=tuple(table.split(".")))
    found = diagnose(facts)
    made = health(facts, found, wins(facts, found), f"run{day:03d}")
    return dataclasses.replace(made, observed_at_ms=NOW_MS - (400 - day) * DAY, **changes)


@pytest.fixture(params=["sqlite", "iceberg"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "sqlite":
        return SqliteStore(tmp_path / "deep" / "health.db")
    (tmp_path / "warehouse").mkdir()
    return IcebergStore(lambda: SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse"))


def test_what_was_never_written_is_empty_and_reading_makes_nothing(kept: Store, tmp_path: Path) -> None:
    assert kept.last(["db.events"]) == {}
    assert not (tmp_path / "deep").exists()


def test_a_run_is_appended_once_and_read_back_as_it_was(kept: Store) -> None:
    first, other = record(), record(table="db.`odd's name`", orphan_files=3)

    assert kept.append([first]) == 1
    assert kept.append([first, other]) == 1
    assert kept.append([first, other]) == 0
    assert kept.append([]) == 0
    assert kept.last([first.table_name, other.table_name, "db.none"]) == {first.table_name: [first], other.table_name: [other]}


def test_the_newest_runs_of_each_table_come_back_oldest_first(kept: Store) -> None:
    for start in range(0, 40, 10):
        kept.append([record(day, name) for day in range(start, start + 10) for name in ("db.a", "db.b")])

    found = kept.last(["db.b"], 12, other_than="run039")
    assert [h.run_id for h in found["db.b"]] == [f"run{day:03d}" for day in range(27, 39)]
    assert list(found) == ["db.b"]


def test_of_all_tables_the_last_run_comes_back_with_one_figure_of_the_newest(kept: Store) -> None:
    assert kept.lately(["db.a"]) == {}
    for start in range(0, 80, 20):
        days = range(start, start + 20)
        kept.append([record(day, name, opens_saved=None if day == 77 else day) for day in days for name in ("db.a", "db.b")])
    kept.append([record(5, "db.late")])

    found = kept.lately(["db.a", "db.late", "db.none"], 10, other_than="run079")
    assert found.keys() == {"db.a", "db.late"}
    assert found["db.a"] == RecentRuns(record(78, "db.a", opens_saved=78), (*range(69, 77), 78))
    assert found["db.late"].last == record(5, "db.late")
    assert kept.lately(["db.a"])["db.a"].points == (*range(77), 78, 79)


def test_the_iceberg_table_keeps_itself_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg, "_KEPT_SNAPSHOTS", 4)
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path))
    (tmp_path / "warehouse").mkdir()
    lake = icekit.connect()
    kept = store("table", lake)
    assert kept is not None
    for day in range(12):
        kept.append([record(day + 20)])

    facts = lake.observe("icekit.health")
    assert facts.data.record_count == 12
    assert facts.data.file_count < 12
    assert facts.history.snapshot_count < 14
    assert diagnose(facts).names == set()
    assert [f.name for f in facts.default_spec.fields] == ["observed_month"]


def test_a_later_column_is_added_and_older_rows_read_as_none(kept: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    newer = dict(COLUMNS)
    older = {name: kind for name, kind in newer.items() if name not in {"expirable_bytes", "icekit_version"}}
    for module in ("store", "iceberg"):
        monkeypatch.setattr(f"icekit.history.{module}.COLUMNS", older)
    kept.append([record(1, expirable_bytes=7)])
    for module in ("store", "iceberg"):
        monkeypatch.setattr(f"icekit.history.{module}.COLUMNS", newer)
    kept.append([record(2, expirable_bytes=8)])

    assert [h.expirable_bytes for h in kept.last(["db.events"])["db.events"]] == [None, 8]


def test_an_older_icekit_reads_and_writes_a_wider_table(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.append([record(1, snapshots=5)])
    older = {name: kind for name, kind in COLUMNS.items() if name != "snapshots"}
    for module in ("store", "iceberg"):
        monkeypatch.setattr(f"icekit.history.{module}.COLUMNS", older)
    kept.append([record(2)])

    assert [h.run_id for h in kept.last(["db.events"])["db.events"]] == ["run001", "run002"]


def test_a_file_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as theirs:
        theirs.execute("CREATE TABLE health (id)")
    theirs.close()
    before = path.read_bytes()

    with pytest.raises(HistoryUnusable, match=r"another program.s database; give another file"):
        SqliteStore(path).append([record()])
    with pytest.raises(HistoryUnusable, match="cannot be read"):
        SqliteStore(path).last(["db.events"])
    assert path.read_bytes() == before


def test_a_short_text_is_no_empty_history(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")

    with pytest.raises(HistoryUnusable, match="not a database; give another file"):
        SqliteStore(path).append([record()])
    assert path.read_text() == "mine"


def test_a_table_of_that_name_that_is_not_icekits_is_refused(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse")
    catalog.create_namespace("icekit")
    catalog.create_table("icekit.health", iceberg.as_arrow([]).schema)

    with pytest.raises(HistoryUnusable, match="is not icekit's"):
        IcebergStore(lambda: catalog).append([record()])
    catalog.close()


def test_every_field_of_a_record_has_a_documented_column() -> None:
    fields = {f.name for f in dataclasses.fields(Health)} - {"observed_at_ms"}

    assert fields == set(COLUMNS) - {"observed_at", "observed_month"}
    assert all(doc for _, doc in COLUMNS.values())


def test_what_is_remembered_is_handed_to_a_notebook_in_a_file(tmp_path: Path) -> None:
    lake: Any = None
    handed = handed_over([record(1), record(2)], "db.events", tmp_path)

    assert remembered(handed, lake, "db.events") == (record(1), record(2))
    assert remembered(handed_over([], "db.first", tmp_path), lake, "db.first") == ()


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Lake]:
    """A lake without tables, and a ledger that nothing was written to."""
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path))
    monkeypatch.setenv("ICEKIT_LEDGER", str(tmp_path / "ledger.db"))
    return icekit.connect


def test_the_present_run_is_the_last_of_the_past_and_the_chart_says_where_it_goes(tmp_path: Path, nowhere: Callable[[], Lake]) -> None:
    kept = SqliteStore(tmp_path / "h.db")
    kept.append([record(day, snapshots=10 + day) for day in range(390, 400)])
    facts = table_facts(groups=(file_group(1024, 2048),), history=history(snapshot_count=411))
    seen = past(nowhere(), facts, diagnose(facts), str(kept.path))

    assert len(seen.runs) == 11
    assert seen.runs[-1].snapshots == 411
    chart = history_charts.trends(seen)
    assert "11 runs of db.events" in chart.alt
    assert "snapshots: 411, past 100; up 1 a day" in chart.alt
    assert len(chart.png()) > 10_000
    outlook = history_charts.outlook(seen)
    assert list(outlook["figure"])[-1] == "snapshots"


def test_without_a_history_the_chart_and_the_outlook_are_a_sentence_that_says_how_to_keep_one(
    nowhere: Callable[[], Lake], tmp_path: Path
) -> None:
    facts = table_facts()
    none = past(nowhere(), facts, diagnose(facts), "")
    first = past(nowhere(), facts, diagnose(facts), str(tmp_path / "h.db"))

    assert "--history FILE" in repr(history_charts.trends(none))
    assert "first run" in repr(history_charts.trends(first))
    assert repr(history_charts.outlook(none)) == (
        "There is no outlook without a history. The first run of icekit report with --history begins one; a trend needs 5 runs."
    )
    assert "too few runs for a trend" in repr(history_charts.outlook(first))
    assert not (tmp_path / "h.db").exists()


def test_findings_are_kept_as_json_that_sql_can_read() -> None:
    assert json.loads(record().plain()["findings"]) == []
    assert Health.of_plain(record(findings=(("small_files", "warning"),)).plain()).findings == (("small_files", "warning"),)
