"""Partitioning, order, bloom filters and file sizes for the filters that queries have; the table is only read."""

from icekit.tune.layout.service import Layout, tune_layout

__all__ = ["Layout", "tune_layout"]
