"""What the notebooks' set-up and closing cells call; a person's cells call the package itself."""

from icekit.notebook.asking import calibration, connected, erased, observe, policy, read_now, review, sampled, stock, try_write_modes
from icekit.notebook.closing import (
    Unhealthy,
    finish,
    finish_answer,
    finish_plan,
    finish_review,
    finish_write_mode,
    html,
    slug,
)
from icekit.notebook.setting_up import GATES, begin, check_gate, check_names, gated, limits

__all__ = [
    "GATES",
    "Unhealthy",
    "begin",
    "calibration",
    "check_gate",
    "check_names",
    "connected",
    "erased",
    "finish",
    "finish_answer",
    "finish_plan",
    "finish_review",
    "finish_write_mode",
    "gated",
    "html",
    "limits",
    "observe",
    "policy",
    "read_now",
    "review",
    "sampled",
    "slug",
    "stock",
    "try_write_modes",
]
