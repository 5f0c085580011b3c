"""Forecast what equality deletes take to read."""

from icekit.compact.equality_deletes.executor import Executor
from icekit.compact.equality_deletes.forecast import HeapForecast, PartitionHeap, forecast_heap
from icekit.compact.equality_deletes.keys import KeyColumn, KeySample
from icekit.compact.equality_deletes.sampling import sample_keys

__all__ = ["Executor", "HeapForecast", "KeyColumn", "KeySample", "PartitionHeap", "forecast_heap", "sample_keys"]
