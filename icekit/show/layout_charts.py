"""Layouts as pictures: what filters read now, of other orders, of other partition specs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.ticker import LogLocator

from icekit.show.chart import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    Chart,
    canvas,
    legend,
    named_rows,
    nothing,
    percentages,
    styled,
    whole_numbers,
)
from icekit.tune.layout.model import HILBERT, SORT, ZORDER
from icekit.units import count, percent, size

if TYPE_CHECKING:
    from icekit.tune.layout.service import Layout

#: Filters drawn; the table has them all.
_MOST = 12
_KINDS = {SORT: ("sort", BLUE, "o", "-"), ZORDER: ("z-order", ORANGE, "s", "--"), HILBERT: ("Hilbert curve", GREEN, "^", "-.")}
_NO_FILTERS = "No filters are known, so there is nothing to draw."


def levels_chart(answer: Layout) -> Chart:
    """What partitions leave of the bytes to each filter, and what bounds leave of that."""
    title = f"What filters read now: {answer.name}"
    shown = answer.levels[:_MOST]
    if not shown:
        return nothing(title, _NO_FILTERS)
    ignored = (
        f"partitions rule nothing out for {count(sum(v.is_ignored_by_spec for v in answer.levels), 'filter')} of {len(answer.levels):,}"
    )
    if answer.facts.default_spec.is_unpartitioned:
        ignored = "the table is not partitioned"
    sentence = f"Together these filters read {percent(answer.share_now)} of {size(answer.facts.data.size_in_bytes)}; {ignored}."
    places = range(len(shown))
    with styled():
        figure, (axes,) = canvas(title, 1.9 + 0.5 * len(shown))
        axes.barh(
            places,
            [v.partition_share for v in shown],
            facecolor=SKY,
            edgecolor=BLACK,
            linewidth=0.6,
            height=0.6,
            label="left by partitions",
        )
        known = [(place, v.file_share) for place, v in zip(places, shown, strict=True) if v.file_share is not None]
        if known:
            axes.barh(
                [place for place, _ in known],
                [share for _, share in known],
                facecolor=BLUE,
                edgecolor=BLACK,
                linewidth=0.6,
                height=0.3,
                label="left by bounds",
            )
        named_rows(axes, [v.text for v in shown])
        axes.set_xlim(0, 1.02)
        percentages(axes.xaxis)
        axes.set_xlabel("Data bytes, %")
        legend(axes)
    return Chart(figure, title, sentence, answer.tables()["levels"])


def orders_chart(answer: Layout) -> Chart:
    """What filters would read by the number of columns ordered by, of a sort and of the two curves."""
    title = f"Columns to order by: {answer.name}"
    orders = answer.orders
    if orders.best is None:
        return nothing(title, "There is no column to order by." if answer.levels else _NO_FILTERS)
    best, chosen = orders.best, orders.best.order
    tried = answer.tried if answer.tried is not None and answer.tried.order == chosen else None
    sentence = (
        f"On sampled rows {chosen.name} reads {percent(best.share)} of the bytes, where {percent(answer.share_now)} are read now"
        + (f" and when tried {tried.reads}" if tried else "")
        + "; one column more does not pay."
    )
    with styled():
        figure, (axes,) = canvas(title, 5.0)
        for kind, (name, colour, marker, style) in _KINDS.items():
            points = [(n, share) for n, step in enumerate(orders.steps, 1) for order, share in step.shares if order.kind == kind]
            if points:
                x, y = zip(*points, strict=True)
                axes.plot(x, y, color=colour, marker=marker, linestyle=style, linewidth=2, markersize=8, label=name)
        axes.axhline(answer.share_now, color=GREY, linewidth=1.6, linestyle=":", label="read now")
        if orders.own is not None:
            axes.axhline(orders.own, color=PURPLE, linewidth=1.6, linestyle="--", label="the order that is set")
        axes.plot(
            [len(chosen.columns)],
            [best.share],
            color=VERMILLION,
            marker="o",
            markersize=17,
            fillstyle="none",
            linestyle="",
            label="pays up to here",
        )
        if tried is not None:
            axes.plot(
                [len(chosen.columns)],
                [tried.share_after],
                color=BLACK,
                marker="x",
                markersize=11,
                markeredgewidth=2.5,
                linestyle="",
                label=f"tried on {tried.place}",
            )
        axes.set_xlim(0.6, len(orders.steps) + 0.4)
        axes.set_ylim(0, 1.04)
        whole_numbers(axes.xaxis)
        percentages(axes.yaxis)
        axes.set_xlabel("Columns ordered by")
        axes.set_ylabel("Data bytes that filters read, %")
        legend(axes, columns=3)
    return Chart(figure, title, sentence, answer.tables()["orders"])


def specs_chart(answer: Layout) -> Chart:
    """What filters would read of each partition spec, against how large its partitions would be."""
    title = f"Partition specs: {answer.name}"
    if not answer.candidates:
        return nothing(title, _NO_FILTERS)
    here, *others = answer.candidates
    fitting = sum(c.fits for c in others)
    sentence = (
        f"Of {count(len(others), 'other spec')} {fitting:,} would have partitions of half the target file size ({size(answer.facts.target_bytes)}) "
        f"or more; {here.name}, which is there now, would read {percent(here.share)} with its rows in the best order."
    )
    with styled():
        figure, (axes,) = canvas(title, 5.0)
        for name, colour, marker, chosen in (
            ("well-filled partitions", BLUE, "o", [c for c in others if c.fits]),
            ("partitions too small", SKY, "v", [c for c in others if not c.fits]),
            ("the spec there is", VERMILLION, "*", [here]),
        ):
            if chosen:
                axes.plot(
                    [c.spread.mean_bytes for c in chosen],
                    [c.share for c in chosen],
                    color=colour,
                    marker=marker,
                    markersize=17 if marker == "*" else 9,
                    markeredgecolor=BLACK,
                    linestyle="",
                    label=name,
                )
        axes.set_xscale("log", base=2)
        axes.axvline(answer.facts.target_bytes, color=GREY, linewidth=1.4, linestyle=":", label="target file size")
        axes.xaxis.set_major_locator(LogLocator(base=2, numticks=7))
        axes.xaxis.set_major_formatter(lambda value, _: size(value))
        axes.set_ylim(0, 1.04)
        percentages(axes.yaxis)
        axes.set_xlabel("Mean bytes of a partition")
        axes.set_ylabel("Data bytes that filters read, %,\nrows ordered within partitions")
        legend(axes)
    return Chart(figure, title, sentence, answer.tables()["specs"])
