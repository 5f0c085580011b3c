"""Over Spark Connect whatever tries or changes a table is refused, before anything is read or
written.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import icekit
from icekit.api import Lake
from icekit.common.errors import ClassicSessionRequired
from icekit.maintain.action import Action
from icekit.maintain.plan import Plan
from icekit.maintain.prediction import Prediction
from icekit.sandbox.clones import clone
from icekit.sandbox.scratch import StaleClone, remove_stale_clones

ACTION = Action("a1", "rewrite_manifests", "lake", ("db", "t"), "", Prediction())
PLAN = Plan("lake", ("db", "t"), None, None, None, (ACTION,))
CHANGING: dict[str, Callable[[Lake, str], object]] = {
    "run": lambda lake, ledger: lake.run(
        PLAN, execute=True, ledger=ledger, progress=lambda _: None
    ),
    "convert": lambda lake, _: lake.convert("db.t"),
    "clone": lambda lake, _: clone(lake, "db.t").__enter__(),
    "remove clones": lambda lake, _: remove_stale_clones(
        lake, [StaleClone(("icekit_clones", "c"), None, is_dead=True)]
    ),
    "tune": lambda lake, _: lake.tune("layout", "db.t"),
}


@pytest.fixture
def lake() -> Lake:
    """A catalog of a session that can be asked for its settings, and for nothing else."""

    class Remote:
        version = "4.1.0"
        conf = SimpleNamespace(
            get=lambda _, default=None: (
                "org.apache.iceberg.spark.SparkCatalog" if default is None else default
            )
        )

    Remote.__module__ = "pyspark.sql.connect.session"
    return icekit.connect("lake", spark=cast("Any", Remote()))


@pytest.mark.parametrize("verb", CHANGING)
def test_what_tries_or_changes_a_table_needs_a_classic_session(
    lake: Lake, verb: str, tmp_path: Path
) -> None:
    with pytest.raises(ClassicSessionRequired, match="Nothing was written"):
        CHANGING[verb](lake, str(tmp_path / "ledger.db"))

    assert not (tmp_path / "ledger.db").exists()
