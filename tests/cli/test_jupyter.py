"""icekit's commands in a notebook, as magics."""

from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

import icekit


@pytest.fixture
def shell() -> Any:
    made: Any = InteractiveShell()  # type: ignore[no-untyped-call]
    icekit.load_ipython_extension(made)
    return made


def test_a_command_runs_in_a_cell_as_in_a_terminal(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_line_magic("icekit", "schedule example")

    assert "rules:" in capsys.readouterr().out


def test_a_command_that_cannot_run_stops_the_notebook_with_its_sentence(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="exit status 2"):
        shell.run_line_magic("icekit", "lok db.t")
    assert "did you mean look?" in capsys.readouterr().err


@pytest.mark.parametrize("status", [1, 2, 3, 130])
def test_every_status_but_0_stops_the_notebook(
    shell: Any, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """1 is also a compaction whose proof failed."""
    monkeypatch.setattr("icekit.cli.jupyter.main", lambda _: status)

    result = shell.run_cell("%icekit compact db.t --execute")

    assert isinstance(result.error_in_exec, UsageError)
    assert f"exit status {status}" in str(result.error_in_exec)


def test_the_text_of_a_cell_is_the_statement_of_a_command(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []

    def main(arguments: list[str]) -> int:
        given.extend([*arguments[:-1], Path(arguments[-1]).read_text()])
        return 0

    monkeypatch.setattr("icekit.cli.jupyter.main", main)
    shell.run_cell_magic("icekit", "review-merge --prove", "MERGE INTO t …\n")

    assert given == ["review-merge", "--prove", "MERGE INTO t …\n"]
