"""Where health is kept: appended once, read back bounded."""

import contextlib
import dataclasses
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from icekit import diagnose
from icekit.common.errors import HistoryUnusable
from icekit.maintain.planning.savings import savings_of
from icekit.report.history.store import HealthRecord, HistoryFile, health_record
from tests.factories import NOW_MS, file_group, table_facts

DAY = 86_400_000


def record(day: int = 0, table: str = "db.events", **changes: Any) -> HealthRecord:
    facts = table_facts(groups=(file_group(1024, 2048),), table=tuple(table.split(".")))
    found = diagnose(facts)
    made = health_record(facts, found, savings_of(facts, found), f"run{day:03d}")
    return dataclasses.replace(made, observed_at_ms=NOW_MS - (400 - day) * DAY, **changes)


@pytest.fixture
def kept(tmp_path: Path) -> HistoryFile:
    return HistoryFile(tmp_path / "deep" / "health.db")


def test_what_was_never_written_is_empty_and_reading_makes_nothing(
    kept: HistoryFile, tmp_path: Path
) -> None:
    assert kept.newest_runs(["db.events"]) == {}
    assert not (tmp_path / "deep").exists()


def test_a_run_is_appended_once_and_read_back_as_it_was(kept: HistoryFile) -> None:
    first = record(findings=(("small_files", "warning"),))
    other = record(table="db.`odd's name`", delete_files=3)

    assert first.as_columns()["findings"] == '[["small_files", "warning"]]', "SQL reads it as JSON"
    assert kept.append([first]) == 1
    assert kept.append([first, other]) == 1
    assert kept.append([first, other]) == 0
    assert kept.append([]) == 0
    assert kept.newest_runs([first.table_name, other.table_name, "db.none"]) == {
        first.table_name: [first],
        other.table_name: [other],
    }


def test_many_tables_are_read_at_once_also_one_with_few_runs(kept: HistoryFile) -> None:
    for start in range(0, 80, 20):
        kept.append(
            [record(day, name) for day in range(start, start + 20) for name in ("db.a", "db.b")]
        )
    kept.append([record(5, "db.late")])

    found = kept.newest_runs(["db.a", "db.late", "db.none"])

    assert found["db.a"] == [record(day, "db.a") for day in range(50, 80)], "oldest first"
    assert found["db.late"] == [record(5, "db.late")]
    assert found.keys() == {"db.a", "db.late"}


def test_a_file_of_another_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    kept = HistoryFile(path)
    kept.append([record()])
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 9")
    before = path.read_bytes()

    why = "schema 9, and this icekit knows 2; give another file"
    with pytest.raises(HistoryUnusable, match=f"cannot be written: {why}"):
        kept.append([record()])
    with pytest.raises(HistoryUnusable, match=f"cannot be read: {why}"):
        kept.newest_runs(["db.events"])
    assert path.read_bytes() == before


def test_writers_at_once_lose_nothing_and_store_nothing_twice(kept: HistoryFile) -> None:
    runs = [[record(day, name) for name in ("db.a", "db.b")] for day in range(3)]
    kept.append(runs[0])

    with ThreadPoolExecutor(3) as pool:
        appended = list(pool.map(kept.append, runs * 2))

    assert kept.newest_runs(["db.a", "db.b"]) == {
        name: [run[place] for run in runs] for place, name in enumerate(("db.a", "db.b"))
    }
    assert sum(appended) == 4
