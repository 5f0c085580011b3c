"""Trials for tests: limits that no test meets, however busy the machine is, and no progress."""

from icekit.catalog import Lake
from icekit.facts.model import TableFacts
from icekit.sandbox.trial import Budget, Trial


def trial_of(lake: Lake, facts: TableFacts, *, sample_bytes: int = 1 << 30) -> Trial:
    """A trial of a table."""
    return Trial(
        lake=lake,
        facts=facts,
        budget=Budget(3_600, 1 << 30),
        sample_bytes=sample_bytes,
        progress=lambda _: None,
    )
