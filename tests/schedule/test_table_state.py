"""A table's state moves as is declared, and by no other way; what goes with it goes when it has to."""

from __future__ import annotations

from typing import get_args

import pytest

from icekit.schedule.state import TRANSITIONS, Event, Failure, StartedRun, TableRecord, TableState, after
from icekit.schedule.study import Watermark

EVENTS: tuple[Event, ...] = get_args(Event)
#: The state after each event, for each state before; a dash is no event of that state.
DECLARED = """
              take      begin       end   fail    hold      pass      clear
idle          due       -           -     -       unproved  -         idle
due           due       unfinished  -     failed  unproved  idle      due
unfinished    -         -           due   failed  unproved  -         unfinished
failed        due       unfinished  -     failed  unproved  -         cleared
unproved      unproved  -           -     -       unproved  unproved  cleared
cleared       due       unfinished  -     failed  unproved  cleared   cleared
"""
HEADER, *ROWS = (line.split() for line in DECLARED.strip().splitlines())
CELLS = [(TableState(row[0]), event, after_it) for row in ROWS for event, after_it in zip(HEADER, row[1:], strict=True)]
RUN = StartedRun("r", "compact", "m")
FAILURE = Failure("compact", "refused", "m", 5)


@pytest.mark.parametrize(("state", "event", "expected"), [cell for cell in CELLS if cell[2] != "-"])
def test_a_declared_event_leads_to_its_state(state: TableState, event: Event, expected: str) -> None:
    assert after(state, event) is TableState(expected)


@pytest.mark.parametrize(("state", "event"), [cell[:2] for cell in CELLS if cell[2] == "-"])
def test_an_event_that_is_not_declared_is_refused_as_a_bug(state: TableState, event: Event) -> None:
    with pytest.raises(RuntimeError, match=f"a bug in icekit: a table that is {state.value} takes no event '{event}'"):
        after(state, event)


def test_every_state_and_every_event_is_declared() -> None:
    assert set(TRANSITIONS) == set(TableState) == {cell[0] for cell in CELLS}
    assert list(EVENTS) == HEADER


def test_only_a_person_takes_a_table_out_of_unproved_and_no_run_begins_in_it() -> None:
    assert {event for event, state in TRANSITIONS[TableState.UNPROVED].items() if state is not TableState.UNPROVED} == {"clear"}
    assert "begin" not in TRANSITIONS[TableState.UNPROVED]


def test_a_run_begins_over_no_other_run_and_on_no_table_that_was_not_taken() -> None:
    assert {state for state in TableState if "begin" not in TRANSITIONS[state]} == {
        TableState.IDLE,
        TableState.UNFINISHED,
        TableState.UNPROVED,
    }


def test_a_run_stays_on_record_until_it_has_ended_also_when_its_table_is_cleared() -> None:
    begun = TableRecord(TableState.DUE, failure=FAILURE).after("begin", run=RUN)
    assert begun == TableRecord(TableState.UNFINISHED, RUN, FAILURE)
    assert begun.after("clear") == TableRecord(TableState.UNFINISHED, RUN)
    assert begun.after("end") == TableRecord(TableState.DUE, failure=FAILURE)
    assert begun.after("fail").run is None


def test_a_failure_stays_on_record_until_the_table_passes_or_is_cleared() -> None:
    failed = TableRecord(TableState.UNFINISHED, RUN).after("fail", failure=FAILURE)
    assert failed == TableRecord(TableState.FAILED, failure=FAILURE)
    again = failed.after("take")
    assert again == TableRecord(TableState.DUE, failure=FAILURE)
    assert again.after("pass") == TableRecord()
    assert failed.after("clear") == TableRecord(TableState.CLEARED)
    held = again.after("hold", failure=FAILURE)
    assert held.after("pass") == held == TableRecord(TableState.UNPROVED, failure=FAILURE)


def test_what_else_is_kept_of_a_table_needs_no_event() -> None:
    seen = Watermark("u", 1, 5)
    assert TableRecord(TableState.FAILED, failure=FAILURE).after(None, last={"n": 1}) == TableRecord(
        TableState.FAILED, failure=FAILURE, last={"n": 1}
    )
    assert TableRecord(TableState.DUE).after("pass", seen=seen).after("take").seen == seen
