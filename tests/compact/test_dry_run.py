"""A plan that is only looked at starts no Spark where the metadata tells what Iceberg's planner
selects.
"""

from collections.abc import Iterator

import pytest

from icekit.api import Lake
from icekit.compact.model import Prediction
from icekit.compact.service import plan_table

pytestmark = pytest.mark.spark

TABLES = ["small_files", "skewed_small_files", "oversized_files", "frequent_commits"]


@pytest.fixture
def stopped(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """A lake whose Spark is not running, and does not start."""

    def start(_: Lake) -> None:
        raise AssertionError("Spark was started")

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "spark_is_running", False)
        patch.setattr(Lake, "spark", property(start))
        yield lake


def _predicted(lake: Lake, table: str, *, exact: bool) -> list[Prediction]:
    facts = lake.observe(f"lab.{table}")
    planned = plan_table(lake, facts, exact=exact)
    return [action.prediction for action in planned.actions]


def _selected(prediction: Prediction) -> tuple[int, int, int, int]:
    p = prediction
    return p.files_in, p.bytes_in, p.rows_in, p.delete_files_removed


@pytest.fixture
def by_planner(lake: Lake) -> dict[str, list[Prediction]]:
    return {table: _predicted(lake, table, exact=True) for table in TABLES}


@pytest.mark.lab(*TABLES)
def test_the_metadata_tells_what_the_planner_selects(
    by_planner: dict[str, list[Prediction]], stopped: Lake
) -> None:
    for table, planned in by_planner.items():
        by_metadata = _predicted(stopped, table, exact=False)
        assert [_selected(p) for p in by_metadata] == [_selected(p) for p in planned] != []
        for ours, its in zip(by_metadata, planned, strict=True):
            assert ours.files_out == pytest.approx(its.files_out, rel=0.1)


@pytest.mark.lab("position_deletes", "small_files")
@pytest.mark.parametrize(("table", "exact"), [("position_deletes", False), ("small_files", True)])
def test_the_planner_is_asked_where_deletes_decide_what_is_rewritten_and_where_the_plan_is_to_be_run(
    stopped: Lake, table: str, exact: bool
) -> None:
    with pytest.raises(AssertionError, match="Spark was started"):
        _predicted(stopped, table, exact=exact)
