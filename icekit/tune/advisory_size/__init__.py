"""Advisory partition size: the chain in force, the ratio of this table's data measured, and the size that follows."""

from icekit.tune.advisory_size.chain import PROPERTY, SESSION, Chain, chain
from icekit.tune.advisory_size.recommend import Candidate
from icekit.tune.advisory_size.source import Source
from icekit.tune.advisory_size.trial import SizeTrial
from icekit.tune.advisory_size.written import ENOUGH, TOLERANCE, Shuffle, Written

__all__ = ["ENOUGH", "PROPERTY", "SESSION", "TOLERANCE", "Candidate", "Chain", "Shuffle", "SizeTrial", "Source", "Written", "chain"]
