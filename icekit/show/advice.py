"""Advice and the script that it comes to, as lines and as HTML: the same under every question."""

from __future__ import annotations

from collections.abc import Iterable

from icekit.show import html
from icekit.tune.advice import Advice, Script


def advice_lines(advice: Iterable[Advice], script: Script) -> list[str]:
    """Each advice with its evidence; the statements come once, at the end, and what takes them back. What is advised instead has its own."""
    lines: list[str] = []
    for a in advice:
        lines += ["", f"{a.setting}: {_change(a)}", f"  {a.evidence}"]
        lines += [f"  Tried: {a.verified}"] if a.verified else []
        lines += [f"  It breaks: {a.breaks}."] if a.breaks else []
        lines += [f"  {a.sql};"] if a.sql and a.is_alternative else []
    if script.sql:
        lines += ["", "To set it:", *(f"  {sql};" for sql in script.sql)]
        lines += ["To take it back:", *(f"  {sql};" for sql in script.undo)] if script.undo else []
    return lines


def advice_html(advice: Iterable[Advice], script: Script) -> list[str]:
    """The same as parts of a card."""
    parts = []
    for a in advice:
        tried = f" <strong>Tried:</strong> {html.prose(a.verified)}" if a.verified else ""
        breaks = f"<p><strong>It breaks:</strong> {html.prose(a.breaks)}.</p>" if a.breaks else ""
        sql = html.statements([a.sql]) if a.sql and a.is_alternative else ""
        parts.append(f"<p><code>{html.text(a.setting)}</code> {html.text(_change(a))}. {html.prose(a.evidence)}{tried}</p>{breaks}{sql}")
    if script.sql:
        parts.append(f"<p>To set it:</p>{html.statements(script.sql)}")
        if script.undo:
            parts.append(f"<details><summary>To take it back</summary>{html.statements(script.undo)}</details>")
    return parts


def _change(a: Advice) -> str:
    return f"{a.current or 'not set'}{f' → {a.proposed}' if a.proposed != a.current else ''}"
