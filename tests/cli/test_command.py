"""What the command says of itself."""

from collections.abc import Iterator

import pytest

import icekit
from icekit.cli.main import _Parser, _parser
from tests.child import python
from tests.commands import command


def test_the_version_is_told() -> None:
    assert command("--version") == (0, f"icekit {icekit.__version__}\n")


def test_help_has_the_name_that_the_command_was_called_by() -> None:
    assert command("look", "--help")[1].startswith("usage: icekit look ")
    called = python("-m", "icekit", "look", "--help", check=True)
    assert called.stdout.startswith("usage: python -m icekit look ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("lok db.t", "There is no command 'lok'; did you mean look?"),
        ("tune laiout db.t", "There is no command 'laiout'; did you mean layout?"),
        ("schedule chek", "There is no command 'chek'; did you mean check?"),
        ("xyzzy", "There is no command 'xyzzy'; use one of look, plan, compare, "),
        ("tune file-sizes db.t --filter a", "unrecognized arguments: --filter a\n"),
        ("report db.t --fail-onn warning", "unrecognized arguments: --fail-onn warning; did you"),
    ],
)
def test_the_nearest_command_question_and_option_are_named(arguments: str, message: str) -> None:
    status, printed = command(*arguments.split())

    assert status == 2
    assert printed.startswith(f"icekit: {message}")


def parsers(parser: _Parser) -> Iterator[_Parser]:
    """A parser and those of all its commands."""
    yield parser
    for sub in parser.commands().values():
        yield from parsers(sub)


ALL = [pytest.param(parser, id=parser.prog) for parser in parsers(_parser())]


@pytest.mark.parametrize("parser", ALL)
def test_help_fits_80_columns(parser: _Parser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    assert [line for line in parser.format_help().splitlines() if len(line) > 80] == []


def test_the_bare_command_prints_its_help() -> None:
    status, printed = command()

    assert status == 0
    assert "COMMAND ..." in printed
