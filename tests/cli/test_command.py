"""What the command says of itself."""

from collections.abc import Iterator

import pytest

import icekit
from icekit.cli.main import _Parser, _parser, main
from tests.child import python


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"icekit {icekit.__version__}\n"


def test_help_has_the_name_that_the_command_was_called_by(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["look", "--help"])
    assert capsys.readouterr().out.startswith("usage: icekit look ")
    called = python("-m", "icekit", "look", "--help", check=True)
    assert called.stdout.startswith("usage: python -m icekit look ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lok", "db.t"], "There is no command 'lok'; did you mean look?"),
        (["tune", "laiout", "db.t"], "There is no question 'laiout'; did you mean layout?"),
        (["schedule", "chek"], "There is no command 'chek'; did you mean check?"),
        (["xyzzy"], "There is no command 'xyzzy'; the commands are look, plan, compare, "),
        (
            ["tune", "file-sizes", "db.t", "--filter", "a = 1"],
            "unrecognized arguments: --filter a = 1\n",
        ),
    ],
)
def test_the_nearest_command_and_question_are_named(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"icekit: {said}")


def parsers(parser: _Parser) -> Iterator[_Parser]:
    """A parser and those of all its commands."""
    yield parser
    for command in parser.commands().values():
        yield from parsers(command)


ALL = [pytest.param(parser, id=parser.prog) for parser in parsers(_parser())]


@pytest.mark.parametrize("parser", ALL)
def test_help_fits_80_columns(parser: _Parser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    assert [line for line in parser.format_help().splitlines() if len(line) > 80] == []


def test_the_bare_command_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "COMMAND ..." in capsys.readouterr().out
