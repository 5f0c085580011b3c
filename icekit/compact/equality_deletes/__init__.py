"""Forecast what reading equality deletes costs, and turn them into position deletes."""

from icekit.compact.equality_deletes.plan import forecast_table, plan_conversion
from icekit.diagnose.heap import HeapForecast, forecast_heap
from icekit.engine.cluster import Executor

__all__ = ["Executor", "HeapForecast", "forecast_heap", "forecast_table", "plan_conversion"]
