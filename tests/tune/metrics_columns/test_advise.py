"""What is advised from what statistics cost and skip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from icekit.facts.model import Column, EqualityKey, SortField
from icekit.sql import identifier
from icekit.tune import ddl
from icekit.tune.card import Advice, script
from icekit.tune.metrics_columns.advise import advise_metrics, confirmed, needed, roles, showed, undeclared
from icekit.tune.metrics_columns.model import COLUMN, DEFAULT
from tests import factories
from tests.tune.metrics_columns.made import TABLE, measures, skip, trial, wide


def of(advice: Sequence[Advice], setting: str) -> Advice:
    return next(a for a in advice if a.setting == setting)


def test_many_statistics_without_use_are_taken_away_and_those_of_filters_are_kept() -> None:
    facts = wide()
    advice = advise_metrics(facts, measures(facts, skip()))

    default = of(advice, DEFAULT)
    assert dict(default.properties) == {f"{COLUMN}key": "truncate(16)", DEFAULT: "none"}
    assert default.current == "truncate(16) for the first 100 columns"
    assert "100 columns" in default.evidence
    assert default.breaks is not None
    assert default.undo is not None
    assert "UNSET" in default.undo


def test_a_column_past_the_limit_gets_bounds_with_the_rest_taken_away() -> None:
    facts = wide()

    assert of(advise_metrics(facts, measures(facts, skip())), f"{COLUMN}key").proposed == "truncate(16)"


def test_a_healthy_table_of_few_columns_is_left_as_it_is() -> None:
    facts = factories.table_facts()
    advice = advise_metrics(facts, measures(facts, skip("carrier", now=1.0, full=1.0)))

    assert not any(a.is_change for a in advice)


def test_a_table_of_one_file_that_every_filter_reads_is_left_as_it_is() -> None:
    facts = factories.table_facts(groups=(factories.file_group(factories.MIB),))

    assert not any(a.is_change for a in advise_metrics(facts, measures(facts, skip("carrier", now=1.0, full=1.0, files=1))))


def test_nothing_is_called_useless_while_filters_are_not_known() -> None:
    facts = wide()
    advice = advise_metrics(facts, measures(facts, unknown=undeclared(TABLE)))

    assert [a.is_change for a in advice] == [False]
    assert "icekit.filter-columns" in advice[0].evidence


def test_a_text_that_needs_longer_bounds_gets_the_shortest_that_skip_as_much() -> None:
    facts = factories.table_facts()
    advice = advise_metrics(facts, measures(facts, skip("carrier", now=40.0, full=1.0)))

    one = of(advice, f"{COLUMN}carrier")
    assert (one.current, one.proposed) == ("truncate(16)", "truncate(48)")
    assert of(advice, "existing data files").sql is not None


def test_bounds_that_skip_nothing_at_any_length_are_left_and_the_order_of_rows_is_named() -> None:
    facts = factories.table_facts()

    one = of(advise_metrics(facts, measures(facts, skip("carrier"))), f"{COLUMN}carrier")
    assert not one.is_change
    assert "order of the rows" in one.evidence


def test_files_older_than_a_setting_that_suffices_are_named_for_a_rewrite_without_another_setting() -> None:
    columns = (Column(1, "key", "string", False, 0, "full"),)
    facts = factories.table_facts(columns=columns, groups=(factories.file_group(factories.MIB),), properties={f"{COLUMN}key": "full"})
    advice = advise_metrics(facts, measures(facts, skip(now=40.0, full=1.0)))

    assert not of(advice, f"{COLUMN}key").is_change
    assert "rewrite_data_files" in (of(advice, "existing data files").sql or "")


def test_what_somebody_asked_for_by_name_is_never_taken_away() -> None:
    facts = wide(properties={f"{COLUMN}c5": "full"})

    assert f"{COLUMN}c5" not in dict(of(advise_metrics(facts, measures(facts, skip())), DEFAULT).properties)
    assert "99 columns" in of(advise_metrics(facts, measures(facts, skip())), DEFAULT).evidence


def test_sort_partition_and_delete_key_columns_keep_their_bounds() -> None:
    facts = replace(
        wide(),
        specs=(replace(factories.BY_DAY, fields=(replace(factories.BY_DAY.fields[0], source="c2", source_id=3),)),),
        sort_order=(SortField("c1", "identity", "asc", "nulls-first"),),
        equality_keys=(EqualityKey((1,), 2, 10),),
    )

    assert roles(facts, ["key"]) == {"key": ("filter",), "c1": ("sort order",), "c2": ("partition source",), "c0": ("equality delete key",)}
    assert set(needed(facts, measures(facts, skip()))) == {"key", "c0", "c1", "c2"}


def test_a_column_asked_only_for_nulls_needs_counts_and_no_bounds() -> None:
    facts = wide()

    assert needed(facts, measures(facts, skip(kinds=frozenset({"nulls"}))))["key"] == "counts"


def test_names_with_dots_and_quotes_stand_in_the_property_as_they_are() -> None:
    facts = factories.table_facts(columns=(Column(1, "a.it's", "string", False, 0, "truncate(16)", ("a", "it's")),))
    one = of(advise_metrics(facts, measures(facts, skip("a.it's", now=40.0, full=1.0))), f"{COLUMN}a.it's")

    assert one.sql == f"ALTER TABLE {identifier(*TABLE)} SET TBLPROPERTIES ('{COLUMN}a.it\\'s' = 'truncate(48)')"


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddl, "PORTION_BYTES", 1 << 30)


def test_a_large_table_is_rewritten_in_portions(small_portions: None) -> None:
    facts = factories.table_facts()
    one = of(advise_metrics(facts, measures(facts, skip("carrier", now=40.0, full=1.0))), "existing data files")

    assert "where =>" in (one.sql or "")
    assert "at a time" in (one.proposed or "")


def test_a_large_table_that_no_partition_divides_gets_no_statement_that_rewrites_it_whole(small_portions: None) -> None:
    facts = replace(wide(), columns=(Column(1, "key", "string", False, 0, "truncate(16)"),))
    one = of(advise_metrics(facts, measures(facts, skip(now=40.0, full=1.0))), "existing data files")

    assert one.sql is None
    assert "with a where that keeps each run small" in one.evidence


def test_the_script_sets_all_in_one_statement_and_takes_all_back() -> None:
    facts = wide()
    made = script(TABLE, facts.properties, advise_metrics(facts, measures(facts, skip())))

    assert len(made.sql) == 1
    assert made.sql[0].count(f"{COLUMN}key") == 1
    assert len(made.undo) == 1


def test_a_trial_confirms_each_change_with_what_it_showed() -> None:
    facts = wide()
    advice = confirmed(advise_metrics(facts, measures(facts, skip())), trial())

    assert all(a.verified for a in advice if a.is_change)
    assert "80 % less" in (of(advice, DEFAULT).verified or "")


def test_advice_under_which_a_filter_would_read_more_is_taken_back() -> None:
    facts = wide()
    advice = confirmed(advise_metrics(facts, measures(facts, skip())), trial(reads=41))

    assert not any(a.is_change for a in advice)
    assert "key = 'a' read 41 data files instead of 40" in of(advice, DEFAULT).evidence
    assert of(advice, DEFAULT).proposed == of(advice, DEFAULT).current


def test_a_trial_that_came_to_nothing_confirms_nothing() -> None:
    facts = wide()
    stopped = trial(before=None, after=None, filters=(), stopped="the time budget of 1 s ran out")

    assert showed(stopped) is None
    assert not any(a.verified for a in confirmed(advise_metrics(facts, measures(facts, skip())), stopped))
