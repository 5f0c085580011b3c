"""Advisory partition size: the chain in force, the ratio of this table's data measured, and the size that follows."""

from icekit.tune.advisory_size.trial import PROPERTY, SESSION, Candidate, Chain, SizeTrial, chain
from icekit.tune.advisory_size.written import ENOUGH, TOLERANCE, Shuffle, Source, Written

__all__ = ["ENOUGH", "PROPERTY", "SESSION", "TOLERANCE", "Candidate", "Chain", "Shuffle", "SizeTrial", "Source", "Written", "chain"]
