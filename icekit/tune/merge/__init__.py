"""Explain a MERGE without running it, narrow its ON with values from its source, and try both on a clone."""

from icekit.tune.merge.model import EnginePlan, MergeRun, MergeTrial, PartitionedJoin, Review, Rewrite, Scan
from icekit.tune.merge.review import review_merge, try_review

__all__ = ["EnginePlan", "MergeRun", "MergeTrial", "PartitionedJoin", "Review", "Rewrite", "Scan", "review_merge", "try_review"]
