"""Run a plan or a conversion under a checkpoint, or resume one that was killed."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from icekit.catalog import Lake
from icekit.compact.claims import Ledger
from icekit.compact.equality_deletes.plan import plan_conversion
from icekit.compact.ledger import let_go_of_dead, opened
from icekit.compact.model import Plan, Policy
from icekit.compact.outcome import ActionOutcome, Outcome
from icekit.compact.service import plan_table
from icekit.engine.interrupting import Stop
from icekit.errors import IcekitError, ParameterError
from icekit.facts.collect import observe
from icekit.facts.head import head
from icekit.run.attempt import Limits
from icekit.run.checkpointed import CheckpointedRun, Say, plan_of, refuse
from icekit.sandbox import remove_stale, stale_clones
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
    on it failed and nobody has cleared that (:func:`~icekit.run.checkpointed.clear`); what happens to an action is in the outcome. ``run_id`` is for
    who must know it before the run begins (:func:`new_run_id`).
    """
    if not execute:
        return Outcome(plan, None, tuple(ActionOutcome(action, "planned") for action in plan.actions))
    with opened(ledger, lake) as book:
        if not plan.actions:
            # Also where nothing is left to do: that is no sign of a table that is well.
            refuse(book, display_name(lake.sql_name(plan.table)), plan.table_uuid)
            return Outcome(plan, None, ())
        return CheckpointedRun(lake, plan, book, limits or Limits(), stop or Stop(), progress).start(run_id or new_run_id())


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
                f"The unfinished run on {display_name(name)} is of another kind; go on with `{plan.resume_command}`, or plan again."
            )
        if plan.converts:
            # What the killed run left beside the table.
            with contextlib.suppress(IcekitError):
                remove_stale(lake, stale_clones(lake, name))
        return CheckpointedRun(lake, plan, book, limits or Limits(), stop or Stop(), progress).resume(record)


# --- Convert a table's equality deletes: plan, run under a checkpoint, prove, and compact if asked


def convert_equality_deletes(
    lake: Lake,
    table: Identifier | str,
    where: str | None = None,
    *,
    branch: str | None = None,
    execute: bool = False,
    then_compact: bool = False,
    batch_bytes: int | str | None = None,
    ledger: Ledger | str | None = None,
    limits: Limits | None = None,
    stop: Stop | None = None,
    progress: Callable[[str], None] = print,
) -> Outcome:
    """Put position deletes (deletion vectors from format version 3 on) in the place of a table's equality deletes.

    A dry run unless ``execute`` is set: it says what would be done. Each batch is one commit (or
    several, where a partition is too large for the disk),
    recorded, retried after a conflict, resumed after a kill and proved, as in
    :func:`icekit.run.run`; no row changes. ``where``, ``branch`` and ``batch_bytes`` are
    as in :func:`~icekit.compact.equality_deletes.plan.plan_conversion`. ``then_compact``
    afterwards rewrites the partitions that it pays to, whose deletes are cheap by now; what
    came of that is the outcome's ``then``.
    """
    plan = plan_conversion(lake, table, where=where, branch=branch, batch_bytes=batch_bytes, ledger=ledger)
    if execute and plan.actions:
        progress(f"{plan!r}\n")
    given: dict[str, Any] = {"ledger": ledger, "limits": limits, "stop": stop, "progress": progress}
    outcome = run(lake, plan, execute=execute, **given)
    return finish_with_compaction(lake, outcome, **given) if then_compact and execute else outcome


def finish_with_compaction(lake: Lake, outcome: Outcome, *, ledger: Ledger | str | None = None, **given: Any) -> Outcome:
    """Follow a conversion that is done by the rewrites that pay back; what came of them is the outcome's ``then``."""
    if outcome.status not in {"done", "nothing to do"}:
        return outcome
    progress = given.get("progress") or print
    facts = observe(lake, outcome.plan.table, ref=outcome.plan.ref)
    plan = plan_table(lake, facts, None, Policy.of({"leave_alone": "0 minutes"}), ledger=ledger)
    if plan.actions:
        progress(f"\n{plan!r}\n")
    return replace(outcome, then=run(lake, plan, execute=True, ledger=ledger, **given))
