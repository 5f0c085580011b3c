"""What is the matter with a table: its facts and its findings; reads only, without a JVM if it can."""

from icekit.health.collect import observe
from icekit.health.files import FileGroup, Kind, Partition, Totals
from icekit.health.model import TableFacts

__all__ = ["FileGroup", "Kind", "Partition", "TableFacts", "Totals", "observe"]
