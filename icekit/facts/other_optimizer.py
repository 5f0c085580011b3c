"""Recognize a service that compacts and expires a table by itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OtherOptimizer:
    """A service that compacts and expires tables by itself, and the property or the location that shows it."""

    name: str
    evidence: str

    @property
    def note(self) -> str:
        """What to know before a plan of icekit runs."""
        return (
            f"Another optimizer may manage this table: {self.evidence}. Turn its maintenance off for this table, or leave the work to it, before "
            "this plan runs: each makes the other's commits fail."
        )


# Properties that only one service sets, by their beginnings, and the buckets of S3 Tables.
_MANAGED = (("self-optimizing.", "Apache Amoro"), ("delta.", "Databricks"), ("databricks.", "Databricks"), ("snowflake.", "Snowflake"))
_S3_TABLES = re.compile(r"^s3[an]?://[^/]*--table-s3(?:/|$)")


def other_optimizer(properties: Mapping[str, str], location: str) -> OtherOptimizer | None:
    """The service that maintains a table of these properties at this location by itself; None if nothing shows one."""
    if _S3_TABLES.match(location):
        return OtherOptimizer(
            "Amazon S3 Tables", f"the table is in a table bucket of Amazon S3 Tables ({location}), which compacts and expires it"
        )
    if properties.get("self-optimizing.enabled", "").lower() == "false":
        return None
    for beginning, name in _MANAGED:
        if keys := sorted(key for key in properties if key.startswith(beginning)):
            return OtherOptimizer(name, f"the table property {keys[0]} is of {name}, which may compact and expire the table")
    return None
