"""Diagnose and tune Apache Iceberg tables, and check that no row changed."""

from typing import Any

from icekit.api import Lake, compare, connect
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.findings import Finding, Findings, Severity, Thresholds


def load_ipython_extension(shell: Any) -> None:
    """Add the commands as the magics ``%icekit`` and ``%%icekit``; see :mod:`icekit.cli.jupyter`."""
    from icekit.cli.jupyter import icekit

    shell.register_magic_function(icekit, "line_cell")


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
__version__ = "0.2.0"
