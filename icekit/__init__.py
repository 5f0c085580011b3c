"""Diagnose and tune Apache Iceberg tables, and check that no row changed."""

from icekit.api import Lake, compare, connect
from icekit.diagnose import diagnose
from icekit.diagnose.findings import Finding, Findings, Severity, Thresholds

__all__ = [
    "Finding",
    "Findings",
    "Lake",
    "Severity",
    "Thresholds",
    "compare",
    "connect",
    "diagnose",
]
__version__ = "0.1.0"
