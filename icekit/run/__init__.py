"""Run a plan under a checkpoint: claims, attempts, conflicts, proofs, resume; and the full
conversion of equality deletes.
"""

from icekit.run.attempt import Limits, sampled
from icekit.run.blocked import clear
from icekit.run.verbs import convert_equality_deletes, resume, run

__all__ = ["Limits", "clear", "convert_equality_deletes", "resume", "run", "sampled"]
