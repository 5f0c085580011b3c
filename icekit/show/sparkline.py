"""A line of a word's size, as SVG within a page: how a figure moved, without axes."""

from __future__ import annotations

from collections.abc import Sequence

from icekit.answer.html import text

WIDTH, HEIGHT, MOST = 120, 24, 90
_ROOM = 3.0


def sparkline(points: Sequence[float], said: str) -> str:
    """The newest points from left to right, from zero up, the last one marked; ``said`` is for those who do not see it."""
    shown = list(points)[-MOST:]
    top = max([*shown, 0.0]) or 1.0
    step = (WIDTH - 2 * _ROOM) / max(len(shown) - 1, 1)
    places = [(_ROOM + step * i, HEIGHT - _ROOM - (HEIGHT - 2 * _ROOM) * max(value, 0.0) / top) for i, value in enumerate(shown)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    x, y = places[-1] if places else (_ROOM, HEIGHT - _ROOM)
    return (
        f"<svg class=spark role=img aria-label='{text(said)}' width={WIDTH} height={HEIGHT} viewBox='0 0 {WIDTH} {HEIGHT}'>"
        f"<title>{text(said)}</title><polyline points='{line}' fill=none stroke='#0072b2' stroke-width=1.8 />"
        f"<circle cx={x:.1f} cy={y:.1f} r=2.6 fill='#d55e00' /></svg>"
    )
