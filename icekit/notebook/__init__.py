"""What the notebooks' set-up and closing cells call; a person's cells call the package itself."""

from icekit.notebook.asking import calibration, connected, erased, observe, policy, read_now, review, sampled, stock, try_write_modes
from icekit.notebook.closing import Unhealthy, conclude, finish, html
from icekit.notebook.setting_up import GATES, begin, check_gate, check_names, gated, limits

__all__ = [
    "GATES",
    "Unhealthy",
    "begin",
    "calibration",
    "check_gate",
    "check_names",
    "conclude",
    "connected",
    "erased",
    "finish",
    "gated",
    "html",
    "limits",
    "observe",
    "policy",
    "read_now",
    "review",
    "sampled",
    "stock",
    "try_write_modes",
]
