"""A driver that is killed at any moment: what was committed stays, and the rest is done once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from icekit.api import Lake
from icekit.common.commands.compaction_policy import Scope
from rigs.soak.rounds import Moment, Rounds
from rigs.soak.table import make_template

pytestmark = [pytest.mark.spark, pytest.mark.core]

NAMESPACE = "kills"


@pytest.fixture(scope="module")
def rounds(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rounds]:
    """A table of four partitions with small files, equality and position deletes, copied for each
    test.
    """
    make_template(lake, 4, commits=4, namespace=NAMESPACE)
    found = Rounds(lake, tmp_path_factory.mktemp("kills"), NAMESPACE)
    yield found
    found.close()


@pytest.mark.parametrize(
    ("scope", "moment"),
    [
        pytest.param("minor", Moment("commit", 1, 0, with_jvm=True), id="after the first commit"),
        pytest.param(
            "major",
            Moment("commit", 3, 0, with_jvm=True),
            id="between the rewrite of every file and dropping its deletes",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_killed_run_is_resumed_and_nothing_is_lost_or_done_twice(
    rounds: Rounds, scope: Scope, moment: Moment
) -> None:
    name = f"{scope}_{moment.kind}_{moment.count}"

    result = rounds.killed(name, scope, moment)

    assert result.wrong == (), f"killed in: {result.where}"
