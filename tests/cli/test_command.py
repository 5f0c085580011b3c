"""What the command says of itself."""

import os
from collections.abc import Iterator

import click
import pytest

import icekit
from icekit.cli.main import _LeafCommand, root_command
from tests.child import python
from tests.commands import command, leaves, refusals
from tests.golden import Golden


def test_the_version_is_told_and_the_bare_command_prints_its_help() -> None:
    assert command("--version") == (0, f"icekit {icekit.__version__}\n")
    assert command() == command("--help")


def test_help_has_the_name_that_the_command_was_called_by() -> None:
    assert command("look", "--help")[1].startswith("Usage: icekit look ")
    called = python("-m", "icekit", "look", "--help", check=True)
    assert called.stdout.startswith("Usage: python -m icekit look ")


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


def groups(command: click.Command) -> Iterator[click.Group]:
    """The commands that have commands."""
    if isinstance(command, click.Group):
        yield command
        for sub in command.commands.values():
            yield from groups(sub)


def test_what_is_misconfigured_ends_with_2_and_the_next_step(golden: Golden) -> None:
    golden("refusals/options.txt", refusals(MISCONFIGURED))


LEAVES = [pytest.param(leaf, id=leaf.name) for leaf in leaves()]
GROUPS = [pytest.param(group, id=group.name) for group in groups(root_command())]


@pytest.mark.parametrize("command", [*LEAVES, *GROUPS])
def test_help_fits_80_columns(command: click.Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    context = click.Context(command, info_name=command.name)

    assert [line for line in context.get_help().splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("leaf", LEAVES)
def test_an_option_without_its_value_is_refused(leaf: _LeafCommand) -> None:
    """A budget without its value must not be no budget."""
    words = str(leaf.name).split()[1:]
    parameters = leaf.get_params(click.Context(leaf))
    words += ["a" for each in parameters if isinstance(each, click.Argument)]
    for option in parameters:
        if isinstance(option, click.Option) and not option.is_flag:
            name = option.opts[-1]
            for rest in ([], ["--debug"]):
                status, printed = command(*words, name, *rest)
                assert status == 2, name
                assert "requires an argument" in printed or f"{name} needs a value" in printed


def test_help_all_shows_what_is_rarely_used() -> None:
    assert "--min-files N" not in command("compact", "--help")[1]
    assert "--min-files N" in command("compact", "--help-all")[1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("icekit sched", "schedule"),
        ("icekit compact --exec", "--execute"),
        ("icekit tune l", "layout"),
    ],
)
def test_a_shell_completes_commands_and_options(words: str, expected: str) -> None:
    shell = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}

    assert completion("bash_complete", **shell) == f"plain,{expected}\n"


def test_a_shell_gets_its_script() -> None:
    assert completion("zsh_source").startswith("#compdef icekit")


def completion(instruction: str, **shell: str) -> str:
    """What a shell gets of the command."""
    code = "import sys; from icekit.cli.main import main; sys.exit(main())"
    environment = {**os.environ, "_ICEKIT_COMPLETE": instruction, **shell}
    return python("-c", code, env=environment, check=True).stdout
