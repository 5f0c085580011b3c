"""Let a pass end that was asked to: Spark goes without a word, and what it broke off is no table's failure."""

from __future__ import annotations

from dataclasses import replace

from icekit.catalog import Lake
from icekit.catalog.source import within
from icekit.ending import Ending
from icekit.schedule.result import Step
from icekit.schedule.under_way import Table

#: Seconds that Spark is given to stop when the pass was asked to end; its JVM goes with the process in any case.
_GOING_SECONDS = 20.0


def let_go(lake: Lake, ending: Ending) -> None:
    """Close the lake; ``ending`` has then heard it, if the process was asked to end by then or meanwhile.

    The JVM may be gone, or not answer, or still be at work on the call that a signal has cut short. So an ending pass
    stops Spark from another thread, which has a connection of its own, and does not wait for it for ever.
    """
    try:
        if not ending.is_asked:
            lake.close()
            return
    except BaseException as error:
        if not ending.takes(error):
            raise
    ending.hear()
    try:
        within(_GOING_SECONDS, lake.close)
    except BaseException as error:
        if not ending.takes(error):
            raise


def while_ending(step: Step, ending: Ending) -> Step:
    """A step that failed once the process was asked to end: cut short, and not the table's failure; what was disproved stays."""
    if step.status != "failed" or step.is_unproved or not ending.is_asked:
        return step
    return replace(step, status="stopped", said=f"{step.said}; the pass was asked to end meanwhile, and the next one goes on")


def stop(tables: list[Table]) -> None:
    """Say of the tables that a pass has done nothing on that it was stopped; what it did on the others stays said."""
    for one in tables:
        if not one.is_over and not one.is_worked and not one.steps:
            one.end("stopped", "the pass was stopped by hand or by a signal; the next one goes on")
