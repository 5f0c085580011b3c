"""Move a limit and see the findings change at once: facts stay, judging them is arithmetic."""

from __future__ import annotations

from functools import partial
from typing import Any

import ipywidgets as ipw

from icekit.answer import html
from icekit.diagnose.findings import Findings, Thresholds, findings_html
from icekit.show.explorer import Explorer
from icekit.show.widgets.controls import attempt, button, chosen, column, labelled, note, picture, row
from icekit.show.widgets.limits import LIMITS, Limit, moved, size_ratios
from icekit.show.widgets.view import View
from icekit.units import percent, size


class ThresholdsExplorer(Explorer):
    """Findings, and the limits they rest on."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view
        self.given = view.thresholds
        self._moving = False

    def static(self) -> str:
        """The findings, and the limits in force as a table."""
        rows = [
            (
                limit.label,
                told(limit, getattr(self.view.thresholds, limit.name)),
                limit.unit.removeprefix("% ").removeprefix("× "),
                limit.source,
            )
            for limit in LIMITS
        ]
        table = html.table(("limit", "value", "of or in", "where it comes from"), rows, [False, True, False, False])
        return findings_html(self.view.findings) + html.framed(f"<details><summary>The limits in force</summary>{table}</details>")

    def build(self) -> Any:
        """A slider for each limit above the findings."""
        self.sliders = {limit.name: self._slider(limit) for limit in LIMITS}
        self.reset = button("Back to the limits given", "set every limit as the notebook's parameters have it", self._reset)
        self.said = picture()
        self.found = picture()
        for limit in LIMITS:
            chosen(self.sliders[limit.name], partial(self._move, limit))
        self.view.on_change(self._follow)
        self._show()
        rows = [row(self.sliders[limit.name], ipw.Label(f"{limit.unit}; {limit.source}")) for limit in LIMITS]
        folded = ipw.Accordion([column(*rows, row(self.reset))], titles=("Limits: move one and the findings change",), selected_index=0)
        return column(folded, self.said, self.found)

    def _slider(self, limit: Limit) -> Any:
        value = getattr(self.view.thresholds, limit.name)
        tooltip = f"{limit.unit}; where it comes from: {limit.source}"
        layout = {"width": "32em"}
        if limit.name in ("min_file_size_ratio", "max_file_size_ratio"):
            return labelled(
                ipw.SelectionSlider, limit.label, tooltip, options=self._sizes(limit), value=value, continuous_update=False, layout=layout
            )
        kind = ipw.IntSlider if limit.is_whole else ipw.FloatSlider
        options: dict[str, Any] = {} if limit.is_whole else {"readout_format": ".0%" if limit.is_share else ".1f"}
        return labelled(
            kind,
            limit.label,
            tooltip,
            min=min(limit.low, value),
            max=max(limit.high, value),
            step=limit.step,
            value=value,
            continuous_update=False,
            layout=layout,
            **options,
        )

    def _sizes(self, limit: Limit) -> list[tuple[str, float]]:
        """Limits of file size at which the facts were counted, so that every one of them is exact."""
        over = limit.name.startswith("max")
        ratios = size_ratios(self.view.facts, over=over, also=getattr(self.view.thresholds, limit.name))
        return [(f"{told(limit, r)} ({size(self.view.facts.target_bytes * r)})", r) for r in ratios]

    def _move(self, limit: Limit) -> None:
        if self._moving:
            return
        value = self.sliders[limit.name].value
        before = self.view.thresholds

        def move() -> None:
            self.view.limit(before.with_changes(**{limit.name: value}))

        if not attempt(move, self.said):
            self._set(before)

    def _reset(self) -> None:
        if attempt(lambda: self.view.limit(self.given), self.said):
            self._set(self.given)

    def _set(self, limits: Thresholds) -> None:
        """Put every slider where the limits are, without judging anew for each."""
        self._moving = True
        try:
            for limit in LIMITS:
                slider = self.sliders[limit.name]
                if limit.name in ("min_file_size_ratio", "max_file_size_ratio"):
                    # Another table has another target, and was cut elsewhere.
                    slider.options = self._sizes(limit)
                slider.value = getattr(limits, limit.name)
        finally:
            self._moving = False

    def _follow(self) -> None:
        self._set(self.view.thresholds)
        self._show()

    def _show(self) -> None:
        at_given = self._at_given()
        here = self.view.findings
        changed = moved(self.view.thresholds)
        parts = []
        came = [f.title for f in here if f.name not in at_given.names]
        went = [f.title for f in at_given if f.name not in here.names]
        if came or went:
            parts.append(f"New: {', '.join(came) or 'none'}. Gone: {', '.join(went) or 'none'}.")
        if changed:
            parts.append(f"To keep them: thresholds = {changed!r}")
        self.said.value = note(" ".join(parts)) if parts else ""
        self.found.value = findings_html(here)

    def _at_given(self) -> Findings:
        from icekit.diagnose import diagnose

        return diagnose(self.view.facts, self.given, session_conf=self.view.lake.session_conf())


def told(limit: Limit, value: float) -> str:
    """A limit's value as people read it."""
    return percent(value) if limit.is_share else f"{value:,g}"


def thresholds(view: View) -> ThresholdsExplorer:
    """Findings that follow the limits; see :class:`ThresholdsExplorer`."""
    return ThresholdsExplorer(view)


__all__ = ["ThresholdsExplorer", "thresholds", "told"]
