"""How scans are planned, where files lie and how they are encoded."""

from icekit.tune.planning.service import Planning, tune_planning

__all__ = ["Planning", "tune_planning"]
