"""A lesson begins on its tables as they were unpacked, in the lake that belongs to the notebooks."""

import os
from pathlib import Path

import pytest

from icekit import notebook
from icekit.common.terminal import is_attended
from icekit.learn import lessons
from icekit.maintain.record.ledger import default_ledger_path
from tests.offline import catalog_of


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lake of the lessons, of a person who has chosen no ledger."""
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path))
    monkeypatch.delenv("ICEKIT_LEDGER")
    monkeypatch.setenv("ICEKIT_ATTENDED", "")
    monkeypatch.delenv("ICEKIT_ATTENDED")
    return tmp_path


def test_a_lesson_puts_its_table_back_and_starts_no_spark(lake: Path) -> None:
    lessons.begin("managed_elsewhere")
    with catalog_of(lake) as catalog:
        table = catalog.load_table("lab.managed_elsewhere")
        table.transaction().set_properties(owner="another").commit_transaction()

    connected = lessons.begin("managed_elsewhere")

    with catalog_of(lake) as catalog:
        assert catalog.load_table("lab.managed_elsewhere").properties["owner"] != "another"
    assert not connected.spark_is_running


def test_a_lesson_does_not_say_what_is_wrong_with_its_table(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lessons.begin("managed_elsewhere", "empty")

    assert capsys.readouterr().out == "Put back as unpacked: lab.managed_elsewhere, lab.empty.\n"


def test_a_lesson_plans_as_for_a_person_whatever_runs_it(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notebook, "is_kernel", lambda: True)
    monkeypatch.setattr(notebook, "has_front_end", lambda: False)

    lessons.begin("managed_elsewhere")

    assert is_attended()


def test_runs_of_a_lesson_are_recorded_apart_and_started_again(lake: Path) -> None:
    old = lake / "lessons" / "managed_elsewhere.db"
    old.parent.mkdir()
    old.write_text("of the lesson before")

    lessons.begin("managed_elsewhere")

    assert default_ledger_path() == old
    assert not old.exists()


def test_a_ledger_that_somebody_has_chosen_is_kept(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = lake / "mine.db"
    chosen.write_text("mine")
    monkeypatch.setenv("ICEKIT_LEDGER", str(chosen))

    lessons.begin("managed_elsewhere")

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
