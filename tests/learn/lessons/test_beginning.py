"""A lesson begins on its tables as they were built, in the lake that belongs to the notebooks."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from icekit import notebook
from icekit.learn import lessons
from icekit.maintain.ledger import default_path
from tests.learn.lab.bench import ROWS, Bench


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """The lake of the lessons, of a person who has chosen no ledger."""
    made = Bench(tmp_path)
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path))
    monkeypatch.delenv("ICEKIT_LEDGER")
    yield made
    made.catalog.close()


def test_a_lesson_puts_its_table_back_and_starts_no_spark(bench: Bench) -> None:
    bench.catalog.load_table(("lab", "small_files")).append(ROWS)

    lake = lessons.begin("small_files")

    assert bench.rows() == 3
    assert not lake.spark_is_running


def test_runs_of_a_lesson_are_recorded_apart_and_started_again(bench: Bench) -> None:
    old = bench.path / "lessons" / "small_files.db"
    old.parent.mkdir()
    old.write_text("of the lesson before")

    lessons.begin("small_files")

    assert default_path() == old
    assert not old.exists()


def test_a_ledger_that_somebody_has_chosen_is_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = bench.path / "mine.db"
    chosen.write_text("mine")
    monkeypatch.setenv("ICEKIT_LEDGER", str(chosen))

    lessons.begin("small_files")

    assert chosen.read_text() == "mine"


@pytest.mark.parametrize("folder", [".", "notebooks", "notebooks/lessons"])
def test_a_notebook_finds_the_lake_of_its_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path / folder)
    monkeypatch.delenv("ICEKIT_LAKE")

    notebook.begin({})

    assert Path(os.environ.get("ICEKIT_LAKE", "lake")).resolve() == tmp_path / "lake"
