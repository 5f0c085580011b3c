"""Decide whether findings fail a report or a command: the gate ``fail_on``."""

from __future__ import annotations

from collections.abc import Mapping

from icekit.diagnose.findings import Severity, Thresholds
from icekit.errors import ParameterError, nearest

GATES = ("never", *(severity.name.lower() for severity in Severity if severity > Severity.INFO))


def limits(thresholds: Mapping[str, float] | None, fail_on: str = "never") -> Thresholds:
    """The default thresholds with some changed; also checks the gate's name."""
    check_gate(fail_on)
    return Thresholds().with_changes(**thresholds or {})


def check_gate(fail_on: str) -> None:
    """Refuse a gate that is not one of never, warning, critical."""
    if fail_on not in GATES:
        raise ParameterError(
            "fail_on is "
            f"{fail_on!r}{nearest(fail_on, GATES, count=1) or '; use ' + ', '.join(GATES) + '.'}"
        )


def gated(worst: Severity | None, fail_on: str) -> bool:
    """Tell whether findings of this severity fail the gate."""
    check_gate(fail_on)
    return fail_on != "never" and worst is not None and worst >= Severity[fail_on.upper()]
