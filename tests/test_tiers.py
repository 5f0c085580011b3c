"""The list of the gate's Spark tests names what is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = [
    line
    for line in (ROOT / "tests" / "core.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize("line", CORE)
def test_each_line_of_the_list_is_a_file_or_a_test_in_it(line: str) -> None:
    path, _, name = line.removesuffix("[*]").partition("::")
    text = (ROOT / path).read_text()

    assert "pytest.mark.spark" in text
    assert not name or re.search(rf"^def {re.escape(name.partition('[')[0])}\(", text, re.M)


def test_each_line_runs_something_in_the_gate(request: pytest.FixtureRequest) -> None:
    """Of the files that this run has collected: of a test alone that is this one."""
    conftest = next(
        plugin for plugin in request.config.pluginmanager.get_plugins() if hasattr(plugin, "GATE")
    )
    lines = [
        line.removesuffix("[*]")
        for line in CORE
        if line.removesuffix("[*]").partition("::")[0] in conftest.COLLECTED
    ]

    assert [
        line for line in lines if not any(test.startswith(line) for test in conftest.GATE)
    ] == []


def test_no_line_is_there_twice() -> None:
    assert len(set(CORE)) == len(CORE)
