"""A command of icekit's, given in this process."""

import pytest

from icekit.cli.main import main


class Command:
    """Runs a command; gives its exit status, and all that was printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str]:
        try:
            status = main(list(arguments))
        except SystemExit as end:
            status = int(str(end.code))
        captured = self._capsys.readouterr()
        return status, captured.out + captured.err
