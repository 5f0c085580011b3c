"""Which columns should have metrics, and in which mode: their cost in manifests, and the files that queries skip."""

from icekit.tune.metrics_columns.model import EntryBytes, MetricsColumns, MetricsTrial, Prefix, Skipping
from icekit.tune.metrics_columns.service import tune_metrics_columns

__all__ = ["EntryBytes", "MetricsColumns", "MetricsTrial", "Prefix", "Skipping", "tune_metrics_columns"]
