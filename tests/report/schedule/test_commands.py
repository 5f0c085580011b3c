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


def test_a_receiver_whose_secret_is_missing_ends_a_pass_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "rules: [{match: db.x}]\nnotify: http://h/${B_TOKEN}/${A_TOKEN}\n"
    )
    status, text = command("schedule", "run", str(tmp_path / "p.yaml"))
    assert status == 2
    assert "missing for notify: A_TOKEN, B_TOKEN" in text
    assert [p.name for p in tmp_path.iterdir()] == ["p.yaml"]
    # A check may run on a machine without the secrets.
    status, text = command("schedule", "check", str(tmp_path / "p.yaml"))
    assert status == 0
    assert "not set here: A_TOKEN, B_TOKEN" in text


def test_a_report_leaves_its_junit_before_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path / "lake"))
    catalog_of(tmp_path / "lake").close()
    files = ["--junit", str(tmp_path / "j.xml"), "--output", str(tmp_path / "out")]

    status, text = command("report", "db.gone", *files)

    assert status == 2, text
    assert 'type="misconfigured"' in (tmp_path / "j.xml").read_text()
