"""The distribution mode of appends: which there are, which is in force, and what decides it."""

from __future__ import annotations

from collections.abc import Mapping

from icekit.facts.model import TableFacts
from icekit.tune.in_force import InForce, in_force

NONE, HASH, RANGE = "none", "hash", "range"


DISTRIBUTION, DISTRIBUTION_SESSION = (
    "write.distribution-mode",
    "spark.sql.iceberg.distribution-mode",
)


def distribution(facts: TableFacts, session: Mapping[str, str | None]) -> InForce:
    """The distribution mode of appends, and the place that decides it."""
    stated = next(d for d in facts.distribution if d.operation == "append")
    return in_force(
        session=(DISTRIBUTION_SESSION, session[DISTRIBUTION_SESSION]),
        table=(DISTRIBUTION, facts.properties.get(DISTRIBUTION)),
        default=(stated.origin, stated.mode),
    )


def effective(facts: TableFacts, mode: InForce) -> str:
    """The mode that the writer uses: none where a mode has nothing to bring rows together by."""
    value = (mode.value or NONE).lower()
    return value if value in possible_modes(facts) else NONE


def possible_modes(facts: TableFacts) -> tuple[str, ...]:
    """The modes that differ for appends: hash needs a partitioning, range a partitioning or an
    order.
    """
    if not facts.default_spec.is_unpartitioned:
        return NONE, HASH, RANGE
    return (NONE, RANGE) if facts.sort_order else (NONE,)
