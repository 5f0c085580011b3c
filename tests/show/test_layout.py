"""A layout's answer as text, HTML, JSON and pictures."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from icekit.show.tune_charts import levels_chart, orders_chart, specs_chart
from icekit.tune.card import Advice, to_set
from icekit.tune.layout import Layout
from icekit.tune.layout.advise import NOT_SET, OLD_DATA, SPEC, LayoutComparison, advise_layout, is_confirmed
from icekit.tune.layout.model import (
    HILBERT,
    SORT,
    ZORDER,
    BloomCheck,
    BloomTrial,
    Field,
    LayoutCandidate,
    LayoutOrder,
    Level,
    OrderDepth,
    Orders,
    Overlap,
    PartitionSpread,
    TriedLayout,
    own_order,
)
from icekit.tune.layout.rows import propose
from tests import factories

DAY = (Field("event_time", "day"),)
SORTED, TWO = LayoutOrder(SORT, ("carrier",)), LayoutOrder(HILBERT, ("carrier", "event_id"))
ORDERS = Orders(
    1.0,
    None,
    (
        OrderDepth(SORTED, 0.5, ((SORTED, 0.5),)),
        OrderDepth(TWO, 0.12, ((TWO, 0.12), (LayoutOrder(ZORDER, TWO.columns), 0.2), (LayoutOrder(SORT, TWO.columns), 0.45))),
    ),
    OrderDepth(TWO, 0.12, ((TWO, 0.12),)),
)
CANDIDATES = [
    LayoutCandidate(DAY, 0.12, PartitionSpread(10, 2e9, 2e9), fits=True),
    LayoutCandidate((), 0.12, PartitionSpread(1, 2e10, 2e10), fits=True),
    LayoutCandidate((Field("event_time", "hour"),), 0.1, PartitionSpread(240, 8e7, 9e7), fits=False),
]
LEVELS = (
    Level("carrier = '<b>'", "stated", ("carrier",), 2.0, 1, 1.0, 1.0, 0.0, 40.0, 1.0),
    Level("event_time = ?", "declared", ("event_time",), 1.0, 8, 0.1, None, None, None, None),
)
TRIED = TriedLayout(DAY, TWO, 0.9, 0.14, 40, 41, 20_000_000_000, 20_000_000_000, 90.0, is_sample=True, scale=4.0)


def layout(**given: Any) -> Layout:
    facts = given.pop("facts", factories.table_facts())
    orders, tried = given.get("orders", ORDERS), given.get("tried", TRIED)
    share = given.get("share_now", 1.0)
    proposal = propose(facts, DAY, own_order(facts), orders, CANDIDATES, share)
    made: dict[str, Any] = {
        "facts": facts,
        "advice": advise_layout(
            facts,
            LayoutComparison(
                proposal=proposal,
                orders=orders,
                candidates=CANDIDATES,
                worn=(),
                share_now=share,
                tried=tried,
                is_kept=tried is None or is_confirmed(facts, proposal, tried),
            ),
        ),
        "stopped": None,
        "levels": LEVELS,
        "share_now": share,
        "is_measured": True,
        "sampled_rows": 100_000,
        "orders": orders,
        "candidates": tuple(CANDIDATES),
        "worn": (),
        "blooms": (BloomCheck("carrier", False, 1e6, 1e6, None),),
        "bloom_trials": (BloomTrial("carrier", 8, 100_000, 500, 1_000_000, 1_100_000),),
        "sizing": None,
        "tried": tried,
        "notes": ("Filters on old are left out: it was dropped.",),
    }
    return Layout(**made | given)


def test_the_text_tells_what_is_read_now_what_when_tried_and_what_to_run() -> None:
    said = repr(layout())

    assert said.startswith(
        "db.events: Sort by hilbert(carrier, event_id): on a sample of 25 % of the table filters read 14 % of the bytes instead of 90 %."
    )
    assert "Confidence: medium: the layout was written to a copied sample of 25 % of the table" in said
    assert "sort_order => 'hilbert(`carrier`, `event_id`)'" in said
    assert "partitions skip nothing" in said
    assert sum(layout().tables()["orders"]["is_best"]) == 1
    assert "it was dropped" in said


def test_near_equal_layouts_lower_the_confidence_and_are_named() -> None:
    whole = replace(TRIED, is_sample=False, scale=1.0)
    sure = [layout(tried=tried).confidence() for tried in (whole, TRIED, None)]
    said = [layout(tried=tried, doubt="another layout reads as much").confidence() for tried in (whole, TRIED, None)]

    assert [text.partition(":")[0] for text in sure] == ["high", "medium", "low"]
    assert [text.partition(":")[0] for text in said] == ["medium", "low", "low"]
    assert all(text.endswith(" But another layout reads as much.") for text in said)


def test_a_table_whose_partitioning_goes_is_told_in_words() -> None:
    advice = Advice(SPEC, "month(event_time)", "unpartitioned", "e", "ALTER TABLE t DROP PARTITION FIELD d")

    assert layout(advice=(advice,)).verdict().startswith("Remove the partitioning: ")


def test_a_layout_that_is_left_says_so() -> None:
    own = Orders(0.05, None, (OrderDepth(SORTED, 0.05, ((SORTED, 0.05),)),), OrderDepth(SORTED, 0.05, ((SORTED, 0.05),)))

    said = layout(orders=own, tried=None, share_now=0.05)

    assert not said.is_change
    assert "No change" in said.verdict()
    assert "✔ no change" in said._repr_html_()


def test_no_filters_are_no_answer_and_no_picture() -> None:
    none = layout(levels=(), orders=Orders(1.0, None, (), None), candidates=(), tried=None)

    assert "declare columns" in none.verdict()
    for chart in (levels_chart(none), orders_chart(none), specs_chart(none)):
        assert chart.figure is None
        assert "No filters" in chart.alt


def test_html_escapes_filters() -> None:
    assert "<b>" not in layout()._repr_html_()
    assert "&lt;b&gt;" in layout()._repr_html_()


def test_worn_partitions_and_bloom_filters_are_listed() -> None:
    worn = (Overlap(factories.partition(), "event_day=2026-01-01", 40, 10**9, 33.0),)

    said = repr(layout(worn=worn))

    assert "event_day=2026-01-01" in said
    assert layout(worn=worn).tables()["worn"]["depth"] == [33.0]
    assert "100,000" in said


def test_the_document_is_json_with_the_figures() -> None:
    document = json.loads(json.dumps(layout().document()))

    assert document["question"] == "layout"
    assert document["measured"]["tried"]["share_after"] == 0.14
    assert document["tables"]["specs"][0]["spec"] == "day(event_time)"
    assert document["script"]["sql"]


def test_a_sample_is_never_called_the_table_now() -> None:
    sample, clone = layout(), layout(tried=replace(TRIED, share_before=1.0, is_sample=False, scale=1.0))

    assert sample.tables()["tried"]["layout"] == ["the sample before", "tried"]
    assert clone.tables()["tried"]["layout"] == ["the table now", "tried"]
    assert "on a sample" in sample.verdict()
    assert clone.verdict().endswith(": filters read 14 % of the bytes instead of 100 %.")
    assert all("of the sample" in e.figure for e in sample.effects() if not e.figure.startswith(("one-time rewrite", "queries until")))


def test_the_answer_says_when_the_rewrite_is_paid_back() -> None:
    figure = "queries until the rewrite is paid back, in bytes read"
    # It reads and writes the data once; a query reads 76 % of it less.
    assert layout().reads_until_paid == 3
    assert {e.figure: e.after for e in layout().effects()}[figure] == "3"
    assert {e.figure: e.after for e in layout(reads_per_day=0.5).effects()}[figure] == "3, in 6 days"
    assert layout(tried=None).reads_until_paid is None
    assert layout(tried=replace(TRIED, share_after=0.95)).reads_until_paid is None
    assert layout(tried=replace(TRIED, bytes_after=40_000_000_000)).reads_until_paid == 5


def test_a_rewrite_that_is_paid_back_too_late_is_not_advised() -> None:
    def settings(reads_per_day: float) -> list[str]:
        return [a.setting for a in layout().with_reads(reads_per_day).advice if a.is_change]

    late = layout().with_reads(3 / 366)

    assert OLD_DATA in settings(0)
    assert OLD_DATA in settings(3 / 364)
    assert settings(3 / 366) == [setting for setting in settings(0) if setting != OLD_DATA]
    assert "queries until the rewrite is paid back, in bytes read" not in {e.figure for e in late.effects()}
    assert any("pay a rewrite of the existing data files back in 1 year (3 queries): let them stay" in a.evidence for a in late.advice)


def test_a_property_that_is_removed_is_not_said_to_be_set() -> None:
    setting = "write.parquet.bloom-filter-enabled.column.carrier"
    unused = Advice(setting, "true", NOT_SET, "It has no use.", "ALTER TABLE t UNSET TBLPROPERTIES ('x')")

    assert f"Unset {setting}" in layout(advice=(unused,)).verdict()


def test_a_bloom_filter_alone_is_not_credited_with_a_trial_that_was_not_kept() -> None:
    bloom = BloomTrial("carrier", 8, 100_000, 1_000, 10, 11)
    advice = (to_set(factories.table_facts(), {"write.parquet.bloom-filter-enabled.column.carrier": "true"}, current=None, evidence="So."),)
    only = layout(advice=advice, bloom_trials=(bloom,))

    assert only.verdict() == "Set write.parquet.bloom-filter-enabled.column.carrier."
    assert [(e.figure, e.now, e.after) for e in only.effects()] == [("rows read by 8 lookups on carrier", "100,000", "1,000")]


def test_a_coarser_spec_is_told_by_the_files_that_it_saves_and_not_by_what_filters_read() -> None:
    tried = replace(TRIED, share_before=0.1, share_after=0.2, files_after=2, is_sample=False, scale=1.0)

    coarser = Advice(SPEC, "day(event_time)", "month(event_time)", "e", "ALTER TABLE t DROP PARTITION FIELD d")

    assert (
        layout(tried=tried, advice=(coarser,))
        .verdict()
        .endswith(": 2 data files instead of 40; filters read 20 % of the bytes instead of 10 %.")
    )


def test_an_alternative_is_not_in_the_verdict() -> None:
    with_it = layout()
    instead = replace(next(a for a in with_it.advice if a.is_change and a.sql), setting="write.parquet.bloom-filter", is_alternative=True)

    assert replace(with_it, advice=(*with_it.advice, instead)).verdict() == with_it.verdict()


def test_charts_say_in_a_sentence_what_they_show() -> None:
    one = layout()

    assert "19.5 GiB" in levels_chart(one).alt
    assert "filters read 12 % of the bytes with hilbert(carrier, event_id)" in orders_chart(one).alt
    assert (
        "100 % of the table now; in the trial they read 14 % of the bytes on a copied sample of 25 % of the table (90 % in the sample before)"
        in (orders_chart(one).alt)
    )
    assert "Of 2 other specs 1" in specs_chart(one).alt
    for chart in (levels_chart(one), orders_chart(one), specs_chart(one)):
        assert chart.png()[:4] == b"\x89PNG"


def test_tables_have_a_row_each() -> None:
    tables = layout().tables()

    assert tables["levels"]["ignored_by_spec"] == [True, False]
    assert tables["orders"]["columns"] == [None, 1, 2, 2, 2]
    assert tables["specs"]["is_well_filled"] == [True, True, False]
    assert tables["tried"]["share_read"] == [0.9, 0.14]
    assert not layout(tried=None).tables()["tried"].rows
