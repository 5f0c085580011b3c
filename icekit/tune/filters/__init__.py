"""What queries filter a table by: stated, declared, or read from Spark event logs and Iceberg scan reports."""

from icekit.tune.filters.model import Filter, Leaf, leaves
from icekit.tune.filters.read import Filters, Sample, bind, read_filters, sample

__all__ = ["Filter", "Filters", "Leaf", "Sample", "bind", "leaves", "read_filters", "sample"]
