"""Report on a rule's tables in a pass, before and after what is run on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from icekit.report import Options, Part, report
from icekit.schedule.model import Policy, Rule
from icekit.schedule.result import Health, health_of


def folder(policy: Policy, rule: Rule, *, after: bool) -> Path:
    """Where a rule's pages lie: ``output/RULE``, and ``output/RULE/after`` for the tables that the pass changed."""
    return policy.output / rule.name / "after" if after else policy.output / rule.name


def reported(
    policy: Policy, rule: Rule, tables: Sequence[str], *, after: bool, say: Callable[[str], None], part: Part | None = None
) -> tuple[dict[str, tuple[str, Health | None, str | None]], Sequence[str]]:
    """Status, health and error of each table's report, and what went wrong with none of them."""
    output = folder(policy, rule, after=after)
    options = Options(
        catalog=policy.catalog,
        thresholds=dict(rule.thresholds),
        filter_columns=rule.filter_columns,
        storage=rule.storage,
        fail_on=rule.fail_on,
        output=output,
        history=policy.history,
        timeout_seconds=policy.timeout,
    )
    run = report(tables, options, progress=say, part=part)
    now = int(time.time() * 1000)
    found: dict[str, tuple[str, Health | None, str | None]] = {}
    for row in run.rows:
        page = (output / row.page).relative_to(policy.output).as_posix() if row.page else ""
        found[row.table] = (row.status, health_of(row, now, page), row.error)
    return {table: found.get(table, ("crashed", None, "its report is missing")) for table in tables}, run.problems
