"""Decide whether findings fail a report or a command: the gate ``fail_on``."""

from collections.abc import Mapping

from icekit.common.errors import require_known
from icekit.health.findings import Severity, Thresholds

GATES = ("never", *map(str, (Severity.WARNING, Severity.CRITICAL)))


def limits(thresholds: Mapping[str, float] | None, fail_on: str = "never") -> Thresholds:
    """The default thresholds with some changed; also checks the gate's name."""
    check_gate(fail_on)
    return Thresholds().with_changes(**thresholds or {})


def check_gate(fail_on: str) -> None:
    """Refuse a gate that is not one of never, warning, critical."""
    require_known(fail_on, GATES, "fail_on")


def gated(worst: Severity | None, fail_on: str) -> bool:
    """Tell whether findings of this severity fail the gate."""
    check_gate(fail_on)
    return fail_on != "never" and worst is not None and worst >= Severity[fail_on.upper()]
