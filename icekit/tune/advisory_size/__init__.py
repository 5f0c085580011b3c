"""Advisory partition size: the chain in force, the ratio of this table's data measured, and the size that follows."""

from icekit.tune.advisory_size.trial import PROPERTY, Chain, SizeCandidate, SizeTrial, chain
from icekit.tune.advisory_size.trial import SESSION_SETTINGS as SESSION
from icekit.tune.advisory_size.written import ENOUGH, TOLERANCE, Shuffle, TrialRows, Written

__all__ = ["ENOUGH", "PROPERTY", "SESSION", "TOLERANCE", "Chain", "Shuffle", "SizeCandidate", "SizeTrial", "TrialRows", "Written", "chain"]
