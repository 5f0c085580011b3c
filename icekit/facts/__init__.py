"""The facts of a table: one rollup, collected by Spark or without a JVM."""

from icekit.facts.collect import observe
from icekit.facts.files import FileGroup, Kind, Partition, Totals
from icekit.facts.model import TableFacts

__all__ = ["FileGroup", "Kind", "Partition", "TableFacts", "Totals", "observe"]
