"""Share a pass's budget out among its tables: conversions first, then partitions of all tables by what they win."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from icekit.schedule.budget import Share, less, share_out
from icekit.schedule.kinds import Budget
from icekit.schedule.permitted import Permit
from icekit.schedule.result import Step
from icekit.schedule.under_way import Table


def shares(budget: Budget, tables: list[Table], permit: Callable[[Table], Permit]) -> dict[str, Share]:
    """What each table gets of the pass's budget; conversions come first, as nothing else helps their tables."""
    spent = [step for one in tables for step in one.steps if step.run_id]
    left = less(budget, sum(step.bytes_in for step in spent), sum(step.files_in for step in spent))
    if left.bytes is not None or left.files is not None:
        for one in tables:
            one.leave = permit(one)
        tables = [one for one in tables if one.leave and one.leave.granted and not one.is_at_rest]
    for one in tables:
        files, read = one.studied.convert_reads
        if files and one.rule.convert and one.rule.convert.execute:
            if (left.bytes is not None and read > left.bytes) or (left.files is not None and files > left.files):
                one.steps.append(Step("convert", "waits", "the pass's budget is too small for it beside the others", files_in=0))
                one.studied = replace(one.studied, plans={k: v for k, v in one.studied.plans.items() if k != "convert"})
            else:
                left = less(left, read, files)
    wanted = {one.written: one.studied.offers for one in tables if one.rule.compact and one.rule.compact.execute}
    return share_out(wanted, left)
