"""A minute of random histories; ``make soak`` runs more (``python -m rigs.model``).

A failing history is printed as calls: a test of those calls on a ``Machine()`` replays it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from icekit.api import Lake
from rigs.model.histories import run
from rigs.model.machine import Machine

pytestmark = pytest.mark.spark

SEEDS = (101, 102, 103, 104)


@pytest.fixture(autouse=True)
def _on_the_lake(lake: Lake) -> Iterator[None]:
    Machine.lake = lake
    yield
    if Machine.world is not None:
        Machine.world.clear()


@pytest.mark.core("101")
@pytest.mark.parametrize("seed", SEEDS)
def test_no_row_is_lost_or_revived_and_no_file_that_a_table_names_is_gone(seed: int) -> None:
    run(seed, histories=2, steps=12)


def test_most_of_what_icekit_was_asked_for_it_did() -> None:
    """Histories in which it refuses say nothing."""
    assert Machine.ends["refused"] <= Machine.ends["done"], Machine.ends
