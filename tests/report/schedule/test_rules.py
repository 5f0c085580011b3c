"""Each table has the first rule that matches it."""

import pytest

from icekit.api import Lake
from icekit.common.sql import parse_identifier
from icekit.report.schedule.one_pass import assign
from icekit.report.schedule.reading import parse_policy
from tests.report.schedule.lakes import HERE, lake

__all__ = ["lake"]
pytestmark = pytest.mark.usefixtures("names")


@pytest.fixture
def names(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of the catalog."""
    tables = ["db.a", "db.b", "db.tmp_x", "icekit.ledger", "icekit_scratch.c", "logs.deep.t"]
    monkeypatch.setattr(type(lake.tables), "names", lambda _: [*map(parse_identifier, tables)])


def assigned(lake: Lake, rules: str) -> tuple[dict[str, str], list[str]]:
    found, unmatched = assign(lake, parse_policy(f"rules:\n{rules}", HERE).rules)
    return {one.table: one.rule for one in found}, unmatched


def test_the_first_rule_that_matches_applies(lake: Lake) -> None:
    rules = "  - {name: one, match: [db.a, '**.tmp_*']}\n  - {name: two, match: db.*}\n"
    assert assigned(lake, rules) == ({"db.a": "one", "db.tmp_x": "one", "db.b": "two"}, [])


def test_the_tables_that_icekit_makes_belong_to_no_rule_unless_it_names_them(lake: Lake) -> None:
    assert set(assigned(lake, "  - match: '**'\n")[0]) == {
        "db.a",
        "db.b",
        "db.tmp_x",
        "logs.deep.t",
    }
    for pattern in ("icekit.*", "'`icekit`.ledger'", "icekit*.*"):
        assert "icekit.ledger" in assigned(lake, f"  - match: {pattern}\n")[0]


def test_a_pattern_that_stands_for_no_table_is_named_with_the_nearest(lake: Lake) -> None:
    found, unmatched = assigned(lake, "  - match: [db.a, dbx.*]\n  - match: none.*\n")
    assert found == {"db.a": "rule-1"}
    assert [line.split(";")[0] for line in unmatched] == [
        "No table of catalog 'lake' matches 'dbx.*'",
        "No table of catalog 'lake' matches 'none.*'.",
    ]
