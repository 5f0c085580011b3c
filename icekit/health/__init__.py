"""What is the matter with a table: its facts and its findings; reads only, without a JVM if it can."""

from icekit.health.collect import observe
from icekit.health.facts.files import FileGroup, Totals
from icekit.health.facts.model import TableFacts
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.partition import Partition

__all__ = ["FileGroup", "Kind", "Partition", "TableFacts", "Totals", "observe"]
