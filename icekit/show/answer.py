"""An answer as a card and as lines: the sentence, the advice with its script, what was measured, what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icekit.secrets import mask
from icekit.show import html
from icekit.show.advice import advice_html, advice_lines
from icekit.show.lines import aligned

if TYPE_CHECKING:
    from icekit.tune.answer import Answer


def answer_text(answer: Answer) -> str:
    """An answer as lines for a terminal."""
    lines = [f"{answer.name}: {answer.summary()}", *_stopped(answer)]
    for shown in answer.tables():
        if shown.rows:
            lines += ["", f"{shown.caption}:", *aligned((shown.head, *shown.rows), left=shown.text_columns)]
    if answer.basis():
        lines += ["", *answer.basis()]
    lines += advice_lines(answer.advice, answer.script)
    return mask("\n".join(lines))


def answer_html(answer: Answer) -> str:
    """An answer as a card."""
    kind, badge = ("warning", "▲ change") if answer.is_change else ("fine", "✔ leave it")
    if not answer.is_answered:
        kind, badge = "info", "not measured"
    parts = [
        f'<div class="finding {kind}"><p class="title"><span class="badge">{badge}</span> {html.text(answer.name)}</p>',
        f"<p>{html.prose(answer.summary())}</p>",
        *(f"<p>{html.prose(line)}</p>" for line in _stopped(answer)),
        *advice_html(answer.advice, answer.script),
    ]
    for shown in answer.tables():
        if shown.rows:
            right = [place not in shown.text_columns for place in range(len(shown.head))]
            parts.append(f"<p>{html.prose(shown.caption)}:</p>{html.table(shown.head, shown.rows, right)}")
    parts += [f"<p>{html.prose(line)}</p>" for line in answer.basis()]
    return mask(html.framed(*parts, "</div>"))


def _stopped(answer: Answer) -> list[str]:
    return [f"Partial: {answer.stopped}."] if answer.stopped else []
