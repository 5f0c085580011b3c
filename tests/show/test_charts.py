import re
from collections.abc import Callable

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.model import TableFacts
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.manifest_counts import RangeOverlap
from icekit.show import charts
from icekit.show.chart import Chart
from tests.factories import (
    BY_CARRIER,
    GIB,
    KIB,
    MIB,
    commit,
    empty_facts,
    file_group,
    healthy_groups,
    history,
    manifest_facts,
    partition,
    table_facts,
)
from tests.golden import Golden

DRAW = [charts.file_sizes, charts.delete_ratio, charts.partitions, charts.manifests, charts.commits]


def small_files() -> TableFacts:
    return table_facts(groups=(file_group(*[MIB] * 30), file_group(500 * MIB, of=partition(1))))


def with_deletes() -> TableFacts:
    deletes = file_group(MIB, kind=Kind.POSITION_DELETES, records_per_file=100)
    vectors = file_group(KIB, kind=Kind.DELETION_VECTORS, records_per_file=20)
    return table_facts(groups=(file_group(records_per_file=1000), deletes, vectors))


def fragmented() -> TableFacts:
    overlaps = (RangeOverlap(0, "event_day", 40, 0.75),)
    return table_facts(
        manifests=manifest_facts(
            data_count=40, data_bytes=40 * MIB, data_entry_count=80, overlaps=overlaps
        )
    )


def named(name: str) -> TableFacts:
    where = partition(name)
    deletes = file_group(1, kind=Kind.EQUALITY_DELETES, of=where)
    return table_facts(
        table=("db", name), specs=(BY_CARRIER,), groups=(file_group(of=where), deletes)
    )


def axes(chart: Chart, panel: int = 0) -> Axes:
    assert chart.figure is not None
    return chart.figure.axes[panel]


def legend(axes: Axes) -> list[str]:
    found = axes.get_legend()
    return [text.get_text() for text in found.get_texts()] if found else []


@pytest.mark.parametrize("draw", DRAW)
def test_an_empty_table_gives_a_sentence_instead_of_an_axis(
    draw: Callable[[TableFacts], Chart],
) -> None:
    chart = draw(empty_facts())

    assert chart.figure is None
    assert chart.alt.endswith("nothing to draw.")
    assert chart.alt in chart._repr_html_()
    assert "<img" not in chart._repr_html_()
    with pytest.raises(ValueError, match="nothing to draw"):
        chart.png()


def test_a_chart_displays_as_picture_sentence_and_table() -> None:
    shown = charts.file_sizes(small_files())._repr_html_()

    assert 'src="data:image/png;base64,' in shown
    assert 'alt="31 data files of db.events, 530 MiB in total' in shown
    assert "max-width:100%;height:auto" in shown
    assert re.search(
        "<details><summary>Figures as a table</summary>.*<table>.*512 KiB–1 MiB|1 MiB–2 MiB", shown
    )


def test_drawing_is_light_in_a_dark_notebook_and_leaves_nothing_behind() -> None:
    with mpl.rc_context({"figure.facecolor": "black", "text.color": "white"}):
        before = dict(mpl.rcParams)
        chart = charts.partitions(small_files())
        chart.png()

        assert dict(mpl.rcParams) == before
    assert chart.figure is not None
    assert chart.figure.get_facecolor() == (1, 1, 1, 1)
    assert plt.get_fignums() == []


def test_names_are_escaped_and_no_formulas() -> None:
    shown = charts.delete_ratio(named("<script>alert('$x$')</script>"))._repr_html_()

    assert "<script>" not in shown
    assert "&lt;script&gt;alert(&#39;$x$&#39;)" in shown


def test_a_name_in_a_script_without_a_font_is_drawn_without_a_warning() -> None:
    assert charts.partitions(named("日本")).png()[:4] == b"\x89PNG"


def test_the_band_follows_a_limit_that_was_moved_between_two_bars() -> None:
    # 0.0039 of the target is 2 MiB, 0.0034 is none of the bars' limits: a bar is cut there.
    limits = Thresholds(min_file_size_ratio=0.0034)
    chart = charts.file_sizes(small_files(), thresholds=limits)

    assert chart.alt.endswith(
        "No rewrite needed (1.7 MiB–922 MiB): 3.2 % of the files, 94 % of the bytes."
    )
    inside = zip(chart.table["left_alone"], chart.table["file_count"], strict=True)
    assert sum(number for is_left_alone, number in inside if is_left_alone) == 1
    assert sum(chart.table["file_count"]) == 31


def test_the_band_is_in_the_picture_where_no_file_is() -> None:
    chart = charts.file_sizes(table_facts(groups=(file_group(MIB),)))

    assert legend(axes(chart)) == [
        "384 MiB–922 MiB: left alone by rewrite_data_files",
        "target 512 MiB",
    ]
    assert [label.get_text() for label in axes(chart, 1).get_xticklabels()][-3:] == [
        "384 MiB",
        "512 MiB",
        "922 MiB",
    ]
    large = charts.file_sizes(table_facts(groups=(file_group(100 * GIB),)))
    assert axes(large, 1).get_xticklabels()[-1].get_text() == "∞"


def test_only_kinds_that_there_are_have_a_place_in_the_legend() -> None:
    chart = charts.delete_ratio(with_deletes(), Thresholds(delete_ratio=0.2))

    assert legend(axes(chart)) == ["threshold 20 %", "position deletes", "deletion vectors"]


@pytest.mark.parametrize(
    ("draw", "facts", "note"),
    [
        (charts.partitions, table_facts(groups=(file_group(2 * GIB),)), "1 → 4"),
        (charts.manifests, fragmented(), "40 → 5"),
        (
            charts.delete_ratio,
            table_facts(groups=(file_group(1, kind=Kind.EQUALITY_DELETES),)),
            "no data",
        ),
    ],
)
def test_a_bar_says_how_many_would_do_or_its_share(
    draw: Callable[[TableFacts], Chart], facts: TableFacts, note: str
) -> None:
    assert note in [text.get_text() for text in axes(draw(facts)).texts]


def test_at_most_fifteen_partitions_are_drawn_and_long_names_keep_both_ends() -> None:
    many = charts.partitions(table_facts(groups=healthy_groups(days=40)))
    long = charts.partitions(named("the first words of a name that goes on until 2026-01-01"))

    assert len(axes(many).get_yticklabels()) == 15
    assert axes(long).get_yticklabels()[0].get_text() == "the first words…til 2026-01-01"


def test_a_single_commit_that_says_no_operation_is_unknown_and_has_a_time_axis() -> None:
    chart = charts.commits(table_facts(history=history(commit(operation=None, added_bytes=None))))

    low, high = axes(chart, 1).get_xlim()
    assert 0 < high - low < 1
    assert legend(axes(chart)) == ["unknown (1)"]


def test_the_sentences_of_charts_are_those_of_their_golden_file(golden: Golden) -> None:
    upserts = (
        commit(1, added_data_files=3, added_bytes=3 * MIB),
        commit(0, operation="overwrite", added_delete_files=1),
    )
    commits = [upserts, (commit(),), (commit(1, added_data_files=None), commit(0))]
    shown = [
        charts.file_sizes(small_files()),
        charts.delete_ratio(with_deletes()),
        charts.delete_ratio(table_facts()),
        charts.partitions(small_files()),
        charts.manifests(fragmented()),
        *(charts.commits(table_facts(history=history(*some))) for some in commits),
    ]

    golden("charts.txt", "\n".join(chart.alt for chart in shown))
    assert repr(shown[0]) == shown[0].alt
