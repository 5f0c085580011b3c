"""Partitioning, sort order, bloom filters and row groups for the filters of queries; only reads the table."""

from icekit.tune.layout.service import Layout, tune_layout

__all__ = ["Layout", "tune_layout"]
