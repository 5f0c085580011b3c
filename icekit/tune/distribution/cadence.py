"""When the table has enough small files again for a rewrite, at the present cadence. Pure.

A partition is sick when a default rewrite would take it: ``min-input-files`` files under 0.75 of the target in it
(as icekit's finding ``small_files``). Each visit of a commit leaves so many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from icekit.diagnose.findings import Thresholds
from icekit.facts.model import TableFacts
from icekit.tune.advisory_size.source import RECENT

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Cadence:
    """How the table is appended to: commits and small files a day, and the bytes of a visit to a partition.

    ``visits`` is how often a partition is visited by the commits looked at, on average. None where the
    snapshots do not tell.
    """

    commits_per_day: float | None
    partitions_per_commit: float
    bytes_per_visit: float
    visits: float
    days: float | None


@dataclass(frozen=True, slots=True)
class Until:
    """When a partition has enough small files: after so many visits, and days; None where never."""

    small_files_per_visit: float
    visits: int | None
    days: float | None


def cadence(facts: TableFacts) -> Cadence | None:
    """The cadence of the recent appends; None without any."""
    found = [c for c in facts.history.commits if c.operation == "append" and c.added_data_files][-RECENT:]
    if not found:
        return None
    days = (found[-1].committed_at_ms - found[0].committed_at_ms) / _DAY_MS
    per_day = (len(found) - 1) / days if days > 0 else None
    touched = sum(c.changed_partitions or 1 for c in found)
    live = max(1, sum(1 for g in facts.groups if g.kind.value == "data" and g.partition.spec_id == facts.default_spec_id))
    # At most as many partitions as there are share these visits.
    distinct = min(live, touched)
    return Cadence(per_day, touched / len(found), sum(c.added_bytes or 0 for c in found) / touched, touched / distinct, days or None)


def until_sick(rhythm: Cadence, small_files_per_visit: float, thresholds: Thresholds | None = None) -> Until:
    """When a partition that is visited at this rhythm has enough small files for a rewrite."""
    wanted = (thresholds or Thresholds()).min_input_files
    if small_files_per_visit <= 0:
        return Until(small_files_per_visit, None, None)
    visits = math.ceil(wanted / small_files_per_visit)
    if rhythm.commits_per_day is None or rhythm.days is None:
        return Until(small_files_per_visit, visits, None)
    per_day = rhythm.visits / rhythm.days
    return Until(small_files_per_visit, visits, visits / per_day if per_day else None)


def commits_for(target_bytes: int, bytes_per_visit: float) -> int | None:
    """How many such commits in one give a partition a file of the target size; None where a visit brings nothing."""
    return math.ceil(target_bytes / bytes_per_visit) if bytes_per_visit > 0 else None
