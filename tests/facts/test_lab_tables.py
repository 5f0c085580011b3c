"""Spark and the JVM-free collector give equal facts for every table of the lab."""

import pytest

from icekit.api import Lake
from tests.facts.both import observed_both_ways
from tests.workshop import each_lab_table

pytestmark = pytest.mark.spark


@each_lab_table()
def test_collectors_agree_on_every_lab_table(lake: Lake, name: str) -> None:
    observed_both_ways(lake, f"lab.{name}")
