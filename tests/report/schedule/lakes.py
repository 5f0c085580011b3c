"""A lake without Spark, and policies for it."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from icekit.api import Lake, connect
from icekit.engine.interrupting import Ending
from icekit.maintain.action import Action
from icekit.maintain.plan import Plan
from icekit.maintain.prediction import Prediction
from icekit.report.facts_cache import FactsCache
from icekit.report.schedule.one_pass import _Pass
from icekit.report.schedule.policy import SchedulePolicy
from icekit.report.schedule.reading import parse_policy
from icekit.report.schedule.result import PassResult, TableResult
from tests.offline import IDS, lake_in

NOW = dt.datetime(2026, 1, 14, 12, 0, tzinfo=dt.UTC)
HERE = Path("/policies/policy.yaml")
COMPACT = "    execute: true\n    compact: {}\n"
REWRITE = Action(
    "1",
    "rewrite_data_files",
    "lake",
    ("db", "a"),
    "small files",
    Prediction(files_in=10, bytes_in=1000, files_out=1),
)
PLAN = Plan("lake", ("db", "a"), None, None, None, (REWRITE,))


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A lake of two empty tables, db.a and db.b, made and read without Spark."""
    with lake_in(tmp_path / "lake") as catalog:
        for name in ("a", "b"):
            catalog.create_table(f"db.{name}", IDS)
        found = connect(None)
        yield found
        found.close()


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pages: what a pass does to tables does not depend on them."""
    monkeypatch.setattr(
        _Pass, "_report", lambda self, tables, *_: [self._look(one) for one in tables]
    )


def passing(
    lake: Lake, folder: Path, text: str = COMPACT, ending: Ending | None = None, **top: str
) -> tuple[_Pass, TableResult]:
    """A pass on table db.a, taken step by step."""
    wanted = policy(text, folder / "p.yaml", **top)
    result = PassResult("p", "lake", NOW)
    one = _Pass(
        wanted, result, lake, ending or Ending(), FactsCache(), lambda: NOW, lambda _: None, False
    )
    return one, TableResult("db.a", "all")


def policy(text: str = "", file: Path = HERE, **top: str) -> SchedulePolicy:
    """A policy of one rule, with more YAML after it."""
    more = "".join(f"{key}: {value}\n" for key, value in top.items())
    return parse_policy(
        f"{more}ledger: ledger.db\nrules:\n  - name: all\n    match: '**'\n{text}", file
    )
