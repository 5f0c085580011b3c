"""What the README and the command line say is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from icekit.cli.main import MOVED, _parser
from icekit.diagnose import SYMPTOMS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_symptom_is_in_the_readme() -> None:
    listed = {cell for line in README.splitlines() if line.startswith("|") for cell in re.findall(r"\w+_\w+", line)}

    assert set(SYMPTOMS) <= listed


def test_the_map_of_the_package_names_every_room_and_no_other() -> None:
    rooms = {p.name for p in (ROOT / "icekit").iterdir() if p.is_dir() and (p / "__init__.py").exists()}

    assert set(re.findall(r"^  (\w+)/ ", README, re.M)) == rooms


def test_every_picture_and_file_that_the_readme_links_to_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", re.sub(r"```.*?```", "", README, flags=re.S)):
        assert target.startswith("https://") or (ROOT / target).exists(), target


# In blocks of shell and in `code`, where a sentence's own icekit is not.
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.S | re.M)
SHELL = [*(block for language, block in BLOCKS if language in {"", "sh"}), *re.findall(r"`(icekit [^`]+)`", README)]
COMMANDS = sorted({command for block in SHELL for command in re.findall(r"^(?:\$ )?icekit ([a-z][\w-]*)", block, re.M)})


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_in_the_readme_is_one(command: str) -> None:
    assert command in _parser().commands().keys() | MOVED.keys()
