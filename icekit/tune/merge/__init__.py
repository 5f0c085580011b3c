"""Explain a MERGE without running it, narrow it by what its source holds, and try it on a clone."""

from icekit.tune.merge.model import EnginePlan, PartitionedJoin, Review, Rewrite, Run, Scan, Trial
from icekit.tune.merge.review import review_merge, try_review

__all__ = ["EnginePlan", "PartitionedJoin", "Review", "Rewrite", "Run", "Scan", "Trial", "review_merge", "try_review"]
