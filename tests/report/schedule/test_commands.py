"""``schedule`` from the terminal's side."""

from pathlib import Path

import pytest

from icekit.report.schedule.recipes import example
from tests.commands import command
from tests.offline import catalog_of


def test_the_example_that_is_printed_is_taken(tmp_path: Path) -> None:
    status, text = command("schedule", "example")
    assert text == example()
    (tmp_path / "p.yaml").write_text(text)
    assert status == 0
    status, text = command("schedule", "check", str(tmp_path / "p.yaml"))
    assert status == 0
    assert "It changes tables of upserts, events." in text


def test_a_report_leaves_its_junit_before_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path / "lake"))
    catalog_of(tmp_path / "lake").close()
    files = ["--junit", str(tmp_path / "j.xml"), "--output", str(tmp_path / "out")]

    status, text = command("report", "db.gone", *files)

    assert status == 2, text
    assert 'type="misconfigured"' in (tmp_path / "j.xml").read_text()
