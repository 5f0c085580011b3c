"""Plan what pays back, run it under a checkpoint, and prove that no row changed."""

from icekit.compact.calibration import Calibration, calibration
from icekit.compact.candidates import Candidate, candidates
from icekit.compact.disproof import clear
from icekit.compact.execute import Stop
from icekit.compact.ledger import open_ledger
from icekit.compact.limits import Limits
from icekit.compact.model import Action, Plan, Prediction
from icekit.compact.outcome import ActionOutcome, Outcome
from icekit.compact.plan import plan
from icekit.compact.policy import Policy
from icekit.compact.run import resume, run
from icekit.compact.service import plan_table

__all__ = [
    "Action",
    "ActionOutcome",
    "Calibration",
    "Candidate",
    "Limits",
    "Outcome",
    "Plan",
    "Policy",
    "Prediction",
    "Stop",
    "calibration",
    "candidates",
    "clear",
    "open_ledger",
    "plan",
    "plan_table",
    "resume",
    "run",
]
