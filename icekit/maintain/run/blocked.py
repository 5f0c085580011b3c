"""Block a table after a run whose proof failed, until a person has looked at the table and clears
the run.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from icekit.common.command_line import command_line
from icekit.common.errors import ParameterError, RunDisproved, Status, TableNotFound
from icekit.common.secrets import mask_data
from icekit.common.sql import Identifier, display_name, parse_identifier
from icekit.common.units import span
from icekit.engine.lake import Lake
from icekit.health.facts.head import head
from icekit.maintain.plan import Plan
from icekit.maintain.record.claims import RunRecord, document_reader, now_ms
from icekit.maintain.record.ledger import Ledger, open_ledger
from icekit.rows.proof.proof import Check, CommitProof, Proof


def stored_plan(plan: Plan) -> dict[str, Any]:
    """A plan as the ledger stores it; empty if masking its secrets would change what a resumed run
    does.
    """
    plan_document: dict[str, Any] = document_reader(Plan).dump_python(plan, mode="json")
    return plan_document if mask_data(plan_document) == plan_document else {}


def plan_of(record: RunRecord) -> Plan:
    """The plan of a run whose record has one."""
    plan: Plan = document_reader(Plan).validate_python(record.plan)
    return plan


def finding_text(proof: Proof) -> str:
    """What a failed proof found, as the ledger stores it: the commits that changed rows, how to
    roll back, and what was lost.
    """
    checks: tuple[CommitProof | Check, ...] = (*proof.commits, *proof.maintenance_checks)
    failed_lines = [check.lines() for check in checks if check.ok is False]
    return " ".join(line.strip() for lines in failed_lines for line in lines)


def refuse_blocked(ledger: Ledger, table_name: str, table_uuid: str | None) -> None:
    """Raise :class:`~icekit.common.errors.RunDisproved` for a table that a person has yet to look
    at, under any of its names.
    """
    for run in _runs_of_table(ledger.disproved_runs(), table_name, table_uuid):
        raise RunDisproved(
            f"The proof of run {run.run_id} on {table_name}, "
            f"{span(max(now_ms() - run.started_ms, 0))} ago, failed: {run.error} icekit runs "
            "nothing more on the table, and does not resume that run, until a person has looked at "
            "it. Compare the rows before and after, and roll back if they are damaged; do not let any "
            f"snapshot expire until then. After that, clear the run with `{clear_command(run)}` (and "
            "the same --ledger, if you gave one), and plan again: the new plan includes work that was rolled back.",
            run.run_id,
        )


def clear_blocking_runs(
    lake: Lake,
    table: Identifier | str,
    run_id: str | None = None,
    *,
    ledger: Ledger | str | None = None,
) -> tuple[RunRecord, ...]:
    """Record that a person has looked at a failed or missing proof; returns the runs that blocked
    the table.

    ``run_id`` is the run that was looked at (None: all runs that block the table). Runs on the
    table are then allowed again; a cleared run is not resumed, and new plans start from the table
    as it is. Raises :class:`~icekit.common.errors.ParameterError` if that run does not block the
    table.
    """
    table_identifier = lake.identifier(table)
    run_ledger = open_ledger(ledger)
    blocking_runs = find_blocking_runs(lake, table_identifier, run_ledger)
    cleared_runs = tuple(run for run in blocking_runs if run_id in {None, run.run_id})
    if run_id is not None and not cleared_runs:
        run_ids = ", ".join(run.run_id for run in blocking_runs) or "no run"
        raise ParameterError(
            f"Run {run_id} does not block {display_name(table_identifier)}, which is blocked by "
            f"{run_ids} (in this ledger)."
        )
    for run in cleared_runs:
        run_ledger.save_run(replace(run, status=Status.CLEARED))
    return cleared_runs


def find_blocking_runs(lake: Lake, table: Identifier, ledger: Ledger) -> tuple[RunRecord, ...]:
    """The runs on a table whose proof failed or could not be made, until a person has looked.

    A failed proof blocks every run (:func:`refuse_blocked`), a missing one the passes of a policy.
    """
    try:
        table_uuid = head(lake, table).metadata.get("table-uuid")
    except TableNotFound:
        table_uuid = None  # dropped meanwhile
    return _runs_of_table(
        (*ledger.disproved_runs(), *ledger.unproved_runs()),
        display_name(lake.sql_name(table)),
        table_uuid,
    )


def _runs_of_table(
    runs: Sequence[RunRecord], table_name: str, table_uuid: str | None
) -> tuple[RunRecord, ...]:
    return tuple(
        run
        for run in runs
        if (
            run.table_uuid == table_uuid
            if run.table_uuid and table_uuid
            else run.table == table_name
        )
    )


def clear_command(run: RunRecord) -> str:
    """The command with which a person clears a run."""
    if run.plan:
        return plan_of(run).command_with("--clear", run.run_id)
    catalog_name, *table_parts = parse_identifier(run.table)
    return command_line("compact", catalog_name, display_name(table_parts), "--clear", run.run_id)
