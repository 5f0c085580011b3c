"""What the lessons' cells call beside the package itself: begin on fresh tables, measure, compare, check an exercise."""

from icekit.lessons.beginning import begin
from icekit.lessons.measure import Measured, Storage, measure, storage
from icekit.lessons.table import Comparison, compare

__all__ = ["Comparison", "Measured", "Storage", "begin", "compare", "measure", "storage"]
