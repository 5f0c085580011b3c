"""End a notebook: write what was asked to be written, then apply the gate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.errors import EXIT_UNHEALTHY, IcekitError
from icekit.facts.model import TableFacts
from icekit.findings import Findings, Thresholds
from icekit.notebook.setting_up import gated

if TYPE_CHECKING:
    from icekit.compact import Outcome
    from icekit.tune.answer import Answer
    from icekit.tune.merge import Review
    from icekit.tune.write_mode import WriteModeChoice

_NOTHING = "Nothing was written: no output folder was given."


class Unhealthy(IcekitError):
    """The gate that ``fail_on`` sets; everything has been written by then."""

    exit_status = EXIT_UNHEALTHY


def finish(facts: TableFacts, findings: Findings, thresholds: Thresholds, *, output: str = "", fail_on: str = "never") -> str:
    """Write the JSON document if a folder is given, then apply the gate.

    Raises :class:`Unhealthy` when a finding is as grave as ``fail_on`` or graver.
    """
    said = _NOTHING
    if output:
        from icekit.report.document import write

        path = write(facts, findings, thresholds, Path(output) / f"{slug(facts.name)}.json")
        said = f"Facts and findings are in {path}."
    if gated(findings.worst, fail_on):
        grave = [f.name for f in findings if gated(f.severity, fail_on)]
        raise Unhealthy(f"{facts.name} is unhealthy by fail_on={fail_on}: {', '.join(grave)}. {said}")
    return said


def finish_review(review: Review, *, output: str = "") -> str:
    """Write a review's JSON document if a folder is given, then fail the run if a trial left other rows.

    Raises :class:`Unhealthy`, after all is written.
    """
    said = _NOTHING
    if output:
        from icekit.tune.merge.document import write_into

        said = f"The review is in {write_into(review, Path(output))}."
    if not review.is_proved:
        raise Unhealthy(f"The statement and what is offered could not be shown to leave the same rows. {said}")
    return said


def finish_plan(outcome: Outcome, *, output: str = "") -> str:
    """Write a plan's JSON document if a folder is given, then fail the run if something is left or not proved.

    Raises :class:`Unhealthy`, after all is written.
    """
    said = _NOTHING
    if output:
        from icekit.compact.document import named, write

        said = f"The plan and its outcome are in {write(outcome, Path(output) / named(outcome.plan))}."
    if outcome.exit_status:
        raise Unhealthy(f"{outcome.plan.name}: {outcome.status}. {said}")
    return said


def finish_write_mode(choice: WriteModeChoice, *, output: str = "") -> str:
    """Write a choice's JSON document if a folder is given."""
    if not output:
        return _NOTHING
    from icekit.tune.write_mode.document import write

    return f"The answer is in {write(choice, Path(output) / f'{slug(choice.name)}.write-mode.json')}."


def finish_answer(answer: Answer, *, output: str = "") -> str:
    """Write an answer's JSON document if a folder is given."""
    return f"The answer is in {answer.write_into(Path(output))}." if output else _NOTHING


def slug(name: str) -> str:
    """A file name for a table: its own where that is safe, distinct otherwise."""
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    if safe == name and len(safe) < 120:
        return safe
    import hashlib

    return f"{safe[:100]}-{hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:8]}"


def html(text: str) -> Any:
    """Show HTML as a cell's result."""
    from IPython.display import HTML

    return HTML(text)  # type: ignore[no-untyped-call]
