"""Run a plan under a checkpoint, or resume one that was killed."""

from __future__ import annotations

import contextlib
import uuid

from icekit.catalog import Lake
from icekit.clone import remove_stale, stale_clones
from icekit.compact.execute import Stop
from icekit.compact.ledger import let_go_of_dead, opened
from icekit.compact.ledger_api import Ledger
from icekit.compact.model import Plan
from icekit.compact.outcome import ActionOutcome, Outcome
from icekit.errors import IcekitError, ParameterError
from icekit.facts.head import head
from icekit.run.checkpointed import Run, Say
from icekit.run.disproof import refuse
from icekit.run.kept import plan_of
from icekit.run.limits import Limits
from icekit.sql import Identifier, display_name

#: Statuses of a run that has something left to do.
UNFINISHED = ("running", "stopped", "failed")


def new_run_id() -> str:
    """A name for a run that no other has."""
    return uuid.uuid4().hex[:12]


def run(
    lake: Lake,
    plan: Plan,
    *,
    execute: bool = False,
    ledger: Ledger | str | None = None,
    limits: Limits | None = None,
    stop: Stop | None = None,
    progress: Say = print,
    run_id: str | None = None,
) -> Outcome:
    """Run a plan; a dry run unless ``execute`` is set.

    Each action is recorded in the ledger (a :class:`Ledger`, ``table``, a path, or None for
    the default file) before and after, tagged in the snapshots it commits, retried or split
    where that helps, and proved row for row. Raises :class:`~icekit.errors.TableClaimed` when
    another run holds the table, and :class:`~icekit.errors.RunDisproved` when the proof of a run
    on it failed and nobody has cleared that (:func:`~icekit.run.disproof.clear`); what happens to an action is in the outcome. ``run_id`` is for
    who must know it before the run begins (:func:`new_run_id`).
    """
    if not execute:
        return Outcome(plan, None, tuple(ActionOutcome(action, "planned") for action in plan.actions))
    with opened(ledger, lake) as book:
        if not plan.actions:
            # Also where nothing is left to do: that is no sign of a table that is well.
            refuse(book, display_name(lake.sql_name(plan.table)), plan.table_uuid)
            return Outcome(plan, None, ())
        return Run(lake, plan, run_id or new_run_id(), book, limits or Limits(), stop or Stop(), progress).start()


def resume(
    lake: Lake,
    table: Identifier | str,
    *,
    command: str = "compact",
    ledger: Ledger | str | None = None,
    limits: Limits | None = None,
    stop: Stop | None = None,
    progress: Say = print,
    run_id: str | None = None,
) -> Outcome:
    """Go on with the last run on a table, if it is unfinished, doing only what is left of it.

    What was done is read from the table's own snapshots, not from what the killed run last
    wrote down: what is in its history no more, as the table was rolled back, is done again. ``command`` is ``compact`` or ``maintain``: a run of the other kind is refused,
    and so is another run than ``run_id``, where that is given.
    Raises :class:`~icekit.errors.ParameterError` when there is none,
    :class:`~icekit.errors.TableClaimed` when it still runs, and
    :class:`~icekit.errors.RunDisproved` as :func:`run` does.
    """
    name = lake.identifier(table) if isinstance(table, str) else table
    full = display_name(lake.sql_name(name))
    with opened(ledger, lake) as book:
        refuse(book, full, head(lake, name).metadata.get("table-uuid"))
        # The newest run of all: what an older one left was planned for a table that has moved on.
        record = book.last_run(full)
        if record is None or record.status not in UNFINISHED or run_id not in {None, record.run_id}:
            let_go_of_dead(book, full)
            raise ParameterError(f"No unfinished run on {display_name(name)} is in the ledger; plan and run without --resume.")
        if not record.plan:
            raise ParameterError(
                f"The plan of run {record.run_id} holds a text that is a secret here, and was not kept; plan and run without --resume."
            )
        plan = plan_of(record)
        if plan.command != command:
            raise ParameterError(
                f"The unfinished run on {display_name(name)} is of another kind; go on with `{plan.resume_command}`, or plan anew."
            )
        if plan.converts:
            # What the killed run left beside the table.
            with contextlib.suppress(IcekitError):
                remove_stale(lake, stale_clones(lake, name))
        found = Run(lake, plan, record.run_id, book, limits or Limits(), stop or Stop(), progress)
        return found.resume(record)
