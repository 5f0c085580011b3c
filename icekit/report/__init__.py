"""Run the diagnosis notebook unattended: HTML, JSON, an index, an exit status."""

from __future__ import annotations

from icekit.report.journal import Options, ReportRun, Row, exit_status
from icekit.report.observing import Known
from icekit.report.rendering import notebook_path
from icekit.report.running import Part, report

__all__ = ["Known", "Options", "Part", "ReportRun", "Row", "exit_status", "notebook_path", "report"]
