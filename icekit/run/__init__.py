"""Run a plan under a checkpoint: claims, attempts, conflicts, proofs, resume; and the conversion of equality deletes whole."""

from icekit.run.convert import convert_equality_deletes, finish_with_compaction
from icekit.run.disproof import clear
from icekit.run.limits import Limits
from icekit.run.service import resume, run

__all__ = ["Limits", "clear", "convert_equality_deletes", "finish_with_compaction", "resume", "run"]
