"""End a notebook: write what was asked to be written, then apply the gate."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from icekit.diagnose.findings import Findings, Thresholds
from icekit.errors import EXIT_UNHEALTHY, IcekitError
from icekit.facts.model import TableFacts
from icekit.notebook.setting_up import gated
from icekit.saving import slug

_NOTHING = "Nothing was written: no output folder was given."


class Result(Protocol):
    """What a notebook comes to: a plan's outcome, an answer, a review."""

    @property
    def failure(self) -> str | None:
        """Why the run has failed, or None."""

    def write_into(self, folder: Path) -> Path:
        """Write its JSON document into a folder."""


class Unhealthy(IcekitError):
    """The gate that ``fail_on`` sets; everything has been written by then."""

    exit_status = EXIT_UNHEALTHY


def finish(facts: TableFacts, findings: Findings, thresholds: Thresholds, *, output: str = "", fail_on: str = "never") -> str:
    """Write the JSON document if a folder is given, then apply the gate.

    Raises :class:`Unhealthy` when a finding is as grave as ``fail_on`` or graver.
    """
    said = _NOTHING
    if output:
        from icekit.diagnose.document import write

        path = write(facts, findings, thresholds, Path(output) / f"{slug(facts.name)}.json")
        said = f"Facts and findings are in {path}."
    if gated(findings.worst, fail_on):
        grave = [f.name for f in findings if gated(f.severity, fail_on)]
        raise Unhealthy(f"{facts.name} is unhealthy by fail_on={fail_on}: {', '.join(grave)}. {said}")
    return said


def conclude(result: Result, *, output: str = "") -> str:
    """Write a result's JSON document if a folder is given, then fail the run if the result is a failure.

    Raises :class:`Unhealthy`, after all is written.
    """
    said = f"All of it is in {result.write_into(Path(output))}." if output else _NOTHING
    if result.failure:
        raise Unhealthy(f"{result.failure} {said}")
    return said


def html(text: str) -> Any:
    """Show HTML as a cell's result."""
    from IPython.display import HTML

    return HTML(text)  # type: ignore[no-untyped-call]
