"""What metrics cost and skip, as text, HTML and pictures."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from icekit.show.tune_charts import length_chart, skipping_chart
from icekit.show.tune_charts import metrics_bytes_chart as bytes_chart
from icekit.tune.filters import Filter, Leaf
from icekit.tune.metrics_columns import MetricsColumns
from icekit.tune.metrics_columns.advise import advise_metrics, confirmed, roles, undeclared
from icekit.tune.metrics_columns.model import EntryBytes, Prefix
from icekit.tune.queries import Filters
from tests import factories
from tests.tune.metrics_columns.made import TABLE, entry, measures, skip, trial, wide

LOOKUP = Filter("key = 'a'", Leaf("key", "=", ("a",)))


def answer(*, tried: bool = True) -> MetricsColumns:
    facts, one = wide(), skip(now=40.0, full=1.0)
    advice = advise_metrics(facts, measures(facts, one))
    shown = trial() if tried else None
    prefix = Prefix("key", 900, 41, 1.0, 48)
    return MetricsColumns(
        facts,
        confirmed(advice, shown) if shown else advice,
        None,
        entry(facts),
        roles(facts, ["key"]),
        Filters((LOOKUP,)),
        (one,),
        (prefix,),
        shown,
        ("A note.",),
    )


def unknown() -> MetricsColumns:
    facts = wide()
    return replace(
        answer(tried=False),
        advice=advise_metrics(facts, measures(facts, unknown=undeclared(TABLE))),
        filters=Filters(()),
        roles={},
        skipping=(),
        prefixes=(),
    )


def test_the_text_tells_the_answer_the_figures_and_the_statement_to_paste() -> None:
    said = repr(answer())

    assert "has statistics of 100 of 121 columns" in said
    assert "a filter reads 1 data file instead of 40 and manifests take 19.5 KiB instead of 97.7 KiB (80 % less)" in said
    assert "'write.metadata.metrics.default' = 'none'" in said
    assert "121 columns: 21 columns past the first 100 get no metrics" in said
    assert "Without bounds in every sampled file: key (filter)." in said
    assert "A note." in said


def test_the_verdict_has_the_figures_of_the_effects_below_it() -> None:
    one = answer()

    assert all(figure in one.verdict() for effect in one.effects()[:2] for figure in (effect.now, effect.after))


def test_the_verdict_begins_with_the_greater_gain() -> None:
    one = replace(answer(), trial=trial(reads=39))

    assert "(default, column.key): manifests take 19.5 KiB instead of 97.7 KiB (80 % less) and a filter reads 39" in one.verdict()


def test_the_verdict_counts_every_property_that_the_statement_sets() -> None:
    """A new default also names the columns that keep their metrics."""
    one = answer()
    statement = one.script.sql[0]
    names = set(re.findall(r"'(write\.metadata\.metrics\.[^']+)' =", statement))
    default = next(a for a in one.advice if a.setting == "write.metadata.metrics.default")
    more = replace(default, properties=(*default.properties, ("write.metadata.metrics.column.other", "counts")))
    further = replace(one, advice=tuple(more if a is default else a for a in one.advice))

    assert one.verdict().startswith(f"Set {len(names)} properties (default, column.key)")
    assert further.verdict().startswith(f"Set {len(names) + 1} properties (default, column.key, column.other)")


def test_the_verdict_says_which_files_were_tried_and_what_did_not_change() -> None:
    part = replace(answer(), trial=trial(reads=40, total_files=5_000))

    assert "manifests of 40 data files take 19.5 KiB" in part.verdict()
    assert "a filter reads 40 data files as before" in part.verdict()


def test_without_a_trial_the_verdict_has_the_simulated_figures() -> None:
    one = replace(answer(tried=False), unused_bytes=80 * 1024.0)

    assert "filters on key would read 1 data file instead of 40 and manifests would take about 80 KiB less of " in one.verdict()


def test_no_change_says_what_filters_read_and_what_unused_statistics_take() -> None:
    kept = replace(answer(tried=False), advice=(), unused_bytes=2048.0)

    assert kept.verdict().startswith("No change: a filter reads 40 of ")
    assert "statistics without a known use take about 2 KiB of " in kept.verdict()


def test_a_filter_that_would_read_more_is_the_reason_for_no_change() -> None:
    lost = replace(answer(tried=False), advice=(), trial=trial(reads=45))

    assert lost.verdict() == "No change: on a clone key = 'a' read 45 data files instead of 40."


def test_what_is_not_known_to_be_filtered_by_is_said_with_how_to_say_it() -> None:
    said = repr(unknown())

    assert "not known. Declare icekit.filter-columns" in said
    assert "SQL:" not in said


def test_html_escapes_names() -> None:
    one = answer()
    named = replace(one, facts=replace(one.facts, table=("db", "<script>")))

    assert "<script>alert" not in named._repr_html_()
    assert "&lt;script&gt;" in named._repr_html_()


def test_a_long_list_of_columns_is_cut_where_it_is_shown() -> None:
    shown = answer().tables()["columns"]

    assert len(shown) == 121
    assert shown["column"][0] == "key"
    assert shown.lines()[-1] == "The first 20 of 121 rows."


def test_charts_tell_the_same_figures_as_their_tables() -> None:
    one = answer()
    bytes_of, skips, lengths = bytes_chart(one), skipping_chart(one), length_chart(one)

    for chart in (bytes_of, skips, lengths):
        assert chart.png().startswith(b"\x89PNG")
    assert "95 % of the 2.1 KiB of an entry" in bytes_of.alt
    assert bytes_of.table == one.tables()["columns"]
    assert skips.table.only("column", "now", "truncate_16", "whole_bounds", "if_sorted").rows[0] == ["key", 40.0, 40.0, 1.0, 1.0]
    assert "key need truncate(48) to read 1 data file" in lengths.alt


def test_charts_of_nothing_are_a_sentence() -> None:
    facts = factories.empty_facts()
    nothing = replace(unknown(), facts=facts, entry=EntryBytes(0, 0, 0.0, 0.0, 1.0, ()))

    for chart in (bytes_chart(nothing), skipping_chart(nothing), length_chart(nothing)):
        assert chart.figure is None
        assert chart.alt


def test_the_document_is_plain_data(tmp_path: Path) -> None:
    path = answer().write_into(tmp_path)
    read = json.loads(path.read_text())

    assert path.name == "db.events.metrics-columns.json"
    assert read["question"] == "metrics-columns"
    assert read["measured"]["skipping"][0]["by_mode"] == [["truncate(16)", 40.0], ["truncate(48)", 1.0], ["full", 1.0]]
    assert read["tables"]["skipping"][0]["whole_bounds"] == 1.0
    assert json.loads(unknown().write_into(tmp_path).read_text())["measured"]["trial"] is None
