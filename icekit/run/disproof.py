"""Hold a table back after a run whose proof failed, until a person has looked at it and says so."""

from __future__ import annotations

from dataclasses import replace

from icekit.catalog import Lake
from icekit.compact.claims import now_ms
from icekit.compact.ledger import opened
from icekit.compact.ledger_api import Ledger
from icekit.compact.records import RunRecord
from icekit.errors import ParameterError, RunDisproved, TableNotFound
from icekit.facts.head import head
from icekit.prove import Proof
from icekit.run.kept import plan_of
from icekit.sql import Identifier, display_name
from icekit.units import span

#: The status of a run whose proof failed, once a person has looked.
CLEARED = "cleared"


def finding(proof: Proof) -> str:
    """What a failed proof found, as the ledger keeps it: the commits that changed rows with the way back, and what is lost."""
    lines = [one.lines() for one in proof.commits if one.ok is False] + [one.lines() for one in proof.kept if one.ok is False]
    return " ".join(line.strip() for several in lines for line in several)


def refuse(ledger: Ledger, table: str, uuid: str | None) -> None:
    """Raise :class:`~icekit.errors.RunDisproved` for a table that a person has yet to look at, whichever name it goes by."""
    for run in _held(ledger, table, uuid):
        raise RunDisproved(
            f"The proof of run {run.run_id} on {table}, {span(max(now_ms() - run.started_ms, 0))} ago, failed: {run.error} "
            "Nothing more is run on the table, and that run is not resumed, until a person has looked. Compare the rows before and after, "
            "and roll back if they are damaged; let no snapshot expire until then. After that say so with "
            f"`{clearing(run)}` (and the same --ledger, if one was given), and plan again: what was rolled back is planned again too.",
            run.run_id,
        )


def clear(lake: Lake, table: Identifier | str, run_id: str | None = None, *, ledger: Ledger | str | None = None) -> tuple[RunRecord, ...]:
    """Say that a person has looked at what a failed proof found; the runs that held the table back.

    ``run_id`` is the run that was looked at (None: whichever hold it). The table may be worked on again; such a run is not resumed,
    and the table is planned for as it is now. Raises :class:`~icekit.errors.ParameterError` where that run does not hold it back.
    """
    name = lake.identifier(table) if isinstance(table, str) else table
    with opened(ledger, lake) as book:
        there = holding(lake, name, book)
        found = tuple(run for run in there if run_id in {None, run.run_id})
        if run_id is not None and not found:
            known = f"it is run {', '.join(run.run_id for run in there)}" if there else "nothing does"
            raise ParameterError(f"Run {run_id} does not hold {display_name(name)} back; {known} (in this ledger).")
        for run in found:
            book.save_run(replace(run, status=CLEARED))
    return found


def holding(lake: Lake, table: Identifier, ledger: Ledger) -> tuple[RunRecord, ...]:
    """The runs that hold a table back until a person has looked."""
    try:
        uuid = head(lake, table).metadata.get("table-uuid")
    except TableNotFound:
        uuid = None  # dropped since
    return _held(ledger, display_name(lake.sql_name(table)), uuid)


def _held(ledger: Ledger, table: str, uuid: str | None) -> tuple[RunRecord, ...]:
    return tuple(run for run in ledger.disproved() if (run.table_uuid == uuid if run.table_uuid and uuid else run.table == table))


def clearing(run: RunRecord) -> str:
    """The command by which a person says that a run was looked at."""
    option = f"--clear {run.run_id}"
    return plan_of(run).command_with(option) if run.plan else f"icekit compact {run.table} {option}"
