"""Convert a table's equality deletes: plan, run under a checkpoint, prove, and compact if asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icekit.compact.equality_deletes.plan import plan_conversion
from icekit.compact.execute import Stop
from icekit.compact.ledger_api import Ledger
from icekit.compact.outcome import Outcome
from icekit.compact.policy import Policy
from icekit.compact.service import plan_table
from icekit.facts.collect import observe
from icekit.run.limits import Limits
from icekit.run.service import run
from icekit.sql import Identifier

if TYPE_CHECKING:
    from icekit.catalog import Lake


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
