"""``icekit compact`` from the terminal's side: what it says, writes, and ends with."""

import contextlib
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from icekit.api import Lake
from icekit.cli.run import _plan_and_run
from icekit.common.commands.run import CompactOptions
from icekit.engine import session
from icekit.engine.interrupting import Stopped
from icekit.maintain.run import verbs
from icekit.maintain.run.options import RunSettings
from tests.commands import command
from tests.maintain.tables import Table


def test_help_shows_the_eight_options_that_people_use_most_and_help_all_the_rest() -> None:
    def shown(option: str) -> set[str]:
        return set(re.findall(r"^  --([a-z-]+)", command("compact", option)[1], re.M)) - {
            "debug",
            "help-all",
        }

    few, every = shown("--help"), shown("--help-all")
    assert few == {
        "catalog",
        "execute",
        "resume",
        "scope",
        "strategy",
        "budget",
        "leave-alone",
        "trial",
    }
    assert every == {
        "threshold" if name == "thresholds" else name.replace("_", "-")
        for name in CompactOptions.declarations
    } - {"table"}


@pytest.fixture
def execute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The arguments of a command that runs its plan, in a process that takes Ctrl-C as Python
    does.
    """
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield CompactOptions.of({"table": "db.t", "execute": True})
    signal.signal(signal.SIGINT, before)


def dropped_ctrl_c() -> None:
    """Ctrl-C while Python collects garbage, which drops what its handler raises."""
    with contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("error", [None, ConnectionResetError(104, "Connection reset by peer")])
def test_a_ctrl_c_that_was_dropped_while_planning_ends_the_command_whatever_breaks_after_it(
    execute: Any, error: Exception | None
) -> None:
    def planned(*_: object) -> Any:
        dropped_ctrl_c()
        if error:
            raise error

    with pytest.raises(KeyboardInterrupt):
        _plan_and_run("compact", execute, planned)


def test_a_ctrl_c_that_was_dropped_while_a_plan_runs_stops_it_and_a_second_one_breaks_in(
    execute: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan: Any = SimpleNamespace(actions=())
    outcome = SimpleNamespace(
        is_dry_run=False, status="stopped", exit_status=130, text=lambda **_: ""
    )

    def run(_lake: Lake, _plan: Any, settings: RunSettings, **_: Any) -> Any:
        dropped_ctrl_c()
        with pytest.raises(Stopped):
            settings.stop.sleep(600)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return outcome

    monkeypatch.setattr(verbs, "run", run)
    assert _plan_and_run("compact", execute, lambda *_: plan) == 130
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.spark
def test_a_table_is_planned_compacted_and_found_well(
    sick: Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As in a notebook: the session is somebody else's, and is left running.
    monkeypatch.setattr(session, "_own_spark", None)
    rows, here = sick.rows(), sick.snapshot_id()
    common = [
        "scratch.sick",
        "--leave-alone",
        "0 minutes",
        "--ledger",
        str(sick.book),
        "--output",
        str(tmp_path),
    ]
    document = tmp_path / "scratch.sick.plan.json"

    status, text = command("compact", *common)
    assert (status, sick.snapshot_id(), sick.book.exists()) == (0, here, False), text
    assert "Nothing has run" in text
    assert "CALL `lake`.system.rewrite_data_files(table => 'scratch.sick'" in text
    dry = json.loads(document.read_text())
    assert dry["status"] == "planned"

    status, text = command("compact", *common, "--execute", "--budget", "1 GB")
    assert status == 0, text
    assert "done: 10 files → 2 files" in text
    ran = json.loads(document.read_text())
    assert ran["status"] == "done"
    assert ran["proof"]["ok"] is True
    assert ran["actual"]["files_in"] == 10
    assert ran["predicted"]["files_in"] == 10
    assert set(dry["actions"][0]) == set(ran["actions"][0])

    status, text = command("compact", *common, "--execute")
    assert (status, "Nothing to do under this policy." in text) == (0, True), text
    assert sick.rows() == rows

    # One of its files is gone: what cannot be done ends with 1.
    sick.fill(start=100)
    sick.data_files()[0].unlink()
    status, text = command("compact", *common, "--execute", "--min-files", "2")
    assert (status, json.loads(document.read_text())["status"]) == (1, "failed"), text
