"""Forecast what equality deletes take to read, and convert them."""

from icekit.compact.equality_deletes.plan import plan_conversion
from icekit.compact.equality_deletes.service import convert_equality_deletes

__all__ = ["convert_equality_deletes", "plan_conversion"]
