"""How scans are planned, where files are stored and how they are encoded."""

from icekit.tune.planning.service import Planning, tune_planning

__all__ = ["Planning", "tune_planning"]
