"""Collect the facts of one table for its notebook, within its time; Spark's work on it can be cancelled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from icekit.catalog import Lake
from icekit.catalog.in_time import TookTooLong, Waited, in_time, tagged
from icekit.diagnose import diagnose
from icekit.diagnose.document import save_facts
from icekit.diagnose.findings import Findings
from icekit.engine import interrupting
from icekit.errors import IcekitError
from icekit.facts.model import TableFacts
from icekit.notebook import limits
from icekit.report.rows import Options
from icekit.saving import slug
from icekit.sql import Identifier, display_name


class TimedOut(IcekitError):
    """A table that took longer than it was given."""


class Observed(NamedTuple):
    """Facts and findings of one table; ``waited`` are the seconds in which Spark was started, for all tables."""

    facts: TableFacts
    findings: Findings
    waited: float = 0.0


def observed(
    lake: Lake,
    name: Identifier,
    options: Options,
    seconds: float | None = None,
    *,
    collect: Callable[..., TableFacts] | None = None,
) -> Observed:
    """A table's facts and findings; raises :class:`TimedOut` after so many seconds, its Spark work cancelled.

    Reading without Spark cannot be stopped (:func:`icekit.catalog.in_time.in_time`). ``collect`` stands for
    :meth:`icekit.catalog.Lake.observe`.
    """
    chosen, waited = limits(options.thresholds), Waited()

    def work(taken: Lake) -> TableFacts:
        from icekit.facts import observe

        return (collect or observe)(
            taken,
            name,
            ref=options.ref or None,
            collector=options.collector,
            size_ratios=chosen.size_ratios,
            filter_columns=list(options.filter_columns) or None,
            storage=options.storage,
        )

    if seconds is None:
        with tagged(lake, interrupting.new_tag(), waited) as taken:
            facts = work(taken)
    else:
        try:
            facts = in_time(lake, seconds, work, waited=waited)
        except TookTooLong:
            raise timed_out(name, seconds) from None
    return Observed(facts, diagnose(facts, chosen, session_conf=lake.session_conf()), waited.seconds)


def timed_out(name: Identifier, seconds: float) -> TimedOut:
    """What is said of a table that took too long, and what to do."""
    return TimedOut(
        f"{display_name(name)} was not done within {seconds:,.0f} s; give it more with --timeout (`timeout:` in a policy), or report on it alone, with --collector spark if it is large."
    )


def clear(output: Path, name: Identifier) -> None:
    """Remove what an earlier run left of a table."""
    base = slug(display_name(name))
    for suffix in (".html", ".json", ".ipynb", ".error.txt"):
        (output / f"{base}{suffix}").unlink(missing_ok=True)


def kept(facts: TableFacts, scratch: Path) -> Path:
    """Facts in a file, for the notebook."""
    return save_facts(facts, scratch / f"{slug(facts.name)}.facts.json")
