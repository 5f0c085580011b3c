"""What the lessons' cells call beside the package itself: begin on fresh tables, measure, compare, check an exercise."""

from icekit.lessons.check import begin
from icekit.lessons.measure import Comparison, Measured, Storage, compare, measure, storage

__all__ = ["Comparison", "Measured", "Storage", "begin", "compare", "measure", "storage"]
