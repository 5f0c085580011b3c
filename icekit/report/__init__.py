"""Run the diagnosis notebook unattended: HTML, JSON, an index, an exit status."""

from __future__ import annotations

from icekit.report.index import Options, ReportRun, Row, exit_status
from icekit.report.rendering import FactsCache, notebook_path
from icekit.report.running import Part, report

__all__ = ["FactsCache", "Options", "Part", "ReportRun", "Row", "exit_status", "notebook_path", "report"]
