"""Run a plan, resume a run that was killed, convert the equality deletes of a table."""

import contextlib
import uuid

from icekit.common.errors import IcekitError, ParameterError, Status
from icekit.common.sql import Identifier, display_name
from icekit.common.units import span
from icekit.engine.lake import Lake
from icekit.health.facts.head import head
from icekit.maintain.plan import Plan
from icekit.maintain.record.claims import RunRecord, now_ms
from icekit.maintain.record.ledger import Ledger, open_ledger
from icekit.maintain.run.blocked import plan_of, refuse_blocked
from icekit.maintain.run.options import RunSettings
from icekit.maintain.run.outcome import ActionOutcome, Outcome

#: Statuses of a run that has something left to do.
UNFINISHED = (Status.RUNNING, Status.STOPPED, Status.FAILED)


def interrupted_run(lake: Lake, table: Identifier, ledger: Ledger) -> RunRecord | None:
    """The last run on a table, if it was killed or stopped and its plan is stored; a run that
    failed is planned again, because its plan is the reason.
    """
    record = ledger.last_run(display_name(lake.sql_name(table)))
    return (
        record
        if record is not None and record.status in {Status.RUNNING, Status.STOPPED} and record.plan
        else None
    )


def new_run_id() -> str:
    """A new, unique run id."""
    return uuid.uuid4().hex[:12]


def run(
    lake: Lake, plan: Plan, settings: RunSettings | None = None, *, execute: bool = False
) -> Outcome:
    """Run a plan; a dry run unless ``execute`` is true.

    Each action is recorded in the ledger before and after, tagged in the snapshots it commits,
    retried or split where that helps, and proved as the limits of the ``settings`` say. Raises
    :class:`~icekit.common.errors.TableClaimed` if another run holds the table, and
    :class:`~icekit.common.errors.RunDisproved` if the proof of an earlier run failed and nobody has
    cleared it (:func:`~icekit.maintain.run.blocked.clear_blocking_runs`). Failures of an action are
    in the outcome.
    """
    if not execute:
        return Outcome(
            plan, None, tuple(ActionOutcome(action, Status.PLANNED) for action in plan.actions)
        )
    settings = settings or RunSettings()
    ledger = open_ledger(settings.ledger)
    if not plan.actions:
        # Also if nothing is left to do: an empty plan does not mean that the table is healthy.
        refuse_blocked(ledger, display_name(lake.sql_name(plan.table)), plan.table_uuid)
        return Outcome(plan, None, ())
    # What changes tables is loaded for that: a dry run takes a third of the time without it.
    from icekit.maintain.run.journal import new_journal
    from icekit.maintain.run.run_plan import PlanRun

    journal = new_journal(lake, plan, ledger, settings.run_id or new_run_id())
    return PlanRun(lake, plan, settings, journal).run()


def resume(
    lake: Lake,
    table: Identifier | str,
    settings: RunSettings | None = None,
    *,
    command: str = "compact",
) -> Outcome:
    """Continue the last run on a table, if it is unfinished; does only what is left of it.

    What was done is read from the table's own snapshots, not from the killed run's last
    records: work that was rolled back is done again. ``command`` is ``compact``, ``convert`` or
    ``maintain``: a run of another command is refused, and so is any run but the one of the
    settings' ``run_id``, if they have one. Raises
    :class:`~icekit.common.errors.ParameterError` if there is none,
    :class:`~icekit.common.errors.TableClaimed` if it is still running, and
    :class:`~icekit.common.errors.RunDisproved` as :func:`run` does.
    """
    settings = settings or RunSettings()
    table_identifier = lake.identifier(table)
    table_name = display_name(lake.sql_name(table_identifier))
    ledger = open_ledger(settings.ledger)
    refuse_blocked(ledger, table_name, head(lake, table_identifier).metadata.get("table-uuid"))
    # The newest run of all: an older run's plan was made for an earlier state of the table.
    record = ledger.last_run(table_name)
    if (
        record is None
        or record.status not in UNFINISHED
        or settings.run_id not in {None, record.run_id}
    ):
        raise ParameterError(
            f"The ledger has no unfinished run on {display_name(table_identifier)}. Plan and run "
            "without --resume."
        )
    if not record.plan:
        raise ParameterError(
            f"The plan of run {record.run_id} contains a secret, so the ledger did not store it. "
            "Plan and run without --resume."
        )
    plan = plan_of(record)
    if plan.command != command:
        raise ParameterError(
            f"The unfinished run on {display_name(table_identifier)} is of another command. "
            f"Continue it with `{plan.resume_command}`, or plan again."
        )
    if plan.converts:
        # Clones that the killed run left next to the table.
        from icekit.sandbox.scratch import remove_stale_clones, stale_clones

        with contextlib.suppress(IcekitError):
            remove_stale_clones(lake, stale_clones(lake, table_identifier))
    from icekit.maintain.run.journal import resumed_journal
    from icekit.maintain.run.run_plan import PlanRun

    plan_run = PlanRun(lake, plan, settings, resumed_journal(ledger, record))
    settings.say(
        f"resuming run {record.run_id} on {table_name}, which began "
        f"{span(max(now_ms() - record.started_ms, 0))} ago"
    )
    return plan_run.run()


def convert_equality_deletes(
    lake: Lake,
    table: Identifier | str,
    where: str | None = None,
    settings: RunSettings | None = None,
    *,
    branch: str | None = None,
    batch_bytes: int | str | None = None,
    execute: bool = False,
) -> Outcome:
    """Replace a table's equality deletes with position deletes (deletion vectors from format
    version 3 on); a dry run unless ``execute`` is true.

    Each batch is one commit (or several, where a partition is too large for the disk), recorded,
    retried after a conflict, resumed after a kill and proved, as in :func:`run`; no row changes.
    ``where``, ``branch`` and ``batch_bytes`` are as in
    :func:`~icekit.maintain.planning.conversion.plan_conversion`.
    """
    from icekit.maintain.planning.conversion import plan_conversion

    settings = settings or RunSettings()
    plan = plan_conversion(
        lake, table, where=where, branch=branch, batch_bytes=batch_bytes, ledger=settings.ledger
    )
    if execute and plan.actions:
        settings.say(f"{plan.text()}\n")
    return run(lake, plan, settings, execute=execute)
