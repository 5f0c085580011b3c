"""Plan the rewrites that are worth it: candidates, budget, prediction, and the outcome of a
plan.
"""

from icekit.compact.candidates import Candidate, candidates
from icekit.compact.ledger import open_ledger
from icekit.compact.model import Action, Plan, Prediction
from icekit.compact.outcome import ActionOutcome, Outcome
from icekit.compact.plan import plan
from icekit.compact.policy import Policy
from icekit.compact.service import plan_table
from icekit.engine.interrupting import Stop

__all__ = [
    "Action",
    "ActionOutcome",
    "Candidate",
    "Outcome",
    "Plan",
    "Policy",
    "Prediction",
    "Stop",
    "candidates",
    "open_ledger",
    "plan",
    "plan_table",
]
