"""Maintain many tables under one policy, on a schedule: one pass that may run every hour."""

from icekit.report.schedule.policy import SchedulePolicy
from icekit.report.schedule.reading import PolicyError, read_policy

__all__ = ["PolicyError", "SchedulePolicy", "read_policy"]
