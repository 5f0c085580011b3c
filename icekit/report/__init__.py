"""Run the diagnosis notebook unattended: HTML, JSON, an index, an exit status."""

from __future__ import annotations

from icekit.report.rendering import notebook_path
from icekit.report.rows import Options, Row, Run, exit_status
from icekit.report.running import report

__all__ = ["Options", "Row", "Run", "exit_status", "notebook_path", "report"]
