"""Declare what the scheduler knows of a table, between passes and within one, as one state machine; pure."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal

from icekit.schedule.policy import Rule
from icekit.schedule.triggers import Watermark
from icekit.units import count

# Hours until what failed is tried again: each time twice as long, but not more than a night's.
_FIRST_HOURS, _MOST_HOURS = 3, 20


class TableState(Enum):
    """What the scheduler knows of a table; :data:`TRANSITIONS` declares which event leads where.

    Each is kept as soon as it changes: a pass that is killed leaves it to the next one. Runs begin only in a pass that has taken the table.

    - ``IDLE``: its last pass left nothing to do, or it had none. A pass takes it once its trigger says that it is due.
    - ``DUE``: a pass has taken it. It goes back to ``IDLE`` when all that was due is done; what waits is left to the next pass.
    - ``UNFINISHED``: a run of the policy began, and is not known to have ended. No other run begins before it is resumed, or dropped
      where the policy no longer allows it; it then ends well, fails, or is not proved.
    - ``FAILED``: a run or a trial failed. It is taken again after some hours, longer each time, or once its rule changes or it is cleared.
    - ``UNPROVED``: a run changed it, and its proof failed or could not be made. It is reported on, and no run begins until a person
      clears it. No other event leads out of this state.
    - ``CLEARED``: a person has looked at what failed or was not proved. The next pass takes it, due by its trigger or not.
    """

    IDLE = "idle"
    DUE = "due"
    UNFINISHED = "unfinished"
    FAILED = "failed"
    UNPROVED = "unproved"
    CLEARED = "cleared"


#: A pass takes a table; a run begins and ends; something fails, or was not proved; all that was due is done; a person clears the table.
Event = Literal["take", "begin", "end", "fail", "hold", "pass", "clear"]
IDLE, DUE, UNFINISHED, FAILED, UNPROVED, CLEARED = TableState

#: The state that each event leads to. A person may clear a table at any moment, also while a pass works on it. After a trial that
#: failed, the pass goes on with the rule's other actions: a run begins on a table that is FAILED.
TRANSITIONS: Mapping[TableState, Mapping[Event, TableState]] = {
    IDLE: {"take": DUE, "hold": UNPROVED, "clear": IDLE},
    DUE: {"take": DUE, "begin": UNFINISHED, "fail": FAILED, "hold": UNPROVED, "pass": IDLE, "clear": DUE},
    UNFINISHED: {"end": DUE, "fail": FAILED, "hold": UNPROVED, "clear": UNFINISHED},
    FAILED: {"take": DUE, "begin": UNFINISHED, "fail": FAILED, "hold": UNPROVED, "clear": CLEARED},
    UNPROVED: {"take": UNPROVED, "hold": UNPROVED, "pass": UNPROVED, "clear": CLEARED},
    CLEARED: {"take": DUE, "begin": UNFINISHED, "fail": FAILED, "hold": UNPROVED, "pass": CLEARED, "clear": CLEARED},
}


def after(state: TableState, event: Event) -> TableState:
    """The state after an event; raises RuntimeError for one that is not declared."""
    if event not in TRANSITIONS[state]:
        raise RuntimeError(f"a bug in icekit: a table that is {state.value} takes no event {event!r}")
    return TRANSITIONS[state][event]


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that a policy has begun: ``mark`` is what its rule said then (:func:`mark`)."""

    run_id: str
    action: str
    mark: str


@dataclass(frozen=True, slots=True)
class Failure:
    """What failed last on a table, or was not proved; how often in a row, and when (milliseconds since 1970).

    ``run_id`` is the run to look at, which may be another's that the ledger holds the table back for.
    """

    action: str
    said: str
    mark: str
    at_ms: int
    times: int = 1
    run_id: str | None = None

    def rests_until(self, rule: Rule) -> dt.datetime | None:
        """When what failed is tried again; None where it may be at once."""
        if mark(rule, self.action) != self.mark:
            return None
        hours = min(_FIRST_HOURS * 2 ** min(self.times - 1, 10), _MOST_HOURS)
        return dt.datetime.fromtimestamp(self.at_ms / 1000, dt.UTC) + dt.timedelta(hours=hours)

    def often(self) -> str:
        """``it failed 2 times``."""
        return f"it failed {count(self.times, 'time')}"


@dataclass(frozen=True, slots=True)
class TableRecord:
    """What is remembered of a table: its state, and what goes with it.

    ``run`` is the one that an UNFINISHED table waits for. ``failure`` stays until the table passes or is cleared, so that failures in a row
    are counted. ``seen`` is what its last finished pass saw, ``last`` its result in the last pass that looked at it.
    """

    state: TableState = TableState.IDLE
    run: StartedRun | None = None
    failure: Failure | None = None
    seen: Watermark | None = None
    last: dict[str, Any] | None = None

    def after(self, event: Event | None, **changed: Any) -> TableRecord:
        """The record after an event (None: the state stays), with what else has ``changed``."""
        state = self.state if event is None else after(self.state, event)
        new = replace(self, state=state, **changed)
        run = new.run if state is UNFINISHED else None
        failure = None if state is IDLE or event == "clear" else new.failure
        return replace(new, run=run, failure=failure)


def mark(rule: Rule, action: str) -> str:
    """What a rule says of an action, as a short text that changes with it; how it is proved is left out."""
    section = rule.actions.get(action)
    said = section.model_dump_json(exclude={"execute", "prove", "trial"}) if section else ""
    around = rule.model_dump_json(include={"thresholds", "filter_columns", "storage"})
    return hashlib.sha256(json.dumps([said, around]).encode()).hexdigest()[:16]


def how_to_clear(table: str) -> str:
    """The command that lets a table be worked on again."""
    return f"`icekit policy FILE --clear {table}`"
