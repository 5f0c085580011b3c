"""A chart: an image, a sentence with the same content, and the figures as a table."""

from __future__ import annotations

import base64
import datetime as dt
import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib import style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import TightLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

from icekit.common import frozen, html
from icekit.common.units import printable_text, shorten, utc_time
from icekit.common.view import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

# Okabe and Ito, "Color Universal Design": distinguishable with any colour vision.
BLUE = "#0072B2"
ORANGE = "#E69F00"
GREEN = "#009E73"
VERMILLION = "#D55E00"
PURPLE = "#CC79A7"
SKY = "#56B4E9"
BLACK = "#000000"
GREY = "#595959"
BAND = "#D9EFE6"

# A phone shrinks a figure of 1152 pixels to 360: 13 points become 9 pixels.
WIDTH = 7.2
DPI = 160
FONT = 13
SMALL = 12
#: The most characters of a row's name: a third of the width.
NAME = 30
_STEPS = [1, 2, 5, 10]
_STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": FONT,
    "axes.labelsize": FONT,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "legend.borderaxespad": 0.2,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.2,
    "hatch.linewidth": 1.2,
    "date.converter": "concise",
    # Dollar signs in names of tables and partitions must not start formulas.
    "text.parse_math": False,
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
}


@dataclass(frozen=True, eq=False, repr=False)
class Chart:
    """A chart that displays in a cell, with a sentence and a table of its figures.

    ``alt`` is the sentence. ``figure`` is None if there is nothing to draw; the
    sentence then says so.
    """

    figure: Figure | None
    alt: str
    table: Grid

    def __repr__(self) -> str:
        return self.alt

    def png(self) -> bytes:
        """The image as PNG bytes; raises ValueError if there is nothing to draw."""
        if self.figure is None:
            raise ValueError(self.alt)
        png_stream = io.BytesIO()
        # The same pixels as from savefig, which would draw twice and encode an image that is
        # decoded again here.
        image_canvas: Any = FigureCanvasAgg(self.figure)
        with chart_style(), warnings.catch_warnings():
            # Characters that the font lacks show as boxes; the table has the full name.
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            image_canvas.draw()
        image = Image.frombytes(
            "RGBA", image_canvas.get_width_height(), bytes(image_canvas.buffer_rgba())
        )
        # A report of many tables has many images; a palette makes each a third of the size.
        image.convert("RGB").quantize(64, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
            png_stream, "png"
        )
        return png_stream.getvalue()

    def _repr_html_(self) -> str:
        alt = html.escaped_text(self.alt)
        if self.figure is None:
            return html.framed(f"<p>{alt}</p>")
        image_base64 = base64.b64encode(self.png()).decode()
        return html.framed(
            f'<img alt="{alt}" width="800" style="max-width:100%;height:auto" '
            f'src="data:image/png;base64,{image_base64}">',
            # The sentence is already in alt: a screen reader must not read it twice.
            f'<p aria-hidden="true">{html.escaped_sentence(self.alt)}</p>',
            f"<details><summary>Figures as a table</summary>{self.table.html()}</details>",
        )


def empty_chart(sentence: str) -> Chart:
    """A chart without a figure: a sentence instead of empty axes."""
    return Chart(None, sentence, Grid("", {}, ()))


def chart_style() -> AbstractContextManager[None]:
    """Use icekit's chart style while drawing, and restore the notebook's style afterwards."""
    return style.context(["default", _STYLE])


@contextmanager
def canvas(
    title: str,
    height_inches: float,
    panel_heights: tuple[float, ...] = (1,),
    *,
    sharex: bool = False,
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure with a title and stacked panels of the given relative heights, to draw in with
    icekit's style.
    """
    with chart_style():
        # A constrained layout measures all texts twice, which takes as long as drawing them.
        figure = Figure(figsize=(WIDTH, height_inches), layout=TightLayoutEngine(pad=0.3))
        figure.suptitle(
            shorten(printable_text(title), 58),
            x=0.01,
            y=1 - 0.06 / height_inches,
            ha="left",
            fontsize=FONT + 1,
            fontweight="bold",
        )
        axes_grid = figure.subplots(
            len(panel_heights), 1, height_ratios=panel_heights, sharex=sharex, squeeze=False
        )
        yield figure, list(axes_grid[:, 0])


def add_legend(axes: Axes, *, column_count: int = 2) -> None:
    """A legend above the plot, where it covers no data."""
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=column_count)


def set_row_names(axes: Axes, row_names: Sequence[str]) -> None:
    """Rows from top to bottom, with names short enough to leave room for the bars."""
    axes.set_yticks(
        range(len(row_names)), [shorten(printable_text(row_name), NAME) for row_name in row_names]
    )
    axes.set_ylim(len(row_names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.2)


@frozen
class Bars:
    """Horizontal bars of one kind, one value per row; None draws no bar."""

    label: str
    lengths: Sequence[float | None]
    color: str
    hatch: str = ""


def draw_bar_rows(
    axes: Axes,
    row_names: Sequence[str],
    bars_by_kind: Sequence[Bars],
    row_notes: Sequence[str],
    axis_label: str,
    *,
    mark_positions: Sequence[int] = (),
) -> None:
    """One row per name from top to bottom, with the kinds stacked, and a note behind its bar and
    its mark, if it has one.
    """
    bar_ends = [0.0] * len(row_names)
    for bars in bars_by_kind:
        bar_lengths = [bar_length or 0.0 for bar_length in bars.lengths]
        bar_style: dict[str, Any] = {
            "facecolor": bars.color,
            "hatch": bars.hatch,
            "edgecolor": BLACK,
            "linewidth": 0.6,
            "label": bars.label,
        }
        if any(bar_lengths):
            axes.barh(range(len(row_names)), bar_lengths, 0.7, left=bar_ends, **bar_style)
        bar_ends = [end + bar_length for end, bar_length in zip(bar_ends, bar_lengths, strict=True)]
    set_row_names(axes, row_names)
    axes.set_xlim(left=0)
    for row_number, note_text in enumerate(row_notes):
        add_note(
            axes,
            note_text,
            max([bar_ends[row_number], *mark_positions[row_number : row_number + 1]]),
            row_number,
        )
    axes.set_xlabel(axis_label)
    add_legend(axes)


def draw_needed_rows(
    axes: Axes,
    row_names: Sequence[str],
    item_label: str,
    existing_counts: Sequence[int],
    needed_counts: Sequence[int],
    target_size_text: str,
) -> None:
    """A bar per row for the files or manifests that exist, and a mark at the number that would be
    enough at ``target_size_text``.
    """
    mark_style: dict[str, Any] = {"markersize": 8, "color": ORANGE, "markeredgecolor": BLACK}
    axes.plot(
        needed_counts,
        range(len(needed_counts)),
        "D",
        label=f"ideal number, of {target_size_text} each",
        **mark_style,
    )
    row_notes = [
        f"{existing_count:,}"
        if existing_count == needed_count
        else f"{existing_count:,} → {needed_count:,}"
        for existing_count, needed_count in zip(existing_counts, needed_counts, strict=True)
    ]
    bars = Bars(item_label, existing_counts, BLUE)
    draw_bar_rows(
        axes, row_names, [bars], row_notes, item_label.capitalize(), mark_positions=needed_counts
    )
    set_whole_number_ticks(axes.xaxis)


def add_note(axes: Axes, note_text: str, x: float, row: float) -> None:
    """A short text at the end of a bar and its mark, readable even on a dashed line."""
    text_box_style = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    axes.annotate(
        note_text,
        (x, row),
        (9, 0),
        textcoords="offset points",
        fontsize=SMALL,
        va="center",
        bbox=text_box_style,
    )


def draw_limit_line(
    draw_line: Callable[..., Any], limit_value: float, legend_label: str, color: str = BLACK
) -> None:
    """A dashed line at a limit, with its label in the legend; ``draw`` is axvline or axhline."""
    draw_line(limit_value, color=color, linestyle="--", linewidth=1.8, label=legend_label)


def format_ticks(axis: Axis, format_value: Callable[[float], str]) -> None:
    """Write the ticks with a unit's format."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value)))


def set_whole_number_ticks(axis: Axis) -> None:
    """Ticks at whole numbers, with commas."""
    axis.set_major_locator(MaxNLocator(4, integer=True, steps=_STEPS))
    format_ticks(axis, "{:,.0f}".format)


def set_time_axis(axes: Axes, moments_ms: Sequence[int], axis_label: str) -> None:
    """An axis of time from the first moment to the last, in UTC."""
    first_time, last_time = sorted((utc_time(moments_ms[0]), utc_time(moments_ms[-1])))
    # A single moment has no width to draw in.
    time_margin = max((last_time - first_time) * 0.03, dt.timedelta(seconds=2))
    time_range: Any = first_time - time_margin, last_time + time_margin
    axes.set_xlim(time_range)
    axes.set_xlabel(axis_label)
