"""Each table has the first rule that matches it."""

from __future__ import annotations

from icekit.schedule.reading import parse_policy
from icekit.schedule.study import assign
from tests.schedule.making import HERE

NAMES = [("db", "a"), ("db", "b"), ("db", "tmp_x"), ("icekit", "ledger"), ("icekit_scratch", "c"), ("logs", "deep", "t")]


def assigned(rules: str, top: str = "") -> tuple[dict[str, str], tuple[str, ...]]:
    found = assign(parse_policy(f"version: 1\n{top}tables:\n{rules}", HERE), NAMES)
    return {".".join(name): rule.name for name, rule in found.tables}, found.unmatched


def test_the_first_rule_that_matches_wins_and_what_it_excludes_goes_on() -> None:
    rules = "  - {name: one, match: db.*, exclude: [db.b]}\n  - {name: two, match: ['*.b', 'db.a']}\n"
    assert assigned(rules, "exclude: ['*.tmp_*']\n") == ({"db.a": "one", "db.b": "two"}, ())


def test_what_icekit_keeps_beside_is_nobodys_table_unless_it_is_named() -> None:
    assert set(assigned("  - match: '*'\n")[0]) == {"db.a", "db.b", "db.tmp_x", "logs.deep.t"}
    assert "icekit.ledger" in assigned("  - match: icekit.*\n")[0]


def test_a_pattern_that_stands_for_no_table_is_named_with_the_nearest() -> None:
    found, unmatched = assigned("  - match: [db.a, dbx.a]\n")
    assert found == {"db.a": "rule-1"}
    assert unmatched == ("rule rule-1: no table matches 'dbx.a'; did you mean db.a?",)
