"""A minute of random tables under every reader; ``make soak`` runs more (``python -m
rigs.torture``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from icekit.api import Lake
from rigs.torture.rounds import Round
from tests.elsewhere import elsewhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.core]

#: Seeds with the number of their steps; `make test` runs the first.
ROUNDS = ((1002, 4), (1001, 8), (1003, 8), (1009, 8))


@pytest.fixture(scope="module")
def other(lake: Lake) -> SparkSession:
    """A session that shares no cache with icekit's."""
    session = elsewhere(lake.spark)
    session.conf.set(f"spark.sql.catalog.{lake.name}.cache-enabled", "false")
    session.conf.set("spark.sql.iceberg.executor-cache.enabled", "false")
    return session


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("seed", "steps"), ROUNDS)
def test_what_icekit_does_between_commits_of_others_changes_the_rows_of_no_reader(
    lake: Lake, other: SparkSession, seed: int, steps: int
) -> None:
    report = Round(lake, other, seed).play(steps)

    assert report.faults == [], "\n".join(report.history)
    assert report.comparisons["Spark agrees"] > 0
