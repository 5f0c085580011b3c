from icekit.compact.equality_deletes import Executor, HeapForecast, forecast_heap
from icekit.diagnose.heap import forecast_html, grid, summary
from icekit.facts.model import EqualityKey, Kind
from icekit.show.charts import heap_forecast_chart
from tests import factories as make


def forecast(cores: int = 2, heap: int = 2 * make.GIB, records: int = 20_000_000) -> HeapForecast:
    deletes = make.file_group(make.MIB, kind=Kind.EQUALITY_DELETES, records_per_file=records)
    facts = make.table_facts(
        groups=(make.file_group(*[make.MIB] * 9), deletes),
        sequences=(
            make.sequence(1, data_file_count=9, data_record_count=9),
            make.sequence(2, equality_delete_file_count=1, equality_delete_record_count=records),
        ),
        equality_keys=(EqualityKey((1,), 1, records),),
    )
    return forecast_heap(facts, Executor(cores, heap))


def test_it_says_what_will_happen_and_what_to_do() -> None:
    said = summary(forecast())

    assert said.startswith("A stock read of db.events needs about 16.3 GiB per executor of 2 cores; the heap is 2 GiB: will not fit.")
    assert "With this heap, they do not both fit with any number of cores." in said
    assert "icekit compact db.events --catalog prod does not need this memory." in said
    assert "icekit convert db.events --catalog prod does not need it either, and rewrites no data file." in said


def test_what_fits_needs_no_remedy() -> None:
    assert "convert" not in summary(forecast(records=1000))


def test_html_holds_the_verdict_the_sentence_and_the_table() -> None:
    page = forecast_html(forecast())

    assert "✖ will not fit" in page
    assert "<td>event_day=2026-01-01</td>" in page
    assert '<td class="n">20,000,000</td>' in page


def test_nothing_to_forecast_is_fine() -> None:
    empty = forecast_heap(make.table_facts(), Executor(2, make.GIB))

    assert "nothing to forecast" in forecast_html(empty)
    assert heap_forecast_chart(empty).figure is None
    assert list(grid(empty).columns) == list(grid(forecast()).columns)


def test_the_chart_has_a_bar_for_each_peak_and_a_line_for_the_heap() -> None:
    chart = heap_forecast_chart(forecast())

    assert chart.figure is not None
    (axes,) = chart.figure.axes
    assert len(axes.patches) == 2
    assert [line.get_xdata()[0] for line in axes.lines] == [2 * make.GIB, 0.6 * 2 * make.GIB]  # type: ignore[index]
    assert chart.alt == summary(forecast())
    assert chart.png()
