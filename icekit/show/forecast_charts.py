"""A forecast of heap as a table and as a picture."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.ticker import FuncFormatter, MultipleLocator

from icekit.compact.equality_deletes.forecast import FITS_SHARE, SHOWN, HeapForecast, summary
from icekit.show.chart import BLACK, BLUE, ORANGE, VERMILLION, Chart, canvas, legend, nothing, partition_rows, styled
from icekit.show.tables import UNPARTITIONED
from icekit.units import count, size


def forecast_table(forecast: HeapForecast) -> pd.DataFrame:
    """The worst partitions, one a row; bytes are of one executor at its peak."""
    rows = [
        (
            p.path or UNPARTITIONED,
            p.data_file_count,
            p.deletes_per_file,
            p.distinct_keys,
            p.loads,
            p.task_count,
            p.set_bytes,
            p.previous_set_bytes,
            p.read_bytes,
            p.rewrite_bytes,
            p.verdict,
        )
        for p in forecast.partitions
    ]
    head = (
        "partition file_count deletes_per_file distinct_keys loads task_count set_bytes previous_set_bytes read_bytes rewrite_bytes verdict"
    )
    return pd.DataFrame(rows, columns=head.split())


def heap_forecast_chart(forecast: HeapForecast) -> Chart:
    """The peak heap of an executor for each of the worst partitions, against the heap there is."""
    title = f"Heap for equality deletes: {forecast.name}"
    if forecast.is_empty:
        return nothing(title, summary(forecast))
    shown = forecast.partitions[:SHOWN]
    heap = forecast.executor.heap_bytes
    with styled():
        figure, (axes,) = canvas(title, 2.1 + 0.45 * len(shown))
        rows = range(len(shown))
        style: dict[str, Any] = {"height": 0.36, "edgecolor": BLACK, "linewidth": 0.6}
        axes.barh([r - 0.19 for r in rows], [p.read_bytes for p in shown], facecolor=BLUE, label="read", **style)
        axes.barh([r + 0.19 for r in rows], [p.rewrite_bytes for p in shown], facecolor=ORANGE, hatch="//", label="rewrite", **style)
        axes.axvline(heap, color=VERMILLION, linewidth=2, label=f"heap {size(heap)}")
        axes.axvline(FITS_SHARE * heap, color=BLACK, linestyle="--", linewidth=1.6, label=f"fits up to {size(FITS_SHARE * heap)}")
        partition_rows(axes, [p.path or UNPARTITIONED for p in shown])
        longest = max(heap, *(max(p.read_bytes, p.rewrite_bytes) for p in shown)) * 1.08
        axes.set_xlim(0, longest)
        # Powers of two, so that the ticks are round as sizes are written.
        axes.xaxis.set_major_locator(MultipleLocator(2 ** math.ceil(math.log2(longest / 6))))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size(value)))
        axes.set_xlabel(f"Peak heap of an executor of {count(forecast.executor.cores, 'core')}")
        legend(axes)
    return Chart(figure, title, summary(forecast), forecast_table(forecast))
