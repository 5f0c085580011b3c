"""Draw the sizes of a table's data files next to the target as a small picture, without
matplotlib.
"""

from __future__ import annotations

from icekit.answer import html
from icekit.diagnose.findings import Thresholds
from icekit.facts.model import TableFacts
from icekit.show.tables import SizeClass, size_classes
from icekit.units import count, percent, size

# In pixels, at the width that a page shows; a phone shrinks it to three fifths.
_WIDTH, _HEIGHT, _TOP, _BOTTOM, _FONT = 620, 180, 44, 42, 13
_BAR, _BAND, _TEXT = "#0072b2", "#e3f1ea", "#1b1b1b"


def sizes_picture(facts: TableFacts, thresholds: Thresholds | None = None) -> str:
    """Data files by size as columns, with the sizes that a rewrite leaves alone shaded; empty
    without data files.
    """
    if not facts.data.file_count:
        return ""
    classes = size_classes(facts, thresholds)
    most = max(each.file_count for each in classes)
    wide = _WIDTH / len(classes)
    parts = [_column(each, facts, i * wide, wide, most) for i, each in enumerate(classes)]
    floor = _HEIGHT - _BOTTOM
    said = html.text(sizes_sentence(facts, classes))
    return (
        f'<svg role="img" aria-label="{said}" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        'style="display:block;max-width:100%;height:auto;margin:.4em 0;background:#fff" '
        f'font-family="system-ui, sans-serif" font-size="{_FONT}" fill="{_TEXT}">'
        f'<title>{said}</title><text x="4" y="14" font-weight="600">Data files by size, and their '
        f'share of the bytes</text>{"".join(parts)}<line x1="0" y1="{floor}" x2="{_WIDTH}" '
        f'y2="{floor}" stroke="#595959"/></svg>'
    )


def sizes_sentence(facts: TableFacts, classes: tuple[SizeClass, ...]) -> str:
    """The picture in words."""
    ranges = ", ".join(f"{each.file_count:,} {each.label}" for each in classes if each.file_count)
    return (
        f"Sizes of {count(facts.data.file_count, 'data file')}: {ranges}; the target is "
        f"{size(facts.target_bytes)}."
    )


def _column(each: SizeClass, facts: TableFacts, left: float, wide: float, most: int) -> str:
    floor = _HEIGHT - _BOTTOM
    # A single file among many still shows.
    high = max(3.0, (floor - _TOP) * each.file_count / most) if each.file_count else 0.0
    middle = left + wide / 2
    share = (
        f" ({percent(each.size_in_bytes / max(1, facts.data.size_in_bytes))})"
        if each.file_count
        else ""
    )
    below = f"target {size(facts.target_bytes)}" if each.is_left_alone else ""
    kept = (
        f'<text x="{middle:.1f}" y="14" fill="#00634a">left alone</text>'
        if each.is_left_alone
        else ""
    )
    shade = (
        f'<rect x="{left:.1f}" y="0" width="{wide:.1f}" height="{_HEIGHT}" fill="{_BAND}"/>'
        if each.is_left_alone
        else ""
    )
    return (
        f"{shade}"
        f'<rect x="{left + wide * 0.14:.1f}" y="{floor - high:.1f}" '
        f'width="{wide * 0.72:.1f}" height="{high:.1f}" fill="{_BAR}"/>'
        f'<g text-anchor="middle"><text x="{middle:.1f}" '
        f'y="{floor - high - 5:.1f}">{html.prose(f"{each.file_count:,}{share}")}</text>'
        f'<text x="{middle:.1f}" y="{floor + 17}">{html.prose(each.label)}</text>'
        f'<text x="{middle:.1f}" y="{floor + 34}" '
        f'fill="#00634a">{html.prose(below)}</text>{kept}</g>'
    )
