"""Diagnose and tune Apache Iceberg tables, and prove what you change."""

from icekit.catalog import connect

__all__ = ["connect"]
__version__ = "0.1.0"
