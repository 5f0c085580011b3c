"""Diagnose and tune Apache Iceberg tables, and prove what you change."""

from icekit.catalog import connect
from icekit.diagnose import diagnose
from icekit.findings import Finding, Findings, Severity, Thresholds

__all__ = ["Finding", "Findings", "Severity", "Thresholds", "connect", "diagnose"]
__version__ = "0.1.0"
