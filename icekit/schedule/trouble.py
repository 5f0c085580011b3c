"""Note what a policy has begun on a table and what failed there, and keep the table back from the next try; pure."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from dataclasses import dataclass

from icekit.schedule.model import Rule
from icekit.units import count

# Hours until what failed is tried again: each time twice as long, but not more than a night's.
_FIRST_HOURS, _MOST_HOURS = 3, 20


@dataclass(frozen=True, slots=True)
class Begun:
    """A run that a policy has begun: ``mark`` is what its rule said then (:func:`mark`)."""

    run_id: str
    action: str
    mark: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """What failed last on a table, how often in a row, and when (milliseconds since 1970).

    ``is_unproved``: the run changed the table, and its proof failed or could not be made. Nothing more is run on
    such a table until a person has looked at ``run_id``, which may be another's run that the ledger holds the table back for. What else failed is tried again after a while, or once its rule changes.
    """

    action: str
    said: str
    mark: str
    at_ms: int
    times: int = 1
    is_unproved: bool = False
    run_id: str | None = None

    def rests_until(self, rule: Rule) -> dt.datetime | None:
        """When what failed is tried again; None where it may be at once."""
        if self.is_unproved or mark(rule, self.action) != self.mark:
            return None
        hours = min(_FIRST_HOURS * 2 ** min(self.times - 1, 10), _MOST_HOURS)
        return dt.datetime.fromtimestamp(self.at_ms / 1000, dt.UTC) + dt.timedelta(hours=hours)

    def often(self) -> str:
        """``it failed 2 times``."""
        return f"it failed {count(self.times, 'time')}"


def mark(rule: Rule, action: str) -> str:
    """What a rule says of an action, as a short text that changes with it; how it is proved is left out."""
    section = rule.actions.get(action)
    said = section.model_dump_json(exclude={"execute", "prove", "trial"}) if section else ""
    around = rule.model_dump_json(include={"thresholds", "filter_columns", "storage"})
    return hashlib.sha256(json.dumps([said, around]).encode()).hexdigest()[:16]


def how_to_clear(table: str) -> str:
    """The command that lets a table be worked on again."""
    return f"`icekit policy FILE --clear {table}`"
