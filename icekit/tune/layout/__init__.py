"""Partitioning, order, bloom filters and file sizes for the filters that queries have; the table is only read."""

from icekit.tune.layout.advise import Layout
from icekit.tune.layout.service import tune_layout

__all__ = ["Layout", "tune_layout"]
