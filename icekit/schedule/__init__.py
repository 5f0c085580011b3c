"""Look after many tables by a policy, on a schedule: one pass that may be run every hour."""

from icekit.schedule.policy import SchedulePolicy
from icekit.schedule.reading import PolicyError, read_policy

__all__ = ["PolicyError", "SchedulePolicy", "read_policy"]
