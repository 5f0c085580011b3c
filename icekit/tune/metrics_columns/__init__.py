"""Which columns should have metrics, and in which mode: what they cost in manifests, and what they let queries skip."""

from icekit.tune.metrics_columns.model import EntryBytes, MetricsColumns, Prefix, Skipping, Trial
from icekit.tune.metrics_columns.service import tune_metrics_columns

__all__ = ["EntryBytes", "MetricsColumns", "Prefix", "Skipping", "Trial", "tune_metrics_columns"]
