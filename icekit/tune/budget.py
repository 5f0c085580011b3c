"""Hold a trial to the time and bytes that it was given, also inside a statement that runs too long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from icekit.engine.interrupting import cancelled_when, new_tag, tagged
from icekit.errors import require_seconds
from icekit.units import size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_INTERRUPT = "spark.job.interruptOnCancel"


class BudgetSpent(Exception):
    """The trial ends here; what was measured so far stands."""


class Budget:
    """So many seconds and, if given, so many bytes written, from now on."""

    def __init__(self, seconds: float, size_in_bytes: int | None = None) -> None:
        require_seconds("budget_seconds", seconds)
        self.seconds, self.bytes = seconds, size_in_bytes
        self.bytes_written = 0
        self._ends = time.monotonic() + seconds

    def check(self, next_bytes: int = 0) -> None:
        """Raise :class:`BudgetSpent` when time is up, or when the next step would write too much."""
        if self._is_over():
            raise BudgetSpent(f"the budget of {self.seconds:,g} s was spent")
        if self.bytes is not None and self.bytes_written + next_bytes > self.bytes:
            raise BudgetSpent(
                f"the next step would write about {size(next_bytes)}, and of the budget of {size(self.bytes)} {size(self.bytes_written)} are spent"
            )

    def _is_over(self) -> bool:
        return time.monotonic() >= self._ends

    @contextmanager
    def watching(self, spark: SparkSession, next_bytes: int = 0) -> Iterator[None]:
        """Cancel the Spark jobs of what runs within when time is up; raises :class:`BudgetSpent` then."""
        self.check(next_bytes)
        context = spark.sparkContext
        tag = new_tag()
        before = context.getLocalProperty(_INTERRUPT)
        context.setInterruptOnCancel(True)
        try:
            with tagged(spark, tag), cancelled_when(self._is_over, spark, tag):
                yield
        except Exception as error:
            if self._is_over():
                raise BudgetSpent(f"the budget of {self.seconds:,g} s was spent while a step ran") from error
            raise
        finally:
            context.setInterruptOnCancel(before == "true")
