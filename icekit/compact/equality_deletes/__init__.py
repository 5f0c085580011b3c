"""Forecast what reading equality deletes costs, and turn them into position deletes."""

from icekit.compact.equality_deletes.measure import StockRun, forecast_table, sample_keys, stock_rewrite
from icekit.compact.equality_deletes.plan import plan_conversion
from icekit.diagnose.heap import HeapForecast, KeyColumnHeap, KeySample, PartitionHeap, forecast_heap
from icekit.engine.cluster import Executor

__all__ = [
    "Executor",
    "HeapForecast",
    "KeyColumnHeap",
    "KeySample",
    "PartitionHeap",
    "StockRun",
    "forecast_heap",
    "forecast_table",
    "plan_conversion",
    "sample_keys",
    "stock_rewrite",
]
