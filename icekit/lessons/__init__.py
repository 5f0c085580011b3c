"""What the lessons' cells call beside the package itself: begin on fresh tables, measure, compare, check an exercise."""

from icekit.lessons.check import begin
from icekit.lessons.measure import BeforeAfter, FolderSize, QueryCost, compare, measure, storage

__all__ = ["BeforeAfter", "FolderSize", "QueryCost", "begin", "compare", "measure", "storage"]
