"""What the command says of itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

import icekit
from icekit.cli.main import main


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"icekit {icekit.__version__}\n"


def test_help_has_the_name_that_the_command_was_called_by(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["look", "--help"])
    assert capsys.readouterr().out.startswith("usage: icekit look ")
    called = subprocess.run([sys.executable, "-m", "icekit", "look", "--help"], capture_output=True, text=True, check=True)
    assert called.stdout.startswith("usage: python -m icekit look ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lok", "db.t"], "There is no command 'lok'; did you mean look?"),
        (["tune", "laiout", "db.t"], "There is no question 'laiout'; did you mean layout?"),
        (["xyzzy"], "There is no command 'xyzzy'; there are look, report, "),
    ],
)
def test_the_nearest_command_and_question_are_named(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"icekit: {said}")
