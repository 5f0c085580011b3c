"""Say in words and rows what budgets buy, and what a plan will do when it is run; no ipywidgets here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from icekit.compact.buying import Bought, bought
from icekit.compact.candidates import Candidate
from icekit.compact.model import Plan
from icekit.compact.outcome import Outcome
from icekit.compact.policy import Policy
from icekit.units import count, percent, size

#: The columns of :func:`budget_rows`.
HEAD = ("budget", "candidates bought", "reads", "files in", "files out", "file opens saved", "of all that can be saved")
_SHARES = (0.05, 0.1, 0.25, 0.5, 1.0)
_STEPS = 20
_UNITS = (("TB", 10**12), ("TiB", 2**40), ("GB", 10**9), ("GiB", 2**30), ("MB", 10**6), ("MiB", 2**20), ("B", 1))
#: Statuses of an action of which something is left to do.
LEFT = ("failed", "stopped", "pending")


def budget_rows(found: Sequence[Candidate], within: Callable[[int], Plan]) -> list[tuple[str, ...]]:
    """What budgets of some shares of all candidates' bytes buy; ``within`` plans for so many bytes."""
    everything = sum(c.bytes_in for c in found)
    rows: list[tuple[str, ...]] = []
    for share in _SHARES:
        limit = max(int(share * everything), 1)
        made = within(limit)
        what, p = bought(found, made), made.prediction
        rows.append(
            (
                f"{size(limit)} ({percent(share)})",
                f"{what.candidates:,} of {what.of_candidates:,}",
                size(p.bytes_in),
                f"{p.files_in:,}",
                f"{p.files_out:,}",
                f"{what.file_opens_saved:,}",
                percent(what.share_won) if what.share_won is not None else "–",
            )
        )
    return rows


def budget_text(policy: Policy) -> str:
    """A policy's budget as a person writes it; empty for none."""
    if policy.budget_bytes is not None:
        exact = (f"{policy.budget_bytes // n} {unit}" for unit, n in _UNITS if policy.budget_bytes % n == 0)
        return next(exact)
    if policy.budget_files is not None:
        return f"{policy.budget_files} files"
    return f"{policy.budget_minutes:g} minutes" if policy.budget_minutes is not None else ""


def with_budget(policy: Policy, budget: str) -> Policy:
    """The policy with another budget; raises :class:`~icekit.errors.ParameterError` for a text that is none."""
    given = Policy.of({"budget": budget})
    return dataclasses.replace(policy, **{name: getattr(given, name) for name in ("budget_bytes", "budget_files", "budget_minutes")})


def slider_steps(found: Sequence[Candidate], own: str = "", buys: int | None = None) -> list[tuple[str, str]]:
    """Places for a slider: the budget that buys the first so many candidates, at most twenty of them, and no limit at last.

    ``own`` is a budget that a person wrote; where it is none of these, it has a place of its own,
    among them by how many candidates it ``buys`` (None: it cannot be read).
    """
    if not found:
        return [("nothing is worth it", own)]
    places = sorted({round(i * len(found) / _STEPS) for i in range(1, _STEPS + 1)} - {0, len(found)})
    steps = [
        (n, f"{n:,} of {len(found):,} candidates, {size(total)}", f"{total} B")
        for n in places
        if (total := sum(c.bytes_in for c in found[:n]))
    ]
    if own and own not in {budget for _, _, budget in steps}:
        said = f"{buys:,} of {count(len(found), 'candidate')}" if buys is not None else "it is no budget"
        before = [step for step in steps if step[0] <= (buys or 0)]
        steps = [*before, (buys or 0, f"own budget, {own.strip()}: {said}", own), *steps[len(before) :]]
    return [*((label, budget) for _, label, budget in steps), (f"all of {count(len(found), 'candidate')}", "")]


def bought_told(what: Bought, plan: Plan) -> str:
    """What a plan buys, in a sentence."""
    p = plan.prediction
    if not plan.actions:
        return f"It buys none of {count(what.of_candidates, 'candidate')}: nothing would be rewritten."
    won = f" ({percent(what.share_won)} of what can be saved)" if what.share_won is not None else ""
    return (
        f"It buys {what.candidates:,} of {count(what.of_candidates, 'candidate')} in {count(len(plan.actions), 'action')}: {count(p.files_in, 'file')} and {size(p.bytes_in)} "
        f"become {count(p.files_out, 'file')}, and a full scan is spared {what.file_opens_saved:,} file opens{won}."
    )


def question(plan: Plan) -> str:
    """What running a plan will do, for a person to say yes to."""
    p = plan.prediction
    procedures = ", ".join(sorted({a.procedure for a in plan.actions}))
    return (
        f"Run {count(len(plan.actions), 'action')} ({procedures}) on {plan.catalog}.{plan.name} now? It reads {count(p.files_in, 'file')}, {size(p.bytes_in)}, writes about {count(p.files_out, 'file')}, "
        "commits each action, and proves that no row changed. The files that are replaced stay until their snapshots expire."
    )


def question_of_rest(outcome: Outcome) -> str:
    """What resuming a run will do, for a person to say yes to; the run is named."""
    plan = outcome.plan
    left = [a.action for a in outcome.actions if a.status in LEFT]
    files = sum(a.prediction.files_in for a in left)
    return (
        f"Go on with run {outcome.run_id} on {plan.catalog}.{plan.name} now? It has {count(len(left), 'action')} left, "
        f"of {count(files, 'file')} at most, and does them as they were planned; what was committed is not done again."
    )


def outcome_told(outcome: Outcome) -> tuple[str, str]:
    """What a run came to, in a sentence and a kind of sentence."""
    name = outcome.plan.name
    if outcome.status == "stopped":
        return f"Cancelled: what was committed stays, and the rest of {name} was not touched. Resume would go on with it.", "warning"
    return f"{name}: {outcome.status}; every figure and the proof are below.", "critical" if outcome.exit_status else "fine"
