"""Each table has the first rule that matches it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from icekit.schedule.reading import PolicyError, parse_policy
from icekit.schedule.study import assign
from icekit.sql import Identifier, display_name
from tests.schedule.making import HERE

NAMES = [("db", "a"), ("db", "b"), ("db", "tmp_x"), ("icekit", "ledger"), ("icekit_scratch", "c"), ("logs", "deep", "t")]


def assigned(rules: str, top: str = "", names: Sequence[Identifier] = NAMES) -> tuple[dict[str, str], tuple[str, ...]]:
    found = assign(parse_policy(f"version: 1\n{top}tables:\n{rules}", HERE), names)
    return {display_name(name): rule.name for name, rule in found.tables}, found.unmatched


def test_the_first_rule_that_matches_wins_and_what_it_excludes_goes_on() -> None:
    rules = "  - {name: one, match: db.*, exclude: [db.b]}\n  - {name: two, match: ['*.b', 'db.a']}\n"
    assert assigned(rules, "exclude: ['**.tmp_*']\n") == ({"db.a": "one", "db.b": "two"}, ())


def test_what_icekit_keeps_beside_is_nobodys_table_unless_it_is_named() -> None:
    assert set(assigned("  - match: '**'\n")[0]) == {"db.a", "db.b", "db.tmp_x", "logs.deep.t"}
    for pattern in ("icekit.*", "'`icekit`.ledger'", "icekit*.*"):
        assert "icekit.ledger" in assigned(f"  - match: {pattern}\n")[0]


def test_a_pattern_that_stands_for_no_table_is_named_with_the_nearest() -> None:
    found, unmatched = assigned("  - match: [db.a, dbx.a]\n")
    assert found == {"db.a": "rule-1"}
    assert unmatched == ("rule rule-1: no table matches 'dbx.a'; did you mean db.a?",)


def test_a_rule_takes_no_table_of_a_namespace_inside_the_one_it_names() -> None:
    names = [("sales", "t"), ("sales", "a.t"), ("sales", "eu", "legal", "t"), ("sales", "a", "t")]

    taken, unmatched = assigned("  - match: sales.*\n    compact: {execute: true}\n", names=names)
    assert (taken, unmatched) == ({"sales.t": "rule-1", "sales.`a.t`": "rule-1"}, ())
    assert list(assigned("  - match: sales.a.*\n", names=names)[0]) == ["sales.a.t"]
    assert list(assigned("  - {match: sales.**, exclude: sales.*}\n", names=names)[0]) == ["sales.eu.legal.t", "sales.a.t"]


def test_a_pattern_without_a_namespace_is_refused_when_the_policy_is_read() -> None:
    with pytest.raises(PolicyError, match=r"policy.yaml:3: .*'\*' has no namespace.*\*\* for every table"):
        assigned("  - match: '*'\n")
