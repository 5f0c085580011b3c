"""What the command says of itself."""

from collections.abc import Iterator

import pytest

import icekit
from icekit.cli.main import _Parser, _parser
from tests.child import python
from tests.commands import command, refusals
from tests.golden import Golden


def test_the_version_is_told_and_the_bare_command_prints_its_help() -> None:
    assert command("--version") == (0, f"icekit {icekit.__version__}\n")
    assert command() == command("--help")


def test_help_has_the_name_that_the_command_was_called_by() -> None:
    assert command("look", "--help")[1].startswith("usage: icekit look ")
    called = python("-m", "icekit", "look", "--help", check=True)
    assert called.stdout.startswith("usage: python -m icekit look ")


MISCONFIGURED = """\
lok db.t
tune laiout db.t
tune --commts=3 layout db.t
schedule chek
xyzzy
tune file-sizes db.t --filter a
report db.t --fail-onn warning
compact
compact db.t --budget much
compact db.t --bugdet '1 GB'
compact db.t --scope majr
compact db.t --strategy z
compact db.t --min-files inf
compact db.t --prove some
compact db.t --execute --resume
compact db.t --since 2026-02-01 --until 2026-01-01
compact db.t --threshold nonsense
compact db.t --clear '' --execute
schedule check
schedule check none.yaml
schedule run
schedule run p --dryrun
schedule recipe crn
pack db.t
unpack none.icekit.zip
lab zzz"""


def test_what_is_misconfigured_ends_with_2_and_the_next_step(golden: Golden) -> None:
    golden("refusals/options.txt", refusals(MISCONFIGURED))


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
